"""Reads a recording, whole or torn."""

from __future__ import annotations

import json
import re
import stat
import time
from collections import deque
from functools import partial
from itertools import chain, islice
from math import inf
from typing import (
    Callable,
    Deque,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Union,
)

from gpumon.errors import ForeignLineError, GpumonError, NotFoundError, WireError
from gpumon.frames.builder import built
from gpumon.frames.frame import Frame
from gpumon.frames.lines import MALFORMED, at_beginning, frame_of, is_rollup
from gpumon.model.axis import Axis
from gpumon.model.bounded import left_out_text
from gpumon.model.sample import Header, Sample
from gpumon.model.units import plural
from gpumon.model.untrusted import MAX_TIME, time_of
from gpumon.recording.blocks import (
    Identity,
    Part,
    find_parts,
    first_identity,
    foreign_lines,
    is_zstd,
    kind_of,
    lines,
    prove_foreign,
)
from gpumon.recording.file import Opened
from gpumon.recording.writer import RESTATED
from gpumon.recording.zstd import Broken, Torn
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder

#: without an end and without a new byte for so long, and three intervals: nobody writes there
_SILENT_S = 60.0
#: lines before the first of a stream, as a login shell may print
_MOST_BEFORE = 1000
#: how the line of a sample with readings begins, as recorders write it
_TICK = re.compile(rb'\{"t":(-?[0-9.]{1,30}),"m":([0-9.]{1,30}),"rows":')


def is_recording(path: str) -> bool:
    """Whether a regular file begins as a recording does, whatever its name is."""
    try:
        with open(path, "rb") as file:
            return is_zstd(file.read(4))
    except OSError:
        return False


class Stretch(NamedTuple):
    """A part of a recording, from its first to its last sample (epoch s)."""

    first: float
    last: float
    items: Callable[[], Iterator[Union[Header, Sample]]]  # behind the header in force
    opened: Callable[[], Optional[Frame]]  # None: it has to be built of the items


def frames_of(stretches: Iterable[Stretch]) -> Iterator[Frame]:
    """Those that were recorded, and the others built, neighbours together."""
    waiting: List[Stretch] = []
    for stretch in stretches:
        frame = stretch.opened()
        if frame is None:
            waiting.append(stretch)
            continue
        yield from _built(waiting)
        waiting = []
        yield frame
    yield from _built(waiting)


def _built(stretches: Sequence[Stretch]) -> Iterator[Frame]:
    if stretches:
        yield from built(chain.from_iterable(each.items() for each in stretches))


