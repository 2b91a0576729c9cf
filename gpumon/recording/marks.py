"""Marks: how `gpumon mark` reaches the recorder of this job, on this node or another.

Every recorder keeps a spool, one file in a folder shared by the user's nodes, named after its
job, its first node and its machine, and holds a lock on it while it lives: a spool of this machine
whose lock can be had is a dead one's. Over NFS locks of other machines may not be seen: theirs live
as long as their time of change is young. A mark is one line of JSON appended to it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import List, NamedTuple, Optional

from gpumon import private
from gpumon.model.sample import Event
from gpumon.model.text import clean
from gpumon.recording.shared import is_of_this_machine, lock, machine, opened, safe, sync

MAX_MARK = 200  # characters
_MAX_READ = 1 << 16
SUFFIX = ".spool"
#: the recorder locks this byte, far behind the lines; writers lock the byte after it
_ALIVE, _WRITING = 1 << 40, (1 << 40) + 1
_NO_JOB = "node"
#: s; the spool of another machine that changed so lately is a living one's, as far as marks go
_YOUNG_S = 60.0
_ABANDONED_S = 86_400.0
#: how long the end waits for a renewal that hangs
_BEAT_S = 1.0


class Mark(NamedTuple):
    """A line on the time axis."""

    time: float  # epoch s
    text: str


class Spool(NamedTuple):
    """Of a recorder that runs."""

    path: str
    job: str  # "" outside of one
    node: str


def mark_text(text: str) -> str:
    """One clean line of at most 200 characters; "" where nothing is left."""
    return clean(" ".join(text.split()), MAX_MARK).strip()


def mark_event(mark: Mark) -> Event:
    """A mark as it travels in a sample."""
    return Event(mark.time, "mark", text=mark.text)


class MarkSpool:
    """A recorder's end: holds the spool from its start to `close`."""

    def __init__(self, folder: str, job: str, node: str) -> None:
        """Raises OSError where the folder cannot be written, or is not the user's alone."""
        private.make_folder(folder)
        self.lease = f"{os.getpid()}-{os.urandom(6).hex()}@{machine()}"  # who holds it
        name = f"{job_name(job)},{safe(node)},{self.lease}{SUFFIX}"
        self.path = os.path.join(folder, name)
        within = private.open_folder(folder)
        try:
            self._file = private.new_file(within, name)
        except BaseException:
            os.close(within)
            raise
        lock(self._file, _ALIVE)
        # which a busy disk may take a second for, and nobody waits for
        threading.Thread(target=sync, args=(within,), daemon=True, name="marks").start()
        self._at = 0
        self._beating = threading.Lock()  # the file is not closed meanwhile

    def beat(self) -> None:
        """Show other machines that this process lives; a file system that hangs may take long."""
        with self._beating:
            if self._file >= 0:
                try:
                    os.utime(self._file)
                except OSError:
                    pass

    def take(self) -> List[Mark]:
        """The marks that came since the last call; what is not a mark is passed over."""
        try:
            data = os.pread(self._file, _MAX_READ, self._at)
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _MAX_READ:  # no line of ours is as long
            end = len(data)
        self._at += end
        marks = [_parsed(line) for line in data[:end].splitlines()]
        return [mark for mark in marks if mark is not None]

    def close(self) -> List[Mark]:
        """Remove the spool; returns the last marks."""
        if self._file < 0:
            return []
        lock(self._file, _WRITING, wait=True)
        try:
            os.unlink(self.path)
        except OSError:
            pass
        marks = self.take()
        if self._beating.acquire(timeout=_BEAT_S):
            os.close(self._file)  # and with it the locks
            self._file = -1
            self._beating.release()
        return marks


def running(folder: str, but: str = "") -> List[Spool]:
    """The spools of recorders that live; those of dead ones are removed.

    `but` is the caller's own, which must not be opened again: closing it would lose its lock.
    Raises OSError where the folder is not the user's alone.
    """
    try:
        within = private.open_folder(folder)
    except FileNotFoundError:
        return []
    try:
        return [
            spool
            for name in sorted(os.listdir(within))
            if os.path.join(folder, name) != but and (spool := _living(folder, within, name))
        ]
    finally:
        os.close(within)


def _living(folder: str, within: int, name: str) -> Optional[Spool]:
    """The spool of this name; None for what is none. That of a dead recorder is removed."""
    parts = name[: -len(SUFFIX)].rsplit(",", 2)
    if not name.endswith(SUFFIX) or len(parts) != 3:
        return None
    try:
        file = private.open_file(within, name)
    except OSError:
        return None
    try:
        is_here = is_of_this_machine(parts[2])
        age_s = time.time() - os.fstat(file).st_mtime
        if not lock(file, _ALIVE) or (not is_here and age_s < _YOUNG_S):
            job = "" if parts[0] == _NO_JOB else parts[0]
            return Spool(os.path.join(folder, name), job, parts[1])
        if is_here or age_s > _ABANDONED_S:
            os.unlink(name, dir_fd=within)
    except OSError:
        pass
    finally:
        os.close(file)
    return None


def send(spool: Spool, mark: Mark) -> bool:
    """Append a mark; False when the recorder has ended meanwhile."""
    line = json.dumps({"t": round(mark.time, 3), "text": mark.text}) + "\n"
    folder, name = os.path.split(spool.path)
    try:
        within = private.open_folder(folder)
        try:
            file = private.open_file(within, name, os.O_APPEND)
        finally:
            os.close(within)
    except OSError:
        return False
    try:
        lock(file, _WRITING, wait=True)  # NFS appends safely only under a lock
        if os.fstat(file).st_nlink == 0:
            return False
        data = line.encode("ascii")
        return os.write(file, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(file)


def choose(spools: List[Spool], job: str, node: str) -> List[Spool]:
    """The recorders that a mark made on `node` in `job` ("": outside) is for.

    The recorders of the job, on this node if there are any here; outside of a job all of this
    node, or, where there is none, those of the only job that is being recorded.
    """
    mine = [spool for spool in spools if not job or spool.job == safe(job)]
    here = [spool for spool in mine if spool.node == safe(node)]
    if here or job:
        return here or mine
    return mine if len({spool.job for spool in mine}) == 1 else []


def _parsed(line: bytes) -> Optional[Mark]:
    try:
        body = json.loads(line)
        time, text = float(body["t"]), mark_text(str(body["text"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return Mark(time, text) if text and 0 < time < 1e11 else None


def job_name(job: str) -> str:
    """A job in a file's name."""
    return safe(job or _NO_JOB)


def is_held(folder: str, name: str) -> bool:
    """Whether a living process of this machine holds the spool; never to be asked of one's own."""
    file = opened(folder, name)
    if file is None:
        return False
    try:
        return not lock(file, _ALIVE)
    finally:
        os.close(file)
