"""One device of a frame, and the processes on it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from math import nan
from typing import Any, Optional

from gpumon.frames.counting import Growth, optional
from gpumon.frames.process import ProcessFrame, Rollups, Row, Rows, beside
from gpumon.model.bounded import Allowance
from gpumon.model.fields import ACTIVE_PERCENT, FIELDS, KEPT, throttle_words
from gpumon.model.plausible import ceilings
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Device, Event, Process, State
from gpumon.model.text import clean

#: the row of one tick, and what its processes do in it (None: they were not asked for)
Tick = tuple[float, Row, "Mapping[int, Row] | None"]
Look = tuple[float, Row, Mapping[int, Row]]  # the same where they were

MEMORY_ERRORS = "ecc_uncorrected"
COUNTERS = (
    "energy_j", "throttle_power_s", "throttle_thermal_s", "pcie_replays", "ecc_corrected",
    "ecc_uncorrected", "retired_pages", "remapped_corrected", "remapped_uncorrected",
)  # fmt: skip
_ACTIVITY = ("busy_max_percent", "busy_gap_s", "sm_active_percent", "busy_percent")
#: beside the SMs, and unseen by busy %; an idle one does not make the device idle
_ENGINES = ("encoder_percent", "decoder_percent")
#: of which every tick counts: NVML's clock event reasons, bits
_MASK = "throttle_mask"
MAX_PROCESSES = 128  # of one device in a frame; over a run, or beside a screen at a time
ENDED_KEPT = 16  # of them, beside a screen: each takes about 12 KB
MAX_EVENTS = 200  # of one kind, of one device
_MAX_WORDS = 80  # characters of an event that are kept here
MAX_THROTTLES = 16  # reasons: there are 11, and bits of later drivers
#: rollups of a device without processes, at most
ROLLUPS_A_DEVICE = len(KEPT["device"]) + 1 + MAX_THROTTLES
_NUMBERS = frozenset((int, float))


def columns_of(rows: Iterable[Row]) -> dict[str, list[float]]:
    """The numbers of each field that has any, in the order of the rows."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if type(value) in _NUMBERS:
                if name in columns:
                    columns[name].append(value)
                else:
                    columns[name] = [value]
    return columns


