"""The recordings in folders: by their names alone, unopened."""

from __future__ import annotations

import os
import stat
from math import inf
from typing import Iterator, List, Optional

from gpumon.errors import UsageError
from gpumon.files import reason

SUFFIX = ".gpumon"


def recordings_in(
    folder: str, most: float = inf, unread: Optional[List[str]] = None
) -> Iterator[str]:
    """Why a folder or file in it may not be looked at is appended to `unread`. Raises UsageError
    where more than so many entries would have to be looked at.
    """

    def cannot_read(error: OSError) -> None:
        if unread is not None and not isinstance(error, FileNotFoundError):
            unread.append(f"cannot read {error.filename}: {reason(error)}")

    seen = 0
    for parent, folders, names in os.walk(folder, onerror=cannot_read):
        folders.sort()
        seen += len(folders) + len(names)
        if seen > most:
            raise UsageError(
                f"{folder} has more than {most:,} entries; name a folder with recordings alone"
            )
        for name in sorted(names):
            path = os.path.join(parent, name)
            if not name.endswith(SUFFIX):
                continue
            try:
                is_file = stat.S_ISREG(os.lstat(path).st_mode)
            except OSError as error:
                cannot_read(error)
                continue
            if is_file:
                yield path


def remove_empty(folder: str) -> None:
    """The folder of a job and of a cluster, where nothing is left in them."""
    for _ in range(2):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def named_in(folder: str, begin: str) -> List[str]:
    """The recordings in a folder, those below it left out, whose names begin so."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        os.path.join(folder, name)
        for name in names
        if name.startswith(begin) and name.endswith(SUFFIX)
    ]
