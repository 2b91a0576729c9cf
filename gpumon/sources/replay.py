"""Recorded streams, played by their own clock through the same path as live data."""

from __future__ import annotations

import heapq
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import floor, inf, lcm, nextafter
from typing import Protocol, TypeVar, runtime_checkable

from gpumon.errors import GpumonError, WireError
from gpumon.model.backfill import Backfill
from gpumon.model.batch import CELL_S, ColumnBatch
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.view import Status
from gpumon.sources.backfill import FileBackfill, Item, opening
from gpumon.sources.base import Sink
from gpumon.sources.buckets import END_S
from gpumon.sources.columns import cell_of, first_time, last_time, rest, stretch, with_courses
from gpumon.sources.tracks import Track

_Some = TypeVar("_Some", bound="Header | Sample | ColumnBatch")


@runtime_checkable
class BackfillSink(Sink, Protocol):
    """One that need not be told of long ago sample by sample."""

    def backfill(self, node: str, backfills: Sequence[Backfill], items: Iterator[Item]) -> None:
        """What was before the next sample: its series in buckets, and all of it to be gathered."""

    def show(self, node: str, item: Header | Sample | ColumnBatch) -> None:
        """The same to be shown, where it comes in columns or among them."""


class ReplaySource:
    """Plays streams on one clock at `speed`; the first `ahead_s` seconds are there at once.

    Streams of several nodes are merged by their own times. With `loop` they begin again at their
    end, on a clock that continues, so that the plots continue too.

    Going back, or far ahead, empties the sink and feeds it again: what is then shown is what
    playing up to there would have shown. Short streams are fed from their start; of long ones
    what was before the last quarter of an hour is fed in buckets, once a thread has read them.
    """

    name = "replay"

    def __init__(
        self,
        tracks: Sequence[Track],
        *,
        speed: float = 1.0,
        ahead_s: float = 0.0,
        loop: bool = False,
        unread: Sequence[str] = (),
    ) -> None:
        """`unread`: why files that belong to it are not among the tracks."""
        self._tracks = tracks
        self._unread = f"{len(unread)} recordings could not be read: {unread[0]}" if unread else ""
        self.speed = speed
        self._loop = loop
        self._wake = threading.Condition()
        self._stopping = False
        self._target: float | None = None  # where to go, set by the screen's thread
        self._aim: float | None = None  # where it is going; None: not known yet
        self._paused_at: float | None = None
        self.seeking = False
        self.progress = 0.0  # of a seek, 0 to 1, on its `_way`: from and to when it must read
        self._way = (0.0, 0.0)
        self._nodes: dict[int, str] = {}  # number of the track -> node, as its header says
        self._said: dict[int, str] = {}  # of the same: what was said of its problems
        self._pending: _Item | None = None
        self._last = 0.0
        self._known_until = -inf  # series hold what was before in buckets, also where it is ahead
        firsts = []
        for track in tracks:
            first = next(track.items(None), None)
            if not isinstance(first, Header):
                raise WireError(f"{track.name} contains no recorded stream")
            firsts.append(first.time)
        self.origin = min(firsts)
        known = all(track.span_s for track in tracks) and not loop
        ends = [first + track.span_s for first, track in zip(firsts, tracks)]
        self.end = max(ends) if known else None  # epoch s
        self._backfills = [] if loop else _backfills_of(tracks)
        self.at_end = False
        #: more moments worth going to, epoch s in order; whoever finds some sets them at any time
        self.moments: Sequence[float] = ()
        self._round_s = 0.0  # by which what begins again is later than it was recorded
        self._news = ""
        self._base_time = self.origin + ahead_s
        self._base_mono = time.monotonic()

    # -- what the screen calls, from its own thread

    def start(self, sink: Sink) -> None:
        self._base_mono = time.monotonic()
        self._rewind()
        try:
            self._feed_until(sink, self._base_time)
        except GpumonError as error:
            self._lose(sink, error)
            return
        threading.Thread(target=self._run, args=(sink,), daemon=True, name="replay").start()
        threading.Thread(target=self._read_backfills, daemon=True, name="backfill").start()

    @property
    def paths(self) -> list[str]:
        """Of the recordings that are played."""
        return [path for track in self._tracks for path in track.paths]

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    def now(self) -> float:
        if self._paused_at is not None:
            return self._paused_at
        return self._base_time + (time.monotonic() - self._base_mono) * self.speed

    @property
    def aim(self) -> float:
        """Where it is going, else where it is: several steps in a row add up."""
        aim = self._aim
        return aim if self.seeking and aim is not None else self.now()

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    def pause(self) -> None:
        """Hold the clock, or let it continue."""
        with self._wake:
            if self._paused_at is None:
                self._paused_at = self.now()
            else:
                self._set_clock(self._paused_at)
                self._paused_at = None
            self._wake.notify()

    def set_speed(self, speed: float) -> None:
        """Play `speed` times as fast as it was recorded."""
        with self._wake:
            self._set_clock(self.now())
            self.speed = min(max(speed, MIN_SPEED), MAX_SPEED)
            self._wake.notify()

    def seek(self, to: float) -> None:
        """Go to a moment; before the beginning is the beginning.

        Of what begins again at its end nobody knows how far it goes: an hour ahead at a time.
        """
        with self._wake:
            if self._loop:
                to = min(to, self.now() + _LOOP_AHEAD_S)
            self._target = self._aim = max(to, self.origin)
            self.seeking = True
            self._wake.notify_all()

    def stay(self) -> None:
        """Seek no further: stay where it has come to."""
        with self._wake:
            if self.seeking:
                self._target, self._aim = _HERE, None
                self._wake.notify_all()

    def news(self) -> str:
        """What `next_event` came to, or that it begins again, once; "" before."""
        news, self._news = self._news, ""
        return news

    def next_event(self) -> None:
        """Go to the next mark, Xid, change of a device's state, or of `moments`."""
        with self._wake:
            self._target, self._aim = _NEXT_EVENT, None
            self.seeking = True
            self._wake.notify_all()

    # -- the thread

    def _run(self, sink: Sink) -> None:
        try:
            while not self._stopping:
                if self._target is not None:
                    self._go(sink, self._target)
                    continue
                entry = self._next()
                if entry is None:
                    self._finish(sink)
                elif self._wait_for(entry[0]):
                    self._deliver(entry, sink)
        except GpumonError as error:
            self._lose(sink, error)

    def _lose(self, sink: Sink, error: GpumonError) -> None:
        """The rest cannot be read; what was read stands."""
        self.seeking = False
        for node in self._nodes.values():
            sink.status(node, self._status("lost", str(error)))

    def _next(self) -> _Item | None:
        """The item that is to be delivered next, None at the end."""
        if self._pending is None:
            self._pending = next(self._items, None)
        return self._pending

    def _wait_for(self, at: float) -> bool:
        """Until the clock reaches `at`; False when something else is to be done first."""
        with self._wake:
            if self._stopping or self._target is not None:
                return False
            wait_s = None if self._paused_at is not None else (at - self.now()) / self.speed
            if wait_s is None or wait_s > 0:
                self._wake.wait(wait_s)
                return False
        return True

    def _finish(self, sink: Sink) -> None:
        """The end: say so, and wait to be sent elsewhere."""
        for number, node in self._nodes.items():
            detail = "; ".join(filter(None, ("end of the recording", self._missing(number))))
            sink.status(node, self._status("ended", detail))
        with self._wake:
            self.at_end = True
            if self._paused_at is None:
                self._paused_at = min(self.now(), self._last)
            while self._target is None and not self._stopping:
                self._wake.wait()

    def _go(self, sink: Sink, target: float) -> None:
        """Feed up to the target, unless another comes meanwhile."""
        with self._wake:
            self._target = None
            was_paused = self.paused and not self.at_end
            here = self.now()
            self.at_end = False
        if target == _NEXT_EVENT:
            target, self._news = self._find_event(here)
            with self._wake:
                self._aim = target if self._target is None else self._aim
        target = here if target == _HERE else target
        if self.end is not None:
            target = min(target, self.end + 1.0)  # what is behind has no data
        begin = float(floor((target - FINE_S) / _EDGE_S) * _EDGE_S)
        until = max(float(floor((target - _SINGLE_S) / _EDGE_S) * _EDGE_S), begin)
        is_behind = target < here or here < self._known_until
        is_near = here <= target <= here + _LONG_S and not is_behind
        is_near = is_near or begin <= self.origin + _SHORT_S
        self.progress, self._way = 0.0, (here, target)
        if self._backfills and not is_near and isinstance(sink, BackfillSink):
            if self._wait_for_backfills(until, target):
                self._begin_at(sink, begin, until)
                self._feed_columns(sink, begin, target)
        elif is_behind:
            sink.reset()
            self._known_until = -inf
            self._rewind()
            self._last, self._way = self.origin, (self.origin, target)
            self._feed_columns(sink, cell_of(self.origin), target)
        else:
            next_cell = cell_of(here) + CELL_S
            self._feed_until(sink, min(nextafter(next_cell, -inf), target))
            self._feed_columns(sink, next_cell, target)
        self._feed_until(sink, target)
        with self._wake:
            self.seeking = self._target is not None
            at = self._last if self.seeking else target
            self._set_clock(at)
            self._paused_at = at if was_paused else None

    def _find_event(self, here: float) -> tuple[float, str]:
        """When the next event is, and what it is; `here` itself when there is none."""
        after = here - self._round_s
        moment = next((at for at in self.moments if at > after + 0.5), None)
        known: dict[int, dict[int, str]] = {}
        for at, number, item in self._merged(loop=False, since=after):
            if self._stopping or self._target is not None:
                return here, ""
            if isinstance(item, Sample):
                states = {key: state.state for key, state in item.states.items()}
                told = next((each for each in item.events if each.kind in _EVENT_KINDS), None)
                changed = states != known.get(number, {})
                known[number] = states
                if moment is not None and at >= moment:
                    return moment + self._round_s, "what a finding is about begins here"
                if at > after + 0.5 and (told or changed):
                    what = f"{told.kind} {told.text}".strip() if told else "a GPU's state changed"
                    return at + self._round_s, what
        return here, "no further finding, mark or Xid"

    def _rewind(self) -> None:
        self._items = self._merged(loop=self._loop)
        self._pending = None

    def _read_backfills(self) -> None:
        """In a thread of its own, from the beginning of the replay on."""
        for backfill in self._backfills:
            for _ in backfill.read():
                with self._wake:
                    if self._stopping:
                        return
                    self._wake.notify_all()

    def _wait_for_backfills(self, until: float, target: float) -> bool:
        """Until they have reached `until`; False when something else is to be done first."""
        self._way = (self.origin, target)
        with self._wake:
            while self._gathered() < until:
                if self._stopping or self._target is not None:
                    return False
                self._wake.wait(_ASK_S)
                self._note_progress(self._gathered())
        return True

    def _gathered(self) -> float:
        """Until when all backfills have been read."""
        return min(each.reached for each in self._backfills)

    def _note_progress(self, at: float) -> None:
        begin, end = self._way
        self.progress = min(max((at - begin) / (end - begin), 0.0), 1.0) if end > begin else 0.0

    def _begin_at(self, sink: BackfillSink, begin: float, until: float) -> None:
        """Empty the sink, and feed what was before `begin` in buckets, of series up to `until`."""
        sink.reset()
        self._known_until = until
        for number, (track, backfill) in enumerate(zip(self._tracks, self._backfills)):
            backfills = [*backfill.before(begin, until), *opening(track.items(begin), begin)]
            if backfills:
                node = self._nodes[number] = backfills[0].header.node
                sink.backfill(node, backfills, backfill.items_before(begin))
                self._say_live(number, sink)
        self._last = begin
        self._go_on_from(dict.fromkeys(range(len(self._tracks)), begin))

    def _feed_columns(self, sink: Sink, begin: float, target: float) -> None:
        """Deliver what was recorded from the cell at `begin` on until shortly before the target,
        many samples at a time; nothing where that is not possible, or no faster.
        """
        until = cell_of(target - _SINGLE_S)
        is_faster = until - begin > _SINGLE_S and all(t.batches for t in self._tracks)
        is_wanted = not self._stopping and self._target is None
        if self._loop or not (is_faster and is_wanted and isinstance(sink, BackfillSink)):
            return
        fed = dict.fromkeys(range(len(self._tracks)), begin)
        streams = [_numbered(n, stretch(t, begin, until)) for n, t in enumerate(self._tracks)]
        for at, number, item in heapq.merge(*streams, key=_time_of):
            if self._stopping or self._target is not None:
                break
            self._note_progress(at)
            if isinstance(item, Header):
                self._nodes.setdefault(number, item.node)
            sink.show(self._nodes[number], item)
            if isinstance(item, Header):
                self._say_live(number, sink)
            self._last = max(self._last, last_time(item))
            fed[number] = nextafter(last_time(item), inf)
        else:
            fed = dict.fromkeys(fed, until)
        for number, node in self._nodes.items():
            sink.backfill(node, [], stretch(self._tracks[number], begin, fed[number]))
        self._go_on_from(fed)

    def _go_on_from(self, since: dict[int, float]) -> None:
        """With each track from its own moment on."""
        streams = [_numbered(n, rest(self._tracks[n], at)) for n, at in since.items()]
        self._items = heapq.merge(*streams, key=_time_of)
        self._pending = None

    def _feed_until(self, sink: Sink, to: float) -> None:
        """Deliver what was recorded up to `to`; of long ago only what series are made of."""
        on_gpus: dict[int, set[Key]] = defaultdict(set)  # of each track, who has a course
        while (entry := self._next()) is not None and entry[0] <= to:
            if self._stopping or self._target is not None:
                return
            self._note_progress(entry[0])
            if entry[0] < to - _WHOLE_S and isinstance(entry[2], Sample):
                entry = (*entry[:2], with_courses(entry[2], on_gpus[entry[1]]))
            self._deliver(entry, sink)

    def _merged(self, *, loop: bool, since: float | None = None) -> Iterator[_Item]:
        """All streams by time, once or for ever; each round's times follow on the round before."""
        shift = 0.0
        while True:
            last = self.origin
            if loop:
                self._round_s = shift
                self._news = "the recording begins again" if shift else ""
            streams = [_numbered(n, track.items(since)) for n, track in enumerate(self._tracks)]
            for at, number, item in heapq.merge(*streams, key=_time_of):
                last = max(last, at)
                yield at + shift, number, _shifted(item, shift)
            if not loop or last <= self.origin:
                return
            shift += last - self.origin + 1.0

    def _deliver(self, entry: _Item, sink: Sink) -> None:
        self._last, number, item = entry
        self._pending = None
        if isinstance(item, Header):
            node = self._nodes.setdefault(number, item.node)  # a track is of one node to its end
            sink.header(node, item)
            self._say_live(number, sink)
        else:
            sink.add(self._nodes[number], item)
            if self._missing(number) != self._said.get(number):
                self._say_live(number, sink)

    def _say_live(self, number: int, sink: Sink) -> None:
        """With what of its recording is missing, as far as that is known."""
        said = self._said[number] = self._missing(number)
        sink.status(self._nodes[number], self._status("live", said))

    def _missing(self, number: int) -> str:
        found = self._tracks[number].problems()
        if not found and not self._unread:
            return ""
        return "; ".join([*found, self._unread] if self._unread and not number else found)

    def _set_clock(self, at: float) -> None:
        self._base_time, self._base_mono = at, time.monotonic()

    def _status(self, state: str, detail: str = "") -> Status:
        return Status(state, self.now(), detail, self.name)


