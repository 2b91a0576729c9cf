"""Reads a recording, whole or torn."""

from __future__ import annotations

import re
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, islice
from math import inf
from typing import NamedTuple, Union

from gpumon.errors import ForeignLineError, GpumonError, NotFoundError, WireError
from gpumon.frames.builder import built
from gpumon.frames.frame import Frame
from gpumon.frames.lines import MALFORMED, at_beginning, frame_of, is_rollup
from gpumon.model.axis import Axis
from gpumon.model.bounded import left_out_text
from gpumon.model.sample import Header, Sample
from gpumon.model.units import plural
from gpumon.model.untrusted import time_of
from gpumon.recording import blocks
from gpumon.recording.blocks import Identity, Part
from gpumon.recording.file import Opened
from gpumon.recording.writer import RESTATED
from gpumon.recording.zstd import Broken, Torn
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder

#: without an end and without a new byte for so long, and three intervals: nobody writes there
_SILENT_S = 60.0
#: lines before the first of a stream, as a login shell may print
_MOST_BEFORE = 1000
#: how the line of a sample begins, as recorders and agents write it
_SAMPLE = re.compile(rb'\{"t":(-?[0-9.]{1,30}),"m":([0-9.]{1,30})[,}]')
_MORE = (b'"events":', b'"states":', b'"why":')  # what it may hold besides its readings
_HEAD_BYTES = 80  # of a sample's line: its times, and what follows them


def is_recording(path: str) -> bool:
    """Whether a regular file begins as a recording does, whatever its name is."""
    try:
        with open(path, "rb") as file:
            return blocks.is_zstd(file.read(4))
    except OSError:
        return False


Item = Union[Header, Sample]


class Stretch(NamedTuple):
    """A part of a recording, from its first to its last sample (epoch s)."""

    first: float
    last: float
    items: Callable[[], Iterator[Item]]  # behind the header in force
    opened: Callable[[], Frame | None]  # None: it has to be built of the items


