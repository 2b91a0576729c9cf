"""Private folders and files, in which no other user can plant anything.

A folder is 0700 and the user's own; its files are opened through its descriptor, never through a
link, and only if they are regular files of the same user.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import List, Mapping, Optional

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: file systems that no two machines share
_LOCAL = frozenset(("tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay"))
#: where every user may make a folder
#: the second is memory, which would be counted as a job's
_SHARED_BY_ALL = ("/tmp", "/dev/shm")


def local_folder(environ: Mapping[str, str] = os.environ) -> Optional[str]:
    """The user's folder for what only this machine needs; None where there can be none.

    It may be wiped while it is in use: some systems do so when the user's last session ends.
    """
    run, own = environ.get("XDG_RUNTIME_DIR", ""), f"gpumon-{os.geteuid()}"
    for parent, name in ((run, "gpumon"), *((parent, own) for parent in _SHARED_BY_ALL)):
        if os.path.isabs(parent) and _is_usable(parent, os.path.join(parent, name)):
            return os.path.join(parent, name)
    return None


def _is_usable(parent: str, folder: str) -> bool:
    """Whether it is private and of this machine; it is made if there is none."""
    with suppress(OSError):
        above = os.stat(parent)
        is_open = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
        if not is_open and above.st_uid in (0, os.geteuid()) and _file_system(above) in _LOCAL:
            make_folder(folder)
            os.close(open_folder(folder))
            return True
    return False


def _file_system(status: os.stat_result) -> str:
    """Its type, as mounted here; "" where that is not known."""
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        for fields in map(str.split, lines):
            if fields[2] == device:
                return fields[fields.index("-") + 1]
    return ""


def make_folder(folder: str) -> List[str]:
    """The folder and those above it, each that is new for its owner alone (0700).

    Returns the folders that got a new one: their names are not on disk yet.
    """
    if not folder or os.path.lexists(folder):
        return []
    parent = os.path.dirname(folder)
    changed = make_folder(parent)
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(folder, 0o700)
    return [*changed, parent or "."]


def open_folder(folder: str, *, is_ours: bool = True) -> int:
    """A descriptor of a folder of the user's own in which nobody else can make anything.

    One that others can only read is made 0700, but only if it `is_ours`, by its name: a name that
    came from elsewhere may be the user's home, or root's `/`. Raises OSError.
    """
    within = os.open(folder, _FOLDER)
    try:
        status = os.fstat(within)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", folder)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "other users can write to it", folder)
        if status.st_mode & 0o077 and not is_ours:
            raise PermissionError(errno.EPERM, "other users can read it", folder)
        if status.st_mode & 0o077:
            os.fchmod(within, 0o700)
    except BaseException:
        os.close(within)
        raise
    return within


def new_file(within: int, name: str) -> int:
    """A new file (0600) in a folder, by its descriptor. Raises OSError."""
    return os.open(name, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=within)


def open_file(within: int, name: str, flags: int = 0) -> int:
    """A file of the user's own, through no link of any kind. Raises OSError."""
    file = os.open(name, _FILE | flags, 0o600, dir_fd=within)
    if is_own(os.fstat(file)):
        return file
    os.close(file)
    raise PermissionError(errno.EPERM, "not a regular file of your own", name)


def is_own(status: os.stat_result) -> bool:
    """Whether it is a regular file of the user's own, and no link to it is elsewhere."""
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
