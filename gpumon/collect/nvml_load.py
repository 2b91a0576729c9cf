"""Loads the driver's library, also one that replaced the file that this process has mapped.

The loader gives the mapped file again for the library's name, so a file that was replaced is
loaded by another spelling of its path. Old copies stay mapped, since threads may hang in them:
nothing calls them any more.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Dict, Iterator, Tuple

SONAME = "libnvidia-ml.so.1"

#: (device, inode) -> the copies that this process has loaded
_copies: Dict[Tuple[int, int], ctypes.CDLL] = {}


def libraries() -> Iterator[ctypes.CDLL]:
    """The library, then the one that has replaced it on disk, if any. Raises OSError."""
    first = ctypes.CDLL(SONAME)
    yield first
    folder = _folder()
    try:
        status = os.stat(f"{folder}{SONAME}")
    except OSError:
        return
    place = (status.st_dev, status.st_ino)
    if place not in _copies:
        _copies[place] = ctypes.CDLL(f"{folder}{'./' * (len(_copies) + 1)}{SONAME}")
    if _copies[place]._handle != first._handle:
        yield _copies[place]


def _folder() -> str:
    """Where the mapped library lies, with a slash at its end; "" if unknown."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            found = re.search(rf" (/.*/){re.escape(SONAME[:-2])}[^/]*$", file.read(), re.M)
    except OSError:
        return ""
    return found.group(1) if found else ""
