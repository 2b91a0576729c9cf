"""Where the time of a job's GPUs went: each bucket of each device is in exactly one state.

The state says what the device did, and beside whom; the used share, how much of the bucket did
work. Waste is the sum of what was held and not used: no threshold changes it, thresholds only name
parts of it. Findings on unused time, the outcome, the time limit, GPUs' worth and the pictures read
the ledger and know nothing of each other.

Stretches come first and buckets follow: whether a GPU hangs, pauses, takes turns or works for a
moment only is decided over a stretch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import nan
from statistics import fmean

from gpumon.analysis.activity import ENGINES, between_polls, other_use
from gpumon.analysis.hang import Hang, hang_of, lost_bins
from gpumon.analysis.once import once
from gpumon.analysis.programs import of_one_program
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import (
    MOST,
    Span,
    busy_track,
    is_allocated,
    is_of_job,
    is_server,
    job_devices,
    job_processes,
    observed,
)
from gpumon.analysis.turns import turns_of


class State(IntEnum):
    """What a device did in a bucket; of two that hold, the first."""

    NOT_HELD = 0  # the job was suspended
    UNMEASURED = 1
    LOST = 2  # off the bus, in reset, or broken otherwise
    HUNG = 3  # of a program of which no rank goes on
    SHARED = 4  # another user's program worked on it, and none of the job
    WORKING = 5
    COPYING = 6  # no kernel, but copies, or power that only work takes
    NODE = 7  # idle, as all of its node is, while another node works
    ALONE = 8  # idle beside working ones
    TURNS = 9  # idle while others have their turn
    BEFORE = 10  # no device of the job works: before the first work
    BETWEEN = 11
    BEHIND = 12  # after the last
    THROUGHOUT = 13  # from the start to the end, but for moments


AT_WORK = (State.SHARED, State.WORKING, State.COPYING)
#: no device of the job works
TOGETHER = (State.BEFORE, State.BETWEEN, State.BEHIND, State.THROUGHOUT)
IDLE = (State.NODE, State.ALONE, State.TURNS, *TOGETHER)
#: what is unused while a program waits: within its work, and in its pauses
HELD_BACK = (State.WORKING, *IDLE)
_HELD = (State.LOST, State.HUNG, State.WORKING, *IDLE)

#: part of a stretch that may be work without ending it: a context, a probe
BLIP = 0.02
#: parts of the run: most of it, all of it but for a moment, and from which on copies are a use
_THROUGHOUT, _ALWAYS, _COPIES = 0.9, 0.95, 0.05
#: s that a rank rests at least while its peers wait for it; % busy of these, and their power, as a
#: part of that at work
_RESTS_S, _SPINS_PERCENT, _DROPPED = 300.0, 98.0, 0.6
#: cores, and the part of them, that a node uses on which nothing of the job runs; s after the
#: start, in which launchers work on the first node alone; s over which the use is a mean
_RESTING_CORES, _RESTING_SHARE, _LAUNCHED_S, _SMOOTH_S = 0.1, 0.01, 120.0, 120.0


@dataclass
class Row:
    """One device: by bucket its state, and the share of it in which it did something for the job
    (of a node: for anybody). `waits`: those in which its kernels wait for another rank of the
    program.
    """

    device: DeviceData
    states: list[State]
    used: list[float]
    waits: set[int] = field(default_factory=set)

    def bins(self, *states: State) -> list[int]:
        return [n for n, state in enumerate(self.states) if state in states]

    def count(self, *states: State) -> int:
        return sum(map(self.states.count, states))

    @property
    def is_known(self) -> bool:
        """What it did is known of most of the run."""
        unknown = self.count(State.UNMEASURED)
        return bool(self.states) and unknown <= (1 - MOST) * len(self.states)

    @property
    def has_worked(self) -> bool:
        """For more than moments."""
        return self.count(*AT_WORK, State.HUNG) >= 0.01 * len(self.states) > 0

    @property
    def never_worked(self) -> bool:
        """It ran no kernel, and copied for moments at most."""
        copied = self.count(State.COPYING) >= _COPIES * len(self.states) > 0
        return not copied and not self.count(State.SHARED, State.WORKING, State.HUNG, State.LOST)

    @property
    def used_share(self) -> float:
        """Of the time that is known, 0 to 1."""
        return fmean([u for s, u in zip(self.states, self.used) if s > State.UNMEASURED] or [0.0])


@dataclass
class Ledger:
    """The rows of the job's devices. `pauses`: stretches in which none of them worked, but for
    moments; each is BEFORE, BETWEEN, BEHIND or THROUGHOUT.

    It is kept with its run, and so does not hold it: the two would never be freed at once.
    """

    start: float  # of the run, epoch s
    end: float  # behind the last bucket, which may not be full
    grid_start: float
    bin_s: float
    count: int
    whole: Span  # in which samples came
    is_held: bool  # by a job
    rows: list[Row]
    hang: Hang | None = None
    pauses: list[tuple[State, Span]] = field(default_factory=list)
    turns_most: int = 0  # devices at a time, of those that take turns
    idle_nodes: dict[str, list[Span]] = field(default_factory=dict)  # also without GPUs

    def seconds(self, spans: Iterable[Span]) -> float:
        """Of these stretches together."""
        return sum(map(self._lasts, spans))

    def _lasts(self, span: Span) -> float:
        start = self.grid_start + span.first * self.bin_s
        return max(0.0, min(self.end, start + (span.last - span.first) * self.bin_s) - start)

    def in_bins(self, bins: Iterable[int]) -> float:
        """Seconds of so many buckets."""
        return sum(map(self._bin_s, bins))

    def _bin_s(self, n: int) -> float:
        """The last one may not be full."""
        return self.bin_s if n < self.count - 1 else self._lasts(Span(n, n + 1))

    def row_of(self, label: str) -> Row | None:
        return next((row for row in self.rows if row.device.label == label), None)

    def is_unused(self, device: DeviceData) -> bool:
        """Every reading that exists was at rest all the time."""
        row = self.row_of(device.label)
        return row is not None and row.never_worked and not other_use(device).traces

    def unused_s(self, row: Row, bins: Iterable[int]) -> float:
        """Device seconds that were held and not used, of these buckets."""
        return sum((1 - row.used[n]) * self._bin_s(n) for n in bins if row.states[n] in _HELD)

    def waste_s(self) -> float:
        """Device seconds of the job that were held and not used; nobody wastes a node's."""
        rows = self.rows if self.is_held else ()
        return sum(self.unused_s(row, range(len(row.states))) for row in rows)

    def known_s(self) -> float:
        """Device seconds of the job of which it is known what the device did."""
        rows = self.rows if self.is_held else ()
        unknown = (State.NOT_HELD, State.UNMEASURED)
        return sum(self._bin_s(n) for row in rows for n, state in enumerate(row.states)
                   if state not in unknown)  # fmt: skip

    def shared_s(self) -> float:
        """Device seconds of the job in which another user's program worked, and none of its own."""
        rows = self.rows if self.is_held else ()
        return sum(self.in_bins(row.bins(State.SHARED)) for row in rows)

    def tail_of(self, row: Row) -> Span:
        """In which it is idle up to the end; where no device works any more, but for moments."""
        first = self.idle_now.first if self.idle_now is not None else self.whole.last
        while first > 0 and row.states[first - 1] in IDLE:
            first -= 1
        return Span(first, self.whole.last)

    def worth(self) -> float | None:
        """How many GPUs would have done the work, had they worked all the time; None: unknown."""
        if not all(row.is_known for row in self.rows):
            return None
        return sum(row.used_share for row in self.rows) if self.rows else None

    def spans_of(self, *kinds: State) -> list[Span]:
        """Pauses of these kinds."""
        return [span for kind, span in self.pauses if kind in kinds]

    @property
    def idle_now(self) -> Span | None:
        """From the last work of any device, but for moments, to the end of what was observed."""
        last = self.whole.last
        return next((span for _, span in self.pauses if span.last == last > span.first), None)

    def is_idle(self, node: str) -> bool:
        """A node of several computed nothing since all was launched, but for a moment."""
        spans = self.idle_nodes.get(node)
        if not spans:
            return False
        begun = max(0, int((self.start + _LAUNCHED_S - self.grid_start) // self.bin_s))
        idle = sum(last - max(first, begun) for first, last in spans)
        return idle >= _ALWAYS * (self.count - begun)

    @property
    def ends_unmeasured(self) -> bool:
        """What every device did at the end of the run is unknown."""
        return all(row.states[-1:] in ([], [State.UNMEASURED]) for row in self.rows)

    def at_rest(self, span: Span) -> float:
        """Seconds of a pause in which no device worked."""
        worked = {n for row in self.rows for n in range(*span) if row.states[n] in AT_WORK}
        return self.in_bins(n for n in range(*span) if n not in worked)

    def last_work(self) -> float | None:
        """Epoch s of the end of the last useful work of any device, but for moments; None: there
        was none.
        """
        tails = [span.first for span in self.spans_of(State.BEHIND)]
        end = min([*tails, self.hang.span.first if self.hang else self.count])
        worked = (n for row in self.rows for n in row.bins(*AT_WORK) if n < end and row.used[n] > 0)
        last = max(worked, default=None)
        return None if last is None else min(self.end, self.grid_start + (last + 1) * self.bin_s)

    def stretches(self, row: Row, least_s: float, *states: State) -> list[Span]:
        """Stretches of these states of at least `least_s`, moments of work within them or not."""
        spans: list[Span] = []
        for span in runs_of([state in states for state in row.states]):
            if spans:
                both = Span(spans[-1].first, span.last)
                work = sum(row.states[n] in AT_WORK for n in range(spans[-1].last, span.first))
                length, parted = both.last - both.first, span.first - spans[-1].last
                if work <= BLIP * length and parted - work <= length / 2:
                    span = Span(spans.pop().first, span.last)
            spans.append(span)
        return [span for span in spans if self._lasts(span) >= least_s]


@once
def ledger_of(run: RunData) -> Ledger:
    rows = [_own(run, device) for device in job_devices(run)]
    end = min(run.end, run.grid_start + run.count * run.bin_s)
    grid = (run.start, end, run.grid_start, run.bin_s, run.count, observed(run), is_allocated(run))
    if not run.count:
        return Ledger(*grid, rows)
    _suspend(run, rows)
    hang = hang_of(run)
    if hang is not None and not hang.may_go_on:
        hung = {each.label for each in hang.devices}
        for row in (row for row in rows if row.device.label in hung):
            for n in range(*hang.span):
                if row.states[n] not in (State.NOT_HELD, State.UNMEASURED, State.LOST):
                    row.states[n], row.used[n] = State.HUNG, 0.0
    _await_peers(run, rows)
    idle_nodes = _idle_nodes(run, rows)
    pauses = _pauses(run, rows)
    most = _place(run, rows, pauses, idle_nodes)
    hang = None if hang is None or hang.may_go_on else hang
    return Ledger(*grid, rows, hang, pauses, most, idle_nodes)


# -- what a device's own readings show; THROUGHOUT stands for "idle" until all rows are known ------


def _own(run: RunData, device: DeviceData) -> Row:
    active, busy = _full(device.active, run), _full(busy_track(device), run)
    engines = [_full(device.tracks[each], run) for each in ENGINES if each in device.tracks]
    lost, others, copies = lost_bins(run, device), _foreign(run, device), other_use(device).bins
    missed, held = between_polls(run, device), is_allocated(run)
    row = Row(device, [State.UNMEASURED] * run.count, [0.0] * run.count)
    for n in range(*observed(run)):
        share = active[n]
        if n in lost:
            row.states[n] = State.LOST
        elif n in missed.unknown:
            continue
        elif share > 0 or n in missed.worked:
            row.states[n] = State.SHARED if n in others else State.WORKING
            loads = [each[n] / 100 for each in (busy, *engines) if each[n] >= 0]
            is_theirs = held and n in others
            row.used[n] = 0.0 if is_theirs else min(1.0, max(loads, default=share))
        elif n in copies:
            row.states[n], row.used[n] = State.COPYING, 1.0
        elif share == 0:
            row.states[n] = State.THROUGHOUT
    for first, last in runs_of([s is State.WORKING for s in row.states]) if missed.worked else ():
        row.used[first:last] = [fmean(row.used[first:last])] * (last - first)
    return row


def _full(track: Track, run: RunData) -> Sequence[float]:
    """Its means, one for each bucket."""
    lacking = run.count - len(track.mean)
    return [*track.mean, *[nan] * lacking] if lacking > 0 else track.mean


def _foreign(run: RunData, device: DeviceData) -> set[int]:
    """Buckets in which another user's process worked there, as far as is known, and none of the
    job's did, nor may have.
    """
    found: set[int] = set()
    for each in device.processes:
        if not is_of_job(each.facts) and not each.facts.name.startswith(("X", "nvidia")):
            sm, known = each.sm_percent.mean, each.sm_percent.known_count() > 0
            bins = range(run.bin_at(each.first), min(run.count, run.bin_at(each.last) + 1))
            found |= {n for n in bins if not known or (n < len(sm) and sm[n] > 0)}
    for each in job_processes(device) if found else ():
        sm, known = each.sm_percent.mean, each.sm_percent.known_count() > 0
        bins = range(run.bin_at(each.first), min(run.count, run.bin_at(each.last) + 1))
        found -= {n for n in bins if not known or (n < len(sm) and sm[n] > 0)}
    return found


def _suspend(run: RunData, rows: Sequence[Row]) -> None:
    """Slurm reports for how long, not when: the longest holes in all samples."""
    left = round(((run.job.suspended_s if run.job else None) or 0.0) / run.bin_s)
    if not left or not rows:
        return
    unseen = [all(row.states[n] is State.UNMEASURED for row in rows) for n in range(run.count)]
    for hole in sorted(runs_of(unseen), key=lambda span: span.first - span.last):
        if left > 0:
            left -= hole.last - hole.first
            for row in rows:
                row.states[slice(*hole)] = [State.NOT_HELD] * (hole.last - hole.first)


def _await_peers(run: RunData, rows: Sequence[Row]) -> None:
    """Ranks that spin at low power while another one of their program rests wait for it: where
    they do so for most of its rest, for all of it.
    """
    least = run.bins(_RESTS_S)
    for ranks in of_one_program([row.device for row in rows]) if len(rows) > 1 else ():
        here = [row for row in rows if row.device in ranks and row.count(State.WORKING)]
        rests = {
            span
            for row in here
            for span in runs_of([state is State.THROUGHOUT for state in row.states])
            if span.last - span.first >= least
        }
        for row in here if rests else ():
            row.waits = set().union(*_waits(run, row, rests))
            for n in row.waits:
                row.used[n] = 0.0


def _waits(run: RunData, row: Row, rests: Iterable[Span]) -> Iterator[set[int]]:
    """Buckets in which it spins, of each rest of another rank."""
    busy, power = (
        _full(each, run) for each in (busy_track(row.device), row.device.track("power_w"))
    )
    watts = sorted(power[n] for n in row.bins(State.WORKING) if power[n] == power[n])
    most = _DROPPED * watts[int(0.9 * len(watts))] if watts else 0.0
    for span in rests:
        works = {n for n in range(*span) if row.states[n] is State.WORKING}
        spins = {n for n in works if busy[n] >= _SPINS_PERCENT and power[n] < most}
        yield works if len(spins) >= MOST * len(works) else spins


# -- idle: by what the other devices do -----------------------------------------------------------


def runs_of(values: Sequence[bool]) -> list[Span]:
    """Stretches of True."""
    edges = [n for n, (a, b) in enumerate(zip([False, *values], [*values, False])) if a != b]
    return [Span(*pair) for pair in zip(edges[::2], edges[1::2])]


def _pauses(run: RunData, rows: Sequence[Row]) -> list[tuple[State, Span]]:
    """Stretches in which no device works, one where only moments of work part them."""
    whole = observed(run)
    working = {n for row in rows for n in row.bins(*AT_WORK, State.HUNG)}
    idle = {n for row in rows for n in row.bins(State.THROUGHOUT)} - working
    work, rests = sorted(working), [n in idle for n in range(run.count)]
    if not work or not idle:
        return [(State.THROUGHOUT, each) for each in runs_of(rests)]
    spans: list[Span] = []
    for span in runs_of(rests):
        while spans:
            both = Span(spans[-1].first, span.last)
            inside = bisect_left(work, both.last) - bisect_left(work, both.first)
            length = both.last - both.first
            if inside > BLIP * length or sum(rests[slice(*both)]) + inside < MOST * length:
                break
            spans.pop()
            span = both
        spans.append(span)
    return [(_kind(span, whole), span) for span in spans]


def _kind(span: Span, whole: Span) -> State:
    """By where in the observed time a pause lies."""
    if span.first > whole.first:
        return State.BEHIND if span.last == whole.last else State.BETWEEN
    is_most = span.last - span.first >= _THROUGHOUT * (whole.last - whole.first)
    return State.THROUGHOUT if is_most else State.BEFORE


def _idle_nodes(run: RunData, rows: Sequence[Row]) -> dict[str, list[Span]]:
    """Where a node of several computed nothing, on cores and GPUs; not before all were launched."""
    found: dict[str, list[Span]] = {}
    begun = run.bin_at(run.start + _LAUNCHED_S)
    for node in run.nodes if len(run.nodes) > 1 else ():
        cores = node.job.get("cpu_cores_used")
        if cores is None or not node.cpus:
            continue
        limit = min(_RESTING_SHARE * node.cpus, _RESTING_CORES)
        here = [row.states for row in rows if row.device.node == node.node]
        values = _full(cores, run)
        smooth = _smooth(values, run.bins(_SMOOTH_S / 2))
        idle = [all(states[n] is State.THROUGHOUT for states in here) for n in range(run.count)]
        rests = [n >= begun and idle[n] and smooth[n] < limit for n in range(run.count)]
        quiet = [idle[n] and values[n] < limit for n in range(run.count)]
        if any(rests):
            found[node.node] = _widened(runs_of(rests), runs_of(quiet))
    return found


def _widened(spans: Sequence[Span], quiet: Sequence[Span]) -> list[Span]:
    """Each span with the quiet ones that it begins or ends in."""
    found = []
    for first, last in spans:
        beside = [each for each in quiet if each.first <= first < each.last]
        behind = [each for each in quiet if each.first < last <= each.last]
        begin = min([first, *(each.first for each in beside)])
        found.append(Span(begin, max([last, *(each.last for each in behind)])))
    return found


def _smooth(values: Sequence[float], width: int) -> list[float]:
    """Means of so many values to both sides; NaN where none is known."""
    windows = (values[max(0, n - width) : n + width] for n in range(len(values)))
    known = ([each for each in window if each == each] for window in windows)
    return [sum(each) / len(each) if each else nan for each in known]


def _place(
    run: RunData,
    rows: Sequence[Row],
    pauses: Sequence[tuple[State, Span]],
    idle_nodes: dict[str, list[Span]],
) -> int:
    """Give each idle bucket its kind; the most devices that worked at a time, of turns."""
    kinds = {n: kind for kind, span in pauses for n in range(*span)}
    works = [[state in AT_WORK for state in row.states] for row in rows]
    counts = [sum(each) for each in zip(*works)] if rows else []
    serves = any(is_server(row.device) for row in rows)
    turns = None if serves else turns_of(run, works, counts)
    for row_n, row in enumerate(rows):
        resting = {n for span in idle_nodes.get(row.device.node, ()) for n in range(*span)}
        taking = turns.bins[row_n] if turns is not None else frozenset[int]()
        for n in row.bins(State.THROUGHOUT):
            if not counts[n]:
                row.states[n] = kinds.get(n, State.ALONE)  # beside ones that hang, or are unknown
            elif n in resting:
                row.states[n] = State.NODE
            else:
                row.states[n] = State.TURNS if n in taking else State.ALONE
    return turns.most if turns is not None else 0
