"""A node's own time, freed of whatever is done to its clock.

A sample has the node's wall clock `t` and its monotonic clock `m`. Their difference stays the same
from sample to sample. Where it changes, the wall clock was set, the node slept, or it was started
again. The time that really passed is then what `m` shows, unless `m` stood still by our own clock
on arrival. On the axis time never goes back, and no jump is left in it.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple, Union

from gpumon.model.sample import Event, Header, Sample, State
from gpumon.model.units import age_text

#: s; a difference of t and m that changes by less was read late, or drifts
_STEP_S = 0.75
#: s; two machines' clocks that differ by less agree: lines are on their way for about so long
NEAR_S = 2.0
#: s; a gap in which m went on by so much more than t: m is another clock's
_DAY_S = 86_400.0
#: s; how much older than the sample before an event may be that comes with a sample
_LATE_S = 60.0
#: notes about one node's clock; enough for a clock that is set all the time
_MAX_NOTES = 100


class Axis:
    """Of one node, across its successive streams. Used by one thread at a time.

    All corrections are whole seconds: ticks on whole seconds stay there, one in each bucket. What
    is on an axis comes out of another one as it is.
    """

    def __init__(self, *, ours: bool = False) -> None:
        """`ours`: on our clock, where the node's differs by more than `NEAR_S`."""
        self._ours = ours
        self._boot = ""
        self._is_new_boot = True  # its monotonic clock was not read yet
        self._base = 0.0  # the axis less m, as m was read
        self._given_base = 0.0  # the axis less m, as m is passed on
        self._was_set = False  # in this boot: m is then passed on with the spacing of the axis
        self._shift = 0.0  # the axis less the wall clock, whole seconds
        self._time = self._mono = 0.0  # the newest, as they were read
        self._received: Optional[float] = None
        self._at: Optional[float] = None  # the newest on the axis
        self._since: Dict[int, Tuple[float, float]] = {}  # device -> since when, as read and placed
        self._is_moved = False  # the shift changed with the newest header or sample
        self._note = ""  # what happened to the clock, for the next sample
        self._notes = 0

    def item(
        self, item: Union[Header, Sample], received: Optional[float] = None
    ) -> Union[Header, Sample]:
        """A header or a sample with its place on the axis."""
        if isinstance(item, Header):
            return self.header(item, received)
        return self.sample(item, received)

    def header(self, header: Header, received: Optional[float] = None) -> Header:
        """The header with its place on the axis; `received`: our clock when it came."""
        if header.boot_id != self._boot:
            self._boot, self._is_new_boot = header.boot_id, True
        elif self._at is not None and header.mono < self._mono:  # repeated, with other notes
            return header._replace(time=min(header.time + self._shift, self._at))
        at, mono = self._place(header.time, header.mono, received)
        if (at, mono) == (header.time, header.mono):
            return header
        return header._replace(time=at, mono=mono)

    def sample(self, sample: Sample, received: Optional[float] = None) -> Sample:
        """The sample, its events and states with their places on the axis."""
        before = self._at
        at, mono = self._place(sample.time, sample.mono, received)
        by = at - sample.time
        states = self._states(sample.states, by, at) if sample.states else sample.states
        is_same = not (by or self._is_moved or self._note) and states is sample.states
        if is_same and mono == sample.mono:
            return sample
        events = [_moved(event, by, before, at) for event in sample.events]
        if self._note:
            events.append(Event(at, "note", text=self._note))
            self._note = ""
        return sample._replace(time=at, mono=mono, events=events, states=states)

    def moment(self, time: float) -> float:
        """Where a time of the node's wall clock of now lies."""
        return time + self._shift

    def _states(self, states: Dict[int, State], by: float, at: float) -> Dict[int, State]:
        """They began when they were first reported, wherever the clock stands by now."""
        since, self._since = self._since, {}
        for key, state in states.items():
            read, placed = since.get(key, (None, 0.0))
            if read != state.since:
                placed = min(state.since + by, at) if by else state.since
            self._since[key] = state.since, placed
        if all(state.since == self._since[key][1] for key, state in states.items()):
            return states
        return {key: state._replace(since=self._since[key][1]) for key, state in states.items()}

    # -- placing

    def _place(self, time: float, mono: float, received: Optional[float]) -> Tuple[float, float]:
        """(t, m) on the axis."""
        has_mono = mono > 0  # 0: not read yet
        if has_mono and mono < self._mono and not self._is_new_boot and self._agree(time, mono):
            self._is_moved = False
            return time + self._shift, mono  # it comes late, or again
        starts = self._is_new_boot or (has_mono and mono < self._mono)
        before = self._shift
        if self._at is None:
            if self._ours and received is not None:
                self._correct(received - time)
        elif starts:
            self._start_again(self._at, time, received)
        elif has_mono:
            self._go_on(time, mono, received)
        self._tell(before - self._shift)
        at = time + self._shift
        at = at if self._at is None else max(at, self._at)
        if has_mono:
            if starts:
                self._base = self._given_base = at - mono
                self._is_new_boot = self._was_set = False
            self._mono = mono
        self._time, self._at = time, at
        self._received = self._received if received is None else received
        return at, at - self._given_base if self._was_set and has_mono else mono

    def _start_again(self, at: float, time: float, received: Optional[float]) -> None:
        """Another boot: m does not show how long it took; our clock does, else the wall clock."""
        there = time + self._shift
        if received is not None and self._ours:
            there = received
        elif received is not None and self._received is not None:
            there = at + received - self._received
        self._correct(max(there, at) - time)

    def _correct(self, shift: float) -> None:
        """Take this shift, unless the one so far is as good."""
        if abs(shift - self._shift) > NEAR_S:
            self._shift = float(round(shift))

    def _agree(self, time: float, mono: float) -> bool:
        """Whether the two clocks differ by as much as before."""
        return abs(time + self._shift - mono - self._base) <= _STEP_S

    def _go_on(self, time: float, mono: float, received: Optional[float]) -> None:
        """The same boot: a clock was set if the two do not differ by what they did."""
        if self._agree(time, mono):
            return
        by_wall, by_mono = time - self._time, mono - self._mono
        if received is not None and self._received is not None:
            # while a node slept m stood still; what a stall held up arrives all at once
            ours = received - self._received
            slept = ours > _STEP_S and abs(ours - by_wall) < abs(ours - by_mono)
        else:
            slept = 0 <= by_wall < by_mono - _DAY_S
        if slept:
            self._base += by_wall - by_mono
        self._shift = float(round(mono + self._base - time))
        self._was_set = True

    def _tell(self, ahead_s: float) -> None:
        """Note by how much more the node's clock is ahead of the axis than before."""
        self._is_moved = ahead_s != 0
        if abs(ahead_s) <= NEAR_S or self._notes >= _MAX_NOTES:
            return
        self._notes += 1
        by = age_text(abs(ahead_s))
        if self._at is None:
            found = f"is {by} {'ahead of' if ahead_s > 0 else 'behind'} ours"
        else:
            found = f"was set {'forward' if ahead_s > 0 else 'back'} by {by}"
        self._note = f"the node's clock {found}; times are corrected"


def _moved(event: Event, by: float, before: Optional[float], at: float) -> Event:
    """An event that comes with a sample, by what the sample was moved by."""
    earliest = event.time + by if before is None else before - _LATE_S
    event = event._replace(time=min(max(event.time + by, earliest), at))
    start = event.data.get("start")
    if event.kind == "process" and isinstance(start, (int, float)):
        return event._replace(data={**event.data, "start": start + by})
    return event
