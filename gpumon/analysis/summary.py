"""A run in numbers: what each device and the job did, from its samples alone.

For the closing words of `gpumon record`; of recordings `analysis.run_summary` makes the same, for
the report, `compare` and arrays. Definitions are those that sites compare by: busy is a mean over
the whole run, device memory its maximum, host memory without page cache. A number that was never
measured is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.analysis.reservation import reserves
from gpumon.analysis.statistics import (
    Activity,
    Distribution,
    Growth,
    MinutePeak,
    Running,
    period_of,
)
from gpumon.model.bounded import Known
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Device, Event, Header, Process, Sample
from gpumon.model.series import BRIDGE_PERIODS
from gpumon.model.view import process_of

#: a device busier than this works
ACTIVE_PERCENT = 1.0
_ACTIVITY = ("busy_percent", "busy_max_percent", "sm_active_percent")
_MAX_XIDS = 100
#: processes of a node of which it is known who they are, and how much they held
MAX_FACTS, FACTS_BYTES = 20_000, 16 << 20


class DeviceSummary(NamedTuple):
    """One device over the run. Percentages 0 to 100; `coverage` and `active_share` 0 to 1."""

    node: str
    device: Device
    busy_mean: float | None  # %
    busy_p50: float | None
    busy_p95: float | None
    active_share: float | None  # part of the measured time with at least 1 % of anything
    idle_tail_s: float | None  # known to be idle without a break until the end of the run
    sm_active_mean: float | None  # %
    tensor_active_mean: float | None  # %
    mem_peak_bytes: float | None
    mem_total_bytes: float | None
    power_mean_w: float | None
    energy_j: float | None  # from the device's own counter; across gaps too
    temperature_high_c: float | None
    framework: str  # of those known, of the process that held most memory on it; "" unknown
    command: str  # the same
    reserved: bool  # its memory is a framework's reservation, not a need
    xids: list[str]  # "79", each time it was reported
    coverage: float  # part of the run in which it could be read


class JobSummary(NamedTuple):
    """The job's share of one node: its cgroup over the run. Memory is without page cache."""

    node: str
    cpus: int | None  # allocated on this node
    cpu_cores_mean: float | None
    cpu_cores_peak60: float | None  # the largest mean of a minute
    cpu_core_s: float | None  # from the kernel's counter; across gaps too
    mem_peak_bytes: float | None
    mem_limit_bytes: float | None
    mem_charged_peak_bytes: float | None  # the kernel's own peak, page cache included
    oom_kills: int | None


class RunSummary(NamedTuple):
    """All nodes of a run. `headers` holds each node's last one, with settings and devices."""

    headers: list[Header]
    start: float  # epoch s of the first sample
    end: float  # and of the last
    covered_percent: float  # of that time, mean over the nodes
    gaps: int  # how often samples failed to come
    devices: list[DeviceSummary]
    jobs: list[JobSummary]  # one per node that told about its job

    @property
    def elapsed_s(self) -> float:
        """From the first sample to the last."""
        return self.end - self.start


def summarise(items: Iterable[Header | Sample]) -> RunSummary:
    """The summary of one node's stream. Takes any stream; of an empty one all is unknown."""
    node = _Node()
    for item in items:
        if isinstance(item, Header):
            node.take_header(item)
        else:
            node.take_sample(item)
    return node.summary()


