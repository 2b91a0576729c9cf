"""What earlier recordings of the same job tell of the time before the first sample on the screen.

A screen that begins later than its job, or plays one of several recordings, has a time axis that
may show a stretch from before. Once it does, what was recorded of that stretch is read by a thread
and put before the nodes' series: plots and marks show it, with gaps where nothing was recorded.
Where there is no recording, another source may have samples of it.
Findings and peaks still begin with the first sample.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from math import inf
from typing import Union

from gpumon.frames.builder import built
from gpumon.frames.frame import Frame
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from gpumon.recording.runs import recorded_before
from gpumon.store import NodeView, Store

#: nodes whose past is read, one after another, each in about a second for a day
MOST_NODES = 64
#: s, or samples: a stream begins so long before its first rate at most
_BEGIN_S = 5.0
#: reading so much may take seconds, which is said before
_LONG_S = 7200.0


#: a node's header, and epoch s -> its samples before that moment, after a header
Scraped = Callable[[Header, float], Iterable[Union[Header, Sample]]]
_RECORDINGS, _SCRAPES = "earlier recordings", "earlier scrapes by Prometheus"


class Past:
    """Reads it for the nodes of one screen, each node once.

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
        self._waiting: deque[NodeView] = deque()
        self._lock = threading.Lock()
        self._news: deque[str] = deque(maxlen=4)
        self._oldest = inf  # of what was told of
        self._stopping = False
        self._is_reading = False

    def want(self, store: Store, since: float) -> None:
        """Have the past of all nodes that begin after `since` (epoch s) read; does not wait."""
        for node in store.nodes():
            known = self._known.get(node.name)
            if known is node or (known is None and len(self._known) >= MOST_NODES):
                continue
            first = _begin_of(node)
            if first is not None and since < first + node.clock_offset_s:
                self._known[node.name] = node
                self._waiting.append(node)
        with self._lock:
            if self._waiting and not self._is_reading:
                self._is_reading = True
                threading.Thread(target=self._work, args=(store,), daemon=True, name="past").start()

    def stop(self) -> None:
        self._stopping = True

    def news(self) -> str:
        """What was found, once; "" where nothing is new."""
        return self._news.popleft() if self._news else ""

    # -- the thread

    def _work(self, store: Store) -> None:
        oldest = inf
        while node := self._next():
            try:
                oldest = min(oldest, self._put_before(store, node))
            except Exception as error:  # plots of the past may fail; the dashboard must not
                self._news.append(f"earlier samples of {node.name} cannot be read: {error}")
        if oldest < self._oldest and not self._stopping:
            self._oldest = oldest
            since = time.strftime("%d %b %H:%M", time.localtime(oldest))
            what = " and ".join(sorted(self._sources))
            self._news.append(f"{what} of this job are shown, from {since}")
        self._sources.clear()

    def _next(self) -> NodeView | None:
        with self._lock:
            if self._waiting and not self._stopping:
                return self._waiting.popleft()
            self._is_reading = False
            return None

    def _put_before(self, store: Store, node: NodeView) -> float:
        """When what was recorded of this node begins; inf: nothing was."""
        first = _begin_of(node)
        if node.name not in self._read and node.header is not None and first is not None:
            own_begin = first - max(_BEGIN_S, _BEGIN_S * node.interval_s)  # of its own recording
            found = recorded_before(node.header, own_begin, self._folders)
            found = [each for each in found if os.path.realpath(each.path) not in self._played]
            if found:
                self._read[node.name] = self._gathered(found, first)
                self._sources.add(_RECORDINGS)
            else:
                self._read[node.name] = self._of_scrapes(node.header, first)
        past = self._read.get(node.name)
        if not self._played:
            self._read[node.name] = None
        if past is None or self._stopping:
            return inf
        store.precede(node, past)
        return past.samples.first if past.samples.seen else inf

    def _of_scrapes(self, header: Header, end: float) -> Frame | None:
        if self._scraped is None:
            return None
        ask, self._scraped = self._scraped, None  # who fails is not asked for the next node
        items = ask(header, end)
        self._scraped = ask
        past = Frame()
        for frame in built(item for item in items if item.time < end):
            if self._stopping:
                return None
            past.extend(frame)
        if not past.samples.seen:
            return None
        self._sources.add(_SCRAPES)
        return past

    def _gathered(self, recordings: Sequence[Recording], end: float) -> Frame:
        """What they hold of the time before `end`."""
        from gpumon.recording.join import Joined
        from gpumon.sources.history import History

        joined = Joined(recordings)
        if joined.end - joined.start > _LONG_S:
            self._news.append("reading earlier recordings of this job …")
        history = History(partial(joined.stretches, shown=True))
        for _ in history.read():
            if self._stopping:
                break
        return history.before(end)


def _begin_of(node: NodeView) -> float | None:
    """When its first sample was made; scrapes may hold nothing of the host."""
    of_host = node.first_time("host", "", "cpu_percent")
    if of_host is not None or node.header is None:
        return of_host
    keys = [device.key for device in node.header.devices]
    known = [node.first_time("device", key, "busy_percent") for key in keys]
    return min((at for at in known if at is not None), default=None)
