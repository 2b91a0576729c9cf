"""A job as gpumon's agent would have recorded it: headers and samples of each node.

The physics is in the segments. Here it passes through the instruments: counters with their own
periods, averages and polls, noise, gaps, readings that a driver or a kernel does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import exp
from random import Random

from gpumon.model.fields import GROUPS
from gpumon.model.reading import MIG, Missing, Reading
from gpumon.model.sample import (
    Device,
    Event,
    Header,
    JobContext,
    Key,
    Mig,
    Process,
    Rows,
    Sample,
    State,
)
from tests.simulator.job import LOOK_S, NODE_CORES, NODE_MEM, SimJob, used
from tests.simulator.loads import IDLE, Cores, Gpu, Node
from tests.simulator.machine import GIB, Board
from tests.simulator.memory import CONTEXT, Held

START = 1_795_200_000.0
_PERIOD_S = {group.key: group.period_s for group in GROUPS}
_ABSENT = Missing("unsupported")


def node_name(job: SimJob, node: int) -> str:
    return f"{'gpu' if job.request.gpus else 'cpu'}{node + 1:02}"


def stream(job: SimJob, node: int) -> Iterator[Header | Sample]:
    """One node's items, in order."""
    yield _header(job, node)
    recorder, view = _Recorder(job, node), job.view
    n = 0
    while (second := n * view.interval_s) < job.ended.seconds:
        hidden = any(since <= second < to for since, to in view.gaps)
        seen = view.since <= second < view.until and not hidden
        sample = recorder.sample(second, seen)
        if seen:
            yield sample
        n += 1


def _header(job: SimJob, node: int) -> Header:
    request = job.request
    name = node_name(job, node)
    context = JobContext(
        id="4711", name=job.program.kind, user="ada", partition=request.partition, nodes=name,
        node_count=request.nodes, cpus=request.cpus, mem_limit_bytes=int(request.mem),
        gpus=request.gpus, start=START,
        end=None if request.limit_words else START + request.limit_s, source="cgroup",
    )  # fmt: skip
    devices = [_device(request.board, name, key) for key in range(request.gpus)]
    for key in range(request.gpus, request.gpus + job.view.node_gpus):
        devices.append(_device(request.board, name, key)._replace(cuda_index=None))
    facts: dict[str, Reading] = {
        "cpus": request.cpus, "cpus_online": NODE_CORES, "mem_total_bytes": NODE_MEM,
        "threads_per_core": request.threads_per_core,
    }  # fmt: skip
    return Header(name, "boot", START, 0.0, job.view.interval_s, "0.1.0", devices, "580.95",
                  "13.580", "13.0", context, facts)  # fmt: skip


def _device(board: Board, node: str, key: int) -> Device:
    facts: dict[str, Reading] = {
        "mem_total_bytes": int(board.mem_bytes), "compute_capability": board.cc,
        "power_limit_default_w": board.limit_w, "pcie_gen_max": board.pcie_gen,
        "pcie_width_max": 16, "nvlink_links": board.nvlinks, "sm_clock_max_mhz": board.clock_mhz,
    }  # fmt: skip
    mig = Mig(f"GPU-{node}-parent", 3 + key, 0, board.mig) if board.mig else None
    uuid = f"{'MIG' if mig else 'GPU'}-{node}-{key}"
    return Device(key, key, uuid, board.name, key, mig, facts)


