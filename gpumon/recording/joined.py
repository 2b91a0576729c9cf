"""Several recordings of one node read as one: no moment of it counts twice.

`legs` decides which of them covers which time. Those of one boot are laid on one time axis by
the node's monotonic clock, because a recorder keeps the wall clock that it began with.
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import partial
from itertools import groupby
from math import inf
from typing import (
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from gpumon.frames.frame import Frame
from gpumon.model.bounded import Known
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.recording.lanes import Mixed
from gpumon.recording.legs import OF_PROCESSES, Lanes, Leg, Stretch, lane, legs_of
from gpumon.recording.reader import Recording, frames_of
from gpumon.recording.reader import Stretch as Part
from gpumon.wire.decoder import Decoder

Item = Union[Header, Sample]
#: s; clocks that differ by less agree, and corrections are whole seconds, as on any axis
_NEAR_S = 1.0
#: s; an event comes with one of the samples that follow it
_LATE_S = 15.0
#: s; so near to a seam both of its sides may tell of an event, at times that differ by as much
_SEAM_S = 2.0
#: events that the next leg is compared with
_MAX_EVENTS = 100
#: processes that were described
_MAX_PROCESSES, _PROCESSES_BYTES = 20_000, 16 << 20


def by_node(recordings: Iterable[Recording]) -> List[Tuple[str, List[Recording]]]:
    """The recordings of each node, in order of the nodes' names and of their begin."""
    ordered = sorted(recordings, key=lambda each: (each.header.node, each.start, each.path))
    groups = groupby(ordered, key=lambda each: each.header.node)
    return [(node, list(parts)) for node, parts in groups]


