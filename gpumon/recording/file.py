"""Files of recordings: new ones, appended to by one writer, and any number that are read.

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
from weakref import WeakKeyDictionary

from gpumon.errors import GpumonError
from gpumon.files import create, reason, sync, sync_folder
from gpumon.private import make_folder

#: of the process's limit; the rest is for everything else that a program opens
_SHARE = 0.5
_MOST = 4096
#: no descriptor is free, in this process or on the whole machine
_FULL = (errno.EMFILE, errno.ENFILE)


class CannotRecordError(GpumonError):
    """The file cannot be made."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"cannot record to {path}: {why}")
        self.path, self.why = path, why


class File:
    """New, private, never locked; appended to until the first error. Or it writes to a device, a
    FIFO or an open file of this process (/dev/stdout).
    """

    def __init__(self, path: str, *, is_synced: bool = True) -> None:
        """`is_synced`: all that is appended is on disk at once, by the call that writes it: on a
        network file system that is one question to its server.
        """
        self.path = path
        self._is_synced = is_synced
        self.size_bytes = 0
        folder = os.path.dirname(path)
        try:
            self._unsynced = [*make_folder(folder), folder or "."]
            self._fd, self._is_new = create(path, os.O_DSYNC if is_synced else 0)
        except FileExistsError:
            raise GpumonError(f"{path} exists; a recording never overwrites a file") from None
        except OSError as error:
            raise CannotRecordError(path, reason(error)) from None

    def append(self, data: bytes, *, is_to_disk: bool = True) -> None:
        """Write, and bring to disk. Raises OSError.

        Without `is_to_disk` only a file that is synced, or new, is brought to disk; else the kernel
        does so within 35 s, as long as nobody changed its settings.
        """
        self.size_bytes += len(data)
        while data:
            data = data[os.write(self._fd, data) :]
        if not (self._is_synced and self._is_new) and (
            is_to_disk or self._is_synced or self._unsynced
        ):
            sync(self._fd)  # a network file system says here that the quota is used up
        while self._unsynced:  # here, in the thread that may wait for a disk
            sync_folder(self._unsynced.pop())

    def close(self) -> None:
        """A file that nothing was ever written to is removed. Raises OSError."""
        if not self.size_bytes and self._is_new:
            os.unlink(self.path)
        os.close(self._fd)


# -- reading


class Opened:
    """A file to read from, by any thread. Closed when it is collected, too."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path = path
        self.status = os.fstat(self._descriptor().number)
        if stat.S_ISDIR(self.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def read(self, size: int, at: int) -> bytes:
        """At most `size` bytes at `at`. Raises OSError, also where another file is there now."""
        found = self._descriptor()  # stays open until this is over
        return os.pread(found.number, size, at)

    def close(self) -> None:
        """It may be read again."""
        with _table:
            _in_use.pop(self, None)

    def _descriptor(self) -> _Descriptor:
        with _table:
            found = _in_use.pop(self, None)
        if found is None:
            found = _Descriptor(_open(self._path))
            status = os.fstat(found.number)
            before = getattr(self, "status", status)
            if (before.st_dev, before.st_ino) != (status.st_dev, status.st_ino):
                raise OSError(errno.ESTALE, "it was replaced by another file")
        with _table:
            _in_use[self] = found
        return found


class _Descriptor:
    """Closed when nobody holds it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


_table = Lock()
#: those with a descriptor, the one that was read last at the end
_in_use: WeakKeyDictionary[Opened, _Descriptor] = WeakKeyDictionary()


def _open(path: str) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if soft == resource.RLIM_INFINITY else min(int(soft * _SHARE), _MOST)
    while len(_in_use) > most and _close_one():
        pass
    while True:
        try:  # a pipe that nobody writes to holds nobody up
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in _FULL or not _close_one():
                raise


def _close_one() -> bool:
    """The one that was not read for longest; False where none is open."""
    with _table:
        oldest = next(iter(list(_in_use)), None)
        closed = None if oldest is None else _in_use.pop(oldest)
    return closed is not None
