"""Charts of the HTML report as inline SVG: areas and lines over the wall clock.

Shapes are stretched to whatever width a screen has; the labels of the axes stand beside them, as
text that keeps its size.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gpumon.analysis.summary import DeviceRow
from gpumon.report.model import Happening, Report

_WIDTH, _HEIGHT = 1000.0, 100.0
_LEVELS = ("critical", "warning")
#: s between labels of the time
_STEPS_S = (
    10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip
_MOST_LABELS = 6
#: labels closer to an edge of the plot than this part of it begin, or end, there
_EDGE = 0.05
_SHADES = 5  # of a heat map


class Window(NamedTuple):
    """The time in which a finding held, in the colour of its level."""

    start: float
    end: float
    level: str


class Axis(NamedTuple):
    """The time of all charts of a report, epoch seconds."""

    start: float
    end: float

    def at(self, time_s: float) -> float:
        """0 at its beginning, 1 at its end."""
        return (time_s - self.start) / (self.end - self.start)


def axis_of(report: Report) -> Axis | None:
    """None where nothing was measured over time."""
    if report.start is None or report.end is None or report.end <= report.start:
        return None
    if not any(any(v is not None for v in row.busy_over_time) for row in report.devices):
        return None
    return Axis(report.start, report.end)


def windows_of(report: Report, row: DeviceRow) -> list[Window]:
    """What is wrong with this GPU, the worst last; what held nearly all the time shows as well in
    the plot itself.
    """
    found = [
        Window(max(each.start, report.start or 0.0), each.end, each.level)
        for each in report.findings
        if each.level in _LEVELS and row.label in each.devices
        and each.start is not None and each.end is not None
    ]  # fmt: skip
    return sorted(found, key=lambda each: -_LEVELS.index(each.level))


def chart(report: Report, row: DeviceRow, axis: Axis, marks: Iterable[Happening], over: str) -> str:
    """Busy as an area, the SMs that worked as one within, memory as a line; `over`: HTML that
    stands over the plot.
    """
    is_reserved = row.has_unproven_need or any(row.need_over_time)
    reserved = ' stroke-dasharray="5 4"' if is_reserved else ""
    shapes = [
        *_unknown(row.busy_over_time),
        *(_window(axis, each) for each in windows_of(report, row)),
        *_areas(row.busy_over_time, "busy"),
        *_areas(row.sm_over_time, "sm"),
        *(_grid(share) for share in (0.25, 0.5, 0.75)),
        *_lines(row.mem_over_time, reserved),
        *_lines(row.need_over_time, ""),
        *(_mark(axis, each.time, each.level) for each in marks if each.time is not None),
    ]
    y = "".join(f'<span style="top:{100 - each}%">{each}</span>' for each in (0, 50, 100))
    return _plot(y, _HEIGHT, shapes, axis, over)


def heat_map(rows: Sequence[DeviceRow], labels: Sequence[str], axis: Axis, over: str) -> str:
    """Busy of many GPUs: a row each, the stronger the colour the busier. `labels` are escaped."""
    cells = (cell for n, row in enumerate(rows) for cell in _strip(row.busy_over_time, n))
    names = "".join(f"<div>{label}</div>" for label in labels)
    plot = _plot(names, 16 * len(rows), cells, axis, over)
    return f'<figure class="map">{plot}</figure>'


def _plot(y: str, height: float, shapes: Iterable[str], axis: Axis, over: str) -> str:
    """Shapes between the labels of both axes."""
    box = f'viewBox="0 0 {_WIDTH:g} {height:g}" preserveAspectRatio="none"'
    return (
        f'<div class="plot"><div class="y">{y}</div><svg {box} aria-hidden="true">'
        f"{''.join(shapes)}</svg>{over}{_time_labels(axis)}</div>"
    )


def _time_labels(axis: Axis) -> str:
    """The wall clock below a plot."""
    found = []
    for at, text in ticks(axis):
        share = axis.at(at)
        edge = " class=first" if share < _EDGE else " class=last" if share > 1 - _EDGE else ""
        found.append(f'<span{edge} style="left:{100 * share:.1f}%">{text}</span>')
    return f'<div class="x">{"".join(found)}</div>'


def ticks(axis: Axis) -> Iterator[tuple[float, str]]:
    """Round times of the day, at most six, each with its text."""
    span_s = axis.end - axis.start
    step_s = next((each for each in _STEPS_S if span_s / each <= _MOST_LABELS), _STEPS_S[-1])
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if span_s < 86400 else "%a %H:%M"
    if step_s >= 86400:
        form = "%d %b"
    offset_s = time.localtime(axis.start).tm_gmtoff
    at = -(-(axis.start + offset_s) // step_s) * step_s - offset_s
    while at <= axis.end:
        yield at, time.strftime(form, time.localtime(at))
        at += step_s


# -- shapes --------------------------------------------------------------------------------------


def _stretches(
    values: Sequence[float | None], *, known: bool = True
) -> Iterator[tuple[int, list[float]]]:
    """Where each stretch of known values, or of unknown ones, begins, and its values."""
    at = 0
    for is_known, group in groupby(values, lambda value: value is not None):
        found = list(group)
        if is_known == known:
            yield at, [min(max(value or 0.0, 0.0), 100.0) for value in found]
        at += len(found)


def _areas(values: Sequence[float | None], name: str) -> Iterator[str]:
    """Steps: a part of the run is as wide as it is long."""
    step = _WIDTH / max(1, len(values))
    for first, known in _stretches(values):
        points = [f"M{first * step:.1f} {_HEIGHT:g}"]
        for n, value in enumerate(known, first):
            points.append(f"V{_HEIGHT - value:.1f}H{(n + 1) * step:.1f}")
        yield f'<path fill="var(--{name})" d="{"".join(points)}V{_HEIGHT:g}Z"/>'


def _lines(values: Sequence[float | None], dashes: str) -> Iterator[str]:
    step = _WIDTH / max(1, len(values))
    for first, known in _stretches(values):
        ends = [(first * step, known[0]), ((first + len(known)) * step, known[-1])]
        middle = [((first + n + 0.5) * step, value) for n, value in enumerate(known)]
        points = " ".join(f"{x:.1f},{_HEIGHT - y:.1f}" for x, y in (ends[0], *middle, ends[1]))
        yield (
            '<polyline fill="none" stroke="var(--mem)" stroke-width="2"'
            f' vector-effect="non-scaling-stroke"{dashes} points="{points}"/>'
        )


def _unknown(values: Sequence[float | None]) -> Iterator[str]:
    """What was not observed."""
    step = _WIDTH / max(1, len(values))
    for first, unknown in _stretches(values, known=False):
        yield _rect(first * step, len(unknown) * step, "var(--none)")


def _window(axis: Axis, each: Window) -> str:
    first, last = (max(0.0, min(1.0, axis.at(at))) * _WIDTH for at in (each.start, each.end))
    return _rect(first, last - first, f"var(--{each.level}-ground)")


def _rect(x: float, width: float, fill: str, y: float = 0.0, height: float = _HEIGHT) -> str:
    return f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{fill}"/>'


def _grid(share: float) -> str:
    y = _HEIGHT * share
    return (
        f'<line x1="0" x2="{_WIDTH:g}" y1="{y:g}" y2="{y:g}" stroke="var(--dim)"'
        ' stroke-opacity=".35" stroke-dasharray="1 5" vector-effect="non-scaling-stroke"/>'
    )


def _mark(axis: Axis, time_s: float, level: str) -> str:
    """A vertical line at a moment, in the colour of its level."""
    x = axis.at(time_s) * _WIDTH
    colour = "text" if level == "info" else level
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT:g}" stroke="var(--{colour})"'
        ' stroke-dasharray="3 3" vector-effect="non-scaling-stroke"/>'
    )


def _strip(values: Sequence[float | None], n: int) -> Iterator[str]:
    """A row of a heat map; parts that look the same are one rectangle."""
    step, at = _WIDTH / max(1, len(values)), 0.0
    shades = [None if v is None else round(min(max(v, 0.0), 100.0) / 100 * _SHADES) for v in values]
    for shade, group in groupby(shades):
        width = len(list(group)) * step
        fill = "var(--none)" if shade is None else "var(--sm)"
        opacity = "" if shade is None else f' fill-opacity="{shade / _SHADES:g}"'
        rect = _rect(at, width, fill, 16.0 * n + 1, 14.0)
        yield rect.replace("/>", f"{opacity}/>")
        at += width
