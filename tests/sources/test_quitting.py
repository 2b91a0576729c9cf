"""Quitting waits for no node: neither for a close that hangs nor for what still comes in."""

import threading
import time

import pytest

from gpumon.sources.attach import AttachSource, NodeTask
from gpumon.wire.encoder import Encoder
from tests.recording import made
from tests.sources.sinks import Sink, by
from tests.support.waiting import until

NODES = 64


class Endless:
    """A stream that has always more to say, and hangs when it is closed."""

    def __init__(self, lines, hang, closed):
        self._lines = iter(lines)
        self._last = lines[-1]
        self._hang, self._closed = hang, closed

    def read(self):
        time.sleep(0.01)
        return next(self._lines, self._last) + b"\n"

    def descriptor(self):
        return None

    def write(self, data):
        pass

    def close(self):
        self._closed.append(self)
        self._hang.wait()

    def complaint(self):
        return ""


class Way:
    name, lacks = "ssh", ""

    def __init__(self):
        self.hang = threading.Event()
        self.closed = []
        encoder = Encoder()
        self._lines = [encoder.header(made.header()).encode()]
        self._lines += [encoder.sample(sample).encode() for sample in made.samples(1)]

    def open(self, node, argv):
        return Endless(self._lines, self.hang, self.closed)

    def close(self):
        self.hang.wait()


@pytest.mark.slow
def test_streams_that_hang_and_go_on_do_not_hold_up_who_quits():
    way, sink = Way(), Sink()
    names = [f"n{n}" for n in range(NODES)]
    source = AttachSource(by([NodeTask(name, ("4711",)) for name in names], way), 1.0)
    source.start(sink)
    sink.wait(lambda sink: all(sink.of("sample", name) for name in names))
    try:
        source.stop()
        source.stop()  # the screen and the command both do
    finally:
        assert not way.hang.is_set()
        way.hang.set()
    until(lambda: all(run.over.is_set() for run in source._runs.values()))
    taken = [-1]

    def nothing_comes_any_more():
        """What a thread was just handing over may."""
        time.sleep(0.2)
        taken.append(len(sink.got))
        return taken[-1] == taken[-2]

    until(nothing_comes_any_more, lambda: taken)
    # by the source once each, and by the node's own thread
    assert len(way.closed) <= 2 * NODES
