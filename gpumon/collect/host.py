"""The node: processors, memory, load and pressure, and what does not change about it."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.proc import (
    ProcFs,
    missing_because,
    parse_count,
    parse_cpu_list,
    parse_pressure,
    parse_table,
    read_text,
)
from gpumon.model.reading import MEASURING, Missing, Reading
from gpumon.model.text import clean

_KIB = 1024
_PRESSURES = (("cpu", "cpu"), ("memory", "mem"), ("io", "io"))


class CpuTicks(NamedTuple):
    """Clock ticks of all CPUs together since boot. `total` counts guests once, in user time."""

    total: int
    idle: int
    iowait: int


def parse_cpu_ticks(text: str) -> Optional[CpuTicks]:
    """The `cpu` line of /proc/stat: user nice system idle iowait irq softirq steal guest …"""
    line = text.partition("\n")[0]
    if not line.startswith("cpu "):
        return None
    ticks = [parse_count(part) for part in line.split()[1:9]]
    known = [tick for tick in ticks if tick is not None]
    if len(known) < 5 or len(known) < len(ticks):
        return None
    return CpuTicks(sum(known), known[3], known[4])


def parse_meminfo(text: str) -> Dict[str, int]:
    """/proc/meminfo as name -> bytes; entries that are no sizes are left out."""
    sizes = "\n".join(line for line in text.splitlines() if line.endswith(" kB"))
    return {name: value * _KIB for name, value in parse_table(sizes).items()}


def parse_loadavg(text: str) -> Optional[List[float]]:
    """Means of 1, 5 and 15 min of tasks that run or wait for a disk."""
    try:
        loads = [float(part) for part in text.split()[:3] if part.isascii()]
    except ValueError:
        return None
    return loads if len(loads) == 3 and all(0 <= load < 1e7 for load in loads) else None


class Host:
    """Readings of the node as a whole, other users' jobs included."""

    name = "host"

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc = proc
        self._sys = sys
        self._schedule = Schedule()
        self._last: Optional[CpuTicks] = None
        self.mem_total: Reading = MEASURING  # bytes, of the last tick

    def collect(self, tick: Tick) -> None:
        tick.put("host", "", {**self._cpu(), **self._memory(), **self._load()})
        if self._schedule.due("host.pressure", 5, tick.mono):
            tick.put("host", "", self._pressure())

    def facts(self) -> Dict[str, Reading]:
        """What does not change: cpus (that this process may use), cpus_online,
        mem_total_bytes, swap_total_bytes, kernel, cpu_model, boot_id.
        """
        memory = self._text("meminfo")
        table = memory if isinstance(memory, Missing) else parse_meminfo(memory)
        status = ProcFs(self._proc).status("self")
        usable = status.cpus if not isinstance(status, Missing) else None
        return {
            "cpus": len(usable) if usable else Missing("unsupported"),
            "cpus_online": self._online(),
            "mem_total_bytes": _size(table, "MemTotal"),
            "swap_total_bytes": _size(table, "SwapTotal"),
            "kernel": self._line("sys/kernel/osrelease"),
            "cpu_model": self._cpu_model(),
            "boot_id": self._line("sys/kernel/random/boot_id"),
        }

    def _text(self, name: str) -> str | Missing:
        return _read(f"{self._proc}/{name}")

    def _line(self, name: str) -> str | Missing:
        text = self._text(name)
        return text if isinstance(text, Missing) else clean(text.strip(), 128)

    def _online(self) -> Reading:
        text = _read(f"{self._sys}/devices/system/cpu/online")
        if isinstance(text, Missing):
            return text
        cpus = parse_cpu_list(text)
        return len(cpus) if cpus else Missing("error", "cpu/online is unreadable")

    def _cpu_model(self) -> Reading:
        text = self._text("cpuinfo")
        if isinstance(text, Missing):
            return text
        for line in text.splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() in ("model name", "Model", "cpu"):
                return clean(value.strip(), 128)
        return Missing("unsupported")  # ARM servers do not say

    def _cpu(self) -> Dict[str, Reading]:
        text = self._text("stat")
        ticks = None if isinstance(text, Missing) else parse_cpu_ticks(text)
        if ticks is None:
            self._last = None
            why = text if isinstance(text, Missing) else Missing("error", "stat is unreadable")
            return {"cpu_percent": why, "iowait_percent": why}
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

    def _memory(self) -> Dict[str, Reading]:
        text = self._text("meminfo")
        table = text if isinstance(text, Missing) else parse_meminfo(text)
        self.mem_total = _size(table, "MemTotal")
        cached, shmem = _size(table, "Cached"), _size(table, "Shmem")
        return {
            "mem_used_bytes": _minus(self.mem_total, _size(table, "MemAvailable")),
            "mem_cache_bytes": _minus(cached, shmem),  # `Cached` counts shared memory, too
            "swap_used_bytes": _minus(_size(table, "SwapTotal"), _size(table, "SwapFree")),
        }

    def _load(self) -> Dict[str, Reading]:
        text = self._text("loadavg")
        loads = text if isinstance(text, Missing) else parse_loadavg(text)
        if loads is None:
            loads = Missing("error", "loadavg is unreadable")
        names = ("load1", "load5", "load15")
        if isinstance(loads, Missing):
            return dict.fromkeys(names, loads)
        return dict(zip(names, loads))

    def _pressure(self) -> Dict[str, Reading]:
        readings: Dict[str, Reading] = {}
        for resource, field in _PRESSURES:
            text = _read(f"{self._proc}/pressure/{resource}")
            if isinstance(text, Missing) and text.reason == "unsupported":
                text = Missing("unsupported", "kernel without PSI")
            readings[f"{field}_pressure_percent"] = (
                text if isinstance(text, Missing) else parse_pressure(text)
            )
        return readings


def _read(path: str) -> str | Missing:
    try:
        return read_text(path)
    except OSError as error:
        return missing_because(error, Missing("unsupported"))


def _size(table: Dict[str, int] | Missing, name: str) -> int | Missing:
    if isinstance(table, Missing):
        return table
    return table.get(name, Missing("unsupported", f"no {name}"))


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
