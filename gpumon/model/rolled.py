"""What the samples of one frame add to an aggregate: rollups of its series, and what happened.

The series are packed as columns: their names, and of each where it begins, its buckets, the values
in a bucket, and how many numbers it has. The numbers are float32, little-endian: means, lows and
highs; means alone where these are the same; a single one where it is constant.
"""

from __future__ import annotations

import re
import sys
from array import array
from functools import cache
from itertools import groupby
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Tuple,
    Union,
)

from gpumon.model.batch import ColumnBatch
from gpumon.model.fields import FIELDS
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Event, Header, Sample

#: of a series: its kind, the name of its field, and whose it is
SeriesName = Tuple[str, str, Any]
#: buckets of one frame; ten minutes have 60
MAX_BUCKETS = 4096
#: so few that a line of them is one block of a recording, of which a reader unpacks no other
_SERIES_A_LINE = 28
_MAX_INDEX = 10**14
_STEPS_S = frozenset(STEP_S * 2**doublings for doublings in range(16))
_BYTES = 4  # of a number
_MOST_ON_PILE = 36  # frames: six hours take 4 MiB of eight devices
_HAIR = 1e-6  # what float32 may add to a bound
_NAN = "\u7fc0"  # the upper half of one
#: ranges of the series that are no fields, by kind
DERIVED = {
    "active": (0.0, 1.0),
    "masks": (0.0, 0.0),
    "throttle": (0.0, 1.0),
    "covered": (0.0, 1.0),
    "threads": (0.0, 1e12),
    "runnable": (0.0, 1e7),
    "blocked": (0.0, 1e7),
}
#: series of processes -> their fields
FIELD_OF = {
    "mem": ("usage", "mem_bytes"),
    "sm": ("usage", "sm_percent"),
    "pool_used": ("pool", "used_bytes"),
    "pool_reserved": ("pool", "reserved_bytes"),
    "cpu": ("process", "cpu_percent"),
    "resident": ("process", "rss_bytes"),
}


class Columns(NamedTuple):
    """Some series. Where they were read, nothing but the types of the columns is sure."""

    names: List[Any]  # [kind, field, keys], of so many series one after another
    begins: List[int]  # buckets behind the frame's first
    sizes: List[int]
    counts: List[Union[int, List[int]]]  # values in every bucket that has any, or in each
    widths: List[int]  # numbers
    values: bytes
    are_shown: bool = False  # no rule asks for them


class Rolled(NamedTuple):
    """A frame's. `devices`, `looks` and `state` are as `NodeAggregate` gives and takes them."""

    step_s: float
    first: int  # bucket, and the last
    last: int
    headers: List[Header]
    events: List[Event]
    devices: List[Any]
    looks: List[Any]
    columns: List[Columns]
    #: to continue from; only that of the newest frame is read
    state: Callable[[], Mapping[str, Any]]


class RolledFrame(NamedTuple):
    """A frame that was rolled up when it was recorded.

    Those of one stream are numbered from 0; each continues where the previous one ended. `opened`
    gives what is not to be trusted and may raise what Python does on malformed data; `items` the
    samples that it was made of, for readers that cannot take it.
    """

    stream: bytes  # of which stream; random
    number: int
    is_last: bool  # none follows that continues
    opened: Callable[[], Rolled]
    items: Callable[[], Iterator[Union[Header, Sample, ColumnBatch]]]


# -- packing ---------------------------------------------------------------------------------------


def packed(
    series: Iterable[Tuple[SeriesName, Rollup]], first: int, *, are_shown: bool
) -> Iterator[Columns]:
    """The series as columns. `first`: the frame's first bucket."""
    # the values of one field of many devices resemble each other
    ordered = sorted(series, key=lambda each: (each[0][:2], str(each[0][2])))
    for at in range(0, len(ordered), _SERIES_A_LINE):
        some = ordered[at : at + _SERIES_A_LINE]
        names = [
            [kind, field, [name[2] for name, _ in same]]
            for (kind, field), same in groupby(some, key=lambda each: each[0][:2])
        ]
        begins, sizes, counts, widths, values = zip(*(_row(found, first) for _, found in some))
        yield Columns(names, [*begins], [*sizes], [*counts], [*widths], b"".join(values), are_shown)


