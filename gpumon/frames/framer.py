"""Frames of a stream as it comes: one at the end of each bucket, for all who need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor
from typing import TYPE_CHECKING, Optional, Union

from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Header, Sample

if TYPE_CHECKING:
    from gpumon.frames.builder import FrameBuilder
    from gpumon.frames.frame import Frame


class Framer:
    """Of one node. What is imported for it waits until the first screen is drawn: until the second
    sample with readings.
    """

    def __init__(self, *, replayed: bool = False) -> None:
        """`replayed`: times are not of now."""
        self._now: Callable[[], Optional[float]] = (lambda: None) if replayed else clock.now
        self._axis = Axis()  # so that no clock that is set takes a run apart
        self._waiting: list[Union[Header, Sample]] = []
        self._builder: Optional[FrameBuilder] = None
        self._seen = 0  # samples
        self._bucket: Optional[int] = None

    def add(self, item: Union[Header, Sample]) -> Iterator[Frame]:
        """The next item; gives the frames that end before it, or with it. To be read to the end."""
        item = self._axis.item(item, self._now())
        is_sample = isinstance(item, Sample) and bool(item.rows)
        if is_sample:
            bucket = floor(item.time / (self._builder.step_s if self._builder else STEP_S))
            if self._bucket not in (None, bucket) and self._builder is not None:
                yield self._builder.cut()
            self._bucket = bucket
        self._seen += is_sample
        self._waiting.append(item)
        if self._builder is not None or self._seen > 1:
            self._settled()
        if isinstance(item, Sample) and any(event.kind == "end" for event in item.events):
            yield from self.rest()  # nothing may follow for long

    def _settled(self) -> FrameBuilder:
        """With all that waits for it."""
        if self._builder is None:
            from gpumon.frames.builder import FrameBuilder

            self._builder = FrameBuilder()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._builder.add(each)
        return self._builder

    def rest(self) -> Iterator[Frame]:
        """What came since the last frame."""
        yield self._settled().cut()
