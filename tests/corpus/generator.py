"""Scenarios as gpumon's own lines: devices, processes and the job's cgroup, described by curves.

A `Run` becomes the stream of each of its nodes, through the real encoder and decoder, every group
of readings at its own period, and from there the evidence. Numbers carry a little noise from a
generator seeded by the run's name, so that a run is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from zlib import crc32

from gpumon.analysis.rundata import Queue, RunData
from gpumon.analysis.summary import RunSummary
from gpumon.model.fields import GROUPS
from gpumon.model.reading import MIG, Missing, Reading
from gpumon.model.sample import Device, Event, Header, JobContext, Mig, Process, Rows, Sample, State
from gpumon.site import Site
from gpumon.slurm.job import Job
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.corpus.hardware import A100, GIB, MIB, Model, torch
from tests.corpus.signals import Signal, at
from tests.frames.framing import Gathering, Recorded

START = 1_795_200_000.0
_PERIOD_S = {group.key: group.period_s for group in GROUPS}
_NO_GPM = Missing("unsupported", "needs Hopper")


@dataclass
class Pool:
    """What a probe tells of a framework's pool, by the seconds since its process came."""

    used: Signal  # B
    reserved: Signal | None = None
    spike: float = 0.0  # on top of what is in use, between two samples
    limit: float | None = None
    retries: Signal = 0.0
    ooms: Signal = 0.0
    gaps: Sequence[tuple[float, float]] = ()  # in which it tells nothing
    until: float = 1e12

    def row(self, second: float, peak: float) -> dict[str, Reading]:
        told: dict[str, Reading] = {"used_bytes": at(self.used, second), "peak_bytes": peak}
        if self.reserved is not None:
            reserved = at(self.reserved, second)
            told.update(reserved_bytes=reserved, reserved_peak_bytes=reserved,
                        retries=at(self.retries, second), ooms=at(self.ooms, second))  # fmt: skip
        if self.limit is not None:
            told["limit_bytes"] = self.limit
        return told

    def tells(self, second: float) -> bool:
        return second < self.until and not any(since <= second < to for since, to in self.gaps)


@dataclass
class Proc:
    """A process: its memory on its device (by the seconds since it came), and its CPU use."""

    pid: int = 4312
    mem: Signal | None = None  # None: on no device
    framework: str = "torch"
    command: str = "python train.py"
    name: str = "python"
    since: float = 10.0  # s after the job's start
    until: float = 1e12
    cpu: Signal | None = None  # % of a core; None: its share of the node's
    sm: Signal | None = None  # None: as busy as the device
    threads: float = 4
    own: bool = True
    in_job: bool = True
    job: str = "4711"
    ppid: int = 4000
    hints: dict[str, str] = field(default_factory=dict)
    pool: Pool | None = None

    @property
    def facts(self) -> Process:
        return Process(
            self.pid, "ada" if self.own else "bob", self.command, self.name, self.ppid,
            1000 if self.own else 1001, START + self.since, self.own, self.in_job, self.framework,
            self.job, self.hints,
        )  # fmt: skip

    def is_here(self, second: float) -> bool:
        return self.since <= second < self.until


@dataclass
class Gpu:
    """A device. Curves are by the seconds since the job's start; None: as usual for its busy."""

    busy: Signal = 95.0
    procs: Sequence[Proc] | None = None  # None: PyTorch, at 70 % of the memory
    model: Model = A100
    pf: Signal = 0.75  # power fraction at full load
    power: Signal | None = None  # W, in place of `pf`
    noise: float = 0.02  # relative deviation of busy and power
    polled: bool = False  # the driver has no sample buffer and no use by process
    burst: Signal | None = None  # highest of the driver's own samples
    sm: Signal = 85.0
    tensor: Signal = 35.0
    dram: Signal = 30.0
    fp32: Signal = 5.0
    fp64: Signal = 0.0
    pcie: Signal = 2e9  # B/s each way at full load
    nvlink: Signal = 0.0
    clock: Signal | None = None
    throttle: Signal = 0.0  # mask of reasons
    thermal_s: Signal = 0.0  # the driver's counter
    temperature: Signal = 62.0
    power_limit: float | None = None  # enforced; None: the default
    width: Signal = 16.0
    gen: Signal | None = None
    replays: Signal = 0.0
    health: dict[str, Signal] = field(default_factory=dict)
    base: Signal = 3 * MIB  # used by nobody of the job
    mig: str = ""  # profile
    visible: bool = True
    facts: dict[str, Reading] = field(default_factory=dict)
    lost_at: float = 1e12
    hung_at: float = 1e12
    xids: Sequence[tuple[float, str]] = ()
    refused: dict[str, Missing] = field(default_factory=dict)  # field -> why

    def listed(self) -> Sequence[Proc]:
        return self.procs or ()


