"""What gpumon's probe wrote inside a Python program (`probe/inside/gpumon_probe.py`).

Each probed process writes a small file into the folder that its variable GPUMON_PROBE_DIR names, or
into a usual one. It deserves no more trust than its user: it is read only where the process's own
user owns it, up to a bound, and its values are checked like those from anywhere else. No name is
trusted, as anybody may have planted it, and no server is waited for.
"""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple

from gpumon.collect.base import Tick
from gpumon.collect.proc.frameworks import parse_environ
from gpumon.collect.proc.local import is_local
from gpumon.collect.procfs import ProcFs, Stat, parse_count
from gpumon.model.reading import Missing, Reading
from gpumon.model.text import clean

VARIABLE = "GPUMON_PROBE_DIR"
#: (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER) of a process -> CUDA's number -> key of the device
Numbers = Callable[["str | None", "str | None"], Dict[int, int]]

_MOST_BYTES = 128 << 10
_MOST_POOLS = 64
_MOST_BESIDE = 512
_MOST_PLANTED, _MOST_OWN = 10_000, 16
_MOST_LISTS = 64
_LISTED_S = 10.0  # for which a list of folders is good
_STALE_S = 15.0  # seven times what there should be between two writings
_ABSENT_TICKS = 3
_MOST_PLACE = 120
_MOST = 1 << 60  # more is no count, and no size or time
#: of a job's ranks, and of a loader's workers
_MOST_NUMBER = 1 << 20
#: field -> name in the file; of steps also how many of the field's unit one of it is
_POOL = {
    "used_bytes": "used",
    "peak_bytes": "peak",
    "reserved_bytes": "reserved",
    "reserved_peak_bytes": "reserved_peak",
    "limit_bytes": "limit",
    "retries": "retries",
    "ooms": "ooms",
}
_STEPS = {
    "steps": ("steps", 1),
    "step_us": ("step_s", 1e6),
    "step_p95_us": ("step_p95_s", 1e6),
    "data_wait_percent": ("data_wait_percent", 1),
}
_NUMBERED = ("rank", "worker")
_WAITS_FOR = ("", "data", "work", "ranks")


def usual_folders(environ: Mapping[str, str], uid: int) -> list[str]:
    """Of all probes of this user on this node, the first choice first; in no home of many nodes."""
    bases = dict.fromkeys((environ.get("TMPDIR", ""), "/tmp", "/dev/shm"))
    return [os.path.join(base, usual_name(uid)) for base in bases if base.startswith("/")]


def usual_name(uid: int) -> str:
    return f"gpumon-probe-{uid}"


def own_folders(base: str, uid: int) -> list[str]:
    """Folders in this one that are this user's, taken where another planted the usual one."""
    found: list[str] = []
    looks = 0
    try:
        with os.scandir(base) as entries:
            for entry in entries:
                if not entry.name.startswith(usual_name(uid) + "-"):
                    continue
                looks += 1
                there = entry.stat(follow_symlinks=False)
                if there.st_uid == uid and stat.S_ISDIR(there.st_mode):
                    found.append(entry.path)
                if looks == _MOST_PLANTED:
                    break
    except OSError:
        pass
    return sorted(found)[:_MOST_OWN]


class _Probed(NamedTuple):
    """A process that may have a probe: its file, by the folders that it may lie in."""

    folders: tuple[str, ...]  # seen from here and from its own root
    name: str
    uid: int
    is_sure: bool  # it was given a folder to write to


class Told(NamedTuple):
    """What a probe wrote last, and how old that is."""

    values: dict[str, Any]
    age_s: float

    @property
    def is_stale(self) -> bool:
        return self.age_s > _STALE_S


