"""Files of /proc: reading and parsing them.

What a parser does not understand becomes None, never a guess: the text may come from another
kernel, from a container's own idea of /proc, or be cut in the middle. Formats: proc(5).
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import time
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple, TypeVar

from gpumon.model.reading import ENDED, NO_PERMISSION, UNSUPPORTED, Missing, Reading, then
from gpumon.model.text import clean

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: most of any one file that is read; the longest are the maps of a process with many libraries
READ_LIMIT_BYTES = 4 << 20
#: the longest record is /proc/stat, with a number for each interrupt
_RECORD_BYTES = 1 << 16
_MAX_CPU = 1 << 16
#: of processes, that are kept with what was read from them
_MAX_RECORDS = 256
#: files that are kept open; where a job has more processes, all are opened each time
_MAX_OPEN = 128
#: CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: all threads, ended ones included
_SCHED_CLOCK = 2
_NS_PER_TICK = 10**9 // TICKS_PER_S
#: PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

_T = TypeVar("_T")


def read_bytes(path: str, limit: int = READ_LIMIT_BYTES) -> bytes:
    """The file's content up to `limit` bytes; raises OSError. A third of what `open` costs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, min(limit, 1 << 16))
        while content and len(content) < limit:
            more = os.read(descriptor, min(limit - len(content), 1 << 16))
            if not more:
                break
            content += more
        return content
    finally:
        os.close(descriptor)


