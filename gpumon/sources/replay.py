"""Recorded streams, played by their own clock through the same path as live data."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterator, Sequence
from math import floor

from gpumon.errors import GpumonError, WireError
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.sources.base import LoadingSink, Sink
from gpumon.sources.history import History
from gpumon.sources.tracks import Track


class ReplaySource:
    """Plays streams on one clock at `speed`; the first `ahead_s` seconds are there at once.

    Streams of several nodes are merged by their own times. With `loop` they begin again at their
    end, on a clock that continues, so that the plots continue too.

    Going back, or far ahead, empties the sink and feeds it again: what is then shown is what
    playing up to there would have shown. Short streams are fed from their start; of long ones
    what was before the last five minutes is loaded as frames, once a thread has read them.
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
        self._histories = [] if loop else _histories_of(tracks)
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
        threading.Thread(target=self._read_histories, daemon=True, name="history").start()

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
        begin = float(floor((target - SINGLE_S) / EDGE_S) * EDGE_S)
        is_near = here <= target <= here + _LONG_S or begin <= self.origin
        self.progress, self._way = 0.0, (here, target)
        if self._histories and not is_near and isinstance(sink, LoadingSink):
            if self._wait_for_histories(begin, target):
                self._begin_at(sink, begin)
        elif target < here:
            sink.reset()
            self._rewind()
            self._last, self._way = self.origin, (self.origin, target)
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

    def _read_histories(self) -> None:
        """In a thread of its own, from the beginning of the replay on."""
        for history in self._histories:
            for _ in history.read():
                with self._wake:
                    if self._stopping:
                        return
                    self._wake.notify_all()

    def _wait_for_histories(self, until: float, target: float) -> bool:
        """Until they have reached `until`; False when something else is to be done first."""
        self._way = (self.origin, target)
        with self._wake:
            while self._read_until() < until:
                if self._stopping or self._target is not None:
                    return False
                self._wake.wait(_ASK_S)
                self._note_progress(self._read_until())
        return True

    def _read_until(self) -> float:
        """Until when all histories have been read."""
        return min(each.reached for each in self._histories)

    def _note_progress(self, at: float) -> None:
        begin, end = self._way
        self.progress = min(max((at - begin) / (end - begin), 0.0), 1.0) if end > begin else 0.0

    def _begin_at(self, sink: LoadingSink, begin: float) -> None:
        """Empty the sink, load what was before `begin`, and go on from there."""
        edge_s = max(history.step_s for history in self._histories)
        begin = min(begin, floor(begin / edge_s) * edge_s)
        sink.reset()
        for number, history in enumerate(self._histories):
            past = history.before(begin)
            if past.header is not None:
                node = self._nodes[number] = past.header.node
                sink.load(node, past, history.frames_before(begin))
                self._say_live(number, sink)
        self._last = begin
        streams = [_numbered(n, _going_on(t, begin)) for n, t in enumerate(self._tracks)]
        self._items = heapq.merge(*streams, key=_time_of)
        self._pending = None

    def _feed_until(self, sink: Sink, to: float) -> None:
        """Deliver what was recorded up to `to`."""
        while (entry := self._next()) is not None and entry[0] <= to:
            if self._stopping or self._target is not None:
                return
            self._note_progress(entry[0])
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


#: so much before the aim of a seek comes in single samples
SINGLE_S = 300.0
#: where that begins: buckets of frames, of up to 40 s, lie between two of these
EDGE_S = 40.0
#: so much ahead is fed about as fast
_LONG_S = 300.0
#: what the beginning of a part of a recording repeats of the time before
_PROCESS_EVENTS = ("process", "process-end")
_LOOP_AHEAD_S = 3600.0
#: of all nodes together: frames of 16 days take a fifth of a GB
_MOST_S = 16 * 86_400.0
_ASK_S = 1.0


def _time_of(entry: tuple[float, int, object]) -> float:
    return entry[0]


def _numbered(
    number: int, items: Iterator[Header | Sample]
) -> Iterator[tuple[float, int, Header | Sample]]:
    """With the time of each."""
    for item in items:
        yield item.time, number, item


def _going_on(track: Track, begin: float) -> Iterator[Header | Sample]:
    """All from `begin` on, behind who lives then."""
    for item in track.items(begin):
        if isinstance(item, Sample) and item.time < begin:
            events = [event for event in item.events if event.kind in _PROCESS_EVENTS]
            if events or item.states:
                yield item._replace(rows={}, events=events)
        else:
            yield item


def _histories_of(tracks: Sequence[Track]) -> list[History]:
    """Nothing where feeding all is as fast, or where they would take too much memory."""
    long = max(track.span_s for track in tracks) > 4 * _LONG_S
    if not long or sum(track.span_s for track in tracks) > _MOST_S:
        return []
    return [History(track.stretches) for track in tracks]


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
