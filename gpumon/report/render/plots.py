"""Plots of busy and memory over the run, for terminals with colours."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.summary import DeviceRow
from gpumon.chart.figure import Line, dot_columns, draw, stretched
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.report.render.layout import Row

MOST_DEVICES = 4
LEAST_WIDTH = 80
_HEIGHT = 7
_GAP = 2
_LABELS = ("  0", " 50", "100")
_ROLES = {0: "mem", 1: "busy", None: "dim"}


def plot_rows(
    devices: Sequence[DeviceRow], elapsed_s: float | None, width: int, glyphs: str
) -> list[Row]:
    """Two plots side by side; empty where there are too many, no room, or nothing was measured."""
    shown = [row for row in devices if any(each is not None for each in row.busy_over_time)]
    if not shown or len(shown) > MOST_DEVICES or width < LEAST_WIDTH:
        return []
    each_width = (width - _GAP) // 2
    rows: list[Row] = []
    for at in range(0, len(shown), 2):
        pair = [_plot(row, elapsed_s, each_width, glyphs) for row in shown[at : at + 2]]
        rows += [
            [run for n, row in enumerate(lines) for run in ([(" " * _GAP, "")] if n else []) + row]
            for lines in zip(*pair)
        ]
    return rows


def _plot(row: DeviceRow, elapsed_s: float | None, width: int, glyphs: str) -> list[Row]:
    """A caption and `_HEIGHT` rows, each `width` cells."""
    columns = dot_columns(width, _LABELS)
    lines = [Line(stretched(values, columns)) for values in (row.mem_over_time, row.busy_over_time)]
    times = ("0", age_text(elapsed_s)) if elapsed_s else ()
    canvas = draw(lines, width, _HEIGHT, 0, 100, _LABELS, times, glyphs)
    assert canvas is not None, "80 columns hold two plots"
    label = clean(row.label, width - 14)
    room = " " * (width - len(label) - len("  busy % mem %"))
    caption: Row = [(f"{label}  ", ""), ("busy % ", "busy"), ("mem %", "mem"), (room, "")]
    return [caption, *([(text, _ROLES[line]) for text, line in row] for row in canvas.rows)]
