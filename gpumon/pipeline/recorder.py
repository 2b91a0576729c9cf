"""The recorder stage: records a source's stream on its way to the screen, and takes marks for it.

The screen comes first: what fails here (a full disk, a folder that cannot be written) ends the
recording with a sentence, and the samples continue. `gpumon record` is the same without a screen.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from gpumon.errors import GpumonError
from gpumon.frames.frame import Frame
from gpumon.frames.framer import Framer
from gpumon.model import clock
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.view import NotRecorded, Status
from gpumon.recording import Recorder
from gpumon.recording.claims import Claims
from gpumon.recording.file import CannotRecordError
from gpumon.recording.runs import is_same_attempt, new_path
from gpumon.recording.sharing import Mark, mark_event, mark_text
from gpumon.recording.writer import Lane, Living
from gpumon.sources.base import FrameSink, Sink, Source

#: nodes whose recordings get the lines of frames: 0.4 MiB each
_MAX_FRAMED = 64
#: recorders of this process that may take much memory each
_MAX_LARGE = 16
#: marks that wait for a node's next sample, which must hold them in one line
MAX_MARKS = 400
_LANES = 8  # threads that write: each flush waits for the disk
MAX_NEWS = 1000  # messages not shown yet; every node may have one
#: how long quitting waits for the files
_CLOSE_S = 0.5
#: how long a mark waits for a stream that writes
_MARK_S = 0.2
#: how often marks of this machine's other processes are looked for
_LOOK_S = 0.25


class RecorderStage:
    """Takes the place of a source; every node's stream goes to the sink and into a file.

    A dashboard records by the way, each node only as long as no other process does.
    """

    def __init__(self, source: Source, marks_dir: str, *, record: bool = False) -> None:
        """`marks_dir`: the folder of spools, in which `gpumon mark` finds this process. `record`:
        whether to write files; marks are taken either way.
        """
        self.name = source.name
        self.asked_for: Recorder | None = None  # of the only node, whoever else records it
        self._is_usual = True  # it writes where reports look for it
        self._source = source
        self._marks_dir = marks_dir
        self._record_nodes = record
        self._lock = threading.Lock()
        self._claims = Claims()  # with files from the first header on
        self._looked = 0.0  # for marks, of the monotonic clock
        self._nodes: dict[str, _Node] = {}
        self._ended: list[Recorder] = []  # before the nodes did, and may still be writing
        # without the lock: the screen must not wait for a disk
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self._stopped = False
        self._lanes = [Lane() for _ in range(_LANES)]
        self.not_recorded: dict[str, NotRecorded] = {}  # by node: those that should be

    def record_to(self, header: Header, output: str | None) -> Recorder:
        """Record the only node, whoever else does: to a new file or into a folder, or (None) among
        all recordings, where no dashboard need record it, too. Raises GpumonError.
        """
        self._register(header)  # whoever finds the file may set a mark
        self._is_usual = output is None
        self.asked_for = new_recorder(header, output)
        return self.asked_for

    # -- as a source

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._source.start(self)

    def now(self) -> float:
        return self._source.now()

    def stop(self) -> None:
        """Stop the source and finish the files; those of a disk that hangs stay unfinished."""
        self._source.stop()
        closing = threading.Thread(target=self.close, daemon=True, name="close")
        closing.start()
        closing.join(_CLOSE_S)

    def close(self, reason: str = "gpumon was quit", *, in_haste: bool = True) -> None:
        """Finish the files; `in_haste`: without rollup lines of their last frames."""
        with self._lock:
            self._stopped = True
            nodes, self._nodes = self._nodes, {}
            _spread(self._claims.close(), nodes, self._news)
        for name, node in nodes.items():
            if not in_haste:
                self._put(name, node, node.framer.rest())
            if node.recorder is not None:
                for mark in node.marks:
                    node.recorder.mark(mark.time, mark.text)
                node.recorder.end(reason, in_haste=in_haste)
                self._ended.append(node.recorder)
        for recorder in self._ended:
            recorder.close()

    # -- as a sink

    def header(self, node: str, header: Header) -> None:
        self._sink.header(node, header)
        with self._lock:
            if self._stopped:
                return
            known = self._nodes.get(node)
            if known is not None and not is_same_attempt(known.header.job, header.job):
                self._end(known, "the job was requeued")
                self._claims.release(node)
                known = None
            if known is None:
                self._register(header)
                known = self._nodes[node] = _Node(header)
                self._claims.seen(node, header.interval_s)
                self._decide(node, known)
            elif known.recorder is not None:
                known.recorder.header(header)
            known.header = header
            self._put(node, known, known.framer.add(header))

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._lock:
            if (now := time.monotonic()) - self._looked >= _LOOK_S:
                self._looked = now
                _spread(self._claims.marks(), self._nodes, self._news)
            known = self._nodes.get(node)
            if known is not None:
                if known.marks:
                    sample = sample._replace(events=[*sample.events, *known.marks])
                    known.marks = []
                self._put(node, known, known.framer.add(sample))
                self._record(node, known, sample)
        self._sink.add(node, sample, received)

    def _put(self, name: str, node: _Node, frames: Iterable[Frame]) -> None:
        """Frames that ended go into the file, and on."""
        for frame in frames:
            if node.recorder is not None and node.is_framed:
                node.recorder.frame(frame)
            if isinstance(self._sink, FrameSink):
                self._sink.frame(name, frame)

    def _record(self, name: str, node: _Node, sample: Sample) -> None:
        self._claims.seen(name, node.header.interval_s)
        if self.asked_for is not None and self._is_usual:
            self._claims.hold(name, self._claims.made(name, node.header, is_asked_for=True))
        recorder = node.recorder
        if recorder is not None:
            recorder.add(sample)
            if recorder.failed:
                self._end(node, recorder.why)
                self._give_up(name, NotRecorded(recorder.why, recorder.path), recorder.failed)
        node.last = sample.time
        node.living.take(sample.events)

    def status(self, node: str, status: Status) -> None:
        with self._lock:
            known = self._nodes.get(node)
            if known is not None and status.state not in ("connecting", "live"):
                self._put(node, known, known.framer.rest())
        self._sink.status(node, status)

    def reset(self) -> None:
        self._sink.reset()

    # -- for the screen

    def mark(self, text: str) -> str:
        """Put a line on the time axis of every node; what happened, in words."""
        text = mark_text(text)
        if not text:
            return "the mark is empty"
        if not self._lock.acquire(timeout=_MARK_S):
            return "not marked: the folder of recordings is not responding"
        try:
            _spread([Mark(time.time(), text)], self._nodes, self._news)
            kept = any(node.recorder is not None for node in self._nodes.values())
        finally:
            self._lock.release()
        return f"marked: {text}" + ("" if kept else " (nothing is recorded here)")

    def news(self) -> str:
        """Messages about the recording, each once; mostly ""."""
        return self._news.popleft() if self._news else ""

    # -- the parts that hold the lock

    def _register(self, header: Header) -> None:
        """Once: where marks come in, and which other processes record."""
        if not self._claims.path:
            with suppress(OSError):  # `gpumon mark` reports why
                job = header.job.id if header.job else ""
                self._claims.open(self._marks_dir, job, header.node)
                self._claims.start(self._look if self._record_nodes else None)

    def _decide(self, name: str, node: _Node) -> None:
        """Record the node unless another process does, or it was asked for."""
        if self.asked_for is not None:
            node.recorder = self.asked_for
            node.recorder.header(node.header)
            return
        if not self._record_nodes or name in self.not_recorded:
            return
        if self._is_recorded(name, node):
            self._end(node, "another gpumon records this node")
            if not node.is_said:
                self._news.append(f"{name}: already being recorded; only shown here")
                node.is_said = True
        elif node.recorder is None:
            self._open(name, node)

    def _is_recorded(self, name: str, node: _Node) -> bool:
        """Whether others record all of it; if not, claim it for this process."""
        claim = self._claims.made(name, node.header, is_asked_for=False)
        with suppress(OSError):
            if self._claims.is_needless(claim):
                self._claims.release(name)
                return True
        self._claims.hold(name, claim)  # two that begin at once see each other at the next look
        return False

    def _look(self) -> None:
        """The recorder has changed: take over from one that ended, or leave it to another."""
        with self._lock:
            for name, node in self._nodes.items():
                if not self._claims.is_silent(name):
                    self._decide(name, node)

    def _end(self, node: _Node, reason: str) -> None:
        """Its recording, but not the node."""
        self._ended = [each for each in self._ended if each.pending_bytes]
        if node.recorder is not None:
            node.recorder.end(reason, in_haste=True)
            self._ended.append(node.recorder)
            node.recorder = None

    def _give_up(self, name: str, why: NotRecorded, told: str) -> None:
        """Recording it."""
        self.not_recorded[name] = why
        self._news.append(told)
        self._claims.release(name)

    def _open(self, name: str, node: _Node) -> None:
        header = node.header
        count = sum(each.recorder is not None for each in self._nodes.values())
        try:
            recorder = new_recorder(
                header, start=node.last, phase=spread(count), is_small=count >= _MAX_LARGE,
                lane=self._lanes[count % len(self._lanes)],
                is_synced=not count,  # what its file server is asked must not grow with the nodes
            )  # fmt: skip
        except GpumonError as error:
            why = NotRecorded(str(error))
            if isinstance(error, CannotRecordError):
                why = NotRecorded(error.why, error.path)
            self._give_up(name, why, f"not recording: {error}")
            return
        if not count:
            where = _short(recorder.path)
            self._news.append(f"recording to {where} (use --no-record to turn this off)")
        recorder.header(header, node.living.values())
        node.recorder, node.is_framed = recorder, count < _MAX_FRAMED


class _Node:
    """What is known of one node. All that a recording needs to begin later than the stream."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.recorder: Recorder | None = None  # None: not recorded here
        self.marks: list[Event] = []  # for its next sample
        self.last: float | None = None  # time of the newest sample
        self.is_said = False  # that another one records
        self.is_framed = True  # its recording gets the lines of frames
        self.framer = Framer()
        self.living = Living()


