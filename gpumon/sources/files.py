"""Recordings as a screen shows them: what a replay plays, and what was before the first sample.

Of the time before, series and events are all that screens show. They are read as frames, and only
when a screen wants them: that takes half a second a node-day where the recording has them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from math import inf
from typing import Union

from gpumon.frames.frame import Frame
from gpumon.model.fields import SERIES
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from gpumon.recording.reader import Stretch, frames_of
from gpumon.recording.runs import opened, recorded_before
from gpumon.store import NodeView, Store
from gpumon.store.row import EXTREMES

Item = Union[Header, Sample]
#: of so many devices, in 10 s: two days; of more of them, or of a longer time, buckets are longer
_MOST_BUCKETS, _AT_DEVICES = 2 * 8640, 8
#: s; of buckets that are too many in 10 s, those that series have
_LONGER_S = (60.0, 600.0)
_EXTREMES = frozenset(name for names in EXTREMES.values() for name in names)


@dataclass(eq=False)
class Track:
    """One node's stream: its name for messages, and its items from a moment on (None: all)."""

    name: str
    items: Callable[[float | None], Iterator[Item]]
    stretches: Callable[[], Iterator[Stretch]]  # with the readings that only screens show
    span_s: float = 0.0
    #: what is missing or damaged, as far as it was read
    problems: Callable[[], Sequence[str]] = tuple
    paths: Sequence[str] = ()  # of its recordings
    #: until when its frames have been read, epoch s; inf: all of them
    reached: float = -inf
    frame: Frame = field(default_factory=Frame)  # all of them in one
    _frames: Iterator[Frame] | None = None

    def read(self) -> None:
        """Read the next of its frames."""
        self._frames = self._frames or frames_of(self.stretches())
        frame = next(self._frames, None)
        if frame is None:
            self.reached = inf
            return
        whole = self.frame
        whole.extend(frame.picked(_shown))
        most = _MOST_BUCKETS * _AT_DEVICES // max(len(whole.devices), _AT_DEVICES)
        while whole.would_span(whole, most):
            longer_s = next((each for each in _LONGER_S if whole.step_s < each), 2 * whole.step_s)
            whole.coarsen(round(longer_s / whole.step_s))
        if frame.samples.seen:
            self.reached = frame.samples.last

    def frames_before(self, end: float) -> Iterator[Frame]:
        """What was before `end`, epoch s, in full, read once more: for who evaluates it."""

        def cut(stretch: Stretch) -> Stretch:
            if stretch.last < end:
                return stretch
            items = (item for item in stretch.items() if item.time < end)
            return stretch._replace(items=lambda: items, opened=lambda: None)

        return frames_of(cut(s) for s in takewhile(lambda s: s.first < end, self.stretches()))


def _shown(entity: str, field: str, rollup: Rollup) -> Rollup | None:
    """The rollup, where a screen has its series."""
    return rollup if field in SERIES.get(entity, ()) or field in _EXTREMES else None


def tracks_of(paths: Sequence[str], unread: list[str] | None = None) -> list[Track]:
    """Recordings, those of one node as one. Raises NotFoundError, GpumonError or WireError.

    With `unread` files that cannot be read are left out, and the reasons appended to it; it raises
    only where none can.
    """
    from gpumon.recording.join import by_node

    recordings, refused = opened(paths)
    if refused and (unread is None or not recordings):
        recordings = [Recording(path) for path in paths]  # which says what is wrong
    if unread is not None:
        unread += refused
    return [_track_of(parts) for _, parts in by_node(recordings)]


def _track_of(recordings: Sequence[Recording]) -> Track:
    """Of one node."""
    from gpumon.recording.join import Joined

    joined = Joined(recordings)
    return Track(
        os.path.basename(recordings[0].path),
        joined.items,
        partial(joined.stretches, shown=True),
        joined.end - joined.start,
        lambda: joined.problems,
        [recording.path for recording in recordings],
    )


#: nodes whose past is read, one after another, each in about a second for a day
MOST_NODES = 64
#: s, or samples: a stream begins so long before its first rate at most
_BEGIN_S = 5.0
#: reading so much may take seconds, which is said before
_LONG_S = 7200.0

#: a node's header, and epoch s -> its samples before that moment
Scraped = Callable[[Header, float], Union[Track, None]]


