"""`gpumon fit`: which GPU holds a language model, by rule of thumb."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from gpumon.errors import EXIT_OK, NotFoundError

if TYPE_CHECKING:
    from gpumon.analysis.estimate import Estimate, Fit

_COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_HEAD = ("GPU", "MEMORY", "HOLDS IT", "ASK FOR", "")
#: the same words as in analysis.estimate, which would cost its import at every `--help`
_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4")
_MODES = ("infer", "finetune", "lora")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--params", type=_params, metavar="N", help="parameters: 7B, 340M")
    size.add_argument("--bytes", type=_size, metavar="N", help="size of the weights: 14G, 512M")
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16", help="of the weights (bf16)")
    parser.add_argument("--mode", choices=_MODES, default="infer", help="what it is for (infer)")
    parser.add_argument(
        "--recording", metavar="RUN", help="beside it, what a recorded run or job took"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def _params(text: str) -> float:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMBGT]?)", text.strip().upper())
    value = float(match[1]) * _COUNTS[match[2]] if match else 0.0
    if not 0 < value <= 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of parameters: give 7B or 340M")
    return value


def _size(text: str) -> float:
    from gpumon.model.units import parse_size

    value = parse_size(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, 14G or 512M")
    return value


def run(args: argparse.Namespace) -> int:
    import json

    from gpumon.analysis.estimate import DTYPES, estimate, fit
    from gpumon.site.read import load_site

    site = load_site()
    weights = args.bytes or args.params * DTYPES[args.dtype]
    need = estimate(weights, args.mode)
    fits = [fit(need, gpu, args.dtype) for gpu in site.offered]
    fits.sort(key=lambda each: (each.gpu.mem_bytes, each.gpu.key))
    measured = _measured(args.recording) if args.recording else None
    if args.json:
        print(json.dumps(_body(args, need, fits, measured), allow_nan=False))
    else:
        print("\n".join(_text(args, need, fits, measured)))
    return EXIT_OK


def _measured(name: str) -> dict[str, Any]:
    """The device of a run on which most was in use, and what that says about need."""
    from gpumon.analysis.gather import gather
    from gpumon.analysis.gather_run import RunGathering
    from gpumon.analysis.memory import mem_truth_of
    from gpumon.cli.recorded import open_run

    streams = open_run(name)
    found = gather(((each.node, each.gathered) for each in streams), gathering=RunGathering())
    for stream in streams:
        for problem in stream.problems:
            print(f"gpumon: {name}: {stream.node}: {problem}", file=sys.stderr)
    peaks = [
        (peak, device)
        for device in found.devices
        if (peak := device.track("mem_used_bytes").peak()) is not None
    ]
    if not peaks:
        raise NotFoundError(f"{name}: no device's memory was recorded; name another run")
    peak, device = max(peaks, key=lambda each: each[0])
    return {
        "device": device.label,
        "gpu": device.device.name,
        "mem_peak_bytes": round(peak),
        "mem_truth": mem_truth_of(device).mem_truth,
    }


def _text(
    args: argparse.Namespace, need: Estimate, fits: list[Fit], measured: dict[str, Any] | None
) -> list[str]:
    from gpumon.analysis.estimate import MODES
    from gpumon.model.text import clean
    from gpumon.model.units import bytes_text

    mode = MODES[need.mode]
    lines = [
        f"Estimate: {bytes_text(need.need_bytes)} "
        f"({mode.factor:g} × {bytes_text(need.weights_bytes)} of weights, and a context)",
        f"Rule of thumb, not a measurement: {mode.source}.",
    ]
    if measured is not None:
        means = {
            "real": "which is what it needs",
            "upper-bound": "at most so much is needed: an allocator's reserve is in it",
            "unknown": "which says nothing about need: memory reserved ahead",
        }[measured["mem_truth"]]
        lines.append(
            f"Measured: {bytes_text(measured['mem_peak_bytes'])} on {clean(measured['device'])} "
            f"({clean(measured['gpu'])}), {means}."
        )
    rows = [_HEAD, *map(_row, fits)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]
    return [*lines, "", *table]


def _row(each: Fit) -> tuple[str, ...]:
    from gpumon.model.units import bytes_text

    gpu = each.gpu
    several = f", {each.together} together" if each.verdict == "no" and each.together else ""
    return (
        gpu.key,
        bytes_text(gpu.mem_bytes),
        each.verdict + several,
        gpu.gres,
        each.note,
    )


def _body(
    args: argparse.Namespace, need: Estimate, fits: list[Fit], measured: dict[str, Any] | None
) -> dict[str, Any]:
    from gpumon.analysis.estimate import MODES

    return {
        "version": 1,
        "estimate": {
            "mode": need.mode,
            "dtype": args.dtype,
            "params": args.params,
            "weights_bytes": round(need.weights_bytes),
            "need_bytes": round(need.need_bytes),
            "source": MODES[need.mode].source,
        },
        "measured": measured,
        "gpus": [
            {
                "name": each.gpu.name,
                "mig_of": each.gpu.mig_of or None,
                "mem_total_bytes": each.gpu.mem_bytes,
                "holds": each.verdict,
                "together": each.together,
                "gres": each.gpu.gres or None,
                "note": each.note,
            }
            for each in fits
        ],
    }