class _Device:
    """What is gathered of one device."""

    def __init__(self, device: Device, interval_s: float) -> None:
        self.device = device
        self.busy = Distribution(interval_s)
        self.running = {
            "busy_percent": self.busy,
            **{
                name: Running(interval_s)
                for name in (
                    "sm_active_percent", "tensor_active_percent", "mem_used_bytes", "power_w",
                    "temperature_c",
                )
            },
        }  # fmt: skip
        self.activity = Activity(interval_s)
        self.energy = Growth()
        self.held: dict[int, float] = {}  # pid -> most bytes on this device
        self.xids: list[str] = []
        self.pace(interval_s)

    def pace(self, interval_s: float) -> None:
        for name, running in self.running.items():
            running.pace(period_of("device", name, interval_s))
        self.activity.pace(period_of("device", "busy_percent", interval_s))

    def take(self, time: float, readings: dict[str, Reading], working: bool) -> None:
        """The device's row of a sample; `working`: a process on it is known to."""
        for name, running in self.running.items():
            reading = readings.get(name)
            if isinstance(reading, (int, float)):
                running.add(time, reading)
            elif reading is not None:
                running.miss(time)
        energy = number(readings.get("energy_j"))
        if energy is not None:
            self.energy.add(energy)
        known = [value for name in _ACTIVITY if (value := number(readings.get(name))) is not None]
        if known or working:
            self.activity.add(time, working or max(known) >= ACTIVE_PERCENT)
        elif isinstance(readings.get("busy_percent"), Missing):
            self.activity.miss(time)

    def summary(
        self, node: str, end: float, duration_s: float, processes: dict[int, Process]
    ) -> DeviceSummary:
        results = {name: running.result() for name, running in self.running.items()}
        read_s = max(result.covered_s for result in results.values())
        known = sorted((held, pid) for pid, held in self.held.items() if pid in processes)
        tags = [processes[pid] for _, pid in reversed(known)]
        return DeviceSummary(
            node=node,
            device=self.device,
            busy_mean=results["busy_percent"].mean,
            busy_p50=self.busy.percentile(50),
            busy_p95=self.busy.percentile(95),
            active_share=self.activity.share.result().mean,
            idle_tail_s=self.activity.idle_tail_s(end),
            sm_active_mean=results["sm_active_percent"].mean,
            tensor_active_mean=results["tensor_active_percent"].mean,
            mem_peak_bytes=results["mem_used_bytes"].high,
            mem_total_bytes=number(self.device.facts.get("mem_total_bytes")),
            power_mean_w=results["power_w"].mean,
            energy_j=self.energy.result(),
            temperature_high_c=results["temperature_c"].high,
            framework=next((each.framework for each in tags if each.framework), ""),
            command=next((each.command for each in tags if each.command), ""),
            reserved=any(map(reserves, tags)),
            xids=self.xids,
            coverage=min(read_s / duration_s, 1.0) if duration_s else 0.0,
        )


class _Job:
    """What is gathered of the job's cgroup."""

    def __init__(self, interval_s: float) -> None:
        self.told = False
        self.cores = MinutePeak(interval_s)
        self.memory = Running(interval_s)
        self.cpu = Growth()
        self.most: dict[str, float] = {}

    def take(self, time: float, readings: dict[str, Reading]) -> None:
        self.told = True
        for name, running in (("cpu_cores_used", self.cores), ("mem_used_bytes", self.memory)):
            reading = readings.get(name)
            if isinstance(reading, (int, float)):
                running.add(time, reading)
            elif reading is not None:
                running.miss(time)
        seconds = number(readings.get("cpu_s"))
        if seconds is not None:
            self.cpu.add(seconds)
        for name in ("mem_limit_bytes", "mem_peak_bytes", "oom_kills"):
            value = number(readings.get(name))
            if value is not None:
                self.most[name] = max(value, self.most.get(name, value))

    def summary(self, header: Header) -> JobSummary:
        job = header.job
        limit = self.most.get("mem_limit_bytes")
        kills = self.most.get("oom_kills")
        return JobSummary(
            node=header.node,
            cpus=job.cpus if job else None,
            cpu_cores_mean=self.cores.result().mean,
            cpu_cores_peak60=self.cores.peak60(),
            cpu_core_s=self.cpu.result(),
            mem_peak_bytes=self.memory.result().high,
            mem_limit_bytes=job.mem_limit_bytes if limit is None and job else limit,
            mem_charged_peak_bytes=self.most.get("mem_peak_bytes"),
            oom_kills=None if kills is None else int(kills),
        )


