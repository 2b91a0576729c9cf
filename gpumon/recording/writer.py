"""Writes one recording."""

from __future__ import annotations

import os
import queue
import threading
import time
from math import floor
from typing import Callable, Iterator, List, NamedTuple, Optional

from gpumon.model import clock as our_clock
from gpumon.model.axis import Axis
from gpumon.model.bounded import Known
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.ticks import CELL_S
from gpumon.recording import frames
from gpumon.recording.checks import Checking, Identity
from gpumon.recording.digesting import Digester, Digesting
from gpumon.recording.file import File
from gpumon.recording.zstd import Packer, packer
from gpumon.wire import Encoder

#: two months of eight devices; what has grown so far is no job any more
MAX_BYTES = 1 << 30
RESTATED = '{"restated":true,'
_FACTS_PER_LINE = 100  # of at most 5 KB each: a line stays well below its limit
#: that live, of which it is said anew at the beginning of each frame who they are
MAX_PROCESSES, PROCESSES_BYTES = 8192, 16 << 20
MAX_LINES_BYTES = 1 << 20  # of lines that wait to be flushed
_MAX_PENDING_BYTES = 1 << 24
#: parts of a frame's time by the monotonic clock: so long it takes at least, whatever a node's
#: clock says, and at most, which is later than the grid ends it
_EARLY, _LATE = 1 / 60, 1.1
#: how long the end waits for a file system that does not answer
_CLOSE_S = 5.0
_HANGS = "its file system does not answer"


class _Write(NamedTuple):
    """Lines of a frame to write; `times` of the frame's samples where it ends with them."""

    frame: Identity
    lines: bytes
    times: Optional[tuple[float, float]] = None
    ended: bool = False
    digest: bool = True  # in haste: none


