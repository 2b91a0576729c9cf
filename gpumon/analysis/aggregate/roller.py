"""Makes the rollup lines of a recording while it is written (`recording.rollups.Roller`)."""

from __future__ import annotations

from gpumon.analysis.aggregate import device, series
from gpumon.analysis.aggregate.limits import RECORDED
from gpumon.analysis.aggregate.node import NodeAggregate
from gpumon.analysis.aggregate.run import Aggregation, Item
from gpumon.model.bounded import weight
from gpumon.model.rolled import MAX_BUCKETS, Rolled, packed
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Event, Header, Sample

#: events and headers of one frame
MAX_EVENTS, MAX_BYTES = 20_000, 16 << 20
# frames end at multiples of ten minutes, which would cut longer buckets of the grid in two; their
# samples are so few that they are read as quickly
_LONGEST_STEP_S = 40.0
_NODE = ""


class Roller:
    """Aggregates one node's stream; who is on which device, counters and peaks go on from frame to
    frame.

    Ends (None ever after) where the clock is set back or the grid changes, because what was
    written can no longer be changed: from there on the samples are read.
    """

    def __init__(self) -> None:
        self._aggregation: Aggregation | None = Aggregation(RECORDED)  # None: it has ended
        self._headers: list[Header] = []
        self._events: list[Event] = []
        self._bytes = 0  # of both
        self._newest: float | None = None  # bucket of 10 s
        self._step_s: float | None = None  # of the frames so far
        self._is_set_back = False

    def add(self, item: Item) -> None:
        """The next item, as a reader of the lines gets it."""
        if self._aggregation is None:
            return
        if isinstance(item, Header):
            self._headers.append(item)
            self._bytes += weight(item)
        elif isinstance(item, Sample):
            self._events += item.events
            self._bytes += weight(item.events)
            if item.rows:
                self._note(item.time, item.time)
        else:
            self._note(item.times[0], item.times[-1])
        if self._is_set_back or len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._end()
        else:
            self._aggregation.add(_NODE, item)

    def rolled(self) -> Rolled | None:
        """What came since the last time; None when there is none from now on."""
        found = None if self._aggregation is None else self._rolled(self._aggregation)
        self._headers, self._events, self._bytes = [], [], 0
        if found is None:
            self._end()
        return found

    def _end(self) -> None:
        self._aggregation, self._headers, self._events = None, [], []

    def _rolled(self, aggregation: Aggregation) -> Rolled | None:
        step_s = aggregation.step_s
        if step_s > _LONGEST_STEP_S or self._step_s not in (None, step_s):
            return None
        self._step_s = step_s
        node = aggregation.flushed(_NODE)
        if node is None or node.header is None:
            return None
        return _drained(node, self._headers, self._events, step_s)

    def _note(self, first: float, last: float) -> None:
        newest = self._newest
        self._is_set_back = newest is not None and first // STEP_S < newest
        self._newest = last // STEP_S


def _drained(
    node: NodeAggregate, headers: list[Header], events: list[Event], step_s: float
) -> Rolled | None:
    """What the node got since the last time, which then forgets the series; None: too much."""
    drained = [(name, found) for name, kept in node.series() if (found := kept.drain())]
    first = min((found.first for _, found in drained), default=0)
    last = max((found.last for _, found in drained), default=-1)
    if last - first >= MAX_BUCKETS:
        return None
    state, news, looks = node.state(), node.news(), node.looks()
    node.forget()
    columns = [
        each
        for are_shown in (False, True)
        for each in packed(
            [(name, found) for name, found in drained if _is_shown(*name[:2]) == are_shown],
            first,
            are_shown=are_shown,
        )
    ]
    return Rolled(step_s, first, last, headers, events, news, looks, columns, lambda: state)


def _is_shown(kind: str, name: str) -> bool:
    """Whether no rule asks for the series."""
    if kind == "resident":
        return True
    return name in (device.SHOWN if kind == "device" else series.SHOWN.get(kind, ()))
