"""Writes one recording."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import floor

from gpumon.files import reason
from gpumon.frames.frame import Frame
from gpumon.frames.lines import MAX_BUCKETS, lines_of
from gpumon.model import clock as our_clock
from gpumon.model.axis import Axis
from gpumon.model.bounded import Known
from gpumon.model.sample import Event, Header, Received, Sample
from gpumon.recording.blocks import FramePacker, Identity
from gpumon.recording.file import File
from gpumon.wire.encoder import Encoder

#: two months of eight devices; what has grown so far is no job any more
MAX_BYTES = 1 << 30
RESTATED = b'{"restated":true,'
_FACTS_PER_LINE = 100  # of at most 5 KB each: a line stays well below its limit
#: that live, of which it is said anew at the beginning of each frame who they are
MAX_PROCESSES, PROCESSES_BYTES = 8192, 16 << 20
MAX_LINES_BYTES = 1 << 20  # of lines that wait to be flushed
_MAX_PENDING_BYTES = 1 << 24
#: frames end at multiples of this, which buckets of up to 40 s divide
_CELL_S = 40.0
_LEAST = 120  # samples that are worth a frame's lines at the end; fewer are read as quickly
#: parts of a frame's time by the monotonic clock: so long it takes at least, whatever a node's
#: clock says, and at most, which is later than the grid ends it
_EARLY, _LATE = 1 / 60, 1.1
#: how long the end waits for a file system that does not answer
_CLOSE_S = 5.0
#: s; threads of recorders that write every 10 s go on
_IDLE_S = 15.0
_HANGS = "its file system is not responding"


#: of the first and the last sample, epoch s
Times = tuple[float, float]


class Living(Known[int, Event]):
    """What describes the processes that live, by the events of a stream."""

    def __init__(self) -> None:
        super().__init__(MAX_PROCESSES, PROCESSES_BYTES)

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.pid is not None and event.kind == "process":
                self.keep(event.pid, event)
            elif event.pid is not None and event.kind == "process-end":
                self.pop(event.pid, None)


class Recorder:
    """Writes what a sink takes into one new file; the only writer of that file.

    Thread-safe. `add` encodes; packing and writing happen in another thread, so that a
    file system that hangs never holds up who watches. A line is in the file `flush_s` after it
    came, at the latest. `failed` is "" or, in one line, why nothing is recorded any more.

    Frames end where the wall clock passes a multiple of `frame_s` and what `phase` adds to it, in
    steps that the buckets of rollup lines divide: each lies in one frame.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        flush_s: float = 10.0,
        frame_s: float = 600.0,
        max_bytes: int = MAX_BYTES,
        phase: float = 0.0,
        lane: Lane | None = None,
        is_small: bool = False,
        is_synced: bool = True,
    ) -> None:
        """Creates the file (0600) and its folders (0700). Raises GpumonError.

        `phase`, from 0 to less than 1, is
        for recorders that are fed at the same time: where it differs, they write and end their
        frames one after another. `lane`: where it writes, shared with others; by default its own.
        `is_small`: one of many, each with little memory. `is_synced`: what is flushed is on disk;
        else only whole frames surely are.
        """
        self.path = path
        self._clock = clock
        self._flush_s = flush_s
        self._frame_s = frame_s
        self._phase = phase
        self._shift_s = floor(phase * frame_s / _CELL_S) * _CELL_S
        self._encoder = Encoder()
        self._frame = Identity(os.urandom(8), 0)  # the open one, else the next
        self._axis = Axis()  # so that no clock that is set takes a run apart
        self._lock = threading.Lock()
        self._header: Header | None = None
        self._living = Living()
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._times: Times | None = None  # of the samples of the open frame
        self._last: Sample | None = None
        self._frame_began = self._flushed = 0.0
        self._closed = False
        self._max_bytes = max_bytes
        self._full = ""
        self._are_details_due = True  # no header is followed by those of lines that are kept
        pack = partial(FramePacker, is_small=is_small)
        first = pack(self._frame)  # where there is no zstd, no file is made
        #: what the open frame's samples were aggregated to; None: not all of them could be
        self._rolled: Frame | None = Frame()
        self._step_s = self._rolled.step_s  # of its buckets
        self._newest = 0.0  # epoch s of the newest sample with readings
        self._samples = 0
        self._writer = _Writer(File(path, is_synced=is_synced), first, pack, lane or Lane())

    @property
    def failed(self) -> str:
        """One line with the reason why recording stopped; "" while it continues."""
        return f"{self.path}: recording stopped: {self.why}" if self.why else ""

    @property
    def why(self) -> str:
        """Why recording stopped; "" while it continues."""
        return self._full or self._writer.failed

    @property
    def pending_bytes(self) -> int:
        """Of lines that were flushed: those not on disk yet."""
        return self._writer.pending_bytes

    def header(self, header: Header, living: Iterable[Event] = ()) -> None:
        """Take the stream's header, or a new one; `living`: what described before who lives now."""
        with self._lock:
            self._living.take(living)
            header = self._header = self._axis.header(header, our_clock.now())
            if self._times is not None:
                self._wait(self._encoded(header))
                if self._line_bytes > MAX_LINES_BYTES:
                    self._flush(self._clock())

    def add(self, sample: Sample) -> None:
        """Take a sample; never raises for what happens to the file."""
        with self._lock:
            self._add(self._axis.sample(sample, our_clock.now()))

    def frame(self, frame: Frame) -> None:
        """Take what samples so far were aggregated to: lines of it follow the frame that has them,
        so that a reader need not do it again.
        """
        with self._lock:
            self._step_s = frame.step_s
            rolled, self._rolled = self._rolled, None
            with suppress(Exception):  # the samples are what counts, and they hold all of it
                if rolled is not None and not rolled.would_span(frame, MAX_BUCKETS):
                    rolled.extend(frame)
                    self._rolled = rolled

    def mark(self, time: float, text: str) -> None:
        """Put a user's line on the time axis."""
        with self._lock:
            at = self._axis.moment(time)
            self._add(self._event(Event(at, "mark", text=text)))

    def close(self, reason: str = "", *, in_haste: bool = False) -> None:
        """Write the `end` (unless the stream had its own), finish the file. May be repeated.

        `in_haste`: without rollup lines of the last frame.
        """
        self.end(reason, in_haste=in_haste)
        self._writer.wait()

    def end(self, reason: str = "", *, in_haste: bool = False) -> None:
        """What `close` does, but do not wait until it is on disk."""
        with self._lock:
            if not self._closed:
                self._end(reason, in_haste)

    def _end(self, reason: str, in_haste: bool = False) -> None:
        last = self._last
        if last is not None and all(event.kind != "end" for event in last.events):
            self._append(self._event(Event(last.time, "end", text=reason)))
        self._closed = True
        if self._header is not None and last is not None and self._times is not None:
            is_worth = self._samples >= _LEAST and not in_haste
            rollups = self._rolled_lines(self._frame.number) if is_worth else []
            if rollups:  # they stand at the beginning of a frame, where a reader finds them
                self._end_frame()
                self._begin_frame(self._header, last, self._clock(), rollups)
                at = round(last.time, 3)
                self._times = at, at
        self._end_frame(ended=True)
        self._writer.end()

    def _event(self, event: Event) -> Sample:
        """An event as a sample, between the others: the devices' states hold on."""
        if self._rolled is not None:
            self._rolled.add_event(event)
        if self._last is None:
            return Sample(event.time, 0.0, {}, {}, [event])
        mono = self._last.mono + max(0.0, event.time - self._last.time)
        return Sample(event.time, mono, {}, self._last.states, [event])

    def _add(self, sample: Sample) -> None:
        if self._header is None or self._closed or self._writer.failed:
            return
        now = self._clock()
        if self._writer.file.size_bytes >= self._max_bytes:
            self._full = f"its limit of {self._max_bytes} bytes is reached"
            self._end("the recording has reached its limit")
            return
        if self._times is not None and self._is_over(sample, now):
            self._end_frame()
        first = self._times is None
        if first:
            rollups = self._rolled_lines(self._frame.number - 1) if self._last else []
            self._begin_frame(self._header, sample, now, rollups)
        self._append(sample)
        self._newest = sample.time if sample.rows else self._newest
        by_next_s = now - self._flushed + self._header.interval_s  # what waits here would be so old
        if first:
            self._flush(now, self._phase * self._flush_s)
        elif by_next_s > self._flush_s or self._line_bytes > MAX_LINES_BYTES:
            self._flush(now)

    def _rolled_lines(self, number: int) -> list[str]:
        """Of the frame that ended."""
        rolled, self._rolled = self._rolled, Frame()
        with suppress(Exception):  # as above
            return lines_of(rolled, number) if rolled is not None else []
        return []

    def _is_over(self, sample: Sample, now: float) -> bool:
        """Whether a sample begins a new frame: one that also begins a bucket of its rollups, so
        that these are of the samples beside them.
        """
        assert self._times is not None
        buckets = {floor(time / self._step_s) for time in (self._newest, sample.time)}
        if not sample.rows or len(buckets) == 1:
            return False
        passed_s = now - self._frame_began
        is_next = self._frame_of(round(sample.time, 3)) > self._frame_of(self._times[0])
        return passed_s >= self._frame_s * (_EARLY if is_next else _LATE)

    def _frame_of(self, time: float) -> int:
        return floor((time - self._shift_s) / self._frame_s)

    def _append(self, sample: Sample) -> None:
        self._wait(self._line(sample))
        self._samples += 1
        at = round(sample.time, 3)  # as on the wire
        self._times = (self._times[0] if self._times else at, at)
        self._last = sample
        self._living.take(sample.events)

    def _encoded(self, header: Header) -> bytes:
        self._are_details_due = True  # a header makes readers forget them
        return self._encoder.header(header).encode("ascii")

    def _line(self, sample: Sample) -> bytes:
        """As it was received, where that is all of it."""
        if not isinstance(sample, Received) or not sample.line:
            return self._encoder.sample(sample).encode("ascii")
        if self._are_details_due:
            for line in self._encoder.details(sample, sample.details):
                self._wait(RESTATED + line[1:].encode("ascii"))
            self._are_details_due = False
        return sample.line

    def _begin_frame(self, header: Header, sample: Sample, now: float, rollups: list[str]) -> None:
        """Write what is needed to read the frame alone; after the file's first, that is repetition.

        `rollups`: the lines of the frame before.
        """
        self._frame_began = now
        is_first = self._last is None
        begin = b"{" if is_first else RESTATED
        self._wait(begin + self._frame.begun(self._encoded(header))[1:])
        for rollup in rollups:
            self._wait(rollup.encode("ascii"))
        facts = list(self._living.values())
        for at in range(0, len(facts) if is_first else max(len(facts), 1), _FACTS_PER_LINE):
            some = facts[at : at + _FACTS_PER_LINE]
            known = Sample(sample.time, sample.mono, {}, sample.states, some)
            self._wait(begin + self._encoder.sample(known)[1:].encode("ascii"))

    def _wait(self, line: bytes) -> None:
        self._lines.append(line)
        self._line_bytes += len(line)

    def _flush(self, now: float, ago_s: float = 0.0) -> None:
        """The next one comes earlier by `ago_s`."""
        self._flushed = now - ago_s
        self._writer.put(self._frame, self._taken())

    def _end_frame(self, *, ended: bool = False) -> None:
        if self._times is not None:
            self._writer.put(self._frame, self._taken(), self._times, ended=ended)
            self._frame = self._frame.next
        self._times = None

    def _taken(self) -> bytes:
        lines, self._lines, self._line_bytes = self._lines, [], 0
        return b"\n".join([*lines, b""])


