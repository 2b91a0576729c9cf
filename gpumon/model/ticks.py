"""Many samples of one node at once: what a recording gives to who reads a whole day of it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gpumon.model.fields import Field
from gpumon.model.reading import Reading
from gpumon.model.sample import Header, Key, Sample

#: columns begin and end at multiples of this: of bins of 10, 20 and 40 s, which a run of up to four
#: days has
CELL_S = 40.0
#: values of one field, tick by tick; None where it is missing
ColumnOf = List[Optional[float]]
#: (bin, first, last): the values at [first, last) are of that bin
Cut = Tuple[int, int, int]
_NUMBERS = frozenset((int, float))


class Series(NamedTuple):
    """What one group said of one key: a row for each of `times`."""

    times: List[float]  # epoch s, growing; shared where keys were read in the same ticks
    rows: Sequence[List[Any]]
    places: Dict[str, Tuple[int, Field]]  # field -> where in a row; none of texts
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

    def known(self, name: str) -> List[float]:
        """The column without what is missing."""
        return [value for value in self.column(name) or () if value is not None]


class Ticks(NamedTuple):
    """Samples in a row that hold nothing but rows: no event, no device that is not well.

    `samples` gives the same again as objects, for who cannot take them in columns.
    """

    times: List[float]  # epoch s of all samples, growing
    groups: Dict[str, Dict[Key, Series]]  # "device.fast" -> device -> its columns
    samples: Callable[[], Iterator[Sample]]


class Digest(NamedTuple):
    """What was gathered of some minutes of a stream when they were written.

    The digests of one stream are numbered from 0 and each goes on where the one before it ended.
    `data` is its maker's (`analysis.digest`) and not to be trusted; `items` gives what it was made
    of, for who cannot take it.
    """

    stream: bytes  # of which stream; random
    number: int
    is_last: bool  # none follows that goes on
    data: bytes
    items: Callable[[], Iterator[Union[Header, Sample, Ticks]]]


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
