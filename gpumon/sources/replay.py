"""Recorded streams, played by their own clock through the same path as live data."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from math import floor
from typing import Tuple

from gpumon.errors import GpumonError, WireError
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.recording.join import shifted
from gpumon.sources.base import LoadingSink, Sink
from gpumon.sources.files import Item, Track

MIN_SPEED, MAX_SPEED = 0.1, 1000.0
#: so much before the aim of a seek comes in single samples
SINGLE_S = 300.0
#: where that begins: buckets of frames, of up to 40 s, lie between two of these
EDGE_S = 40.0
#: so much ahead is fed about as fast; of a recording that is four times as long, frames are loaded
_LONG_S = 300.0
#: of all nodes together: frames of 16 days take a fifth of a GB
_MOST_S = 16 * 86_400.0
_LOOP_AHEAD_S = 3600.0
_EVENT_KINDS = ("mark", "xid", "gap")
#: what the beginning of a part of a recording repeats of the time before
_PROCESS_EVENTS = ("process", "process-end")

_Entry = Tuple[int, Item]  # number of the track, item


class ReplaySource:
    """Plays streams on one clock at `speed`; the first `ahead_s` seconds are there at once.

    Streams of several nodes are merged by their own times. With `loop` they begin again at their
    end, on a clock that continues, so that the plots continue too.

    Going back, or far ahead, empties the sink and feeds it again: what is then shown is what
    playing up to there would have shown. Short streams are fed from their start; of long ones
    what was before the last five minutes is loaded as frames, which are read once.
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
        self.tracks = tracks
        count = len(unread)
        self._unread = [f"{count} recordings could not be read: {unread[0]}"] if unread else []
        self.speed = speed
        self._loop = loop
        firsts = []
        for track in tracks:
            first = next(track.items(None), None)
            if not isinstance(first, Header):
                raise WireError(f"{track.name} contains no recorded stream")
            firsts.append(first.time)
        spans_s = [track.span_s for track in tracks]
        self.origin = min(firsts)
        ends = [first + span_s for first, span_s in zip(firsts, spans_s)]
        self.end = max(ends) if all(spans_s) and not loop else None  # epoch s
        #: whether frames are loaded: where feeding all takes longer, and they take not too much
        self._loads = not loop and max(spans_s) > 4 * _LONG_S and sum(spans_s) <= _MOST_S
        self._wake = threading.Condition()
        self._stopping = False
        #: says where to go, by where it is; set by the screen's thread
        self._wanted: Callable[[float], float] | None = None
        self._aim: float | None = None  # where it is going; None: not known yet
        self._paused_at: float | None = None
        self.seeking = False
        self.progress = 0.0  # of a seek, 0 to 1, on its `_way`: from and to when it must read
        self._way = (0.0, 0.0)
        self._nodes: dict[int, str] = {}  # number of the track -> node, as its header says
        self._said: dict[int, str] = {}  # of the same: what was said of its problems
        self._pending: _Entry | None = None
        self._last = 0.0
        self.at_end = False
        #: more moments worth going to, epoch s in order; whoever finds some sets them at any time
        self.moments: Sequence[float] = ()
        self._round_s = 0.0  # by which what begins again is later than it was recorded
        self._news = ""
        self._set_clock(self.origin + ahead_s)

    # -- what the screen calls, from its own thread

    def start(self, sink: Sink) -> None:
        self._set_clock(self._base_time)
        self._play(None)
        try:
            self._feed_until(sink, self._base_time)
        except GpumonError as error:
            self._lose(sink, error)
            return
        threading.Thread(target=self._run, args=(sink,), daemon=True, name="replay").start()

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
            self._set_clock(self.now())
            self._paused_at = self._base_time if self._paused_at is None else None
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
        if self._loop:
            to = min(to, self.now() + _LOOP_AHEAD_S)
        to = max(to, self.origin)
        self._send(lambda here: to, to)

    def stay(self) -> None:
        """Seek no further: stay where it has come to."""
        if self.seeking:
            self._send(lambda here: here)

    def next_event(self) -> None:
        """Go to the next mark, Xid, change of a device's state, or of `moments`."""
        self._send(self._find_event)

    def _send(self, wanted: Callable[[float], float], aim: float | None = None) -> None:
        with self._wake:
            self._wanted, self._aim, self.seeking = wanted, aim, True
            self._wake.notify_all()

    def news(self) -> str:
        """What `next_event` came to, or that it begins again, once; "" before."""
        news, self._news = self._news, ""
        return news

    # -- the thread

    def _run(self, sink: Sink) -> None:
        try:
            while not self._stopping:
                if (wanted := self._wanted) is not None:
                    self._go(sink, wanted)
                    continue
                self._feed_until(sink, self.now())
                if self._pending is None:
                    self._finish(sink)
                else:
                    self._wait_for(self._pending[1].time)
        except GpumonError as error:
            self._lose(sink, error)

    @property
    def _is_called(self) -> bool:
        """Whether something else is to be done first."""
        return self._stopping or self._wanted is not None

    def _lose(self, sink: Sink, error: GpumonError) -> None:
        """The rest cannot be read; what was read stands."""
        self.seeking = False
        for node in self._nodes.values():
            sink.status(node, Status("lost", self.now(), str(error), self.name))

    def _next(self) -> _Entry | None:
        """What is to be delivered next, None at the end."""
        if self._pending is None:
            self._pending = next(self._entries, None)
        return self._pending

    def _wait_for(self, at: float) -> None:
        """Until the clock reaches `at`, or something changes."""
        with self._wake:
            if not self._is_called:
                is_held = self._paused_at is not None
                self._wake.wait(None if is_held else max(0.0, (at - self.now()) / self.speed))

    def _finish(self, sink: Sink) -> None:
        """The end: say so, and wait to be sent elsewhere."""
        for number in self._nodes:
            self._say(sink, number, "ended", "end of the recording")
        with self._wake:
            self.at_end = True
            if self._paused_at is None:
                self._paused_at = min(self.now(), self._last)
            while not self._is_called:
                self._wake.wait()

    def _go(self, sink: Sink, wanted: Callable[[float], float]) -> None:
        """Feed up to what is wanted, unless something else is meanwhile."""
        with self._wake:
            self._wanted = None
            was_paused = self.paused and not self.at_end
            here, self.at_end = self.now(), False
        target = wanted(here)
        with self._wake:
            self._aim = target if self._wanted is None else self._aim
        if self.end is not None:
            target = min(target, self.end + 1.0)  # what is behind has no data
        edge = floor((target - SINGLE_S) / EDGE_S) * EDGE_S
        loads = self._loads and isinstance(sink, LoadingSink) and edge > self.origin
        begin = edge if loads else None
        self.progress, self._way = 0.0, (here, target)
        if target < here or (begin is not None and target > here + _LONG_S):
            self._way = (self.origin, target)
            if begin is None or self._has_read(begin):
                self._begin_at(sink, begin)
        self._feed_until(sink, target)
        with self._wake:
            self.seeking = self._wanted is not None
            at = self._last if self.seeking else target
            self._set_clock(at)
            self._paused_at = at if was_paused else None

    def _find_event(self, here: float) -> float:
        """When the next event is, which is told; `here` itself when there is none."""
        after = here - self._round_s
        moment = next((at for at in self.moments if at > after + 0.5), None)
        known: dict[int, dict[int, str]] = {}
        for number, item in self._merged(lambda track: track.items(after)):
            if self._is_called:
                return here
            if isinstance(item, Sample):
                states = {key: state.state for key, state in item.states.items()}
                told = next((each for each in item.events if each.kind in _EVENT_KINDS), None)
                changed = states != known.get(number, {})
                known[number] = states
                if moment is not None and item.time >= moment:
                    self._news = "what a finding is about begins here"
                    return moment + self._round_s
                if item.time > after + 0.5 and (told or changed):
                    what = f"{told.kind} {told.text}".strip() if told else ""
                    self._news = what or "a GPU's state changed"
                    return item.time + self._round_s
        self._news = "no further finding, mark or Xid"
        return here

    def _has_read(self, until: float) -> bool:
        """Read frames up to then; False when something else is to be done first."""
        while (behind := min(self.tracks, key=lambda track: track.reached)).reached < until:
            if self._is_called:
                return False
            behind.read()
            self._note_progress(behind.reached)
        return True

    def _note_progress(self, at: float) -> None:
        begin, end = self._way
        self.progress = min(max((at - begin) / (end - begin), 0.0), 1.0) if end > begin else 0.0

    def _begin_at(self, sink: Sink, begin: float | None) -> None:
        """Empty the sink, load what was before `begin` (None: nothing), and go on from there."""
        sink.reset()
        if begin is not None and isinstance(sink, LoadingSink):
            edge_s = max(track.frame.step_s for track in self.tracks)
            begin = min(begin, floor(begin / edge_s) * edge_s)
            for number, track in enumerate(self.tracks):
                past = track.frame.until(begin)
                if past.header is not None:
                    node = self._nodes[number] = past.header.node
                    sink.load(node, past, track.frames_before(begin))
                    self._say(sink, number, "live")
        self._play(begin)

    def _play(self, begin: float | None) -> None:
        self._last, self._round_s, self._pending = begin or self.origin, 0.0, None
        going_on = self._merged(lambda track: _going_on(track, begin))
        self._entries = self._rounds() if self._loop else going_on

    def _rounds(self) -> Iterator[_Entry]:
        """All for ever; each round's times follow on the round before."""
        last = self.origin + 1.0
        while last > self.origin:
            last = self.origin
            self._news = "the recording begins again" if self._round_s else ""
            for number, item in self._merged(lambda track: track.items(None)):
                last = max(last, item.time)
                yield number, _later(item, self._round_s)
            self._round_s += last - self.origin + 1.0

    def _merged(self, items_of: Callable[[Track], Iterator[Item]]) -> Iterator[_Entry]:
        """All streams by time."""
        streams = [zip(repeat(n), items_of(track)) for n, track in enumerate(self.tracks)]
        return heapq.merge(*streams, key=lambda entry: entry[1].time)

    def _feed_until(self, sink: Sink, to: float) -> None:
        """Deliver what was recorded up to `to`."""
        while (entry := self._next()) is not None and entry[1].time <= to and not self._is_called:
            self._note_progress(entry[1].time)
            self._deliver(entry, sink)

    def _deliver(self, entry: _Entry, sink: Sink) -> None:
        number, item = entry
        self._last, self._pending = item.time, None
        if isinstance(item, Header):
            node = self._nodes.setdefault(number, item.node)  # a track is of one node to its end
            sink.header(node, item)
            self._say(sink, number, "live")
        else:
            sink.add(self._nodes[number], item)
            if self._missing(number) != self._said.get(number):
                self._say(sink, number, "live")

    def _say(self, sink: Sink, number: int, state: str, detail: str = "") -> None:
        """With what of its recording is missing, as far as that is known."""
        missing = self._said[number] = self._missing(number)
        detail = "; ".join(filter(None, (detail, missing)))
        sink.status(self._nodes[number], Status(state, self.now(), detail, self.name))

    def _missing(self, number: int) -> str:
        return "; ".join([*self.tracks[number].problems(), *(() if number else self._unread)])

    def _set_clock(self, at: float) -> None:
        self._base_time, self._base_mono = at, time.monotonic()


def _going_on(track: Track, begin: float | None) -> Iterator[Item]:
    """All from `begin` on, behind who lives then."""
    for item in track.items(begin):
        if begin is None or isinstance(item, Header) or item.time >= begin:
            yield item
            continue
        events = [event for event in item.events if event.kind in _PROCESS_EVENTS]
        if events or item.states:
            yield item._replace(rows={}, events=events)


def _later(item: Item, by: float) -> Item:
    """So much later, with the node's clocks and its job."""
    if not by:
        return item
    if isinstance(item, Header) and (job := item.job) is not None and job.start is not None:
        job = job._replace(start=job.start + by, end=job.end and job.end + by)
        item = item._replace(job=job)
    return shifted(item, by)._replace(mono=item.mono + by)
