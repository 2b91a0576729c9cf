"""What is kept of one entity with one key: of samples its readings, the time of each, and series;
of frames the series.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.model.fields import PERIODS_S, SERIES
from gpumon.model.reading import Reading
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Key
from gpumon.model.series import Series

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

#: a reading is fresh for so many of its periods, and a second for the way here
FRESH_PERIODS = 3
FRESH_SLACK_S = 1.0
#: fields whose extremes within a tick the driver's own samples tell
EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}
#: a process whose rollups end so long before the frame does is not there any more
_RECENT_S = 60.0
_MINUTE_S = 60


class Row(NamedTuple):
    """What is known of one entity with one key."""

    readings: dict[str, Reading]
    times: dict[str, float]  # of the newest of each
    series: dict[str, Series]

    def remember(self, readings: dict[str, Reading], time: float) -> None:
        """Readings that are the newest from now on."""
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))


class Tables(dict[str, dict[Key, Row]]):
    """The rows of one node, by entity and key."""

    def frozen(self) -> Tables:
        """The readings as they are now; the series continue, but are read up to a given end."""
        return Tables({
            entity: {key: Row._make([dict(each) for each in row]) for key, row in table.items()}
            for entity, table in self.items()
        })  # fmt: skip

    def row(self, entity: str, key: Key) -> Row | None:
        return self.get(entity, {}).get(key)

    def make(self, entity: str, key: Key) -> Row:
        """The row, where there is none a new one."""
        return self.setdefault(entity, {}).setdefault(key, Row({}, {}, {}))

    def usages(self) -> Iterator[tuple[int, int]]:
        """Which processes (the second) are on which devices."""
        return (key for key in self.get("usage", ()) if isinstance(key, tuple))

    def series(self) -> Iterator[tuple[str, str, Series]]:
        """All of them, with entity and field."""
        for entity, table in self.items():
            for row in table.values():
                yield from ((entity, field, series) for field, series in row.series.items())

    def remove(self, entities: Iterable[str], is_gone: Callable[[Key, Row], bool]) -> list[Row]:
        """Rows that are no more."""
        return [
            table.pop(key)
            for table in (self.get(entity, {}) for entity in entities)
            for key in [key for key, row in table.items() if is_gone(key, row)]
        ]


@lru_cache(maxsize=4096)
def fresh_for_s(entity: str, field: str, interval_s: float) -> float:
    """Seconds that a reading is fresh, of a node with this interval between its samples."""
    return FRESH_PERIODS * max(PERIODS_S.get((entity, field), 0.0), interval_s) + FRESH_SLACK_S


def period_s(entity: str, field: str, interval_s: float) -> float:
    """How often the field is really read: a whole number of the node's intervals."""
    return max(ceil(PERIODS_S.get((entity, field), 0.0) / interval_s - 0.1), 1) * interval_s


# -- of frames


def parts_of(
    frame: Frame, keys: Mapping[int, int]
) -> Iterator[tuple[str, Key, str, Rollup, float]]:
    """Entity, key and field of all its series, each with its rollup and the time of its first
    sample, epoch s. `keys`: of devices, by their places in the frame; others are left out.
    """
    key: Any
    for (entity, key, field), rollup in frame.named():
        if field not in SERIES.get(entity, ()) or not len(rollup):
            continue
        first_time = max(rollup.first * frame.step_s, frame.samples.first)
        if isinstance(key, tuple):
            place, number = key
            key = keys.get(place), frame.devices[place].processes[number].facts.pid
        elif entity == "device":
            own = frame.devices[key].rollups
            inner = [own[name] for name in EXTREMES.get(field, ()) if name in own]
            key, rollup = keys.get(key), _widened(rollup, inner)
        if _MINUTE_S % frame.step_s:  # steps that no series has
            rollup = rollup.expanded(round(frame.step_s / STEP_S))
        if None not in (key, key[0] if isinstance(key, tuple) else key):
            yield entity, key, field, rollup, first_time


def is_recent(frame: Frame, rollup: Rollup) -> bool:
    """Whether it goes on to the end of the frame."""
    end = frame.extent[1] if frame.extent is not None else 0
    return (end + 1) * frame.step_s - (rollup.last + 1) * rollup.step_s <= _RECENT_S


def _widened(rollup: Rollup, inner: Iterable[Rollup]) -> Rollup:
    """The rollup, as low and high as `inner` knows from within its ticks."""
    low, high = rollup.low, rollup.high
    for each in inner:  # its NaN is neither less nor more
        _, least, most = each.padded(rollup.first, len(low))
        low = array("f", [b if b < a else a for a, b in zip(low, least)])
        high = array("f", [b if b > a else a for a, b in zip(high, most)])
    return Rollup.of(rollup.step_s, rollup.first, rollup.count[:], rollup.mean[:], low[:], high[:])