class Lane:
    """A thread that packs and writes for one recorder or for several, as long as there is work.

    Never two at a time: what the last recorder left is done before the next one's.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False

    def put(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._queue.put(work)
            if not self._is_running:
                with suppress(RuntimeError):  # no thread is to be had: the next work brings one
                    threading.Thread(target=self._run, daemon=True, name="recorder").start()
                    self._is_running = True

    def _run(self) -> None:
        while True:
            try:
                self._queue.get(timeout=_IDLE_S)()
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._is_running = False
                        return


class _Writer:
    """Packs and writes in a lane, which alone touches the file."""

    def __init__(
        self, file: File, first: FramePacker, pack: Callable[[Identity], FramePacker], lane: Lane
    ) -> None:
        """`pack` makes the packers behind the first."""
        self.file = file
        self._packer: FramePacker | None = first  # of the open frame
        self._pack = pack
        self._lane = lane
        self.failed = ""
        self._put_bytes = self._done_bytes = 0  # each changed by one thread only
        self._is_closed = threading.Event()

    @property
    def pending_bytes(self) -> int:
        return self._put_bytes - self._done_bytes

    def put(
        self, frame: Identity, lines: bytes, times: Times | None = None, *, ended: bool = False
    ) -> None:
        """Lines of a frame; `times` of its samples where it ends with them."""
        if self.pending_bytes + len(lines) > _MAX_PENDING_BYTES:
            self.failed = _HANGS
        if not self.failed:
            self._put_bytes += len(lines)
            self._lane.put(partial(self._write, frame, lines, times, ended))

    def end(self) -> None:
        """Nothing follows; the file is closed behind what was put."""
        self._lane.put(self._close)

    def wait(self) -> None:
        """Until it is closed, or for as long as that may take."""
        if not self._is_closed.wait(_CLOSE_S) and not self.failed:
            self.failed = _HANGS

    def _write(self, frame: Identity, lines: bytes, times: Times | None, ended: bool) -> None:
        try:
            if not self.failed:
                packer = self._packer = self._packer or self._pack(frame)
                packed = packer.block(lines)
                if times is not None:
                    packed += packer.end(*times, ended=ended)
                    self._packer = None
                self.file.append(packed, is_to_disk=times is not None)
        except Exception as error:
            self._fail(error)
        self._done_bytes += len(lines)

    def _close(self) -> None:
        try:
            self.file.close()
        except Exception as error:
            self._fail(error)
        self._is_closed.set()

    def _fail(self, error: Exception) -> None:
        """No other code watches this thread, in which others write, too."""
        why = reason(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        self.failed = self.failed or why
