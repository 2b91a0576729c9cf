"""Device memory: full, run out of, room left, growing."""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, Lack, to_write
from gpumon.analysis.kinds import Kind, kind_of_device, learns
from gpumon.analysis.leak import LEAST_S, WARM_UP_S, Leak, leak
from gpumon.analysis.memory import ProcessMemory, Truth, mem_truth_of
from gpumon.analysis.rightsize.leaking import outlasts
from gpumon.analysis.rules.gpu_reserved import RESERVED
from gpumon.analysis.rules.needs import gpu_memory, gpus
from gpumon.analysis.rules.phrasing import (
    SHARED,
    alike,
    finding,
    gpus_text,
    least,
    missing,
    percent,
    range_text,
    used_text,
)
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rundata import DeviceData, PoolData, ProcessData, RunData, Track
from gpumon.analysis.signals import (
    Span,
    busy_track,
    is_shared,
    job_devices,
    job_processes,
    known_s,
    observed,
    power_fraction,
    seconds_of,
    sustained,
    warm_up_end,
)
from gpumon.analysis.thresholds import Percent, Seconds
from gpumon.model.lines import Line
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text, plural

_OUT_OF_MEMORY = re.compile(
    r".*(?:OutOfMemoryError|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory).*"
)
_FAILED = ("FAILED", "OUT_OF_MEMORY")
#: of the power of full load; less, at high busy, is waiting (as in `low-power-high-busy`)
_SPIN_POWER = 0.25
NO_MEMORY = "its memory is not known"
NO_PROCESSES = "processes are not known"


# -- full, and run out of --------------------------------------------------------------------------


class GpuMemFull(NamedTuple):
    seconds: Seconds = 60
    percent: Percent = 97  # the driver's reserve included


@rule(
    "gpu-mem-full",
    title="{percent} in use for {seconds}",
    why="A slightly larger input would run out of memory.",
    remedy="smaller batch, or a larger GPU; memory reserved by an allocator is not a problem",
    needs=(gpu_memory,),
)
def gpu_mem_full(run: RunData, t: GpuMemFull) -> Answers:
    """And not a reservation. Warning where memory is believed real, or was measured inside the
    program to be in use; information where it is an allocator's reserve ("reserved by PyTorch") and
    nothing failed, because such runs end well (ECE459: 98.7 %). Never critical. Not where the job's
    output names a failed allocation: `gpu-oom-suspect` says it better.
    """
    if _OUT_OF_MEMORY.search(run.log_tail):
        return
    found: list[_Full] = []
    for device in job_devices(run):
        total = device.mem_total_bytes
        truth = mem_truth_of(device)
        track = truth.needed(device)
        if total is None or not track.known():
            yield missing(device, NO_MEMORY)
            continue
        if truth.mem_truth == "unknown":
            yield missing(device, truth.reason, Lack.NEED)
            continue
        reserve = number(device.last.get("mem_reserved_bytes")) or 0.0
        limit = t.percent / 100 * total - reserve
        held = sustained(run, t.seconds, lambda means: means[0] >= limit, (track,))  # noqa: B023
        if held.spans:
            peak = (track.peak() or 0.0) + reserve
            found.append(_Full(device, truth, held.spans, peak, total))
    for same in alike(found, lambda each: (each.truth.mem_truth, each.owner, each.total_bytes)):
        yield _full(run, same)


class _Full(NamedTuple):
    """A device whose memory is full."""

    device: DeviceData
    truth: Truth
    spans: list[Span]
    peak_bytes: float  # the driver's reserve included
    total_bytes: float

    @property
    def owner(self) -> str:
        frameworks = {tag for each in self.truth.processes for tag in each.process.frameworks[:1]}
        return " by PyTorch" if "torch" in frameworks else ""


def _full(run: RunData, found: Sequence[_Full]) -> Finding:
    """Of devices that differ in nothing but their peaks."""
    first, devices = found[0], [each.device for each in found]
    total = first.total_bytes
    is_real = first.truth.mem_truth in ("real", "measured")
    peaks = [each.peak_bytes for each in found]
    size = range_text(peaks, lambda peak: of_bytes_text(peak, total))
    share = range_text(peaks, lambda peak: percent(100 * peak / total))
    seconds = max(seconds_of(run, each.spans) for each in found)
    smaller = "half the batch, or gradient checkpointing" if learns(run) else "a larger GPU"
    failed = run.job is not None and run.job.has_ended and run.job.state != "COMPLETED"
    return finding(
        run,
        "warning" if is_real else "info",
        f"{size} {'used' if is_real else f'reserved{first.owner}'} ({share})",
        head=f"{gpus_text(run, devices)}: ",
        rest=f" for {age_text(seconds)}{'' if failed else '; no failure so far'}",
        devices=devices,
        spans=[span for each in found for span in each.spans],
        confidence=least(*(each.truth.confidence for each in found)),
        numbers={"peak_bytes": max(peaks), "total_bytes": total, "seconds": seconds},
        actions=(to_write(f"If it runs out of memory: {smaller}."),),
        mem_truth=first.truth.mem_truth,
    )


