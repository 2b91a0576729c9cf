"""What the memory used on a device says about need, all its processes together."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.finding import CONFIDENCES
from gpumon.analysis.memory.classify import ProcessMemory, classify
from gpumon.analysis.memory.need import Need, course_of, need_of, together
from gpumon.analysis.once import once
from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.analysis.rundata import DeviceData, ProcessData, Track
from gpumon.analysis.signals import capability, is_of_job

#: the first that any process has holds for all
_ORDER = ("unknown", "upper-bound", "real", "measured")
#: of an inference engine what is in use in the pool is its cache
_CACHES = ("kv",)


class Truth(NamedTuple):
    """`mem_truth` is of `finding.MEM_TRUTHS`; `kind` that of the process that decides it."""

    mem_truth: str
    confidence: str
    kind: str  # of memory.classify.TRUTHS; "" where no process decides
    why: str
    processes: tuple[ProcessMemory, ...] = ()
    need: Need | None = None  # of all processes together, where it was measured

    def needed(self, device: DeviceData) -> Track:
        """The memory that is needed over time, as far as it is known; else what is used."""
        if self.need is None:
            return device.track("mem_used_bytes")
        pools = [each.process.pool for each in self.processes if each.need is not None]
        return course_of([pool for pool in pools if pool is not None], self.need.beside_bytes)

    @property
    def reason(self) -> str:
        """Why nothing is said about need."""
        return f"its memory does not show the need: {self.why}" if self.kind else self.why

    def of_kind(self, kind: str) -> list[ProcessMemory]:
        """The processes whose memory is of one kind."""
        return [each for each in self.processes if each.kind == kind]


@once
def mem_truth_of(device: DeviceData) -> Truth:
    """Of all processes that held more than a context the least certain decides."""
    total, cc = device.mem_total_bytes, capability(device)
    alone = _alone(device)
    processes = tuple(
        _known(classify(each, total, cc, rest), total, each.mem_bytes if rest is None else rest)
        for each in device.processes
        for rest in (_rest(device) if each is alone else None,)
    )
    known = [each for each in processes if _counts(each)]
    if known:
        worst = min(
            known, key=lambda each: (_ORDER.index(each.truth), CONFIDENCES.index(each.confidence))
        )
        if worst.truth == "measured":
            return Truth("measured", "high", worst.kind, worst.why, processes, _most(processes))
        return Truth(worst.truth, worst.confidence, worst.kind, worst.why, processes)
    if processes:
        return Truth("upper-bound", "medium", "context", "contexts alone", processes)
    used = device.track("mem_used_bytes").peak()
    if used is None:
        return Truth("unknown", "low", "", "its memory is not known")
    if used > (device.mem_before_bytes or 0.0) + CONTEXT_BYTES:
        return Truth("unknown", "low", "", "the owner of the memory is unknown")
    return Truth("real", "high" if device.process_list_known else "low", "", "nothing uses it")


def _known(memory: ProcessMemory, total_bytes: float | None, mem: Track) -> ProcessMemory:
    """With what a probe tells of its need."""
    if memory.kind in _CACHES:
        return memory
    return memory._replace(need=need_of(memory.process, total_bytes, mem))


def _most(processes: Sequence[ProcessMemory]) -> Need:
    """What those that were there at the same time needed together, at most; of small ones that no
    probe told of, all that they held. What others hold is no need of the job.
    """
    own = [each for each in processes if is_of_job(each.process.facts)] or processes
    needs = [(each.process, each.need or _all_of(each.process)) for each in own]
    return max(
        (
            together([need for other, need in needs if other.first <= at.first <= other.last])
            for at, _ in needs
        ),
        key=lambda each: each.low_bytes,
    )


def _all_of(process: ProcessData) -> Need:
    return Need(0.0, 0.0, process.mem_bytes.peak() or 0.0, "")


def _counts(memory: ProcessMemory) -> bool:
    """Whether it holds, or may hold, more than a context."""
    if memory.shape is None:
        return True
    peak = memory.process.mem_bytes.peak()
    return (memory.shape.plateau_bytes if peak is None else peak) > CONTEXT_BYTES


def _alone(device: DeviceData) -> ProcessData | None:
    """The only process on the device, where the driver does not tell how much it holds."""
    if len(device.processes) != 1:
        return None
    (only,) = device.processes
    return only if only.mem_bytes.peak() is None else None


def _rest(device: DeviceData) -> Track:
    """The device's memory above what was in use before."""
    used, before = device.track("mem_used_bytes"), device.mem_before_bytes or 0.0
    return Track(*(
        array("f", [max(value - before, 0.0) if value == value else value for value in values])
        for values in (used.mean, used.low, used.high)
    ))  # fmt: skip
