"""Which GPU would have held it: a smaller one, and whether that would have come sooner."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from gpumon.analysis.activity import ENGINES, FAR_S
from gpumon.analysis.finding import (
    Action,
    Finding,
    Gpus,
    Lack,
    NotEvaluable,
    Outcome,
    to_do,
    to_write,
)
from gpumon.analysis.memory import Truth, mem_truth_of
from gpumon.analysis.memory.need import Need
from gpumon.analysis.rightsize.changes import gpus_line
from gpumon.analysis.rightsize.gpus import gpus_need
from gpumon.analysis.rightsize.proof import PARTLY, is_seamless, unproven
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rightsize.slowdown import slowdown
from gpumon.analysis.rules.gpu_memory import NO_MEMORY, gpu_mem_headroom
from gpumon.analysis.rules.needs import gpu_memory
from gpumon.analysis.rules.phrasing import (
    SHARED,
    beside_text,
    finding,
    gpus_text,
    least,
    missing,
    model_text,
    percent,
    used_text,
)
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    busy_track,
    is_interactive,
    is_shared,
    job_devices,
    job_processes,
    observed,
)
from gpumon.analysis.thresholds import Count, Percent, Seconds, of_site
from gpumon.model.lines import EMPTY, setting, words
from gpumon.model.units import bytes_text, plural
from gpumon.site import GpuType

GIB = float(1 << 30)
_MARGIN, _SPARE_BYTES = 1.15, GIB
_TRAFFIC_BYTES_PER_S = 1e6
_MOST_OFFERED = 3
#: boards of one size differ by less: an H100 of 80 GB is no smaller A100 of 80 GB
_SMALLER = 0.95
#: what else the memory that is left is good for
_OR_BATCH = "Or stay on this GPU and use its memory: a larger batch."
_ENGINES_USED = "its video engines were used, which other types may lack"
_BF16 = re.compile(r"\bbf16\b|\bbfloat16\b", re.IGNORECASE)


class Used(NamedTuple):
    """What the devices of one model did, the one that needs most deciding."""

    own: GpuType
    devices: list[DeviceData]
    truths: list[Truth]
    peak_bytes: float
    busy: float | None

    @property
    def need_bytes(self) -> float:
        return need_bytes(self.peak_bytes)

    @property
    def mem_truth(self) -> str:
        """Of what the peak is."""
        found = {truth.mem_truth for truth in self.truths}
        return next(each for each in ("upper-bound", "real", "measured") if each in found)

    @property
    def need(self) -> Need | None:
        """The greatest, where that of every device was measured."""
        needs = [truth.need for truth in self.truths if truth.need is not None]
        if len(needs) < len(self.truths):
            return None
        return max(needs, key=lambda each: each.proven_bytes)


def need_bytes(peak_bytes: float) -> float:
    """1.15 × the peak and 1 GiB (findings, 10.4)."""
    return _MARGIN * peak_bytes + _SPARE_BYTES


class SmallerGpu(NamedTuple):
    seconds: Seconds = 900
    busy_percent: Percent = 20  # below, a slice would do; with little host memory: warning
    slowdown: Count = 4  # times as long as the run took, at most


class Candidate(NamedTuple):
    """A type of GPU that would hold the need."""

    gpu: GpuType
    slowdown: float  # times as long as the run took, at most


@rule(
    "smaller-gpu",
    title="a smaller GPU or MIG slice has enough memory",
    why="Smaller GPUs have shorter queues, and the large ones stay free for jobs that need them.",
    remedy="compare a short run on that one",
    when="report",
    needs=(gpu_memory,),
    folds=("gpu-mem-headroom",),
)
def smaller_gpu(run: RunData, t: SmallerGpu) -> Answers:
    """1.15 · peak + 1 GiB fits a smaller GPU or slice that is offered here. Warning where the GPU
    also was little busy in less than 32 GB of host memory.

    A peak that was measured inside the program decides, and all of the pool where allocations had
    to be retried.

    Guards: never from a reservation of unknown need; only where device memory was read from start
    to end without a gap, in which a peak may lie; not of a program that used the video engines,
    which slices and some types lack, nor of a GPU that another user's process used as well, or that
    was polled too rarely to tell how busy it was; only what is at most 4 times as slow by peak
    rates of the precision in use, of an unknown one by the worst of the plausible; without bf16
    only where tensor cores were not used; with NVLink traffic, only what has NVLink; on several
    nodes, only what has InfiniBand; a slice only for one GPU that was little busy; where a node of
    that type has the cores and memory requested. Source: jobstats' MIG rule, job_defense_shield's
    "GPU too powerful", Alvis' order of memory, availability, price.
    """
    if run.elapsed_s < t.seconds:
        yield NotEvaluable(Lack.TIME, f"needs {t.seconds / 60:g} min")
        return
    if (why := unproven(run)) is not None:
        yield why
        return
    models, unknown = _by_model(run)
    yield from unknown
    for used in models:
        if fitting := candidates(run, used):
            yield _smaller(run, used, fitting, t)


def _by_model(run: RunData) -> tuple[list[Used], list[NotEvaluable]]:
    """The devices that had a process, by their model; and why the need of others is unknown."""
    unknown: list[NotEvaluable] = []
    groups: dict[str, list[DeviceData]] = {}
    types: dict[str, GpuType] = {}
    for device in job_devices(run):
        if not job_processes(device):
            continue
        mig = device.device.mig
        profile = mig.profile if mig else ""
        own = run.site.gpu_type(device.device.name, profile, device.mem_total_bytes)
        if own is None:
            unknown.append(missing(device, "the site's table does not have its model", Lack.SITE))
            continue
        if is_shared(device):
            unknown.append(missing(device, SHARED))
            continue
        if any(device.track(name).peak() for name in ENGINES):
            unknown.append(missing(device, _ENGINES_USED, Lack.SITE))
            continue
        if device.polled and (run.coverage.interval_s or 0.0) >= FAR_S:
            unknown.append(missing(device, "busy was polled too rarely"))
            continue
        if not is_seamless(run, device, "mem_used_bytes"):
            unknown.append(missing(device, PARTLY.detail, PARTLY.kind))
            continue
        types[own.key] = own
        groups.setdefault(own.key, []).append(device)
    found = []
    for key, devices in groups.items():
        truths = [mem_truth_of(each) for each in devices]
        peaks = [
            each.track("mem_used_bytes").peak() if truth.need is None else truth.need.proven_bytes
            for each, truth in zip(devices, truths)
        ]
        lacking = [
            missing(each, NO_MEMORY) if peak is None else missing(each, truth.reason, Lack.NEED)
            for each, truth, peak in zip(devices, truths, peaks)
            if peak is None or truth.mem_truth == "unknown"
        ]
        unknown += lacking
        if not lacking:
            known = [peak for peak in peaks if peak is not None]
            busy = [mean for each in devices if (mean := busy_track(each).average()) is not None]
            mean = sum(busy) / len(busy) if len(busy) == len(devices) else None
            found.append(Used(types[key], devices, truths, max(known), mean))
    return found, unknown


def candidates(run: RunData, used: Used) -> list[Candidate]:
    """What is smaller, holds the need and is not excluded; smallest first, then cheapest."""
    t = of_site(run.site, "smaller-gpu", SmallerGpu)
    fitting = [
        each
        for each in run.site.offered
        if used.need_bytes <= each.mem_bytes <= _SMALLER * used.own.mem_bytes
        and not _excluded(run, used, each, t)
    ]
    fitting.sort(key=lambda each: (each.mem_bytes, each.price or 0.0, each.name))
    found = [(each, slowdown(used.devices, used.own, each, run.site)) for each in fitting]
    return [
        Candidate(gpu, times) for gpu, times in found if times is not None and times <= t.slowdown
    ]


def _excluded(run: RunData, used: Used, other: GpuType, t: SmallerGpu) -> bool:
    devices, busy = used.devices, used.busy
    if other.mig_of and (len(devices) > 1 or busy is None or busy >= t.busy_percent):
        return True
    commands = " ".join(each.facts.command for device in devices for each in device.processes)
    if _BF16.search(commands) and float(other.cc) < 8:
        return True
    links = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    linked = any(
        (each.track(name).average() or 0.0) > _TRAFFIC_BYTES_PER_S
        for each in devices
        for name in links
    )
    if len(devices) > 1 and linked and not other.nvlink:
        return True
    if len({each.node for each in devices}) > 1 and other.infiniband is False:
        return True
    return not _node_holds(run, other)


def _node_holds(run: RunData, other: GpuType) -> bool:
    """Whether a node with these GPUs has what is requested; yes, where the site names none."""
    asked = requested(run)
    nodes = [each for each in run.site.nodes if each.gpu in (other.key, other.mig_of or other.key)]
    return not nodes or any(
        each.cores >= (asked.cpus or 0)
        and each.mem_bytes >= (asked.mem_bytes or 0)
        and (other.mig_of or each.gpus >= (asked.gpus or 0))
        for each in nodes
    )


def _smaller(run: RunData, used: Used, fitting: list[Candidate], t: SmallerGpu) -> Finding:
    host = [node.mem_peak_bytes for node in run.nodes if node.mem_peak_bytes is not None]
    small_host = bool(host) and max(host) < 32e9
    idle = used.busy is not None and used.busy < t.busy_percent
    confidence = least("medium", *(truth.confidence for truth in used.truths))
    need = used.need
    best = [each.gpu for each in fitting[:_MOST_OFFERED]]
    offered = ", ".join(f"{each.key} ({bytes_text(each.mem_bytes)})" for each in best)
    peak = f"{'at most ' if used.mem_truth == 'upper-bound' else ''}{bytes_text(used.peak_bytes)}"
    said = f"{peak} used" if need is None else used_text(need)
    beside = "" if need is None else f", with {beside_text(need)}"
    busy = "" if used.busy is None else f", busy {percent(used.busy)}"
    gpu, times = fitting[0]
    proven = confidence != "low" and not is_interactive(run, job_devices(run))
    return finding(
        run,
        "warning" if idle and small_host and proven else "info",
        f"{gpus_text(run, used.devices)} ({model_text(used.devices)}): {said}; enough "
        f"memory: {offered}",
        f"peak {peak} of {bytes_text(used.own.mem_bytes)}{beside}{busy}; needs "
        f"{bytes_text(used.need_bytes)} with a margin; {_speed(gpu, times)}",
        devices=used.devices,
        spans=[observed(run)],
        confidence=confidence,
        numbers={
            "peak_bytes": used.peak_bytes,
            "need_bytes": used.need_bytes,
            "busy_percent": used.busy,
            "slowdown": times,
        },
        actions=(_compare(run, gpu, confidence, times), *_or_batch(run, used)),
        mem_truth=used.mem_truth,
    )


def _or_batch(run: RunData, used: Used) -> list[Action]:
    """The other use of the memory that is left, where `gpu-mem-headroom` advises it."""
    found = gpu_mem_headroom(run)
    labels = {each.label for each in used.devices}
    rooms = [] if isinstance(found, NotEvaluable) else found
    has_room = any(labels.intersection(each.devices) for each in rooms)
    return [to_write(_OR_BATCH)] if has_room else []


def _speed(other: GpuType, times: float) -> str:
    """How much slower it may be there, and what it lacks."""
    slower = "not slower" if times < 1.05 else f"at most {times:.1f} times as long"
    lacks = "; it has no bf16" if float(other.cc) < 8 else ""
    return f"{slower} on {other.key}, by peak rates{lacks}"


def _compare(run: RunData, other: GpuType, confidence: str, times: float = 1.0) -> Action:
    """In words and never as a line: peak rates do not show how long the program takes there.

    A session's next GPU is the choice of its user, who needs no other limit or partition for it.
    """
    if is_interactive(run, job_devices(run)):
        text = f"Request one {words(other.key)} for sessions that need no more memory."
        return to_do(text)
    asked = requested(run)
    kind = other.gres if asked.gpu_option == "--gres" else other.gres.removeprefix("gpu:")
    fewer = gpus_line(asked, *need) if (need := gpus_need(run)) else None
    named = fewer.after if fewer else asked.gpus_named
    count = named.count if isinstance(named, Gpus) else None
    request = [setting(asked.gpu_option, f"{kind}:{count or 1}") if kind else EMPTY]
    if other.partition and other.partition != (run.job.partition if run.job else ""):
        request.append(setting("--partition", other.partition))
    if other.constraint:
        request.append(setting("--constraint", other.constraint))
    if confidence == "low" or not all(request):
        request = []
    text = f"Compare a short run on one {words(other.key)} first" + "".join(
        f" {e}" for e in request
    )
    limit_s = asked.time_limit_s
    is_longer = limit_s is not None and times * run.elapsed_s > limit_s
    rest = "; a whole run may need a longer --time." if request and is_longer else "."
    return to_do(text.replace(" --", ": --", 1) + rest)


def queue(run: RunData) -> Outcome | None:
    """What waits and what is idle, at this moment."""
    return None if run.queue else NotEvaluable(Lack.SLURM, "the queue was not queried")


@rule(
    "gpu-type-scarce",
    title="jobs wait for this GPU while a smaller, sufficient one is idle",
    why="The same job would start sooner on a GPU type without a queue.",
    remedy="request the idle type",
    when="report",
    needs=(queue, gpu_memory),
)
def gpu_type_scarce(run: RunData) -> Answers:
    """`smaller-gpu`, and at this moment jobs wait for the type in use while a smaller one is idle.

    Guards: a snapshot, so its time is named. Source: UVA's and Alvis' advice.
    """
    smaller = smaller_gpu(run)
    if isinstance(smaller, NotEvaluable):
        yield smaller
        return
    assert run.queue is not None
    at = time.strftime("%H:%M", time.localtime(run.queue.time))
    for used in _by_model(run)[0]:
        waiting = run.queue.waiting.get(used.own.gres, 0)
        fitting = candidates(run, used)
        offered = (each.gpu for each in fitting)
        idle = [each for each in offered if each.gres and run.queue.idle.get(each.gres, 0) > 0]
        if not used.own.gres or not waiting or not idle:
            continue
        count = run.queue.idle[idle[0].gres]
        text = (
            f"at {at}, {plural(waiting, 'job')} waited for {used.own.key}, while {count} "
            f"{idle[0].key} {'was' if count == 1 else 'were'} idle"
        )
        confidence = least("medium", *(truth.confidence for truth in used.truths))
        yield finding(
            run,
            "info",
            text,
            tail=": there the job may start sooner",
            devices=used.devices,
            spans=[observed(run)],
            confidence=confidence,
            numbers={"waiting": waiting, "idle": count},
            actions=[_compare(run, idle[0], confidence)],
        )