#: s between the loss of a device and that of its processes
_TOGETHER_S = 60.0


class GpuOomSuspect(NamedTuple):
    percent: Percent = 85  # of its device, that a process left with


@rule(
    "gpu-oom-suspect",
    title="a process ended on a full GPU, or the job's output reports out of memory",
    why="The process was cut short; its unsaved work may be lost.",
    remedy="smaller batch, or a larger GPU",
    folds=("smaller-gpu", "gpu-mem-headroom"),
)
def gpu_oom_suspect(run: RunData, t: GpuOomSuspect) -> Checked:
    """And the job went on or FAILED within a minute; or the end of its log names a failed
    allocation; or PyTorch counted one, which a probe tells. A warning where the log names it and
    the job FAILED; else the program may have gone on with less.

    Guards: from outside never certain: low confidence without the log; a reservation (TensorFlow,
    JAX, vLLM) always leaves so, and says nothing. Inside warm-up a matter of configuration.
    """
    line = _OUT_OF_MEMORY.search(run.log_tail)
    said = clean(line.group().strip(), 160) if line else ""
    if counted := list(_counted(run)):
        return _failed_inside(run, counted, said)
    failed = not run.live and run.job is not None and run.job.state in _FAILED
    unknown = []
    left: list[tuple[float, DeviceData, ProcessData]] = []
    for device in job_devices(run):
        total = device.mem_total_bytes
        if total is None or not device.process_list_known:
            unknown.append(missing(device, NO_MEMORY if total is None else NO_PROCESSES))
            continue
        for process, held in _ended_holding(device, logged=line is not None):
            went_on = failed or run.end - process.last > 60
            if held > t.percent / 100 * total and (line or went_on):
                left.append((held, device, process))
    if left:
        return _out_of_memory(run, *max(left, key=lambda each: each[0]), said)
    if line is not None:
        return finding(
            run,
            _oom_level(run, said),
            "the log names a failed allocation of GPU memory",
            rest=f": {said}",
            confidence="medium",
            actions=_smaller(run),
        )
    return unknown if job_devices(run) else gpus(run)


def _counted(run: RunData) -> Iterator[tuple[DeviceData, ProcessData, PoolData]]:
    """Processes in which an allocation failed."""
    for device in job_devices(run):
        for process in job_processes(device):
            if process.pool is not None and process.pool.ooms:
                yield device, process, process.pool


def _failed_inside(
    run: RunData, counted: Sequence[tuple[DeviceData, ProcessData, PoolData]], said: str
) -> Finding:
    """The program may have caught them, as those do that try how large a batch may be."""
    devices = list({device.label: device for device, *_ in counted}.values())
    device, process, pool = max(counted, key=lambda each: each[2].ooms or 0.0)
    count = sum(int(each.ooms or 0) for *_, each in counted)
    used = of_bytes_text(pool.peak_bytes or 0.0, device.mem_total_bytes or 0.0)
    return finding(
        run,
        _oom_level(run, "counted"),
        f"{plural(count, 'allocation')} of GPU memory failed in the program",
        f"pid {process.facts.pid}: {used} in use at most"
        + (f"; its output: {said}" if said else ""),
        head=f"{gpus_text(run, devices)}: ",
        devices=devices,
        numbers={"ooms": count, "in_use_peak_bytes": pool.peak_bytes},
        actions=_smaller(run),
    )


def _ended_holding(device: DeviceData, *, logged: bool) -> Iterator[tuple[ProcessData, float]]:
    """Processes that ended before their device was lost, if it was, and what they held; only if the
    log says so of those that reserve, and of those that told to their end of no failed allocation.
    """
    lost = min((each.time for each in device.states if each.text == "lost"), default=inf)
    kinds = {id(each.process): each.kind for each in mem_truth_of(device).processes}
    for process in job_processes(device):
        held = process.mem_bytes.known()
        pool = process.pool
        is_well = pool is not None and pool.ooms == 0 and pool.last >= process.last
        is_reserved = kinds.get(id(process)) in (*RESERVED, "early")
        is_over = process.ended and process.last < lost - _TOGETHER_S
        if is_over and held and (logged or not (is_reserved or is_well)):
            yield process, held[-1]


def _oom_level(run: RunData, said: str) -> str:
    return "warning" if said and run.job is not None and run.job.state in _FAILED else "info"


