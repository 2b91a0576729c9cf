"""What was recorded before some moment, for a store that begins there, without feeding hours again.

Of the time before, series and events are all that screens show. They are read once, as frames; that
takes half a second a node-day where the recording has them. They then serve every way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from threading import Lock
from typing import Union

from gpumon.frames.frame import Frame
from gpumon.model.fields import SERIES
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Header, Sample
from gpumon.recording.reader import Stretch
from gpumon.store.row import EXTREMES

Item = Union[Header, Sample]
_MOST_BUCKETS, _AT_DEVICES = 2 * 8640, 8
_EXTREMES = frozenset(name for names in EXTREMES.values() for name in names)


class History:
    """Of one node's recordings, as far as they have been read."""

    def __init__(self, stretches: Callable[[], Iterator[Stretch]]) -> None:
        """`stretches`: all of them, with the readings that only screens show."""
        self._stretches = stretches
        self._lock = Lock()  # one reads, others ask
        self._whole = Frame()
        #: until when it has been read, epoch s; inf: all of it
        self.reached = -inf

    @property
    def step_s(self) -> float:
        """Of its buckets."""
        return self._whole.step_s

    def read(self) -> Iterator[None]:
        """Read all of it, a step at a time."""
        from gpumon.recording.reader import frames_of

        for frame in frames_of(self._stretches()):
            shown = frame.picked(_shown)
            with self._lock:
                self._make_room(shown)
                self._whole.extend(shown)
            if frame.samples.seen:
                self.reached = frame.samples.last
            yield
        self.reached = inf

    def _make_room(self, more: Frame) -> None:
        """Two days of eight devices in buckets of 10 s; more in those that series have."""
        devices = max(len(self._whole.devices), len(more.devices), _AT_DEVICES)
        while self._span_s(more) > _MOST_BUCKETS * _AT_DEVICES // devices * self._whole.step_s:
            step_s = self._whole.step_s
            longer_s = next((each for each in (60.0, 600.0) if step_s < each), 2 * step_s)
            self._whole.coarsen(round(longer_s / step_s))

    def _span_s(self, more: Frame) -> float:
        """Of both together."""
        known = [each for each in (self._whole, more) if each.extent is not None]
        times = [index * each.step_s for each in known for index in each.extent or ()]
        return max(times, default=0.0) - min(times, default=0.0)

    def before(self, end: float) -> Frame:
        """What was before `end`, epoch s; whole buckets."""
        with self._lock:
            return self._whole.until(end)

    def frames_before(self, end: float) -> Iterator[Frame]:
        """The same in full, read once more: for who evaluates it."""
        from gpumon.frames.builder import built

        for stretch in self._stretches():
            if stretch.first >= end:
                return
            frame = stretch.opened() if stretch.last < end else None
            if frame is not None:
                yield frame
            else:
                yield from built(item for item in stretch.items() if item.time < end)


def _shown(entity: str, field: str, rollup: Rollup) -> Rollup | None:
    """The rollup, where a screen has its series."""
    return rollup if field in SERIES.get(entity, ()) or field in _EXTREMES else None
