"""Trackable resources: TRES lists, GRES with indices, and usage lists.

`gres/gpu` and `gres/gpu:TYPE` name the same GPUs and are never added; either may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from gpumon.slurm import values
from gpumon.slurm.job import Resources, Usage

_GPU = "gres/gpu"
_GRES = re.compile(r"(?:gres[:/])?([\w.-]+)(?::(?!\d+[KMG]?$)([\w.-]+?))?(?:[:=](\d{1,9}[KMG]?))?")
_OUTSIDE_COMMA = re.compile(r",(?![^(]*\))")
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MAX_INDEX = 65536
#: lists whose figures are kept: a site's jobs ask for the same again and again
_KEPT = 4096


class Gres(NamedTuple):
    """One generic resource: `gpu:a100:2(IDX:0-1)`, whose indices are not NVML's."""

    name: str
    type: str
    amount: int


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for item in values.known(text).split(","):
        name, equals, value = item.rpartition("=")
        if equals and name:
            yield name, value


def parse_tres(text: str) -> dict[str, int]:
    """`billing=4,cpu=4,gres/gpu:a100=2,mem=2G,node=1` by name; memory in bytes."""
    found = ((name, values.size(value)) for name, value in _pairs(text))
    return {name: number for name, number in found if number is not None}


@lru_cache(_KEPT)
def resources(text: str) -> Resources:
    """A TRES list as Resources. Their GPUs are None where it has none: they may be untracked."""
    return from_tres(parse_tres(text))


def from_tres(tres: Mapping[str, int]) -> Resources:
    """The same of a list that is parsed already; `mem` in bytes."""
    types = {
        name[len(_GPU) + 1 :]: number
        for name, number in tres.items()
        if name.startswith(_GPU + ":")
    }
    gpus = tres.get(_GPU, sum(types.values()) if types else None)
    memory = tres.get("mem") or None  # 0: all of each node, however much that is
    return Resources(tres.get("cpu"), memory, gpus, types, tres.get("node"), dict(tres))


def parse_indices(text: str) -> tuple[int, ...] | None:
    """`0-1,3` as numbers; None if it is no such list."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < _MAX_INDEX or len(found) > _MAX_INDEX:
            return None
        found += range(first, last + 1)
    return tuple(found)


def parse_gres(text: str) -> list[Gres]:
    """GRES lists of every age: `gpu:a100:2(IDX:0-1)`, `gres:gpu:1`, `gres/gpu=2`, `gpu:4(S:0-1)`.

    Items of another shape (`cpu=2` beside GRES in a TRES request) are left out.
    """
    found = []
    for item in _OUTSIDE_COMMA.split(values.known(text)):
        plain = item.strip().partition("(")[0]
        match = _GRES.fullmatch(plain)
        if not match or (not plain.startswith("gres") and "=" in plain):
            continue
        name, kind, number = match.groups()
        amount = values.size(number) if number else 1
        found.append(Gres(name, kind or "", amount or 0))
    return found


def gpus_of(text: str) -> tuple[int, dict[str, int]]:
    """Of a GRES list: GPUs, and by type ("" for none); `shard` and `mps` do not count."""
    types: dict[str, int] = {}
    for gres in parse_gres(text):
        if gres.name == "gpu":
            types[gres.type] = types.get(gres.type, 0) + gres.amount
    return sum(types.values()), types


@lru_cache(_KEPT)  # of a step with one task, total and greatest are the same text
def _amounts(text: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, value in _pairs(text):
        number = values.duration(value) if ":" in value else values.size(value)
        if number is not None:
            found[name] = float(number)
    return found


def usage(total: str, maximum: str) -> Usage:
    """TRESUsageInTot and TRESUsageInMax as one Usage."""
    return Usage(_amounts(total), _amounts(maximum))
