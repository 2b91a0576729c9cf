"""The way of the probe into a command's Python, and the folder that it writes into."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpumon.collect.proc.probed import usual_folder
from gpumon.private import make_folder, open_folder

INSIDE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "probe", "inside")
_NAME = re.compile(r"(?P<pid>\d{1,10})-\d{1,20}\.json(?:\.new)?")
_OLD_S = 60.0  # who watches besides has read a file by then


class Probe(NamedTuple):
    """What to add to a command's environment; nothing where there can be no probe, and why not."""

    variables: dict[str, str]
    why_not: str = ""


def probe_of(environ: Mapping[str, str]) -> Probe:
    """For a command that is to have this environment."""
    folder = os.path.abspath(usual_folder(environ, os.getuid()))
    try:
        make_folder(folder)
        os.close(open_folder(folder))
    except OSError as error:
        return Probe({}, f"no probe: {folder}: {error.strerror}")
    before = environ.get("PYTHONPATH")
    path = os.pathsep.join([INSIDE, before] if before else [INSIDE])
    return Probe({"PYTHONPATH": path, "GPUMON_PROBE_DIR": folder})


def sweep(environ: Mapping[str, str], ended: Collection[object] = ()) -> None:
    """Remove what processes left that have ended: those with these numbers now, others later."""
    try:
        within = open_folder(usual_folder(environ, os.getuid()))
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
