"""Plays the streams of many nodes into named pipes, each as an agent would.

    python -m benchmarks.scale_feed FOLDER NODE... [--stream FILE] [--interval S] [--spread]

Every node plays the same minute from another place of its own, under its own name and with UUIDs of
its own: a header and a sample when its pipe is opened, then a sample at each tick of the clock,
stamped with that tick. With --spread each node ticks at its own second of the interval, as agents
of many nodes do. Ends with
SIGTERM and then says on standard output how late its latest tick was complete, and the most that
waited for a reader.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from math import floor
from pathlib import Path

from gpumon.collect.agent import phase_of
from gpumon.model.sample import Header, JobContext, Sample
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording import made

SAMPLES = 60
GIB = 1 << 30
_PHASE = 7  # samples between the places at which two nodes begin
_POLL_S = 0.05


class Tape:
    """What all nodes play: a header, and the part of each sample's line behind its times."""

    def __init__(self, header: Header, samples: list[Sample]) -> None:
        self.header = header
        encoder = Encoder()
        encoder.header(header)
        lines = [encoder.sample(sample).encode() for sample in samples]
        self.rests = [line.split(b",", 2)[2] for line in lines]


def made_tape() -> Tape:
    """Eight H100 with GPM and 16 busy processes: every field of every group moves."""
    header = made.header(job=JobContext("4711", cpus=64, gpus=8))
    facts = {"mem_total_bytes": 80 * GIB, "power_limit_default_w": 700.0}
    devices = [device._replace(facts=facts) for device in header.devices]
    about = {"cpus": 128, "mem_total_bytes": 1024 * GIB}
    return Tape(header._replace(devices=devices, facts=about), list(made.samples(SAMPLES)))


def read_tape(path: Path) -> Tape:
    """The stream that `gpumon collect` left in a file."""
    decoder = Decoder()
    items = [decoder.line(line) for line in path.read_bytes().splitlines()]
    assert decoder.header is not None
    return Tape(decoder.header, [each for each in items if isinstance(each, Sample) and each.rows])


class Pipe:
    """A named pipe that is opened when somebody reads it; never blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._waiting = b""
        self.most_waiting = 0

    def open(self) -> bool:
        """Whether somebody began to read just now."""
        if self._fd is None:
            with contextlib.suppress(OSError):  # ENXIO: nobody reads
                self._fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
                return True
        return False

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def write(self, data: bytes = b"") -> None:
        self._waiting += data
        if self._fd is None or not self._waiting:
            return
        try:
            self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._fd, self._waiting = None, b""
        self.most_waiting = max(self.most_waiting, len(self._waiting))


class Node:
    """One node's stream."""

    def __init__(
        self, number: int, name: str, tape: Tape, pipe: Pipe, interval_s: int, *, spread: bool
    ) -> None:
        self.pipe = pipe
        self.phase_s = int(phase_of(name, interval_s)) if spread else 0
        self._name = name
        self._tape = tape
        self._interval_s = interval_s
        self._place = number * _PHASE

    def begin(self, now: float) -> None:
        own = self._tape.header
        devices = [each._replace(uuid=f"GPU-{self._name}-{each.key}") for each in own.devices]
        header = own._replace(
            node=self._name, time=now, mono=now, devices=devices, interval_s=self._interval_s
        )
        self._put(Encoder().header(header).encode())
        self._sample(now, self._tape.rests[0])

    def tick(self, at: float) -> None:
        self._place += 1
        rests = self._tape.rests
        self._sample(at, rests[1 + self._place % (len(rests) - 1)])

    def _sample(self, at: float, rest: bytes) -> None:
        self._put(b'{"t":%.3f,"m":%.3f,%s' % (at, at, rest))

    def _put(self, line: bytes) -> None:
        self.pipe.write(line + b"\n")


def play(
    nodes: list[Node], pipes: list[Pipe], interval_s: int, stopping: Callable[[], bool]
) -> float:
    """Until told to stop; returns how late the latest tick was complete, in seconds."""
    latest_s, tick = 0.0, floor(time.time())
    while not stopping():
        fresh = {id(pipe) for pipe in pipes if pipe.open()}
        due = time.time() >= tick + 1
        tick += due
        for node in nodes:
            if id(node.pipe) in fresh:
                node.begin(time.time())
            elif due and node.pipe.is_open and tick % interval_s == node.phase_s:
                node.tick(tick)
        for pipe in pipes:
            pipe.write()
        if due:
            latest_s = max(latest_s, time.time() - tick)
        time.sleep(max(0.0, min(_POLL_S, tick + 1 - time.time())))
    return latest_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_feed")
    parser.add_argument("folder", type=Path)
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--stream", type=Path)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--spread", action="store_true")
    args = parser.parse_args()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    tape = read_tape(args.stream) if args.stream else made_tape()
    pipes = [Pipe(args.folder / name) for name in args.nodes]
    nodes = [
        Node(number, name, tape, pipe, args.interval, spread=args.spread)
        for number, (name, pipe) in enumerate(zip(args.nodes, pipes))
    ]
    latest_s = play(nodes, pipes, args.interval, lambda: bool(stopped))
    most = max(pipe.most_waiting for pipe in pipes)
    print(json.dumps({"latest_s": latest_s, "most_waiting_bytes": most}))


if __name__ == "__main__":
    main()
