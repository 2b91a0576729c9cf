"""One entity with one key: its readings, the time of each, and its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import ceil

from gpumon.model.fields import GROUP_OF
from gpumon.model.reading import Reading
from gpumon.model.sample import Key
from gpumon.model.series import Series

#: a reading is fresh for so many of its periods, and a second for the way here
FRESH_PERIODS = 3
FRESH_SLACK_S = 1.0


class Row:
    """What is known of one entity with one key."""

    __slots__ = ("readings", "series", "times")

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.times: dict[str, float] = {}
        self.series: dict[str, Series] = {}

    def frozen(self) -> Row:
        """The readings as they are now; the series continue, but are read up to a given end."""
        row = Row()
        row.readings, row.times = dict(self.readings), dict(self.times)
        row.series = dict(self.series)
        return row

    def remember(self, readings: dict[str, Reading], time: float) -> None:
        """Readings that are the newest from now on."""
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))


class Tables(dict[str, dict[Key, Row]]):
    """The rows of one node, by entity and key."""

    def frozen(self) -> Tables:
        return Tables({
            entity: {key: row.frozen() for key, row in table.items()}
            for entity, table in self.items()
        })  # fmt: skip

    def row(self, entity: str, key: Key) -> Row | None:
        return self.get(entity, {}).get(key)

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
    group = GROUP_OF.get((entity, field))
    return FRESH_PERIODS * max(group.period_s if group else 0.0, interval_s) + FRESH_SLACK_S


def period_s(entity: str, field: str, interval_s: float) -> float:
    """How often the field is really read: a whole number of the node's intervals."""
    group = GROUP_OF.get((entity, field))
    ticks = ceil(group.period_s / interval_s - 0.1) if group else 1
    return max(ticks, 1) * interval_s
