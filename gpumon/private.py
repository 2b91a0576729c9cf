"""Private folders and files, in which no other user can plant anything.

A folder is 0700 and the user's own; its files are opened through its descriptor, never through a
link, and only if they are regular files of the same user.
"""

from __future__ import annotations

import errno
import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def make_folder(folder: str) -> None:
    """The folder and those above it, each that is new for its owner alone (0700)."""
    if folder and not os.path.lexists(folder):
        make_folder(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # another process was faster
            pass


def open_folder(folder: str) -> int:
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


def new_file(within: int, name: str) -> int:
    """A new file (0600) in a folder, by its descriptor. Raises OSError."""
    return os.open(name, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=within)


def open_file(within: int, name: str, flags: int = 0) -> int:
    """A file of the user's own, through no link of any kind. Raises OSError."""
    file = os.open(name, _FILE | flags, 0o600, dir_fd=within)
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
        return file
    os.close(file)
    raise PermissionError(errno.EPERM, "not a regular file of your own", name)