class Probed:
    """The files of this node's probed processes."""

    def __init__(self, numbers: Numbers, folder: str = "", *, proc: ProcFs | None = None) -> None:
        """`folder`: of a command beside the agent, whose processes are of interest as such."""
        self._proc = proc or ProcFs()
        self._numbers = numbers
        self._beside = folder if is_local(folder, self._mounts(os.getpid())) else ""
        self._known: dict[int, _Probed] = {}
        self._left_out: dict[int, int] = {}  # pid -> ticks until its file is looked for again
        #: (device, inode) of a folder for all -> when, and the folders in it that are its user's
        self._listed: dict[tuple[int, int, int], tuple[float, list[str]]] = {}

    def pids(self) -> list[int]:
        """Of the command beside the agent, those that told something."""
        if not self._beside:
            return []
        try:
            names = os.listdir(self._beside)
        except OSError:
            return []
        pids = [parse_count(name.partition("-")[0]) for name in names if name.endswith(".json")]
        return [pid for pid in pids if pid][:_MOST_BESIDE]

    def find(self, pid: int, here: Stat, uid: int) -> None:
        """Where the probe of an identified process writes, if it has one.

        `pid`: as the driver says it.
        """
        known = self._file(here, uid)
        if known is not None:
            self._known[pid] = known

    def told(self, here: Stat, uid: int) -> Told | None:
        """What the probe of this process wrote last, however old; None if it has none."""
        known = self._file(here, uid)
        return None if known is None else self._read(known)

    def _file(self, here: Stat, uid: int) -> _Probed | None:
        given, usual = self._folders(here, uid)
        if self._beside and given and given != self._beside:  # of another command
            return None
        mounts = self._mounts(here.pid)
        root = f"{self._proc.root}/{here.pid}/root"
        local = [each for each in (given, *usual) if is_local(each, mounts, root)]
        status = self._proc.status(here.pid)
        inner = () if isinstance(status, Missing) else status.namespace_pids
        name = f"{(inner or (here.pid,))[-1]}-{here.start_ticks}.json"
        folders = tuple(path for each in local for path in (each, root + each))
        return _Probed(folders, name, uid, is_sure=given in local) if folders else None

    def _mounts(self, pid: int) -> str:
        content = self._proc.content(pid, "mountinfo")
        return "" if isinstance(content, Missing) else content.decode("utf-8", "surrogateescape")

    def _folders(self, here: Stat, uid: int) -> tuple[str, list[str]]:
        """The one that it was given, and those that `gpumon.watch()` in it would take.

        By its environment, or where a title overwrote that, by its parent's.
        """
        for pid in (here.pid, here.ppid):
            content = self._proc.content(pid, "environ")
            environ = None if isinstance(content, Missing) else parse_environ(content)
            if environ is not None:
                return environ.get(VARIABLE, ""), usual_folders(environ, uid)
        return "", []

    def _read(self, known: _Probed) -> Told | None:
        for folder in known.folders:
            told = _read(f"{folder}/{known.name}", known.uid)
            if told is not None:
                return told
        for folder in self._own(known):
            told = _read(f"{folder}/{known.name}", known.uid)
            if told is not None:
                return told
        return None

    def _own(self, known: _Probed) -> Iterator[str]:
        """The other folders that the probe may have taken; each place is listed now and then."""
        for usual in known.folders:
            base, name = os.path.split(usual)
            if name != usual_name(known.uid):
                continue
            try:
                there = os.stat(base)
            except OSError:
                continue
            key, now = (there.st_dev, there.st_ino, known.uid), time.monotonic()
            listed_at, names = self._listed.get(key, (-_LISTED_S, []))
            if now >= listed_at + _LISTED_S:
                names = [os.path.basename(each) for each in own_folders(base, known.uid)]
                if len(self._listed) >= _MOST_LISTS:
                    self._listed.clear()
                self._listed[key] = now, names
            yield from (os.path.join(base, name) for name in names)

    def put(self, tick: Tick, pid: int) -> None:
        """What its probe told last, unless that is too old to stand for now."""
        known = self._known.get(pid)
        if known is None or self._is_left_out(pid):
            return
        told = self._read(known)
        if told is None and not known.is_sure:
            self._left_out[pid] = _ABSENT_TICKS
        if told is None or told.is_stale:
            return
        row = program_row(told.values)
        if row:
            tick.put("program", pid, row)
        for key, pool in self._pools(told.values):
            tick.put("pool", (key, pid), pool)

    def _is_left_out(self, pid: int) -> bool:
        """Most processes have no probe: their files are not looked for in each tick."""
        left = self._left_out.pop(pid, 0)
        if left > 1:
            self._left_out[pid] = left - 1
        return left > 0

    def put_all(self, tick: Tick) -> None:
        """The same of all processes."""
        for pid in self._known:
            self.put(tick, pid)

    def _pools(self, told: dict[str, Any]) -> list[tuple[int, dict[str, Reading]]]:
        pools = told.get("pools")
        if not isinstance(pools, list) or not pools:
            return []
        visible, order = told.get("visible"), told.get("order")
        keys = self._numbers(
            visible if isinstance(visible, str) else None, order if isinstance(order, str) else None
        )
        rows: dict[int, dict[str, Reading]] = {}
        for pool in pools[:_MOST_POOLS]:
            number = pool.get("device") if isinstance(pool, dict) else None
            key = keys.get(number) if isinstance(number, int) else None
            if key is not None:
                _add(rows.setdefault(key, {}), pool_row(pool))
        return list(rows.items())

    def end(self, tick: Tick, pid: int) -> None:
        """The process ended; its last words stand in its file."""
        self._left_out.pop(pid, None)
        self.put(tick, pid)
        self._known.pop(pid, None)
        self._left_out.pop(pid, None)


def pool_row(pool: dict[str, Any]) -> dict[str, Reading]:
    """The readings of one framework's pool on one device."""
    found = {field: _count(pool.get(name)) for field, name in _POOL.items()}
    return {field: value for field, value in found.items() if value is not None}


def _add(row: dict[str, Reading], more: dict[str, Reading]) -> None:
    """Two frameworks may have a pool each on one device."""
    for field, value in more.items():
        before = row.get(field)
        both = isinstance(before, (int, float)) and isinstance(value, (int, float))
        row[field] = before + value if both else value  # type: ignore[operator]


def program_row(told: dict[str, Any]) -> dict[str, Reading]:
    """The readings of a program's steps, and where it stands."""
    row: dict[str, Reading] = {}
    for field, (name, worth) in _STEPS.items():
        value = _count(told.get(name))
        if value is not None:
            row[field] = value if worth == 1 else value * worth
    for field in _NUMBERED:
        value = told.get(field)
        if type(value) is int and 0 <= value < _MOST_NUMBER:
            row[field] = value
    place = told.get("place")
    if isinstance(place, str) and place:
        row["place"] = clean(place, _MOST_PLACE)
        if told.get("waits_for") in _WAITS_FOR:
            row["waits_for"] = told["waits_for"]
    return row


def _count(value: object) -> float | None:
    """A number that something can have."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value < _MOST else None  # neither is what is not a number


def _read(path: str, uid: int) -> Told | None:
    try:
        content, age_s = _content(path, uid)
        told = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
    return Told(told, age_s) if isinstance(told, dict) else None


def _content(path: str, uid: int) -> tuple[bytes, float]:
    """Of a regular file of this user, and its age in s; nothing of another. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        there = os.fstat(file)
        is_own = stat.S_ISREG(there.st_mode) and there.st_uid == uid
        if not is_own or there.st_size > _MOST_BYTES:
            return b"", 0.0
        # a time stamp of tomorrow is no fresher than one of yesterday
        return os.read(file, _MOST_BYTES), abs(time.time() - there.st_mtime)
    finally:
        os.close(file)