class Recorder:
    """Writes what a sink takes into one new file; the only writer of that file.

    Thread-safe. `add` encodes; packing and writing happen in a thread of its own, so that a
    file system that hangs never holds up who watches. A line is on disk `flush_s` after it came,
    at the latest. `failed` is "" or, in one line, why nothing is recorded any more.

    Frames end where the wall clock passes a multiple of `frame_s` and what `phase` adds to it, in
    steps that a digester's bins of time divide: each lies in one frame.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        flush_s: float = 10.0,
        frame_s: float = 600.0,
        max_bytes: int = MAX_BYTES,
        digester: Optional[Callable[[], Digester]] = None,
        phase: float = 0.0,
    ) -> None:
        """Creates the file (0600) and its folders (0700). Raises GpumonError.

        `digester` makes one that gathers what is written, in the thread that writes. `phase`, from
        0 to less than 1, is for recorders that are fed at the same time: where it differs, they
        write, and end and gather their frames, one after another.
        """
        self.path = path
        self._clock = clock
        self._flush_s = flush_s
        self._frame_s = frame_s
        self._phase = phase
        self._shift_s = floor(phase * frame_s / CELL_S) * CELL_S
        self._encoder = Encoder()
        self._frame = Identity(os.urandom(8), 0)  # the open one, else the next
        self._axis = Axis()  # so that no clock that is set takes a run apart
        self._lock = threading.Lock()
        self._header: Optional[Header] = None
        self._processes: Known[int, Event] = Known(MAX_PROCESSES, PROCESSES_BYTES)
        self._lines: List[str] = []
        self._line_bytes = 0
        self._times: Optional[tuple[float, float]] = None  # of the samples of the open frame
        self._last: Optional[Sample] = None
        self._frame_began = self._flushed = 0.0
        self._closed = False
        self._max_bytes = max_bytes
        self._full = ""
        first = packer()  # where there is no zstd, no file is made
        digesting = Digesting(digester, RESTATED.encode(), self._frame.stream) if digester else None
        self._writer = _Writer(File(path), first, digesting)

    @property
    def failed(self) -> str:
        """Why recording stopped, in one line; "" while it goes on."""
        return self._full or self._writer.failed

    @property
    def pending_bytes(self) -> int:
        """Of lines that were flushed: those not on disk yet, or whose digest is being made."""
        return self._writer.pending_bytes

    def header(self, header: Header) -> None:
        """Take the stream's header, or a new one."""
        with self._lock:
            header = self._header = self._axis.header(header, our_clock.now())
            if self._times is not None:
                self._wait(self._encoder.header(header))
                if self._line_bytes > MAX_LINES_BYTES:
                    self._flush(self._clock())

    def add(self, sample: Sample) -> None:
        """Take a sample; never raises for what happens to the file."""
        with self._lock:
            self._add(self._axis.sample(sample, our_clock.now()))

    def mark(self, time: float, text: str) -> None:
        """Put a user's line on the time axis."""
        with self._lock:
            at = self._axis.moment(time)
            self._add(self._event(Event(at, "mark", text=text)))

    def close(self, reason: str = "", *, in_haste: bool = False) -> None:
        """Write the `end` (unless the stream had its own), finish the file. May be repeated.

        `in_haste`: without a digest of the last frame, nor of the one before it where that is not
        made yet.
        """
        self.end(reason, in_haste=in_haste)
        self._writer.close()

    def end(self, reason: str = "", *, in_haste: bool = False) -> None:
        """What `close` does, but do not wait until it is on disk."""
        with self._lock:
            if not self._closed:
                self._end(reason, in_haste)
        self._writer.end(in_haste=in_haste)

    def _end(self, reason: str, in_haste: bool = False) -> None:
        last = self._last
        if last is not None and all(event.kind != "end" for event in last.events):
            self._append(self._event(Event(last.time, "end", text=reason)))
        self._closed = True
        self._end_frame(ended=True, digest=not in_haste)

    def _event(self, event: Event) -> Sample:
        """An event as a sample, between the others: the devices' states hold on."""
        if self._last is None:
            return Sample(event.time, 0.0, {}, {}, [event])
        mono = self._last.mono + max(0.0, event.time - self._last.time)
        return Sample(event.time, mono, {}, self._last.states, [event])

    def _add(self, sample: Sample) -> None:
        if self._header is None or self._closed or self._writer.failed:
            return
        now = self._clock()
        if self._writer.size_bytes >= self._max_bytes:
            self._full = f"{self.path}: recording stopped at its limit of {self._max_bytes} bytes"
            self._end("the recording has reached its limit")
            return
        if self._times is not None and self._is_over(sample.time, now):
            self._end_frame()
        first = self._times is None
        if first:
            self._begin_frame(self._header, sample, now)
        self._append(sample)
        # the next sample would come too late for what waits here
        if first:
            self._flush(now, self._phase * self._flush_s)
        elif (
            now - self._flushed + self._header.interval_s > self._flush_s
            or self._line_bytes > MAX_LINES_BYTES
        ):
            self._flush(now)

    def _is_over(self, time: float, now: float) -> bool:
        """Whether a sample of this time begins a new frame."""
        assert self._times is not None
        passed_s = now - self._frame_began
        is_next = self._frame_of(round(time, 3)) > self._frame_of(self._times[0])
        return passed_s >= self._frame_s * (_EARLY if is_next else _LATE)

    def _frame_of(self, time: float) -> int:
        return floor((time - self._shift_s) / self._frame_s)

    def _append(self, sample: Sample) -> None:
        self._wait(self._encoder.sample(sample))
        at = round(sample.time, 3)  # as on the wire
        self._times = (self._times[0] if self._times else at, at)
        self._last = sample
        self._remember(sample.events)

    def _begin_frame(self, header: Header, sample: Sample, now: float) -> None:
        """Say what the frame needs to be read alone; after the file's first, that is repetition."""
        self._frame_began = now
        line = self._frame.begun(self._encoder.header(header))
        if self._last is None:
            self._wait(line)
            return
        self._wait(RESTATED + line[1:])
        facts = list(self._processes.values())
        for at in range(0, max(len(facts), 1), _FACTS_PER_LINE):
            some = facts[at : at + _FACTS_PER_LINE]
            restated = Sample(sample.time, sample.mono, {}, sample.states, some)
            self._wait(RESTATED + self._encoder.sample(restated)[1:])

    def _wait(self, line: str) -> None:
        self._lines.append(line)
        self._line_bytes += len(line)

    def _remember(self, events: List[Event]) -> None:
        for event in events:
            if event.pid is None:
                continue
            if event.kind == "process":
                self._processes.keep(event.pid, event)
            elif event.kind == "process-end":
                self._processes.pop(event.pid, None)

    def _flush(self, now: float, ago_s: float = 0.0) -> None:
        """The next one comes earlier by `ago_s`."""
        self._flushed = now - ago_s
        self._writer.put(_Write(self._frame, self._taken()))

    def _end_frame(self, *, ended: bool = False, digest: bool = True) -> None:
        if self._times is not None:
            self._writer.put(_Write(self._frame, self._taken(), self._times, ended, digest))
            self._frame = self._frame._replace(number=self._frame.number + 1)
        self._times = None

    def _taken(self) -> bytes:
        lines, self._lines, self._line_bytes = self._lines, [], 0
        return "".join(f"{line}\n" for line in lines).encode("ascii")


