"""What takes samples in tests of sources."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from gpumon.model.axis import Axis
from gpumon.transport.fallback import Transports
from tests.support.waiting import HANGS_S


class Sink:
    """Keeps what a source brings, in order; waits for it."""

    def __init__(self):
        self.got = []
        self._news = threading.Condition()

    def _add(self, *what):
        with self._news:
            self.got.append(what)
            self._news.notify_all()

    def header(self, node, header):
        self._add("header", node, header)

    def add(self, node, sample, received=None):
        self._add("sample", node, sample)

    def status(self, node, status):
        self._add("status", node, status)

    def of(self, kind, node=None):
        return [what[2] for what in self.got if what[0] == kind and node in (None, what[1])]

    def states(self, node=None):
        return [status.state for status in self.of("status", node)]

    def last(self, node):
        return self.of("status", node)[-1]

    def wait(self, condition):
        with self._news:
            assert self._news.wait_for(lambda: condition(self), HANGS_S), self.got[-5:]


def by(tasks, *transports):
    """All nodes by the same ways."""
    ways = Transports(transports)
    return [task._replace(transports=ways) for task in tasks]


class AnyWay(dict):
    """A way to each part, which leads nowhere."""

    def __missing__(self, part):
        return self.setdefault(part, Transports([]))


def node(stream, sink, name="n1"):
    """What an attempt needs of its node: opens this stream, and passes all of it on."""
    return SimpleNamespace(
        open=lambda transport: (stream, b""),
        is_done=False,
        axis=Axis(ours=True),
        interval_s=1.0,
        heard=lambda: None,
        told=lambda answer: None,
        header=lambda transport, header: sink.header(name, header),
        add=lambda sample, received: sink.add(name, sample, received),
    )
