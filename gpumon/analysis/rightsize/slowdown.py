"""How much longer a run takes on another type of GPU, at most: by the rates of its precision.

The ratio of peak rates (TFLOPS of the table of GPUs) or of memory bandwidth, whichever is worse,
for the part of the time in which the GPUs were busy. Of a precision that was not measured the worst
of those that the program may use counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpumon.analysis.kinds import Kind, kind_of_device
from gpumon.analysis.known import highest
from gpumon.analysis.rundata import DeviceData
from gpumon.analysis.signals import busy_track
from gpumon.site import GpuType, Site

#: % of the time in which a pipe worked, above which its precision is in use
_IN_USE = 1.0
#: rate -> the one that is used in its place on a GPU without it
_INSTEAD = {"tf32": "fp32", "fp16": "fp32", "fp64_tensor": "fp64"}
_TENSOR = ("tf32", "fp16", "bf16")
#: compute capability from which a GPU has bf16
_HAS_BF16 = 8.0
_SLICE = re.compile(r"(\d+)g\.")


def slowdown(
    devices: Sequence[DeviceData], own: GpuType, other: GpuType, site: Site
) -> float | None:
    """1.0: not slower. None: not known, or the program may not run there at all."""
    kinds = _precisions(devices)
    if "bf16" in kinds and float(own.cc) >= _HAS_BF16 > float(other.cc):
        return None
    mine, theirs = _whole(own, site), _whole(other, site)
    if mine is None or theirs is None:
        return None
    ratios = [_ratio(mine, theirs, kind) for kind in kinds if kind in mine.peak]
    if mine.bandwidth_gb_per_s and theirs.bandwidth_gb_per_s:
        ratios.append(mine.bandwidth_gb_per_s / theirs.bandwidth_gb_per_s)
    known = [each for each in ratios if each is not None]
    if not known or len(known) < len(ratios):
        return None
    worst = max(1.0, max(known)) * _part(own, site) / _part(other, site)
    busy = highest(busy_track(each).average() for each in devices)
    share = 1.0 if busy is None else min(1.0, busy / 100)
    return max(1.0, 1 - share + share * worst)


def _precisions(devices: Iterable[DeviceData]) -> set[str]:
    """Rates of the table that the program may use."""
    found: set[str] = set()
    for device in devices:
        tensor, fp64 = _activity(device, "tensor"), _activity(device, "fp64")
        found.add("fp32")
        if tensor is None or tensor >= _IN_USE:
            found.update(_TENSOR)
        learns = kind_of_device(device) in (Kind.LEARNING, Kind.SERVING, Kind.REINFORCEMENT)
        if (fp64 is None and not learns) or (fp64 is not None and fp64 >= _IN_USE):
            found.update(("fp64", "fp64_tensor"))
    return found


def _activity(device: DeviceData, pipe: str) -> float | None:
    return device.track(f"{pipe}_active_percent").average()


def _ratio(mine: GpuType, theirs: GpuType, kind: str) -> float | None:
    rate = theirs.peak.get(kind) or theirs.peak.get(_INSTEAD.get(kind, ""))
    return mine.peak[kind] / rate if rate else None


def _whole(gpu: GpuType, site: Site) -> GpuType | None:
    """The GPU that a slice is cut from, whose rates are in the table."""
    return next((each for each in site.gpus if each.key == (gpu.mig_of or gpu.key)), None)


def _part(gpu: GpuType, site: Site) -> float:
    """Of its whole GPU: the less of memory (and bandwidth) and of multiprocessors (sevenths)."""
    whole = _whole(gpu, site)
    sevenths = _SLICE.match(gpu.name)
    if not gpu.mig_of or whole is None or sevenths is None:
        return 1.0
    return min(gpu.mem_bytes / whole.mem_bytes, int(sevenths[1]) / 7)
