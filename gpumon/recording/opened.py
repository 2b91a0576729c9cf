"""Files that are read a little at a time: any number of them, whatever the limit of descriptors.

A job on 1,100 nodes has 1,100 recordings, which a replay reads side by side, and a shell's limit
is mostly 1,024 open files. So the file that was not read for longest is closed when there are too
many, and opened again when it is read next.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from threading import Lock
from typing import Optional
from weakref import WeakKeyDictionary

#: of the process's limit; the rest is for everything else that a program opens
_SHARE = 0.5
_MOST = 4096
#: no descriptor is free, in this process or on the whole machine
_FULL = (errno.EMFILE, errno.ENFILE)


class Opened:
    """A file to read from, by any thread. Closed when it is collected, too."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path = path
        self._lock = Lock()
        self._fd: Optional[_Descriptor] = None
        with self._lock:
            self.status = os.fstat(self._descriptor())
        if stat.S_ISDIR(self.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def read(self, size: int, at: int) -> bytes:
        """At most `size` bytes at `at`. Raises OSError, also where another file is there now."""
        with self._lock:
            return os.pread(self._descriptor(), size, at)

    def close(self) -> None:
        """It may be read again."""
        with self._lock:
            self._release()

    def _descriptor(self) -> int:
        fd = self._fd
        if fd is None:
            _make_room()
            fd = self._fd = _Descriptor(_open(self._path))
            self._check(os.fstat(fd.number))
        with _table:
            _in_use.pop(self, None)
            _in_use[self] = None
        return fd.number

    def _check(self, status: os.stat_result) -> None:
        before = getattr(self, "status", status)
        if (before.st_dev, before.st_ino) != (status.st_dev, status.st_ino):
            self._release()
            raise OSError(errno.ESTALE, "it was replaced by another file")

    def _release(self) -> None:
        with _table:
            _in_use.pop(self, None)
        self._fd = None

    def give_up(self) -> bool:
        """Close it if it is not being read."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            was_open = self._fd is not None
            self._fd = None
            return was_open
        finally:
            self._lock.release()


class _Descriptor:
    """Closed when nobody holds it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


_table = Lock()
#: those with a descriptor, the one that was read last at the end
_in_use: WeakKeyDictionary[Opened, None] = WeakKeyDictionary()


def _open(path: str) -> int:
    while True:
        try:  # a pipe that nobody writes to holds nobody up
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in _FULL or not _close_one():
                raise


def _make_room() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if soft == resource.RLIM_INFINITY else min(int(soft * _SHARE), _MOST)
    while len(_in_use) > most and _close_one():
        pass


def _close_one() -> bool:
    """The one that was not read for longest; False where all are being read."""
    with _table:
        for each in list(_in_use):
            if each.give_up():
                del _in_use[each]
                return True
    return False
