"""Job ids for the completion of a shell, with a few words about each.

A shell waits for this at every Tab. So neither the client of Slurm is imported nor the rest of a
recording read, and an answer serves for ten seconds. What goes wrong is no candidate.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from typing import NamedTuple

from gpumon import private
from gpumon.errors import GpumonError
from gpumon.model.text import clean
from gpumon.recording import Recording
from gpumon.recording.runs import is_job, state_dir
from gpumon.slurm.runner import LocalRunner

_FRESH_S = 10.0
_TIMEOUT_S = 1.0
#: recorded jobs that are offered, and those of which the name is read; the newest
_MAX_RUNS, _MAX_NAMES = 100, 12
_MAX_JOBS = 500
_CACHE = "completing"
#: only what is a word of no shell's syntax is offered
_ID = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)
_ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
          "DEADLINE", "OUT_OF_MEMORY", "REVOKED")  # fmt: skip


class Candidate(NamedTuple):
    """An id, and what it is."""

    id: str
    about: str


def running() -> list[Candidate]:
    """One's own jobs that run or wait."""
    return [each for each, state in _queued() if state not in _ENDED]


def known() -> list[Candidate]:
    """One's own jobs in Slurm's controller, and recorded ones."""
    jobs = [each for each, _ in _queued()]
    ids = {each.id for each in jobs}
    return jobs + [each for each in recorded() if each.id not in ids]


def recorded() -> list[Candidate]:
    """Jobs with a recording, the newest first."""
    found: list[tuple[float, str, str]] = []
    top = os.path.join(state_dir(), "jobs")
    for cluster in _folders(top):
        for job in _folders(cluster.path):
            if is_job(job.name) and _ID.fullmatch(job.name):
                found.append((job.stat().st_mtime, job.name, job.path))
    found.sort(reverse=True)
    return [
        Candidate(id, _words(_name(path) if n < _MAX_NAMES else "", _when(at)))
        for n, (at, id, path) in enumerate(found[:_MAX_RUNS])
    ]


def _folders(path: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        yield from (entry for entry in entries if entry.is_dir(follow_symlinks=False))


def _name(folder: str) -> str:
    """The job's, as its newest recording has it; "" where that cannot be read."""
    with contextlib.suppress(OSError, GpumonError, ValueError):
        newest = max(name for name in os.listdir(folder) if name.endswith(".gpumon"))
        with Recording(os.path.join(folder, newest)) as recording:
            return recording.header.job.name if recording.header.job else ""
    return ""


def _when(at: float) -> str:
    return time.strftime("recorded %d %b %H:%M", time.localtime(at))


# -- Slurm ---------------------------------------------------------------------------------------


def _queued() -> list[tuple[Candidate, str]]:
    """What squeue lists of one's own jobs, with their states; arrays also by their number."""
    found: dict[str, tuple[Candidate, str]] = {}
    for line in _cached().splitlines()[:_MAX_JOBS]:
        id, array, state, partition, name = (line.split("\t", 4) + [""] * 5)[:5]
        if array != id and _ID.fullmatch(array):
            whole = Candidate(array, _words(name, "an array", partition))
            if array not in found or found[array][1] in _ENDED:
                found[array] = whole, state
        if _ID.fullmatch(id):
            found[id] = Candidate(id, _words(name, state, partition)), state
    return list(found.values())


def _words(*parts: str) -> str:
    return ", ".join(clean(part, 40) for part in parts if part)


def _cached() -> str:
    """What was found less than ten seconds ago, else what Slurm says now."""
    folder = state_dir()
    private.make_folder(folder)
    within = private.open_folder(folder)
    try:
        with contextlib.suppress(OSError), open(private.open_file(within, _CACHE), "rb") as file:
            if 0 <= time.time() - os.fstat(file.fileno()).st_mtime < _FRESH_S:
                return file.read().decode("utf-8", "replace")
        text = _asked()
        new = f"{_CACHE}.{secrets.token_hex(6)}.new"
        with open(private.new_file(within, new), "wb") as file:
            file.write(text.encode())
        os.replace(new, _CACHE, src_dir_fd=within, dst_dir_fd=within)
        return text
    finally:
        os.close(within)


def _asked() -> str:
    """A line of tab-separated cells for each job. Of a Slurm that does not answer, nothing."""
    mark = secrets.token_hex(8)  # no job's name can begin another job
    form = f"{mark}%i\t%F\t%T\t%P\t%j"
    argv = ["squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", form]
    try:
        answer = LocalRunner().run(argv, env={"LC_ALL": "C"}, timeout_s=_TIMEOUT_S)
    except GpumonError:
        return ""
    rows = answer.out.decode("utf-8", "replace").split(mark)[1:] if answer.code == 0 else []
    return "".join(" ".join(row.splitlines()) + "\n" for row in rows)
