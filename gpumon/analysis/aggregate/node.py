"""What is gathered of one node: its devices, the job's cgroup, the host, network and disks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import floor
from typing import Any

from gpumon.analysis.aggregate.cpu import CpuAggregate
from gpumon.analysis.aggregate.device import SERIES_A_DEVICE, DeviceAggregate, Tick
from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.job import JobAggregate
from gpumon.analysis.aggregate.limits import WHOLE, Limits
from gpumon.analysis.aggregate.pool import of_devices
from gpumon.analysis.aggregate.process import Row
from gpumon.analysis.aggregate.programs import ProgramsAggregate
from gpumon.analysis.aggregate.series import TRACKED, SeriesAggregate
from gpumon.analysis.rundata import DeviceData, NodeData
from gpumon.analysis.statistics import Running, finite
from gpumon.model.batch import CELL_S, ColumnBatch, Cut, KeyRows, cut
from gpumon.model.bounded import Allowance, Known, Recent
from gpumon.model.fields import COURSES
from gpumon.model.plausible import implausible_growth, most_cpu_per_s
from gpumon.model.reading import Missing, number
from gpumon.model.rolled import FIELD_OF, SeriesName
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Device, Event, Header, Key, Process, Rows, Sample
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.model.view import process_of

MAX_DEVICES = 256  # of one node
MAX_PROCESSES = 1024  # on all its devices together, over the run
#: processes of which it is known who they are
MAX_FACTS, FACTS_BYTES = 20_000, 16 << 20
#: that processes ended, and as many others
MAX_EVENTS, EVENTS_BYTES = 2000, 2 << 20
#: its three, and two sets of looks
SERIES_A_PROGRAM = 5
#: those in which anything but the time is new
MAX_HEADERS, HEADERS_BYTES = 1000, 8 << 20
MAX_PENDING_ROWS = 10_000  # of samples that wait, 1 KB each
_OfPids = dict[int, tuple[list[Cut], KeyRows]]


class NodeAggregate:
    """One node's stream. Samples wait until their bin is full, or until there are `room.batch` of
    them, because many at once cost less.
    """

    def __init__(self, name: str, room: Limits) -> None:
        self.name = name
        self._room = room
        self.header: Header | None = None
        self.headers: Recent[Header] = Recent(MAX_HEADERS, HEADERS_BYTES)
        self._events: Recent[Event] = Recent(MAX_EVENTS, EVENTS_BYTES)
        self._ends: Recent[Event] = Recent(MAX_EVENTS, EVENTS_BYTES)  # of processes, of thousands
        self.first = self.last = 0.0  # epoch s of the first and the newest sample
        self.seen = self.gaps = 0
        self.longest_gap_s = 0.0
        self.ticks = Running(1.0)
        self.index: tuple[int, int] | None = None  # first and newest bin
        self._devices: list[DeviceAggregate] = []
        self._of_key: dict[int, DeviceAggregate] = {}
        self._facts: Known[int, Process] = Known(MAX_FACTS, FACTS_BYTES)
        self._ended: set[int] = set()  # of these: since the last frame
        self._room_for_processes = Allowance(MAX_PROCESSES)
        self._devices_left_out = 0
        self._series = SeriesAggregate(with_shown=room.with_shown)
        self._cpu = CpuAggregate(with_shown=room.with_shown)
        self._programs = ProgramsAggregate()
        self._covered = Rollup()
        self._job = JobAggregate()
        self._pending: list[Sample] = []
        self._pending_index = self._pending_rows = 0
        self._cut_times: dict[int, list[Cut]] = {}  # by the times' id, while columns are taken

    # -- taking

    def take_header(self, header: Header, step_s: float) -> None:
        self.flush(step_s)
        self.header = header
        newest = self.headers.newest
        if newest is None or header._replace(time=newest.time, mono=newest.mono) != newest:
            self.headers.append(header)
        self._of_key = {}
        self._devices_left_out = max(len(header.devices) - MAX_DEVICES, self._devices_left_out)
        for device in header.devices[:MAX_DEVICES]:
            gathered = self._device(device, self._of_key.values())
            if gathered is not None:
                self._of_key[device.key] = gathered
        self.ticks.pace(header.interval_s)
        self._job.cores.pace(header.interval_s)
        self._job.cpu_s.limit(most_cpu_per_s(header.facts.get("cpus_online")))

    def _device(self, device: Device, taken: Collection[DeviceAggregate]) -> DeviceAggregate | None:
        """The device's record: by its UUID, else by its place, whatever its number now is.

        None: there is no room for another one. `taken`: those of others of the same header.
        """
        others = {id(each) for each in taken}
        for known in self._devices:
            same_place = (known.device.index, known.device.mig) == (device.index, device.mig)
            unsure = not device.uuid or not known.device.uuid
            same = known.device.uuid == device.uuid if not unsure else same_place
            if same and id(known) not in others:
                if device.uuid:  # what a lost device can no longer say stays known
                    known.device = device
                return known
        if len(self._devices) >= MAX_DEVICES:
            self._devices_left_out += 1
            return None
        room = self._room_for_processes
        self._devices.append(DeviceAggregate(device, self._room, room))
        return self._devices[-1]

    @property
    def extent(self) -> tuple[int, int] | None:
        """The first and the newest bin, also of what waits."""
        if not self._pending:
            return self.index
        first, newest = self.index or (self._pending_index, self._pending_index)
        return min(first, self._pending_index), max(newest, self._pending_index)

    @property
    def devices(self) -> Sequence[DeviceAggregate]:
        """All that were ever listed; their series are named by their place here."""
        return self._devices

    @property
    def series_count(self) -> int:
        """How many series it has, about."""
        own = len(self._series.bins) + len(self._cpu.cpu) + len(self._cpu.resident)
        own += SERIES_A_PROGRAM * len(self._programs)
        return own + SERIES_A_DEVICE * len(self._devices) + 2 * self._room_for_processes.used

    def left_out(self) -> dict[str, int]:
        """What there was no room for, and how often."""
        return {
            "devices": self._devices_left_out,
            "readings of new names": self._series.left_out,
            "processes' command lines": self._facts.left_out,
            "processes on devices": self._room_for_processes.left_out,
            "readings of probed processes": self._programs.left_out,
            "events": self._events.left_out,
            "headers": self.headers.left_out,
        }

    @property
    def events(self) -> list[Event]:
        """In order of time, but those that name a process."""
        return sorted((*self._events, *self._ends), key=lambda event: event.time)

    def _keep(self, event: Event) -> None:
        (self._ends if event.kind == "process-end" else self._events).append(event)

    @property
    def _in_job(self) -> bool:
        return self.header is not None and self.header.job is not None

    @property
    def _agent(self) -> int:
        """Its PID."""
        return self.header.agent_pid if self.header is not None else 0

    def take_sample(self, sample: Sample, step_s: float) -> None:
        if sample.events:
            self.flush(step_s)  # what was read before happened before
            for event in sample.events:
                self._take_event(event)
        if self.header is None or not sample.rows:
            return  # an end, or facts that are said again
        self._note_time(sample.time, self.header.interval_s)
        if self._states_changed(sample):
            self.flush(step_s)
            for key, device in self._of_key.items():
                device.take_state(sample.time, sample.states.get(key))
        index = floor(sample.time / step_s)
        if self._pending and (
            index != self._pending_index
            or len(self._pending) >= self._room.batch
            or self._pending_rows > MAX_PENDING_ROWS
        ):
            self.flush(step_s)
        self._pending_index = index
        self._pending.append(sample)
        self._pending_rows += sum(map(len, sample.rows.values()))

    def _note_time(self, time: float, interval_s: float) -> None:
        if not self.seen:
            self.first = self.last = time
        elif time - self.last > BRIDGE_PERIODS * interval_s:
            self.gaps += 1
            self.longest_gap_s = max(self.longest_gap_s, time - self.last - interval_s)
        self.seen += 1
        self.first, self.last = min(self.first, time), max(self.last, time)
        self.ticks.add(time, 1.0)

    def _states_changed(self, sample: Sample) -> bool:
        return bool(sample.states) or any(each.is_unwell for each in self._devices)

    def _take_event(self, event: Event) -> None:
        if event.kind == "process" and event.pid is not None:
            facts = process_of(event)
            self._ended.discard(event.pid)
            if self._facts.keep(event.pid, facts):
                for device in self._devices:
                    device.know(facts)
            return
        if event.kind == "process-end" and event.pid is not None:
            for device in self._devices:
                device.end_process(event.pid)
            is_needed = event.pid in self._cpu.cpu or event.pid in self._programs
            if self._room.is_lean and not is_needed:
                self._facts.pop(event.pid, None)
            elif event.pid in self._facts:
                self._ended.add(event.pid)
        elif event.kind == "xid" and event.device in self._of_key:
            self._of_key[event.device].take_xid(event)
        self._keep(event)

    # -- one batch, all of one bin

    def flush(self, step_s: float) -> None:
        """Put what waits on the grid."""
        samples, self._pending, self._pending_rows = self._pending, [], 0
        if not samples:
            return
        index = floor(samples[0].time / step_s)
        first, newest = self.index or (index, index)
        self.index = min(first, index), max(newest, index)
        self._covered.put(index, [1.0])
        self._flush_devices(index, samples)
        self._series.take(index, samples)
        self._flush_job(samples)
        self._cpu.take(index, samples, self._facts, self._in_job, self._agent)
        self._programs.take(index, samples, self._facts)

    def _flush_devices(self, index: int, samples: list[Sample]) -> None:
        ticks: dict[int, list[Tick]] = {}
        for sample in samples:
            usage: dict[int, dict[int, Row]] = {}
            for key, line in sample.rows.get("usage", {}).items():
                if isinstance(key, tuple):
                    usage.setdefault(key[0], {})[key[1]] = line
            for device, row in sample.rows.get("device", {}).items():
                if isinstance(device, int):
                    listed = row.get("processes")
                    known = listed is not None and not isinstance(listed, Missing)
                    lines = usage.get(device, {}) if known else usage.get(device)
                    ticks.setdefault(device, []).append((sample.time, row, lines))
        for key, of_device in ticks.items():
            if key in self._of_key:
                self._of_key[key].take(index, of_device, self._facts)
        for key, of_pid in of_devices(samples).items():
            if key in self._of_key:
                self._of_key[key].take_pools(index, of_pid)

    def _flush_job(self, samples: list[Sample]) -> None:
        for sample in samples:
            row = sample.rows.get("job", {}).get("")
            if row is not None:
                self._job.take(sample.time, row)

    # -- many samples at once, in columns

    def can_take(self, batch: ColumnBatch, step_s: float) -> bool:
        """They begin a new bin, and nothing in them but numbers is news."""
        newest = self.index[1] if self.index else None
        if self._pending:
            newest = max(self._pending_index, newest or self._pending_index)
        first = floor(batch.times[0] / step_s)
        cuts = cut(batch.times, step_s)
        return (
            self.header is not None
            and (newest is None or first > newest)
            and CELL_S % step_s == 0
            and max(last - begin for _, begin, last in cuts) <= WHOLE.batch
            and self._are_same(batch)
        )

    def _are_same(self, batch: ColumnBatch) -> bool:
        """Devices and the processes on them are those that are known."""
        for group, of_key in batch.groups.items():
            if group.startswith("device.") and len({id(s.times) for s in of_key.values()}) > 1:
                return False  # a device was left out of some
        listed = batch.groups.get("device.processes", {})
        usage = batch.groups.get("usage.usage", {})
        pids: dict[object, set[int]] = {key: set() for key in self._of_key}
        for place, series in usage.items():
            if not isinstance(place, tuple) or place[0] not in pids:
                return False
            pids[place[0]].add(place[1])
            if place[0] in listed and series.times != listed[place[0]].times:
                return False
        for place in batch.groups.get("pool.pool", {}):
            if not isinstance(place, tuple) or place[1] not in pids.get(place[0], ()):
                return False
        return all(
            device.is_same({pid for pid in pids[key]}, self._facts)
            for key, device in self._of_key.items()
        ) and not any(device.is_unwell for device in self._devices)

    def take_batch(self, batch: ColumnBatch, step_s: float) -> None:
        """What `take_sample` does with each of them, where `can_take` says so."""
        assert self.header is not None
        self.flush(step_s)
        for time in batch.times:
            self._note_time(time, self.header.interval_s)
        cuts = cut(batch.times, step_s)
        first, _ = self.index or (cuts[0][0], 0)
        self.index = min(first, cuts[0][0]), cuts[-1][0]
        for index, _, _ in cuts:
            self._covered.put(index, [1.0])
        self._cut_times[id(batch.times)] = cuts
        self._take_device_columns(batch, step_s)
        for group, of_key in batch.groups.items():
            entity = group.split(".", 1)[0]
            for key, series in of_key.items() if entity in TRACKED else ():
                cuts = self._cuts(series.times, step_s)
                self._series.take_columns(entity, str(key), series, cuts)
        for group in ("job.cgroup", "job.io"):
            for series in batch.groups.get(group, {}).values():
                self._job.take_columns(series)
        processes = {
            pid: (self._cuts(series.times, step_s), series)
            for pid, series in batch.groups.get("process.process", {}).items()
        }
        on_gpus = batch.groups.get("usage.usage", ())
        self._cpu.take_columns(processes, on_gpus, step_s, self._facts, self._in_job, self._agent)
        for pid, series in batch.groups.get("program.program", {}).items():
            if isinstance(pid, int):
                cuts = self._cuts(series.times, step_s)
                self._programs.take_columns(pid, cuts, series, self._facts)
        self._cut_times = {}

    def _cuts(self, times: list[float], step_s: float) -> list[Cut]:
        """Most fields of most keys were read in the same batch."""
        cuts = self._cut_times.get(id(times))
        if cuts is None:
            cuts = self._cut_times[id(times)] = cut(times, step_s)
        return cuts

    def _take_device_columns(self, batch: ColumnBatch, step_s: float) -> None:
        usage = self._by_device(batch, "usage.usage", step_s)
        pools = self._by_device(batch, "pool.pool", step_s)
        for key, device in self._of_key.items():
            groups = [
                (self._cuts(of_key[key].times, step_s), of_key[key])
                for group, of_key in batch.groups.items()
                if group.startswith("device.") and key in of_key
            ]
            device.take_columns(groups, usage.get(key, {}), pools.get(key, {}))

    def _by_device(self, batch: ColumnBatch, group: str, step_s: float) -> dict[object, _OfPids]:
        found: dict[object, _OfPids] = {}
        for place, series in batch.groups.get(group, {}).items():
            if isinstance(place, tuple):
                cuts = self._cuts(series.times, step_s)
                found.setdefault(place[0], {})[place[1]] = cuts, series
        return found

    # -- rollup lines: what came since the last frame, and a state to go on from

    def series(self) -> Iterator[tuple[SeriesName, Rollup]]:
        """All series, by the names that `series_of` knows."""
        for place, device in enumerate(self._devices):
            yield from device.series(place)
        for (entity, key, name), bins in self._series.bins.items():
            yield (entity, name, key), bins
        for kind, of_pid in self._cpu.of_processes().items():
            for pid, bins in of_pid.items():
                yield (kind, "", pid), bins
        for kind, bins in self._cpu.all_together().items():
            yield (kind, "", ""), bins
        yield ("covered", "", ""), self._covered
        yield from self._programs.series()

    def courses(self) -> Iterator[tuple[str, Key, str, Rollup]]:
        """Of processes (entity, key, field, bins); on devices by a device's place and the PID."""
        for place, device in enumerate(self._devices):
            for pid, kind, bins in device.courses():
                entity, field = FIELD_OF[kind]
                if field in COURSES[entity]:
                    yield entity, (place, pid), field, bins
        for kind, of_pid in self._cpu.of_processes().items():
            for pid, bins in of_pid.items():
                yield FIELD_OF[kind][0], pid, FIELD_OF[kind][1], bins

    def series_of(self, kind: str, name: str, key: Any) -> Rollup:
        """Raises ValueError, TypeError, LookupError where there can be no such series."""
        if kind in TRACKED:
            return self._series.series_of(kind, key, name)
        if kind in self._cpu.of_processes():
            return self._cpu.series_of(kind, key)
        if kind == "covered":
            return self._covered
        if kind == "program":
            return self._programs.series_of(name, key)
        if kind in self._cpu.all_together():
            return self._cpu.all_together()[kind]
        device: DeviceAggregate = self._devices[key[0]]
        return device.series_of(kind, name, key[1:])

    def forget(self) -> None:
        """What lies on the grid was taken away, and what happened was told."""
        self.index = None
        header = self.headers.newest
        self.headers = Recent(MAX_HEADERS, HEADERS_BYTES)
        if header is not None:
            self.headers.append(header)
        self._events, self._ends = (Recent(MAX_EVENTS, EVENTS_BYTES) for _ in range(2))

    def news(self) -> list[Any]:
        """Of the devices on which anything happened since the last frame; who ended is then
        forgotten.
        """
        told = [[place, device.news()] for place, device in enumerate(self._devices)]
        for pid in self._ended:
            self._facts.pop(pid, None)
            self._cpu.resident.pop(pid, None)
        self._ended.clear()
        return [each for each in told if each[1]]

    def looks(self) -> list[Any]:
        """What the probe saw since the last frame, which is then forgotten."""
        return self._programs.news()

    def take_looks(self, looks: list[Any], ratio: int, first: int, last: int) -> None:
        """Those of a frame whose grid is so many times as fine, from its bucket `first` to `last`.
        Raises what Python does on other looks.
        """
        self._programs.take_news(looks, ratio, first, last)

    def take_news(self, events: list[Event], devices: list[Any]) -> None:
        """Events, and what they did to the devices. Raises what Python does on other news."""
        for event in events:
            if event.kind != "process" or event.pid is None:
                self._keep(event)
            else:
                self._facts.keep(event.pid, process_of(event))
        for place, news in devices:
            self._devices[place].take_news(news)

    def take_extent(self, first: int, last: int) -> None:
        """The bins of a frame."""
        old_first, old_last = self.index or (first, last)
        self.index = min(old_first, first), max(old_last, last)

    def state(self) -> dict[str, Any]:
        rows: Rows = {"device": {n: each.last for n, each in enumerate(self._devices)}}
        if self._job.last:
            rows["job"] = {"": self._job.last}
        return {
            "seen": [self.seen, self.gaps, self.first, self.last, self.longest_gap_s],
            "ticks": self.ticks.state(),
            "job": self._job.state(),
            "paths": self._series.paths,
            "rows": rows,
            "devices": [each.state() for each in self._devices],
            "programs": self._programs.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Raises what Python does on what `state` never gives."""
        seen, gaps, first, last, longest_gap_s = map(finite, state["seen"])
        self.seen, self.gaps = int(seen), int(gaps)
        self.first, self.last, self.longest_gap_s = first, last, longest_gap_s
        self.ticks.restore(state["ticks"])
        self._series.restore_paths(state["paths"])
        rows: Rows = state["rows"]
        self._job.restore(state["job"], rows.get("job", {}).get("", {}))
        if len(state["devices"]) != len(self._devices):
            raise ValueError("other devices")
        for place, (device, its) in enumerate(zip(self._devices, state["devices"])):
            device.restore(its, rows.get("device", {}).get(place, {}))
        self._programs.restore(state.get("programs", []))

    # -- results

    def double(self) -> None:
        """Take a grid whose step is twice as long; nothing waits."""
        for bins in self._all_bins():
            bins.coarsen(2)
        self._programs.coarsen(2)
        if self.index is not None:
            self.index = self.index[0] // 2, self.index[1] // 2

    def _all_bins(self) -> Iterator[Rollup]:
        for device in self._devices:
            yield from device.bins()
        yield from self._series.bins.values()
        for of_pid in self._cpu.of_processes().values():
            yield from of_pid.values()
        yield from self._cpu.all_together().values()
        yield self._covered

    def device_evidence(self, window: Window) -> list[DeviceData]:
        return [device.evidence(self.name, window) for device in self._devices]

    def evidence(self, window: Window) -> NodeData:
        """Of a node whose header is known."""
        assert self.header is not None
        kills, told = self._job.oom_kills.result(), self._job.oom_kills.newest
        refused = self._job.cpu_s.refused
        limit = self._job.mem_limit
        if limit is None and self.header.job is not None:
            limit = number(self.header.job.mem_limit_bytes)
        return NodeData(
            self.name,
            self.header,
            self._series.tracks("job", "", window),
            self._series.tracks("host", "", window),
            self._series.by_key("net", window),
            self._series.by_key("disk", window),
            dict(self._series.paths),
            {
                pid: (self._facts[pid], window.of(bins))
                for pid, bins in self._cpu.cpu.items()
                if pid in self._facts
            },
            window.of(self._cpu.threads),
            window.of(self._cpu.runnable),
            window.of(self._cpu.blocked),
            window.of(self._covered),
            None if kills is None else int(kills),
            self._job.cpu_s.result(),
            limit,
            dict(self._job.last),
            self._job.cores.peak60(),
            self._job.mem_peak,
            self._job.mem_charged_peak,
            None if told is None else int(told),
            (self.first, self.last) if self.seen else None,
            self.ticks.result().covered_s,
            self.gaps,
            implausible_growth(refused, "CPU s", "the node's cores") if refused else "",
            self._programs.evidence(self._facts, window),
        )
