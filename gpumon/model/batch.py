"""Many samples of one node at once, for readers of a whole day of a recording."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gpumon.model.fields import Field
from gpumon.model.reading import Reading
from gpumon.model.sample import Key, Sample

#: columns begin and end at multiples of this: of bins of 10, 20 and 40 s, which a run of up to four
#: days has
CELL_S = 40.0
#: values of one field, tick by tick; None where it is missing
ColumnOf = List[Optional[float]]
#: (bin, first, last): the values at [first, last) are of that bin
Cut = Tuple[int, int, int]
_NUMBERS = frozenset((int, float))


class KeyRows(NamedTuple):
    """Values of one group for one key: a row for each of `times`."""

    times: List[float]  # epoch s, growing; shared where keys were read in the same ticks
    rows: Sequence[List[Any]]
    places: Dict[str, Tuple[int, Field]]  # field -> where in a row
    last: Dict[str, Reading]  # the newest row as a sample has it: texts and reasons too

    def column(self, name: str) -> Optional[ColumnOf]:
        """Numbers inside the field's range; None: the group has no such field."""
        if name not in self.places:
            return None
        at, field = self.places[name]
        values = [row[at] for row in self.rows]
        kinds = set(map(type, values))
        if kinds <= _NUMBERS and field.low <= min(values) and max(values) <= field.high:
            return values
        return [
            value if type(value) in _NUMBERS and field.low <= value <= field.high else None
            for value in values
        ]

    def texts(self, name: str) -> List[object]:
        """What stands in the column of a text: a text, or anything else where it is missing."""
        if name not in self.places:
            return []
        at, _ = self.places[name]
        return [row[at] for row in self.rows]

    def points(self, name: str) -> Tuple[List[float], List[float]]:
        """The column without what is missing, and the times of what is not."""
        values = self.column(name) or []
        found = [(value, time) for value, time in zip(values, self.times) if value is not None]
        return [value for value, _ in found], [time for _, time in found]

    def known(self, name: str) -> List[float]:
        """The column without what is missing."""
        return [value for value in self.column(name) or () if value is not None]


class ColumnBatch(NamedTuple):
    """Samples in a row that hold nothing but rows: no event, no device that is not well.

    `samples` gives the same as objects, for readers that cannot take columns.
    """

    times: List[float]  # epoch s of all samples, growing
    groups: Dict[str, Dict[Key, KeyRows]]  # "device.fast" -> device -> its columns
    samples: Callable[[], Iterator[Sample]]


def cut(times: List[float], step_s: float) -> List[Cut]:
    """The runs of times that lie in one bin of the grid each."""
    indexes = [time // step_s for time in times]
    cuts: List[Cut] = []
    first = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[first]:
            cuts.append((int(indexes[first]), first, at))
            first = at
    return cuts