_Item = tuple[float, int, "Header | Sample"]  # time, number of the track, item
_NEXT_EVENT, _HERE = -1.0, -2.0
_EVENT_KINDS = ("mark", "xid", "gap")
MIN_SPEED, MAX_SPEED = 0.1, 1000.0


#: readings older than this have gone stale and ended processes are no longer listed
_WHOLE_S = 180.0
#: so much before the aim of a seek comes in single samples, with all that is not in columns
_SINGLE_S = 20.0
#: columns begin here, and a backfill ends
_EDGE_S = lcm(END_S, int(CELL_S))
#: the finest buckets of a series reach no further back
FINE_S = 920.0
#: so much ahead is fed about as fast as a backfill and what is fed behind that; so much of the
#: beginning, beside what is fed anyway
_LONG_S, _SHORT_S = 1800.0, 300.0
_LOOP_AHEAD_S = 3600.0
#: of all nodes together: backfills of 16 days take a fifth of a GB
_MOST_S = 16 * 86_400.0
_ASK_S = 1.0


def _time_of(entry: tuple[float, int, object]) -> float:
    return entry[0]


def _numbered(number: int, items: Iterator[_Some]) -> Iterator[tuple[float, int, _Some]]:
    """With the time of each, or of its first sample."""
    for item in items:
        yield first_time(item), number, item


def _backfills_of(tracks: Sequence[Track]) -> list[FileBackfill]:
    """Nothing where feeding all is as fast, or where they would take too much memory."""
    long = max(track.span_s for track in tracks) > 2 * _LONG_S
    if not long or sum(track.span_s for track in tracks) > _MOST_S:
        return []
    found = [FileBackfill(t.rolled, t.items) for t in tracks if t.rolled is not None]
    return found if len(found) == len(tracks) else []


def _shifted(item: Header | Sample, shift: float) -> Header | Sample:
    if not shift:
        return item
    if isinstance(item, Header):
        job = item.job
        if job is not None and job.start is not None:
            job = job._replace(start=job.start + shift, end=job.end and job.end + shift)
        return item._replace(time=item.time + shift, mono=item.mono + shift, job=job)
    states = {key: state._replace(since=state.since + shift) for key, state in item.states.items()}
    events = [event._replace(time=event.time + shift) for event in item.events]
    return item._replace(
        time=item.time + shift, mono=item.mono + shift, states=states, events=events
    )
