"""The node: processors, memory, load and pressure, and what does not change about it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container
from typing import NamedTuple

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.procfs import (
    PRESSURES,
    ProcFs,
    Records,
    entry,
    look,
    parse_count,
    parse_cpu_list,
    parse_pressure,
)
from gpumon.collect.rates import Rates, moment_since
from gpumon.model.reading import MEASURING, UNSUPPORTED, Missing, Reading, then
from gpumon.model.text import clean

_KIB = 1024
_SECTOR = 512  # bytes, whatever the disk has
_CORE = re.compile(r"^cpu([0-9]{1,4}) ((?:[0-9]{1,19} ?){5,12})$", re.MULTILINE)
#: the entries of /proc/meminfo that are used, of about fifty
_SIZES = ("MemTotal", "MemAvailable", "Cached", "Shmem", "SwapTotal", "SwapFree")
_NO_DISK = Missing("unsupported", "no local disk")
_NO_PSI = Missing("unsupported", "kernel without PSI")


class CpuTicks(NamedTuple):
    """Clock ticks of all CPUs together since boot. `total` counts guests once, in user time."""

    total: int
    idle: int
    iowait: int


def parse_cpu_ticks(text: str) -> CpuTicks | None:
    """The `cpu` line of /proc/stat: user nice system idle iowait irq softirq steal guest …"""
    line = text.partition("\n")[0]
    if not line.startswith("cpu "):
        return None
    ticks = [parse_count(part) for part in line.split()[1:9]]
    known = [tick for tick in ticks if tick is not None]
    if len(known) < 5 or len(known) < len(ticks):
        return None
    return CpuTicks(sum(known), known[3], known[4])


def parse_core_ticks(text: str) -> dict[int, CpuTicks]:
    """The lines `cpuN` of /proc/stat, of each CPU that is online; what is odd is left out."""
    found = {}
    for number, rest in _CORE.findall(text.partition("\nintr")[0]):
        ticks = [int(part) for part in rest.split()[:8]]
        found[int(number)] = CpuTicks(sum(ticks), ticks[3], ticks[4])
    return found


def core_levels(before: dict[int, CpuTicks], now: dict[int, CpuTicks]) -> str:
    """How much each CPU worked between two looks, as `core_levels` of the fields has it."""
    return "".join(_level(before.get(n), now.get(n)) for n in range(max(now, default=-1) + 1))


def _level(before: CpuTicks | None, now: CpuTicks | None) -> str:
    if now is None:
        return "-"
    if before is None or now.total <= before.total:
        return "?"
    idle = now.idle + now.iowait - before.idle - before.iowait
    share = 1 - idle / (now.total - before.total)
    return str(min(9, int(share * 10))) if 0 <= share <= 1 else "?"


def parse_disks(text: str, whole: Container[str]) -> tuple[int, int] | None:
    """Bytes read and written since boot, of the `whole` disks together, from /proc/diskstats."""
    read = written = 0
    known = False
    for line in text.splitlines():
        parts = line.split()
        if len(parts) < 10 or parts[2] not in whole:
            continue
        sectors, more = parse_count(parts[5]), parse_count(parts[9])
        if sectors is None or more is None:
            return None
        read, written, known = read + sectors * _SECTOR, written + more * _SECTOR, True
    return (read, written) if known else None


def parse_meminfo(text: str) -> dict[str, int]:
    """The entries of /proc/meminfo that are used, as name -> bytes; others are left out."""
    sizes, text = {}, f"\n{text}"
    for name in _SIZES:
        _, found, rest = text.partition(f"\n{name}:")
        digits, is_size, _ = rest[:32].partition(" kB")
        count = parse_count(digits) if found and is_size else None
        if count is not None:
            sizes[name] = count * _KIB
    return sizes


def parse_loadavg(text: str) -> list[float] | None:
    """Means of 1, 5 and 15 min of tasks that run or wait for a disk."""
    try:
        loads = [float(part) for part in text.split()[:3] if part.isascii()]
    except ValueError:
        return None
    return loads if len(loads) == 3 and all(0 <= load < 1e7 for load in loads) else None


def parse_cpu_model(text: str) -> str | Missing:
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in ("model name", "Model", "cpu"):
            return clean(value.strip(), 128)
    return UNSUPPORTED  # not reported by ARM servers


class Host:
    """Readings of the node as a whole, other users' jobs included."""

    name = "host"

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._records = Records()
        self._schedule = Schedule()
        self._last: CpuTicks | None = None
        self._cores: dict[int, CpuTicks] = {}  # at the last look
        self._rates = Rates()
        self.mem_total: Reading = MEASURING  # bytes, of the last tick

    def collect(self, tick: Tick) -> None:
        stat = self._text("stat")
        tick.put("host", "", {**self._cpu(stat), **self._memory(), **self._load()})
        if self._schedule.due("host.cores", 2, tick.mono):
            tick.put("host", "", {"core_levels": self._levels(stat)})
        if self._schedule.due("host.disks", 5, tick.mono):
            tick.put("host", "", self._disks())
        if self._schedule.due("host.pressure", 5, tick.mono):
            tick.put("host", "", self._pressure())

    def facts(self) -> dict[str, Reading]:
        """What does not change: cpus (that this process may use), cpus_online, threads_per_core,
        mem_total_bytes, swap_total_bytes, kernel, cpu_model, boot_id.
        """
        table = then(self._text("meminfo"), parse_meminfo)
        status = ProcFs(self._proc).status("self")
        usable = status.cpus if not isinstance(status, Missing) else None
        return {
            "cpus": len(usable) if usable else Missing("unsupported"),
            "cpus_online": self._online(),
            "threads_per_core": self._threads_per_core(),
            "mem_total_bytes": entry(table, "MemTotal"),
            "swap_total_bytes": entry(table, "SwapTotal"),
            "kernel": self._line("sys/kernel/osrelease"),
            "cpu_model": then(self._text("cpuinfo"), parse_cpu_model),
            "boot_id": self._line("sys/kernel/random/boot_id"),
        }

    def _text(self, name: str, absent: Missing = UNSUPPORTED) -> str | Missing:
        return look(f"{self._proc}/{name}", absent, self._records.read)

    def _line(self, name: str) -> str | Missing:
        return then(self._text(name), lambda text: clean(text.strip(), 128))

    def _online(self) -> Reading:
        text = look(f"{self._sys}/devices/system/cpu/online")
        return then(text, lambda text: len(parse_cpu_list(text) or ()) or None, "cpu/online")

    def _threads_per_core(self) -> Reading:
        """Of the first core; the others are like it on the machines that clusters have."""
        path = "cpu/cpu0/topology/thread_siblings_list"
        text = look(f"{self._sys}/devices/system/{path}")
        return then(text, lambda text: len(parse_cpu_list(text) or ()) or None, path)

    def _levels(self, stat: str | Missing) -> Reading:
        before, cores = self._cores, then(stat, parse_core_ticks)
        self._cores = {} if isinstance(cores, Missing) else cores
        if isinstance(cores, Missing):
            return cores
        return core_levels(before, cores) if before else MEASURING

    def _disks(self) -> dict[str, Reading]:
        """Of all local disks; what goes over the network is not in it."""
        began = time.monotonic()
        whole = {name for name in _names(f"{self._sys}/block") if self._is_disk(name)}
        text = look(f"{self._proc}/diskstats")
        total = text if isinstance(text, Missing) else parse_disks(text, whole) or _NO_DISK
        moment = moment_since(began, time.monotonic)
        counters: tuple[Reading, Reading] = (total, total) if isinstance(total, Missing) else total
        return {
            f"disk_{way}_bytes_per_s": self._rates.per_second(way, counter, moment)
            for way, counter in zip(("read", "write"), counters)
        }

    def _is_disk(self, name: str) -> bool:
        """Not a part of one, nor one that is made of others or of memory."""
        return os.path.exists(f"{self._sys}/block/{name}/device")

    def _cpu(self, stat: str | Missing) -> dict[str, Reading]:
        ticks = then(stat, parse_cpu_ticks, "stat")
        if isinstance(ticks, Missing):
            self._last = None
            return {"cpu_percent": ticks, "iowait_percent": ticks}
        last, self._last = self._last, ticks
        if last is None or ticks.total == last.total:
            return {"cpu_percent": MEASURING, "iowait_percent": MEASURING}
        total = ticks.total - last.total
        waited = ticks.iowait - last.iowait
        worked = total - (ticks.idle - last.idle) - waited
        return {
            "cpu_percent": _share(worked, total),
            "iowait_percent": _share(waited, total),  # proc(5): the kernel may correct it down
        }

    def _memory(self) -> dict[str, Reading]:
        table = then(self._text("meminfo"), parse_meminfo)
        self.mem_total = entry(table, "MemTotal")
        cached, shmem = entry(table, "Cached"), entry(table, "Shmem")
        return {
            "mem_used_bytes": _minus(self.mem_total, entry(table, "MemAvailable")),
            "mem_cache_bytes": _minus(cached, shmem),  # `Cached` counts shared memory, too
            "swap_used_bytes": _minus(entry(table, "SwapTotal"), entry(table, "SwapFree")),
        }

    def _load(self) -> dict[str, Reading]:
        loads = then(self._text("loadavg"), parse_loadavg, "loadavg")
        names = ("load1", "load5", "load15")
        if isinstance(loads, Missing):
            return dict.fromkeys(names, loads)
        return dict(zip(names, loads))

    def _pressure(self) -> dict[str, Reading]:
        readings: dict[str, Reading] = {}
        for resource, field in PRESSURES:
            text = self._text(f"pressure/{resource}", _NO_PSI)
            readings[f"{field}_pressure_percent"] = then(text, parse_pressure)
        return readings


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _minus(whole: int | Missing, part: int | Missing) -> Reading:
    if isinstance(whole, Missing):
        return whole
    if isinstance(part, Missing):
        return part
    return whole - part if whole >= part else Missing("implausible", f"{part} B of {whole} B")


def _share(part: int, whole: int) -> Reading:
    if not 0 <= part <= whole:
        return Missing("implausible", "counter went back")
    return 100.0 * part / whole
