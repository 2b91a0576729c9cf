"""What each process does on one device: NVML's process lists, utilization and accounting."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gpumon.collect.nvml import INSUFFICIENT_SIZE, NOT_AVAILABLE, NOT_FOUND, Query
from gpumon.collect.nvml_structs import AccountingStats
from gpumon.model.reading import MIG, Missing, Reading

Row = Dict[str, Reading]

#: letter of the type -> NVML's list of such processes
LISTS = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
    "M": "nvmlDeviceGetMPSComputeRunningProcesses",
}
#: graphics and MPS lists that were empty are asked in every fifth round only
_QUIET_ROUNDS = 5
_NO_INSTANCE = 0xFFFFFFFF
_ENTRIES = 128
_HIDDEN = Missing("unsupported", "not told by the driver")
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


def parse_processes(data: bytes, count: int, version: int) -> List[Entry]:
    """`count` entries of a process list as the driver filled it.

    One driver generation made the struct longer without a new name: where process or instance
    numbers are impossible with the common layout, the longer one is taken.
    """
    if version == 1:
        return [Entry(*_V1.unpack_from(data, i * _V1.size)) for i in range(count)]
    for layout in (_V2, _V3_535):
        rows = [layout.unpack_from(data, i * layout.size) for i in range(count)]
        if all(row[0] and (row[2] == _NO_INSTANCE or row[2] < 256) for row in rows):
            break
    return [Entry(row[0], row[1], row[2]) for row in rows]


class Usage:
    """The processes on one device or MIG instance; used by one thread."""

    def __init__(self, query: Query, instances_apart: bool = False) -> None:
        """`instances_apart`: processes of MIG instances are told by readers of their own."""
        self.accounting = False  # as the health group last saw the mode
        self.mig = False  # no process utilization while MIG is on
        self._query = query
        self._instances_apart = instances_apart
        self._buffer = ctypes.create_string_buffer(_ENTRIES * _V3_535.size)
        self._count = ctypes.c_uint()
        self._names: Dict[str, Tuple[str, int]] = {}
        self._quiet: Dict[str, int] = {}
        self._last_us = 0
        self._stats = AccountingStats()

    def read(self) -> Tuple[Reading, Dict[int, Row]]:
        """How many processes (or why that is not known), and a row of `usage` for each pid."""
        entries: Dict[int, Row] = {}
        unknown = self._merge("C", entries)
        for letter in ("G", "M"):
            self._merge_if_due(letter, entries)
        if not entries:
            nobody: Reading = MIG if self._instances_apart else 0
            return (nobody if unknown is None else unknown), {}
        self._add_utilization(entries)
        for pid, row in entries.items():
            row["mem_peak_bytes"] = self._peak(pid)
        return len(entries), entries

    def _merge_if_due(self, letter: str, rows: Dict[int, Row]) -> None:
        rounds = self._quiet.get(letter, 0)
        if rounds > 0:
            self._quiet[letter] = rounds - 1
            return
        before = {pid: row["type"] for pid, row in rows.items()}
        self._merge(letter, rows)
        if before == {pid: row["type"] for pid, row in rows.items()}:
            self._quiet[letter] = _QUIET_ROUNDS - 1

    def _merge(self, letter: str, rows: Dict[int, Row]) -> Optional[Missing]:
        """Add one list; a process on several lists is one row that names all types."""
        listed = self._list(letter)
        if isinstance(listed, Missing):
            return listed
        for entry in listed:
            if self._instances_apart and entry.gi != _NO_INSTANCE:
                continue
            mem: Reading = _HIDDEN if entry.mem_bytes == NOT_AVAILABLE else entry.mem_bytes
            row = rows.setdefault(entry.pid, {"type": "", "mem_bytes": mem})
            kinds = str(row["type"])
            if letter not in kinds:
                row["type"] = f"{kinds}+{letter}" if kinds else letter
            if isinstance(row["mem_bytes"], Missing):
                row["mem_bytes"] = mem
        return None

    def _list(self, letter: str) -> Any:
        """Entries of one list, or a Missing."""
        name, version = self._function(letter)
        while True:
            layout = _V1 if version == 1 else _V3_535
            self._count.value = len(self._buffer) // layout.size
            missing = self._query.call(name, ctypes.byref(self._count), self._buffer)
            if missing is None:
                return parse_processes(self._buffer.raw, self._count.value, version)
            if self._query.code != INSUFFICIENT_SIZE:
                return missing
            self._grow(self._count.value * _V3_535.size)

    def _function(self, letter: str) -> Tuple[str, int]:
        """The newest version of a list's function that this driver has."""
        found = self._names.get(letter)
        if found is None:
            base = LISTS[letter]
            found = (base, 1)
            for version in (3, 2):
                if self._query.library.function(f"{base}_v{version}") is not None:
                    found = (f"{base}_v{version}", version)
                    break
            self._names[letter] = found
        return found

    def _grow(self, size: int) -> None:
        # the list may grow again before it is asked again
        self._buffer = ctypes.create_string_buffer(max(2 * len(self._buffer), 2 * size))

    def _add_utilization(self, rows: Dict[int, Row]) -> None:
        names = ("sm_percent", "mem_percent", "encoder_percent", "decoder_percent")
        busy = self._utilization()
        for pid, row in rows.items():
            if isinstance(busy, Missing):
                row.update(dict.fromkeys(names, busy))
            else:
                # the driver lists only who was active: whoever it leaves out did nothing
                row.update(zip(names, busy.get(pid, (0, 0, 0, 0))))

    def _utilization(self) -> Any:
        """Pid -> (SM, memory, encoder, decoder) % in its newest period, or a Missing."""
        if self.mig:
            return MIG
        while True:
            self._count.value = len(self._buffer) // _UTILIZATION.size
            missing = self._query.call(
                "nvmlDeviceGetProcessUtilization",
                self._buffer,
                ctypes.byref(self._count),
                ctypes.c_ulonglong(self._last_us),
            )
            if missing is None:
                return self._newest(self._count.value)
            if self._query.code == NOT_FOUND:
                return {}
            if self._query.code != INSUFFICIENT_SIZE:
                return missing
            self._grow(self._count.value * _UTILIZATION.size)

    def _newest(self, count: int) -> Dict[int, Tuple[int, ...]]:
        data = self._buffer.raw
        lines = [_UTILIZATION.unpack_from(data, i * _UTILIZATION.size) for i in range(count)]
        lines.sort(key=lambda line: line[1])
        if lines:
            self._last_us = max(self._last_us, lines[-1][1])
        return {line[0]: line[2:] for line in lines}

    def _peak(self, pid: int) -> Reading:
        if not self.accounting:
            return _ACCOUNTING_OFF
        missing = self._query.call("nvmlDeviceGetAccountingStats", pid, ctypes.byref(self._stats))
        if missing is not None:
            no_record = self._query.code == NOT_FOUND
            return Missing("not-sampled", "no record yet") if no_record else missing
        peak = int(self._stats.max_memory_bytes)
        return _HIDDEN if peak == NOT_AVAILABLE else peak
