"""What is gathered of one device and of the processes on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.limits import WHOLE, Limits
from gpumon.analysis.aggregate.news import facts_event, optional
from gpumon.analysis.aggregate.pool import SERIES, Rows
from gpumon.analysis.aggregate.process import ProcessAggregate, Row, beside, columns_of
from gpumon.analysis.rundata import DeviceData
from gpumon.analysis.statistics import Growth, finite
from gpumon.model.batch import Cut, KeyRows
from gpumon.model.bounded import Allowance
from gpumon.model.fields import ACTIVE_PERCENT, FIELDS, throttle_words
from gpumon.model.plausible import ceilings, implausible_growth
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.rolled import SeriesName
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Device, Event, Process, State
from gpumon.model.text import clean
from gpumon.model.view import process_of

#: the row of one tick, and what its processes do in it (None: they were not asked for)
Tick = tuple[float, Row, "Mapping[int, Row] | None"]

TRACKED = (
    "busy_percent", "busy_min_percent", "busy_max_percent",
    "mem_controller_percent", "mem_used_bytes", "power_w",
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent",
    "fp64_active_percent", "fp32_active_percent", "fp16_active_percent", "int_active_percent",
    "sm_clock_mhz", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "encoder_percent", "decoder_percent",
    "temperature_c", "mem_temperature_c",
    "power_limit_w", "pcie_gen", "pcie_width",
)  # fmt: skip
#: those of them that no rule asks for; `active` is made when samples are taken
SHOWN = {
    "busy_min_percent", "busy_max_percent", "sm_occupancy_percent", "fp16_active_percent",
    "int_active_percent", "mem_temperature_c",
}  # fmt: skip
_JUDGED = tuple(name for name in TRACKED if name not in SHOWN)
MEMORY_ERRORS = "ecc_uncorrected"
COUNTERS = (
    "energy_j", "throttle_power_s", "throttle_thermal_s", "pcie_replays", "ecc_corrected",
    "ecc_uncorrected", "retired_pages", "remapped_corrected", "remapped_uncorrected",
)  # fmt: skip
_UNITS = {"energy_j": ("J", "the device's power limit")}
_ACTIVITY = ("busy_max_percent", "busy_gap_s", "sm_active_percent", "busy_percent")
#: beside the SMs, and unseen by busy %; an idle one does not make the device idle
_ENGINES = ("encoder_percent", "decoder_percent")
MAX_PROCESSES = 128  # of one device over the run; beside a screen, at a time
ENDED_KEPT = 16  # of them, beside a screen: each takes about 12 KB
MAX_EVENTS = 200  # of one kind, of one device
_MAX_WORDS = 80  # characters of an event that are kept here
MAX_THROTTLES = 16  # reasons: there are 11, and bits of later drivers
#: series of a device without processes, at most
SERIES_A_DEVICE = len(TRACKED) + 2 + MAX_THROTTLES
_THROTTLE_WORDS = frozenset(throttle_words((1 << 64) - 1))


class DeviceAggregate:
    """One device of a node. Ticks come in batches, each of one bin."""

    def __init__(
        self, device: Device, limits: Limits = WHOLE, room: Allowance | None = None
    ) -> None:
        """`room`: for the processes of all devices of the node; by default for those of one."""
        self.device = device
        self._is_lean = limits.is_lean
        self._room = room or Allowance(MAX_PROCESSES)
        self._tracked = TRACKED if limits.with_shown else _JUDGED
        self._bins: dict[str, Rollup] = {}
        self._active = Rollup()
        self._masks = Rollup()  # 0 wherever throttling was asked for
        self._throttle: dict[str, Rollup] = {}
        self._counters = {name: Growth() for name in COUNTERS}
        self._counters["energy_j"].limit(_most_power_w(device))
        self._processes: dict[int, ProcessAggregate] = {}  # those that are there
        self._gone: list[ProcessAggregate] = []
        self._numbered: dict[int, ProcessAggregate] = {}  # by number, with those that are gone
        self._came = 0
        self._polled = False
        self._watched = False  # its processes were asked for before
        self._mem_before: float | None = None
        self._xids: list[Event] = []
        self._states: list[Event] = []
        self._state = ""
        self._said = (0, 0)  # of the Xids and states, in rollup lines
        self.last: dict[str, Reading] = {}

    def take(self, index: int, ticks: list[Tick], facts: Mapping[int, Process]) -> None:
        """The ticks of one bin, in order of time; `facts` of all processes of the node."""
        for _, row, _ in ticks:
            self.last.update(row)
        read = columns_of(row for _, row, _ in ticks)
        for name in self._tracked:
            if name in read:
                self._of(self._bins, name).put(index, read[name])
        for name, growth in self._counters.items():
            for time, row, _ in ticks if name in read else ():
                if isinstance(value := row.get(name), (int, float)):
                    if name == MEMORY_ERRORS:
                        self._take_errors([value], [time])
                    growth.add(value, time)
        self._take_masks(index, read.get("throttle_mask", []))
        used = []
        for usage in (usage for _, _, usage in ticks if usage is not None):
            sm = [v for row in usage.values() if (v := number(row.get("sm_percent"))) is not None]
            if sm:
                used.append(max(sm))
        self._take_activity(index, read, used)
        self._take_processes(index, ticks, facts)

    def is_same(self, pids: set[int], facts: Mapping[int, Process]) -> bool:
        """It is well, and exactly these processes are on it, as known before."""
        return (
            self._watched
            and not self._state
            and pids == self._processes.keys()
            and all(self._processes[pid].facts == facts.get(pid) for pid in pids)
        )

    def take_columns(
        self,
        groups: Iterable[tuple[list[Cut], KeyRows]],
        usage: Mapping[int, tuple[list[Cut], KeyRows]],
        pools: Mapping[int, tuple[list[Cut], KeyRows]],
    ) -> None:
        """Many ticks at once, of whole bins: what `take` does, where `is_same` holds."""
        parts: dict[int, dict[str, list[float]]] = {}
        for cuts, series in groups:
            self.last.update(series.last)
            for name in series.places:
                self._take_column(name, cuts, series, parts)
        used = self._take_usage(usage)
        for pid, (cuts, series) in pools.items():
            self._processes[pid].pool.take_columns(cuts, series)
        for index in sorted({*parts, *used}):
            part = parts.get(index, {})
            self._take_masks(index, part.get("throttle_mask", []))
            self._take_activity(index, part, used.get(index, []))

    def _take_column(
        self,
        name: str,
        cuts: list[Cut],
        series: KeyRows,
        parts: dict[int, dict[str, list[float]]],
    ) -> None:
        """Of one field; what tells of a bin as a whole goes to `parts`: bin -> field -> values."""
        growth = self._counters.get(name)
        if growth is not None:
            if name == MEMORY_ERRORS:
                self._take_errors(*series.points(name))
            growth.add_all(*series.points(name))
        judged = name in _ACTIVITY or name in _ENGINES or name == "throttle_mask"
        if not judged and name not in self._tracked:
            return
        values = series.column(name) or []
        if name in self._tracked and values.count(None) < len(values):
            self._of(self._bins, name).put_all(cuts, values)
        for index, first, last in cuts if judged else ():
            known = [value for value in values[first:last] if value is not None]
            parts.setdefault(index, {})[name] = known

    def _take_usage(self, usage: Mapping[int, tuple[list[Cut], KeyRows]]) -> dict[int, list[float]]:
        """Also gives for each bin what the busiest process used of the SMs, look by look."""
        columns = []
        cuts: list[Cut] = []
        for pid, (cuts, series) in usage.items():
            sm = series.column("sm_percent") or [None] * len(series.times)
            self._processes[pid].take_columns(cuts, series, sm)
            columns.append(sm)
        looks = [[value for value in each if value is not None] for each in zip(*columns)]
        return {
            index: [max(each) for each in looks[first:last] if each] for index, first, last in cuts
        }

    @staticmethod
    def _of(kept: dict[str, Rollup], name: str) -> Rollup:
        bins = kept.get(name)
        if bins is None:
            bins = kept[name] = Rollup()
        return bins

    def _take_masks(self, index: int, values: list[float]) -> None:
        """For every throttle reason the share of the ticks that named it; 0 before it first did."""
        masks = list(map(int, values))
        if not masks:
            return
        ticks = dict.fromkeys(self._throttle, 0)
        for mask in set(masks):
            for word in throttle_words(mask) if mask else ():
                if word in ticks or len(ticks) < MAX_THROTTLES:
                    ticks[word] = ticks.get(word, 0) + masks.count(mask)
        for word, count in ticks.items():
            if word not in self._throttle:
                self._throttle[word] = self._masks.copy()
            self._throttle[word].put(index, [1.0] * count + [0.0] * (len(masks) - count))
        self._masks.put(index, [0.0] * len(masks))

    def _take_activity(
        self, index: int, read: Mapping[str, list[float]], used: list[float]
    ) -> None:
        """The share of the bin in which the device worked, by the signal that says most.

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
            self._polled = True
        # as many as there are readings: parts of a bin, and bins, are weighted by them
        self._active.put(index, [share] * max(map(len, signals)))

    # -- processes

    def _take_processes(self, index: int, ticks: list[Tick], facts: Mapping[int, Process]) -> None:
        of_pid: dict[int, list[tuple[float, Row]]] = {}
        for time, row, usage in ticks:
            if usage is None:
                continue
            for pid, line in usage.items():
                if pid not in of_pid:
                    if not self._is_here(pid, facts):
                        self._arrive(pid, time, row, line, facts)
                    of_pid[pid] = []
                of_pid[pid].append((time, line))
            if self._mem_before is None and not self._watched:
                self._mem_before = beside(row, usage)
            self._watched = True
        for pid, rows in of_pid.items():
            process = self._processes.get(pid)
            if process is not None:
                process.take(index, rows)
        asked = [usage for _, _, usage in ticks if usage is not None]
        if asked:  # who is not in the newest list has left
            for pid in [pid for pid in self._processes if pid not in asked[-1]]:
                self._leave(pid)

    def _is_here(self, pid: int, facts: Mapping[int, Process]) -> bool:
        known = self._processes.get(pid)
        told = facts.get(pid)
        if known is None:
            return False
        if told is not None and told != known.facts:
            if known.facts.start and told.start and told.start != known.facts.start:
                self._leave(pid)  # the PID came back as another process
                return False
            known.facts = told
        return True

    def _arrive(
        self, pid: int, time: float, row: Row, line: Row, facts: Mapping[int, Process]
    ) -> None:
        held = len(self._processes) + len(self._gone) if self._is_lean else self._came
        if held >= MAX_PROCESSES or not self._room.take():
            return
        told = facts.get(pid) or Process(pid, "", "", "")
        process = ProcessAggregate(self._came, told, time, self._watched)
        used = number(row.get("mem_used_bytes"))
        used = number(self.last.get("mem_used_bytes")) if used is None else used
        own = number(line.get("mem_bytes"))
        if used is not None and own is not None:
            reserved = number(self.last.get("mem_reserved_bytes")) or 0.0
            process.others_bytes = max(0.0, used + reserved - own)
        self._processes[pid] = process
        self._add(process)

    def _add(self, process: ProcessAggregate) -> None:
        self._numbered[self._came] = process
        self._came += 1

    def _leave(self, pid: int) -> None:
        process = self._processes.pop(pid)
        process.ended = True
        self._gone.append(process)
        if self._is_lean and len(self._gone) > ENDED_KEPT:  # the shortest tells the least
            least = min(self._gone, key=lambda each: each.last - each.first)
            self._gone.remove(least)
            del self._numbered[least.number]
            self._room.give()

    def take_pools(self, index: int, of_pid: Mapping[int, Rows]) -> None:
        """Of one bin. What a process wrote as it ended comes when it is not listed any more."""
        for pid, rows in of_pid.items():
            left = (p for p in reversed(self._gone) if p.facts.pid == pid)
            late = next((p for p in left if rows[0][0] <= p.last + STEP_S), None)
            if (process := self._processes.get(pid, late)) is not None:
                process.pool.take(index, rows)

    def end_process(self, pid: int) -> None:
        """The node says that the process ended."""
        if pid in self._processes:
            self._leave(pid)

    def know(self, facts: Process) -> None:
        """News of who a process is: its framework is often known only at the second look."""
        known = self._processes.get(facts.pid)
        if known is not None and known.facts.start in (0.0, facts.start):
            known.facts = facts

    # -- events

    def take_xid(self, event: Event) -> None:
        if len(self._xids) < MAX_EVENTS:
            self._xids.append(event._replace(text=clean(event.text, _MAX_WORDS), data={}))

    def _take_errors(self, values: Sequence[float], times: Sequence[float]) -> None:
        """The counter of memory errors stood so; before it is added to what it grew by."""
        before = self._counters[MEMORY_ERRORS].newest
        for value, time in zip(values, times):
            if before is not None and value > before and len(self._states) < MAX_EVENTS:
                count = f"{value - before:.0f}"
                self._states.append(Event(time, "ecc", self.device.key, None, count))
            before = value

    def take_state(self, time: float, state: State | None) -> None:
        """How the device fares in a tick: None is well."""
        name = "" if state is None else state.state
        if name == self._state:
            return
        self._state = name
        if len(self._states) < MAX_EVENTS:
            began = time if state is None else min(time, state.since)
            detail = "" if state is None else clean(state.detail, _MAX_WORDS)
            self._states.append(
                Event(began, "state", self.device.key, None, name or "well", {"detail": detail})
            )

    @property
    def is_unwell(self) -> bool:
        return bool(self._state)

    # -- rollup lines: what came since the last frame, and a state to go on from

    def series(self, place: int) -> Iterator[tuple[SeriesName, Rollup]]:
        """All series, by the names that `series_of` knows; `place`: of the device on its node."""
        for name, bins in self._bins.items():
            yield ("device", name, [place]), bins
        yield ("active", "", [place]), self._active
        yield ("masks", "", [place]), self._masks
        for word, bins in self._throttle.items():
            yield ("throttle", word, [place]), bins
        for process in (*self._gone, *self._processes.values()):
            for kind, bins in process.series():
                yield (kind, "", [place, process.number]), bins

    def courses(self) -> Iterator[tuple[int, str, Rollup]]:
        """(PID, kind, bins) of each process; of several with one PID the last counts."""
        for process in (*self._gone, *self._processes.values()):
            for kind, bins in process.series():
                yield process.facts.pid, kind, bins

    def series_of(self, kind: str, name: str, numbers: Sequence[int]) -> Rollup:
        """Raises ValueError, LookupError where there can be no such series."""
        if kind == "device" and name in TRACKED:
            return self._of(self._bins, name)
        if kind == "throttle" and name in _THROTTLE_WORDS:
            if name not in self._throttle:
                if len(self._throttle) >= MAX_THROTTLES:
                    raise ValueError("too many reasons")
                self._throttle[name] = self._masks.copy()
            return self._throttle[name]
        if kind in ("mem", "sm", *SERIES):
            return self._numbered[numbers[0]].series_of(kind)
        if kind not in ("active", "masks"):
            raise ValueError(f"no series {kind}")
        return self._active if kind == "active" else self._masks

    def news(self) -> dict[str, Any]:
        """What happened since the last frame; processes that left are then forgotten."""
        processes = sorted((*self._gone, *self._processes.values()), key=lambda p: p.number)
        xids, states = self._xids[self._said[0] :], self._states[self._said[1] :]
        self._said = len(self._xids), len(self._states)
        news = {
            "came": [
                [each.number, each.first, each.appeared, each.others_bytes]
                for each in processes
                if each.said is None
            ],
            "facts": [
                facts_event(each.number, each.facts)
                for each in processes
                if each.said != each.facts
            ],
            "rise": [[each.number, each.drain_rise()] for each in processes if each.rises],
            "pools": [[each.number, *told] for each in processes if (told := each.drain_pool())],
            "left": [[each.number, each.last] for each in self._gone],
            "xids": xids,
            "states": states,
        }
        for each in processes:
            each.said = each.facts
        for each in self._gone:
            del self._numbered[each.number]
        self._gone = []
        return {name: said for name, said in news.items() if said}

    def take_news(self, news: Mapping[str, Any]) -> None:
        """Raises what Python does on what `news` never gives."""
        for number_, first, appeared, others in news.get("came", ()):
            if number_ != self._came or number_ >= MAX_PROCESSES or not self._room.take():
                raise ValueError("a process that cannot have come")
            process = ProcessAggregate(
                number_, Process(0, "", "", ""), finite(first), appeared is True
            )
            process.others_bytes = optional(others)
            self._add(process)
        for event in news.get("facts", ()):
            self._numbered[event.device or 0].facts = process_of(event)
        for number_, points in news.get("rise", ()):
            self._numbered[number_].rise_on(points)
        for number_, seen, most in news.get("pools", ()):
            self._numbered[number_].pool.take_news(seen, most)
        for number_, last in news.get("left", ()):
            process = self._numbered[number_]
            process.last, process.ended = finite(last), True
            self._gone.append(process)
        if not news.keys().isdisjoint(("came", "left")):
            self._processes = {
                each.facts.pid: each for each in self._numbered.values() if not each.ended
            }
        self._xids = (self._xids + news.get("xids", []))[:MAX_EVENTS]
        self._states = (self._states + news.get("states", []))[:MAX_EVENTS]

    def state(self) -> dict[str, Any]:
        counters = {name: growth.state() for name, growth in self._counters.items()}
        return {
            "polled": self._polled,
            "watched": self._watched,
            "mem_before": self._mem_before,
            "state": self._state,
            "counters": counters,
            "lasts": [[each.number, each.last] for each in self._processes.values()],
        }

    def restore(self, state: Mapping[str, Any], last: Row) -> None:
        """Go on from there. Raises what Python does on what `state` never gives."""
        self._polled, self._watched = state["polled"] is True, state["watched"] is True
        self._mem_before = optional(state["mem_before"])
        self._state = clean(state["state"], 20)
        for name, growth in self._counters.items():
            growth.restore(state["counters"][name])
        for number_, time in state["lasts"]:
            self._numbered[number_].last = finite(time)
        self.last = dict(last)

    # -- results

    def bins(self) -> Iterator[Rollup]:
        """All series, for a change of the grid."""
        yield from self._bins.values()
        yield from self._throttle.values()
        yield from (self._active, self._masks)
        for process in (*self._processes.values(), *self._gone):
            yield from (bins for _, bins in process.series())

    def evidence(self, node: str, window: Window) -> DeviceData:
        processes = [*self._gone, *self._processes.values()]
        listed = self.last.get("processes")
        return DeviceData(
            node,
            self.device,
            {name: window.of(bins) for name, bins in self._bins.items()},
            window.of(self._active),
            self._polled,
            {word: window.of(bins) for word, bins in self._throttle.items()},
            [each.evidence(window) for each in processes],
            self._mem_before,
            bool(processes) or (listed is not None and not isinstance(listed, Missing)),
            list(self._xids),
            list(self._states),
            {
                name: grown
                for name, growth in self._counters.items()
                if (grown := growth.result()) is not None
            },
            dict(self.last),
            {
                name: implausible_growth(growth.refused, *_UNITS[name])
                for name, growth in self._counters.items()
                if name in _UNITS and growth.refused is not None
            },
        )


def _most_power_w(device: Device) -> float:
    return ceilings(device.facts).get("power_w", FIELDS["device"]["power_w"].high)