@dataclass
class Node:
    """One node of the run. Cores and sizes default to four fifths of what was asked for."""

    gpus: Sequence[Gpu] = ()
    name: str = "gpu01"
    cpus: int = 8
    mem: float = 64 * GIB
    cores: Signal | None = None
    anon: Signal | None = None  # B
    shmem: Signal = 0.0
    cache: Signal = 4 * GIB
    swap: Signal = 0.0
    oom_kills: Signal = 0.0
    throttled: Signal = 0.0  # % of periods
    cpu_pressure: Signal = 1.0
    io_pressure: Signal = 1.0
    read: Signal = 20e6
    write: Signal = 1e6
    iowait: Signal = 0.5
    load: Signal = 20.0
    procs: Sequence[Proc] | None = None  # on no device; None: one, where there is no GPU
    disks: dict[str, tuple[str, float, Signal]] = field(default_factory=dict)  # path, total, used
    facts: dict[str, Reading] = field(default_factory=dict)
    job_id: str = "4711"
    gpus_held: int | None = None
    since: float = 0.0  # samples begin
    until: float = 1e12  # and end
    gaps: Sequence[tuple[float, float]] = ()

    def __post_init__(self) -> None:
        for n, gpu in enumerate(self.gpus):  # a rank on each
            if gpu.procs is None:
                gpu.procs = [Proc(4312 + n, torch(0.7 * gpu.model.total))]


@dataclass
class Run:
    """A job, its nodes and all else that the rules may ask for."""

    seconds: float
    nodes: Sequence[Node]
    job: Job
    live: bool = False
    interval: float = 2.0
    site: Site = field(default_factory=Site)
    marks: Sequence[tuple[float, str]] = ()
    log_tail: str = ""
    siblings: Sequence[Job] = ()
    sibling_runs: dict[str, RunSummary] = field(default_factory=dict)
    queue: Queue | None = None


def evidence_of(run: Run, name: str, *, as_recorded: bool = False) -> RunData:
    """Through the wire: lines of bytes, decoded, and aggregated as they come; or in longer frames
    that have been lines, as those of a recording.
    """
    gathering = Recorded() if as_recorded else Gathering()
    for node in run.nodes:
        decoder = Decoder()
        for line in lines(run, node, name):
            item = decoder.line(line)
            if item is not None:
                gathering.add(node.name, item)
    evidence = gathering.data(
        run.job, run.site, live=run.live, log_tail=run.log_tail, siblings=run.siblings
    )
    return replace(evidence, queue=run.queue, sibling_runs=run.sibling_runs)


def lines(run: Run, node: Node, name: str) -> Iterator[bytes]:
    """A node's stream, line by line, as the agent would print it."""
    encoder = Encoder()
    rng = Random(crc32(f"{name} {node.name}".encode()))
    yield encoder.header(_header(run, node)).encode()
    stream = _Stream(run, node, rng)
    n = 0
    while (second := n * run.interval) < run.seconds:
        hidden = any(since <= second < to for since, to in node.gaps)
        if node.since <= second < node.until and not hidden:
            yield encoder.sample(stream.sample(second)).encode()
        n += 1


