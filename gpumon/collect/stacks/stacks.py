"""The stacks of a node's Python processes: by the probe inside, else by py-spy from outside."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.proc.frameworks import parse_environ
from gpumon.collect.proc.probed import Probed
from gpumon.collect.proc.processes import Processes
from gpumon.collect.procfs import ProcFs, Stat
from gpumon.collect.stacks import pyspy
from gpumon.collect.stacks.ranks import (
    MAX_RANKS,
    Candidate,
    candidate,
    is_gpumon,
    is_python,
    ranks_of,
)
from gpumon.model.reading import Missing
from gpumon.model.stack import MAX_FRAMES, MAX_NAME, PROBE, THREADS, Frame, Stack, ThreadStack, Told
from gpumon.model.text import clean

_MAX_PROCESSES = 4096
_MOST_LINE = 1 << 31


class Stacks:
    """Of the processes that this user may read; made for one request."""

    def __init__(
        self, probed: Probed, processes: Processes, job: JobCgroup, names: Collection[str]
    ) -> None:
        """`names`: of the job, where its processes are known by their environment alone."""
        self._proc = ProcFs()
        self._probed, self._processes = probed, processes
        self._job, self._names = job, names
        self._uid = os.getuid()

    def answers(self, pid: int, how: str, py_spy: str = "") -> Iterator[Told]:
        """Of this process as the driver numbers it, or (0) of each rank of the job, or of this
        user's processes on GPUs where there is no job. `py_spy`: where that may lie too.
        """
        program = pyspy.find(py_spy)
        ranks = self._ranks()
        if pid:
            known = next((each for each in ranks if each.pid == self._processes.number(pid)), None)
            stack = self._stack(self._processes.number(pid), how, program)
            rank, local = (known.rank, known.local_rank) if known is not None else (None, None)
            yield Told(stack._replace(pid=pid, rank=rank, local_rank=local), 0)
            return
        for more, each in zip(range(len(ranks) - 1, -1, -1), ranks):
            stack = self._stack(each.pid, how, program)
            yield Told(stack._replace(rank=each.rank, local_rank=each.local_rank), more)
        if not ranks:
            yield Told(None, 0)

    # -- which processes

    def _ranks(self) -> list[Candidate]:
        on_gpu = self._processes.on_gpu()
        stats = {}
        for pid in self._pids(on_gpu):
            stat = self._proc.stat(pid)
            if not isinstance(stat, Missing):
                stats[pid] = stat
        found = [
            candidate(pid, stat.ppid, self._environ(stat), pid in on_gpu)
            for pid, stat in stats.items()
            if self._is_program(pid)
        ]
        return ranks_of(found, {pid: stat.ppid for pid, stat in stats.items()})[:MAX_RANKS]

    def _pids(self, on_gpu: Collection[int]) -> list[int]:
        if self._job.exists:
            return sorted(self._job.pids())[:_MAX_PROCESSES]
        if not self._names:
            return [pid for pid in on_gpu if self._owner(pid) == self._uid]
        return [pid for pid in self._proc.pids() if self._is_of_job(pid)][:_MAX_PROCESSES]

    def _is_of_job(self, pid: int) -> bool:
        content = self._proc.content(pid, "environ")
        environ = None if isinstance(content, Missing) else parse_environ(content)
        return environ is not None and environ.get("SLURM_JOB_ID") in self._names

    def _is_program(self, pid: int) -> bool:
        """A Python program that is not gpumon's own."""
        command = self._proc.content(pid, "cmdline")
        words = b"" if isinstance(command, Missing) else command[:4096]
        own = is_gpumon(words.decode("utf-8", "replace").split("\0"))
        return pid != os.getpid() and not own and self._is_python(pid)

    def _is_python(self, pid: int) -> bool:
        try:
            executable = os.readlink(f"{self._proc.root}/{pid}/exe")
        except OSError:
            return False
        maps = self._proc.content(pid, "maps")
        text = "" if isinstance(maps, Missing) else maps.decode("utf-8", "replace")
        return is_python(executable, text)

    def _environ(self, stat: Stat) -> dict[str, str]:
        """The process's own, or where a title overwrote it, its parent's."""
        for pid in (stat.pid, stat.ppid):
            content = self._proc.content(pid, "environ")
            environ = None if isinstance(content, Missing) else parse_environ(content)
            if environ is not None:
                return environ
        return {}

    def _owner(self, pid: int) -> int:
        """The user; -1 where that is not known."""
        status = self._proc.status(pid)
        return -1 if isinstance(status, Missing) else status.uid

    # -- one process

    def _stack(self, pid: int, how: str, program: str) -> Stack:
        stat = self._proc.stat(pid)
        if isinstance(stat, Missing) or stat.state in "ZX":
            return Stack(pid, why="ended")
        stack = Stack(pid, stat.comm)
        owner = self._owner(pid)
        if self._uid not in (owner, 0):
            return stack._replace(why="other-user")
        inside = self._by_probe(stack, stat, owner)
        if how == PROBE and inside.why == "no-probe" and not self._is_python(pid):
            return stack._replace(why="not-python")
        if how == PROBE or (inside.threads and how != THREADS):
            return inside
        outside = self._by_py_spy(stack, how, program)
        if outside.threads or not inside.threads:
            silent = inside.why == "silent" and outside.why in ("no-py-spy", "ptrace", "refused")
            return inside if silent else outside
        return inside._replace(why=outside.why, detail=outside.detail)

    def _by_probe(self, stack: Stack, stat: Stat, owner: int) -> Stack:
        told = self._probed.told(stat, owner)
        frames = _frames(told.values.get("stack")) if told is not None else ()
        if told is None or not (frames or told.is_stale):
            return stack._replace(why="no-probe")
        stack = stack._replace(by="probe", age_s=max(0.0, round(told.age_s, 1)))
        if told.is_stale:
            return stack._replace(why="silent")
        return stack._replace(threads=(ThreadStack("MainThread", True, frames),))

    def _by_py_spy(self, stack: Stack, how: str, program: str) -> Stack:
        if not self._is_python(stack.pid):
            return stack._replace(why="not-python")
        if not program:
            return stack._replace(why="no-py-spy")
        told = pyspy.dump(program, stack.pid)
        threads = told.threads if how == THREADS else told.threads[:1]
        return stack._replace(by="py-spy", threads=threads, why=told.why, detail=told.detail)


def _frames(told: Any) -> tuple[Frame, ...]:
    """Those that a probe wrote, which deserves no more trust than its user."""
    if not isinstance(told, list):
        return ()
    frames = [_frame(each) for each in told[:MAX_FRAMES]]
    known = [each for each in frames if each is not None]
    return tuple(known) if len(known) == len(frames) else ()


def _frame(told: Any) -> Frame | None:
    if not isinstance(told, list) or len(told) != 4:
        return None
    file, line, function, own = told
    if not (isinstance(file, str) and isinstance(function, str)):
        return None
    if type(line) is not int or not 0 <= line < _MOST_LINE:
        return None
    return Frame(clean(file, MAX_NAME), line, clean(function, MAX_NAME), own is True)
