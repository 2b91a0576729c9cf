"""Reads a recording, whole or torn."""

from __future__ import annotations

import json
import stat
import time
from functools import partial
from math import inf, isfinite
from typing import Iterator, List, Mapping, Optional, Sequence, Set, Union
from zlib import crc32

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.axis import Axis
from gpumon.model.bounded import left_out_text
from gpumon.model.sample import Header, Sample
from gpumon.model.ticks import Digest, Ticks
from gpumon.recording.blocks import Broken, Torn
from gpumon.recording.checks import Identity, identity_of
from gpumon.recording.columns import Columns, Picker
from gpumon.recording.digesting import unpacked_digest
from gpumon.recording.frames import Frame, Unproven, find_frames, lines
from gpumon.recording.opened import Opened
from gpumon.recording.ticks import Tabulator
from gpumon.recording.writer import RESTATED
from gpumon.recording.zstd import MAGIC
from gpumon.wire import Decoder

_RESTATED = RESTATED.encode()
#: without an end and without a new byte for so long, and three intervals: nobody writes there
_SILENT_S = 60.0
_BATCH_BYTES = 1 << 21
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


def is_recording(path: str) -> bool:
    """Whether a regular file begins as a recording does, whatever its name is."""
    try:
        with open(path, "rb") as file:
            return _begins(file.read(4))
    except OSError:
        return False


def _begins(head: bytes) -> bool:
    return head == MAGIC or int.from_bytes(head, "little") in _SKIPPABLE


