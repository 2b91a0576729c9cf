"""Records a source's stream on its way to the screen, and takes marks for it.

The screen comes first: what fails here (a full disk, a folder that cannot be written) ends the
recording with a sentence, and the samples go on.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from gpumon.analysis.digester import Digester
from gpumon.collect.marks import Mark, MarkSpool, mark_event, mark_text, running
from gpumon.errors import GpumonError
from gpumon.model import clock
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.view import Status
from gpumon.recording import Recorder, new_path
from gpumon.sources.base import Sink, Source

#: nodes whose recordings get digests: 0.4 MiB and 0.3 ms of CPU a sample each
_MAX_DIGESTED = 64
#: marks that wait for a node's next sample, which must hold them in one line
MAX_MARKS = 100
MAX_NEWS = 1000  # sentences that nobody has read yet; every node may have one
#: how long quitting waits for the files
_CLOSE_S = 0.5
#: how long a mark waits for a stream that writes
_MARK_S = 0.2
#: how often marks of other processes are looked for, in a folder that may lie on NFS
_LOOK_S = 0.25


class Tee:
    """Takes the place of a source; every node's stream goes to the sink and into a file.

    marks_dir: the folder of spools, in which `gpumon mark` finds this process.
    record: whether to write files; marks are taken either way.
    """

    def __init__(self, source: Source, marks_dir: str, *, record: bool) -> None:
        self.name = source.name
        self._source = source
        self._marks_dir = marks_dir
        self._record = record
        self._lock = threading.Lock()
        self._spool: MarkSpool | None = None
        self._looked = 0.0  # into it, of the monotonic clock
        self._recorders: dict[str, Recorder | None] = {}  # by node; None: not recorded
        self._marks: dict[str, list[Event]] = {}  # by node, for its next sample
        # without the lock: the screen must not wait for a disk
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self._stopped = False
        self.not_recorded: dict[str, str] = {}  # by node: why it should be, and is not

    # -- as a source

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._source.start(self)

    def now(self) -> float:
        return self._source.now()

    def stop(self) -> None:
        """Stop the source and finish the files; those of a disk that hangs stay unfinished."""
        self._source.stop()
        closing = threading.Thread(target=self._close, daemon=True, name="close")
        closing.start()
        closing.join(_CLOSE_S)

    def _close(self) -> None:
        with self._lock:
            self._stopped = True
            recorders, self._recorders = self._recorders, {}
            if self._spool is not None:
                self._spread(self._spool.close())
                self._spool = None
        kept = {node: each for node, each in recorders.items() if each is not None}
        for node, recorder in kept.items():
            for mark in self._marks[node]:
                recorder.mark(mark.time, mark.text)
            recorder.end("gpumon was left", in_haste=True)
        for recorder in kept.values():
            recorder.close()

    # -- as a sink

    def header(self, node: str, header: Header) -> None:
        self._sink.header(node, header)
        with self._lock:
            if self._stopped:
                return
            if node not in self._recorders:
                self._recorders[node] = self._open(header)
                self._marks[node] = []
            recorder = self._recorders[node]
            if recorder is not None:
                recorder.header(header)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._lock:
            if self._spool is not None and (now := time.monotonic()) - self._looked >= _LOOK_S:
                self._looked = now
                self._spread(self._spool.take())
            marks = self._marks.get(node)
            if marks:
                sample = sample._replace(events=[*sample.events, *marks])
                self._marks[node] = []
            recorder = self._recorders.get(node)
            if recorder is not None:
                recorder.add(sample)
                if recorder.failed:
                    self._recorders[node] = None
                    self.not_recorded[node] = recorder.failed
                    self._news.append(recorder.failed)
        self._sink.add(node, sample, received)

    def status(self, node: str, status: Status) -> None:
        self._sink.status(node, status)

    def reset(self) -> None:
        self._sink.reset()

    # -- for the screen

    def mark(self, text: str) -> str:
        """Put a line on the time axis of every node; what happened, in words."""
        text = mark_text(text)
        if not text:
            return "an empty mark says nothing"
        if not self._lock.acquire(timeout=_MARK_S):
            return "not marked: the folder of the recordings does not answer"
        try:
            self._spread([Mark(time.time(), text)])
            kept = any(recorder is not None for recorder in self._recorders.values())
        finally:
            self._lock.release()
        return f"marked: {text}" + ("" if kept else " (nothing is recorded here)")

    def news(self) -> str:
        """What there is to say about the recording, each once; "" mostly."""
        return self._news.popleft() if self._news else ""

    # -- the parts that hold the lock

    def _spread(self, marks: list[Mark]) -> None:
        set_by = clock.set_by()  # marks have the wall clock's time, whoever sends them
        marks = [mark._replace(time=mark.time - set_by) for mark in marks]
        for node, waiting in self._marks.items():
            room = max(MAX_MARKS - len(waiting), 0)
            waiting.extend(map(mark_event, marks[:room]))
            if len(marks) > room:
                left_out = len(marks) - room
                self._news.append(f"{node}: {left_out} marks left out; they came too fast")

    def _open(self, header: Header) -> Recorder | None:
        job = header.job.id if header.job else ""
        own = self._spool.path if self._spool else ""
        others = []
        try:
            others = running(self._marks_dir, but=own)
            if self._spool is None:
                self._spool = MarkSpool(self._marks_dir, job, header.node)
        except OSError:  # `gpumon mark` tells why
            pass
        if not self._record:
            return None
        if any(spool.is_of(job, header.node) for spool in others):
            self._news.append(f"{header.node}: is recorded already; only shown here")
            return None
        try:
            count = len(self._recorders)
            digester = Digester if count < _MAX_DIGESTED else None
            path = new_path(header, header.time)
            recorder = Recorder(path, digester=digester, phase=spread(count))
        except GpumonError as error:
            self.not_recorded[header.node] = f"not recording: {error}"
            self._news.append(self.not_recorded[header.node])
            return None
        if not any(self._recorders.values()):
            self._news.append(f"recording to {_short(recorder.path)}; not with --no-record")
        return recorder


def spread(number: int) -> float:
    """A phase far from those of all recorders before this one (the golden section's multiples)."""
    return number * (5**0.5 - 1) / 2 % 1


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
