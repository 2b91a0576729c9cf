"""Counters, coverage and peaks of a stretch of time, to be joined with those of the next one.

Memory does not grow with the number of samples.
"""

from __future__ import annotations

from math import floor, inf
from typing import Any, Optional, Sequence

from gpumon.model.fields import FIELDS
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.model.untrusted import MAX_TIME, finite_of, time_of

_MINUTE_S = 60
#: a counter may be brought up to date so much later than it is read
_LATE_S = 2.0
_MOST = 1e25  # more than any counter times any time

Point = tuple[float, float]  # epoch s, value


def of_field(value: object, entity: str, name: str) -> float:
    """A number of a file, in the range of this reading. Raises TypeError, ValueError."""
    field, found = FIELDS[entity][name], finite_of(value, _MOST)
    if not field.low <= found <= field.high:
        raise ValueError("a number out of range")
    return found


def optional(value: object, entity: str, name: str) -> Optional[float]:
    """The same, or none."""
    return None if value is None else of_field(value, entity, name)


def greatest(*values: Optional[float]) -> Optional[float]:
    """Of those that are known."""
    return max((float(each) for each in values if each is not None), default=None)


class Growth:
    """How much a counter grew; across a gap too, which is why energy is taken from one.

    A counter that fell back began anew (driver loaded, node booted): what it counted in between
    is not known and adds nothing.
    """

    __slots__ = ("_refused", "begin", "end", "grown", "most_per_s")

    def __init__(self, most_per_s: float = inf) -> None:
        """`most_per_s`: it cannot grow faster. Once it did, its growth is not known."""
        self.begin: Optional[Point] = None  # its first and its newest reading
        self.end: Optional[Point] = None
        self.grown = 0.0
        self.most_per_s = most_per_s
        self._refused: Optional[Point] = None  # so much, in so many seconds

    def add(self, value: float, time: float) -> None:
        """The counter stood at `value` at `time` (epoch s)."""
        if self.end is None:
            self.begin = self.end = (time, value)
            return
        before_s, before = self.end
        grown, passed_s = max(value - before, 0.0), max(time - before_s, 0.0)
        if grown > self.most_per_s * (passed_s + _LATE_S):
            self._refused = self._refused or (grown, passed_s)
        self.grown += grown
        self.end = (time, value)

    def extend(self, later: Growth) -> None:
        """It was counted on."""
        if later.begin is None or later.end is None:
            return
        grown = later.grown
        if self.end is not None and later.begin[0] < self.end[0]:  # of another recording
            grown = max(grown - max(self.end[1] - later.begin[1], 0.0), 0.0)
        elif later.begin != self.end:
            self.add(later.begin[1], later.begin[0])
        self.begin = self.begin or later.begin
        self.grown += grown
        self._refused = self._refused or later.refused
        self.end = later.end

    def successor(self) -> Growth:
        """What goes on counting from here."""
        found = Growth(self.most_per_s)
        found.begin = found.end = self.end
        return found

    @property
    def refused(self) -> Optional[Point]:
        """By how much it grew in how many seconds, in a step or in all, where nothing can grow as
        fast.
        """
        if self._refused is None and self.begin is not None and self.end is not None:
            passed_s = self.end[0] - self.begin[0]
            if self.grown > self.most_per_s * (passed_s + _LATE_S):
                return self.grown, passed_s
        return self._refused

    @property
    def newest(self) -> Optional[float]:
        """Where the counter stood last; None before it was read."""
        return None if self.end is None else self.end[1]

    def result(self) -> Optional[float]:
        """In the counter's unit; None before it was read twice, and where it was refused."""
        return self.grown if self.begin != self.end and self.refused is None else None

    def told(self) -> list[Any]:
        """As a file holds it."""
        return [self.begin, self.end, self.grown, self.refused]

    def take(self, told: Sequence[Any], entity: str, name: str) -> None:
        """Of this reading. Raises what Python does on what `told` never gives."""
        begin, end, grown, refused = told
        self.begin, self.end = (
            None if each is None else _point(each, entity, name) for each in (begin, end)
        )
        if (self.begin is None) != (self.end is None):
            raise ValueError("a counter with one end")
        self.grown = of_field(grown, entity, name)
        if refused is not None:
            value, seconds = refused
            self._refused = of_field(value, entity, name), abs(time_of(seconds))


def _point(told: Sequence[Any], entity: str, name: str) -> Point:
    time, value = told
    return time_of(time), of_field(value, entity, name)


#: of `Coverage`, as a file holds them
_AMOUNTS = ("seen", "first", "last", "gaps", "longest_gap_s", "covered_s", "interval_s")


