"""Several recordings of one node read as one: no moment of it counts twice.

Dashboards and `gpumon record` may have recorded one node at the same time, each with gaps of its
own. A *span* is the time that one of them covers without a gap. Spans are laid end to end, always
the one that reaches furthest, so that there are few seams: a *leg* is the time between two seams.
Recordings that saw different GPUs of the node (tasks with GPUs of their own) share a leg, each with
what only it has: a *lane* is one GPU, or the rest of the node.

Recordings of one boot are laid on one time axis by the node's monotonic clock, because a recorder
keeps the wall clock that it began with.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby, repeat
from math import inf
from typing import NamedTuple

from gpumon.frames.frame import Frame
from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Device, Event, Header, Key, Rows, Sample, State
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.recording.reader import Item, Recording, Stretch, frames_of
from gpumon.recording.writer import Living
from gpumon.wire.decoder import Decoder

#: names of lanes
Lanes = frozenset[str]
#: the lane of all that belongs to no device
_NODE = ""
#: of rows whose key names a device, alone or with a process
_OF_DEVICES = ("device", *OF_BOTH)
#: events by which each recording describes its processes
_OF_PROCESSES = ("process", "process-end")
#: s; clocks that differ by less agree, and corrections are whole seconds, as on any axis
_NEAR_S = 1.0
#: s; an event comes with one of the samples that follow it
_LATE_S = 15.0
#: s; so near to a seam both of its sides may tell of an event, at times that differ by as much
_SEAM_S = 2.0
#: events that the next leg is compared with
_MAX_EVENTS = 100


class _Span(NamedTuple):
    """Samples of one recording from `first` to `last` (epoch s) without a gap."""

    number: int  # of the recording
    first: float
    last: float
    interval_s: float
    is_beginning: bool  # of its file, from which on rollup lines can be used
    lanes: Lanes = frozenset()  # of its recording


class _Leg(NamedTuple):
    """The samples later than `begin`, up to and with `until` (epoch s).

    `parts`: which recording gives which lanes.
    """

    begin: float
    until: float
    parts: Mapping[int, Lanes]

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Those that the leg tells of; of the moments around a seam both of its sides may."""
        earliest = self.begin - _SEAM_S
        return [each for each in events if each.kind in _OF_PROCESSES or each.time > earliest]


def by_node(recordings: Iterable[Recording]) -> list[tuple[str, list[Recording]]]:
    """The recordings of each node, in order of the nodes' names and of their begin."""
    ordered = sorted(recordings, key=lambda each: (each.header.node, each.start, each.path))
    groups = groupby(ordered, key=lambda each: each.header.node)
    return [(node, list(parts)) for node, parts in groups]


