"""Ports for servers of tests."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import socket

#: below those that the kernel gives to connections
_PORTS = itertools.count(10000 + os.getpid() % 220 * 100)
#: of the last ports: each is this process's by a name in the kernel, until its server listens
_CLAIMS: collections.deque[socket.socket] = collections.deque(maxlen=64)


def free_port() -> int:
    """A port on which nothing listens: no other test takes it before its server does, whoever
    else runs tests on this machine.
    """
    for port in _PORTS:
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            claim.bind(f"\0gpumon-tests-port-{port}")
            probe.bind(("127.0.0.1", port))
            _CLAIMS.append(claim)
            return port
        claim.close()
    raise AssertionError("there are always more")
