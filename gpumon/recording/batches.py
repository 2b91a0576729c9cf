"""Lines of samples as columns, for reading a whole recording: no object is made of a row.

Lines that hold rows and nothing else are parsed many at once. Where they are all as they should be
(rows as long as declared, times that grow) each group's table becomes columns; what is
not is left to the decoder, line by line, which says the same of it as ever.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from gpumon.model.axis import Axis
from gpumon.model.batch import CELL_S, ColumnBatch, KeyRows
from gpumon.model.fields import Field
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.untrusted import MAX_TIME
from gpumon.wire import MAX_LINE_BYTES, MAX_ROWS
from gpumon.wire.decoder import Decoder

#: samples in columns at a time: their memory is bounded, and many are cheaper than few
BATCH = 240
#: lines of one cell that wait for its end, and the bytes of all that wait: at the shortest interval
#: a cell has 400 lines, and of a busy node 240 lines have 1 MB
MAX_CELL, MAX_WAITING_BYTES = 2000, 4 << 20
_BODY = frozenset(("t", "m", "rows"))
#: groups whose rows nothing is gathered from
_UNUSED = frozenset(("agent.agent", "collector.collector"))


Item = Union[Header, Sample, ColumnBatch]


class Irregular(Exception):
    """These lines are not what nearly all are."""


def _refuse(name: str) -> float:
    raise Irregular(name)


_LOADS = json.JSONDecoder(parse_constant=_refuse).decode


class Tabulator:
    """Makes items of lines as they come: samples that hold nothing but rows many at a time.

    Lines are taken by cells of the time axis (`CELL_S`). Plain is a cell whose lines hold rows, but
    no event, state or words for what is missing; of another one every line is decoded by itself.
    """

    def __init__(
        self,
        decoder: Decoder,
        decode: Callable[[bytes], Union[Header, Sample, None]],
        batch: int = BATCH,
        axis: Optional[Axis] = None,
    ) -> None:
        """`decode` gives what a line holds, None where it is bad; `batch`: samples at a time;
        `axis`: to place them on, None where they are.
        """
        self._decoder = decoder
        self._decode = decode
        self._axis = axis
        self._batch = batch
        self.shift_s = 0.0  # cells begin so much later
        self._plain: List[bytes] = []  # of cells that are whole
        self._cell: List[bytes] = []
        self._bytes = 0  # of both
        self._place: Optional[float] = None
        self._is_plain = True

    def take(self, line: bytes) -> Iterator[Item]:
        """What can be given now that this line came; to be taken to its end."""
        at = _place(line, self.shift_s)
        if at is not None and at != self._place:
            yield from self._end_cell(self._is_plain)
            self._place, self._is_plain = at, True
        self._cell.append(line)
        self._bytes += len(line)
        self._is_plain = self._is_plain and at is not None and is_plain(line)
        if len(self._cell) > MAX_CELL or self._bytes > MAX_WAITING_BYTES:
            self._is_plain = False  # nor is the rest of it
            yield from self._end_cell(False)

    def rest(self, *, is_whole: bool = False) -> Iterator[Item]:
        """What waits; more of its last cell may be in another file, unless it `is_whole`."""
        yield from self._end_cell(is_whole and self._is_plain)
        self._place = None
        if self._plain:
            yield from self._tabulated()

    def drop(self) -> None:
        """Forget what waits."""
        self._plain, self._cell, self._bytes, self._place = [], [], 0, None

    def _end_cell(self, is_plain: bool) -> Iterator[Item]:
        cell, self._cell = self._cell, []
        if not is_plain:
            self._bytes = 0
        if is_plain:
            self._plain += cell
        if self._plain and (not is_plain or len(self._plain) >= self._batch):
            yield from self._tabulated()
        if not is_plain:
            yield from self._decoded(cell)

    def _tabulated(self) -> Iterator[Item]:
        lines, self._plain = self._plain, []
        self._bytes = 0
        try:
            batch = column_batch(lines, self._decoder, self._decode, self._axis)
        except Irregular:
            yield from self._decoded(lines)
        else:
            yield batch

    def _decoded(self, lines: List[bytes]) -> Iterator[Item]:
        """One at a time: they take much more room than their lines."""
        for item in map(self._decode, lines):
            if item is not None:
                yield item if self._axis is None else self._axis.item(item)


def _place(line: bytes, shift_s: float) -> Optional[float]:
    """The cell of a sample's line; None where it is another kind of line."""
    if not line.startswith(b'{"t":'):
        return None
    try:
        return (float(line[5 : line.index(b",", 0, 40)]) - shift_s) // CELL_S
    except ValueError:
        return None


