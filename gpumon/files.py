"""Writes the file that a user named: whole or not at all, in the place of what is there.

A regular file is replaced by `rename` once its successor is on disk, and keeps its mode, owner,
group and ACL; of several hard links only the name that was given gets the new content. Where a
symbolic link leads is written, and the link stays. What is no regular file (a device, a FIFO,
`/dev/stdout`) is written to. Names are looked up through descriptors of their folders, so nothing
that another user swaps in between is followed or opened.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon import ending
from gpumon.errors import GpumonError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: how long a FIFO waits for its reader
READER_S = 10.0
_POLL_S = 0.05
_MAX_LINKS = 40  # as the kernel's own limit
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_THERE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: reported by files that cannot sync (a pipe, some network file systems)
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
_WHY = {
    errno.ENOSPC: "no space left on its file system",
    errno.EDQUOT: "your disk quota is used up",
}
_WHAT_TO_DO = {
    errno.ENOSPC: "free some space there or name a file elsewhere",
    errno.EDQUOT: "remove some files or name a file elsewhere",
    errno.ENXIO: "start the program that reads it first",
}


class NotWritten(GpumonError):
    """A file that could not be written: its name, why, and what to do."""

    def __init__(self, path: str, error: OSError) -> None:
        what_to_do = _WHAT_TO_DO.get(error.errno or 0, "name another file")
        super().__init__(f"cannot write {path}: {reason(error)}; {what_to_do}")


def reason(error: OSError) -> str:
    """Why writing failed, in words."""
    return _WHY.get(error.errno or 0) or error.strerror or str(error)


def write_file(path: str, body: str, *, regular: bool = False) -> None:
    """Write a text. Raises NotWritten, and BrokenPipeError where the reader of a FIFO ended.

    `regular`: refuse other than regular files, if the user did not choose the name.
    """
    output = Output(path, regular=regular)
    try:
        output.stream.write(body.encode("utf-8", "replace"))
        output.close()
        output.keep()
    finally:
        output.discard()


@contextmanager
def new_folder(path: str) -> Iterator[int]:
    """A folder that is new or empty, by its descriptor. Raises NotWritten, UsageError."""
    try:
        with suppress(FileExistsError):
            os.mkdir(path)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotWritten(path, error) from None
    try:
        if os.listdir(folder):
            raise UsageError(f"{path} is not empty; name another folder with -o")
        yield folder
    finally:
        os.close(folder)


def create(path: str, flags: int = 0) -> tuple[int, bool]:
    """A new file that only its owner may read (0600), and True; or a descriptor of what is there
    and no regular file, and False. Raises FileExistsError for a file or a link that leads to none.

    `flags`: further ones of open(2) for a new file.
    """
    try:
        return os.open(path, _NEW | os.O_APPEND | flags, 0o600), True
    except FileExistsError:
        if not is_special(path):
            raise
    place = _find(path)
    try:
        return os.dup(place.own) if place.own is not None else _open_there(place, READER_S), False
    finally:
        os.close(place.folder)


def is_special(path: str) -> bool:
    """Whether there is something that is neither a file nor a folder: a device, a FIFO."""
    if is_own_descriptor(path):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def is_own_descriptor(path: str) -> bool:
    """Whether it stands for an open file of this process: /dev/stdout, /dev/fd/N."""
    try:
        place = _find(path)
    except OSError:
        return False
    os.close(place.folder)
    return place.own is not None


class Output:
    """A file that is being written; `stream` takes its bytes, `close` and `keep` finish it.

    All raise NotWritten, and BrokenPipeError where the reader of a FIFO ended. Until `keep`, a
    regular file is what it was before, and `discard` leaves it so.
    """

    _place: _Place | None = None
    _part = ""  # the name of the successor; also a signal that ends the program removes it

    def __init__(self, path: str, *, folder: int | None = None, regular: bool = False) -> None:
        """`folder`: the descriptor of the folder that `path` starts from."""
        self._path = path
        self._until_kept = ExitStack()
        try:
            self._file = _File(self._opened(path, folder, regular), path)
        except OSError as error:
            self._release()
            raise NotWritten(path, error) from None
        except BaseException:
            self._release()
            raise
        self.stream = io.BufferedWriter(self._file)

    def close(self) -> None:
        """Bring everything to disk."""
        self.stream.flush()
        try:
            if self._part:
                sync(self._file.fileno())
            self._file.close()  # where a network file system may report that the quota is used up
        except OSError as error:
            raise NotWritten(self._path, error) from None

    def keep(self) -> None:
        """Let the file appear under its name."""
        if self._part and self._place is not None:
            folder = self._place.folder
            try:
                os.rename(self._part, self._place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                raise NotWritten(self._path, error) from None
            self._part = ""
            sync_folder(".", folder)
        self._release()

    def discard(self) -> None:
        """Forget what was not kept."""
        with suppress(OSError):  # without what is still buffered: a full disk refuses it again
            self._file.close()
        self._release()

    def __del__(self) -> None:
        """An interrupt came before anybody had it."""
        self._release()

    def _opened(self, path: str, folder: int | None, regular: bool) -> int:
        self._place = place = _find(path, folder)
        if place.own is not None and not regular:
            return os.dup(place.own)
        try:
            there = _open_there(place, 0.0 if regular else READER_S)
        except FileNotFoundError:
            if place.linked_by:
                raise _planted() from None
            return self._successor(0o666)
        is_regular = stat.S_ISREG(os.fstat(there).st_mode)
        if not regular and not is_regular:
            return there
        try:
            if not is_regular:
                raise OSError(errno.EEXIST, "it is not a regular file")
            return self._successor(0o600, there)
        finally:
            os.close(there)

    def _successor(self, mode: int, there: int | None = None) -> int:
        """A new file beside the name; alike what is there, if anything is."""
        assert self._place is not None
        self._part = f".gpumon-{os.urandom(8).hex()}.part"  # an interrupt may come at any time
        weakly = weakref.WeakMethod(self._unlink)  # else it would outlive an interrupt
        undo = lambda: unlink() if (unlink := weakly()) is not None else None  # noqa: E731
        self._until_kept.enter_context(ending.undone(undo))
        try:
            successor = os.open(self._part, _NEW, mode, dir_fd=self._place.folder)
        except PermissionError as error:
            raise PermissionError(error.errno, "you may not create files in its folder") from None
        try:
            if there is not None:
                _make_alike(successor, there)
        except BaseException:
            os.close(successor)
            raise
        return successor

    def _release(self) -> None:
        """Remove what was not kept."""
        if self._place is None:
            return
        self._unlink()
        self._until_kept.close()
        folder, self._place = self._place.folder, None
        os.close(folder)

    def _unlink(self) -> None:
        if self._part and self._place is not None:
            with suppress(OSError):
                os.unlink(self._part, dir_fd=self._place.folder)


class _File(io.FileIO):
    """Raises NotWritten."""

    def __init__(self, file: int, path: str) -> None:
        super().__init__(file, "w")
        self._path = path

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # its reader has what it wanted
            raise
        except OSError as error:
            raise NotWritten(self._path, error) from None


class _Place(NamedTuple):
    """Where a name leads, its symbolic links followed."""

    folder: int  # a descriptor
    name: str  # in that folder, and no link when it was looked at
    linked_by: frozenset[int]  # other users whose links led here
    own: int | None = None  # the descriptor of this process that it is (/dev/stdout, /dev/fd/N)


def _find(path: str, start: int | None = None) -> _Place:
    """Follow the links at the end of a path. Raises OSError, also for links that were planted."""
    linked_by: set[int] = set()
    folder = os.open(os.path.dirname(path) or ".", _FOLDER, dir_fd=start)
    try:
        for _ in range(_MAX_LINKS):
            name = os.path.basename(path)
            if name in ("", ".", ".."):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if name.isdecimal() and os.path.samestat(os.fstat(folder), os.stat("/proc/self/fd")):
                return _Place(folder, name, frozenset(), int(name))
            link = _link(folder, name)
            if link is None:
                return _Place(folder, name, frozenset(linked_by))
            path, owner = link
            if owner not in (0, os.geteuid()):
                linked_by.add(owner)
            following = os.open(os.path.dirname(path) or ".", _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = following
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except BaseException:
        os.close(folder)
        raise


def _link(folder: int, name: str) -> tuple[str, int] | None:
    """The target and the owner of a link; None for anything else. Raises OSError."""
    try:
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(entry)
        if not stat.S_ISLNK(status.st_mode):
            return None
        _refuse_planted(folder, status)
        return os.readlink("", dir_fd=entry), status.st_uid
    finally:
        os.close(entry)


def _planted() -> PermissionError:
    why = "it belongs to another user, or another user's link leads to it"
    return PermissionError(errno.EPERM, why)


def _refuse_planted(folder: int, status: os.stat_result) -> None:
    """Raise for what a stranger made in a folder where everyone can (/tmp): a link leads to
    somebody's file, a file stays theirs. As the kernel's fs.protected_symlinks, _regular, _fifos.
    """
    there = os.fstat(folder)
    if there.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), there.st_uid):
        raise _planted()


def _open_there(place: _Place, patience_s: float) -> int:
    """For writing; a FIFO, once it has a reader. Raises OSError, also for what was planted."""
    until = time.monotonic() + patience_s
    while True:
        try:
            there = os.open(place.name, _THERE, dir_fd=place.folder)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
            if not stat.S_ISFIFO(mode):
                raise OSError(errno.ENODEV, error.strerror) from None
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, "no program reads from this FIFO") from None
        time.sleep(_POLL_S)
    try:
        status = os.fstat(there)
        _refuse_planted(place.folder, status)
        if place.linked_by - {status.st_uid}:
            raise _planted()
        os.set_blocking(there, True)
    except BaseException:
        os.close(there)
        raise
    return there


def _make_alike(successor: int, there: int) -> None:
    """Give the successor the owner, mode, ACL and attributes of what is there. Raises OSError."""
    status, new = os.fstat(there), os.fstat(successor)
    if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(successor, status.st_uid, status.st_gid)
        except PermissionError:
            why = "only its owner, or a member of its group, can replace it"
            raise PermissionError(errno.EPERM, why) from None
    mode = status.st_mode & 0o777  # writing drops set-user-ID and set-group-ID anyway
    if stat.S_IMODE(new.st_mode) != mode:
        os.fchmod(successor, mode)
    before, now = _attributes(there), _attributes(successor)
    for name in before.keys() | now.keys():
        if before.get(name) == now.get(name):
            continue
        try:
            if name in before:
                os.setxattr(successor, name, before[name])
            else:
                os.removexattr(successor, name)
        except OSError:
            if name.startswith("system."):  # an ACL: without it others could read the file
                raise


def _attributes(file: int) -> dict[str, bytes]:
    found = {}
    with suppress(OSError):  # of a file system that has none
        for name in os.listxattr(file):
            with suppress(OSError):
                found[name] = os.getxattr(file, name)
    return found


def sync(file: int) -> None:
    """Bring a file to disk. Raises OSError."""
    try:
        os.fdatasync(file)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


def sync_folder(path: str, start: int | None = None) -> None:
    """Bring the names in a folder to disk, where its file system and its mode allow that."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=start)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
