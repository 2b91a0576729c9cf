"""Lines of samples as columns, for reading a whole recording: no object is made of a row.

Lines that hold rows and nothing else become columns (`wire.columns`); what is not as it should be
is left to the decoder, line by line, which says the same of it as ever.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, Union

from gpumon.model.axis import Axis
from gpumon.model.batch import CELL_S, ColumnBatch
from gpumon.model.sample import Header, Sample
from gpumon.wire.columns import Irregular, column_batch, is_plain
from gpumon.wire.decoder import Decoder

#: samples in columns at a time: their memory is bounded, and many are cheaper than few
BATCH = 240
#: lines of one cell that wait for its end, and the bytes of all that wait: at the shortest interval
#: a cell has 400 lines, and of a busy node 240 lines have 1 MB
MAX_CELL, MAX_WAITING_BYTES = 2000, 4 << 20

Item = Union[Header, Sample, ColumnBatch]


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