def _row(found: Rollup, first: int) -> Tuple[int, int, Union[int, List[int]], int, bytes]:
    mean, low, high, counts = found.mean, found.low, found.high, found.count
    values = mean[:]
    if low is not mean and (low != mean or high != mean):
        values = mean + low + high
    elif values.count(values[0]) == len(values):
        values = values[:1]
    if sys.byteorder == "big":
        values.byteswap()
    most = max(counts)
    if counts.count(most) == len(counts):
        return found.first - first, len(mean), most, len(values), values.tobytes()
    return found.first - first, len(mean), counts.tolist(), len(values), values.tobytes()


# -- unpacking -------------------------------------------------------------------------------------


class Piles:
    """The series of a stream's frames, on their way to the rollups that hold them.

    Mostly a frame has the same series in the same columns as the one before it. Such columns are
    only checked and laid on a pile; those of many frames are then joined at once, which takes a
    third of the time.
    """

    def __init__(self, series_of: Callable[[str, str, Any], Rollup]) -> None:
        """`series_of` gives the rollup of a name; raises where there can be no such series."""
        self._series_of = series_of
        self._piles: List[_Pile] = []
        self._frames = 0
        self._step_s = STEP_S

    def take(self, found: Rolled, step_s: float) -> None:
        """Those of the next frame, to be joined in buckets of `step_s`. Raises what Python does on
        malformed data.
        """
        names = [columns.names for columns in found.columns]
        if names != [pile.names for pile in self._piles] or found.step_s != self._step_s:
            self.join(step_s)
            self._step_s = found.step_s
            self._piles = [_Pile(each, self._series_of) for each in names]
            places = [id(rollup) for pile in self._piles for rollup in pile.places]
            if len(set(places)) != len(places):
                raise ValueError("a duplicate series")
        for columns, pile in zip(found.columns, self._piles):
            pile.take(columns, found, self._ratio(step_s))
        self._frames += 1
        if self._frames >= _MOST_ON_PILE:
            self.join(step_s)

    def join(self, step_s: float) -> None:
        """Append what lies on the piles to its rollups."""
        for pile in self._piles if self._frames else ():
            pile.join(self._ratio(step_s))
        self._frames = 0

    def _ratio(self, step_s: float) -> int:
        ratio = round(step_s / self._step_s)
        if self._step_s * ratio != step_s or ratio & ratio - 1:
            raise ValueError("a different grid")
        return ratio


class _Pile:
    """Columns of the same names and, as they lie on it, of the same shape."""

    def __init__(self, names: Any, series_of: Callable[[str, str, Any], Rollup]) -> None:
        self.names = names
        self.places = [series_of(kind, field, key) for kind, field, keys in names for key in keys]
        self._ranges = [(_range(kind, field), len(keys)) for kind, field, keys in names]
        self._shape: Any = None
        self._rows: List[_Row] = []  # of the shape, one for each series
        self._numbers = 0
        self._step_s = STEP_S
        self._frames: List[Tuple[int, bytes]] = []  # the first bucket of each, and its numbers

    def take(self, columns: Columns, found: Rolled, ratio: int) -> None:
        shape = (*columns[1:5], found.last - found.first)
        if shape != self._shape:
            self.join(ratio)
            self._rows = list(_rows(*shape))
            self._numbers = sum(row.width for row in self._rows)
            self._shape = shape
        values = columns.values
        if len(self._rows) != len(self.places) or self._numbers * _BYTES != len(values):
            raise ValueError("a number of columns that differs from the series")
        self._check(values)
        self._step_s = found.step_s
        self._frames.append((found.first, values))

    def _check(self, values: bytes) -> None:
        upper = _upper_halves(values)
        place = end = 0
        for range_, count in self._ranges:
            at, place = place, place + count
            begin, end = end, end + sum([row.width for row in self._rows[at:place]])
            range_.check(values, upper, begin, end)

    def join(self, ratio: int) -> None:
        frames, self._frames = self._frames, []
        if not frames:
            return
        if sys.byteorder == "big":
            frames = [(first, _numbers(values).tobytes()) for first, values in frames]
        firsts = [first for first, _ in frames]
        strides = {after - before for before, after in zip(firsts, firsts[1:])}
        at = 0
        for rollup, row in zip(self.places, self._rows):
            # where no bucket is missing between frames, all are one run
            for run in [frames] if strides <= {row.size} else [[frame] for frame in frames]:
                columns = row.columns([values for _, values in run], at)
                first = run[0][0] + row.begin
                if ratio == 1:
                    rollup.join(first, row.counts * len(run), *columns)
                else:
                    part = Rollup(self._step_s)
                    part.join(first, row.counts * len(run), *columns)
                    rollup.extend(part.coarsened(ratio))
            at += _BYTES * row.width


