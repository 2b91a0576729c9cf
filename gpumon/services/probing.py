"""The way of the probe into a command's Python, and the folder that it writes into."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from gpumon.collect.proc.local import is_local
from gpumon.collect.proc.probed import VARIABLE, own_folders, usual_folders
from gpumon.collect.procfs import READ_LIMIT_BYTES, read_bytes
from gpumon.private import open_folder

INSIDE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "probe", "inside")
_NAME = re.compile(r"(?P<pid>\d{1,10})-\d{1,20}\.json(?:\.new)?")
_OLD_S = 60.0  # who watches besides has read a file by then


class Probe(NamedTuple):
    """What to add to a command's environment; nothing where there can be no probe, and why not."""

    variables: dict[str, str]
    why_not: str = ""


def probe_of(environ: Mapping[str, str]) -> Probe:
    """For a command that is to have this environment."""
    folder, why_not = _folder(environ)
    if not folder:
        return Probe({}, f"no probe: {why_not}")
    before = environ.get("PYTHONPATH")
    path = os.pathsep.join([INSIDE, before] if before else [INSIDE])
    return Probe({"PYTHONPATH": path, VARIABLE: folder})


def folder_of(environ: Mapping[str, str]) -> str:
    """Where the probe of a process with this environment may write; "" if nowhere.

    The one that it was given, or the first usual one.
    """
    given = environ.get(VARIABLE, "")
    return given if given and not _fault(given) else _folder(environ)[0]


def _folder(environ: Mapping[str, str]) -> tuple[str, str]:
    """A folder of this user alone on this node, and if there is none, why not the first one."""
    why_not = ""
    for usual in usual_folders(environ, os.getuid()):
        for folder in _candidates(usual):
            fault = _fault(folder)
            if not fault:
                return folder, ""
            why_not = why_not or f"{folder}: {fault}"
    return "", why_not


def _candidates(usual: str) -> Iterator[str]:
    """The usual one; what others may have planted there is left alone, and another one taken."""
    base = os.path.dirname(usual)
    if not _is_local(base):
        yield usual
        return
    try:
        os.mkdir(usual, 0o700)
    except OSError:  # it is there, or there is no room for it
        pass
    yield usual
    yield from own_folders(base, os.getuid())
    try:
        yield tempfile.mkdtemp(prefix=os.path.basename(usual) + "-", dir=base)
    except OSError:
        pass


def _fault(folder: str) -> str:
    """Why nothing can be written there; "" if it can."""
    if not _is_local(folder):
        return "not on a disk of this node or in its memory"
    try:
        os.close(open_folder(folder, is_ours=False))
    except OSError as error:
        return str(error.strerror)
    return "" if os.access(folder, os.W_OK | os.X_OK) else "cannot be written to"


def _is_local(path: str) -> bool:
    try:
        mounts = read_bytes("/proc/self/mountinfo", READ_LIMIT_BYTES)
    except OSError:
        return False
    return is_local(path, mounts.decode("utf-8", "surrogateescape"))


def sweep(environ: Mapping[str, str], ended: Collection[object] = ()) -> None:
    """Remove what processes left that have ended: those with these numbers now, others later."""
    for usual in usual_folders(environ, os.getuid()):
        if _is_local(usual):
            for folder in (usual, *own_folders(os.path.dirname(usual), os.getuid())):
                _sweep(folder, ended)


def _sweep(folder: str, ended: Collection[object]) -> None:
    try:
        within = open_folder(folder, is_ours=False)
    except OSError:
        return
    try:
        for name in os.listdir(within):
            found = _NAME.fullmatch(name)
            if found is not None and not os.path.exists(f"/proc/{found['pid']}"):
                _remove(within, name, at_once=int(found["pid"]) in ended)
    finally:
        os.close(within)


def _remove(within: int, name: str, *, at_once: bool) -> None:
    try:
        written = os.stat(name, dir_fd=within, follow_symlinks=False).st_mtime
        if at_once or time.time() - written > _OLD_S:
            os.unlink(name, dir_fd=within)
    except OSError:  # another one was faster
        pass
