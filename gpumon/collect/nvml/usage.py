"""What each process does on one device: NVML's process lists, utilization and accounting."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any, NamedTuple

from gpumon.collect.nvml.answers import Row
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.buffer import MAX_ENTRIES, Buffer
from gpumon.collect.nvml.cursor import PERIOD_S, Cursor
from gpumon.collect.nvml.query import Query, plain
from gpumon.model.reading import IMPLAUSIBLE, MIG, Missing, Reading

_AccountingStats = plain(nv.c_nvmlAccountingStats_t)
_NOT_AVAILABLE = nv.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
#: letter of the type -> NVML's list of such processes
LISTS = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
    "M": "nvmlDeviceGetMPSComputeRunningProcesses",
}
#: graphics and MPS lists that were empty are asked in every fifth round only
_QUIET_ROUNDS = 5
_NO_INSTANCE = nv.NVML_GPU_INSTANCE_ID_ANY
#: why a list is not there on this driver or for this user: no reason to doubt the others
_LACKING = ("unsupported", "no-permission")
_ENTRIES = 128
_MAX_PID = 2**31 - 1
_MAX_INSTANCE = 256
_CLOCK_SET = Missing("not-sampled", "the clock was set")
_HIDDEN = Missing("unsupported", "not reported by the driver")
_ACCOUNTING_OFF = Missing("unsupported", "accounting mode is off")
_V1 = struct.Struct("=I4xQ")  # pid, used bytes
_V2 = struct.Struct("=I4xQII")  # and GPU instance, compute instance; v2 and v3 share it
_V3_535 = struct.Struct("=I4xQIIQ")  # early 535 drivers, under the name of v3
_UTILIZATION = struct.Struct("=I4xQIIII")  # pid, µs, SM, memory, encoder, decoder %


class Entry(NamedTuple):
    """One line of a process list."""

    pid: int
    mem_bytes: int
    gi: int = _NO_INSTANCE


def parse_processes(data: bytes | memoryview, count: int, version: int) -> list[Entry] | None:
    """`count` entries of a process list as the driver filled it; None if no process can be so.

    One driver generation made the struct longer without a new name: where process or instance
    numbers are impossible with the common layout, the longer one is taken.
    """
    for layout in (_V1,) if version == 1 else (_V2, _V3_535):
        rows = [Entry(*layout.unpack_from(data, i * layout.size)[:3]) for i in range(count)]
        if all(map(_possible, rows)):
            return rows
    return None


def _possible(entry: Entry) -> bool:
    return 0 < entry.pid <= _MAX_PID and (entry.gi == _NO_INSTANCE or entry.gi < _MAX_INSTANCE)


class Usage:
    """The processes on one device or MIG instance; used by one thread."""

    def __init__(self, query: Query, instances_apart: bool = False) -> None:
        """`instances_apart`: processes of MIG instances are reported by readers of their own."""
        self.accounting = False  # as the health group last saw the mode
        self.mig = False  # no process utilization while MIG is on
        self.device_busy = False  # as the fast group last saw the device
        self.cut = ""  # which list was longer than what is read; for people
        self._query = query
        self._instances_apart = instances_apart
        self._buffer = Buffer(query, _ENTRIES, _V3_535.size)
        self._names: dict[str, tuple[str, int]] = {}
        self._quiet: dict[str, int] = {}
        self._cursor = Cursor()
        self._recent: dict[int, tuple[float, tuple[int, ...]]] = {}  # pid -> when listed, and as
        self._stats = _AccountingStats()

    def read(self) -> tuple[Reading, dict[int, Row]]:
        """How many processes (or why that is not known), and a row of `usage` for each pid."""
        self.cut = ""
        entries: dict[int, Row] = {}
        unknown = self._merge("C", entries)
        for letter in ("G", "M"):
            failed = self._merge_if_due(letter, entries)
            if failed is not None and failed.reason not in _LACKING:
                unknown = failed
        if unknown is not None:
            return unknown, {}
        if not entries:
            return (MIG if self._instances_apart else 0), {}
        self._add_utilization(entries)
        for pid, row in entries.items():
            row["mem_peak_bytes"] = self._peak(pid)
        return len(entries), entries

    def _merge_if_due(self, letter: str, rows: dict[int, Row]) -> Missing | None:
        rounds = self._quiet.get(letter, 0)
        if rounds > 0:
            self._quiet[letter] = rounds - 1
            return None
        before = {pid: row["type"] for pid, row in rows.items()}
        missing = self._merge(letter, rows)
        if missing is None and before == {pid: row["type"] for pid, row in rows.items()}:
            self._quiet[letter] = _QUIET_ROUNDS - 1
        return missing

    def _merge(self, letter: str, rows: dict[int, Row]) -> Missing | None:
        """Add one list; a process on several lists is one row that names all types."""
        listed = self._list(letter)
        if isinstance(listed, Missing):
            return listed
        for entry in listed:
            if self._instances_apart and entry.gi != _NO_INSTANCE:
                continue
            mem: Reading = _HIDDEN if entry.mem_bytes == _NOT_AVAILABLE else entry.mem_bytes
            row = rows.setdefault(entry.pid, {"type": "", "mem_bytes": mem})
            kinds = str(row["type"])
            if letter not in kinds:
                row["type"] = f"{kinds}+{letter}" if kinds else letter
            if isinstance(row["mem_bytes"], Missing):
                row["mem_bytes"] = mem
        return None

    def _list(self, letter: str) -> list[Entry] | Missing:
        """Entries of one list, or why there are none."""
        name, version = self._function(letter)
        count = self._buffer.count
        # the longest layout's: the entries show which one it is
        data = self._buffer.fill(
            _V1.size if version == 1 else _V3_535.size,
            lambda data: self._query.fill(name, ctypes.byref(count), data),
        )
        if isinstance(data, Missing):
            self._say_cut(LISTS[letter])
            return data
        entries = parse_processes(data, count.value, version)
        return IMPLAUSIBLE if entries is None else entries

    def _say_cut(self, what: str) -> None:
        if self._buffer.cut:
            self.cut = f"{what} reports {self._buffer.cut}, at most {MAX_ENTRIES} are read"

    def _function(self, letter: str) -> tuple[str, int]:
        """The newest version of a list's function that this driver has."""
        found = self._names.get(letter)
        if found is None:
            base = LISTS[letter]
            found = (base, 1)
            for version in (3, 2):
                if self._query.library.has(f"{base}_v{version}"):
                    found = (f"{base}_v{version}", version)
                    break
            self._names[letter] = found
        return found

    def _add_utilization(self, rows: dict[int, Row]) -> None:
        names = ("sm_percent", "mem_percent", "encoder_percent", "decoder_percent")
        busy: Any = MIG if self.mig else self._utilization()
        # the driver lists only active processes: those it leaves out did nothing
        others: Reading = _CLOCK_SET if self._cursor.stepped else 0
        for pid, row in rows.items():
            if isinstance(busy, Missing):
                row.update(dict.fromkeys(names, busy))
            else:
                row.update(zip(names, busy.get(pid) or (others,) * len(names)))

    def _utilization(self) -> Any:
        """Pid -> (SM, memory, encoder, decoder) % in its newest period, or a Missing."""
        lines = self._cursor.read(self._lines, must_come=self.device_busy)
        if isinstance(lines, Missing):
            return lines
        self._cursor.end(lines)
        return self._newest({line[1]: line[2:] for line in lines})

    def _newest(self, listed: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """With what was listed moments ago, where the driver may not have sampled since."""
        now = time.monotonic()
        stands_s = 0.0 if self._cursor.covers else self._cursor.elapsed_us / 1e6 + PERIOD_S
        self._recent = {pid: seen for pid, seen in self._recent.items() if now - seen[0] < stands_s}
        self._recent.update((pid, (now, values)) for pid, values in listed.items())
        return {pid: values for pid, (_, values) in self._recent.items()}

    def _lines(self, since_us: int) -> list[tuple[int, ...]] | Missing:
        """(µs, pid, SM, memory, encoder, decoder %) in order of time; empty: none was active."""
        data = self._buffer.fill(
            _UTILIZATION.size,
            lambda data: self._query.fill(
                "nvmlDeviceGetProcessUtilization",
                data,
                ctypes.byref(self._buffer.count),
                ctypes.c_ulonglong(since_us),
            ),
        )
        if isinstance(data, Missing):
            self._say_cut("nvmlDeviceGetProcessUtilization")
            return [] if self._query.code == nv.NVML_ERROR_NOT_FOUND else data
        return sorted((us, pid, *busy) for pid, us, *busy in _UTILIZATION.iter_unpack(data))

    def _peak(self, pid: int) -> Reading:
        if not self.accounting:
            return _ACCOUNTING_OFF
        missing = self._query.fill("nvmlDeviceGetAccountingStats", pid, ctypes.byref(self._stats))
        if missing is not None:
            no_record = self._query.code == nv.NVML_ERROR_NOT_FOUND
            return Missing("not-sampled", "no record yet") if no_record else missing
        peak = int(self._stats.maxMemoryUsage)
        return _HIDDEN if peak == _NOT_AVAILABLE else peak
