"""Allocations that only succeeded once the allocator had freed what it kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, to_write
from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.memory.need import Need
from gpumon.analysis.rules.needs import gpu_memory
from gpumon.analysis.rules.phrasing import finding, gpus_text, missing, used_text
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import job_devices
from gpumon.analysis.thresholds import Count, Percent
from gpumon.model.lines import Line
from gpumon.model.units import plural


class GpuMemRetries(NamedTuple):
    retries: Count = 10  # of one process
    percent: Percent = 85  # of the device in use: above, memory is short; below, it has gaps


class _Retried(NamedTuple):
    device: DeviceData
    need: Need
    retries: float


@rule(
    "gpu-mem-retries",
    title="PyTorch freed its cache {retries} times or more to allocate",
    why="Each time the program waits until the GPU is done and all cached memory is freed.",
    remedy="`PYTORCH_ALLOC_CONF=expandable_segments:True` against gaps, or a smaller batch",
    needs=(gpu_memory,),
)
def gpu_mem_retries(run: RunData, t: GpuMemRetries) -> Answers:
    """`num_alloc_retries` of PyTorch's allocator: the driver refused memory, so all cached blocks
    were freed and the allocation was tried again. Where far less was in use than there is, the
    cached blocks had gaps that nothing fitted into.

    Only with the probe. Numbers proposed. Source: PyTorch documentation, CUDA memory management.
    """
    found: list[_Retried] = []
    for device in job_devices(run):
        torch = [
            each
            for each in mem_truth_of(device).processes
            if each.process.frameworks[:1] == ("torch",)
        ]
        pools = [(each.need, each.process.pool) for each in torch]
        known = [_Retried(device, need, pool.retries) for need, pool in pools
                 if need is not None and pool is not None and pool.retries is not None]  # fmt: skip
        if len(known) < len(torch):
            yield missing(device, "only gpumon record --probe can read its counters")
        found += [each for each in known if each.retries >= t.retries]
    if found:
        yield _retried(run, found, t)


def _retried(run: RunData, found: Sequence[_Retried], t: GpuMemRetries) -> Finding:
    worst = max(found, key=lambda each: each.retries)
    devices = list({each.device.label: each.device for each in found}.values())
    is_short = worst.need.low_bytes >= t.percent / 100 * (worst.device.mem_total_bytes or 0.0)
    return finding(
        run,
        "info",
        f"PyTorch freed its cache {plural(int(worst.retries), 'time')} to allocate memory",
        head=f"{gpus_text(run, devices)}: ",
        rest=f"; {used_text(worst.need)}",
        devices=devices,
        numbers={"retries": worst.retries, "in_use_peak_bytes": worst.need.in_use_bytes},
        actions=_SMALLER if is_short else _NO_GAPS,
        mem_truth="measured",
    )


_NO_GAPS = (
    Action(
        "export",
        Line("export PYTORCH_ALLOC_CONF=expandable_segments:True"),
        text="Lets the allocator grow blocks in place, so that fewer gaps remain.",
    ),
)
_SMALLER = (to_write("A smaller batch would leave room to spare."),)
