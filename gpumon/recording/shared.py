"""What processes of a user on several machines share: locks, small files, and whose these are."""

from __future__ import annotations

import fcntl
import os
from functools import cache
from typing import List, Optional

from gpumon import private


def safe(name: str) -> str:
    """A part of a file's name."""
    return "".join(char if char.isalnum() or char in "._+-" else "_" for char in name)[:80]


def sync(within: int) -> None:
    """Bring the names in a folder to disk, and close it."""
    try:
        os.fsync(within)
    except OSError:  # a network file system need not
        pass
    finally:
        os.close(within)


def lock(file: int, byte: int, *, wait: bool = False) -> bool:
    """Lock one byte of a file; False where another has it, or where locks do not work."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except OSError:
        return False
    return True


def is_of_this_machine(lease: str) -> bool:
    """Whether its process runs here, or ran before the machine was started again."""
    _, at, name = lease.partition("@")
    return not at or name == machine()


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


def changed_ns(folder: str, name: str) -> Optional[int]:
    """When the file last changed; None: it is gone. It is opened, which NFS answers afresh."""
    file = opened(folder, name)
    if file is None:
        return None
    try:
        return os.fstat(file).st_mtime_ns
    finally:
        os.close(file)


def read_own(folder: str, name: str, size: int) -> bytes:
    """The beginning of the file; nothing where it is gone."""
    file = opened(folder, name)
    if file is None:
        return b""
    try:
        return os.read(file, size)
    except OSError:
        return b""
    finally:
        os.close(file)


def replace_own(folder: str, name: str, data: bytes) -> None:
    """Write a small file in place of what has this name. Raises OSError."""
    within = private.open_folder(folder)
    part = f".{os.urandom(6).hex()}"
    try:
        file = private.new_file(within, part)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        os.rename(part, name, src_dir_fd=within, dst_dir_fd=within)
    finally:
        os.close(within)


def opened(folder: str, name: str) -> Optional[int]:
    try:
        within = private.open_folder(folder)
        try:
            return private.open_file(within, name)
        finally:
            os.close(within)
    except OSError:
        return None
