"""When the screen's thread looks whether there is something to draw: no poll, only reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context


class Waker:
    """Has `look` called: at once when something changed, and when a time has come.

    But never more often than every `least_s`, as many nodes change many times in that.
    """

    def __init__(self, look: Callable[[], None], least_s: float) -> None:
        """To be made in the screen's thread."""
        self._look = look
        self._least_s = least_s
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._timer: asyncio.TimerHandle | None = None
        self._looked = self._loop.time() - least_s
        self._is_woken = False  # and has not looked since

    def wake(self) -> None:
        """Something changed. From any thread; returns at once."""
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._look_in, 0.0)

    def look_in(self, seconds: float | None) -> None:
        """Also without a change, in so long; None: only then. From the screen's thread."""
        if not self._is_woken:
            self._look_in(seconds)

    def _look_in(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            at = max(self._loop.time() + seconds, self._looked + self._least_s)
            self._timer = self._loop.call_at(at, self._run, context=self._context)

    def _run(self) -> None:
        self._timer, self._is_woken = None, False
        self._looked = self._loop.time()
        self._look()