def frames_of(stretches: Iterable[Stretch]) -> Iterator[Frame]:
    """Those that were recorded, and the others built, neighbours together. Each stretch is read
    before the next one is opened: what it tells need not be told again.
    """
    opened = ((stretch, stretch.opened()) for stretch in stretches)
    for is_recorded, some in groupby(opened, key=lambda each: each[1] is not None):
        if is_recorded:
            yield from (frame for _, frame in some if frame is not None)
        else:
            yield from built(chain.from_iterable(stretch.items() for stretch, _ in some))


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
        self.problems: list[str] = []
        self._bad_lines = 0  # in this reading
        self._damaged: set[int] = set()  # where parts begin that are not whole inside
        self._alone: set[int] = set()  # and those that do not follow on the one before them
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
        self._parts = blocks.find_parts(self._file.read, self.size_bytes)
        if not self._parts:
            raise WireError(f"{self.path} is not a gpumon recording")
        self._foreign: list[Part] = []  # what is packed in a file that no recorder wrote
        if not self._note_order():
            self._take_foreign()
        self.header = self._first_header()
        self._note_times()
        self.start = next((part.start for part in self._parts if part.start > -inf), -inf)
        if self.start == -inf:
            raise WireError(f"{self.path} was cut off before the first sample: nothing to show")
        self.end = max(self._parts[-1].last, self.start)
        silent_s = time.time() - status.st_mtime
        self.state = "torn" if self._foreign and self.problems else "ended"
        if not self._parts[-1].ended and not self._foreign:
            live = silent_s < _SILENT_S + 3 * self.header.interval_s
            self.state = "recording" if live else "torn"
        self._note_gaps()

    def _take_foreign(self) -> None:
        """Take the whole file as one frame, of which nothing but its packing is proven."""
        self._foreign, self._parts = self._parts, [Part(0, self.size_bytes, True)]
        try:
            blocks.prove_foreign(self._file.read, self._foreign)
        except Torn:
            self._note("the end is missing: the file was cut off")
        except Broken as error:
            raise GpumonError(f"cannot read {self.path}: {error}") from None

    def _first_header(self) -> Header:
        decoder = Decoder()
        refused: WireError | None = None
        for part in self._parts:
            for line in islice(self._lines(part), _MOST_BEFORE if self._foreign else 1):
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
        if self._foreign and (kind := blocks.kind_of(self._file.read, self._foreign[0])):
            raise WireError(
                f"{self.path} is {kind}, not a recording; expected a .gpumon file or the output of "
                "'gpumon collect'"
            )
        raise WireError(f"{self.path} was cut off before the first sample: nothing to show")

    def _note_times(self) -> None:
        """When the first and the last sample of each part was made, where no trailer tells; of a
        part without any: when the last one before it was.
        """
        last = -inf
        for at, part in enumerate(self._parts):
            first = part.start
            if first > -inf:
                last = part.last
                continue
            for line in self._lines(part):
                if (bare := _bare(line)) is not None:
                    first, last = bare.time if first == -inf else first, bare.time
            self._parts[at] = part._replace(start=last if first == -inf else first, last=last)

    def items(self, since: float = -inf, decoder: Decoder | None = None) -> Iterator[Item]:
        """Headers and samples, from the beginning of the part that holds `since`.

        Samples before that have their events and states, and no rows.
        The first item is a header. What the writer repeats at the beginning of each part is left
        out, unless the part before it is not read or is damaged.
        """
        begun = bisect_right(self._parts, since, key=lambda part: part.start)
        at = max(begun - 1, 0) if since > -inf else 0
        return self._read(self._parts[at:], since, decoder)

    def ticks(self) -> Iterator[Item]:
        """Headers and samples without their rows: of `items` what costs least."""
        return self._read(self._parts, inf)

    def _read(
        self, parts: Sequence[Part], begin: float = -inf, decoder: Decoder | None = None
    ) -> Iterator[Item]:
        """Of parts that follow each other; what came before them was not read."""
        decoder, axis = decoder or Decoder(), Axis()
        axis.header(self.header)  # from wherever it is read, its time begins with the file
        is_early = begin > -inf
        for line in self._fresh_lines(decoder, parts):
            bare = _bare(line) if is_early and _is_plain(line) else None
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

    def _fresh_lines(self, decoder: Decoder, parts: Sequence[Part]) -> Iterator[bytes]:
        """Lines without those that repeat what is known: these only the decoder gets to see."""
        is_alone = True
        for part in parts:
            is_alone = is_alone or part.begin in self._alone
            for line in self._lines(part):
                if is_rollup(line):
                    continue
                if is_alone or not line.startswith(RESTATED):
                    yield line
                else:
                    self._decode(line, decoder)
            is_alone = not part.whole or part.begin in self._damaged

    def _decode(self, line: bytes, decoder: Decoder) -> Item | None:
        try:
            return decoder.line(line)
        except WireError:
            self._bad_lines += 1
            return None

    def stretches(self, *, shown: bool = False) -> Iterator[Stretch]:
        """The file in parts of up to ten minutes, in its order.

        Of samples with lines of their frame nothing is unpacked to open it, so damage among them is
        neither met nor said in `problems`. `shown`: also readings that no rule asks for.
        """
        last = -inf
        for at, part in enumerate(self._parts):
            if not part.start == part.last == last:  # else no sample, but lines of those before
                items = partial(self._read, self._parts[at : at + 1])
                yield Stretch(part.start, part.last, items, partial(self._opened, at, shown))
            last = part.last

    def _opened(self, at: int, shown: bool) -> Frame | None:
        """Of the part `at` of the file: its lines stand in the next one."""
        own, *following = self._parts[at : at + 2]
        if own.identity is not None and following and following[0].identity == own.identity.next:
            lines = at_beginning(self._lines(following[0]))
            opened = frame_of(lines, own.identity.number, shown=shown)
            with suppress(*MALFORMED):  # no recorder wrote them
                return opened() if opened is not None else None
        return None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _lines(self, part: Part) -> Iterator[bytes]:
        read, foreign = self._file.read, self._foreign
        try:
            yield from blocks.foreign_lines(read, foreign) if foreign else blocks.lines(read, part)
        except Broken as error:
            if isinstance(error, Torn) and (foreign or not part.whole):
                self._unread_bytes = part.end - part.begin - error.useful
            elif foreign:
                self._note(str(error))
            else:
                self._damaged.add(part.begin)
                self._note(
                    f"damaged between bytes {part.begin} and {part.end} ({error}): "
                    "samples of up to ten minutes are missing"
                )
        except OSError as error:
            self._damaged.add(part.begin)
            self._note(f"bytes {part.begin} to {part.end} cannot be read: {error.strerror}")

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
        before: Identity | None = None
        passed = 0  # parts since then of which nothing tells their number
        for part in self._parts:
            identity = part.identity
            if identity is None:
                passed += 1
                continue
            if before is None or before.stream != identity.stream:
                before = Identity(identity.stream, -1)
            missing = identity.number - before.number - 1 - passed
            if missing:
                self._alone.add(part.begin)
            if missing > 0:
                where = "the beginning is missing" if before.number < 0 else "a gap"
                self._note(f"{where}: {missing} frames of up to ten minutes each are missing")
            elif missing < 0:
                self._note("parts of it are repeated or out of order")
            before, passed = identity, 0
        return before is not None

    def _note_gaps(self) -> None:
        covered = sum(max(part.behind, part.end) - part.begin for part in self._parts)
        last = self._parts[-1]
        if not all(part.whole for part in self._parts[:-1]):
            self._note("a part in the middle is missing: a frame was cut off there")
        if self.state == "torn" and not last.whole:
            self._note(
                "the end is missing: the file ends in the middle of a frame. The last readable "
                f"sample is from {_clock(self.end)}; {self._lost_at_end(last)}"
            )
        elif self.state == "torn" and not self._foreign:
            self._note(
                f"the end is missing: the file stops after {_clock(self.end)} without an end line"
            )
        if self.state == "recording" and self._unread_bytes:
            self._note(f"the last {self._unread_bytes} bytes are incomplete, as during writing")
        foreign = self.size_bytes - covered
        if foreign > 0:
            self._note(f"{foreign} bytes of the file do not belong to a recording and were skipped")

    def _lost_at_end(self, part: Part) -> str:
        if part.begin in self._damaged:
            return "the rest is damaged"
        if self._unread_bytes:
            return f"the {self._unread_bytes} bytes after it are incomplete"
        return "up to 10 s more were measured but not written"


def _bare(line: bytes) -> Sample | None:
    """A sample's line without what it holds; None for another line, or a bad one."""
    found = _SAMPLE.match(line)
    try:
        return Sample(time_of(float(found[1])), float(found[2]), {}) if found else None
    except (ValueError, TypeError):
        return None


def _is_plain(line: bytes) -> bool:
    """Whether a sample's line holds nothing but readings."""
    is_short = len(line) <= MAX_LINE_BYTES
    return is_short and b'"rows":' in line[:_HEAD_BYTES] and not any(k in line for k in _MORE)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
