"""`gpumon fit`: which GPU holds a language model, by rule of thumb."""

from __future__ import annotations

import argparse
import re

from gpumon.errors import EXIT_OK, NotFoundError

_COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
#: the same words as in analysis.estimate, which would cost its import at every `--help`
_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4")
_MODES = ("infer", "finetune", "lora")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--params", type=_params, metavar="N", help="number of parameters: 7B, 340M")
    size.add_argument("--bytes", type=_size, metavar="N", help="size of the weights: 14G, 512M")
    parser.add_argument(
        "--dtype", choices=_DTYPES, default="bf16", help="data type of the weights (bf16)"
    )
    parser.add_argument(
        "--mode", choices=_MODES, default="infer", help="what the model is used for (infer)"
    )
    parser.add_argument(
        "--recording", metavar="RUN", help="also print the measured peak of a recorded run or job"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _params(text: str) -> float:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMBGT]?)", text.strip().upper())
    value = float(match[1]) * _COUNTS[match[2]] if match else 0.0
    if not 0 < value <= 1e15:
        raise argparse.ArgumentTypeError(
            f"invalid number of parameters {text!r}: expected e.g. 7B or 340M"
        )
    return value


def _size(text: str) -> float:
    from gpumon.model.units import parse_size

    value = parse_size(text)
    if not value:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}: expected bytes, 14G or 512M")
    return value


def run(args: argparse.Namespace) -> int:
    import json

    from gpumon.analysis.rightsize.estimate import DTYPES, estimate, fit
    from gpumon.report.fit import fit_json, fit_text, measured_in
    from gpumon.services.this_site import this_site

    need = estimate(args.bytes or args.params * DTYPES[args.dtype], args.mode)
    fits = [fit(need, gpu, args.dtype) for gpu in this_site().offered]
    fits.sort(key=lambda each: (each.gpu.mem_bytes, each.gpu.key))
    measured = None
    if args.recording:
        from gpumon.services.runs import read_run

        measured = measured_in(read_run(args.recording))
        if measured is None:
            raise NotFoundError(
                f"{args.recording}: no device's memory was recorded; name another run"
            )
    if args.json:
        body = fit_json(need, fits, measured, args.dtype, args.params)
        print(json.dumps(body, allow_nan=False))
    else:
        print(fit_text(need, fits, measured))
    return EXIT_OK
