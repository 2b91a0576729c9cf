"""The file that gpumon's probe writes, and the folder that it may write it into.

Runs where `gpumon_probe.py` runs, under the same rules, and on the probe's thread alone: even a
look at a file can last for ever.
"""

import os
from time import time

_MOST_FILES = 4096
_MOST_LINKS = 40
_OLD_S = 60.0  # who watches has read the last words of an ended process by then
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: of memory and of the node's own disks; a process that waits for a server cannot even be killed
_LOCAL = (
    "tmpfs", "ramfs", "devtmpfs", "overlay",
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs",
)  # fmt: skip


class File:
    """This process's file: its number and its start, in clock ticks since boot."""

    def __init__(self, folder: str) -> None:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        self._folder = folder
        self._name = "%d-%d.json" % (os.getpid(), ticks)
        self._is_new = True

    def write(self, text: bytes) -> None:
        """In the place of what it said before. Raises OSError; then that stands."""
        within = _open(self._folder)
        try:
            if self._is_new:
                _sweep(within)
                self._is_new = False
            self._write(within, text)
        finally:
            os.close(within)

    def _write(self, within: int, text: bytes) -> None:
        name = self._name + ".new"
        try:
            file = os.open(name, _NEW, 0o600, dir_fd=within)
        except FileExistsError:  # a process with its number was killed, or a folder of the user's
            os.unlink(name, dir_fd=within)
            file = os.open(name, _NEW, 0o600, dir_fd=within)
        try:
            try:
                if os.write(file, text) != len(text):
                    raise OSError
            finally:
                os.close(file)
            os.rename(name, self._name, src_dir_fd=within, dst_dir_fd=within)
        except OSError:
            os.unlink(name, dir_fd=within)
            raise


def _open(folder: str) -> int:
    """A descriptor of the folder, which must be ours alone at this moment. Raises OSError."""
    within = os.open(folder, _FOLDER)
    there = os.fstat(within)
    if there.st_uid == os.geteuid() and not there.st_mode & 0o077:
        return within
    os.close(within)
    raise PermissionError


def may_be_written(folder: str) -> bool:
    """Whether it is there, on this node, and ours alone."""
    if not folder.startswith("/") or not _is_local(folder):
        return False
    os.close(_open(folder))
    return True


def _is_local(path: str) -> bool:
    """Whether no part of the path, nor of where its links lead, is on a server.

    Each is looked up only if the one above it is on this node (gpumon's `collect/proc/local.py`).
    """
    with open("/proc/self/mountinfo", "rb") as file:
        mounts = _mounts(file.read().decode("utf-8", "surrogateescape"))
    left, here, links = path.split("/"), "/", 0
    while left:
        part = left.pop(0)
        if part in ("", "."):
            continue
        there = os.path.normpath(os.path.join(here, part))
        if _kind(mounts, there) not in _LOCAL:
            return False
        if not os.path.islink(there):
            here = there
            continue
        links += 1
        target = os.readlink(there)
        left = target.split("/") + left
        here = "/" if target.startswith("/") else here
        if links > _MOST_LINKS:
            return False
    return True


def _mounts(text: str) -> "dict[str, str]":
    """Where each file system is, and its kind; of several in one place the last."""
    mounts = {}
    for line in text.splitlines():
        words = line.split(" ")
        place = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        mounts[place] = words[words.index("-", 6) + 1]
    return mounts


def _kind(mounts: "dict[str, str]", path: str) -> str:
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return mounts.get(path, "")


def _sweep(within: int) -> None:
    """Remove what processes of this node left that have ended, as those that were killed do."""
    for name in os.listdir(within)[:_MOST_FILES]:
        pid = name.partition("-")[0]
        try:
            is_old = time() - os.lstat(name, dir_fd=within).st_mtime > _OLD_S
            if is_old and pid.isdigit() and ".json" in name and not os.path.exists("/proc/" + pid):
                os.unlink(name, dir_fd=within)
        except OSError:  # another one was faster
            pass
