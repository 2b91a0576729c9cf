"""Processes of interest: on a GPU, in the job, or, without either, the busiest ones.

Facts are sent as an event when a process is first seen and when they change; its readings
every 2 s. A process is its PID and its start time: a PID that comes back is another process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Callable

from gpumon.collect.base import Schedule, Tick, WallClock
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import find_job_cgroup
from gpumon.collect.proc.busiest import Busiest
from gpumon.collect.proc.frameworks import (
    environment_hints,
    find_frameworks,
    find_purposes,
    parse_environ,
)
from gpumon.collect.proc.probed import Probed
from gpumon.collect.proc.redact import redact
from gpumon.collect.procfs import TICKS_PER_S, ProcFs, Stat, Users, parse_count
from gpumon.collect.rates import Moment, Rate, moment_since
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.reading import ENDED, NAMESPACE, NO_PERMISSION, Missing, Reading, number
from gpumon.model.sample import Event, Process

MAX_JOB_PROCESSES = 512
BUSIEST = 20
#: notes on processes that the driver names and that are not to be found here
ELSEWHERE = "in another PID namespace"
HIDDEN = "hidden from this user"
NOT_HERE = "no such process on this node"

_PERIOD_S = 2.0
_SECOND_LOOK_S = 30.0  # libraries are loaded by then
_RETITLE_S = 10.0  # a process that changes its title all the time is not looked at all the time
_GPU_GRACE_S = 7.0  # a device that does not answer keeps its processes so long
_NAMESPACE_SCAN_S = 30.0
_MAX_ANCESTORS = 32
_LOOKS_PER_ROUND = 64  # a look at all files of a process takes half a millisecond
_COMMAND_BYTES = 16 << 10
_FIELDS = tuple(field.name for field in GROUP_BY_KEY["process.process"].fields)


class Identifier:
    """Identifies a process from the files of /proc that this user may read."""

    def __init__(self, proc: ProcFs, job: JobCgroup | None, uid: int) -> None:
        self._proc = proc
        self._job = job.job.name if job is not None and job.job is not None else ""
        self._uid = uid
        self._users = Users()
        self._boot_time = proc.boot_time()
        self._wall_clock = WallClock()

    def may_read(self, uid: int) -> bool:
        """Whether the kernel shows this user the private files of a process of `uid`."""
        return self._uid in (uid, 0)

    def identify(self, pid: int, stat: Stat) -> Process | None:
        """The facts, or None when the process ended meanwhile."""
        status = self._proc.status(stat.pid)
        if isinstance(status, Missing) and status.reason == "ended":
            return None
        uid = -1 if isinstance(status, Missing) else status.uid
        command = self._command(stat)
        environ, maps = {}, ""
        if self.may_read(uid):
            environ = self._environ(stat)
            maps = self._text(stat.pid, "maps")
        frameworks = find_frameworks(maps, command)
        hints = environment_hints(environ)
        if len(frameworks) > 1:
            hints["also"] = " ".join(frameworks[1:])
        if purposes := find_purposes(maps):
            hints["purpose"] = " ".join(purposes)
        job = find_job_cgroup(self._text(stat.pid, "cgroup"), environ)
        told = parse_count(environ.get("SLURM_JOB_ID", ""))
        return Process(
            pid=pid,
            user=self._users.name(uid) if uid >= 0 else "",
            command=command,
            name=stat.comm,
            ppid=stat.ppid,
            uid=uid,
            start=self._start(stat),
            own=uid == self._uid,
            in_job=bool(job and job.name == self._job),
            framework=frameworks[0] if frameworks else "",
            job=(job.job or job.name) if job else str(told or ""),
            hints=hints,
            note="" if pid == stat.pid else f"PID {stat.pid} here",
        )

    def _start(self, stat: Stat) -> float:
        if self._wall_clock.step_s():  # the boot's time moves with it
            self._boot_time = self._proc.boot_time()
        if self._boot_time is None:
            return 0.0
        return round(self._boot_time + stat.start_ticks / TICKS_PER_S, 2)

    def _command(self, stat: Stat) -> str:
        content = self._proc.content(stat.pid, "cmdline")
        if isinstance(content, Missing):
            return ""
        words = content[:_COMMAND_BYTES].rstrip(b"\0").split(b"\0")
        command = redact([word.decode("utf-8", "replace") for word in words]).strip()
        return command or f"[{stat.comm}]"  # a zombie or a thread of the kernel, as ps writes it

    def _environ(self, stat: Stat) -> dict[str, str]:
        """The process's own, or where a title overwrote it, its parent's."""
        for pid in (stat.pid, stat.ppid):
            content = self._proc.content(pid, "environ")
            environ = None if isinstance(content, Missing) else parse_environ(content)
            if environ is not None:
                return environ
        return {}

    def _text(self, pid: int, name: str) -> str:
        content = self._proc.content(pid, name)
        return "" if isinstance(content, Missing) else content.decode("utf-8", "replace")


class _Watched:
    """A process whose facts were sent, and its counters."""

    __slots__ = (
        "cpu", "facts", "looked", "looked_twice", "on_gpu", "read", "start_ticks", "written"
    )  # fmt: skip

    def __init__(self, facts: Process, start_ticks: int, looked: float, on_gpu: bool) -> None:
        self.facts = facts
        self.start_ticks = start_ticks
        self.looked = looked
        self.looked_twice = False
        self.on_gpu = on_gpu
        self.cpu, self.read, self.written = Rate(), Rate(), Rate()

    def needs_look(self, stat: Stat, mono: float, on_gpu: bool) -> bool:
        """After 30 s, when device memory first appears, and when it took another name."""
        return (
            (on_gpu and not self.on_gpu)
            or (not self.looked_twice and mono >= self.looked + _SECOND_LOOK_S)
            or (stat.comm != self.facts.name and mono >= self.looked + _RETITLE_S)
        )


class Processes:
    """Readings and facts of the processes of interest. Runs after the collector of devices."""

    name = "processes"

    def __init__(
        self,
        job: JobCgroup | None = None,
        proc: str = "/proc",
        uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        probed: Probed | None = None,
    ) -> None:
        self._proc = ProcFs(proc)
        self._probed = probed or Probed(lambda visible, order: {}, proc=self._proc)
        self._job = job
        self._identifier = Identifier(self._proc, job, os.getuid() if uid is None else uid)
        self._schedule = Schedule()
        self._clock = clock
        self._stats_at = Moment(0.0)
        self._watched: dict[int, _Watched] = {}
        self._elsewhere: dict[int, str] = {}  # the driver's PIDs that mean nothing here -> note
        self._ended: set[int] = set()  # ... and those that the driver still lists
        self._gpu_seen: dict[int, float] = {}
        self._gpu_mem: set[int] = set()
        self._own_pid: dict[int, int] = {}  # the driver's PID -> the one in this namespace
        self._busiest = Busiest(self._proc)
        self._capped = False
        self._looks_left = 0
        self._untold: set[int] = set()  # to be announced again

    def tell_again(self) -> None:
        """Announce all processes anew, some in each round."""
        self._untold = set(self._watched)
        self._elsewhere.clear()

    def collect(self, tick: Tick) -> None:
        self._note_usage(tick)  # in whichever tick the devices answered
        if not self._schedule.due("process", _PERIOD_S, tick.mono):
            return
        wanted = dict.fromkeys(self._gpu_pids(tick.mono))
        wanted.update(dict.fromkeys(self._job_pids(tick)))
        wanted.update(dict.fromkeys(self._probed.pids()))
        if not wanted:
            wanted.update(dict.fromkeys(self._busiest.pids(BUSIEST, tick.mono)))
        began = self._clock()
        stats = self._stats(wanted)
        self._stats_at = moment_since(began, self._clock)
        self._looks_left = _LOOKS_PER_ROUND
        self._end_others(tick, stats)
        for pid, stat in stats.items():
            self._put(tick, pid, stat)
        self._put_elsewhere(tick, [pid for pid in wanted if pid not in stats])

    def number(self, pid: int) -> int:
        """The number here of a process that the driver, and so the reader, has by this one."""
        return self._own_pid.get(pid, pid)

    def on_gpu(self) -> frozenset[int]:
        """The processes on GPUs, by their numbers here."""
        return frozenset(map(self.number, self._gpu_seen))

    # -- which ones ----------------------------------------------------------------------------

    def _note_usage(self, tick: Tick) -> None:
        for key, readings in tick.rows.get("usage", {}).items():
            if isinstance(key, tuple) and key[1] > 0:
                self._gpu_seen[key[1]] = tick.mono
                if (number(readings.get("mem_bytes")) or 0) > 0:
                    self._gpu_mem.add(key[1])

    def _gpu_pids(self, mono: float) -> list[int]:
        for pid, seen in list(self._gpu_seen.items()):
            if mono > seen + _GPU_GRACE_S:
                del self._gpu_seen[pid]
                self._gpu_mem.discard(pid)
                self._ended.discard(pid)
        return list(self._gpu_seen)

    def _job_pids(self, tick: Tick) -> list[int]:
        pids = sorted(self._job.pids()) if self._job is not None else []
        capped = len(pids) > MAX_JOB_PROCESSES
        if capped and not self._capped:
            text = f"The job has {len(pids)} processes; {MAX_JOB_PROCESSES} of them are shown."
            tick.events.append(Event(tick.time, "note", text=text))
        self._capped = capped
        return pids[:MAX_JOB_PROCESSES]

    def _stats(self, wanted: Iterable[int]) -> dict[int, Stat]:
        """The processes that are there, and their ancestors up to the leader of the session."""
        stats: dict[int, Stat] = {}
        for pid in wanted:
            stat = self._proc.stat(self._own_pid.get(pid, pid))
            if not isinstance(stat, Missing):
                stats[pid] = stat
        for stat in list(stats.values()):
            for _ in range(_MAX_ANCESTORS):
                if stat.pid == stat.session or stat.ppid <= 1 or stat.ppid in stats:
                    break
                parent = self._proc.stat(stat.ppid)
                if isinstance(parent, Missing):
                    break
                stats[parent.pid] = stat = parent
        return stats

    # -- facts ---------------------------------------------------------------------------------

    def _end_others(self, tick: Tick, stats: dict[int, Stat]) -> None:
        """Report which of the watched processes ended or gave their PID to another one."""
        gone = []
        for pid, watched in self._watched.items():
            stat = stats.get(pid)
            if stat is None or stat.start_ticks != watched.start_ticks:
                gone.append(pid)
        for pid in gone:
            start_ticks = self._watched.pop(pid).start_ticks
            self._probed.end(tick, pid)
            now = stats.get(pid) or self._proc.stat(self._own_pid.get(pid, pid))
            ended = isinstance(now, Missing) or now.start_ticks != start_ticks
            text = "ended" if ended else "no longer among the busiest"
            tick.events.append(Event(tick.time, "process-end", pid=pid, text=text))
            if ended:
                self._own_pid.pop(pid, None)
                if pid in self._gpu_seen and pid not in stats:
                    self._ended.add(pid)

    def _put(self, tick: Tick, pid: int, stat: Stat) -> None:
        on_gpu = pid in self._gpu_mem
        watched = self._watched.get(pid)
        if watched is None or watched.needs_look(stat, tick.mono, on_gpu):
            watched = self._look(tick, pid, stat, watched, on_gpu)
        if watched is not None:
            if pid in self._untold and self._looks_left > 0:
                self._looks_left -= 1
                self._untold.discard(pid)
                self._announce(tick, watched.facts)
            tick.put("process", pid, self._readings(stat, watched))
            self._probed.put(tick, pid)

    def _look(
        self, tick: Tick, pid: int, stat: Stat, watched: _Watched | None, on_gpu: bool
    ) -> _Watched | None:
        """Reads and announces the facts; None when they cannot be had in this round."""
        if self._looks_left <= 0:
            return watched  # comes next
        self._looks_left -= 1
        facts = self._identifier.identify(pid, stat)
        if facts is None:
            return None  # ended since; reported in the next round
        if self._identifier.may_read(facts.uid):
            self._probed.find(pid, stat, facts.uid)
        if watched is None:
            watched = self._watched[pid] = _Watched(facts, stat.start_ticks, tick.mono, on_gpu)
            self._announce(tick, facts)
            return watched
        # readers know it by its start, which moves when the clock is set
        facts = facts._replace(start=watched.facts.start)
        changed = facts != watched.facts
        watched.looked_twice = tick.mono >= watched.looked + _SECOND_LOOK_S
        watched.looked, watched.on_gpu, watched.facts = tick.mono, on_gpu, facts
        if changed:
            self._announce(tick, facts)
        return watched

    def _announce(self, tick: Tick, facts: Process) -> None:
        data = facts._asdict()
        tick.events.append(Event(tick.time, "process", pid=facts.pid, data=data))

    # -- readings ------------------------------------------------------------------------------

    def _readings(self, stat: Stat, watched: _Watched) -> dict[str, Reading]:
        busy = watched.cpu.update(stat.cpu_ticks, self._stats_at)
        began = self._clock()
        may_read = self._identifier.may_read(watched.facts.uid)
        io = self._proc.io(stat.pid) if may_read else NO_PERMISSION
        moment = moment_since(began, self._clock)
        read, written = (io, io) if isinstance(io, Missing) else io
        return {
            "cpu_percent": busy if isinstance(busy, (Missing, str)) else 100 * busy / TICKS_PER_S,
            "rss_bytes": stat.rss_bytes,
            "threads": stat.threads,
            "state": stat.state,
            "cpu_s": stat.cpu_ticks / TICKS_PER_S,
            "read_bytes_per_s": watched.read.update(read, moment),
            "write_bytes_per_s": watched.written.update(written, moment),
        }

    # -- PIDs of another namespace -------------------------------------------------------------

    def _put_elsewhere(self, tick: Tick, pids: list[int]) -> None:
        """Processes that the driver names and that are not here, or not by that number."""
        unknown = [pid for pid in pids if pid in self._gpu_seen and pid not in self._ended]
        if set(unknown) - set(self._elsewhere) and self._schedule.due(
            "namespaces", _NAMESPACE_SCAN_S, tick.mono
        ):
            self._own_pid.update(self._translate(unknown))
        for pid in unknown:
            if pid in self._own_pid:
                continue  # read under its number here from the next round on
            note, why = self._absence(pid)
            if self._elsewhere.get(pid) != note:
                if self._looks_left <= 0:
                    continue  # comes next
                self._looks_left -= 1
                self._elsewhere[pid] = note
                self._announce(tick, Process(pid, "", "", "", note=note))
            tick.put("process", pid, dict.fromkeys(_FIELDS, why))
        for pid in set(self._elsewhere) - set(unknown):
            del self._elsewhere[pid]
            if pid not in self._watched:
                tick.events.append(Event(tick.time, "process-end", pid=pid, text="ended"))

    def _absence(self, pid: int) -> tuple[str, Missing]:
        """Note and reason for a PID that is not here: another namespace only if there is one."""
        if self._proc.hides(pid):
            return HIDDEN, NO_PERMISSION
        return (ELSEWHERE, NAMESPACE) if self._proc.is_nested() else (NOT_HERE, ENDED)

    def _translate(self, pids: list[int]) -> dict[int, int]:
        """The driver's PID -> the process here that has that number in a namespace within ours."""
        matches: dict[int, list[int]] = {}
        for pid in self._proc.pids():
            status = self._proc.status(pid)
            if not isinstance(status, Missing):
                for inner in status.namespace_pids[1:]:
                    matches.setdefault(inner, []).append(pid)
        return {pid: matches[pid][0] for pid in pids if len(matches.get(pid, ())) == 1}
