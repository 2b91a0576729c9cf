"""The shape of a process's memory on a device: a jump, a plateau, a staircase."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.analysis.rundata import ProcessData, Track

JUMP_S = 10.0
#: a jump that settles a plateau takes so much of the device
LARGE_SHARE = 0.15
#: an increment counts from so much of the device on
STEP_SHARE = 0.01
_USAGE_PERIOD_S = 2.0  # between two readings of a process's memory
_PLATEAU_S = (60.0, 180.0)  # after the first memory
_FLAT_S = 600.0  # so long is the plateau watched


class Shape(NamedTuple):
    """Sizes in bytes, times in s."""

    plateau_bytes: float  # median of 1 to 3 min after the last large jump, else after the first
    rise_s: float | None  # from 10 % to 97 % of the plateau; None: it was there before
    flat: float  # (most − least) / plateau over the ten minutes after the rise
    flat_s: float  # so much of that time was measured
    jump_bytes: float  # the last rise of at least 15 % of the device within 10 s, else 0
    steps: tuple[float, ...]  # increments of more than 1 % of the device, in their order
    resolution_s: float  # between two points of the rise

    @property
    def is_quick(self) -> bool:
        """It rose in one go, as far as the resolution tells."""
        return self.rise_s is not None and self.rise_s <= max(JUMP_S, 2 * self.resolution_s)


class _Points(NamedTuple):
    times: list[float]
    lows: list[float]
    values: list[float]
    highs: list[float]
    resolution_s: float


def shape_of(process: ProcessData, total_bytes: float, mem: Track | None = None) -> Shape | None:
    """The shape of its memory on a device of `total_bytes`; None where nothing was read.

    `mem` stands in for its own track where the driver does not tell a process's memory.
    """
    points = _points(process, process.mem_bytes if mem is None else mem)
    first = next((at for at, value in enumerate(points.values) if value > 0), None)
    if first is None:
        return None
    jump_bytes, settled = _last_jump(points, LARGE_SHARE * total_bytes)
    plateau = _plateau(points, first if settled is None else settled, settled is not None)
    reached = next((at for at, value in enumerate(points.values) if value >= 0.97 * plateau), first)
    flat, flat_s = _flatness(points, reached, plateau)
    return Shape(
        plateau,
        _rise_s(points, reached, plateau),
        flat,
        flat_s,
        jump_bytes,
        _steps(points, STEP_SHARE * total_bytes),
        points.resolution_s,
    )


def _points(process: ProcessData, mem: Track) -> _Points:
    """Its memory over time: the first minutes in full resolution, then bin by bin."""
    known = [at for at, value in enumerate(mem.mean) if value == value]
    step_s = JUMP_S
    if len(known) > 1 and process.last > process.first:
        # the track does not say how wide its bins are; the process's life does
        step_s = max(step_s, (process.last - process.first) / (known[-1] - known[0] + 1))
    rise = [(time, value) for time, value in zip(*process.rise) if value == value]
    resolution_s = step_s
    if len(rise) > 1:
        resolution_s = max((rise[-1][0] - rise[0][0]) / (len(rise) - 1), 0.1)
    points = [(time, value, value, value) for time, value in rise]
    until = rise[-1][0] if rise else process.first - step_s
    for at in known:
        time = process.first + (at - known[0]) * step_s
        if time >= until + (step_s if rise else 0.0):
            points.append((time, mem.low[at], mem.mean[at], mem.high[at]))
    if process.appeared and points:
        before_s = _USAGE_PERIOD_S if rise else step_s
        points.insert(0, (points[0][0] - before_s, 0.0, 0.0, 0.0))
    times, lows, values, highs = ([point[n] for point in points] for n in range(4))
    return _Points(times, lows, values, highs, resolution_s)


def _last_jump(points: _Points, least_bytes: float) -> tuple[float, int | None]:
    """The last rise of at least `least_bytes` within 10 s: its size, and where it ended."""
    window_s = max(JUMP_S, 2 * points.resolution_s)
    found: tuple[float, int | None] = (0.0, None)
    behind = 0
    for at, value in enumerate(points.values):
        while points.times[at] - points.times[behind] > window_s:
            behind += 1
        grown = value - points.values[behind]
        if grown >= max(least_bytes, 1.0) and value > points.values[at - 1]:
            found = grown, at
    return found


def _plateau(points: _Points, start: int, jumped: bool) -> float:
    """The median of 60 to 180 s after `start`, or of what there is."""
    began = points.times[start]
    begin_s, end_s = _PLATEAU_S
    points_after = zip(points.times[start:], points.values[start:])
    after = [(time - began, value) for time, value in points_after if time - began <= end_s]
    settled = [value for since, value in after if since >= begin_s]
    early = after if jumped else after[len(after) // 2 :]
    return median(settled or [value for _, value in early])


def _rise_s(points: _Points, reached: int, plateau: float) -> float | None:
    floor_bytes = max(0.1 * plateau, min(CONTEXT_BYTES, 0.5 * plateau))
    below = [at for at in range(reached) if points.values[at] <= floor_bytes]
    return points.times[reached] - points.times[below[-1]] if below else None


def _flatness(points: _Points, reached: int, plateau: float) -> tuple[float, float]:
    """(most − least) / plateau, and the seconds watched, after the rise."""
    begin = reached + 1 if reached + 1 < len(points.times) else reached
    end = begin
    while end + 1 < len(points.times) and points.times[end + 1] - points.times[begin] <= _FLAT_S:
        end += 1
    most, least = max(points.highs[begin : end + 1]), min(points.lows[begin : end + 1])
    flat = (most - least) / plateau if plateau > 0 else 0.0
    return flat, points.times[end] - points.times[reached]


def _steps(points: _Points, least_bytes: float) -> tuple[float, ...]:
    """Increments; in bins one that lies on a border shows twice and is joined."""
    joins = points.resolution_s >= JUMP_S
    steps: list[float] = []
    rose = False
    for before, after in zip(points.values, points.values[1:]):
        grown = after - before
        if grown <= max(least_bytes, 1.0):
            rose = False
            continue
        if rose and joins:
            steps[-1] += grown
        else:
            steps.append(grown)
        rose = True
    return tuple(steps)