def _header(run: Run, node: Node) -> Header:
    job = run.job
    facts: dict[str, Reading] = {
        "cpus": node.cpus, "cpus_online": 128, "mem_total_bytes": 2000 * GIB, **node.facts,
    }  # fmt: skip
    held = len([gpu for gpu in node.gpus if gpu.visible])
    context = JobContext(
        id=node.job_id, name=job.name, user="ada", partition=job.partition, nodes=job.node_list,
        node_count=len(job.nodes), cpus=node.cpus, mem_limit_bytes=int(node.mem),
        gpus=held if node.gpus_held is None else node.gpus_held, start=START,
        end=START + job.time_limit_s if job.time_limit_s else None, source="cgroup",
    )  # fmt: skip
    devices = [_device(node, key, gpu) for key, gpu in enumerate(node.gpus)]
    return Header(
        node.name, "boot", START, 0.0, run.interval, "0.1.0", devices, "580.95", "13.580", "13.0",
        context, facts,
    )  # fmt: skip


def _device(node: Node, key: int, gpu: Gpu) -> Device:
    model = gpu.model
    facts: dict[str, Reading] = {
        "mem_total_bytes": int(model.total), "compute_capability": model.cc,
        "power_limit_default_w": model.limit_w, "pcie_gen_max": model.pcie_gen,
        "pcie_width_max": 16, "nvlink_links": model.nvlinks, **gpu.facts,
    }  # fmt: skip
    mig = Mig(f"GPU-{node.name}-parent", 3 + key, 0, gpu.mig) if gpu.mig else None
    uuid = f"{'MIG' if gpu.mig else 'GPU'}-{node.name}-{key}"
    return Device(key, key, uuid, model.name, key if gpu.visible else None, mig, facts)