class Joined:
    """The recordings of one node, in the order of their begin; read as one of them is."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.recordings = recordings
        self._shifts = _shifts(recordings)
        self.start = min(each.start + by for each, by in zip(recordings, self._shifts))
        self.end = max(each.end + by for each, by in zip(recordings, self._shifts))
        self._legs: Optional[List[Leg]] = None if len(recordings) > 1 else [_ALONE]

    @property
    def problems(self) -> List[str]:
        """What the files lack, in sentences; grows while they are read."""
        return [said for each in self.recordings for said in each.problems]

    def items(
        self, since: Optional[float] = None, decoder: Callable[[], Decoder] = Decoder
    ) -> Iterator[Item]:
        """Headers and samples, from the beginning of the frame that holds `since`.

        `decoder`: of a file that is read alone, where it makes something else of rows.
        """
        told = _Told()
        for leg in self._plan():
            if since is None or leg.until >= since:
                yield from self._once(told, self._items(leg, since, decoder))
                told.end_leg()

    def frames(self, *, shown: bool = False) -> Iterator[Frame]:
        """The same from the beginning, aggregated; see `Recording.frames`."""
        yield from frames_of(self.stretches(shown=shown))

    def stretches(self, *, shown: bool = False) -> Iterator[Part]:
        """All of it in parts. What lies in a leg is taken as it was recorded; where it does not, or
        where legs are of several recordings or moved, the samples have to be aggregated.
        """
        told = _Told()
        for leg in self._plan():
            number, *others = leg.parts
            recording = self.recordings[number]
            if others or self._shifts[number]:
                items = partial(self._once, told, self._items(leg, None))
                begin, end = max(leg.begin, self.start), min(leg.until, self.end)
                yield Part(begin, end, items, lambda: None)
            else:
                with recording:
                    for part in recording.stretches(shown=shown):
                        if part.first <= leg.until + _LATE_S and part.last > leg.begin:
                            yield part._replace(
                                items=partial(self._within, told, part, leg),
                                opened=partial(self._opened, told, part, leg),
                            )
            told.end_leg()

    @property
    def built(self) -> int:
        """Parts of files of which a frame was asked for that had to be built."""
        return sum(each.built for each in self.recordings)

    def _once(self, told: _Told, items: Iterator[Item]) -> Iterator[Item]:
        return items if len(self._plan()) == 1 else told.once(items)

    def _within(self, told: _Told, part: Part, leg: Leg) -> Iterator[Item]:
        """What of a part belongs to the leg."""
        yield from self._once(told, _between(part.items(), leg))

    def _opened(self, told: _Told, part: Part, leg: Leg) -> Optional[Frame]:
        """Its frame, where all of it does."""
        if part.first <= leg.begin or part.last > leg.until:
            return None
        frame = part.opened()
        if frame is not None and len(self._plan()) > 1:
            frame.keep_events(told.new(frame.events))
        return frame

    def _items(
        self, leg: Leg, since: Optional[float], decoder: Callable[[], Decoder] = Decoder
    ) -> Iterator[Item]:
        """Of one leg."""
        decoder = decoder if len(leg.parts) == 1 else Decoder
        parts = {number: self._part(number, leg, since, decoder) for number in leg.parts}
        return next(iter(parts.values())) if len(parts) == 1 else _mixed(parts, leg)

    def _part(
        self, number: int, leg: Leg, since: Optional[float], decoder: Callable[[], Decoder]
    ) -> Iterator[Item]:
        """Data of one recording for a leg."""
        recording, by = self.recordings[number], self._shifts[number]
        is_whole = leg.begin < recording.start + by
        from_start = is_whole and since is None
        since_here = None if from_start else max(leg.begin, since or -inf) - by
        with recording:
            items: Iterator[Item] = recording.items(since_here, decoder())
            if by:
                items = (_shifted(item, by) for item in items)
            is_all = is_whole and leg.until >= recording.end + by + _LATE_S
            yield from items if is_all else _between(items, leg)

    # -- planning

    def _plan(self) -> List[Leg]:
        if self._legs is None:
            surveys = self._surveys()
            stretches = [each for stretches, _ in surveys for each in stretches]
            self._legs = legs_of(stretches, [lanes for _, lanes in surveys])
        return self._legs

    def _surveys(self) -> List[Tuple[List[Stretch], Lanes]]:
        """Stretches and lanes of each; only those that overlap with others are looked into."""
        spans = [
            (each.start + by, each.end + by) for each, by in zip(self.recordings, self._shifts)
        ]
        return [
            _survey(recording, number, self._shifts[number])
            if any(
                start <= span[1] and span[0] <= end
                for other, span in enumerate(spans)
                if other != number
            )
            else _unlooked(recording, number, self._shifts[number])
            for number, (recording, (start, end)) in enumerate(zip(self.recordings, spans))
        ]


_ALONE = Leg(-inf, inf, {0: None})


def _shifts(recordings: Sequence[Recording]) -> List[float]:
    """Seconds by which each is to be moved so that those of one boot agree on its time.

    They agree with the one that lasts longest.
    """
    longest: Dict[str, Recording] = {}
    for each in recordings:
        known = longest.get(each.header.boot_id)
        if known is None or each.end - each.start > known.end - known.start:
            longest[each.header.boot_id] = each
    found = []
    for each in recordings:
        boot, mono = each.header.boot_id, each.header.mono
        other = longest[boot].header
        apart = (other.time - other.mono) - (each.header.time - mono)
        is_known = bool(boot) and mono > 0 and other.mono > 0
        found.append(float(round(apart)) if is_known and abs(apart) >= _NEAR_S else 0.0)
    return found


def _survey(recording: Recording, number: int, by: float) -> Tuple[List[Stretch], Lanes]:
    stretches: List[Stretch] = []
    lanes: Set[str] = set()
    interval_s = recording.header.interval_s
    first: Optional[float] = None
    last = 0.0

    def end() -> None:
        if first is not None:
            stretches.append(Stretch(number, first + by, last + by, interval_s, not stretches))

    with recording:
        for item in recording.ticks():
            if isinstance(item, Header):
                lanes.update(map(lane, item.devices))
                interval_s = item.interval_s
                continue
            if first is None or item - last > BRIDGE_PERIODS * interval_s:
                end()
                first = item
            last = item
    end()
    return stretches, frozenset(lanes)


def _unlooked(recording: Recording, number: int, by: float) -> Tuple[List[Stretch], Lanes]:
    header = recording.header
    whole = Stretch(number, recording.start + by, recording.end + by, header.interval_s, True)
    return [whole], frozenset(map(lane, header.devices))


# -- reading a leg


def _shifted(item: Item, by: float) -> Item:
    """On the axis of the others; the monotonic clock stays."""
    if isinstance(item, Header):
        return item._replace(time=item.time + by)
    assert isinstance(item, Sample)
    states = {key: state._replace(since=state.since + by) for key, state in item.states.items()}
    events = [event._replace(time=event.time + by) for event in item.events]
    return item._replace(time=item.time + by, states=states, events=events)


def _between(items: Iterable[Item], leg: Leg) -> Iterator[Item]:
    """What belongs to the leg: its samples, the events of its time, and who lives at its begin."""
    before = _Before(leg.begin)
    for item in items:
        if isinstance(item, Header):
            yield from [] if item.time > leg.until else [_not_before(item, leg.begin)]
        elif item.time <= leg.begin:
            before.take(item)
        elif item.time <= leg.until:
            yield from before.told()
            yield item._replace(events=list(filter(before.is_later, item.events)))
        elif item.time > leg.until + _LATE_S:
            return
        elif late := [event for event in item.events if _is_late(event, leg.until)]:
            mono = item.mono + leg.until - item.time
            yield Sample(leg.until, mono, {}, item.states, late)


def _is_late(event: Event, until: float) -> bool:
    return event.kind not in OF_PROCESSES and event.time <= until


class _Before:
    """Data before the leg of a recording that continues in it: live processes, newest events."""

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._living: Dict[int, Event] = {}
        self._events: List[Event] = []

    def is_later(self, event: Event) -> bool:
        """Whether the leg tells of it; of the moments around a seam both sides may."""
        return event.kind in OF_PROCESSES or event.time > self._begin - _SEAM_S

    def take(self, sample: Sample) -> None:
        for event in sample.events:
            if event.kind not in OF_PROCESSES:
                self._events += [event] if self.is_later(event) else []
            elif event.pid is not None and event.kind == "process":
                self._living[event.pid] = event
            elif event.pid is not None:
                self._living.pop(event.pid, None)

    def told(self) -> List[Sample]:
        """It, once."""
        events = [*self._living.values(), *self._events]
        self._living, self._events = {}, []
        return [Sample(self._begin, 0.0, {}, {}, events)] if events else []


class _Told:
    """Events of the legs so far: another recording may repeat them."""

    def __init__(self) -> None:
        self._processes: Known[int, Event] = Known(_MAX_PROCESSES, _PROCESSES_BYTES)
        self._before: List[Event] = []  # others, of the newest leg that is over
        self._newest: Deque[Event] = deque(maxlen=_MAX_EVENTS)  # and of this one

    def once(self, leg: Iterable[Item]) -> Iterator[Item]:
        """The next leg without repeated events."""
        for item in leg:
            if isinstance(item, Sample) and item.events:
                events = self.new(item.events)
                if not events and not item.rows:
                    continue
                item = item._replace(events=events)
            yield item

    def new(self, events: Iterable[Event]) -> List[Event]:
        """Of some of the leg, those that were not told before."""
        found = list(filter(self._is_new, events))
        self._newest.extend(event for event in found if event.kind not in OF_PROCESSES)
        return found

    def end_leg(self) -> None:
        """What follows is of another recording."""
        self._before = list(self._newest)
        self._newest.clear()

    def _is_new(self, event: Event) -> bool:
        if event.kind == "process" and event.pid is not None:
            known = self._processes.get(event.pid)
            self._processes.keep(event.pid, event)
            return known is None or known.data != event.data
        if event.kind == "process-end" and event.pid is not None:
            self._processes.pop(event.pid, None)
            return True
        return not any(_are_same(event, other) for other in self._before)


def _are_same(one: Event, other: Event) -> bool:
    """Two recordings' words of one event."""
    is_near = abs(one.time - other.time) <= _SEAM_S
    return is_near and (one.kind, one.pid, one.text) == (other.kind, other.pid, other.text)


def _not_before(header: Header, begin: float) -> Header:
    """Its clocks moved on to the begin of a leg that it was there before."""
    ahead = begin - header.time
    if ahead <= 0:
        return header
    return header._replace(time=begin, mono=header.mono + ahead if header.mono > 0 else 0.0)


def _mixed(parts: Dict[int, Iterator[Item]], leg: Leg) -> Iterator[Item]:
    """Data of several recordings for one leg, each of its own lanes, in order of time."""
    mixed = Mixed({number: lanes for number, lanes in leg.parts.items() if lanes is not None})
    streams = []
    for number, items in parts.items():
        head = next(items, None)
        if isinstance(head, Header):
            mixed.take_header(number, head)
            streams.append(_numbered(number, items))
    yield from mixed.header()
    for at, number, item in heapq.merge(*streams, key=lambda entry: entry[0]):
        if isinstance(item, Header):
            mixed.take_header(number, item)
            yield from (_not_before(header, at) for header in mixed.header())
        else:
            yield from mixed.sample(number, item)


def _numbered(
    number: int, items: Iterator[Item]
) -> Iterator[Tuple[float, int, Union[Header, Sample]]]:
    for item in items:
        assert isinstance(item, (Header, Sample))
        yield item.time, number, item
