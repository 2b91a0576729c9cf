"""Run data made by hand: a run whose every number a test chose."""

from array import array
from math import nan

from gpumon.analysis.rundata import (
    Coverage,
    DeviceData,
    NodeData,
    PoolData,
    ProcessData,
    ProgramData,
    RunData,
    Track,
)
from gpumon.frames.places import Place
from gpumon.model.sample import Device, Header, JobContext, Process
from gpumon.site import Site
from gpumon.slurm.job import Job

START = 1_795_200_000.0
GIB = 1 << 30


def track(values, count=None):
    """A track of these bin means (None: a gap); a single number stands in all `count` bins."""
    if not isinstance(values, (list, tuple)):
        values = [values] * count
    values = [nan if value is None else float(value) for value in values]
    return Track(array("f", values), array("f", values), array("f", values))


def tracks(count, **values):
    return {name: track(value, count) for name, value in values.items()}


def process(count=1, mem=None, sm=None, pid=4312, first=START, last=None, rise=(),
            appeared=True, others=None, frameworks=None, **facts):  # fmt: skip
    """A process on a device. `mem` and `sm` are numbers or lists, one entry per bin."""
    known = {"user": "ada", "command": "python train.py", "name": "python", "own": True,
             "in_job": True, **facts}  # fmt: skip
    return ProcessData(
        Process(pid, **known),
        first,
        START + count * 10.0 if last is None else last,
        last is not None,
        track(mem, count),
        track(sm, count),
        tuple(zip(*rise)) or ((), ()),
        (frameworks or (known["framework"],)) if known.get("framework") else (),
        appeared,
        others,
    )


def program(count=1, pid=4312, rank=None, place="train.py:131", waits_for="", since=None,
            stepped=None, steps=1000, places=None, workers=0, worker_places=None, last=None,
            **values):  # fmt: skip
    """A process that the probe reports on. `places`: (text, waits for) -> looks in each bin."""
    made = ProgramData(
        Process(pid, "ada", "python train.py", "python", own=True, in_job=True),
        START,
        START + count * 10.0 if last is None else last,
        rank,
        steps,
        START + count * 10.0 if stepped is None else stepped,
        Place(place, waits_for),
        START if since is None else since,
        tracks(count, **values),
        workers=workers,
        grid_first=int(START // 10),
    )
    told = (
        (made.looks, places or {(place, waits_for): 5}),
        (made.worker_looks, worker_places or {}),
    )
    for looks, its in told:
        for at in range(count):
            for each, number in its.items():
                looks.add(made.grid_first + at, Place(*each), number)
    return made


def held(mem_at, seconds, period_s=2.0, **rest):
    """A process that holds `mem_at(s)` bytes s seconds after it came, read every `period_s`."""
    times = [n * period_s for n in range(int(seconds / period_s))]
    values = [float(mem_at(time)) for time in times]
    bins = [values[int(at / period_s):int((at + 10) / period_s)] or None
            for at in range(0, int(seconds), 10)]  # fmt: skip
    rise = [(START + at, value) for at, value in zip(times, values) if at <= 600]
    made = process(len(bins), 0, rise=rise, **rest)
    made.mem_bytes = Track(
        array("f", [nan if each is None else sum(each) / len(each) for each in bins]),
        array("f", [nan if each is None else min(each) for each in bins]),
        array("f", [nan if each is None else max(each) for each in bins]),
    )
    return made


def pooled(made, used, reserved=None, *, peak=None, limit=None, retries=0.0, ooms=0.0, last=None):
    """The process, whose probe tells of such a pool in every bin; `peak`: beyond what is read."""
    bins = [at for at, value in enumerate(made.mem_bytes.mean) if value == value]

    def course(value):
        values = value if isinstance(value, list) else [value] * len(made.mem_bytes.mean)
        return track([each if at in bins else None for at, each in enumerate(values)])

    courses = course(used), course(reserved)
    most = [max(each.known(), default=None) for each in courses]
    made.pool = PoolData(made.last if last is None else last, *courses, peak or most[0], most[1],
                         limit, retries, ooms)  # fmt: skip
    return made


def device(count, index=0, node="gpu01", active=None, total=80 * GIB, cc="8.0",
           name="NVIDIA A100-SXM4-80GB", mig=None, processes=(), polled=False, facts=None,
           cuda_index=None, **values):  # fmt: skip
    """A device of `count` bins; `active` defaults to 1 where `busy_percent` is at least 1."""
    made = tracks(count, **values)
    if active is None:
        busy = made["busy_percent"].mean if "busy_percent" in made else [nan] * count
        active = [None if each != each else float(each >= 1) for each in busy]
    known = {"mem_total_bytes": total, "compute_capability": cc, **(facts or {})}
    return DeviceData(
        node,
        Device(index, index, f"GPU-{node}-{index}", name,
               index if cuda_index is None else cuda_index, mig, known),
        made,
        track(active, count),
        polled,
        processes=list(processes),
        mem_before_bytes=0.0,
    )  # fmt: skip


def node(count, name="gpu01", cpus=8, limit=64 * GIB, job=None, host=None, **rest):
    """A node of `count` bins; `job` and `host` are numbers or lists by field name."""
    context = JobContext(id="4711", cpus=cpus, mem_limit_bytes=limit, nodes=name, node_count=1)
    header = Header(name, "boot", START, 0.0, 1.0, "0.1.0", job=context)
    return NodeData(
        name,
        header,
        tracks(count, **(job or {})),
        tracks(count, **(host or {})),
        covered=track(1, count),
        mem_limit_bytes=limit,
        **rest,
    )


def evidence(count, devices=(), nodes=(), job=None, live=False, site=None, events=(), **rest):
    """A run of `count` bins of 10 s, measured from its start to its end."""
    coverage = rest.pop("coverage", None) or Coverage(
        "live" if live else "recording", 100.0, 1.0, from_start=True, to_end=not live
    )
    nodes = list(nodes) or [node(count)]
    for each in nodes:
        each.covered_s = each.covered_s or coverage.covered_percent / 100 * count * 10
    return RunData(
        job if job is not None else Job(raw_id="4711", id="4711", state="COMPLETED"),
        START,
        START + count * 10.0,
        live,
        10.0,
        list(devices),
        nodes,
        list(events),
        coverage,
        site or Site(),
        grid_start=START,
        count=count,
        **rest,
    )
