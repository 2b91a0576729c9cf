"""Digests: what a report needs of a frame, gathered when the frame is written.

Of what a digest holds nothing is known here: whoever records brings a `Digester`, and whoever reads
takes its bytes. It is given what a reader of the lines gets, so both gather the same.
"""

from __future__ import annotations

import io
import time
from contextlib import contextmanager
from threading import Event, Lock
from typing import Callable, Iterator, List, Optional, Protocol, Union

from gpumon.errors import WireError
from gpumon.model.sample import Header, Sample
from gpumon.model.ticks import Ticks
from gpumon.recording import blocks
from gpumon.recording.blocks import Broken, Torn
from gpumon.recording.checks import Proving
from gpumon.recording.frames import MAX_DIGEST_BYTES, PackedDigest
from gpumon.recording.ticks import Tabulator
from gpumon.recording.zstd import MAGIC, packer, unpacked
from gpumon.wire import Decoder

#: lines at a time: more cost less, and 90 KiB of a node of eight devices
BATCH = 40
_LEAST = 120  # lines that are worth a digest; fewer are read as quickly
#: lines that wait for the end of their frame; ten minutes at 1 s have fewer. More are gathered in
#: parts, because the end of a recording waits for its last digest
_MOST = 640
#: packed lines that wait so; ten minutes of a busy node have a tenth of a megabyte
MAX_BLOCKS_BYTES = 4 << 20
_LOOK_S = 0.05  # how often one who waits for its turn looks whether it is in a hurry
_REST = 3  # times as long as a turn took


class Digester(Protocol):
    """Gathers a stream as it is written. Used by one thread."""

    def add(self, item: Union[Header, Sample, Ticks]) -> None:
        """The next item, as `Recording.ticks` gives it."""

    def digest(self) -> bytes:
        """What was gathered since the last digest; b"" when from now on there can be none."""


class _InHurry(Exception):
    """Whoever records ends now."""


class _Turns:
    """One recorder at a time gathers: parsing takes megabytes for a moment.

    Where several take turns, each is followed by a rest: a thread that computes holds up all
    others, and those that the screen needs come first.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rested = 0.0  # when the rest is over, of the monotonic clock
        self._last: object = None  # whose turn the last one was

    @contextmanager
    def turn(self, of: object, hurry: Event) -> Iterator[None]:
        """Raises _InHurry as soon as there is one."""
        while not self._lock.acquire(timeout=_LOOK_S):
            if hurry.is_set():
                raise _InHurry
        try:
            rest_s = 0.0 if self._last is of else self._rested - time.monotonic()
            if hurry.wait(max(0.0, rest_s)):
                raise _InHurry
            self._last, began = of, time.monotonic()
            try:
                yield
            finally:
                ended = time.monotonic()
                self._rested = ended + _REST * (ended - began)
        finally:
            self._lock.release()


_turns = _Turns()


class Digesting:
    """Has a digester gather each frame of a recording when it is whole; numbers and packs digests.

    Until then the frame waits as it was packed, which is a twentieth of what its lines or their
    numbers take. The digester is made at the end of the first frame: to import one takes a tenth of
    a second, which neither the first screen nor a command of a few seconds shall wait for.
    """

    def __init__(self, make: Callable[[], Digester], restated: bytes, stream: bytes) -> None:
        """Lines that begin with `restated` repeat what was said before; `stream`: the recording's
        random id.
        """
        self._make = make
        self._digester: Optional[Digester] = None
        self._blocks: List[bytes] = []
        self._count = self._gathered = 0  # lines in them, and how many are gathered
        self._hurry = Event()
        self._is_over = False  # no digest from now on: those behind a gap would be of no use
        self._restated = restated
        self._decoder = Decoder()
        self._tabulator = Tabulator(self._decoder, self._decode, BATCH)
        self._stream = stream
        self._number = 0

    def take(self, block: bytes, count: int) -> None:
        """The next part of the frame that is being written, and how many lines it holds."""
        if self._is_over:
            return
        self._blocks.append(block)
        self._count += count
        if sum(map(len, self._blocks)) > MAX_BLOCKS_BYTES:
            self._end()
            return
        if self._count - self._gathered > _MOST:
            try:
                with _turns.turn(self, self._hurry):
                    self._gather()
            except _InHurry:
                self._end()

    def digest(self, *, is_last: bool) -> Optional[PackedDigest]:
        """Of the frame that ends here; a recording of few lines has none."""
        if self._is_over or (is_last and self._digester is None and self._count < _LEAST):
            return None
        try:
            with _turns.turn(self, self._hurry):
                data = self._digested()
                packed = packed_digest(data) if 0 < len(data) <= MAX_DIGEST_BYTES else None
        except _InHurry:
            packed = None
        self._blocks, self._count, self._gathered = [], 0, 0
        if packed is None:
            self._end()
            return None
        self._number += 1
        return PackedDigest(packed, self._number - 1, self._stream)

    def hurry(self) -> None:
        """From another thread: no digest any more, also none that is being made."""
        self._hurry.set()

    def _end(self) -> None:
        self._is_over, self._blocks, self._digester = True, [], None

    def _digested(self) -> bytes:
        digester = self._gather()
        self._add(digester, self._tabulator.rest())
        return digester.digest()

    def _gather(self) -> Digester:
        """What is not gathered yet; to unpack the frame from its beginning takes little."""
        if self._digester is None:
            self._digester = self._make()
        passed = 0
        for line in _lines(b"".join(self._blocks)):
            passed += 1
            if passed <= self._gathered:
                continue
            if self._hurry.is_set():
                raise _InHurry
            if line.startswith(self._restated):
                self._decode(line)
            else:
                self._add(self._digester, self._tabulator.take(line))
        self._gathered = passed
        return self._digester

    @staticmethod
    def _add(digester: Digester, items: List[Union[Header, Sample, Ticks]]) -> None:
        for item in items:
            digester.add(item)

    def _decode(self, line: bytes) -> Union[Header, Sample, None]:
        try:
            return self._decoder.line(line)
        except WireError:  # a reader will say so
            return None


def _lines(packed: bytes) -> Iterator[bytes]:
    """Of a frame that may go on."""
    proving = Proving()
    try:
        for chunk in unpacked(io.BytesIO(packed).read):
            yield from proving.take(chunk)
    except Torn:
        return


def packed_digest(data: bytes) -> bytes:
    """A zstd frame, with the length of `data` in place of its magic number: nobody who looks for
    frames in a damaged file shall take it for one of lines.
    """
    frame = packer()
    packed = frame.block(data) + frame.finish()
    return len(data).to_bytes(4, "little") + packed[4:]


def unpacked_digest(packed: bytes) -> bytes:
    """The bytes that were packed. Raises Broken where they are not whole, or too many."""
    size = int.from_bytes(packed[:4], "little")
    if not 0 < size <= MAX_DIGEST_BYTES:
        raise Broken("a digest that is too large")
    frame = MAGIC + packed[4:]
    if not blocks.header(frame)[1]:
        raise Broken("a digest without a checksum")
    data = bytearray()
    for chunk in unpacked(io.BytesIO(frame).read):
        data += chunk
        if len(data) > size:
            break
    if len(data) != size:
        raise Broken("a digest of another length than it tells")
    return bytes(data)
