"""A recorded stream, played by its own clock through the same path as live data."""

from __future__ import annotations

import gzip
import os
import threading
import time
import zlib
from collections.abc import Iterator

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.sources.base import Sink
from gpumon.wire import MAX_LINE_BYTES, Decoder


def read_stream(path: str) -> Iterator[Header | Sample]:
    """Headers and samples of a stream in a file of lines, plain or gzip.

    A torn last line is dropped. Raises NotFoundError, GpumonError (unreadable) or WireError.
    """
    decoder = Decoder()
    try:
        with open(path, "rb") as probe:
            packed = probe.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else open(path, "rb") as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
                    return
                item = decoder.line(line)
                if item is not None:
                    yield item
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}; give the path of a recorded stream") from None
    except EOFError:  # a torn gzip stream: what was read stands
        return
    except (OSError, zlib.error) as error:
        what = error.strerror or error if isinstance(error, OSError) else error
        raise GpumonError(f"cannot read {path}: {what}") from None


class ReplaySource:
    """Plays a stream at `speed`; the first `ahead_s` seconds are there at once.

    With `loop` it begins again at its end, on a clock that goes on, so that the plots go on too.
    """

    name = "replay"

    def __init__(
        self, path: str, *, speed: float = 1.0, ahead_s: float = 0.0, loop: bool = False
    ) -> None:
        self._path = path
        self._speed = speed
        self._ahead_s = ahead_s
        self._loop = loop
        self._stopping = threading.Event()
        self._start_time = 0.0  # recorded time at the moment play began
        self._start_mono = time.monotonic()
        items = read_stream(path)
        first = next(items, None)
        if not isinstance(first, Header):
            raise WireError(f"{os.path.basename(path)} holds no recorded stream")
        self._origin = first.time
        self._start_time = self._origin + ahead_s

    def start(self, sink: Sink) -> None:
        self._start_mono = time.monotonic()
        self._play_ahead(sink)
        threading.Thread(target=self._run, args=(sink,), daemon=True, name="replay").start()

    def stop(self) -> None:
        self._stopping.set()

    def _status(self, state: str, detail: str = "") -> Status:
        return Status(state, self.now(), detail, self.name)

    def now(self) -> float:
        return self._start_time + (time.monotonic() - self._start_mono) * self._speed

    def _items(self) -> Iterator[Header | Sample]:
        """The stream, once or for ever; each round's times follow on the round before."""
        shift = 0.0
        while True:
            last = self._origin
            for item in read_stream(self._path):
                last = item.time
                yield _shifted(item, shift)
            if not self._loop or last <= self._origin:
                return
            shift += last - self._origin + 1.0

    def _play_ahead(self, sink: Sink) -> None:
        self._rest = self._items()
        self._node = ""
        for item in self._rest:
            self._deliver(item, sink)
            if item.time >= self._start_time:
                return

    def _run(self, sink: Sink) -> None:
        try:
            for item in self._rest:
                wait_s = (item.time - self.now()) / self._speed
                if wait_s > 0 and self._stopping.wait(wait_s):
                    return
                self._deliver(item, sink)
        except GpumonError as error:
            sink.status(self._node, self._status("lost", str(error)))
            return
        sink.status(self._node, self._status("ended", "end of the recording"))

    def _deliver(self, item: Header | Sample, sink: Sink) -> None:
        if isinstance(item, Header):
            self._node = item.node
            sink.header(item.node, item)
            sink.status(item.node, self._status("live"))
        else:
            sink.add(self._node, item)


def _shifted(item: Header | Sample, shift: float) -> Header | Sample:
    if not shift:
        return item
    if isinstance(item, Header):
        job = item.job
        if job is not None and job.start is not None:
            job = job._replace(start=job.start + shift, end=job.end and job.end + shift)
        return item._replace(time=item.time + shift, mono=item.mono + shift, job=job)
    states = {key: state._replace(since=state.since + shift) for key, state in item.states.items()}
    events = [event._replace(time=event.time + shift) for event in item.events]
    return item._replace(
        time=item.time + shift, mono=item.mono + shift, states=states, events=events
    )
