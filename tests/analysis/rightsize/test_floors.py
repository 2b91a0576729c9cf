"""For any run no line asks for less than any source showed to be used, with a margin."""

from collections import Counter

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from gpumon.analysis.finding import Gpus
from gpumon.analysis.rightsize.cores import ONE_THREAD
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.slurm.job import Step, Usage
from tests.analysis.build import GIB, device, evidence, node, process, track
from tests.analysis.rightsize.test_recommend import job

COUNT = 360
MIB = 1 << 20
STATES = ["COMPLETED"] * 4 + ["FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "RUNNING"]
_SIZE = st.floats(0.01, 70).map(lambda gib: gib * GIB)
_CORES = st.floats(0.05, 34)


@st.composite
def runs(draw):
    """An hour on one or two nodes, by a recording of all or a part of it, and by accounting."""
    names = ["gpu01", "gpu02"][: draw(st.integers(1, 2))]
    cpus, mem = draw(st.sampled_from([2, 8, 32])), draw(st.sampled_from([4, 16, 64, 256])) * GIB
    nodes, devices = [], []
    for name in names:
        cores = draw(_CORES)
        burst = draw(st.integers(0, COUNT // 2))  # bins with another number of cores
        levels = [draw(_CORES)] * burst + [cores] * (COUNT - burst)
        sampled, charged = draw(_SIZE), draw(_SIZE)
        made = node(
            COUNT, name, cpus, mem, oom_kills=0, peak60_cores=max(levels[0], cores),
            cpu_core_s=sum(levels) * 10, mem_peak_bytes=min(sampled, mem),
            mem_charged_peak_bytes=draw(st.none() | _SIZE),
            job={"cpu_cores_used": levels, "mem_charged_bytes": charged,
                 "swap_used_bytes": draw(st.sampled_from([None, 0.0, GIB]))},
        )  # fmt: skip
        for pid in range(100, 100 + draw(st.integers(0, 12))):
            made.processes[pid] = (process(pid=pid).facts, track(50, COUNT))
        nodes.append(made)
    gpus = draw(st.integers(0, 4))
    for name in names:
        for index in range(gpus):
            busy = [draw(st.sampled_from([0, 0, 2, 90]))] * draw(st.integers(0, COUNT))
            busy += [0] * (COUNT - len(busy))
            held = [process(COUNT, GIB, pid=draw(st.integers(7, 8)))] * draw(st.integers(0, 1))
            devices.append(device(COUNT, index, name, busy_percent=busy, processes=held))
    rss = draw(st.none() | _SIZE)
    usage = Usage(maximum={"mem": rss}) if rss else Usage()
    step = Step("batch", max_rss_bytes=rss and int(rss), usage=usage, node_count=1)
    form = draw(st.sampled_from(["node", "cpu", "gpu"] if gpus else ["node", "cpu"]))
    made = job(
        draw(st.sampled_from(STATES)), cpus, mem, gpus, len(names), limit=36_000, elapsed=3600.0,
        form=form, gres=f"gpu:a100:{gpus}" if gpus else "", gres_form="node" if gpus else "",
        cpus_per_task=cpus, tasks=len(names), steps=(step,), slurm_version="23.02.1",
        acct_gather="cgroup/v2",
    )  # fmt: skip
    told = Coverage(
        "recording", 100.0, draw(st.sampled_from([1.0, 5.0, 15.0])), from_start=draw(st.booleans())
    )
    live = made.state == "RUNNING"
    return evidence(COUNT, devices, nodes, made, live=live, coverage=told)


def used_bytes(run):
    """The most that any source shows of a node, page cache apart where it can be told apart."""
    found = [each.mem_peak_bytes + (each.job["swap_used_bytes"].peak() or 0) for each in run.nodes]
    for each in run.nodes:
        kernel = each.mem_charged_peak_bytes or 0
        hidden = kernel > 1.05 * each.job["mem_charged_bytes"].peak()
        found.append(kernel if hidden or not run.coverage.from_start else 0)
    return max(*found, run.job.steps[0].max_rss_bytes or 0)


def at_once(track_):
    return sorted(track_.high)[int(0.9 * len(track_.high))]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(runs())
def test_no_line_is_below_what_any_source_shows(run):
    evaluation = evaluate(run)
    after = {each.change.option: each.change.after for each in evaluation.recommendations}
    request = run.job.allocated
    names = len(run.nodes)
    cpus, gpus = request.cpus // names, request.gpus // names
    new_cpus = after.get("--cpus-per-task", cpus)
    gres = after.get("--gres", Gpus("gpu:a100:", gpus))
    new_gpus = 0 if gres is None else gres.count
    new_mem = {
        "--mem": after.get("--mem"),
        "--mem-per-cpu": after.get("--mem-per-cpu", 0) * new_cpus,
        "--mem-per-gpu": after.get("--mem-per-gpu", 0) * new_gpus,
    }
    for option in new_mem.keys() & after.keys():
        units = {"--mem": 0, "--mem-per-cpu": new_cpus, "--mem-per-gpu": new_gpus}[option]
        asked = run.job.allocated.mem_bytes / names - units * MIB  # no more than was asked for
        assert new_mem[option] >= min(0.999 * 1.2 * used_bytes(run), asked)
    if new_cpus < cpus:
        least = max(each.peak60_cores for each in run.nodes)
        assert new_cpus >= least or (new_cpus == 1 and least <= ONE_THREAD[1])
        at_most = max(at_once(each.job["cpu_cores_used"]) for each in run.nodes)
        assert new_cpus >= at_most or (new_cpus == 1 and at_most <= ONE_THREAD[1])
        assert new_cpus > new_gpus
    if new_gpus < gpus:
        working = Counter(each.node for each in run.devices if any(each.active.known()))
        assert new_gpus >= max(working.values(), default=0)
        last = max(
            (each.device.index for each in run.devices if any(each.active.known())), default=-1
        )
        assert new_gpus > last  # a program names its GPUs by number
    if "--time" in after and run.job.state == "COMPLETED":
        assert after["--time"] >= 1.25 * run.elapsed_s or "idle-tail" in {
            each.finding for each in evaluation.recommendations
        }
    if run.job.state not in ("COMPLETED", "TIMEOUT", "OUT_OF_MEMORY"):
        assert not {"--mem", "--mem-per-cpu", "--cpus-per-task", "--gres", "--nodes"} & after.keys()


_QUICK = settings(max_examples=2000, deadline=None, phases=[Phase.generate], derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--mem", "--cpus-per-task", "--gres", "--time"])
def test_there_are_such_lines(option):
    def has_line(run):
        return option in {each.change.option for each in evaluate(run).recommendations}

    find(runs(), has_line, settings=_QUICK)
