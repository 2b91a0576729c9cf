"""Where a program's main thread stood: the user's line and the deepest call, counted over time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gpumon.model.text import clean

#: buckets of a run's grid that one of looks spans: a minute, with thirty looks
BUCKETS = 6
_MOST_PLACES = 12  # of one bucket; the rest are counted without a name
_MOST_COUNT = 1 << 32
_MOST_TEXT = 120
_LINE = re.compile(r"(?P<line>.*:\d+)(?: (?P<call>.*))?")
WAITS = ("", "data", "work", "ranks")


class Place(NamedTuple):
    """`text` as the probe writes it; `waits_for`: data, work, ranks, or nothing ("")."""

    text: str
    waits_for: str = ""

    @property
    def line(self) -> str:
        """The user's own line, `train.py:88`; "" outside of the user's own files."""
        found = _LINE.fullmatch(self.text)
        return found["line"] if found is not None else ""

    @property
    def shown(self) -> str:
        """`train.py:88 → DataLoader.__next__`."""
        found = _LINE.fullmatch(self.text.replace("_BaseDataLoaderIter.", "DataLoader."))
        if found is None:
            return self.text
        return f"{found['line']} → {found['call']}" if found["call"] else found["line"]


#: places that there was no room to name
ELSEWHERE = Place("")


class Looks:
    """How often a main thread was seen at which place, in buckets of the run's grid.

    A bucket keeps twelve places by their names, and how many looks there were in all.
    """

    def __init__(self) -> None:
        self._counts: dict[int, dict[Place, int]] = {}  # bucket -> looks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Looks) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, index: int, place: Place, count: int = 1) -> None:
        """`index`: of the run's grid."""
        found = self._counts.setdefault(index // BUCKETS, {})
        if place not in found and len(found) >= _MOST_PLACES:
            place = ELSEWHERE
        found[place] = found.get(place, 0) + count

    def coarsen(self, ratio: int) -> None:
        """The grid's buckets are so many times as long from now on."""
        before, self._counts = self._counts, {}
        for bucket in sorted(before):
            for place, count in before[bucket].items():
                self.add(bucket // ratio * BUCKETS, place, count)

    def copy(self) -> Looks:
        made = Looks()
        made._counts = {bucket: dict(counts) for bucket, counts in self._counts.items()}
        return made

    def during(self, spans: Iterable[Sequence[int]] | None = None) -> Counter[Place]:
        """Looks in these spans of the grid, (first, behind the last), or in all of it.

        Buckets of which at least half lie within a span count as a whole.
        """
        found: Counter[Place] = Counter()
        if spans is None:
            buckets: Iterable[int] = self._counts
        else:
            half = BUCKETS // 2
            buckets = sorted(
                {n for first, last in spans
                 for n in range((first + half) // BUCKETS, (last + half) // BUCKETS)}
            )  # fmt: skip
        for bucket in buckets:
            found.update(self._counts.get(bucket, {}))
        return found

    def extend(self, later: Looks) -> None:
        """More looks, of the same grid."""
        for bucket, counts in later._counts.items():
            for place, count in counts.items():
                self.add(bucket * BUCKETS, place, count)

    def told(self) -> list[Any]:
        """As a file holds it: places, and of each bucket which of them were seen how often."""
        names: dict[Place, int] = {}
        buckets = [
            [bucket * BUCKETS, [[names.setdefault(each, len(names)), n] for each, n in row.items()]]
            for bucket, row in self._counts.items()
        ]
        return [[list(each) for each in names], buckets]

    @classmethod
    def of(cls, told: Sequence[Any], first: int, last: int) -> Looks:
        """Of a frame of these buckets. Raises what Python does on what `told` never gives."""
        found = cls()
        texts, buckets = told
        names = [place_of(text, waits) for text, waits in texts]
        for index, row in buckets:
            if not first - BUCKETS < index <= last or len(row) > _MOST_PLACES + 1:
                raise ValueError("looks outside of their frame")
            for name, count in row:
                if not isinstance(count, int) or not 0 < count < _MOST_COUNT:
                    raise ValueError("an impossible number of looks")
                found.add(index, names[name], count)
        return found


def place_of(text: object, waits_for: object) -> Place:
    """Of two readings."""
    waits = waits_for if waits_for in WAITS else ""
    return Place(clean(text, _MOST_TEXT) if isinstance(text, str) else "", str(waits))


def ranked(looks: Counter[Place]) -> Iterator[tuple[Place, float]]:
    """The places by how often they were seen, each with its share of the looks, 0 to 1."""
    total = sum(looks.values())
    named = [each for each in looks.items() if each[0] != ELSEWHERE]
    for place, count in sorted(named, key=lambda each: (-each[1], each[0])):
        yield place, count / total


def share(looks: Counter[Place], waits_for: str) -> float | None:
    """Of the looks, those in which it waited for this, 0 to 1; None without any."""
    total = sum(looks.values())
    waited = sum(count for place, count in looks.items() if place.waits_for == waits_for)
    return waited / total if total else None
