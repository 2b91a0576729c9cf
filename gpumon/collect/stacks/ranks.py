"""Which processes of a node are a program's ranks.

A rank's number comes from its environment, read as a number and as nothing else. Its launcher and
its helpers (loaders of data, compilers) inherit it: what is on a GPU is the rank, else the topmost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gpumon.collect.procfs import parse_count

MAX_RANKS = 64

#: what names a process's rank, the most telling first: a launcher within a task of Slurm's sets its
#: own beside that of the task
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_MAX_RANK = 1 << 20
_MAX_ANCESTORS = 32
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*[a-z]?(?: \(deleted\))?")
#: how the command of an agent begins that was shipped to a node (`transport.payload`)
SHIPPED = "import base64,zlib;exec("


class Candidate(NamedTuple):
    """A Python process of the job. `told`: by which variable its rank is known, as a place."""

    pid: int
    ppid: int
    rank: int | None
    local_rank: int | None
    told: int
    on_gpu: bool


def candidate(pid: int, ppid: int, environ: Mapping[str, str], on_gpu: bool) -> Candidate:
    """What is of interest of a process."""
    rank, told = _number(environ, _RANKS)
    return Candidate(pid, ppid, rank, _number(environ, _LOCAL_RANKS)[0], told, on_gpu)


def _number(environ: Mapping[str, str], names: Iterable[str]) -> tuple[int | None, int]:
    """The first of these variables that is a rank, and its place among them."""
    for place, name in enumerate(names):
        value = parse_count(environ.get(name, ""))
        if value is not None and value < _MAX_RANK:
            return value, place
    return None, len(_RANKS)


def is_python(executable: str, maps: str) -> bool:
    """By the target of /proc/PID/exe and a text of /proc/PID/maps."""
    return bool(_PYTHON.fullmatch(executable)) or "/libpython" in maps


def is_gpumon(words: Collection[str]) -> bool:
    """Whether a command line is that of gpumon itself: `record` stands around a rank."""
    rest = list(words)[1:]
    program = next((word for word in rest if not word.startswith("-")), "")
    program = program.removesuffix("/__main__.py").removesuffix("/collect")
    name = program.rpartition("/")[2].partition(".")[0]
    return name == "gpumon" or any(word.startswith(SHIPPED) for word in rest)


def ranks_of(found: Iterable[Candidate], parents: Mapping[int, int]) -> list[Candidate]:
    """The ranks among the Python processes of a job. `parents`: of all its processes."""
    every = {each.pid: each for each in found}
    told = min((each.told for each in every.values()), default=0)
    ranked = {pid: each for pid, each in every.items() if each.told == told}
    chosen = {pid: each for pid, each in every.items() if each.on_gpu}
    with_gpu = {each.rank for each in chosen.values() if each.told == told}
    for pid, each in ranked.items():
        is_known = each.rank is None or each.rank in with_gpu
        if not is_known and not _stands_below(each, ranked, parents):
            chosen[pid] = each
    return sorted(chosen.values(), key=lambda each: (each.rank is None, each.rank or 0, each.pid))


def _stands_below(
    each: Candidate, ranked: Mapping[int, Candidate], parents: Mapping[int, int]
) -> bool:
    """Whether an ancestor has the same rank."""
    pid = each.ppid
    for _ in range(_MAX_ANCESTORS):
        above = ranked.get(pid)
        if above is not None and above.rank == each.rank:
            return True
        pid = parents.get(pid, 0)
        if not pid:
            break
    return False