class Recording:
    """One file of samples, as a recorder wrote it, or lines as `gpumon collect` prints them, plain
    or packed by gzip or zstd. What a crash left half is read as far as it goes.

    `header` is the first; `start` and `end` are the times (epoch s) of the first and the last
    sample; `state` is `recording`, `ended` or `torn`; `problems` lists in words what is missing
    or could not be read, and grows while items are read.
    """

    def __init__(self, path: str) -> None:
        """Raises NotFoundError, GpumonError (unreadable) or WireError (no recording)."""
        self.path = path
        self.problems: List[str] = []
        self.built = 0  # parts of which a frame was asked for that had to be built
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
        if not self.size_bytes:
            raise WireError(f"{self.path} is empty: nothing was recorded")
        self._frames = find_parts(self._file.read, self.size_bytes)
        if not self._frames:
            raise WireError(f"{self.path} is not a gpumon recording")
        self._foreign: List[Part] = []  # what is packed in a file that no recorder wrote
        if not self._note_order():
            self._take_foreign()
        self.header = self._first_header()
        first = next(filter(None, map(self._start, range(len(self._frames)))), None)
        if first is None:
            raise WireError(f"{self.path} was cut off before the first sample: nothing to show")
        self.start: float = first
        self.end: float = max(self._last_time(), first)
        silent_s = time.time() - status.st_mtime
        self.state = "torn" if self._foreign and self.problems else "ended"
        if not self._frames[-1].ended and not self._foreign:
            live = silent_s < _SILENT_S + 3 * self.header.interval_s
            self.state = "recording" if live else "torn"
        self._note_gaps()

    def _take_foreign(self) -> None:
        """Take the whole file as one frame, of which nothing but its packing is proven."""
        self._foreign, self._frames = self._frames, [Part(0, self.size_bytes, True)]
        try:
            prove_foreign(self._file.read, self._foreign)
        except Torn:
            self._note("the end is missing: the file was cut off")
        except Broken as error:
            raise GpumonError(f"cannot read {self.path}: {error}") from None

    def _first_header(self) -> Header:
        decoder = Decoder()
        refused: Optional[WireError] = None
        for frame in self._frames:
            for line in islice(self._lines(frame), _MOST_BEFORE if self._foreign else 1):
                try:
                    item = decoder.line(line)
                except WireError as error:
                    refused = refused or error
                    continue
                if isinstance(item, Header):
                    return item
        if self._damaged:
            raise WireError(f"{self.path} is damaged at its beginning and cannot be read")
        if refused is not None and not isinstance(refused, ForeignLineError):
            raise WireError(f"{self.path}: {refused}")
        if self._foreign and (kind := kind_of(self._file.read, self._foreign[0])):
            raise WireError(
                f"{self.path} is {kind}, not a recording; expected a .gpumon file or the output of "
                "'gpumon collect'"
            )
        raise WireError(f"{self.path} was cut off before the first sample: nothing to show")

    def items(
        self, since: Optional[float] = None, decoder: Optional[Decoder] = None
    ) -> Iterator[Union[Header, Sample]]:
        """Headers and samples, from the beginning of the frame that holds `since`.

        Samples before that have their events and states, and no rows.
        The first item is a header. What the writer repeats at the beginning of each frame is left
        out, unless the frame before it is not read or is damaged.
        """
        decoder, axis = decoder or Decoder(), self._axis()
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
        self._decode(next(self._lines(self._frames[0]), b""), decoder)
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

    def _fresh_lines(self, decoder: Decoder, frames: List[Part], *, alone: bool) -> Iterator[bytes]:
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
            bare = _bare(line)
            if bare is not None:
                yield axis.sample(bare).time
                continue
            item = self._decode(line, decoder)
            if item is not None:
                item = axis.item(item)
                if isinstance(item, Header):
                    yield item
                elif item.rows:
                    yield item.time

    def stretches(self, *, shown: bool = False) -> Iterator[Stretch]:
        """The file in parts of up to ten minutes, in its order."""
        for at in range(len(self._frames)):
            if at and self._start(at) == self._last(at) == self._last(at - 1):
                continue  # behind the last samples: lines of their frame
            yield Stretch(
                self._start(at) or self.start,
                self._last(at),
                partial(self._items, at),
                partial(self._opened, at, shown),
            )

    def frames(self, *, shown: bool = False) -> Iterator[Frame]:
        """What the samples were aggregated to when they were recorded; where that cannot be read,
        what they are aggregated to now (`built` counts such parts of the file).

        Of samples with lines of their frame nothing is unpacked, so damage among them is neither
        met nor said in `problems`. `shown`: also readings that no rule asks for.
        """
        yield from frames_of(self.stretches(shown=shown))

    def _opened(self, at: int, shown: bool) -> Optional[Frame]:
        """Of the part `at` of the file."""
        own, following = (self._identity(each) for each in (at, at + 1))
        if own is not None and following == own._replace(number=own.number + 1):
            lines = at_beginning(self._lines(self._frames[at + 1]))
            opened = frame_of(lines, own.number, shown=shown)
            try:
                if opened is not None:
                    return opened()
            except MALFORMED:  # no recorder wrote them
                pass
        self.built += 1
        return None

    def _identity(self, at: int) -> Optional[Identity]:
        """Of which recording the part `at` of the file is, and which frame."""
        if at >= len(self._frames):
            return None
        return first_identity(self._file.read, self._frames[at])

    def _items(self, at: int) -> Iterator[Union[Header, Sample]]:
        """Of the part `at` of the file alone: who lives at its begin, too."""
        decoder, axis = Decoder(), self._axis()
        for line in self._fresh_lines(decoder, self._frames[at : at + 1], alone=True):
            item = self._decode(line, decoder)
            if item is not None:
                yield axis.item(item)
        self._note_bad_lines(decoder)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # -- frames

    def _lines(self, frame: Part) -> Iterator[bytes]:
        read = self._file.read
        try:
            if self._foreign:
                yield from foreign_lines(read, self._foreign)
            else:
                yield from lines(read, frame)
        except Broken as error:
            if self._foreign:
                if not isinstance(error, Torn):
                    self._note(str(error))
                return
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
            self._note(f"{plural(self._bad_lines, 'line')} could not be read")
        self._bad_lines = 0
        if text := left_out_text(decoder.left_out):
            self._note(text)

    def _note_order(self) -> bool:
        """Frames that are missing, come again or elsewhere than they were written; whether a
        recorder wrote any of them.
        """
        before: Optional[Identity] = None
        passed = 0  # frames since then of which nothing tells their number
        for frame in self._frames:
            identity = first_identity(self._file.read, frame)
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
        return before is not None

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
        if self.state == "torn" and self._frames[-1].whole and not self._foreign:
            self._note(
                f"the end is missing: the file stops after {_clock(self.end)} without an end line"
            )

    def _lost_at_end(self, frame: Part) -> str:
        if frame.begin in self._damaged:
            return "the rest is damaged"
        if self._unread_bytes:
            return f"the {self._unread_bytes} bytes after it are incomplete"
        return "up to 10 s more were measured but not written"


def _is_plain(line: bytes) -> bool:
    """Whether it holds rows and nothing that happened."""
    return (
        len(line) <= MAX_LINE_BYTES
        and b'"events":' not in line
        and b'"states":' not in line
        and b'"why":' not in line
    )


def _bare(line: bytes) -> Optional[Sample]:
    """A sample of nothing but rows without them; None for any other line."""
    found = _TICK.match(line)
    if found is None or not _is_plain(line):
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
    return found if found is not None and abs(found) <= MAX_TIME else None


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