def read_record(path: str) -> bytes:
    """The content of a file that the kernel prints as one record; raises OSError.

    One read returns it whole. Another read, to find its end, would have the kernel print it again.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _RECORD_BYTES)
    finally:
        os.close(descriptor)


class Records:
    """Files that the kernel prints as one record each, kept open: a third of what opening costs.

    The descriptor of a process's file is that process's for good: once it has ended, reading fails,
    also where another one has its PID.
    """

    def __init__(self, most: int = _MAX_OPEN) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """As `read_record`."""
        descriptor = self._open.get(path)
        if descriptor is None:
            if not path.startswith("/proc/"):  # a test's, which is replaced
                return read_record(path)
            if len(self._open) >= self._most:
                self.close()
            descriptor = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, _RECORD_BYTES, 0)
        except OSError:
            os.close(self._open.pop(path))
            raise

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    __del__ = close


def missing_because(error: OSError, absent: Missing) -> Missing:
    """Why a file could not be read; `absent` is what it means here that there is none."""
    if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP):
        return absent
    if error.errno in (errno.EACCES, errno.EPERM):
        return NO_PERMISSION
    return Missing("error", os.strerror(error.errno or 0))


def look(
    path: str, absent: Missing = UNSUPPORTED, read: Callable[[str], bytes] = read_bytes
) -> str | Missing:
    """The file's text, or why it cannot be read; `absent` is what it means that there is none.

    Bytes that are not UTF-8 become replacement characters.
    """
    try:
        return read(path).decode("utf-8", "replace")
    except OSError as error:
        return missing_because(error, absent)


def look_at_record(path: str, absent: Missing = UNSUPPORTED) -> str | Missing:
    """As `look`, for a file that is one record."""
    return look(path, absent, read_record)


def entry(table: dict[str, int] | Missing, name: str) -> int | Missing:
    return then(table, lambda known: known.get(name, Missing("unsupported", f"no {name}")))


def parse_count(text: str) -> int | None:
    """A decimal number from 0 to 2⁶⁴ − 1, as the kernel prints counters, or None."""
    text = text.strip()
    if not (0 < len(text) <= 20 and text.isascii() and text.isdigit()):
        return None
    value = int(text)
    return value if value < 1 << 64 else None


def cpu_list_text(cpus: Iterable[int]) -> str:
    """[0, 1, 2, 3, 8] -> `0-3,8`, as the kernel writes it."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_cpu_list(text: str) -> list[int] | None:
    """`0-3,8` -> [0, 1, 2, 3, 8]; an empty list is one, anything else that is odd is None."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        if not part and not text.strip():
            break
        first_text, dash, last_text = part.partition("-")
        first = parse_count(first_text)
        last = parse_count(last_text) if dash else first
        if first is None or last is None or not first <= last < _MAX_CPU:
            return None
        cpus.extend(range(first, last + 1))
        if len(cpus) > _MAX_CPU:
            return None
    return cpus


#: `name value`, or `name: value kB`; other lines are skipped
_ENTRY = re.compile(r"^[ \t]*([^\s:]+)(?::[ \t]*|[ \t]+)([0-9]{1,20})(?!\S)", re.M)


def parse_table(text: str) -> dict[str, int]:
    """Lines of `name value` (or `name: value kB`) as name -> number; other lines are skipped."""
    found = ((name, int(digits)) for name, digits in _ENTRY.findall(text))
    return {name: value for name, value in found if value < 1 << 64}


class Stat(NamedTuple):
    """/proc/PID/stat, as far as it is used. Times in clock ticks, `start_ticks` since boot."""

    pid: int
    comm: str
    state: str
    ppid: int
    session: int
    cpu_ticks: int  # utime + stime
    threads: int
    start_ticks: int
    rss_bytes: int


#: behind the name: state ppid … session … utime stime … threads … start … rss; the numbers 3, 4, 6,
#: 14, 15, 20, 22 and 24 of proc(5)
_STAT = re.compile(
    r"(\S) ([0-9]{1,19}) \S+ ([0-9]{1,19})(?: \S+){7} ([0-9]{1,19}) ([0-9]{1,19})(?: \S+){4}"
    r" ([0-9]{1,19}) \S+ ([0-9]{1,19}) \S+ ([0-9]{1,19})(?!\S)"
)


def parse_stat(text: str) -> Stat | None:
    """One process. Its name may hold blanks and parentheses: it ends at the last `)`."""
    head, _, tail = text.rpartition(") ")
    pid, opened, comm = head.partition(" (")
    match = _STAT.match(tail)
    if match is None or not opened or not (pid.isascii() and pid.isdigit()):
        return None
    state, ppid, session, utime, stime, threads, start, rss_pages = match.groups()
    return Stat(
        pid=int(pid),
        comm=clean(comm, 64),
        state=clean(state),
        ppid=int(ppid),
        session=int(session),
        cpu_ticks=int(utime) + int(stime),
        threads=int(threads),
        start_ticks=int(start),
        rss_bytes=int(rss_pages) * PAGE_BYTES,
    )


class Status(NamedTuple):
    """/proc/PID/status, as far as it is used."""

    uid: int  # the real one
    namespace_pids: tuple[int, ...]  # outermost first; empty before Linux 4.1
    cpus: list[int] | None  # that the process may run on


def parse_status(text: str) -> Status | None:
    """None when there is no user id in it."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            values[name] = value.strip()
    uid = parse_count(values.get("Uid", "").partition("\t")[0])
    if uid is None or uid >= 1 << 32:
        return None
    pids = [parse_count(part) for part in values.get("NSpid", "").split()]
    allowed = values.get("Cpus_allowed_list")
    return Status(
        uid,
        tuple(pid for pid in pids if pid is not None),
        None if allowed is None else parse_cpu_list(allowed),
    )


class Io(NamedTuple):
    """/proc/PID/io: bytes that passed through system calls, the page cache included.

    The block layer's `read_bytes` would be a false 0 on network file systems, where the data of
    most jobs lie.
    """

    read_bytes: int  # rchar
    write_bytes: int  # wchar


_IO = re.compile(r"rchar: ([0-9]{1,19})\nwchar: ([0-9]{1,19})\n")


def parse_io(text: str) -> Io | None:
    match = _IO.match(text)
    return None if match is None else Io(int(match.group(1)), int(match.group(2)))


def parse_boot_time(text: str) -> float | None:
    """The boot's epoch seconds, from the `btime` line of /proc/stat."""
    return parse_table(text).get("btime")


#: resource as the kernel names it -> as our fields do
PRESSURES = (("cpu", "cpu"), ("memory", "mem"), ("io", "io"))


