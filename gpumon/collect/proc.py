"""Files of /proc: reading them, parsing them, and turning counters into rates.

What a parser does not understand becomes None, never a guess: the text may come from another
kernel, from a container's own idea of /proc, or be cut in the middle. Formats: proc(5).
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import time
from typing import (
    Callable,
    Collection,
    Dict,
    Hashable,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
)

from gpumon.collect.rates import Moment, elapsed_s
from gpumon.model.reading import ENDED, MEASURING, NO_PERMISSION, Missing, Reading
from gpumon.model.text import clean

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: most of any one file that is read; the longest are the maps of a process with many libraries
READ_LIMIT_BYTES = 4 << 20
_MAX_CPU = 1 << 16
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


def read_text(path: str, limit: int = READ_LIMIT_BYTES) -> str:
    """The file's text; bytes that are no UTF-8 become replacement characters. Raises OSError."""
    return read_bytes(path, limit).decode("utf-8", "replace")


def missing_because(error: OSError, absent: Missing) -> Missing:
    """Why a file could not be read; `absent` is what it means here that there is none."""
    if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP):
        return absent
    if error.errno in (errno.EACCES, errno.EPERM):
        return NO_PERMISSION
    return Missing("error", os.strerror(error.errno or 0))


def parse_count(text: str) -> Optional[int]:
    """A decimal number from 0 to 2⁶⁴ − 1, as the kernel prints counters, or None."""
    text = text.strip()
    if not (0 < len(text) <= 20 and text.isascii() and text.isdigit()):
        return None
    value = int(text)
    return value if value < 1 << 64 else None


def cpu_list_text(cpus: Iterable[int]) -> str:
    """[0, 1, 2, 3, 8] -> `0-3,8`, as the kernel writes it."""
    runs: List[List[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_cpu_list(text: str) -> Optional[List[int]]:
    """`0-3,8` -> [0, 1, 2, 3, 8]; an empty list is one, anything else that is odd is None."""
    cpus: List[int] = []
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


def parse_table(text: str) -> Dict[str, int]:
    """Lines of `name value` (or `name: value kB`) as name -> number; other lines are skipped."""
    table: Dict[str, int] = {}
    for line in text.splitlines():
        parts = line.replace(":", " ", 1).split(None, 2)
        if len(parts) >= 2:
            value = parse_count(parts[1])
            if value is not None:
                table[parts[0]] = value
    return table


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


def parse_stat(text: str) -> Optional[Stat]:
    """One process. Its name may hold blanks and parentheses: it ends at the last `)`."""
    head, found, tail = text.rpartition(")")
    pid_text, opened, comm = head.partition("(")
    fields = tail.split()
    if not found or not opened or len(fields) < 22:
        return None
    # the first field of `tail` is number 3 of proc(5)
    numbers = [parse_count(fields[n - 3]) for n in (4, 6, 14, 15, 20, 22, 24)]
    pid = parse_count(pid_text)
    if pid is None or None in numbers or len(fields[0]) != 1:
        return None
    ppid, session, utime, stime, threads, start, rss_pages = [n or 0 for n in numbers]
    return Stat(
        pid=pid,
        comm=clean(comm, 64),
        state=clean(fields[0]),
        ppid=ppid,
        session=session,
        cpu_ticks=utime + stime,
        threads=threads,
        start_ticks=start,
        rss_bytes=rss_pages * PAGE_BYTES,
    )


class Status(NamedTuple):
    """/proc/PID/status, as far as it is used."""

    uid: int  # the real one
    namespace_pids: Tuple[int, ...]  # outermost first; empty before Linux 4.1
    cpus: Optional[List[int]]  # that the process may run on


def parse_status(text: str) -> Optional[Status]:
    """None when there is no user id in it."""
    values: Dict[str, str] = {}
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


def parse_io(text: str) -> Optional[Io]:
    table = parse_table(text)
    if "rchar" not in table or "wchar" not in table:
        return None
    return Io(table["rchar"], table["wchar"])


def parse_boot_time(text: str) -> Optional[float]:
    """The boot's epoch seconds, from the `btime` line of /proc/stat."""
    return parse_table(text).get("btime")


def parse_pressure(text: str) -> Reading:
    """Percent of the last 10 s in which some task waited, from a pressure file."""
    match = re.search(r"^some avg10=(\d{1,3}\.\d{1,3}) ", text, re.MULTILINE)
    if match is None or float(match.group(1)) > 100:
        return Missing("error", "pressure is unreadable")
    return float(match.group(1))


class Rates:
    """Counters to rates: what a counter grew by since it was last read, per second.

    Keeps its own clock, because a collector before this one may have held up the tick.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Dict[Hashable, Tuple[float, Moment]] = {}

    def per_second(
        self, key: Hashable, counter: Reading, moment: Optional[Moment] = None
    ) -> Reading:
        """The rate; Missing at the first reading, when the time between two is not known well
        enough, and when the counter is missing or went back. `moment`: of the read; now by default.
        """
        if isinstance(counter, (Missing, str)):
            self._last.pop(key, None)
            return counter if isinstance(counter, Missing) else Missing("error")
        moment = Moment(self._clock()) if moment is None else moment
        last = self._last.get(key)
        self._last[key] = (counter, moment)
        elapsed = None if last is None else elapsed_s(last[1], moment)
        if last is None or elapsed is None:
            return MEASURING
        if counter < last[0]:
            return Missing("implausible", f"counter went back from {last[0]:.0f} to {counter:.0f}")
        return (counter - last[0]) / elapsed

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget the counters of what is gone, so that its name can come back as another."""
        for key in [key for key in self._last if key not in keys]:
            del self._last[key]


class Users:
    """Names of users, asked for once each: the lookup may go over the network."""

    def __init__(self) -> None:
        self._names: Dict[int, str] = {}

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
    """One /proc: what it says of a process, or why it does not."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root

    def stat(self, pid: int) -> Stat | Missing:
        """ENDED when there is no such process, in this PID namespace."""
        return self._parsed(pid, "stat", parse_stat)

    def status(self, pid: int | str) -> Status | Missing:
        return self._parsed(pid, "status", parse_status)

    def io(self, pid: int) -> Io | Missing:
        return self._parsed(pid, "io", parse_io)

    def _parsed(self, pid: int | str, name: str, parse: Callable[[str], _T | None]) -> _T | Missing:
        try:
            text = read_text(f"{self.root}/{pid}/{name}")
        except OSError as error:
            return missing_because(error, ENDED)
        parsed = parse(text)
        return Missing("error", f"{name} is unreadable") if parsed is None else parsed

    def content(self, pid: int, name: str) -> bytes | Missing:
        """/proc/PID/`name`, whole: cmdline, environ, maps, cgroup."""
        try:
            return read_bytes(f"{self.root}/{pid}/{name}")
        except OSError as error:
            return missing_because(error, ENDED)

    def pids(self) -> List[int]:
        """Every process that is visible here."""
        try:
            return [
                int(name) for name in os.listdir(self.root) if name.isascii() and name.isdigit()
            ]
        except OSError:
            return []

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

    def boot_time(self) -> Optional[float]:
        try:
            return parse_boot_time(read_text(f"{self.root}/stat"))
        except OSError:
            return None