class _Row(NamedTuple):
    """Where the buckets of one series stand in a frame."""

    begin: int  # behind the frame's first
    size: int
    counts: array[int]
    width: int

    def columns(self, frames: List[bytes], at: int) -> List[bytes]:
        """Means, lows and highs, or only means, from byte `at` of each frame on."""
        if self.width == 1:
            return [b"".join([values[at : at + _BYTES] * self.size for values in frames])]
        length = _BYTES * self.size
        begins = range(at, at + _BYTES * self.width, length)
        return [b"".join([values[begin : begin + length] for values in frames]) for begin in begins]


def _rows(begins: Any, sizes: Any, counts: Any, widths: Any, last: int) -> Iterator[_Row]:
    """Raises what Python does on malformed columns. `last`: bucket behind the frame's first."""
    if not len(begins) == len(sizes) == len(counts) == len(widths):
        raise ValueError("columns of different lengths")
    if {*map(type, begins), *map(type, sizes), *map(type, widths)} - {int}:
        raise TypeError("a position that is not a whole number")
    for begin, size, count, width in zip(begins, sizes, counts, widths):
        if not (begin >= 0 < size and begin + size <= last + 1 and width in (1, size, 3 * size)):
            raise ValueError("impossible buckets")
        its = array("H", [count] * size if isinstance(count, int) else count)
        if len(its) != size:
            raise ValueError("a number of counts that differs from the buckets")
        yield _Row(begin, size, its, width)


def check(found: Rolled) -> None:
    """Raises ValueError where there can be no such grid."""
    size = found.last - found.first + 1  # 0 where there are no series
    is_grid = abs(found.first) <= _MAX_INDEX and bool(found.columns) <= size <= MAX_BUCKETS
    if not is_grid or found.step_s not in _STEPS_S:
        raise ValueError("an impossible grid")


def _numbers(values: bytes) -> array[float]:
    found = array("f", values)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _upper_halves(values: bytes) -> str:
    """The upper 16 bits of each as a character: in order as the floats are, negative ones and NaN
    behind all others.
    """
    text = values.decode("utf-16-le", "surrogatepass")[1::2]
    count = len(values) // _BYTES
    return text if len(text) == count else "\uffff" * count  # two made a pair


class Range:
    """What a series may hold, but for NaN."""

    def __init__(self, low: float, high: float) -> None:
        slack = _HAIR * max(abs(low), abs(high))
        self._low, self._high = low - slack, high + slack
        bound = _upper_halves(array("f", [high]).tobytes())
        # up to 1 % above the bound passes for it
        first = chr(ord(bound) + 1)
        self._find_doubtful = re.compile(
            f"[{re.escape(first)}-{chr(ord(_NAN) - 1)}{chr(ord(_NAN) + 1)}-\U0010ffff]"
        ).search

    def check(self, values: bytes, upper: str, begin: int, end: int) -> None:
        """The numbers from `begin` to `end`. Raises ValueError where one lies outside.

        `upper` are the upper halves of all: a regular expression settles nearly all of them, in an
        eighth of the time that min and max take.
        """
        if self._find_doubtful(upper, begin, end):
            found = _numbers(values[_BYTES * begin : _BYTES * end])
            known = [value for value in found if value == value]
            if known and not (self._low <= min(known) and max(known) <= self._high):
                raise ValueError("a value out of range")


@cache
def _range(kind: str, name: str) -> Range:
    if kind in DERIVED:
        return Range(*DERIVED[kind])
    entity, name = FIELD_OF.get(kind, (kind, name))
    field = FIELDS[entity][name]
    return Range(field.low, field.high)
