"""Records this node while a block of a program runs, and plots it in a notebook."""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from html import escape
from statistics import fmean
from types import TracebackType
from typing import NamedTuple

from gpumon.api.command import end, start
from gpumon.errors import GpumonError
from gpumon.model.reading import number
from gpumon.model.sample import Header
from gpumon.model.units import span_text
from gpumon.recording.reader import Recording
from gpumon.services.record import is_recorded_by_another

_BEGINS_S = 30.0  # on a node with a slow disk and driver
_ENDS_S = 60.0
_LOOK_S = 0.01
_WIDTH, _HEIGHT = 600, 60
_COLOURS = {"busy": "#2e7d32", "memory": "#1565c0"}
#: (epoch s, percent)
Line = list[tuple[float, float]]


class Axis(NamedTuple):
    """Epoch seconds; values that are further apart than `gap_s` are not connected."""

    start: float
    end: float
    gap_s: float


class recording:
    """`with gpumon.recording("run.gpumon"):` records this node meanwhile.

    The same as `gpumon record -o PATH`, in a process of its own; of several ranks on a node only
    the first does it. `path`: a file that does not exist yet; `interval_s`: between two samples, 1
    if not given. Raises GpumonError.
    """

    def __init__(self, path: str | os.PathLike[str], interval_s: float | None = None) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.summary = ""  # what `gpumon record` prints at its end
        self._interval = [] if interval_s is None else ["--interval", f"{interval_s:g}"]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> recording:
        if is_recorded_by_another(os.environ) or os.environ.get("LOCAL_RANK", "0") != "0":
            self.summary = "recorded by the first rank on this node"
            return self
        if os.path.isdir(self.path):
            raise GpumonError(f"{self.path} is a folder; name a new file")
        if os.path.lexists(self.path):
            raise GpumonError(f"{self.path} exists; remove it, or name another file")
        self._process = start("record", "-o", self.path, *self._interval)
        until = time.monotonic() + _BEGINS_S
        while not os.path.exists(self.path):
            if self._process.poll() is not None or time.monotonic() > until:
                self._end()
                raise GpumonError(f"nothing was recorded to {self.path}")
            time.sleep(_LOOK_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end()
        except GpumonError:
            if error is None:  # else that one matters more
                raise

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
        self.summary = end(process)[1].strip()

    def _repr_html_(self) -> str:
        """Busy and memory of each device over time, for Jupyter."""
        try:
            plots = _plots(self.path)
        except GpumonError as error:
            return f"<p>{escape(str(error))}</p>"
        summary = f"<pre>{escape(self.summary)}</pre>" if self.summary else ""
        return "".join(plots) + summary


def _plots(path: str) -> list[str]:
    """An SVG for each device. Raises GpumonError."""
    lines: dict[tuple[int, str], Line] = defaultdict(list)
    with Recording(path) as file:
        devices = file.header.devices
        totals = {device.key: number(device.facts.get("mem_total_bytes")) for device in devices}
        for item in file.items():
            rows = {} if isinstance(item, Header) else item.rows.get("device", {})
            for key, total in totals.items():
                busy = number(rows.get(key, {}).get("busy_percent"))
                used = number(rows.get(key, {}).get("mem_used_bytes"))
                if busy is not None:
                    lines[key, "busy"].append((item.time, busy))
                if used is not None and total:
                    lines[key, "memory"].append((item.time, 100 * used / total))
        axis = Axis(file.start, max(file.end, file.start + 1.0), 3 * file.header.interval_s)
    return [
        _plot(f"{each.index} {each.name}", {name: lines[each.key, name] for name in _COLOURS}, axis)
        for each in devices
    ]


def _plot(name: str, lines: dict[str, Line], axis: Axis) -> str:
    drawn = "".join(
        f'<polyline fill="none" stroke="{_COLOURS[field]}" points="{_points(part, axis)}"/>'
        for field, line in lines.items()
        for part in _parts(line, axis.gap_s)
    )
    legend = ", ".join(f'<span style="color:{_COLOURS[field]}">{field} %</span>' for field in lines)
    box = f'width="{_WIDTH}" height="{_HEIGHT}" style="border:1px solid #8886"'
    return (
        f"<p>GPU {escape(name)}: {legend} over {span_text(axis.end - axis.start)}<br>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" {box}>{drawn}</svg></p>'
    )


def _parts(line: Line, gap_s: float) -> list[Line]:
    """Between gaps, in which nothing was measured."""
    parts: list[Line] = []
    for at, percent in line:
        if not parts or at - parts[-1][-1][0] > gap_s:
            parts.append([])
        parts[-1].append((at, percent))
    return parts


def _points(line: Line, axis: Axis) -> str:
    """Means, one for each column of the picture that has values."""
    columns: dict[int, list[float]] = defaultdict(list)
    for at, percent in line:
        columns[round(_WIDTH * (at - axis.start) / (axis.end - axis.start))].append(percent)
    means = ((x, _HEIGHT * (1 - min(fmean(of), 100.0) / 100)) for x, of in sorted(columns.items()))
    return " ".join(f"{x},{y:.1f}" for x, y in means)
