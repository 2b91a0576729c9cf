"""Which GPU holds a model, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.rightsize.estimate import MODES, Estimate, Fit
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.model.text import clean
from gpumon.model.units import bytes_text
from gpumon.report.render.layout import aligned

_HEAD = ("GPU", "MEMORY", "FITS", "REQUEST", "")


class Measured(NamedTuple):
    """The device of a run on which most was in use, and what that says about need."""

    device: str
    gpu: str
    mem_peak_bytes: int
    mem_truth: str


def measured_in(run: RunData) -> Measured | None:
    """None where no device's memory was recorded."""
    peaks = [(peak, device) for device in run.devices if (peak := _need(device)) is not None]
    if not peaks:
        return None
    peak, device = max(peaks, key=lambda each: each[0])
    return Measured(device.label, device.device.name, round(peak), mem_truth_of(device).mem_truth)


def _need(device: DeviceData) -> float | None:
    """As far as it is known: what was used at most."""
    need = mem_truth_of(device).need
    return device.track("mem_used_bytes").peak() if need is None else need.proven_bytes


def fit_text(need: Estimate, fits: Sequence[Fit], measured: Measured | None) -> str:
    """The estimate, what was measured, what to request, and a row per GPU, the best first."""
    mode = MODES[need.mode]
    lines = [
        f"Estimate: {bytes_text(need.need_bytes)} "
        f"({mode.factor:g} × {bytes_text(need.weights_bytes)} of weights, and a context)",
        f"Rule of thumb, not a measurement: {mode.source}.",
    ]
    if measured is not None:
        means = {
            "real": "which is the real need",
            "upper-bound": "an upper bound: an allocator's reserve is included",
            "unknown": "preallocated, so the real need is unknown",
            "measured": "measured inside the program: the real need",
        }[measured.mem_truth]
        lines.append(
            f"Measured: {bytes_text(measured.mem_peak_bytes)} on {clean(measured.device)} "
            f"({clean(measured.gpu)}), {means}."
        )
    ranked = sorted(fits, key=_rank)
    best = next((each for each in ranked if each.together), None)
    if best is not None:
        request = f": #SBATCH {_request(best)}" if best.gpu.gres else ""
        lines.append(f"Smallest that fits: {_gpus(best)} × {best.gpu.key}{request}")
    if not any(each.gpu.gres for each in fits):
        lines.append("To request one, take its name from: sinfo -o %G")
    rows = [_HEAD, *(_row(each, need) for each in ranked)]
    columns = [column for column in zip(*rows) if any(column[1:])]
    return "\n".join([*lines, "", *aligned(list(zip(*columns)))])


def _rank(each: Fit) -> tuple[bool, int, bool, float, str]:
    """One GPU before several, with room before a tight one, a small one before a large one; what
    cannot hold it last.
    """
    is_tight = each.holds == "tight"
    return each.together is None, _gpus(each), is_tight, each.gpu.mem_bytes, each.gpu.key


def _gpus(each: Fit) -> int:
    return each.together or 1


def _row(each: Fit, need: Estimate) -> tuple[str, ...]:
    gpu = each.gpu
    if each.together is None:
        fits = "no"
    elif each.together > 1:
        fits = f"on {each.together} GPUs"
    else:
        fits = f"{each.holds}, {100 * need.need_bytes / gpu.mem_bytes:.0f} % full"
    request = _request(each) if each.together else ""
    return gpu.key, bytes_text(gpu.mem_bytes), fits, request, each.note


def _request(each: Fit) -> str:
    return f"--gres={each.gpu.gres}:{_gpus(each)}" if each.gpu.gres else ""


def fit_json(
    need: Estimate, fits: Sequence[Fit], measured: Measured | None, dtype: str, params: float | None
) -> dict[str, Any]:
    return {
        "version": 1,
        "estimate": {
            "mode": need.mode,
            "dtype": dtype,
            "params": params,
            "weights_bytes": round(need.weights_bytes),
            "need_bytes": round(need.need_bytes),
            "source": MODES[need.mode].source,
        },
        "measured": measured._asdict() if measured else None,
        "gpus": [
            {
                "name": each.gpu.name,
                "mig_of": each.gpu.mig_of or None,
                "mem_total_bytes": each.gpu.mem_bytes,
                "holds": each.holds,
                "together": each.together,
                "gres": each.gpu.gres or None,
                "note": each.note,
            }
            for each in fits
        ],
    }