class Past:
    """Reads what was recorded of the same job before the first sample on a screen, each node once.

    A screen that begins later than its job, or plays one of several recordings, has a time axis
    that may show a stretch from before. Once it does, a thread reads what was recorded of it and
    puts it before the nodes' series: plots and marks show it, with gaps where nothing was recorded.
    Where there is no recording, another source may have samples of it. Findings and peaks still
    begin with the first sample.

    `played`: recordings that are on the screen already. After a seek back a replay has other nodes
    of the same names, and what was read before is put before these, too.
    """

    def __init__(self, played: Collection[str] = (), scraped: Scraped | None = None) -> None:
        """`scraped`: what else has a node's samples from before, where nothing was recorded."""
        self._scraped = scraped
        self._sources: set[str] = set()  # of what was found since it was told of
        self._played = {os.path.realpath(path) for path in played}
        self._folders = sorted({os.path.dirname(path) for path in self._played})
        self._read: dict[str, Frame | None] = {}  # by node; of a live one nothing is kept
        self._known: dict[str, NodeView] = {}  # those looked for, by name
        self._reading = threading.Lock()  # by one thread after another
        self._news: deque[str] = deque(maxlen=4)
        self._oldest = inf  # of what was told of
        self._stopping = False

    def want(self, store: Store, since: float) -> None:
        """Have the past of all nodes that begin after `since` (epoch s) read; does not wait."""
        new = []
        for node in store.nodes():
            known = self._known.get(node.name)
            if known is node or (known is None and len(self._known) >= MOST_NODES):
                continue
            first = _begin_of(node)
            if first is not None and since < first + node.clock_offset_s:
                self._known[node.name] = node
                new.append(node)
        if new:
            args = store, new
            threading.Thread(target=self._work, args=args, daemon=True, name="past").start()

    def stop(self) -> None:
        self._stopping = True

    def news(self) -> str:
        """What was found, once; "" where nothing is new."""
        return self._news.popleft() if self._news else ""

    # -- the thread

    def _work(self, store: Store, nodes: Sequence[NodeView]) -> None:
        with self._reading:
            oldest = min(self._put_before(store, node) for node in nodes)
            if oldest < self._oldest and not self._stopping:
                self._oldest = oldest
                since = time.strftime("%d %b %H:%M", time.localtime(oldest))
                what = " and ".join(sorted(self._sources))
                self._news.append(f"{what} of this job are shown, from {since}")
            self._sources.clear()

    def _put_before(self, store: Store, node: NodeView) -> float:
        """When what was recorded of this node begins; inf: nothing was."""
        try:
            if node.name not in self._read and not self._stopping:
                self._read[node.name] = self._frame_before(node)
        except Exception as error:  # plots of the past may fail; the dashboard must not
            self._news.append(f"earlier samples of {node.name} cannot be read: {error}")
        past = self._read.get(node.name)
        if not self._played:
            self._read[node.name] = None
        if past is None or self._stopping:
            return inf
        store.precede(node, past)
        return past.samples.first

    def _frame_before(self, node: NodeView) -> Frame | None:
        """What was recorded of it before its first sample, else scraped."""
        header, first = node.header, _begin_of(node)
        if header is None or first is None:
            return None
        own_begin = first - max(_BEGIN_S, _BEGIN_S * node.interval_s)  # of its own recording
        found = recorded_before(header, own_begin, self._folders)
        track: Track | None = None
        what = "earlier recordings"
        if found := [each for each in found if os.path.realpath(each.path) not in self._played]:
            track = _track_of(found)
            if track.span_s > _LONG_S:
                self._news.append("reading earlier recordings of this job …")
        elif self._scraped is not None:
            ask, self._scraped = self._scraped, None  # who fails is not asked for the next node
            what, track = "earlier scrapes by Prometheus", ask(header, first)
            self._scraped = ask
        if track is None:
            return None
        while track.reached < first and not self._stopping:
            track.read()
        past = track.frame.until(first)
        if not past.samples.seen:
            return None
        self._sources.add(what)
        return past


def _begin_of(node: NodeView) -> float | None:
    """When its first sample was made; scrapes may hold nothing of the host."""
    of_host = node.first_time("host", "", "cpu_percent")
    if of_host is not None or node.header is None:
        return of_host
    keys = [device.key for device in node.header.devices]
    known = [node.first_time("device", key, "busy_percent") for key in keys]
    return min((at for at in known if at is not None), default=None)