def is_plain(line: bytes) -> bool:
    return (
        len(line) <= MAX_LINE_BYTES
        and b'"events":' not in line
        and b'"states":' not in line
        and b'"why":' not in line
    )


def column_batch(
    lines: List[bytes],
    decoder: Decoder,
    decode: Optional[Callable[[bytes], Union[Header, Sample, None]]] = None,
    axis: Optional[Axis] = None,
) -> ColumnBatch:
    """Plain lines in columns. Raises Irregular where only the decoder can take them, or where they
    would move on the axis.

    `decode` is what makes samples of them for who cannot take columns; by default the decoder.
    """
    if decoder.is_lost:
        raise Irregular("the header that names the columns is missing")
    try:
        bodies = _LOADS("[" + b",".join(lines).decode() + "]")
        times = _times(bodies)
        found: Dict[str, Tuple[List[float], List[Any]]] = {}
        for time, body in zip(times, bodies):
            if body.keys() != _BODY:
                raise Irregular("no list of rows")
            for group, table in body["rows"].items():
                own = found.setdefault(group, ([], []))
                own[0].append(time)
                own[1].append(table)
        groups = {
            group: dict(_series(group, decoder, *found[group]))
            for group in decoder.columns
            if group in found and group not in _UNUSED
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise Irregular(str(error)) from None
    if axis is not None and not axis.keeps(times, [body["m"] for body in bodies]):
        raise Irregular("a clock was set")

    def samples() -> Iterator[Sample]:
        for line in lines:
            item = (decode or decoder.line)(line)
            if isinstance(item, Sample):
                yield item

    return ColumnBatch(times, groups, samples)


def _times(bodies: List[Dict[str, Any]]) -> List[float]:
    times: List[float] = [body["t"] for body in bodies]
    monos = [body["m"] for body in bodies]
    if not set(map(type, chain(times, monos))) <= {int, float}:
        raise Irregular("a time is not a number")
    if not all(-1e15 < each < 1e15 for each in monos):
        raise Irregular("a time out of range")
    if times[0] < -MAX_TIME or times[-1] > MAX_TIME:
        raise Irregular("a time out of range")
    if any(later <= earlier for earlier, later in zip(times, times[1:])):
        raise Irregular("the clock was set back")
    return times


def _series(
    group: str,
    decoder: Decoder,
    times: List[float],
    tables: List[Any],
) -> Iterator[Tuple[Key, KeyRows]]:
    shared: Dict[int, Dict[str, Tuple[int, Field]]] = {}
    width = len(decoder.columns[group])
    lengths = {width + 1, width + 2}
    for own_times, rows in _by_key(times, tables):
        if not set(map(len, rows)) <= lengths:
            raise Irregular("a row of a different length")
        key, last = decoder.row(group, rows[-1])
        fields = decoder.columns_of(group, key)
        places = shared.get(id(fields))
        if places is None:
            places = shared[id(fields)] = {
                field.name: (at, field) for at, field in enumerate(fields, 1) if field is not None
            }
        yield key, KeyRows(own_times, rows, places, last)


def _by_key(times: List[float], tables: List[Any]) -> List[Tuple[List[float], Sequence[List[Any]]]]:
    """The rows of each key with their times: `times` itself where all tables have the same keys."""
    keys = [row[0] for row in tables[0]]
    if max(map(len, tables)) > MAX_ROWS:
        raise Irregular("too many rows")
    if all([row[0] for row in table] == keys for table in tables):
        # as lists: Python keeps thousands of freed tuples, of each length apart
        return [(times, rows) for rows in map(list, zip(*tables))]
    apart: Dict[Any, Tuple[List[float], List[Any]]] = {}
    for time, table in zip(times, tables):
        for row in table:
            name = tuple(row[0]) if isinstance(row[0], list) else row[0]
            own = apart.setdefault(name, ([], []))
            own[0].append(time)
            own[1].append(row)
    for own_times, _ in apart.values():
        if any(later <= earlier for earlier, later in zip(own_times, own_times[1:])):
            raise Irregular("a duplicate key in a table")
    return list(apart.values())
