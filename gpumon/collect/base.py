"""What a collector is, and what it fills in one tick."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Protocol

from gpumon.model.reading import Reading
from gpumon.model.sample import Event, Key, Rows, State
from gpumon.model.text import clean


def node_name(environ: Mapping[str, str]) -> str:
    """This host by its Slurm NodeName inside a job, else by its short host name."""
    return clean(environ.get("SLURMD_NODENAME", ""), 255) or os.uname().nodename.split(".")[0]


class Tick:
    """One sample in the making. Collectors put readings; the agent turns it into a Sample."""

    __slots__ = ("events", "mono", "rows", "states", "time")

    def __init__(self, time: float, mono: float) -> None:
        self.time = time
        self.mono = mono
        self.rows: Rows = {}
        self.states: dict[int, State] = {}
        self.events: list[Event] = []

    def put(self, entity: str, key: Key, readings: dict[str, Reading]) -> None:
        """Add readings of one entity; the names are those of `model.fields`."""
        rows = self.rows.setdefault(entity, {})
        row = rows.get(key)
        if row is None:
            rows[key] = readings
        else:
            row.update(readings)


#: the wall clock against the monotonic one; slewing moves both, so more was a step
_STEP_S = 0.1


class WallClock:
    """Detects that the wall clock was set, or that the machine slept."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def step_s(self) -> float:
        """By how much it was set since the last time; 0.0 when it was not."""
        before_s, self._offset_s = self._offset_s, time.time() - time.monotonic()
        step_s = self._offset_s - before_s
        return step_s if abs(step_s) > _STEP_S else 0.0


_EARLY_S = 0.3


class Schedule:
    """Decides which groups are due: a group of period 0 each tick, others when their time came.

    A tick that comes a little early counts, so that a 2 s group on a 1 s clock that jitters is
    read every second tick and not every third.
    """

    #: a command that takes one sample and ends sets this: then every group is due in every tick
    everything = False

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._idle_until = -math.inf  # monotonic; until then only groups of period 0 are due
        self._always: tuple[str, ...] = ()

    def due(self, name: str, period_s: float, mono: float) -> bool:
        if period_s <= 0 or Schedule.everything:
            return True
        when = self._next.get(name)
        if when is not None and mono < when - min(period_s / 10, _EARLY_S):
            return False
        # keep the rhythm, but never try to catch up with ticks that were missed
        self._next[name] = (
            mono + period_s if when is None or mono > when + period_s else when + period_s
        )
        return True

    def all_due(self, periods_s: Mapping[str, float], mono: float) -> tuple[str, ...]:
        """Those of the groups, always the same, that are due; mostly one comparison finds them."""
        if mono < self._idle_until and not Schedule.everything:
            return self._always
        self._always = tuple([name for name, period_s in periods_s.items() if period_s <= 0])
        due, coming = [], math.inf
        for name, period_s in periods_s.items():
            when = self._next.get(name, -math.inf)
            is_near = mono >= when - _EARLY_S or Schedule.everything
            if is_near and self.due(name, period_s, mono):
                due.append(name)
                when = self._next.get(name, math.inf)
            coming = min(coming, when)
        self._idle_until = (mono if coming == math.inf else coming) - _EARLY_S
        return tuple(due)

    def again(self, name: str, mono: float) -> None:
        """Have a group due at `mono` already."""
        self._next[name] = min(mono, self._next.get(name, mono))
        self._idle_until = min(mono - _EARLY_S, self._idle_until)


class Backoff:
    """When to try again what keeps failing: soon at first, then less and less often."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._since: float | None = None
        self._next = 0.0

    def due(self, mono: float) -> bool:
        """Every `first_s` seconds, later after a quarter of the time that it has failed."""
        if self._since is None:
            self._since, self._next = mono, mono + self._first_s
        if mono < self._next:
            return False
        self._next = mono + min(max(self._first_s, (mono - self._since) / 4), self._most_s)
        return True

    def reset(self) -> None:
        """It is well."""
        self._since = None


class Collector(Protocol):
    """Reads one resource on a node into readings.

    Parsing is a pure function of text beside it; no programs are started; no root is needed.
    What cannot be read becomes a `Missing` with its reason. An exception that escapes is recorded
    by the agent as this collector's failure, as data, and never ends the stream.
    """

    name: str

    def collect(self, tick: Tick) -> None: ...
