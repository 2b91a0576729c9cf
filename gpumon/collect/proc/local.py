"""Whether a path is on this node, without a look at what is not.

A look at a file whose server is gone lasts for ever, and nothing can end who looks.
"""

from __future__ import annotations

import os

#: of memory and of the node's own disks
_KINDS = frozenset((
    "tmpfs", "ramfs", "devtmpfs", "overlay",
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs",
))  # fmt: skip
_MOST_LINKS = 40


def is_local(path: str, mountinfo: str, root: str = "") -> bool:
    """No part of the path, nor of where its links lead, is on a server.

    `mountinfo`: of a process (proc(5)), whose root is `root`. Each part is looked up only if the
    one above it is on this node.
    """
    kinds = _kinds(mountinfo)
    left, here, links = path.split("/"), "/", 0
    if not path.startswith("/"):
        return False
    while left:
        part = left.pop(0)
        if part in ("", "."):
            continue
        there = os.path.normpath(os.path.join(here, part))
        if _kind(kinds, there) not in _KINDS:
            return False
        try:
            target = os.readlink(root + there)
        except OSError:  # no link
            here = there
            continue
        links += 1
        left = target.split("/") + left
        here = "/" if target.startswith("/") else here
        if links > _MOST_LINKS:
            return False
    return True


def _kinds(mountinfo: str) -> dict[str, str]:
    """Where each file system is, and its kind; of several in one place the last."""
    kinds = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) > 4:
            place = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            kinds[place] = after.partition(" ")[0]
    return kinds


def _kind(kinds: dict[str, str], path: str) -> str:
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "")
