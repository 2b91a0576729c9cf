"""For all tests."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def _interruptible():
    """A shell starts what runs in its background with these ignored, and children inherit that:
    programs under test would then not hear Ctrl-C.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
