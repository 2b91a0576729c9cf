"""Feeds a bomb through what a user runs, alone in a process, and tells the most memory it took.

`python -m tests.bounds.feed live|recorded BOMB FOLDER MB SECONDS` prints as its last line a JSON
object with `peak_mib`, `lines`, and `said`, what there is to read for people.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gpumon.errors import WireError
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Header
from gpumon.sources.base import Sink
from gpumon.transport.intake import Intake
from tests.bounds.bombs import header, lines_of, row, sample

if TYPE_CHECKING:
    from gpumon.pipeline.evaluator import LiveEvaluation

#: beyond that the machine is spared and the bomb has won
_ADDRESS_BYTES = 2 << 30
_DRAIN_S, _SEEK_S = 40.0, 20.0
#: s; of a core that verdicts may take, so that each moment of the stream is soon judged; and s
#: without anything to judge after which all is
_PERIOD_S, _SHARE, _QUIET_S = 1.0, 0.05, 1.2


def peak_mib() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def bounded(lines: Iterator[bytes], size: int, seconds: float) -> Iterator[bytes]:
    """So many bytes of them, or as many as are taken in so much time of the CPU."""
    until = time.process_time() + seconds
    for line in lines:
        yield line
        size -= len(line)
        if size < 0 or time.process_time() > until:
            return


class Screen:
    """What stands behind a source: recording, evaluator, store; and one who looks at it."""

    def __init__(self, folder: str, *, replayed: bool = False) -> None:
        from gpumon.pipeline import evaluator
        from gpumon.store import Store

        os.environ["XDG_STATE_HOME"] = folder
        self.store = Store()
        evaluator._PERIOD_S = evaluator._REPLAYED_S = _PERIOD_S
        evaluator._SHARE = evaluator._SHARE_OF_MANY = _SHARE
        self.evaluator = evaluator.Evaluator(self.store, replayed=replayed)
        self._verdict = self.evaluator._evaluation
        self.evaluator._evaluation = self._judge  # type: ignore[method-assign, assignment]
        self.judging = False
        self.evaluator.wants_report = True
        self.evaluator.start()

    def look(self, now: float) -> None:
        for node in self.store.nodes():
            frozen = node.frozen()
            for device in frozen.devices():
                frozen.row("device", device.key, now)
                frozen.window("device", device.key, "busy_percent", now, 60, 60)
            frozen.processes(now)
            frozen.events()
            frozen.status(now)

    def _judge(self, *of: Any) -> LiveEvaluation:
        self.judging = True
        try:
            return self._verdict(*of)
        finally:
            self.judging = False

    def settle(self) -> None:
        """Until all that waits is judged."""
        until = time.monotonic() + _DRAIN_S
        quiet, seen = time.monotonic(), self.evaluator.latest
        while (now := time.monotonic()) < until and now - quiet < _QUIET_S:
            if self.evaluator.backlog or self.judging or self.evaluator.latest is not seen:
                quiet, seen = now, self.evaluator.latest
            time.sleep(0.05)
        self.evaluator.stop()

    def said(self) -> list[str]:
        found = [self.evaluator.trouble]
        if self.evaluator.latest is not None:
            found += self.evaluator.latest.left_out
        for node in self.store.nodes():
            found += [event.text for event in node.events() if event.kind == "note"]
            found += node.header.notes if node.header is not None else []
            found += [node.left_out(), node.status(time.time()).detail]
        return [text for text in found if text]


class Given:
    """A source of one stream, as fast as it is taken."""

    name = "given"

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.count = 0

    def start(self, sink: Sink) -> None:
        intake, axis, node = Intake(), Axis(), ""
        for line in self._lines:
            self.count += 1
            with contextlib.suppress(WireError):
                for item in intake.line(line):
                    if isinstance(item, Header):
                        node = node or item.node
                        sink.header(node, axis.header(item, clock.now()))
                    else:
                        sink.add(node, axis.sample(item, clock.now()))

    def stop(self) -> None:
        pass

    def now(self) -> float:
        return time.time()


def live(lines: Iterator[bytes], folder: str) -> tuple[int, list[str]]:
    """Feed, recorder stage, evaluator, store; looked at meanwhile."""
    from gpumon.pipeline.recorder import RecorderStage

    screen = Screen(folder)
    given = Given(lines)
    stage = RecorderStage(given, os.path.join(folder, "marks"), record=True)
    thread = threading.Thread(target=stage.start, args=(screen.evaluator,))
    thread.start()
    while thread.is_alive():
        screen.look(time.time())
        thread.join(0.5)
    screen.settle()
    screen.look(time.time())
    stage.stop()
    return given.count, [*screen.said(), *iter(stage.news, "")]


def _write(lines: Iterator[bytes], path: str) -> int:
    """A recording: a good sample, then the bomb."""
    from gpumon.recording.zstd import packer

    number = 0
    lines = chain([header(), sample(0.0, {"device.fast": [row("device.fast", 0)]})], lines)
    with open(path, "wb") as file:
        while some := list(islice(lines, 100)):
            number += len(some)
            frame = packer()
            packed = frame.compress(b"".join(line + b"\n" for line in some))
            file.write(b"".join((*packed, *frame.finish())))
    return number


def _command(folder: str, *argv: str) -> str:
    """A command of gpumon's; what it printed to standard error. Only a mistake in gpumon fails."""
    from gpumon.cli import main

    err = io.StringIO()
    with (
        open(os.path.join(folder, "out"), "w") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(err),
    ):
        main(list(argv))
    assert "mistake in gpumon" not in err.getvalue(), err.getvalue()
    return err.getvalue()


def _replay(folder: str, path: str) -> list[str]:
    """To the end and back to the beginning."""
    from gpumon.errors import GpumonError
    from gpumon.sources.files import tracks_of
    from gpumon.sources.replay import ReplaySource

    screen = Screen(folder, replayed=True)
    try:
        source = ReplaySource(tracks_of([path]), ahead_s=30.0)
    except GpumonError as error:
        return [str(error)]
    source.start(screen.evaluator)
    for to in (1e12, source.origin + 5.0):
        source.seek(to)
        until = time.monotonic() + _SEEK_S
        while source.seeking and time.monotonic() < until:
            screen.look(source.now())
            time.sleep(0.3)
    screen.settle()
    screen.look(source.now())
    source.stop()
    return screen.said()


def recorded(lines: Iterator[bytes], folder: str) -> tuple[int, list[str]]:
    """A recording of the bomb: report, export, replay."""
    path = os.path.join(folder, "20261121T201202-gpu01-1.gpumon")
    number = _write(lines, path)
    said = [_command(folder, "report", path, "--format", "json")]
    tables = os.path.join(folder, "tables")
    said.append(_command(folder, "export", path, "--to", "csv", "-o", tables))
    return number, [*said, *_replay(folder, path)]


def main(way: str, bomb: str, folder: str, megabytes: str, seconds: str) -> None:
    threading.excepthook = _fall
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    lines = bounded(lines_of(bomb), int(float(megabytes) * 1e6), float(seconds))
    began = time.monotonic()
    number, said = (live if way == "live" else recorded)(lines, folder)
    took = round(time.monotonic() - began, 1)
    told = {"peak_mib": round(peak_mib()), "lines": number, "s": took, "said": said}
    print(json.dumps(told), flush=True)
    os._exit(0)  # threads that still work must not hold up who measures


def _fall(args: threading.ExceptHookArgs) -> None:
    """A thread that falls is a fault wherever it is."""
    threading.__excepthook__(args)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