class Recording:
    """One file of samples. What a crash left half is read as far as it goes.

    `header` is the first; `start` and `end` are the times (epoch s) of the first and the last
    sample; `state` is `recording`, `ended` or `torn`; `problems` says in sentences what is missing
    or could not be read, and grows while items are read.
    """

    def __init__(self, path: str) -> None:
        """Raises NotFoundError, GpumonError (unreadable) or WireError (no recording)."""
        self.path = path
        self.problems: List[str] = []
        self._bad_lines = 0  # in this reading
        self._damaged: Set[int] = set()  # where frames begin that are not whole inside
        self._alone: Set[int] = set()  # and those that do not follow on the one before them
        self._unread_bytes = 0  # behind the last whole part of a frame that was not finished
        try:
            self._file = Opened(path)
            self._open()
        except FileNotFoundError:
            raise NotFoundError(f"no file {path}; `gpumon runs` lists what there is") from None
        except OSError as error:
            raise GpumonError(f"cannot read {path}: {error.strerror}") from None

    def _open(self) -> None:
        status = self._file.status
        if not stat.S_ISREG(status.st_mode):
            raise WireError(f"{self.path} is no file: save what it gives in one")
        self.size_bytes = status.st_size
        head = self._file.read(4, 0)
        if not _begins(head):
            what = "is empty: nothing was recorded" if not head else "is no recording of gpumon"
            raise WireError(f"{self.path} {what}")
        self._frames = find_frames(self._file.read, self.size_bytes)
        self._note_order()
        self.header = self._first_header()
        first = next(filter(None, map(self._start, range(len(self._frames)))), None)
        if first is None:
            raise WireError(f"{self.path} was cut off before the first sample: nothing to show")
        self.start: float = first
        self.end: float = max(self._last_time(), first)
        silent_s = time.time() - status.st_mtime
        self.state = "ended"
        if not self._frames[-1].ended:
            live = silent_s < _SILENT_S + 3 * self.header.interval_s
            self.state = "recording" if live else "torn"
        self._note_gaps()

    def _first_header(self) -> Header:
        if not self._frames:
            raise WireError(f"{self.path} is no recording of gpumon")
        for frame in self._frames:
            line = next(self._lines(frame), None)
            if line is None:
                continue
            try:
                item = Decoder().line(line)
            except WireError as error:
                raise WireError(f"{self.path}: {error}") from None
            if isinstance(item, Header):
                return item
            break
        if self._damaged:
            raise WireError(f"{self.path} is damaged at its beginning: nothing of it can be read")
        if self._frames[0].whole:
            raise WireError(f"{self.path} holds something else than a recording of gpumon")
        raise WireError(f"{self.path} was cut off before the first sample: nothing to show")

    def items(self, since: Optional[float] = None) -> Iterator[Union[Header, Sample]]:
        """Headers and samples, from the beginning of the frame that holds `since`.

        The first item is a header. What the writer repeats at the beginning of each frame is left
        out, unless the frame before it is not read or is damaged.
        """
        decoder, axis = Decoder(), self._axis()
        for line in self._fresh_lines(decoder, self._frames[self._at(since) :], alone=True):
            item = self._decode(line, decoder)
            if item is not None:
                yield axis.item(item)
        self._note_bad_lines(decoder)

    def _axis(self) -> Axis:
        """For a reading from anywhere: it begins with the file."""
        axis = Axis()
        axis.header(self.header)
        return axis

    def _fresh_lines(
        self, decoder: Decoder, frames: List[Frame], *, alone: bool
    ) -> Iterator[bytes]:
        """Lines without those that repeat what is known: these only the decoder gets to see.

        `alone`: what came before the first of the frames was not read.
        """
        for frame in frames:
            alone = alone or frame.begin in self._alone
            for line in self._lines(frame):
                if alone or not line.startswith(_RESTATED):
                    yield line
                else:
                    self._decode(line, decoder)
            alone = not frame.whole or frame.begin in self._damaged

    def _decode(self, line: bytes, decoder: Decoder) -> Union[Header, Sample, None]:
        try:
            return decoder.line(line)
        except WireError:
            self._bad_lines += 1
            return None

    def ticks(self) -> Iterator[Union[Header, Sample, Ticks]]:
        """The same as `items`, several times faster: most samples come many at a time, in columns.

        A part of the time axis (a cell of `CELL_S`) comes as single items where anything happened
        in it but rows of numbers.
        """
        yield from self._ticks(self._frames, alone=True)

    def digested(self, until: float = inf) -> Iterator[Union[Header, Sample, Ticks, Digest]]:
        """The same as `ticks`, twenty times faster: what has digests comes as these.

        They are taken from the beginning of the file as long as each goes on where the one before
        it ended; the rest comes as of `ticks`. Of frames whose digests are taken nothing is
        unpacked, so damage inside of them is neither met nor said in `problems`. With `until` only
        the digests of frames that end before it; what follows still comes to the end.
        """
        at = 0
        digest = self._digest(at, until)
        while digest is not None:
            at += 1
            following = self._digest(at, until)
            yield digest._replace(is_last=following is None)
            digest = following
        yield from self._ticks(self._frames[at:], alone=at == 0)

    def _digest(self, at: int, until: float) -> Optional[Digest]:
        """Of the frame `at` of the file, if it goes on where the one before it ended."""
        if at >= len(self._frames):
            return None
        frame = self._frames[at]
        place, first = frame.digest, self._frames[0].digest
        if place is None or first is None:
            return None
        if (place.number, place.stream) != (at, first.stream):
            return None
        if at and self._frames[at - 1].behind != frame.begin:
            return None
        if self._last(at) >= until:
            return None
        try:
            packed = self._file.read(place.end - place.begin, place.begin)
            if place.crc not in (None, crc32(packed)):
                return None
            data = unpacked_digest(packed)
        except (Broken, OSError):  # whatever cannot be read is met again in the lines
            return None
        return Digest(place.stream, at, False, data, partial(self._ticks, [frame], alone=at == 0))

    def _ticks(self, frames: List[Frame], *, alone: bool) -> Iterator[Union[Header, Sample, Ticks]]:
        """Of some frames; `alone`: what came before them was not read."""
        decoder = Decoder()
        decode = partial(self._decode, decoder=decoder)
        tabulator = Tabulator(decoder, decode, axis=self._axis())
        for line in self._fresh_lines(decoder, frames, alone=alone):
            yield from tabulator.take(line)
        yield from tabulator.rest()
        self._note_bad_lines(decoder)

    def columns(
        self, wanted: Mapping[str, Sequence[str]], since: Optional[float] = None
    ) -> Columns:
        """Numbers as arrays, many times faster than `items`: entity -> names of its fields.

        Of texts, events and states it tells nothing; see `Columns` for what it gives.
        """
        picker = Picker(wanted)
        for frame in self._frames[self._at(since) :]:
            for batch in self._batches(frame):
                picker.take(batch)
        return picker.columns()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # -- frames

    def _lines(self, frame: Frame) -> Iterator[bytes]:
        try:
            yield from lines(self._file.read, frame)
        except Unproven:
            self._note(
                "a part was recorded without checksums (by an older gpumon, or it was packed "
                "again): damage inside of it would not be noticed"
            )
        except Broken as error:
            if isinstance(error, Torn) and not frame.whole:
                self._unread_bytes = frame.end - frame.begin - error.useful
                return
            self._damaged.add(frame.begin)
            self._note(
                f"damaged between bytes {frame.begin} and {frame.end} ({error}): "
                "samples of up to ten minutes are missing"
            )
        except OSError as error:
            self._damaged.add(frame.begin)
            self._note(f"bytes {frame.begin} to {frame.end} cannot be read: {error.strerror}")

    def _batches(self, frame: Frame) -> Iterator[List[bytes]]:
        """A frame's lines, so many at a time that the memory for them is bounded."""
        batch: List[bytes] = []
        size = 0
        for line in self._lines(frame):
            batch.append(line)
            size += len(line)
            if size > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        yield batch

    def _at(self, since: Optional[float]) -> int:
        """The last frame that begins at or before `since`."""
        low, high = 0, len(self._frames)
        if since is None or high == 0:
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            start = self._start(middle)
            if start is not None and start <= since:
                low = middle
            else:
                high = middle
        return low

    def _start(self, at: int) -> Optional[float]:
        """Time of a frame's first sample."""
        frame = self._frames[at]
        if frame.start is not None:
            return frame.start
        for line in self._lines(frame):
            found = _time(line)
            if found is not None:
                self._frames[at] = frame._replace(start=found)
                return found
        return None

    def _last(self, at: int) -> float:
        """No sample of a frame is later than this."""
        found = self._frames[at].last
        if found is None and at + 1 < len(self._frames):
            found = self._start(at + 1)
        return self.end if found is None else found

    def _last_time(self) -> float:
        """Time of the last sample; unpacks no frame of which a trailer tells."""
        for frame in reversed(self._frames):
            if frame.last is not None:
                return frame.last
            last = None
            for line in self._lines(frame):
                last = line if line.startswith(b'{"t"') else last
            found = None if last is None else _time(last)
            if found is not None:
                return found
        return self.start

    # -- what is missing

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _note_bad_lines(self, decoder: Decoder) -> None:
        if self._bad_lines:
            self._note(f"{self._bad_lines} lines could not be read")
        self._bad_lines = 0
        if text := left_out_text(decoder.left_out):
            self._note(text)

    def _note_order(self) -> None:
        """Frames that are missing, come again or elsewhere than they were written."""
        before: Optional[Identity] = None
        passed = 0  # frames since then of which nothing tells their number
        for frame in self._frames:
            identity = frame.identity
            if identity is None and frame.digest is not None:
                identity = Identity(frame.digest.stream, frame.digest.number)
            elif identity is None and not frame.has_trailer:
                identity = identity_of(next(self._lines(frame), b""))
            if identity is None:
                passed += 1
                continue
            if before is None or before.stream != identity.stream:
                before = Identity(identity.stream, -1)
            missing = identity.number - before.number - 1 - passed
            if missing:
                self._alone.add(frame.begin)
            if missing > 0:
                where = "the beginning is missing" if before.number < 0 else "a gap"
                self._note(f"{where}: {missing} frames, each of up to ten minutes, are not there")
            elif missing < 0:
                self._note("parts of it come again, or in another order than they were recorded")
            before, passed = identity, 0

    def _note_gaps(self) -> None:
        covered = 0
        for at, frame in enumerate(self._frames):
            covered += max(frame.behind, frame.end) - frame.begin
            if frame.whole:
                continue
            if at < len(self._frames) - 1:
                self._note("a part in the middle is missing: a frame was cut off there")
            elif self.state == "torn":
                self._note(
                    "the end is missing: the file ends in the middle of a frame. The last sample "
                    f"that can be read is of {_clock(self.end)}; {self._lost_at_end(frame)}"
                )
        if self.state == "recording" and self._unread_bytes:
            self._note(f"the last {self._unread_bytes} bytes are not whole, as while one writes")
        foreign = self.size_bytes - covered
        if foreign > 0:
            self._note(f"{foreign} bytes of the file are of no recording and were passed over")
        if self.state == "torn" and self._frames[-1].whole:
            self._note(
                f"the end is missing: the file stops after {_clock(self.end)} without saying why"
            )

    def _lost_at_end(self, frame: Frame) -> str:
        if frame.begin in self._damaged:
            return "what follows is damaged"
        if self._unread_bytes:
            return f"{self._unread_bytes} bytes behind it are not whole"
        return "up to 10 s more were measured but not written"


def _time(line: bytes) -> Optional[float]:
    """The time of a sample's line; None for another or a bad one."""
    try:
        body = json.loads(line)
        found = float(body["t"]) if "wire" not in body else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return found if found is not None and isfinite(found) and abs(found) < 1e15 else None


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