def _out_of_memory(
    run: RunData, held: float, device: DeviceData, process: ProcessData, said: str
) -> Finding:
    pid, total = process.facts.pid, device.mem_total_bytes
    at = time.strftime("%H:%M:%S", time.localtime(process.last))
    early = " at its start" if process.last - process.first < 120 else ""
    ran = "ran" if said else "may have run"
    made = finding(
        run,
        _oom_level(run, said),
        f"pid {pid} {ran} out of memory on {gpus_text(run, [device])}{early}",
        f"pid {pid} ended at {at} with {of_bytes_text(held, total or 0.0)} in use"
        + (f"; its output: {said}" if said else ""),
        devices=[device],
        confidence="high" if said else "low",
        numbers={"held_bytes": held, "total_bytes": total},
        actions=_smaller(run),
    )
    return replace(made, start=process.first, end=process.last)


def _smaller(run: RunData) -> tuple[Action, ...]:
    if isinstance(leaks := gpu_leak(run), list) and leaks:
        text = "Mend the growth of its memory first: smaller inputs would only delay this."
        return (to_write(text),)
    if not learns(run):
        return (to_write("A smaller problem, or a GPU with more memory."),)
    slower = "Saves memory for about 20 to 40 % more run time."
    return (
        to_write("A smaller batch (halve until it fits)."),
        Action("code", Line("gradient_checkpointing=True"), text=slower),
    )


# -- room left, and growing ------------------------------------------------------------------------


class GpuMemHeadroom(NamedTuple):
    seconds: Seconds = 900  # after warm-up
    percent: Percent = 45
    busy_percent: Percent = 60


@rule(
    "gpu-mem-headroom",
    title="busy ≥ {busy_percent}, but at most {percent} of the memory",
    why="A larger batch often uses the GPU better at no cost.",
    remedy="a larger batch",
    needs=(gpu_memory,),
)
def gpu_mem_headroom(run: RunData, t: GpuMemHeadroom) -> Answers:
    """No reservation, and only of programs that have batches: simulations, solvers and servers
    need no larger ones. An upper bound leaves "at least" so much room. Source: ECE459 lecture 24,
    where eight times the batch is 1.64 times as fast in 2.15 times the memory.
    """
    found: list[tuple[DeviceData, float, float, Truth]] = []
    for device in job_devices(run):
        total, peak = device.mem_total_bytes, device.track("mem_used_bytes").peak()
        truth = mem_truth_of(device)
        peak = peak if truth.need is None else truth.need.proven_bytes
        warm = warm_up_end(run, device)
        busy = busy_track(device)
        if total is None or peak is None:
            yield missing(device, NO_MEMORY)
        elif is_shared(device):
            yield missing(device, SHARED)
        elif truth.mem_truth == "unknown":
            yield missing(device, truth.reason, Lack.NEED)
        elif known_s(run, busy, warm) < t.seconds:
            yield missing(device, "busy % was not measured for long enough", Lack.TIME)
        elif kind_of_device(device) is Kind.LEARNING and 0 < peak <= t.percent / 100 * total:
            mean = busy.average(warm)
            if mean is not None and mean >= t.busy_percent and not _spins(device, warm):
                found.append((device, peak, mean, truth))
    if not found:
        return
    devices = [device for device, *_ in found]
    fullest = max(found, key=lambda each: each[1] / (each[0].mem_total_bytes or 1))
    device, peak, mean, truth = fullest
    total = device.mem_total_bytes or 1.0
    times = int(0.9 * total / peak)
    what = f"{of_bytes_text(peak, total)} at {percent(mean)} busy"
    rest = f"; {used_text(truth.need)}" if truth.need is not None else ""
    if truth.mem_truth == "upper-bound":
        rest = "; the peak includes an allocator's reserve, so even more may be free"
    text = f"Up to × {times} by memory; stop when it gets no faster."
    yield finding(
        run,
        "info",
        what,
        head=f"{gpus_text(run, devices)}: room for a larger batch, peak ",
        rest=rest,
        devices=devices,
        spans=[observed(run)],
        confidence=least(*(truth.confidence for *_, truth in found)),
        numbers={"peak_bytes": peak, "total_bytes": total, "busy_percent": mean, "times": times},
        actions=[Action("code", Line("batch size × 2"), Line("batch size"), text)],
        mem_truth=truth.mem_truth,
    )


def _spins(device: DeviceData, first: int) -> bool:
    """Busy at little power: it waits inside a kernel, as NCCL's does for other ranks."""
    power = device.track("power_w").average(first)
    fraction = None if power is None else power_fraction(device, power)
    return fraction is not None and fraction < _SPIN_POWER


