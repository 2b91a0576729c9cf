"""Marks: how `gpumon mark` reaches whoever records this job, on this node or another.

Every recorder keeps a spool, one file in a folder shared by the user's nodes, named after its
job and node, and holds a lock on it while it lives: a spool whose lock can be had is a dead one's.
A mark is one line of JSON appended to it. Locks are fcntl's, which NFS knows too.

The folder is the user's alone (0700). A spool in it is opened through the folder's descriptor,
never through a link, and only if it is a file of the same user.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
from typing import List, NamedTuple, Optional

from gpumon.model.sample import Event
from gpumon.model.text import clean

MAX_MARK = 200  # characters
_MAX_READ = 1 << 16
_SUFFIX = ".spool"
#: the recorder locks this byte, far behind the lines; writers lock the byte after it
_ALIVE, _WRITING = 1 << 40, (1 << 40) + 1
_NO_JOB = "node"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = _FILE | os.O_CREAT | os.O_EXCL


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
        """Raises OSError where the folder cannot be written, or is not the user's alone."""
        _make_private(folder)
        name = f"{_safe(job or _NO_JOB)},{_safe(node)},{os.getpid()}-{os.urandom(6).hex()}{_SUFFIX}"
        self.path = os.path.join(folder, name)
        within = _open_private(folder)
        try:
            self._file = os.open(name, _NEW, 0o600, dir_fd=within)
        except BaseException:
            os.close(within)
            raise
        _lock(self._file, _ALIVE)
        # which a busy disk may take a second for, and nobody waits for
        threading.Thread(target=_sync, args=(within,), daemon=True, name="marks").start()
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
    Raises OSError where the folder is not the user's alone.
    """
    try:
        within = _open_private(folder)
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
    parts = name[: -len(_SUFFIX)].rsplit(",", 2)
    if not name.endswith(_SUFFIX) or len(parts) != 3:
        return None
    try:
        file = _open_own(within, name)
    except OSError:
        return None
    try:
        if not _lock(file, _ALIVE):
            job = "" if parts[0] == _NO_JOB else parts[0]
            return Spool(os.path.join(folder, name), job, parts[1])
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
        within = _open_private(folder)
        try:
            file = _open_own(within, name, os.O_APPEND)
        finally:
            os.close(within)
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


def _make_private(folder: str) -> None:
    """The folder and those above it, each that is new for its owner alone (0700)."""
    if folder and not os.path.lexists(folder):
        _make_private(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # somebody was faster
            pass


def _open_private(folder: str) -> int:
    """A descriptor of a folder of the user's own in which nobody else can make anything.

    One that others can only read is made 0700. Raises OSError.
    """
    within = os.open(folder, _FOLDER)
    try:
        status = os.fstat(within)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", folder)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "other users can write to it", folder)
        if status.st_mode & 0o077:
            os.fchmod(within, 0o700)
    except BaseException:
        os.close(within)
        raise
    return within


def _open_own(within: int, name: str, flags: int = 0) -> int:
    """A file of the user's own, through no link of any kind. Raises OSError."""
    file = os.open(name, _FILE | flags, dir_fd=within)
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
        return file
    os.close(file)
    raise PermissionError(errno.EPERM, "not a regular file of your own", name)


def _sync(within: int) -> None:
    """Bring the names in a folder to disk, and close it."""
    try:
        os.fsync(within)
    except OSError:  # a network file system need not
        pass
    finally:
        os.close(within)


def _lock(file: int, byte: int, *, wait: bool = False) -> bool:
    """Lock one byte of a file; False where another has it, or where locks do not work."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except OSError:
        return False
    return True