class _Recorder:
    """The instruments of one node. Sampled at every tick, also where nobody listens."""

    def __init__(self, job: SimJob, node: int) -> None:
        self.job, self.node = job, node
        anew = f" {job.view.noise}" if job.view.noise else ""
        self.rng = Random(f"{job.name} {node} seen{anew}")
        self.pools = Random(f"{job.name} {node} pools{anew}")
        segments = job.program.segments
        self.starts = list(accumulate((each.seconds for each in segments[:-1]), initial=0.0))
        self.cpu_s = self.cache = 0.0
        self.energy_j = [0.0] * job.request.gpus
        self.thermal_s = [0.0] * job.request.gpus
        self.charged_peak = 0.0
        self.worked_at = [-1e9] * job.request.gpus
        self.known: set[int] = set()
        self.said: set[int] = set()

    def now(self, second: float) -> Node:
        at = bisect_right(self.starts, second) - 1
        return self.job.program.segments[at].nodes[self.node]

    def is_due(self, group: str, second: float) -> bool:
        period = _PERIOD_S[group]
        return not period or second % period < self.job.view.interval_s

    def near(self, value: float, share: float, high: float = 1e18) -> float:
        return min(high, max(0.0, self.rng.gauss(value, share * value))) if value else 0.0

    def sample(self, second: float, seen: bool) -> Sample:
        rows: Rows = {}
        state = self.now(second)
        for key in range(self.job.request.gpus):
            if self._is_lost(key, second):
                names = ("busy_percent", "mem_used_bytes", "power_w", "mem_controller_percent")
                rows.setdefault("device", {})[key] = dict.fromkeys(names, Missing("lost"))
                continue
            self._gpu(rows, key, state.gpus[key] if key < len(state.gpus) else IDLE, second)
        for key in range(self.job.request.gpus, self.job.request.gpus + self.job.view.node_gpus):
            self._other_jobs_gpu(rows, key, second)
        self._host(rows, state, second)
        states: dict[int, State] = {}
        lost = self.job.program.lost
        if lost is not None and self._is_lost(lost[1], second):
            states[lost[1]] = State("lost", START + lost[0], "GPU is lost")
        return Sample(
            START + second, second, rows, states, list(self._events(second) if seen else ())
        )

    # -- GPUs

    def _is_lost(self, key: int, second: float) -> bool:
        lost = self.job.program.lost
        return lost is not None and (self.node, key) == (0, lost[1]) and second >= lost[0]

    def _is_dead(self, second: float) -> bool:
        dead = self.job.program.dead
        return dead is not None and self.node == dead[1] and second >= dead[0]

    def _gpu(self, rows: Rows, key: int, load: Gpu, second: float) -> None:
        job, board = self.job, self.job.request.board
        dt = job.view.interval_s
        mean, poll, most = self._activity(load, second, dt)
        poll = self.near(100 * poll, 0.015, 100.0)
        mean = self.near(100 * mean, 0.01, 100.0)
        held = job.program.held[self.node][key] if job.program.held else ()
        held = () if self._is_dead(second) else held
        here = [(4312 + key * 10 + n, each) for n, each in enumerate(held) if second >= 10]
        mine = {pid: max(0.0, each.shown(second - 10)) for pid, each in here}
        taken = min(board.mem_bytes - board.reserved_bytes, sum(mine.values()) + 3 * (1 << 20))
        if load.foreign or load.guest:
            guest = load.guest or 6.0 * GIB
            mine[99000 + key] = guest
            taken = min(board.mem_bytes - board.reserved_bytes, taken + guest)
        intensity = load.power * (1 - load.waiting) + 0.08 * load.waiting
        warm = 0.03 if here else 0.0  # a context keeps the clocks up
        power = board.idle_w + (board.limit_w - board.idle_w) * max(
            warm, intensity * poll / 100 * load.clock
        )
        if load.encoder or load.decoder:
            power += 0.08 * board.limit_w
        self.energy_j[key] += power * dt
        row: dict[str, Reading] = {
            "busy_percent": MIG if board.mig else poll,
            "mem_controller_percent": MIG if board.mig else poll * load.dram,
            "mem_used_bytes": int(taken),
            "mem_reserved_bytes": int(board.reserved_bytes),
            "power_w": _ABSENT if job.view.no_power else self.near(power, 0.01),
        }
        rows.setdefault("device", {})[key] = row
        self._counters(row, key, load, poll, second)
        polled = job.view.polled or bool(board.mig)
        if not polled and self.is_due("device.burst", second):
            row.update(busy_mean_percent=mean, busy_max_percent=max(mean, 100 * most),
                       busy_min_percent=min(mean, poll), busy_gap_s=0.0)  # fmt: skip
        if self.is_due("device.processes", second):
            row["processes"] = len(mine)
            for pid, size in mine.items():
                share = 100 * load.foreign if pid >= 99000 else mean / max(1, len(here))
                rows.setdefault("usage", {})[key, pid] = {
                    "type": "C", "mem_bytes": int(size),
                    "sm_percent": _ABSENT if polled else min(100.0, share),
                    "encoder_percent": _ABSENT if polled else 100 * load.encoder,
                    "decoder_percent": _ABSENT if polled else 100 * load.decoder,
                }  # fmt: skip
            for pid, each in here if job.view.is_told(second, job.ended.seconds) else ():
                pool = self._pool(each, board, second - 10)
                if pool:
                    rows.setdefault("pool", {})[key, pid] = pool

    def _other_jobs_gpu(self, rows: Rows, key: int, second: float) -> None:
        """One that is no part of this job; it is seen where a site does not hide it."""
        board, busy = self.job.request.board, self.near(90.0, 0.05, 100.0)
        rows.setdefault("device", {})[key] = {
            "busy_percent": busy, "mem_controller_percent": 0.4 * busy,
            "mem_used_bytes": int(0.6 * board.mem_bytes),
            "mem_reserved_bytes": int(board.reserved_bytes),
            "power_w": self.near(0.7 * board.limit_w, 0.02),
        }  # fmt: skip
        if self.is_due("device.processes", second):
            rows["device"][key]["processes"] = 1
            rows.setdefault("usage", {})[key, 99000 + key] = {
                "type": "C", "mem_bytes": int(0.6 * board.mem_bytes), "sm_percent": busy,
            }  # fmt: skip

    def _pool(self, held: Held, board: Board, age: float) -> dict[str, Reading]:
        """What the probe tells: at a moment less is in use than at most."""
        live = held.live(age) if held.live is not None else 0.0
        if live <= 0:
            return {}
        told: dict[str, Reading] = {
            "used_bytes": live * self.pools.uniform(0.6, 1.0), "peak_bytes": live,
        }  # fmt: skip
        if held.framework in ("torch", "vllm"):
            reserved = held.shown(age) - CONTEXT
            told.update(reserved_bytes=reserved, reserved_peak_bytes=reserved, retries=0, ooms=0)
        if held.framework == "jax":
            told["limit_bytes"] = 0.75 * board.mem_bytes
        return told

    def _activity(self, load: Gpu, second: float, dt: float) -> tuple[float, float, float]:
        """Busy over the tick, at the poll, and at most within the tick; 0 to 1."""
        if load.requests_per_s:
            count = self._poisson(load.requests_per_s * dt)
            mean = min(1.0, count * load.request_s / dt)
            return mean, float(self.rng.random() < mean), float(count > 0)
        busy = max(load.busy, load.foreign)
        if not busy:
            return 0.0, 0.0, 0.0
        if load.cycle_s <= 1 or busy >= 1:
            return busy, busy, min(1.0, busy * 1.05) if load.cycle_s < 0.3 else 1.0
        if load.cycle_s > dt:
            works = float(second % load.cycle_s < busy * load.cycle_s)
            mean = _share_of_tick(busy, load.cycle_s, second, dt)
            return mean, works, float(mean > 0)
        # steps are never equally long: no poll stays in step with them
        return busy, float(self.rng.random() < busy), 1.0

    def _poisson(self, mean: float) -> int:
        count, product, floor = 0, self.rng.random(), exp(-min(mean, 700.0))
        while product > floor:
            count += 1
            product *= self.rng.random()
        return count

    def _counters(
        self, row: dict[str, Reading], key: int, load: Gpu, poll: float, second: float
    ) -> None:
        """What is read every few seconds."""
        board, busy = self.job.request.board, poll / 100
        useful = busy * (1 - load.waiting)
        if board.gpm:
            active = useful * load.sm + busy * load.waiting * 0.12
            row.update(
                sm_active_percent=self.near(100 * active, 0.02, 100.0),
                sm_occupancy_percent=35 * useful, tensor_active_percent=100 * useful * load.tensor,
                dram_active_percent=100 * useful * load.dram,
                fp32_active_percent=100 * useful * load.fp32,
                fp64_active_percent=100 * useful * load.fp64,
            )  # fmt: skip
        elif second % 60 < self.job.view.interval_s:
            row["sm_active_percent"] = Missing("unsupported", "needs Hopper")
        if busy:
            self.worked_at[key] = second
        if self.is_due("device.clocks", second):
            held = bool(self.job.program.held) and second >= 10
            clock = board.clock_mhz * load.clock if busy or held else 210.0
            row.update(sm_clock_mhz=clock, mem_clock_mhz=1593.0,
                       throttle_mask=load.throttled or (0 if busy else 1))  # fmt: skip
        if load.throttled & 0x68:
            self.thermal_s[key] += self.job.view.interval_s
        if self.is_due("device.links", second):
            share = busy / load.busy if load.busy else 0.0
            pcie, nvlink = load.pcie * min(share, 2.0), load.nvlink * min(share, 2.0)
            if not load.busy and not load.requests_per_s:
                pcie, nvlink = load.pcie, load.nvlink
            row.update(
                pcie_tx_bytes_per_s=self.near(pcie, 0.05),
                pcie_rx_bytes_per_s=self.near(pcie, 0.05),
                nvlink_tx_bytes_per_s=self.near(nvlink, 0.05),
                nvlink_rx_bytes_per_s=self.near(nvlink, 0.05),
                energy_j=self.energy_j[key], throttle_thermal_s=self.thermal_s[key],
            )  # fmt: skip
        if self.is_due("device.thermal", second):
            hot = 88.0 if load.throttled & 0x68 else 34 + 34 * useful
            row.update(temperature_c=hot, encoder_percent=100 * load.encoder,
                       decoder_percent=100 * load.decoder)  # fmt: skip
        if self.is_due("device.state", second):
            gen = float(board.pcie_gen) if second - self.worked_at[key] < 15 else 1.0
            row.update(pstate=0 if busy else 8, power_limit_w=board.limit_w, pcie_gen=gen,
                       pcie_width=16.0, pcie_replays=0.0)  # fmt: skip
        if self.is_due("device.health", second):
            row.update({"ecc_corrected": self.job.view.old_errors, "ecc_uncorrected": 0,
                        "remap_pending": 0, "remap_failed": 0, "recovery_action": 0})  # fmt: skip

    # -- the host

    def _host(self, rows: Rows, state: Node, second: float) -> None:
        job, view, request = self.job, self.job.view, self.job.request
        cores, dt = state.cores, view.interval_s
        spent = self.near(self._cores(cores, second), 0.015, request.cpus)
        self.cpu_s += spent * dt
        shmem = job.program.shmem[self.node](second) if job.program.shmem else 0.0
        held = min(used(job, self.node, second), request.mem)
        most = self._most_held(second, held)
        self.charged_peak = max(self.charged_peak, min(request.mem, most + self.cache))
        room = max(0.0, request.mem - most)  # page cache gives way, and fills as files are read
        self.cache = min(min(self.cache, room) + (state.read + state.write) * dt,
                         request.mem - held)  # fmt: skip
        cache = self.cache
        self.charged_peak = max(self.charged_peak, held + cache)
        killed = job.ended.oom_node == self.node and second >= job.ended.seconds - 2 * dt
        row: dict[str, Reading] = {
            "cpu_cores_used": spent, "cpu_s": self.cpu_s, "cpu_throttled_percent": 0.0,
            "mem_used_bytes": held, "mem_anon_bytes": held - shmem, "mem_shmem_bytes": shmem,
            "mem_cache_bytes": cache, "mem_active_cache_bytes": min(cache, job.program.reread),
            "mem_charged_bytes": held + cache,
            "mem_peak_bytes": request.mem if killed else self.charged_peak,
            "mem_limit_bytes": request.mem, "swap_used_bytes": 0.0,
            "oom_events": float(killed), "oom_kills": float(killed),
            "processes": job.program.ranks + job.program.workers,
        }  # fmt: skip
        waits = _cpu_pressure(cores, request.cpus)
        blocked = 100 * cores.blocked
        if self.is_due("job.io", second):
            row.update(read_bytes_per_s=self.near(state.read, 0.1),
                       write_bytes_per_s=self.near(state.write, 0.1))  # fmt: skip
            if not view.no_pressure:
                row.update(cpu_pressure_percent=self.near(waits, 0.05, 100.0),
                           mem_pressure_percent=90.0 if killed else 0.0,
                           io_pressure_percent=self.near(blocked, 0.05, 100.0))  # fmt: skip
        rows["job"] = {"": row}
        others = view.neighbours
        rows["host"] = {"": {
            "cpu_percent": min(100.0, 100 * (spent + others) / NODE_CORES),
            "iowait_percent": min(100.0, 100 * cores.blocked * 2 / NODE_CORES),
            "mem_used_bytes": min(NODE_MEM, held + others * 4 * GIB),
            "load1": max(cores.demand, spent) + others, "load5": spent + others,
        }}  # fmt: skip
        if self.is_due("net.net", second):
            rows["net"] = {"ib0": {"rx_bytes_per_s": state.net, "tx_bytes_per_s": state.net,
                                   "link_bits_per_s": 200e9}}  # fmt: skip
        if self.is_due("process.process", second):
            rows["process"] = self._processes(state, spent, held, second)

    def _most_held(self, second: float, held: float) -> float:
        """The most since the last sample, which the kernel sees."""
        dt, spike = self.job.view.interval_s, self.job.program.spike
        looks = range(max(1, int(dt // LOOK_S)))
        most = max(used(self.job, self.node, max(0.0, second - n * LOOK_S)) for n in looks)
        if spike is not None and self.node == 0 and second - dt < spike[0] <= second:
            most = max(most, held + spike[1])
        return min(most, self.job.request.mem)

    def _cores(self, cores: Cores, second: float) -> float:
        """Used over the tick; a cycle longer than the tick shows its parts."""
        most = min(self.job.request.cpus, cores.confined or 1e9)
        if cores.period_s <= self.job.view.interval_s or cores.share >= 1:
            return cores.used(self.job.request.cpus)
        share = _share_of_tick(cores.share, cores.period_s, second, self.job.view.interval_s)
        return share * min(cores.demand, most) + (1 - share) * min(cores.base, most)

    def _processes(
        self, state: Node, spent: float, held: float, second: float
    ) -> dict[Key, dict[str, Reading]]:
        program = self.job.program
        ranks, workers = program.ranks, program.workers
        awake = max(1, ranks - len(state.asleep))
        if workers:
            each = min(program.rank_cores, spent / awake)
            rest = max(0.0, spent - each * awake) / workers
        else:
            each, rest = spent / awake, 0.0
        count = max(1, (state.cores.threads or round(state.cores.demand)) // (ranks + workers))
        blocked, short = state.cores.blocked, state.cores.wanted(self.job.request.cpus)
        found: dict[Key, dict[str, Reading]] = {}
        if self._is_dead(second):
            return found
        for pid, share in self._pids(each, rest, state.asleep):
            asleep = "D" if blocked > 0.5 else "S"
            # a sample sees one moment of what runs, or waits for a core that it would use
            runs = (0.618 * second + 0.37 * pid) % 1 < share * short
            found[pid] = {
                "cpu_percent": 100 * share, "rss_bytes": held / (ranks + workers),
                "threads": count, "state": "R" if runs else asleep,
                "read_bytes_per_s": state.read / (ranks + workers),
                "write_bytes_per_s": state.write / (ranks + workers),
            }  # fmt: skip
        return found

    def _pids(
        self, each: float, rest: float, asleep: Sequence[int] = ()
    ) -> Iterator[tuple[int, float]]:
        program = self.job.program
        for rank in range(program.ranks):
            yield 4312 + rank * 10, 0.0 if rank in asleep else each
        for worker in range(program.workers):
            yield 6000 + worker, rest

    def _events(self, second: float) -> Iterator[Event]:
        job, program = self.job, self.job.program
        if second >= 10:
            gpus = job.request.gpus if program.held else 0
            pids = {pid for pid, _ in self._pids(0, 0)}
            pids |= {4312 + key * 10 + n for key in range(gpus)
                     for n in range(len(program.held[self.node][key]))}  # fmt: skip
            strangers = {99000 + key for key, load in enumerate(self.now(second).gpus)
                         if load.foreign or load.guest}  # fmt: skip
            strangers |= {99000 + job.request.gpus + n for n in range(job.view.node_gpus)}
            for pid in sorted((pids | strangers) - self.known):
                self.known.add(pid)
                yield Event(START + second, "process", None, pid, "", self._facts(pid)._asdict())
        for n, (at, key, text) in enumerate(job.xids):
            if self.node == 0 and at <= second and n not in self.said:
                self.said.add(n)
                yield Event(START + at, "xid", key, None, text)

    def _facts(self, pid: int) -> Process:
        program, own = self.job.program, pid < 99000
        held = program.held[self.node] if program.held else ()
        frameworks = [each.framework for gpu in held for each in gpu]
        on_gpu = 4312 <= pid < 6000 and bool(held)
        return Process(
            pid, "ada" if own else "bob", program.command if own else "python other.py",
            program.name if own else "python", 4000, 1000 if own else 1001, START + 10, own, own,
            (program.framework or (frameworks or [""])[0]) if own and on_gpu else "",
            "4711" if own else "4650", {},
        )  # fmt: skip


def _share_of_tick(share: float, period_s: float, second: float, dt: float) -> float:
    """How much of the tick that ends now lies in the first `share` of its cycle."""

    def until(at: float) -> float:
        return at // period_s * share * period_s + min(at % period_s, share * period_s)

    return (until(second) - until(second - dt)) / dt


def _cpu_pressure(cores: Cores, allocated: int) -> float:
    """PSI's "some" for the CPU: the share of time in which a runnable thread waits."""
    most = min(allocated, cores.confined or allocated)
    waits = [(cores.share, cores.demand), (1 - cores.share, cores.base)]
    return 100 * sum(share * max(0.0, 1 - most / demand) for share, demand in waits if demand)