@rule(
    "gpu-leak",
    title="a process's device memory grows steadily",
    why="If it keeps growing, the program runs out of memory.",
    remedy="`loss.detach()`: keep no graphs or outputs in lists",
    needs=(gpu_memory,),
    folds=("smaller-gpu",),
)
def gpu_leak(run: RunData) -> Answers:
    """The leak rule (`analysis.leak`) on a process's device memory: 10 min of warm-up, 40 of data.

    Where a probe tells of the framework's pool, on what is in use in it.

    Guards: else never of a reservation; growth by doubling is a staircase, which the rule does not
    take. Information where a run COMPLETED and its memory grew ever faster: a leak grows by as much
    with each step, and it is inputs sorted by size that take more and more. Information, too, where
    the memory lasts for longer than any run of the job.
    """
    need_s = WARM_UP_S + LEAST_S
    found: list[_Leaking] = []
    for device in job_devices(run):
        total = device.mem_total_bytes
        if total is None or not device.process_list_known:
            yield missing(device, NO_MEMORY if total is None else NO_PROCESSES)
            continue
        for memory in mem_truth_of(device).processes:
            pool = memory.process.pool if memory.need is not None else None
            mem = memory.process.mem_bytes if pool is None else pool.used_bytes
            if pool is None and memory.kind in (*RESERVED, "early", "growth"):
                continue
            if known_s(run, mem) < need_s:
                yield missing(device, f"needs {age_text(need_s)} of a process", Lack.TIME)
            elif not (run.live and memory.process.ended):
                grows = leak(mem.mean if pool is None else mem.low, run.bin_s, total)
                if grows is not None:
                    found.append(_Leaking(device, memory, mem, grows, total))
    completed = run.job is not None and not run.live and run.job.state == "COMPLETED"

    def key(each: _Leaking) -> Hashable:
        return each.memory.truth, each.total_bytes, completed and each.grows.speeds_up

    for same in alike(found, key):
        yield _leak(run, same, is_by_inputs=completed and same[0].grows.speeds_up)


class _Leaking(NamedTuple):
    """A process whose memory on a device grows."""

    device: DeviceData
    memory: ProcessMemory
    mem: Track  # that grows
    grows: Leak
    total_bytes: float


def _leak(run: RunData, found: Sequence[_Leaking], *, is_by_inputs: bool) -> Finding:
    """Of processes that differ in nothing but their pace."""
    devices = list({each.device.label: each.device for each in found}.values())
    worst = min(found, key=lambda each: each.grows.full_in_s)
    grows, total = worst.grows, worst.total_bytes
    pace = range_text((3600 * each.grows.per_s for each in found), bytes_text)
    known = [each.mem.known()[-1] for each in found]
    what = "memory in use" if worst.memory.need is not None else "memory"
    used = range_text(known, lambda last: of_bytes_text(last, total))
    full_s = run.elapsed_s + grows.full_in_s
    faster = "; it grew ever faster, as with inputs sorted by size" if is_by_inputs else ""
    return finding(
        run,
        "info" if is_by_inputs or outlasts(run, full_s) else "warning",
        f"{what} {'grows' if run.live else 'grew'} by {pace}/h to {used}",
        head=f"{gpus_text(run, devices)}: ",
        rest=faster or f"; {_full_at(run, grows)}",
        devices=devices,
        numbers={"per_s": grows.per_s, "full_in_s": grows.full_in_s, "z": grows.z},
        harm_in_s=grows.full_in_s if run.live else None,
        actions=_find_leak(worst.memory, is_by_inputs=is_by_inputs),
        mem_truth=worst.memory.truth,
    )


def _find_leak(memory: ProcessMemory, *, is_by_inputs: bool) -> tuple[Action, ...]:
    if is_by_inputs:
        text = "If larger inputs follow, split the largest ones, or use a smaller batch for them."
        return (to_write(text),)
    if "torch" not in (*memory.process.frameworks, memory.process.facts.framework):
        return (to_write("Find out what the program keeps on the GPU."),)
    held = Line("torch.cuda.memory._record_memory_history()")
    return (
        Action("code", Line("loss.detach()"), text="Do not keep graphs or outputs in lists."),
        Action("code", held, text="Shows which code holds the memory."),
    )


def _full_at(run: RunData, grows: Leak) -> str:
    """When the memory is full at this pace, beside the time limit: both from now on, or of an ended
    run both from its start.
    """
    limit_s = run.job.time_limit_s if run.job is not None else None
    if not run.live:
        full_s = run.elapsed_s + grows.full_in_s
        text = f"at this pace full after {age_text(full_s)} of run"
        if limit_s is None:
            return text
        if full_s <= limit_s:
            return f"{text}; the time limit is {age_text(limit_s)}"
        return f"{text}, beyond its limit of {age_text(limit_s)}"
    left_s = None if limit_s is None else max(0.0, limit_s - run.elapsed_s)
    limit = "" if left_s is None else f"; {age_text(left_s)} of the time limit left"
    return f"at this pace full in {age_text(grows.full_in_s)}{limit}"
