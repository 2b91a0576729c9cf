"""Which of several recordings of a node covers which moment: each moment comes from one.

Dashboards and `gpumon record` may have recorded one node at the same time, each with gaps of its
own. A *stretch* is the time that one of them covers without a gap. Stretches are laid end to end,
always the one that reaches furthest, so that there are few seams: a *leg* is the time between two
seams. Recordings that saw different GPUs of the node (tasks with GPUs of their own) share a leg,
each with what only it has: a *lane* is one GPU, or the rest of the node.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gpumon.model.sample import Device

#: the lane of all that belongs to no device
NODE = ""
Lanes = FrozenSet[str]
#: events by which each recording describes its processes
OF_PROCESSES = ("process", "process-end")


class Stretch(NamedTuple):
    """Samples of one recording from `first` to `last` (epoch s) without a gap."""

    number: int  # of the recording
    first: float
    last: float
    interval_s: float
    is_beginning: bool  # of its file, from which on rollup lines can be used


class Leg(NamedTuple):
    """The samples later than `begin`, up to and with `until` (epoch s).

    `parts`: which recording gives which lanes; None: all that it has.
    """

    begin: float
    until: float
    parts: Mapping[int, Optional[Lanes]]


def lane(device: Device) -> str:
    """What a device is called in every recording: by its UUID, else by its place."""
    return device.uuid or f"at {device.label}"


def legs_of(stretches: Sequence[Stretch], lanes: Sequence[Lanes]) -> List[Leg]:
    """The whole of time in legs; `lanes`: of each recording, without `NODE`, which all have."""
    holders: Dict[str, FrozenSet[int]] = {NODE: frozenset(range(len(lanes)))}
    for number, own in enumerate(lanes):
        for name in own:
            holders[name] = holders.get(name, frozenset()) | {number}
    covers = {
        these: _cover([each for each in stretches if each.number in these])
        for these in set(holders.values())
    }
    edges = sorted({begin for cover in covers.values() for begin, _ in cover})
    legs: List[Leg] = []
    for begin, until in zip(edges, [*edges[1:], inf]):
        shares: Dict[int, set[str]] = {}
        for name, these in holders.items():
            shares.setdefault(_at(covers[these], begin), set()).add(name)
        parts: Dict[int, Optional[Lanes]] = (
            {n: frozenset(share) for n, share in shares.items()}
            if len(shares) > 1
            else dict.fromkeys(shares)
        )
        if legs and legs[-1].parts == parts:
            legs[-1] = legs[-1]._replace(until=until)
        else:
            legs.append(Leg(begin, until, parts))
    return legs


def _at(cover: List[Tuple[float, int]], begin: float) -> int:
    """The recording that holds what follows `begin`."""
    at = bisect_left(cover, (begin, inf)) - 1
    return cover[max(at, 0)][1]


def _cover(stretches: Iterable[Stretch]) -> List[Tuple[float, int]]:
    """From which moment on (-inf first) which recording is used: fewest seams, deterministic."""
    waiting = sorted(
        stretches, key=lambda each: (each.first, -each.last, each.number), reverse=True
    )
    found: List[Tuple[float, int]] = []
    here: Optional[Stretch] = None
    while waiting:  # of those that have begun: the one that reaches furthest
        best = waiting.pop()
        until = best.first + best.interval_s / 2
        if here is not None:
            until = max(until, here.last + here.interval_s)
        while waiting and waiting[-1].first <= until:
            best = _further(best, waiting.pop())
        if here is None or best.last > here.last:
            seam = _seam(here, best)
            found.append((max(seam, found[-1][0]) if found else seam, best.number))
            here = best
    return found


def _further(one: Stretch, other: Stretch) -> Stretch:
    """The one that reaches further; of two that end together the one that began first."""
    longer = other.last > one.last + min(one.interval_s, other.interval_s)
    return other if longer else one


def _seam(here: Optional[Stretch], following: Stretch) -> float:
    """Between samples of either: where the next one begins its file, or where this one ends."""
    if here is None:
        return -inf
    half_s = min(here.interval_s, following.interval_s) / 2
    if following.is_beginning or following.first > here.last:
        return following.first - half_s
    return here.last + half_s
