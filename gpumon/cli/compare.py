"""`gpumon compare`: two recorded runs side by side."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gpumon.errors import EXIT_OK

if TYPE_CHECKING:
    from gpumon.analysis.comparison import Comparison, Metric
    from gpumon.analysis.summary import DeviceSummary, RunSummary

_WIDTHS = (22, 18, 18, 19)  # 80 columns with the blanks between
_NOT_KNOWN = "n/a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        parser.add_argument(name, metavar="RUN", help="a recording, a folder of them, or a job id")
    parser.add_argument("--json", action="store_true", help="for programs; docs/export.md")


def run(args: argparse.Namespace) -> int:
    import json

    from gpumon.analysis.comparison import compare

    a, b = _summary(args.a), _summary(args.b)
    comparison = compare(a, b)
    if args.json:
        print(json.dumps(_json(args, a, b, comparison), allow_nan=False))
    else:
        print("\n".join(_text(args, a, b, comparison)))
    return EXIT_OK


def _summary(name: str) -> RunSummary:
    from gpumon.analysis.run_summary import run_summary
    from gpumon.cli.recorded import evidence_of, open_run

    streams = open_run(name)
    summary = run_summary(evidence_of(streams))
    for stream in streams:
        for problem in stream.problems:
            print(f"gpumon: {name}: {stream.node}: {problem}", file=sys.stderr)
    return summary


# -- text ----------------------------------------------------------------------------------------


def _text(
    args: argparse.Namespace, a: RunSummary, b: RunSummary, comparison: Comparison
) -> list[str]:
    lines = [
        _line("", "A", "B", "change"),
        _line("run", args.a, args.b),
        _line("began", _date(a), _date(b)),
    ]
    shown = [each for each in comparison.settings if each.a or each.b]
    same = [each.name for each in shown if each.a == each.b]
    for each in shown:
        if each.name not in same:
            mark = "changed" if each.changed else ""
            lines.append(_line(each.name, each.a or _NOT_KNOWN, each.b or _NOT_KNOWN, mark))
    if same:
        lines += _wrapped("same: " + ", ".join(same))
    lines.append("")
    lines += [
        _line(each.label, _value(each.a, each.unit), _value(each.b, each.unit), _change(each))
        for each in comparison.metrics
        if each.a is not None or each.b is not None
    ]
    lines += ["", *_devices(comparison), "", *_wrapped(_scaling(comparison))]
    return [line.rstrip() for line in lines]


def _line(label: str, a: str, b: str, change: str = "") -> str:
    cells = zip((label, a, b, change), _WIDTHS)
    return " ".join(_cut(text, width).ljust(width) for text, width in cells)


def _cut(text: str, width: int) -> str:
    """What tells two long texts apart is mostly at their end."""
    return text if len(text) <= width else "~" + text[1 - width :]


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, sum(_WIDTHS) + len(_WIDTHS) - 1)


def _date(run: RunSummary) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.start))


def _value(value: float | None, unit: str) -> str:
    from gpumon.model.units import bytes_text, clock_text

    if value is None:
        return _NOT_KNOWN
    if unit == "B":
        return bytes_text(value)
    if unit == "s":
        return clock_text(value)
    if unit == "%":
        return f"{value:.1f} %"
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def _change(metric: Metric) -> str:
    """`+12.0 points  better`, `x 0.48`; nothing where a value is missing."""
    change, ratio = metric.change, metric.ratio
    if change is None:
        return ""
    if not change:
        text = "same"
    elif metric.unit == "s" and ratio is None:
        text = f"+{_value(change, 's')}"
    elif metric.unit == "%":
        text = f"{change:+.1f} points"
    elif ratio is not None:
        text = f"x {ratio:.3g}"
    else:
        text = f"{change:+.4g}"
    verdict = {"b": "better", "a": "worse", "": ""}[metric.better]
    return f"{text:<12} {verdict}".rstrip()


def _scaling(comparison: Comparison) -> str:
    """What the other number of GPUs brought, as far as recordings can tell."""
    by_name = {each.name: each for each in comparison.metrics}
    time, hours = by_name["elapsed_s"], by_name["gpu_hours"]
    of_a, of_b = (sum(pair[n] is not None for pair in comparison.pairs) for n in (0, 1))
    if time.ratio is None or not time.b:
        return ""
    text = f"B ran {time.ratio:.2f} x as long as A"
    if of_a and of_b and of_a != of_b and hours.ratio is not None:
        text += f", on {of_b} GPUs instead of {of_a}: {hours.ratio:.2f} x the GPU-hours"
    speed = f"{1 / time.ratio:.2f} x as fast"
    return f"{text}. If both did the same work, B was {speed}; recordings do not know the work."


def _devices(comparison: Comparison) -> list[str]:
    """A line per pair of devices: what A's did -> what B's did."""
    head = f"{'GPU of A':<16} {'GPU of B':<16} {'busy %':>12} {'memory peak':>20} {'power W':>12}"
    if not comparison.pairs:
        return []
    lines = [head, *(_pair(a, b) for a, b in comparison.pairs)]
    if any(each and each.reserved for pair in comparison.pairs for each in pair):
        lines.append("* reserved by a framework ahead of need: says nothing about the need")
    return lines


def _pair(a: DeviceSummary | None, b: DeviceSummary | None) -> str:
    def both(name: str, unit: str = "") -> str:
        return " > ".join(_short(each, name, unit) if each else "-" for each in (a, b))

    names = (f"{each.node}:{each.device.label}" if each else "-" for each in (a, b))
    heads = " ".join(f"{_cut(name, 16):<16}" for name in names)
    memory = both("mem_peak_bytes", "B")
    return f"{heads} {both('busy_mean'):>12} {memory:>20} {both('power_mean_w'):>12}"


def _short(device: DeviceSummary, name: str, unit: str) -> str:
    value: float | None = getattr(device, name)
    if value is None:
        return _NOT_KNOWN
    star = "*" if device.reserved and name == "mem_peak_bytes" else ""
    return (_value(value, unit) if unit else f"{value:.0f}") + star


# -- JSON ----------------------------------------------------------------------------------------


def _json(
    args: argparse.Namespace, a: RunSummary, b: RunSummary, comparison: Comparison
) -> dict[str, Any]:
    return {
        "version": 1,
        "a": _run_json(args.a, a),
        "b": _run_json(args.b, b),
        "settings": [
            {"name": each.name, "a": each.a or None, "b": each.b or None, "changed": each.changed}
            for each in comparison.settings
        ],
        "metrics": [
            {
                "name": each.name, "a": each.a, "b": each.b, "change": each.change,
                "ratio": each.ratio, "better": each.better or None,
            }
            for each in comparison.metrics
        ],
    }  # fmt: skip


def _run_json(name: str, run: RunSummary) -> dict[str, Any]:
    return {
        "run": name,
        "start": run.start,
        "end": run.end,
        "elapsed_s": run.elapsed_s,
        "coverage": {"covered_percent": run.covered_percent, "gaps": run.gaps},
        "devices": [_device_json(each) for each in run.devices],
        "jobs": [each._asdict() for each in run.jobs],
    }


def _device_json(summary: DeviceSummary) -> dict[str, Any]:
    """The summary, with what identifies the device in place of the device."""
    device, values = summary.device, summary._asdict()
    del values["device"]
    identity = {"index": device.index, "uuid": device.uuid or None, "name": device.name or None}
    return {"node": values.pop("node"), **identity, **values}