def _spread(marks: list[Mark], nodes: Mapping[str, _Node], news: deque[str]) -> None:
    """Have all nodes' next samples bring these marks."""
    set_by = clock.set_by()  # marks always have the wall clock's time
    marks = [mark._replace(time=mark.time - set_by) for mark in marks]
    for name, node in nodes.items():
        room = max(MAX_MARKS - len(node.marks), 0)
        node.marks.extend(map(mark_event, marks[:room]))
        if len(marks) > room:
            news.append(f"{name}: {len(marks) - room} marks left out; they came too fast")


def new_recorder(
    header: Header, output: str | None = None, *, start: float | None = None, **options: Any
) -> Recorder:
    """A recorder of a node's stream, which begins at `start` or with its header.

    `output`: a new file or a folder; None: a new file among all recordings, of which another
    process may take the next free name at the same moment. `options` of `Recorder`.
    """
    while True:
        path = new_path(header, start or header.time)
        if output is not None:
            is_folder = os.path.isdir(output) or output.endswith("/")
            path = os.path.join(output, os.path.basename(path)) if is_folder else output
        try:
            return Recorder(path, **options)
        except GpumonError:
            if output is not None or not os.path.lexists(path):
                raise


def spread(number: int) -> float:
    """A phase far from those of all recorders before this one (the golden section's multiples)."""
    return number * (5**0.5 - 1) / 2 % 1


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