class _Node:
    """What is gathered of one node's stream."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.devices: list[_Device] = []
        self.of_key: dict[int, _Device] = {}
        self.processes: Known[int, Process] = Known(MAX_FACTS, FACTS_BYTES)
        self.ticks = Running(1.0)  # the stream itself: a gap where no sample came
        self.first = self.last = 0.0
        self.seen = self.gaps = 0

    def take_header(self, header: Header) -> None:
        if self.header is None:
            self.job = _Job(header.interval_s)
        self.header = header
        self.of_key = {device.key: self._device(device) for device in header.devices}
        self.ticks.pace(header.interval_s)
        self.job.cores.pace(header.interval_s)
        self.job.memory.pace(header.interval_s)
        for each in self.devices:
            each.pace(header.interval_s)

    def _device(self, device: Device) -> _Device:
        """The device's record: by its UUID, else by its place, whatever its number now is."""
        assert self.header is not None
        for known in self.devices:
            same_place = (known.device.index, known.device.mig) == (device.index, device.mig)
            unsure = not device.uuid or not known.device.uuid
            if known.device.uuid == device.uuid if not unsure else same_place:
                if device.uuid:  # what a lost device can no longer say stays known
                    known.device = device
                return known
        self.devices.append(_Device(device, self.header.interval_s))
        return self.devices[-1]

    def take_sample(self, sample: Sample) -> None:
        for event in sample.events:
            self._event(event)
        header, time = self.header, sample.time
        if header is None or not sample.rows:
            return  # an end, or facts that are said again
        if not self.seen:
            self.first = self.last = time
        elif time - self.last > BRIDGE_PERIODS * header.interval_s:
            self.gaps += 1
        self.seen += 1
        self.first, self.last = min(self.first, time), max(self.last, time)
        self.ticks.add(time, 1.0)
        working = self._usage(sample)
        for key, readings in sample.rows.get("device", {}).items():
            device = self.of_key.get(key) if isinstance(key, int) else None
            if device is not None:
                device.take(time, readings, key in working)
        for readings in sample.rows.get("job", {}).values():
            self.job.take(time, readings)

    def _event(self, event: Event) -> None:
        if event.kind == "process" and event.pid is not None:
            self.processes.keep(event.pid, process_of(event))
        elif event.kind == "xid" and event.device in self.of_key:
            xids = self.of_key[event.device].xids
            if len(xids) < _MAX_XIDS:
                xids.append(event.text)

    def _usage(self, sample: Sample) -> set[int]:
        """Note who holds how much on which device; the devices on which a process works."""
        working = set()
        for key, readings in sample.rows.get("usage", {}).items():
            if not isinstance(key, tuple) or key[0] not in self.of_key:
                continue
            held = self.of_key[key[0]].held
            if key[1] in held or len(held) < MAX_FACTS:
                held[key[1]] = max(held.get(key[1], 0.0), number(readings.get("mem_bytes")) or 0.0)
            if (number(readings.get("sm_percent")) or 0.0) >= ACTIVE_PERCENT:
                working.add(key[0])
        return working

    def summary(self) -> RunSummary:
        header = self.header
        if header is None:
            return RunSummary([], 0.0, 0.0, 0.0, 0, [], [])
        elapsed_s = self.last - self.first
        # each of n samples stands for one interval, also the last
        duration_s = elapsed_s + header.interval_s if self.seen else 0.0
        covered_s = self.ticks.result().covered_s
        return RunSummary(
            headers=[header],
            start=self.first if self.seen else header.time,
            end=self.last if self.seen else header.time,
            covered_percent=min(covered_s / duration_s, 1.0) * 100 if duration_s else 0.0,
            gaps=self.gaps,
            devices=[
                each.summary(header.node, self.last, duration_s, self.processes)
                for each in self.devices
            ],
            jobs=[self.job.summary(header)] if self.job.told else [],
        )
