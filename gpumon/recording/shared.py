"""What processes of a user on several machines share: locks, and whose these are."""

from __future__ import annotations

import fcntl
import os
from functools import cache
from typing import List

from gpumon import private


def safe(name: str) -> str:
    """A part of a file's name."""
    return "".join(char if char.isalnum() or char in "._+-" else "_" for char in name)[:80]


def lock(file: int, byte: int) -> None:
    """Wait for the lock of one byte of a file, until it is closed or `unlock`; where locks do not
    work, none is had.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
    except OSError:
        pass


def unlock(file: int, byte: int) -> None:
    try:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
    except OSError:
        pass


def hold(file: int) -> None:
    """Hold a file of this machine until it is closed: its process lives. Raises OSError."""
    fcntl.flock(file, fcntl.LOCK_EX)


def is_held(file: int) -> bool:
    """Whether a living process holds a file of this machine."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


@cache
def machine() -> str:
    """Identifies this machine among those that share its folders."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return safe(os.uname().nodename)


def names(folder: str) -> List[str]:
    """Of the folder's files. Raises OSError where it is not the user's alone."""
    within = private.open_folder(folder)
    try:
        return sorted(os.listdir(within))
    finally:
        os.close(within)
