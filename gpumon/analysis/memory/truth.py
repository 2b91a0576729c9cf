"""What the memory used on a device says about need, all its processes together."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from gpumon.analysis.finding import CONFIDENCES
from gpumon.analysis.memory.classify import ProcessMemory, classify
from gpumon.analysis.memory.shape import CONTEXT_BYTES
from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, ProcessData, Track
from gpumon.analysis.signals import capability

_ORDER = ("unknown", "upper-bound", "real")  # the first that any process has holds for all


class Truth(NamedTuple):
    """`mem_truth` is of `finding.MEM_TRUTHS`; `kind` that of the process that decides it."""

    mem_truth: str
    confidence: str
    kind: str  # of memory.classify.TRUTHS; "" where no process decides
    why: str
    processes: tuple[ProcessMemory, ...] = ()

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
        classify(each, total, cc, _rest(device) if each is alone else None)
        for each in device.processes
    )
    known = [each for each in processes if _counts(each)]
    if known:
        worst = min(
            known,
            key=lambda each: (_ORDER.index(each.truth), CONFIDENCES.index(each.confidence)),
        )
        return Truth(worst.truth, worst.confidence, worst.kind, worst.why, processes)
    if processes:
        return Truth("upper-bound", "medium", "context", "contexts alone", processes)
    used = device.track("mem_used_bytes").peak()
    if used is None:
        return Truth("unknown", "low", "", "its memory is not known")
    if used > (device.mem_before_bytes or 0.0) + CONTEXT_BYTES:
        return Truth("unknown", "low", "", "the owner of the memory is unknown")
    return Truth("real", "high" if device.process_list_known else "low", "", "nothing uses it")


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
