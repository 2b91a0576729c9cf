"""Two runs side by side, as text and as JSON."""

from __future__ import annotations

import textwrap
import time
from typing import Any

from gpumon.analysis.comparison import Comparison, Metric
from gpumon.analysis.summary import DeviceRow, RunSummary
from gpumon.model.units import bytes_text, clock_text, step_text

_WIDTHS = (22, 18, 17, 19)  # 79 columns with the blanks between: beside a scroll bar, too
_NOT_KNOWN = "n/a"


# -- text ----------------------------------------------------------------------------------------


def comparison_text(
    names: tuple[str, str], a: RunSummary, b: RunSummary, comparison: Comparison
) -> str:
    """79 columns; `names` as the user called the runs."""
    lines = [
        _line("", "A", "B", "change"),
        _line("run", *names),
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
    return "\n".join(line.rstrip() for line in lines)


def _line(label: str, a: str, b: str, change: str = "") -> str:
    cells = zip((label, a, b, change), _WIDTHS)
    return " ".join(_cut(text, width).ljust(width) for text, width in cells)


def _cut(text: str, width: int) -> str:
    """What tells two long texts apart is mostly at their end."""
    return text if len(text) <= width else "~" + text[1 - width :]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, sum(_WIDTHS) + len(_WIDTHS) - 1, break_on_hyphens=False)


def _date(run: RunSummary) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.start))


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return _NOT_KNOWN
    if unit == "B":
        return bytes_text(value)
    if unit == "s":
        return clock_text(value)
    if unit == "%":
        return f"{value:.1f} %"
    if unit == "s/step":
        return step_text(1e6 * value)
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def _change(metric: Metric) -> str:
    """`+12.0 points  better`, `× 0.48`; nothing where a value is missing."""
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
        text = f"× {ratio:.3g}"
    else:
        text = f"{change:+.4g}"
    how = {"b": "better", "a": "worse", "": ""}[metric.better]
    return f"{text:<12} {how}".rstrip()


def _scaling(comparison: Comparison) -> str:
    """The same work in both runs: by the user's marks, by steps, else by the whole time."""
    by_name = {each.name: each for each in comparison.metrics}
    known = by_name.get("same_work_s")
    if not known and by_name["step_mean_s"].ratio and by_name["gpu_hours_per_1000_steps"].ratio:
        return _by_steps(by_name)
    time = known or by_name["elapsed_s"]
    hours = by_name["same_work_gpu_hours" if known else "gpu_hours"]
    of_a, of_b = (sum(pair[n] is not None for pair in comparison.pairs) for n in (0, 1))
    if time.ratio is None or not time.b:
        return ""
    costs = [f"{1 / time.ratio:.2f} × as fast"]
    if of_a and of_b and hours.ratio is not None:
        costs.append(f"with {hours.ratio:.2f} × the GPU-hours")
    energy = by_name["gpu_energy_wh"]
    if energy.ratio is not None and not known:
        costs.append(f"{energy.ratio:.2f} × the energy")
    gpus = f", on {of_b} GPUs instead of {of_a}" if of_a and of_b and of_a != of_b else ""
    if known:
        return f"For the same work, by your marks{gpus}: B was {', '.join(costs)}."
    return (
        f"B ran {time.ratio:.2f} × as long as A{gpus}. If both did the same work, B was "
        f"{', '.join(costs)}. How much work a run did is not recorded: to compare the same steps, "
        "mark them alike in both runs (gpumon mark 'epoch 1')."
    )


def _by_steps(by_name: dict[str, Metric]) -> str:
    time, hours = by_name["step_mean_s"].ratio, by_name["gpu_hours_per_1000_steps"].ratio
    return (
        f"For the same number of steps: B was {1 / (time or 1):.2f} × as fast, with {hours:.2f} × "
        "the GPU-hours (pauses between steps count). If the batch differs, so does the work of a "
        "step."
    )


def _devices(comparison: Comparison) -> list[str]:
    """A line per pair of devices: what A's did → what B's did."""
    head = f"{'GPU of A':<15} {'GPU of B':<15} {'busy %':>12} {'memory peak':>20} {'power W':>12}"
    if not comparison.pairs:
        return []
    lines = [head, *(_pair(a, b) for a, b in comparison.pairs)]
    if any(each and each.reserved for pair in comparison.pairs for each in pair):
        lines.append("* preallocated by a framework; the real need is unknown")
    return lines


def _pair(a: DeviceRow | None, b: DeviceRow | None) -> str:
    def both(name: str, unit: str = "") -> str:
        return " → ".join(_short(each, name, unit) if each else "-" for each in (a, b))

    names = (f"{each.node}:{each.device.label}" if each else "-" for each in (a, b))
    heads = " ".join(f"{_cut(name, 15):<15}" for name in names)
    memory = both("mem_peak_bytes", "B")
    return f"{heads} {both('busy_mean'):>12} {memory:>20} {both('power_mean_w'):>12}"


def _short(device: DeviceRow, name: str, unit: str) -> str:
    value: float | None = getattr(device, name)
    if value is None:
        return _NOT_KNOWN
    star = "*" if device.reserved and name == "mem_peak_bytes" else ""
    return (_value(value, unit) if unit else f"{value:.0f}") + star


# -- JSON ----------------------------------------------------------------------------------------


def comparison_json(
    names: tuple[str, str], a: RunSummary, b: RunSummary, comparison: Comparison
) -> dict[str, Any]:
    return {
        "version": 1,
        "a": _run_json(names[0], a),
        "b": _run_json(names[1], b),
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


def _device_json(row: DeviceRow) -> dict[str, Any]:
    """With what identifies the device in its place."""
    device = row.device
    identity = {"index": device.index, "uuid": device.uuid or None, "name": device.name or None}
    names = row._fields[2 : row._fields.index("mem_in_use_peak_bytes") + 1]
    return {"node": row.node, **identity, **{name: getattr(row, name) for name in names}}
