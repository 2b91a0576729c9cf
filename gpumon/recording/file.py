"""The file under a recording: new, private, appended to by one writer, never locked."""

from __future__ import annotations

import errno
import os

from gpumon.errors import GpumonError
from gpumon.files import create, reason, sync, sync_folder


def make_folders(path: str) -> list[str]:
    """The folder and those above it, each that is new for its owner alone (0700).

    Returns the folders that got a new one: their names are not on disk yet.
    """
    if not path or os.path.isdir(path):
        return []
    parent = os.path.dirname(path)
    changed = make_folders(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # another process was faster
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    return [*changed, parent or "."]


class CannotRecordError(GpumonError):
    """The file cannot be made."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"cannot record to {path}: {why}")
        self.path, self.why = path, why


class File:
    """Appends; after the first error it is closed, and `failed` holds the reason.

    Or it writes to a device, a FIFO or an open file of this process (/dev/stdout).
    """

    def __init__(self, path: str, *, is_synced: bool = True) -> None:
        """`is_synced`: all that is appended is on disk at once, by the call that writes it: on a
        network file system that is one question to its server.
        """
        self.path = path
        self._is_synced = is_synced
        self.failed = ""
        self.size_bytes = 0
        folder = os.path.dirname(path)
        try:
            self._unsynced = [*make_folders(folder), folder or "."]
            self._fd, self._is_new = create(path, os.O_DSYNC if is_synced else 0)
        except FileExistsError:
            raise GpumonError(f"{path} exists; a recording never overwrites a file") from None
        except OSError as error:
            raise CannotRecordError(path, reason(error)) from None

    def append(self, data: bytes, *, is_to_disk: bool = True) -> None:
        """Write, and bring to disk; on an error stop for good.

        Without `is_to_disk` only a file that is synced, or new, is brought to disk; else the kernel
        does so within 35 s, as long as nobody changed its settings.
        """
        if self.failed:
            return
        self.size_bytes += len(data)
        try:
            write(self._fd, data)
            if not (self._is_synced and self._is_new) and (
                is_to_disk or self._is_synced or self._unsynced
            ):
                sync(self._fd)  # a network file system says here that the quota is used up
        except OSError as error:
            self._stop(reason(error))
            return
        while self._unsynced:  # here, in the thread that may wait for a disk
            sync_folder(self._unsynced.pop())

    def close(self) -> None:
        """Close; a file that nothing was ever written to is removed."""
        if self.failed:
            return
        try:
            if not self.size_bytes and self._is_new:
                os.unlink(self.path)
            os.close(self._fd)
        except OSError as error:
            self.failed = str(error.strerror)

    def _stop(self, why: str) -> None:
        self.failed = why
        try:
            os.close(self._fd)
        except OSError:  # it cannot get worse
            pass


def write(fd: int, data: bytes) -> None:
    """All of `data`."""
    while data:
        data = data[os.write(fd, data) :]
