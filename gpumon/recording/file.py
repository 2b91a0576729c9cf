"""The file under a recording: new, private, appended to by one writer, never locked."""

from __future__ import annotations

import errno
import os

from gpumon.errors import GpumonError

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
#: what does not know how to sync (a pipe, a special file) says so with these
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
_WHY = {
    errno.ENOSPC: "no space left on its file system",
    errno.EDQUOT: "your disk quota is used up",
}


def make_folders(path: str) -> None:
    """The folder and those above it, each that is new for its owner alone (0700)."""
    if path and not os.path.isdir(path):
        make_folders(os.path.dirname(path))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # somebody was faster
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


class File:
    """Appends; after the first error it is closed, and `failed` says what happened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.failed = ""
        self.size_bytes = 0
        try:
            make_folders(os.path.dirname(path))
            self._fd = os.open(path, _FLAGS, 0o600)
        except FileExistsError:
            raise GpumonError(f"{path} exists; a recording never writes over a file") from None
        except OSError as error:
            why = _WHY.get(error.errno or 0) or error.strerror
            raise GpumonError(f"cannot record to {path}: {why}") from None

    def append(self, data: bytes) -> None:
        """Write and bring to disk; on an error stop for good."""
        if self.failed:
            return
        self.size_bytes += len(data)
        try:
            write(self._fd, data)
            _sync(self._fd)  # a network file system says here that the quota is used up
        except OSError as error:
            why = _WHY.get(error.errno or 0) or error.strerror
            self._stop(f"{self.path}: recording stopped: {why}")

    def close(self) -> None:
        """Close; a file that nothing was ever written to is removed."""
        if self.failed:
            return
        try:
            if not self.size_bytes:
                os.unlink(self.path)
            os.close(self._fd)
        except OSError as error:
            self.failed = f"{self.path}: {error.strerror}"

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


def _sync(fd: int) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