class _Stream:
    """The samples of one node, in order of time."""

    def __init__(self, run: Run, node: Node, rng: Random) -> None:
        self.run, self.node, self.rng = run, node, rng
        self.known: dict[int, Proc] = {}
        self.cpu_s = self.cores_at(0.0) * node.since  # the kernel counts from the job's start
        self.energy_j = [0.0] * len(node.gpus)
        self.said: set[tuple[float, str]] = set()
        self.peaks: dict[int, float] = {}  # of pools

    def cores_at(self, second: float) -> float:
        node = self.node
        return 0.8 * node.cpus if node.cores is None else at(node.cores, second)

    def is_due(self, group: str, second: float) -> bool:
        period = _PERIOD_S[group]
        return not period or second % period < self.run.interval

    def sample(self, second: float) -> Sample:
        rows: Rows = {}
        self._devices(rows, second)
        self._node(rows, second)
        self._processes(rows, second)
        states = {
            key: State("lost", START + gpu.lost_at, "GPU is lost")
            if second >= gpu.lost_at
            else State("hung", START + gpu.hung_at, "nvmlDeviceGetUtilizationRates")
            for key, gpu in enumerate(self.node.gpus)
            if second >= min(gpu.lost_at, gpu.hung_at)
        }
        return Sample(START + second, second, rows, states, list(self._events(second)))

    def near(self, value: float, share: float, high: float = 1e18) -> float:
        """With noise; what is 0 stays 0."""
        return min(high, max(0.0, self.rng.gauss(value, share * value))) if value else 0.0

    # -- devices

    def _devices(self, rows: Rows, second: float) -> None:
        for key, gpu in enumerate(self.node.gpus):
            row = rows.setdefault("device", {}).setdefault(key, {})
            if second >= min(gpu.lost_at, gpu.hung_at):
                why = Missing("lost") if second >= gpu.lost_at else Missing("timeout", "hangs")
                names = ("busy_percent", "mem_used_bytes", "power_w", "mem_controller_percent")
                row.update(dict.fromkeys(names, why))
                continue
            self._device(rows, row, key, gpu, second)
            for name in gpu.refused.keys() & row.keys():
                row[name] = gpu.refused[name]

    def _device(
        self, rows: Rows, row: dict[str, Reading], key: int, gpu: Gpu, second: float
    ) -> None:
        model = gpu.model
        here = [proc for proc in gpu.listed() if proc.mem is not None and proc.is_here(second)]
        busy = self.near(at(gpu.busy, second), gpu.noise, 100.0)
        held = {proc.pid: at(proc.mem or 0.0, second - proc.since) for proc in here}
        load = busy / 100
        fraction = at(gpu.pf, second) * load
        power = model.idle_w + fraction * (model.limit_w - model.idle_w)
        power = self.near(power if gpu.power is None else at(gpu.power, second), gpu.noise / 2)
        self.energy_j[key] += power * self.run.interval
        used = min(model.total - model.reserved, at(gpu.base, second) + sum(held.values()))
        row.update(
            busy_percent=MIG if gpu.mig else busy,
            mem_controller_percent=MIG if gpu.mig else busy / 2,
            mem_used_bytes=int(used), mem_reserved_bytes=int(model.reserved), power_w=power,
        )  # fmt: skip
        if model.gpm:
            row.update(
                sm_active_percent=self.near(at(gpu.sm, second) * load, gpu.noise, 100.0),
                sm_occupancy_percent=30 * load, tensor_active_percent=at(gpu.tensor, second) * load,
                dram_active_percent=at(gpu.dram, second) * load,
                fp32_active_percent=at(gpu.fp32, second) * load,
                fp64_active_percent=at(gpu.fp64, second) * load,
            )  # fmt: skip
        elif second % 60 < self.run.interval:
            row["sm_active_percent"] = _NO_GPM
        if self.is_due("device.burst", second) and not (gpu.polled or gpu.mig):
            most = at(gpu.burst, second) if gpu.burst is not None else min(100.0, busy * 1.03)
            row.update(busy_mean_percent=busy, busy_min_percent=min(busy, most),
                       busy_max_percent=max(busy, most), busy_gap_s=0.0)  # fmt: skip
        self._slow(row, key, gpu, second, load)
        if self.is_due("device.processes", second):
            row["processes"] = len(here)
            unknown = gpu.polled or gpu.mig
            for proc in here:
                sm = busy if proc.sm is None else at(proc.sm, second)
                rows.setdefault("usage", {})[key, proc.pid] = {
                    "type": "C", "mem_bytes": int(held[proc.pid]),
                    "sm_percent": Missing("unsupported") if unknown else sm,
                }  # fmt: skip
                self._pool(rows, key, proc, second - proc.since)

    def _pool(self, rows: Rows, key: int, proc: Proc, age: float) -> None:
        pool = proc.pool
        if pool is not None and age >= 4 and pool.tells(age):
            peak = max(self.peaks.get(proc.pid, 0.0), at(pool.used, age) + pool.spike)
            self.peaks[proc.pid] = peak
            rows.setdefault("pool", {})[key, proc.pid] = pool.row(age, peak)

    def _slow(
        self, row: dict[str, Reading], key: int, gpu: Gpu, second: float, load: float
    ) -> None:
        """What is read every few seconds."""
        model = gpu.model
        if self.is_due("device.clocks", second):
            clock = model.clock_mhz if gpu.clock is None else at(gpu.clock, second)
            mask = int(at(gpu.throttle, second)) or (0 if load else 1)
            row.update(sm_clock_mhz=clock if load else 210.0, mem_clock_mhz=1593.0,
                       throttle_mask=mask)  # fmt: skip
        if self.is_due("device.links", second):
            pcie = self.near(at(gpu.pcie, second) * load, gpu.noise)
            nvlink = self.near(at(gpu.nvlink, second) * load, gpu.noise)
            row.update(
                pcie_tx_bytes_per_s=pcie, pcie_rx_bytes_per_s=pcie, nvlink_tx_bytes_per_s=nvlink,
                nvlink_rx_bytes_per_s=nvlink, energy_j=self.energy_j[key],
                throttle_thermal_s=at(gpu.thermal_s, second),
            )  # fmt: skip
        if self.is_due("device.thermal", second):
            row["temperature_c"] = at(gpu.temperature, second) if load else 34.0
        if self.is_due("device.state", second):
            idle_gen = 1.0 if not load else float(model.pcie_gen)
            row.update(
                pstate=0 if load else 8, power_limit_w=gpu.power_limit or model.limit_w,
                pcie_gen=idle_gen if gpu.gen is None else at(gpu.gen, second),
                pcie_width=at(gpu.width, second), pcie_replays=at(gpu.replays, second),
            )  # fmt: skip
        if self.is_due("device.health", second):
            told = {name: at(value, second) for name, value in gpu.health.items()}
            row.update({"ecc_corrected": 0, "ecc_uncorrected": 0, "remap_pending": 0,
                        "remap_failed": 0, "recovery_action": 0, **told})  # fmt: skip

    # -- the node

    def _node(self, rows: Rows, second: float) -> None:
        node = self.node
        cores = self.near(self.cores_at(second), 0.01, node.cpus)
        self.cpu_s += cores * self.run.interval
        anon = 0.8 * node.mem if node.anon is None else at(node.anon, second)
        used = anon + at(node.shmem, second)
        cache = max(0.0, min(at(node.cache, second), node.mem - used))
        job: dict[str, Reading] = {
            "cpu_cores_used": cores, "cpu_s": self.cpu_s,
            "cpu_throttled_percent": at(node.throttled, second), "mem_used_bytes": used,
            "mem_anon_bytes": anon, "mem_shmem_bytes": at(node.shmem, second),
            "mem_cache_bytes": cache, "mem_charged_bytes": used + cache,
            "mem_limit_bytes": node.mem, "swap_used_bytes": at(node.swap, second),
            "oom_kills": at(node.oom_kills, second),
        }  # fmt: skip
        if self.is_due("job.io", second):
            job.update(
                read_bytes_per_s=at(node.read, second), write_bytes_per_s=at(node.write, second),
                cpu_pressure_percent=at(node.cpu_pressure, second),
                mem_pressure_percent=0.0, io_pressure_percent=at(node.io_pressure, second),
            )  # fmt: skip
        rows["job"] = {"": job}
        rows["host"] = {"": {"cpu_percent": 100 * cores / 128, "load1": at(node.load, second),
                             "iowait_percent": at(node.iowait, second)}}  # fmt: skip
        if node.disks and self.is_due("disk.disk", second):
            rows["disk"] = {
                label: {"path": path, "total_bytes": total, "used_bytes": at(used_, second),
                        "free_bytes": total - at(used_, second)}
                for label, (path, total, used_) in node.disks.items()
            }  # fmt: skip

    def _processes(self, rows: Rows, second: float) -> None:
        if not self.is_due("process.process", second):
            return
        cores = self.cores_at(second)
        here = list({proc.pid: proc for proc in self._all() if proc.is_here(second)}.values())
        share = 100 * cores / max(1, len([p for p in here if p.cpu is None]))
        rows["process"] = {
            proc.pid: {"cpu_percent": share if proc.cpu is None else at(proc.cpu, second),
                       "threads": proc.threads, "state": "S"}
            for proc in here
        }  # fmt: skip

    def _all(self) -> Iterator[Proc]:
        for gpu in self.node.gpus:
            yield from gpu.listed()
        procs = self.node.procs
        if procs is None:
            procs = [] if self.node.gpus else [Proc(framework="", threads=self.node.cpus)]
        yield from procs

    def _events(self, second: float) -> Iterator[Event]:
        time = START + second
        here = {proc.pid: proc for proc in self._all() if proc.is_here(second)}
        for pid, proc in here.items():
            if pid not in self.known:
                yield Event(time, "process", None, pid, "", proc.facts._asdict())
        for pid in self.known.keys() - here.keys():
            yield Event(time, "process-end", None, pid)
        self.known = here
        told = [(when, "mark", None, text) for when, text in self.run.marks]
        told += [(when, "xid", key, text)
                 for key, gpu in enumerate(self.node.gpus) for when, text in gpu.xids]  # fmt: skip
        for when, kind, device, text in told:
            if when <= second and (when, f"{kind}{device}{text}") not in self.said:
                self.said.add((when, f"{kind}{device}{text}"))
                yield Event(START + when, kind, device, None, text)
