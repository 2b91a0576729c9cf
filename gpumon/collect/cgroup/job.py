"""The job's cgroup: what all its processes on this node use together, and what it may use.

Formats: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Callable

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.cgroup.guests import Guests
from gpumon.collect.cgroup.path import UNIFIED, JobPath, Mount, locate, mounts_of
from gpumon.collect.procfs import (
    PRESSURES,
    entry,
    look,
    parse_count,
    parse_cpu_list,
    parse_pressure,
    parse_table,
)
from gpumon.collect.rates import Moment, Rates, moment_since
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.reading import ENDED, Missing, Reading, then

_NO_LIMIT_BYTES = 1 << 60  # v1 prints "none" as the largest number of pages
_ENDED: dict[str, dict[str, Reading]] = {
    key: dict.fromkeys((field.name for field in GROUP_BY_KEY[key].fields), ENDED)
    for key in ("job.cgroup", "job.io")
}
_KERNEL_MEMORY = ("slab_unreclaimable", "kernel_stack", "pagetables")
_WALK_PERIOD_S = 5.0
_MAX_DIRECTORIES = 4096

_NO_LIMIT = Missing("unsupported", "no limit")
_V1 = Missing("unsupported", "cgroup v1")


class JobCgroup:
    """Readings of the job's cgroup. Without a job it reads nothing.

    `mounts` names the hierarchies' mount points; by default they are looked up in `proc`.
    """

    name = "cgroup"

    def __init__(
        self,
        job: JobPath | None,
        proc: str = "/proc",
        mounts: Mapping[str, Mount] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        mounts = mounts_of(proc) if mounts is None else mounts
        self.job = job
        self._mounts = mounts
        self._directories: dict[str, str] = {}
        for controller, path in (job.paths if job else {}).items():
            mount = mounts.get(controller)
            directory = locate(path, mount) if mount else ""
            if directory:
                self._directories[controller] = directory
        # in a hybrid set-up the v2 tree may hold the job's processes, but not its controllers
        unified = UNIFIED in self._directories and "memory" not in self._directories
        self.version = 2 if unified else 1
        self._rates = Rates()
        self._guests = Guests(proc, clock)
        self._clock = clock
        self._schedule = Schedule()
        self._walked: dict[str, tuple[float, list[str]]] = {}
        self._oom_kills: dict[str, int] = {}
        self._oom_kills_ended = 0  # in steps that are no more

    @property
    def exists(self) -> bool:
        """False outside of a job, and once the job has ended and Slurm has removed it."""
        return any(os.path.isdir(directory) for directory in self._directories.values())

    def collect(self, tick: Tick) -> None:
        if self.job is None:
            return
        ended = bool(self._directories) and not self.exists
        tick.put("job", "", _ENDED["job.cgroup"].copy() if ended else self._fast())
        if self._schedule.due("job.io", 5, tick.mono):
            tick.put("job", "", _ENDED["job.io"] if ended else self._io())

    # -- what stands still ---------------------------------------------------------------------

    def cpus(self) -> list[int] | Missing:
        """Numbers of the CPUs that the job may use on this node."""
        names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
        text: str | Missing = Missing("unsupported", "")
        for name in names:
            text = self._read("cpuset", name)
            if isinstance(text, Missing) and text.reason != "unsupported":
                return text
            if isinstance(text, str) and text.strip():
                return parse_cpu_list(text) or Missing("error", f"{name} is unreadable")
        return text if isinstance(text, Missing) else Missing("unsupported", "no cpuset")

    def mem_limit_bytes(self) -> int | Missing:
        """The least limit of the job's directory and those above it."""
        directory = self._directory("memory")
        if isinstance(directory, Missing):
            return directory
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        top = self._mounts[self._tree("memory")].directory.rstrip("/")
        least: int | Missing = _NO_LIMIT
        while True:
            text = self._read_file(directory, name)
            limit = parse_count(text) if isinstance(text, str) else None
            if isinstance(text, Missing) and text.reason != "unsupported":
                return text  # the next one up may be far larger
            if limit is not None and limit < _NO_LIMIT_BYTES:
                least = limit if isinstance(least, Missing) else min(least, limit)
            if directory == top or "/" not in directory:
                return least
            directory = os.path.dirname(directory)

    def device_minors(self) -> frozenset[int] | None:
        """Minor numbers of the GPUs that this process may open; None when not limited or known.

        v1 only: what v2 allows lies in a BPF program that nobody but root may read.
        """
        mount = self._mounts.get("devices")
        if self.job is None or mount is None or not self.job.device_path:
            return None
        text = self._read_file(locate(self.job.device_path, mount), "devices.list")
        return parse_device_minors(text) if isinstance(text, str) else None

    def pids(self) -> list[int]:
        """Every process of the job that this user's view of the cgroup shows, in no order."""
        tree = next((name for name in _TREES_OF_PIDS if name in self._directories), None)
        if tree is None:
            return []
        pids: dict[int, None] = {}
        for directory in self._below(tree):
            text = self._read_file(directory, "cgroup.procs")
            for line in text.split() if isinstance(text, str) else ():
                pid = parse_count(line)
                if pid:  # 0 stands for a process of another PID namespace
                    pids[pid] = None
        return list(pids)

    # -- reading files ---------------------------------------------------------------------------

    def _tree(self, controller: str) -> str:
        return UNIFIED if self.version == 2 else controller

    def _directory(self, controller: str) -> str | Missing:
        directory = self._directories.get(self._tree(controller))
        return directory or Missing("unsupported", f"{controller} is not under Slurm's control")

    def _read(self, controller: str, name: str) -> str | Missing:
        return then(self._directory(controller), lambda found: self._read_file(found, name))

    def _read_file(self, directory: str, name: str) -> str | Missing:
        return look(f"{directory}/{name}", Missing("unsupported", f"no {name}"))

    def _table(self, controller: str, name: str) -> dict[str, int] | Missing:
        return then(self._read(controller, name), parse_table)

    def _count(self, controller: str, name: str) -> int | Missing:
        return then(self._read(controller, name), parse_count, name)

    def _below(self, tree: str) -> list[str]:
        """The job's directory and all below it; steps come and go, so looked up every 5 s."""
        now = self._clock()
        walked = self._walked.get(tree)
        if walked is None or now >= walked[0] + _WALK_PERIOD_S:
            found = [self._directories[tree]]
            for directory in found:
                try:
                    with os.scandir(directory) as entries:
                        found += [
                            entry.path for entry in entries if entry.is_dir(follow_symlinks=False)
                        ]
                except OSError:
                    pass  # a step that has just ended
                if len(found) >= _MAX_DIRECTORIES:
                    break
            walked = self._walked[tree] = (now, found)
        return walked[1]

    # -- readings --------------------------------------------------------------------------------

    def _fast(self) -> dict[str, Reading]:
        began = self._clock()
        cpu_s, throttling = self._cpu_v2() if self.version == 2 else self._cpu_v1()
        moment = moment_since(began, self._clock)
        pids = self.pids()
        self._guests.look(pids)
        readings: dict[str, Reading] = {
            "cpu_cores_used": self._rates.per_second("cpu", cpu_s, moment),
            "cpu_s": cpu_s,
            "cpu_throttled_percent": self._throttled_percent(throttling, moment),
            "mem_limit_bytes": self.mem_limit_bytes(),
            "processes": len(pids) if self._directories else Missing("unsupported"),
        }
        memory = self._memory_v2() if self.version == 2 else self._memory_v1()
        readings.update(self._without_guests(memory))
        return readings

    def _without_guests(self, memory: dict[str, Reading]) -> dict[str, Reading]:
        held = self._guests.held_bytes
        kernel, charged = memory["mem_peak_bytes"], memory["mem_charged_bytes"]
        if isinstance(kernel, int) and isinstance(charged, int):
            memory["mem_peak_bytes"] = self._guests.peak_without(kernel, charged)
        for name in ("mem_used_bytes", "mem_anon_bytes", "mem_charged_bytes"):
            with_guests = memory[name]
            if isinstance(with_guests, int):  # not read at one moment with theirs
                memory[name] = max(0, with_guests - held)
        return {**memory, "mem_gpumon_bytes": held}

    def _cpu_v2(self) -> tuple[Reading, dict[str, int] | Missing]:
        table = self._table("cpu", "cpu.stat")
        return then(entry(table, "usage_usec"), lambda usage: usage / 1e6), table

    def _cpu_v1(self) -> tuple[Reading, dict[str, int] | Missing]:
        usage = self._count("cpuacct", "cpuacct.usage")
        return then(usage, lambda usage: usage / 1e9), self._table("cpu", "cpu.stat")

    def _throttled_percent(self, table: dict[str, int] | Missing, moment: Moment) -> Reading:
        periods, throttled = entry(table, "nr_periods"), entry(table, "nr_throttled")
        if periods == 0:
            return Missing("unsupported", "no CPU quota")
        per_s = self._rates.per_second("periods", periods, moment)
        throttled_per_s = self._rates.per_second("throttled", throttled, moment)
        if isinstance(per_s, (Missing, str)):
            return per_s
        if isinstance(throttled_per_s, (Missing, str)):
            return throttled_per_s
        if per_s == 0:
            return Missing("not-sampled", "nothing ran")
        return min(100.0, 100 * throttled_per_s / per_s)

    def _memory_v2(self) -> dict[str, Reading]:
        table = self._table("memory", "memory.stat")
        events = self._table("memory", "memory.events")
        anon, shmem = entry(table, "anon"), entry(table, "shmem")
        kernel = [entry(table, name) for name in _KERNEL_MEMORY]
        return {
            # a kernel that does not list one of its own parts still lists the two that matter
            "mem_used_bytes": _sum(anon, shmem, *(n for n in kernel if isinstance(n, int))),
            "mem_anon_bytes": anon,
            "mem_shmem_bytes": shmem,
            "mem_cache_bytes": _difference(entry(table, "file"), shmem),
            "mem_active_cache_bytes": entry(table, "active_file"),
            "mem_charged_bytes": self._count("memory", "memory.current"),
            "mem_peak_bytes": self._count("memory", "memory.peak"),
            "swap_used_bytes": self._count("memory", "memory.swap.current"),
            "oom_events": entry(events, "oom"),
            "oom_kills": entry(events, "oom_kill"),
        }

    def _memory_v1(self) -> dict[str, Reading]:
        table = self._table("memory", "memory.stat")
        anon, shmem = entry(table, "total_rss"), entry(table, "total_shmem")
        return {
            "mem_used_bytes": _sum(anon, shmem),
            "mem_anon_bytes": anon,
            "mem_shmem_bytes": shmem,
            "mem_cache_bytes": _difference(entry(table, "total_cache"), shmem),
            "mem_active_cache_bytes": entry(table, "total_active_file"),
            "mem_charged_bytes": self._count("memory", "memory.usage_in_bytes"),
            "mem_peak_bytes": self._count("memory", "memory.max_usage_in_bytes"),
            "swap_used_bytes": entry(table, "total_swap"),
            "oom_events": _V1,
            "oom_kills": self._oom_kills_v1(),
        }

    def _oom_kills_v1(self) -> Reading:
        """v1 counts a kill only where it happened: sum over the steps, ended ones included."""
        directory = self._directory("memory")
        if isinstance(directory, Missing):
            return directory
        directories = self._below("memory")
        for ended in self._oom_kills.keys() - set(directories):
            self._oom_kills_ended += self._oom_kills.pop(ended)
        for below in directories:
            text = self._read_file(below, "memory.oom_control")
            kills = entry(then(text, parse_table), "oom_kill")
            if isinstance(kills, int):
                self._oom_kills[below] = kills
        if directory not in self._oom_kills:
            return Missing("unsupported", "no oom_kill in memory.oom_control")
        return self._oom_kills_ended + sum(self._oom_kills.values())

    def _io(self) -> dict[str, Reading]:
        began = self._clock()
        if self.version == 2:
            transferred = then(self._read("io", "io.stat"), parse_io_stat)
        else:
            text = self._read("blkio", "blkio.throttle.io_service_bytes_recursive")
            transferred = then(text, parse_blkio_bytes)
        read, written = (
            (transferred, transferred) if isinstance(transferred, Missing) else transferred
        )
        moment = moment_since(began, self._clock)
        readings: dict[str, Reading] = {
            "read_bytes_per_s": self._rates.per_second("read", read, moment),
            "write_bytes_per_s": self._rates.per_second("write", written, moment),
        }
        for resource, field in PRESSURES:
            pressure = self._read(resource, f"{resource}.pressure") if self.version == 2 else _V1
            readings[f"{field}_pressure_percent"] = then(pressure, parse_pressure)
        return readings