class DeviceFrame:
    """One device. `rollups` are by field ("active" too), `throttle` by reason: shares of ticks."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.rollups = Rollups()
        self.throttle: dict[str, Rollup] = {}
        self.counters = {name: Growth() for name in COUNTERS}
        most_w = FIELDS["device"]["power_w"].high  # of any
        self.counters["energy_j"].most_per_s = ceilings(device.facts).get("power_w", most_w)
        self.processes: list[ProcessFrame] = []  # in the order in which they came
        self.polled = False  # some zeros of `active` rest on polling alone
        self.is_watched = False  # its processes were asked for
        self.mem_before_bytes: Optional[float] = None  # in use when they first were, beside theirs
        self.xids: list[Event] = []
        self.states: list[Event] = []  # when it fared otherwise, and memory errors
        self.state = ""  # "": well
        self.last: dict[str, Reading] = {}  # the newest of each field
        self.left_out = 0  # processes that there was no room for
        self._newest = 0.0  # epoch s of the newest tick

    # -- samples

    def add(self, index: int, ticks: Sequence[Tick], facts: Mapping[int, Process]) -> None:
        """The ticks of one bucket, in order of time; `facts` of all processes of the node."""
        for self._newest, row, _ in ticks:
            self.last.update(row)
        read = columns_of(row for _, row, _ in ticks)
        if _MASK in read:
            self._add_reasons(index, list(map(int, read[_MASK])))
        for name, values in read.items():
            if name in KEPT["device"]:
                self.rollups[name].put(index, values)
            elif name in self.counters:
                self._count(name, ticks)
        looks = [(time, row, usage) for time, row, usage in ticks if usage is not None]
        used = []
        for _, _, usage in looks:
            sm = [v for row in usage.values() if (v := number(row.get("sm_percent"))) is not None]
            if sm:
                used.append(max(sm))
        self._add_activity(index, read, used)
        if looks:
            self._add_processes(index, looks, facts)

    def _count(self, name: str, ticks: Iterable[Tick]) -> None:
        growth = self.counters[name]
        for time, row, _ in ticks:
            value = row.get(name)
            if isinstance(value, (int, float)):
                if name == MEMORY_ERRORS and growth.newest is not None and value > growth.newest:
                    count = f"{value - growth.newest:.0f}"
                    self._note(Event(time, "ecc", self.device.key, None, count))
                growth.add(value, time)

    def _add_reasons(self, index: int, masks: Sequence[int]) -> None:
        """For every throttle reason the share of the ticks that named it; 0 before it first did."""
        ticks = dict.fromkeys(self.throttle, 0)
        for mask in set(masks):
            for word in throttle_words(mask) if mask else ():
                if word in ticks or len(ticks) < MAX_THROTTLES:
                    ticks[word] = ticks.get(word, 0) + masks.count(mask)
        for word, count in ticks.items():
            if word not in self.throttle:
                self.throttle[word] = _zeros(self.rollups[_MASK])
            self.throttle[word].put(index, [1.0] * count + [0.0] * (len(masks) - count))

    def _add_activity(self, index: int, read: Mapping[str, list[float]], used: list[float]) -> None:
        """The share of the bucket in which the device worked, by the signal that says most.

        Each signal gives the share of its readings that are at least 1 % (findings, 1.2). `used`:
        of the process that used the SMs most, at each look. Encoder and decoder count where they
        work; that they rest says nothing of the SMs.
        """
        bursts, holes, gpm, polls = (read.get(name, []) for name in _ACTIVITY)
        signals = [bursts, gpm, used, polls]
        signals += [values for name in _ENGINES if any(values := read.get(name, []))]
        shares = [
            sum(value >= ACTIVE_PERCENT for value in values) / len(values)
            for values in signals
            if values
        ]
        if not shares:
            return
        share = max(shares)
        if share == 0 and not gpm and not used and (not bursts or max(holes, default=0) > 0):
            self.polled = True
        # as many as there are readings: parts of a bucket, and buckets, are weighted by them
        self.rollups["active"].put(index, [share] * max(map(len, signals)))

    # -- processes

    def _living(self) -> dict[int, ProcessFrame]:
        return {each.facts.pid: each for each in self.processes if not each.ended}

    def _add_processes(
        self, index: int, looks: Sequence[Look], facts: Mapping[int, Process]
    ) -> None:
        here = self._living()
        of_pid: dict[int, list[tuple[float, Row]]] = {}
        for time, row, usage in looks:
            for pid, line in usage.items():
                if pid not in of_pid:
                    of_pid[pid] = []
                    told = facts.get(pid) or Process(pid, "", "", "")
                    if not _goes_on(here.get(pid), told):
                        self._arrive(here, time, row, line, told)
                of_pid[pid].append((time, line))
            if self.mem_before_bytes is None and not self.is_watched:
                self.mem_before_bytes = beside(row, usage)
            self.is_watched = True
        for pid, rows in of_pid.items():
            if pid in here:
                here[pid].add(index, rows)
        for pid, process in here.items():
            if pid not in looks[-1][2]:  # who is not in the newest list has left
                process.ended = True

    def _arrive(
        self, here: dict[int, ProcessFrame], time: float, row: Row, line: Row, told: Process
    ) -> None:
        if told.pid in here:  # the PID came back as another process
            here.pop(told.pid).ended = True
        if len(self.processes) >= MAX_PROCESSES:
            self.left_out += 1
            return
        process = here[told.pid] = ProcessFrame(told, time, appeared=self.is_watched)
        self.processes.append(process)
        used = number(row.get("mem_used_bytes"))
        used = number(self.last.get("mem_used_bytes")) if used is None else used
        own = number(line.get("mem_bytes"))
        if used is not None and own is not None:
            reserved = number(self.last.get("mem_reserved_bytes")) or 0.0
            process.others_bytes = max(0.0, used + reserved - own)

    def add_pools(self, index: int, of_pid: Mapping[int, Rows]) -> None:
        """Of one bucket. What a process wrote as it ended comes when it is not listed any more."""
        here = self._living()
        for pid, rows in of_pid.items():
            left = (p for p in reversed(self.processes) if p.ended and p.facts.pid == pid)
            late = next((p for p in left if rows[0][0] <= p.last + STEP_S), None)
            if (process := here.get(pid, late)) is not None:
                process.add_pool(index, rows)

    def end_process(self, pid: int) -> None:
        """The node says that the process ended."""
        for each in self.processes:
            if each.facts.pid == pid:
                each.ended = True

    def know(self, facts: Process) -> None:
        """News of who a process is: its framework is often known only at the second look."""
        for each in self.processes:
            is_it = each.facts.pid == facts.pid and each.facts.start in (0.0, facts.start)
            if is_it and not each.ended:
                each.facts = facts

    # -- events

    def add_xid(self, event: Event) -> None:
        if len(self.xids) < MAX_EVENTS:
            self.xids.append(event._replace(text=clean(event.text, _MAX_WORDS), data={}))

    def add_state(self, time: float, state: Optional[State]) -> None:
        """How the device fares in a tick: None is well."""
        name = "" if state is None else state.state
        if name == self.state:
            return
        self.state = name
        began = time if state is None else min(time, state.since)
        detail = "" if state is None else clean(state.detail, _MAX_WORDS)
        key = self.device.key
        self._note(Event(began, "state", key, None, name or "well", {"detail": detail}))

    def _note(self, event: Event) -> None:
        if len(self.states) < MAX_EVENTS:
            self.states.append(event)

    # -- frames

    def successor(self) -> DeviceFrame:
        """What is known at the begin of the next frame."""
        found = copy(self)
        found.rollups, found.throttle, found.last = Rollups(), {}, dict(self.last)
        found.counters = {name: growth.successor() for name, growth in self.counters.items()}
        found.processes = [
            each.successor()
            for each in self.processes
            if not each.ended or each.last + STEP_S >= self._newest  # its pool comes afterwards
        ]
        found.polled, found.xids, found.states = False, [], []
        return found

    def extend(
        self, later: DeviceFrame, room: Allowance, *, is_lean: bool, with_shown: bool
    ) -> None:
        """The next frame's. `is_lean`: few of the processes that ended are kept."""
        if later.device.uuid:  # what a lost device can no longer say stays known
            self.device = later.device
        self._extend_reasons(later)
        for name, rollup in later.rollups.items():
            if with_shown or name == _MASK or KEPT["device"].get(name) != "shown":
                self.rollups[name].extend(rollup)
        for name, growth in later.counters.items():
            self.counters[name].extend(growth)
        self.polled = self.polled or later.polled
        if not self.is_watched:
            self.is_watched, self.mem_before_bytes = later.is_watched, later.mem_before_bytes
        self._extend_processes(later, room, is_lean=is_lean)
        self.xids = (self.xids + later.xids)[:MAX_EVENTS]
        for event in later.states:  # a stream that begins says again how it fares
            if event.kind != "state" or event.text != (self.state or "well"):
                self._note(event)
                self.state = self.state if event.kind != "state" else event.text
        self.state = later.state
        self.last.update(later.last)
        self.left_out = max(self.left_out, later.left_out)

    def _extend_reasons(self, later: DeviceFrame) -> None:
        """Each reason has a share, mostly 0, wherever any was asked for."""
        mask = later.rollups.get(_MASK)
        if mask is None:
            return
        for word in later.throttle.keys() - self.throttle.keys():
            if len(self.throttle) < MAX_THROTTLES:
                self.throttle[word] = _zeros(self.rollups[_MASK])
        for word, rollup in self.throttle.items():
            rollup.extend(later.throttle.get(word) or _zeros(mask))

    def _extend_processes(self, later: DeviceFrame, room: Allowance, *, is_lean: bool) -> None:
        here = self._living()
        same = {(each.facts.pid, each.came): each for each in self.processes}
        came = len(self.processes)
        for each in later.processes:
            known = same.get((each.facts.pid, each.came))
            if known is None or not known.ended:
                known = here.pop(each.facts.pid, None)
            if known is not None and known.is_same(each):
                known.extend(each)
                continue
            if known is not None:
                known.ended = True
            if came >= MAX_PROCESSES or not room.take():
                self.left_out += came >= MAX_PROCESSES
                continue
            self.processes.append(each.successor())
            self.processes[-1].extend(each)
            came += 1
        for each in here.values() if later.is_watched else ():
            each.ended = True
        if is_lean:
            self._forget_ended(room)

    def _forget_ended(self, room: Allowance) -> None:
        ended = sorted((p for p in self.processes if p.ended), key=lambda p: p.last - p.first)
        gone = {id(each) for each in ended[: max(len(ended) - ENDED_KEPT, 0)]}  # they tell least
        room.give(len(gone))
        self.processes = [each for each in self.processes if id(each) not in gone]

    def bare(self) -> DeviceFrame:
        """The same without what was measured, of processes too."""
        found = DeviceFrame(self.device)
        found.processes = [each.successor() for each in self.processes]
        return found

    # -- as a file holds it, without facts, events, rollups and the newest readings

    def told(self) -> dict[str, Any]:
        return {
            "polled": self.polled,
            "watched": self.is_watched,
            "mem_before": self.mem_before_bytes,
            "state": self.state,
            "counters": {
                name: growth.told()
                for name, growth in self.counters.items()
                if growth.end is not None
            },
            "processes": [each.told() for each in self.processes],
        }

    def take(self, told: Mapping[str, Any], facts: Sequence[Process]) -> None:
        """`facts` of the processes. Raises what Python does on what `told` never gives."""
        self.polled, self.is_watched = told["polled"] is True, told["watched"] is True
        self.mem_before_bytes = optional(told["mem_before"], "device", "mem_used_bytes")
        self.state = clean(told["state"], 20)
        for name, growth in told["counters"].items():
            self.counters[name].take(growth, "device", name)
        if not len(facts) == len(told["processes"]) <= MAX_PROCESSES:
            raise ValueError("processes without facts")
        self.processes = [ProcessFrame.of(*each) for each in zip(facts, told["processes"])]


def _goes_on(known: Optional[ProcessFrame], told: Process) -> bool:
    """Whether it is the process that is known; brings up to date who that is."""
    if known is None:
        return False
    if told != known.facts and (told.user or told.command or told.name):
        if known.facts.start and told.start and told.start != known.facts.start:
            return False
        known.facts = told
    return True


def _zeros(like: Rollup) -> Rollup:
    """0 wherever that one has a value."""
    means = array("f", [0.0 if mean == mean else nan for mean in like.mean])
    return Rollup.of(like.step_s, like.first, like.count[:], means)
