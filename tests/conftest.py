"""For all tests."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def _interruptible():
    """A shell starts what runs in its background with these ignored, nohup with SIGHUP, and
    children inherit that: programs under test would then not hear Ctrl-C, or their shell's end.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
