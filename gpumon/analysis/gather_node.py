"""What is gathered of one node: its devices, the job's cgroup, the host, network and disks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import floor

from gpumon.analysis.bins import Bins
from gpumon.analysis.evidence import DeviceEvidence, NodeEvidence, Track
from gpumon.analysis.gather_device import DeviceGathering, Row, Tick
from gpumon.analysis.statistics import Growth, MinutePeak, Running
from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Device, Event, Header, Process, Sample
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.model.view import process_of

#: entity -> its fields on the grid; counters grow and limits stand still, which other places tell
_TRACKED = {
    "job": tuple(
        name for name in FIELDS["job"]
        if name not in ("cpu_s", "mem_peak_bytes", "mem_limit_bytes", "oom_events", "oom_kills")
    ),
    "host": tuple(FIELDS["host"]),
    "net": tuple(FIELDS["net"]),
    "disk": ("total_bytes", "used_bytes", "free_bytes"),
}  # fmt: skip
#: a batch holds no more samples than this, so that a reader never waits for a long one
_BATCH = 64
_MAX_SERIES = 512  # of the job, the host, its interfaces and disks
_MAX_PROCESSES = 256  # of which CPU use is kept
_MAX_FACTS = 20_000  # processes of which it is known who they are
_MAX_EVENTS = 2000
_WORKS_PERCENT = 1.0


class NodeGathering:
    """One node's stream. Samples wait until their bin is full, because many at once cost less."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.header: Header | None = None
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self.first = self.last = 0.0  # epoch s of the first and the newest sample
        self.seen = self.gaps = 0
        self.longest_gap_s = 0.0
        self.ticks = Running(1.0)
        self.index: tuple[int, int] | None = None  # first and newest bin
        self._devices: list[DeviceGathering] = []
        self._of_key: dict[int, DeviceGathering] = {}
        self._facts: dict[int, Process] = {}
        self._bins: dict[tuple[str, str, str], Bins] = {}  # (entity, key, field)
        self._paths: dict[str, str] = {}
        self._cpu: dict[int, Bins] = {}
        self._threads, self._covered = Bins(), Bins()
        self._cores = MinutePeak(1.0)
        self._cpu_s, self._oom_kills = Growth(), Growth()
        self._mem_limit: float | None = None
        self._mem_peak: float | None = None
        self._last: dict[str, Reading] = {}
        self._pending: list[Sample] = []
        self._pending_index = 0

    # -- taking

    def take_header(self, header: Header, step_s: float) -> None:
        self.flush(step_s)
        self.header = header
        self._of_key = {device.key: self._device(device) for device in header.devices}
        self.ticks.pace(header.interval_s)
        self._cores.pace(header.interval_s)

    def _device(self, device: Device) -> DeviceGathering:
        """The device's record: by its UUID, else by its place, whatever its number now is."""
        for known in self._devices:
            same_place = (known.device.index, known.device.mig) == (device.index, device.mig)
            unsure = not device.uuid or not known.device.uuid
            if known.device.uuid == device.uuid if not unsure else same_place:
                if device.uuid:  # what a lost device can no longer say stays known
                    known.device = device
                return known
        self._devices.append(DeviceGathering(device))
        return self._devices[-1]

    @property
    def device_count(self) -> int:
        return len(self._devices)

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
        if self._pending and (index != self._pending_index or len(self._pending) >= _BATCH):
            self.flush(step_s)
        self._pending_index = index
        self._pending.append(sample)

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
            if len(self._facts) < _MAX_FACTS or event.pid in self._facts:
                facts = self._facts[event.pid] = process_of(event)
                for device in self._devices:
                    device.know(facts)
            return
        if event.kind == "process-end" and event.pid is not None:
            for device in self._devices:
                device.end_process(event.pid)
        elif event.kind == "xid" and event.device in self._of_key:
            self._of_key[event.device].take_xid(event)
        self.events.append(event)

    # -- one batch, all of one bin

    def flush(self, step_s: float) -> None:
        """Put what waits on the grid."""
        samples, self._pending = self._pending, []
        if not samples:
            return
        index = floor(samples[0].time / step_s)
        first, newest = self.index or (index, index)
        self.index = min(first, index), max(newest, index)
        self._covered.put(index, [1.0])
        self._flush_devices(index, samples)
        for entity, names in _TRACKED.items():
            self._flush_entity(index, entity, names, samples)
        self._flush_job(samples)
        self._flush_processes(index, samples)

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

    def _flush_entity(
        self, index: int, entity: str, names: tuple[str, ...], samples: list[Sample]
    ) -> None:
        rows: dict[str, list[Row]] = {}
        for sample in samples:
            for key, row in sample.rows.get(entity, {}).items():
                rows.setdefault(str(key), []).append(row)
        for key, of_key in rows.items():
            for name in names:
                values = [v for row in of_key if isinstance(v := row.get(name), (int, float))]
                if values:
                    bins = self._kept((entity, key, name))
                    if bins is not None:
                        bins.put(index, values)
            path = of_key[-1].get("path")
            if isinstance(path, str) and len(self._paths) < _MAX_SERIES:
                self._paths[key] = path

    def _kept(self, place: tuple[str, str, str]) -> Bins | None:
        bins = self._bins.get(place)
        if bins is None and len(self._bins) < _MAX_SERIES:
            bins = self._bins[place] = Bins()
        return bins

    def _flush_job(self, samples: list[Sample]) -> None:
        for sample in samples:
            row = sample.rows.get("job", {}).get("")
            if row is None:
                continue
            self._last.update(row)
            cores = row.get("cpu_cores_used")
            if isinstance(cores, (int, float)):
                self._cores.add(sample.time, cores)
            elif cores is not None:
                self._cores.miss(sample.time)
            for name, growth in (("cpu_s", self._cpu_s), ("oom_kills", self._oom_kills)):
                value = number(row.get(name))
                if value is not None:
                    growth.add(value)
            used = number(row.get("mem_used_bytes"))
            if used is not None:
                self._mem_peak = max(used, self._mem_peak or 0.0)
            limit = number(row.get("mem_limit_bytes"))
            self._mem_limit = self._mem_limit if limit is None else limit

    def _flush_processes(self, index: int, samples: list[Sample]) -> None:
        """CPU use of processes that are the job's or one's own, and how many threads they have."""
        in_job = self.header is not None and self.header.job is not None
        cpu: dict[int, list[float]] = {}
        threads: list[float] = []
        for sample in samples:
            rows = sample.rows.get("process")
            if not rows:
                continue
            count, counted = 0.0, False
            for pid, row in rows.items():
                facts = self._facts.get(pid) if isinstance(pid, int) else None
                if facts is None or not (facts.in_job or (facts.own and not in_job)):
                    continue
                if (used := number(row.get("cpu_percent"))) is not None:
                    cpu.setdefault(facts.pid, []).append(used)
                if (own := number(row.get("threads"))) is not None:
                    count, counted = count + own, True
            if counted:
                threads.append(count)
        if threads:
            self._threads.put(index, threads)
        for pid, values in cpu.items():
            bins = self._cpu.get(pid)
            if bins is None and max(values) >= _WORKS_PERCENT and len(self._cpu) < _MAX_PROCESSES:
                bins = self._cpu[pid] = Bins()
            if bins is not None:
                bins.put(index, values)

    # -- results

    def double(self) -> None:
        """Take a grid whose step is twice as long; nothing waits."""
        for bins in self._series():
            bins.double()
        if self.index is not None:
            self.index = self.index[0] // 2, self.index[1] // 2

    def _series(self) -> Iterator[Bins]:
        for device in self._devices:
            yield from device.bins()
        yield from self._bins.values()
        yield from self._cpu.values()
        yield from (self._threads, self._covered)

    def device_evidence(self, first: int, count: int) -> list[DeviceEvidence]:
        return [device.evidence(self.name, first, count) for device in self._devices]

    def evidence(self, first: int, count: int) -> NodeEvidence:
        """Of a node whose header is known."""
        assert self.header is not None
        kills = self._oom_kills.result()
        limit = self._mem_limit
        if limit is None and self.header.job is not None:
            limit = number(self.header.job.mem_limit_bytes)
        return NodeEvidence(
            self.name,
            self.header,
            self._tracks("job", "", first, count),
            self._tracks("host", "", first, count),
            self._by_key("net", first, count),
            self._by_key("disk", first, count),
            dict(self._paths),
            {
                pid: (self._facts[pid], bins.track(first, count))
                for pid, bins in self._cpu.items()
                if pid in self._facts
            },
            self._threads.track(first, count),
            self._covered.track(first, count),
            None if kills is None else int(kills),
            self._cpu_s.result(),
            limit,
            dict(self._last),
            self._cores.peak60(),
            self._mem_peak,
        )

    def _tracks(self, entity: str, key: str, first: int, count: int) -> dict[str, Track]:
        return {
            name: bins.track(first, count)
            for (of, at, name), bins in self._bins.items()
            if (of, at) == (entity, key)
        }

    def _by_key(self, entity: str, first: int, count: int) -> dict[str, dict[str, Track]]:
        keys = dict.fromkeys(at for of, at, _ in self._bins if of == entity)
        return {key: self._tracks(entity, key, first, count) for key in keys}