class _Writer:
    """Packs and writes in a thread of its own, which alone touches the file."""

    def __init__(self, file: File, first: Packer, digesting: Optional[Digesting]) -> None:
        self._file = file
        self._digesting = digesting
        self._is_gathering = False
        self._why = ""
        self._queue: queue.SimpleQueue[Optional[_Write]] = queue.SimpleQueue()
        self._put_bytes = self._done_bytes = 0  # each changed by one thread only
        self._packer: Optional[Packer] = first
        self._checking: Optional[Checking] = None  # None: the frame has not begun
        self._frame_bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="recorder")
        self._thread.start()

    @property
    def failed(self) -> str:
        return self._file.failed or self._why

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    @property
    def pending_bytes(self) -> int:
        return self._put_bytes - self._done_bytes

    def put(self, write: _Write) -> None:
        if self.pending_bytes + len(write.lines) > _MAX_PENDING_BYTES:
            self._why = f"{self._file.path}: {_HANGS}"
        if not self.failed:
            self._put_bytes += len(write.lines)
            self._queue.put(write)

    def end(self, *, in_haste: bool) -> None:
        digesting = self._digesting
        if in_haste and digesting is not None:
            digesting.hurry()
        self._queue.put(None)

    def close(self) -> None:
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive() and not self._why:
            why = "finishing it takes too long" if self._is_gathering else _HANGS
            self._why = f"{self._file.path}: {why}"

    def _run(self) -> None:
        while (write := self._queue.get()) is not None:
            try:
                if not self.failed:
                    for part in self._packed(write):
                        self._file.append(part)
            except Exception as error:  # it must not end unheard: nobody looks at this thread
                self._why = f"{self._file.path}: recording stopped: {error or type(error).__name__}"
            self._done_bytes += len(write.lines)
        self._file.close()

    def _packed(self, write: _Write) -> Iterator[bytes]:
        """What to append: the lines, and where a frame ends with them its trailer, once they are on
        disk, because its digest may have to wait for its turn.
        """
        self._packer = self._packer or packer()
        self._checking = self._checking or Checking(write.frame)
        data = b"".join(map(self._packer.block, self._checking.parts(write.lines)))
        if write.times is not None:
            data += self._packer.finish()
        self._frame_bytes += len(data)
        yield data
        digest = self._digest(write, data)
        if write.times is not None:
            yield frames.trailer(self._frame_bytes, *write.times, write.ended, digest, write.frame)
            self._packer, self._checking, self._frame_bytes = None, None, 0

    def _digest(self, write: _Write, block: bytes) -> Optional[frames.PackedDigest]:
        """Take the packed lines; what a frame gets that ends with them."""
        if self._digesting is None or not write.digest:
            return None
        self._is_gathering = True
        try:
            self._digesting.take(block, write.lines.count(b"\n"))
            return self._digesting.digest(is_last=write.ended) if write.times is not None else None
        except Exception:  # the lines are what counts, and they hold all that a digest would
            self._digesting = None
            return None
        finally:
            self._is_gathering = False