class Joined:
    """The recordings of one node, in the order of their begin; read as one of them is."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.recordings = recordings
        self._shifts = _shifts(recordings)
        self._times = [
            (each.start + by, each.end + by) for each, by in zip(recordings, self._shifts)
        ]
        self.start = min(start for start, _ in self._times)
        self.end = max(end for _, end in self._times)

    @property
    def problems(self) -> list[str]:
        """What the files lack, in sentences; grows while they are read."""
        return [said for each in self.recordings for said in each.problems]

    def items(self, since: float | None = None, decoder: type[Decoder] = Decoder) -> Iterator[Item]:
        """Headers and samples, from the beginning of the frame that holds `since`.

        `decoder`: of a file that is read alone, where it makes something else of rows.
        """
        told = _Told(is_alone=len(self._legs) == 1)
        begin = -inf if since is None else since
        for leg in self._legs:
            if leg.until >= begin:
                yield from told.once(self._items(leg, begin, decoder))
                told.end_leg()

    def frames(self, *, shown: bool = False) -> Iterator[Frame]:
        """What the samples were aggregated to when they were recorded; where that cannot be read,
        what they are aggregated to now.
        """
        yield from frames_of(self.stretches(shown=shown))

    def stretches(self, *, shown: bool = False) -> Iterator[Stretch]:
        """All of it in parts. What lies in a leg is taken as it was recorded; where it does not, or
        where legs are of several recordings or moved, the samples have to be aggregated.
        """
        told = _Told(is_alone=len(self._legs) == 1)
        for leg in self._legs:
            number, *others = leg.parts
            if others or self._shifts[number]:
                items = partial(told.once, self._items(leg, -inf, Decoder))
                begin, end = max(leg.begin, self.start), min(leg.until, self.end)
                yield Stretch(begin, end, items, lambda: None)
            else:
                with self.recordings[number] as recording:
                    for part in recording.stretches(shown=shown):
                        if part.first <= leg.until + _LATE_S and part.last > leg.begin:
                            yield _cut(part, leg, told)
            told.end_leg()

    def _items(self, leg: _Leg, since: float, decoder: type[Decoder]) -> Iterator[Item]:
        """Of one leg."""
        if len(leg.parts) == 1:
            return self._part(next(iter(leg.parts)), leg, since, decoder())
        return _mixed({n: self._part(n, leg, since, Decoder()) for n in leg.parts}, leg)

    def _part(self, number: int, leg: _Leg, since: float, decoder: Decoder) -> Iterator[Item]:
        """Data of one recording for a leg."""
        by = self._shifts[number]
        with self.recordings[number] as recording:
            items = recording.items(max(leg.begin, since) - by, decoder)
            yield from _between((shifted(item, by) for item in items) if by else items, leg)

    @cached_property
    def _legs(self) -> list[_Leg]:
        if len(self.recordings) == 1:
            return [_Leg(-inf, inf, {0: frozenset()})]
        numbers = range(len(self.recordings))
        return _legs_of([span for number in numbers for span in self._spans(number)])

    def _spans(self, number: int) -> list[_Span]:
        """Of one recording; it is only looked into where it overlaps with others."""
        recording, by = self.recordings[number], self._shifts[number]
        start, end = self._times[number]
        interval_s = recording.header.interval_s
        times = [*self._times[:number], *self._times[number + 1 :]]
        lanes = _lanes_of(recording.header)
        if not any(begin <= end and start <= until for begin, until in times):
            return [_Span(number, start, end, interval_s, True, lanes)]
        spans: list[_Span] = []
        with recording:
            for item in recording.ticks():
                at = item.time + by
                if isinstance(item, Header):
                    lanes |= _lanes_of(item)
                    interval_s = item.interval_s
                elif spans and at - spans[-1].last <= BRIDGE_PERIODS * interval_s:
                    spans[-1] = spans[-1]._replace(last=at, interval_s=interval_s)
                else:
                    spans.append(_Span(number, at, at, interval_s, not spans))
        return [each._replace(lanes=lanes) for each in spans]


def _shifts(recordings: Sequence[Recording]) -> list[float]:
    """Seconds by which each is to be moved so that those of one boot agree on its time.

    They agree with the one that lasts longest.
    """
    longest: dict[str, Header] = {}
    for each in sorted(recordings, key=lambda each: each.start - each.end):
        longest.setdefault(each.header.boot_id, each.header)
    found = []
    for header in (each.header for each in recordings):
        other = longest[header.boot_id]
        apart = (other.time - other.mono) - (header.time - header.mono)
        is_known = bool(header.boot_id) and header.mono > 0 and other.mono > 0
        found.append(float(round(apart)) if is_known and abs(apart) >= _NEAR_S else 0.0)
    return found


# -- planning


def _lane(device: Device) -> str:
    """What a device is called in every recording: by its UUID, else by its place."""
    return device.uuid or f"at {device.label}"


def _lanes_of(header: Header) -> Lanes:
    return frozenset((_NODE, *map(_lane, header.devices)))


def _legs_of(spans: Sequence[_Span]) -> list[_Leg]:
    """The whole of time in legs."""
    names = sorted({name for each in spans for name in each.lanes})
    covers = {name: _cover(each for each in spans if name in each.lanes) for name in names}
    edges = sorted({begin for cover in covers.values() for begin, _ in cover})
    legs: list[_Leg] = []
    for begin, until in zip(edges, [*edges[1:], inf]):
        shares: dict[int, set[str]] = {}
        for name, cover in covers.items():
            at = bisect_left(cover, (begin, inf)) - 1  # who holds what follows
            shares.setdefault(cover[max(at, 0)][1], set()).add(name)
        parts = {number: frozenset(share) for number, share in shares.items()}
        if legs and legs[-1].parts == parts:
            legs[-1] = legs[-1]._replace(until=until)
        else:
            legs.append(_Leg(begin, until, parts))
    return legs


def _cover(spans: Iterable[_Span]) -> list[tuple[float, int]]:
    """From which moment on (-inf first) which recording is used: fewest seams, deterministic."""
    waiting = sorted(spans, key=lambda each: (each.first, -each.last, each.number), reverse=True)
    found: list[tuple[float, int]] = []
    here: _Span | None = None
    while waiting:  # of those that have begun: the one that reaches furthest
        best = waiting.pop()
        until = best.first + best.interval_s / 2
        if here is not None:
            until = max(until, here.last + here.interval_s)
        while waiting and waiting[-1].first <= until:
            other = waiting.pop()
            if other.last > best.last + min(best.interval_s, other.interval_s):
                best = other  # of two that end together the one that began first
        if here is None or best.last > here.last:
            seam = _seam(here, best)
            found.append((max(seam, found[-1][0]) if found else seam, best.number))
            here = best
    return found


def _seam(here: _Span | None, following: _Span) -> float:
    """Between samples of either: where the next one begins its file, or where this one ends."""
    if here is None:
        return -inf
    half_s = min(here.interval_s, following.interval_s) / 2
    if following.is_beginning or following.first > here.last:
        return following.first - half_s
    return here.last + half_s


# -- reading a leg


def shifted(item: Item, by: float) -> Item:
    """On the axis of the others; the monotonic clock stays."""
    if isinstance(item, Header):
        return item._replace(time=item.time + by)
    states = {key: state._replace(since=state.since + by) for key, state in item.states.items()}
    events = [event._replace(time=event.time + by) for event in item.events]
    return item._replace(time=item.time + by, states=states, events=events)


def _not_before(header: Header, begin: float) -> Header:
    """Its clocks moved on to the begin of a leg that it was there before."""
    ahead = begin - header.time
    if ahead <= 0:
        return header
    return header._replace(time=begin, mono=header.mono + ahead if header.mono > 0 else 0.0)


def _between(items: Iterator[Item], leg: _Leg) -> Iterator[Item]:
    """What belongs to the leg: its samples, the events of its time, and who lives at its begin."""
    living, near = Living(), list[Event]()  # what came before; both sides of a seam may tell of it
    for item in items:
        if isinstance(item, Header):
            if item.time <= leg.until:
                yield _not_before(item, leg.begin)
            continue
        others = [event for event in item.events if event.kind not in _OF_PROCESSES]
        if item.time > leg.until + _LATE_S:
            return
        if item.time > leg.until:
            if late := [event for event in others if event.time <= leg.until]:
                mono = item.mono + leg.until - item.time
                yield Sample(leg.until, mono, {}, item.states, late)
        elif item.time <= leg.begin:
            living.take(item.events)
            near += leg.events(others)
        else:
            if living or near or others:
                events = [*living.values(), *near, *leg.events(item.events)]
                item = item._replace(events=events)
                living, near = Living(), []
            yield item


def _cut(part: Stretch, leg: _Leg, told: _Told) -> Stretch:
    """What of a part of a recording belongs to the leg."""

    def opened() -> Frame | None:
        """Its frame, where all of it does."""
        is_whole = leg.begin < part.first and part.last <= leg.until
        frame = part.opened() if is_whole else None
        if frame is not None and not told.is_alone:
            frame.keep_events(told.new(leg.events(frame.events)))
        return frame

    return part._replace(items=lambda: told.once(_between(part.items(), leg)), opened=opened)


class _Told:
    """Events of the legs so far: another recording may repeat them."""

    def __init__(self, *, is_alone: bool) -> None:
        """`is_alone`: there is one leg, of one recording, which is left as it is."""
        self.is_alone = is_alone
        self._living = Living()  # as they were described
        self._before: list[Event] = []  # others, of the newest leg that is over
        self._newest: deque[Event] = deque(maxlen=_MAX_EVENTS)  # and of this one

    def once(self, leg: Iterable[Item]) -> Iterator[Item]:
        """The next leg without repeated events."""
        for item in leg:
            if isinstance(item, Sample) and item.events and not self.is_alone:
                events = self.new(item.events)
                if not events and not item.rows:
                    continue
                item = item._replace(events=events)
            yield item

    def new(self, events: Iterable[Event]) -> list[Event]:
        """Of some of the leg, those that were not told before."""
        found = list(filter(self._is_new, events))
        self._newest.extend(event for event in found if event.kind not in _OF_PROCESSES)
        return found

    def end_leg(self) -> None:
        """What follows is of another recording."""
        self._before = list(self._newest)
        self._newest.clear()

    def _is_new(self, event: Event) -> bool:
        if event.kind in _OF_PROCESSES and event.pid is not None:
            known = self._living.get(event.pid)
            self._living.take([event])
            return known is None or event.kind == "process-end" or known.data != event.data
        return not any(
            abs(event.time - other.time) <= _SEAM_S
            and (event.kind, event.pid, event.text) == (other.kind, other.pid, other.text)
            for other in self._before
        )


# -- recordings that each saw other GPUs at the same time


def _mixed(parts: Mapping[int, Iterator[Item]], leg: _Leg) -> Iterator[Item]:
    """Data of several recordings for one leg, each of its own lanes, in order of time."""
    mixed = _Mixed(leg.parts)
    streams = []
    for number, items in parts.items():
        head = next(items, None)
        if isinstance(head, Header):
            mixed.add_header(number, head)
            streams.append(zip(repeat(number), items))
    yield from mixed.header()
    for number, item in heapq.merge(*streams, key=lambda entry: entry[1].time):
        if isinstance(item, Header):
            mixed.add_header(number, item)
            yield from (_not_before(header, item.time) for header in mixed.header())
        else:
            yield from mixed.sample(number, item)


class _Mixed:
    """Renumbers devices and leaves out what another recording covers. Each lane has one source."""

    def __init__(self, lanes: Mapping[int, Lanes]) -> None:
        """`lanes` of each recording, by its number."""
        self._lanes = lanes
        self._headers: dict[int, Header] = {}
        self._keys: dict[str, int] = {}  # lane -> device number in this stream
        self._ours: dict[int, dict[Key, int]] = {}  # of each recording: device number -> ours
        self._states: dict[int, dict[int, State]] = {}

    def add_header(self, number: int, header: Header) -> None:
        self._headers[number] = header
        self._ours[number] = {
            device.key: self._keys.setdefault(_lane(device), len(self._keys))
            for device in header.devices
            if _lane(device) in self._lanes[number]
        }

    def header(self) -> list[Header]:
        """Of all together; none as long as the node itself is not known."""
        base = next((h for n, h in self._headers.items() if _NODE in self._lanes[n]), None)
        devices = [
            device._replace(key=self._ours[number][device.key])
            for number, header in self._headers.items()
            for device in header.devices
            if device.key in self._ours[number]
        ]
        devices.sort(key=lambda device: device.index)
        return [] if base is None else [base._replace(devices=devices)]

    def sample(self, number: int, sample: Sample) -> list[Sample]:
        """The sample of one recording without what others cover; none if nothing is left."""
        ours, is_of_node = self._ours[number], _NODE in self._lanes[number]
        rows: Rows = {}
        for entity, table in sample.rows.items():
            if entity in _OF_DEVICES:
                moved = ((_moved(key, ours), row) for key, row in table.items())
                table = {key: row for key, row in moved if key is not None}
            if table and (is_of_node or entity in _OF_DEVICES):
                rows[entity] = table
        self._states[number] = {
            ours[key]: state for key, state in sample.states.items() if key in ours
        }
        events = [
            event if event.device is None else event._replace(device=ours.get(event.device))
            for event in sample.events
            if event.kind in _OF_PROCESSES
            or (is_of_node if event.device is None else event.device in ours)
        ]
        if not rows and not events:
            return []
        together = {key: each for own in self._states.values() for key, each in own.items()}
        return [sample._replace(rows=rows, states=together, events=events)]


def _moved(key: Key, ours: Mapping[Key, int]) -> Key | None:
    """A row's key with our number of its device; None where another recording has that."""
    if not isinstance(key, tuple):
        return ours.get(key)
    return (ours[key[0]], key[1]) if key[0] in ours else None