#: trees in which Slurm keeps all processes of a job, the surest first
_TREES_OF_PIDS = (UNIFIED, "freezer", "memory", "cpuacct", "cpuset", "devices", "cpu", "pids")


def _sum(*parts: int | Missing) -> int | Missing:
    """All parts together; missing when one is, because less would look like a true total."""
    total = 0
    for part in parts:
        if isinstance(part, Missing):
            return part
        total += part
    return total


def _difference(whole: int | Missing, part: int | Missing) -> int | Missing:
    if isinstance(whole, Missing):
        return whole
    if isinstance(part, Missing):
        return part
    # the two are not read at one moment: a little below nothing is nothing
    return max(0, whole - part)


def parse_io_stat(text: str) -> tuple[int, int]:
    """Bytes read and written over all devices, from v2's io.stat."""
    totals = {"rbytes": 0, "wbytes": 0}
    for line in text.splitlines():
        for pair in line.split()[1:]:
            name, _, value = pair.partition("=")
            if name in totals:
                totals[name] += parse_count(value) or 0
    return totals["rbytes"], totals["wbytes"]


def parse_blkio_bytes(text: str) -> tuple[int, int]:
    """Bytes read and written over all devices, from v1's blkio.*io_service_bytes*."""
    totals = {"Read": 0, "Write": 0}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in totals:
            totals[parts[1]] += parse_count(parts[2]) or 0
    return totals["Read"], totals["Write"]


_NVIDIA_MAJOR = "195"  # GPUs have minors below 128, the control device 255


def parse_device_minors(text: str) -> frozenset[int] | None:
    """Minors of the GPUs in v1's devices.list; None when all devices are allowed."""
    minors = set()
    for line in text.splitlines():
        parts = line.split()
        if len(parts) != 3 or "r" not in parts[2]:
            continue
        major, _, minor = parts[1].partition(":")
        if parts[0] == "a" or (parts[0] == "c" and major in ("*", _NVIDIA_MAJOR) and minor == "*"):
            return None
        number = parse_count(minor)
        if parts[0] == "c" and major == _NVIDIA_MAJOR and number is not None and number < 128:
            minors.add(number)
    return frozenset(minors)