def parse_pressure(text: str) -> Reading:
    """Percent of the last 10 s in which some task waited, from a pressure file."""
    match = re.search(r"^some avg10=(\d{1,3}\.\d{1,3}) ", text, re.MULTILINE)
    if match is None or float(match.group(1)) > 100:
        return Missing("error", "pressure is unreadable")
    return float(match.group(1))


class Users:
    """Names of users, looked up once each: the lookup may go over the network."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, uid: int) -> str:
        """The user's name, or the number as text."""
        name = self._names.get(uid)
        if name is None:
            try:
                name = clean(pwd.getpwuid(uid).pw_name, 64)
            except (KeyError, OverflowError):
                name = str(uid)
            self._names[uid] = name
        return name


class ProcFs:
    """One /proc: what it holds of a process, or why it cannot be read."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self._has_clocks = root == "/proc" and _own_pid(root) == os.getpid()
        self._records = Records()
        self._known: dict[str, tuple[str, Any]] = {}  # path -> its text and what that says

    def stat(self, pid: int) -> Stat | Missing:
        """ENDED when there is no such process, in this PID namespace."""
        return self._parsed(pid, "stat", parse_stat)

    def status(self, pid: int | str) -> Status | Missing:
        return self._parsed(pid, "status", parse_status)

    def io(self, pid: int) -> Io | Missing:
        return self._parsed(pid, "io", parse_io)

    def _parsed(self, pid: int | str, name: str, parse: Callable[[str], _T | None]) -> _T | Missing:
        """A record, parsed again only where its text has changed: most processes rest."""
        path = f"{self.root}/{pid}/{name}"
        text = look(path, ENDED, self._records.read)
        if isinstance(text, Missing):
            return text
        known = self._known.get(path)
        if known is None or known[0] != text:
            if len(self._known) >= _MAX_RECORDS:
                self._known.clear()  # which also forgets those of ended processes
            known = self._known[path] = (text, then(text, parse, name))
        parsed: _T | Missing = known[1]
        return parsed

    def content(self, pid: int, name: str) -> bytes | Missing:
        """/proc/PID/`name`, whole: cmdline, environ, maps, cgroup."""
        try:
            return read_bytes(f"{self.root}/{pid}/{name}")
        except OSError as error:
            return missing_because(error, ENDED)

    def pids(self) -> list[int]:
        """Every process that is visible here."""
        try:
            return [
                int(name) for name in os.listdir(self.root) if name.isascii() and name.isdigit()
            ]
        except OSError:
            return []

    def cpu_ticks(self) -> dict[int, int]:
        """CPU time of every process that is visible here, by PID.

        By the clock of each, which needs no privilege (clock_getcpuclockid(3)) and takes a
        twentieth of what its `stat` takes, where /proc is that of our own PID namespace.
        """
        ticks = {}
        for pid in self.pids():
            if self._has_clocks:
                try:
                    ticks[pid] = time.clock_gettime_ns(~pid << 3 | _SCHED_CLOCK) // _NS_PER_TICK
                    continue
                except OSError:  # it ended, or this kernel has none
                    pass
            stat = self.stat(pid)
            if not isinstance(stat, Missing):
                ticks[pid] = stat.cpu_ticks
        return ticks

    def is_nested(self) -> bool:
        """Whether this is a PID namespace within another, whose processes have no number here."""
        try:
            return os.readlink(f"{self.root}/self/ns/pid") != _FIRST_PID_NAMESPACE
        except OSError:
            return False

    def hides(self, pid: int) -> bool:
        """Whether a process that has no directory here is there all the same (hidepid, proc(5))."""
        if self.root != "/proc":
            return False
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            pass
        return False

    def boot_time(self) -> float | None:
        text = look_at_record(f"{self.root}/stat")
        return None if isinstance(text, Missing) else parse_boot_time(text)


def _own_pid(root: str) -> int | None:
    """Of this process, in the PID namespace of this /proc."""
    try:
        return parse_count(os.readlink(f"{root}/self"))
    except OSError:
        return None
