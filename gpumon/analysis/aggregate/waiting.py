"""Samples of one node that wait until they are put on the grid: many at once cost less."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from gpumon.model.batch import ColumnBatch
from gpumon.model.sample import Details, Header, Received, Sample
from gpumon.wire.columns import Irregular, column_batch, is_plain
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder

#: bins of lines, which cost less the more are read at once; and lines, which may be many in a bin
_BINS, MAX_LINES = 4, 80
#: fewer are not worth reading again
_LEAST_LINES = 4
MAX_ROWS = 10_000  # of all that waits; as objects 1 KB each
#: so often samples wait as they are, after lines that could not be taken as columns
_PATIENCE = 2


class Waiting:
    """Samples as they came, of one bin; or of several their lines, which take a fifth of the memory
    and are read again as columns.
    """

    def __init__(self, most: int) -> None:
        """`most`: samples that are no lines."""
        self.bins = 0, 0  # the first and the last
        self._most = most
        self._objects = self._rows = 0  # samples that are no lines, and rows of all
        self._items: list[Sample | bytes] = []
        self._are_lines = False  # all that waits
        self._lines: _Lines | None = None  # None: none are kept
        self._patience = 1  # the first bin shows which processes there are

    def __len__(self) -> int:
        return len(self._items)

    def begin(self, header: Header, step_s: float) -> None:
        """From now on samples of this header come; none waits."""
        are_many = header.interval_s * _LEAST_LINES <= step_s
        self._lines = _Lines(header) if are_many else None

    def has_room(self, index: int, sample: Sample) -> bool:
        """Whether this one of bin `index` may wait, too; else all the others are to be taken."""
        if not self._items:
            return True
        first, last = self.bins
        if self._are_lines and self._is_line(sample):
            fits = last <= index < first + _BINS and len(self._items) < MAX_LINES
        else:
            fits = index == last and self._objects < self._most
        return fits and self._rows <= MAX_ROWS

    def add(self, index: int, sample: Sample) -> None:
        """One more of bin `index`, behind the others."""
        self._are_lines = (self._are_lines or not self._items) and self._is_line(sample)
        self.bins = (self.bins[0] if self._items else index), index
        self._rows += sum(map(len, sample.rows.values()))
        if self._are_lines and self._lines is not None and isinstance(sample, Received):
            self._items.append(sample.line)
            self._lines.details = sample.details
        else:
            self._items.append(sample)
            self._objects += 1

    def _is_line(self, sample: Sample) -> bool:
        """Whether it can wait as one."""
        return (
            self._lines is not None
            and not self._patience
            and isinstance(sample, Received)
            and sample.line != b""
            and is_plain(sample.line)
        )

    def taken(self, can_take: Callable[[ColumnBatch], bool]) -> ColumnBatch | list[Sample]:
        """All that waits, in columns if it can be and `can_take` them."""
        items, self._items = self._items, []
        self._objects = self._rows = 0
        self._patience = max(self._patience - 1, 0)
        lines = [each for each in items if isinstance(each, bytes)]
        if self._lines is None or not lines:
            return [each for each in items if isinstance(each, Sample)]
        if self._are_lines and len(lines) >= _LEAST_LINES:
            batch = self._lines.columns(lines)
            if batch is not None and can_take(batch):
                return batch
        self._patience = _PATIENCE
        return [self._lines.sample(each) if isinstance(each, bytes) else each for each in items]


class _Lines:
    """Reads lines of one header's samples again."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self.details: Details = {}  # of the stream, with those of the newest line

    def columns(self, lines: list[bytes]) -> ColumnBatch | None:
        """None: only `sample` can read them."""
        self._decoder.know(self.details)
        try:
            return column_batch(lines, self._decoder)
        except Irregular:
            return None

    def sample(self, line: bytes) -> Sample:
        self._decoder.know(self.details)
        found = self._decoder.line(line)
        assert isinstance(found, Sample)
        return found

    @cached_property
    def _decoder(self) -> Decoder:
        decoder = Decoder()
        decoder.line(Encoder().header(self._header))
        return decoder
