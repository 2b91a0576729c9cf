"""Marks: how `gpumon mark` reaches whoever records this job, on this node or another.

Every recorder keeps a spool, one file in a folder shared by the user's nodes, named after its
job and node, and holds a lock on it while it lives: a spool whose lock can be had is a dead one's.
A mark is one line of JSON appended to it. Locks are fcntl's, which NFS knows too.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
from typing import List, NamedTuple, Optional

from gpumon.model.sample import Event
from gpumon.model.text import clean

MAX_MARK = 200  # characters
_MAX_READ = 1 << 16
_SUFFIX = ".spool"
#: the recorder locks this byte, far behind the lines; writers lock the byte after it
_ALIVE, _WRITING = 1 << 40, (1 << 40) + 1
_NO_JOB = "node"


class Mark(NamedTuple):
    """A line on the time axis."""

    time: float  # epoch s
    text: str


class Spool(NamedTuple):
    """Of a recorder that runs."""

    path: str
    job: str  # "" outside of one
    node: str

    def is_of(self, job: str, node: str) -> bool:
        """Whether it belongs to a recorder of this job on this node."""
        return (self.job, self.node) == (_safe(job), _safe(node))


def mark_text(text: str) -> str:
    """One clean line of at most 200 characters; "" where nothing is left."""
    return clean(" ".join(text.split()), MAX_MARK).strip()


def mark_event(mark: Mark) -> Event:
    """A mark as it travels in a sample."""
    return Event(mark.time, "mark", text=mark.text)


class MarkSpool:
    """A recorder's end: holds the spool from its start to `close`."""

    def __init__(self, folder: str, job: str, node: str) -> None:
        """Raises OSError where the folder cannot be written."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = f"{_safe(job or _NO_JOB)},{_safe(node)},{os.getpid()}{_SUFFIX}"
        self.path = os.path.join(folder, name)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _lock(self._file, _ALIVE)
        self._at = 0

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
        _lock(self._file, _WRITING, wait=True)
        try:
            os.unlink(self.path)
        except OSError:
            pass
        marks = self.take()
        os.close(self._file)  # and with it the locks
        self._file = -1
        return marks


def running(folder: str, but: str = "") -> List[Spool]:
    """The spools of recorders that live; those of dead ones are removed.

    `but` is the caller's own, which must not be opened again: closing it would lose its lock.
    """
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"*{_SUFFIX}"))):
        parts = os.path.basename(path)[: -len(_SUFFIX)].rsplit(",", 2)
        if len(parts) != 3 or path == but:
            continue
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _lock(file, _ALIVE):
                os.unlink(path)
            else:
                found.append(Spool(path, "" if parts[0] == _NO_JOB else parts[0], parts[1]))
        except OSError:
            pass
        finally:
            os.close(file)
    return found


def send(spool: Spool, mark: Mark) -> bool:
    """Append a mark; False when the recorder has ended meanwhile."""
    line = json.dumps({"t": round(mark.time, 3), "text": mark.text}) + "\n"
    try:
        file = os.open(spool.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        _lock(file, _WRITING, wait=True)  # NFS appends safely only under a lock
        if os.fstat(file).st_nlink == 0:
            return False
        data = line.encode("ascii")
        return os.write(file, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(file)


def choose(spools: List[Spool], job: str, node: str) -> List[Spool]:
    """Whom a mark made on `node` in `job` ("": outside) is for.

    The recorders of the job, on this node if there are any here; outside of a job all of this
    node, or, where there is none, those of the only job that is being recorded.
    """
    mine = [spool for spool in spools if not job or spool.job == _safe(job)]
    here = [spool for spool in mine if spool.node == _safe(node)]
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


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._+-" else "_" for char in name)[:80]


def _lock(file: int, byte: int, *, wait: bool = False) -> bool:
    """Lock one byte of a file; False where another has it, or where locks do not work."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except OSError:
        return False
    return True
