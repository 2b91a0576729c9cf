"""Reads a recording, whole or torn."""

from __future__ import annotations

import json
import re
import stat
import time
from collections import deque
from functools import partial
from math import inf, isfinite
from typing import Deque, Iterator, List, Optional, Set, Union

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.axis import Axis
from gpumon.model.batch import CELL_S, ColumnBatch
from gpumon.model.bounded import left_out_text
from gpumon.model.rolled import RolledFrame
from gpumon.model.sample import Header, Sample
from gpumon.model.untrusted import time_of
from gpumon.recording.batches import Tabulator, is_plain
from gpumon.recording.blocks import Broken, Torn
from gpumon.recording.checks import Identity, identity_of
from gpumon.recording.frames import Frame, Unproven, find_frames, lines
from gpumon.recording.opened import Opened
from gpumon.recording.rollups import at_beginning, is_rollup, rolled_of
from gpumon.recording.writer import RESTATED
from gpumon.recording.zstd import MAGIC
from gpumon.wire.decoder import Decoder

#: without an end and without a new byte for so long, and three intervals: nobody writes there
_SILENT_S = 60.0
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
#: how the line of a sample with readings begins, as recorders write it
_TICK = re.compile(rb'\{"t":(-?[0-9.]{1,30}),"m":([0-9.]{1,30}),"rows":')


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
    sample; `state` is `recording`, `ended` or `torn`; `problems` lists in words what is missing
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
            raise NotFoundError(f"no file {path}; 'gpumon runs' lists the recordings") from None
        except OSError as error:
            raise GpumonError(f"cannot read {path}: {error.strerror}") from None

    def _open(self) -> None:
        status = self._file.status
        if not stat.S_ISREG(status.st_mode):
            raise WireError(f"{self.path} is not a regular file; save its contents in one")
        self.size_bytes = status.st_size
        head = self._file.read(4, 0)
        if not _begins(head):
            what = "is empty: nothing was recorded" if not head else "is not a gpumon recording"
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
            raise WireError(f"{self.path} is not a gpumon recording")
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
            raise WireError(f"{self.path} is damaged at its beginning and cannot be read")
        if self._frames[0].whole:
            raise WireError(f"{self.path} is not a gpumon recording")
        raise WireError(f"{self.path} was cut off before the first sample: nothing to show")

    def items(self, since: Optional[float] = None) -> Iterator[Union[Header, Sample]]:
        """Headers and samples, from the beginning of the frame that holds `since`.

        Samples before that have their events and states, and no rows.
        The first item is a header. What the writer repeats at the beginning of each frame is left
        out, unless the frame before it is not read or is damaged.
        """
        decoder, axis = Decoder(), self._axis()
        begin = -inf if since is None else since
        is_early = since is not None
        for line in self._fresh_lines(decoder, self._frames[self._at(since) :], alone=True):
            bare = _bare(line) if is_early else None
            if bare is not None:
                bare = axis.sample(bare)
                is_early = bare.time < begin
                if is_early:
                    yield bare
                    continue
            item = self._decode(line, decoder)
            if isinstance(item, Sample):
                item = axis.sample(item) if bare is None else bare._replace(rows=item.rows)
                yield item._replace(rows={}) if is_early and item.time < begin else item
            elif item is not None:
                yield axis.header(item)
        self._note_bad_lines(decoder)

    def newest(self, samples: int) -> List[Union[Header, Sample]]:
        """The last samples, at most so many, behind what they need to be read; of two frames."""
        decoder = Decoder()
        decoder.line(next(self._lines(self._frames[0]), b""))
        found: List[Union[Header, Sample, None]] = []
        kept: Deque[bytes] = deque(maxlen=samples)
        for frame in self._frames[-2:]:
            for line in self._lines(frame):
                if line.startswith(b'{"t"'):
                    kept.append(line)
                elif not is_rollup(line):
                    found.append(self._decode(line, decoder))
        found += [self._decode(line, decoder) for line in kept]
        return [item for item in found if item is not None]

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
                if is_rollup(line):
                    continue
                if alone or not line.startswith(RESTATED):
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

    def ticks(self) -> Iterator[Union[Header, float]]:
        """Headers, and when there was a sample with readings: of `items` what costs least."""
        decoder, axis = Decoder(), self._axis()
        for line in self._fresh_lines(decoder, self._frames, alone=True):
            found = _TICK.match(line)
            if found:
                yield axis.sample(Sample(float(found[1]), float(found[2]), {})).time
                continue
            item = self._decode(line, decoder)
            if item is not None:
                item = axis.item(item)
                if isinstance(item, Header):
                    yield item
                elif item.rows:
                    yield item.time

    def batches(
        self, since: Optional[float] = None, until: float = inf
    ) -> Iterator[Union[Header, Sample, ColumnBatch]]:
        """The same as `items`, several times faster: most samples come many at a time, in columns.

        A part of the time axis (a cell of `CELL_S`) comes as single items where anything happened
        in it but rows of numbers. What comes long after `until` is left out.
        """
        frames = self._frames[self._at(since) :]
        yield from self._batches(frames, alone=True, begin=-inf if since is None else since,
                                 until=until)  # fmt: skip

    def rolled(
        self, until: float = inf, *, shown: bool = False
    ) -> Iterator[Union[Header, Sample, ColumnBatch, RolledFrame]]:
        """The same as `batches`, twenty times faster: what has rollup lines comes as these.

        They are taken from the beginning of the file as long as each continues where the one before
        it ended; the rest comes as of `batches`. Of the samples of such frames nothing is unpacked,
        so damage among them is neither met nor said in `problems`. With `until` only the rollups of
        frames that end before it; what follows still comes to the end. `shown`: also those of
        readings that no report needs.
        """
        at = 0
        rolled = self._rolled(at, until, shown)
        while rolled is not None:
            at += 1
            following = self._rolled(at, until, shown)
            yield rolled._replace(is_last=following is None)
            rolled = following
        yield from self._batches(self._frames[at:], alone=at == 0)

    def _rolled(self, at: int, until: float, shown: bool) -> Optional[RolledFrame]:
        """Of the frame `at` of the file, if it continues where the one before it ended."""
        if at >= len(self._frames) or self._last(at) >= until:
            return None
        stream = self._stream(at)
        if stream is None or stream != self._stream(0) or at + 1 == len(self._frames):
            return None
        if self._stream(at + 1) != stream:
            return None
        opened = rolled_of(at_beginning(self._lines(self._frames[at + 1])), at, shown=shown)
        if opened is None:
            return None
        items = partial(self._batches, [self._frames[at]], alone=at == 0)
        return RolledFrame(stream, at, False, opened, items)

    def _stream(self, at: int) -> Optional[bytes]:
        """Of which recording the frame `at` of the file is, if it is that one's frame `at`."""
        frame = self._frames[at]
        identity = frame.identity
        if identity is None and not frame.has_trailer:
            identity = identity_of(next(self._lines(frame), b""))
        return identity.stream if identity is not None and identity.number == at else None

    def _batches(
        self, frames: List[Frame], *, alone: bool, begin: float = -inf, until: float = inf
    ) -> Iterator[Union[Header, Sample, ColumnBatch]]:
        """Of some frames; `alone`: what came before them was not read. Samples of nothing but rows
        that come before `begin` are left out, and all from a cell behind `until` on.
        """
        decoder, axis = Decoder(), self._axis()
        decode = partial(self._decode, decoder=decoder)
        tabulator = Tabulator(decoder, decode, axis=axis)
        is_early = begin > -inf
        for line in self._fresh_lines(decoder, frames, alone=alone):
            bare = _bare(line) if is_early or until < inf else None
            if bare is not None and is_early:
                is_early = axis.sample(bare).time < begin
                if is_early:
                    continue
            if bare is not None and bare.time >= until + CELL_S:
                yield from tabulator.rest(is_whole=True)
                if axis.sample(bare).time >= until:  # else the clock was set
                    break
            yield from tabulator.take(line)
        yield from tabulator.rest()
        self._note_bad_lines(decoder)

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
                "a part has no checksums (recorded by an older gpumon, or recompressed); damage "
                "in it cannot be detected"
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
            found = None if is_rollup(line) else _time(line)
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
            if identity is None and not frame.has_trailer:
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
                self._note(f"{where}: {missing} frames of up to ten minutes each are missing")
            elif missing < 0:
                self._note("parts of it are repeated or out of order")
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
                    "the end is missing: the file ends in the middle of a frame. The last readable "
                    f"sample is from {_clock(self.end)}; {self._lost_at_end(frame)}"
                )
        if self.state == "recording" and self._unread_bytes:
            self._note(f"the last {self._unread_bytes} bytes are incomplete, as during writing")
        foreign = self.size_bytes - covered
        if foreign > 0:
            self._note(f"{foreign} bytes of the file do not belong to a recording and were skipped")
        if self.state == "torn" and self._frames[-1].whole:
            self._note(
                f"the end is missing: the file stops after {_clock(self.end)} without an end line"
            )

    def _lost_at_end(self, frame: Frame) -> str:
        if frame.begin in self._damaged:
            return "the rest is damaged"
        if self._unread_bytes:
            return f"the {self._unread_bytes} bytes after it are incomplete"
        return "up to 10 s more were measured but not written"


def _bare(line: bytes) -> Optional[Sample]:
    """A sample of nothing but rows without them; None for any other line."""
    found = _TICK.match(line)
    if found is None or not is_plain(line):
        return None
    try:
        time, mono = time_of(float(found[1])), float(found[2])
    except (ValueError, TypeError):
        return None
    return Sample(time, mono, {})


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