class Coverage:
    """The samples of a node: when they came, how much of the time they stand for, and gaps.

    A sample stands until the next, or for one interval where the next comes later than
    `BRIDGE_PERIODS` intervals: what lies between is a gap.
    """

    __slots__ = _AMOUNTS

    def __init__(self) -> None:
        self.seen = self.gaps = 0
        self.first = self.last = 0.0  # epoch s of the earliest and the latest
        self.longest_gap_s = 0.0
        self.covered_s = 0.0  # without what the last one stands for
        self.interval_s = 1.0

    def add(self, time: float, interval_s: float) -> None:
        """A sample came."""
        if self.seen:
            self._pass(time, interval_s)
        else:
            self.first = self.last = time
        self.seen += 1
        self.interval_s = interval_s
        self.first, self.last = min(self.first, time), max(self.last, time)

    def _pass(self, time: float, interval_s: float) -> None:
        apart_s = time - self.last
        period_s = max(interval_s, self.interval_s)
        if apart_s > BRIDGE_PERIODS * period_s:
            self.gaps += 1
            self.longest_gap_s = max(self.longest_gap_s, apart_s - period_s)
        is_bridged = 0 <= apart_s <= BRIDGE_PERIODS * period_s
        self.covered_s += apart_s if is_bridged else self.interval_s

    def extend(self, later: Coverage) -> None:
        """More samples came."""
        if not later.seen:
            return
        if self.seen:
            self._pass(later.first, later.interval_s)
        self.first = min(self.first, later.first) if self.seen else later.first
        self.last = max(self.last, later.last) if self.seen else later.last
        self.seen += later.seen
        self.gaps += later.gaps
        self.longest_gap_s = max(self.longest_gap_s, later.longest_gap_s)
        self.covered_s += later.covered_s
        self.interval_s = later.interval_s

    @property
    def total_s(self) -> float:
        """What all samples stand for."""
        return self.covered_s + self.interval_s if self.seen else 0.0

    def told(self) -> list[float]:
        """As a file holds it."""
        return [getattr(self, name) for name in _AMOUNTS]

    def take(self, told: Sequence[Any]) -> None:
        """Raises what Python does on what `told` never gives."""
        for name, value in zip(_AMOUNTS, told, strict=True):
            setattr(self, name, finite_of(value, _MOST))
        self.seen, self.gaps = int(self.seen), int(self.gaps)
        amounts = self.seen, self.gaps, self.longest_gap_s, self.covered_s
        is_possible = 0 <= min(amounts) <= max(amounts) <= 2 * MAX_TIME
        if not (is_possible and 1e-3 <= self.interval_s <= 1e6):
            raise ValueError("impossible samples")
        if not -MAX_TIME <= self.first <= self.last <= MAX_TIME:
            raise ValueError("samples out of order")


_CORES = ("job", "cpu_cores_used")
_Minute = tuple[int, float, float]  # number, s measured of it, value · s


class MinutePeak:
    """The largest mean of a minute of the clock, of which at least half was measured.

    The same minutes as on the screen (`model.series`), so that both name the same peak.
    """

    __slots__ = ("_ends", "_first", "_peak", "_standing", "interval_s")

    def __init__(self) -> None:
        self.interval_s = 1.0
        self._first: Optional[float] = None  # when it was first asked for
        #: the first minute, of which there may be more before, and the newest, more behind
        self._ends: list[_Minute] = []
        self._peak: Optional[float] = None  # of those between
        self._standing: Optional[Point] = None  # the newest reading

    def add(self, time: float, value: Optional[float]) -> None:
        """The reading at `time`; None: it is missing, and a gap begins."""
        self._first = time if self._first is None else self._first
        self._stand(time)
        self._standing = None if value is None else (time, value)

    def _stand(self, until: float) -> None:
        if self._standing is None:
            return
        time, value = self._standing
        stood_s = until - time
        if not 0 <= stood_s <= BRIDGE_PERIODS * self.interval_s:
            stood_s = self.interval_s
        self._account(floor(time / _MINUTE_S), stood_s, value * stood_s)

    def _account(self, minute: int, seconds: float, total: float) -> None:
        for at, (number, known_s, known) in enumerate(self._ends):
            if number == minute:
                self._ends[at] = number, known_s + seconds, known + total
                return
        self._ends.append((minute, seconds, total))
        if len(self._ends) > 2:
            self._peak = greatest(self._peak, _mean(self._ends.pop(1)))

    def extend(self, later: MinutePeak) -> None:
        """It was read on."""
        if later._first is None:
            return
        self._first = later._first if self._first is None else self._first
        self._stand(later._first)
        for each in later._ends:
            self._account(*each)
        self._peak = greatest(self._peak, later._peak)
        self._standing, self.interval_s = later._standing, later.interval_s

    def peak60(self) -> Optional[float]:
        """None as long as no minute was measured well enough."""
        whole = MinutePeak()
        whole.extend(self)
        whole._stand(inf)
        return greatest(whole._peak, *map(_mean, whole._ends))

    def told(self) -> list[Any]:
        """As a file holds it."""
        head, tail = (*self._ends, None, None)[:2]
        return [self._first, head, tail, self._peak, self._standing]

    def take(self, told: Sequence[Any]) -> None:
        """Raises what Python does on what `told` never gives."""
        first, head, tail, peak, standing = told
        self._first = None if first is None else time_of(first)
        self._peak = optional(peak, *_CORES)
        self._ends = [_minute(each) for each in (head, tail) if each is not None]
        self._standing = None if standing is None else _point(standing, *_CORES)


def _mean(minute: _Minute) -> Optional[float]:
    _, seconds, total = minute
    return total / seconds if seconds * 2 >= _MINUTE_S else None


def _minute(told: Sequence[Any]) -> _Minute:
    number, seconds, total = (finite_of(each, _MOST) for each in told)
    if not 0 <= seconds <= MAX_TIME:
        raise ValueError("an impossible minute")
    of_field(total / (seconds or 1.0), *_CORES)
    return int(time_of(number)), seconds, total
