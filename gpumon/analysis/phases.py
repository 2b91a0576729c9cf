"""Change points: where a run goes on at another level, so that no mean is taken across."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import log

#: blocks that the shortest phase is looked at in: finer ones cost more and find no more
_BLOCKS = 15
#: a change must explain so many times what noise explains (a penalty as that of PELT, 2 σ² ln n,
#: taken five times: a change that is missed costs less than a run cut to pieces)
_PENALTY = 10.0
#: levels differ by this part of the larger one, and by half as much of the greatest value
_SHARE = 0.2
_MOST = 30  # change points


def change_points(values: Sequence[float], least: int) -> list[int]:
    """Indices at which a new level begins, in order; each level lasts `least` values or longer.

    NaN is not known and belongs to no level. Binary segmentation of the means of blocks by least
    squares; noise is what differs from block to block, so that regular bursts are noise.
    """
    size = max(1, least // _BLOCKS)
    blocks = [
        (at, sum(known) / len(known))
        for at in range(0, len(values), size)
        if (known := [value for value in values[at : at + size] if value == value])
    ]
    shortest = -(-least // size)
    if len(blocks) < 2 * shortest:
        return []
    means = [mean for _, mean in blocks]
    noise = sum((b - a) ** 2 for a, b in pairwise(means)) / (2 * (len(means) - 1))
    most = max(map(abs, means))
    sums = [0.0, *accumulate(means)]

    def level(first: int, last: int) -> float:
        return (sums[last] - sums[first]) / (last - first)

    found: list[int] = []
    open_ = [(0, len(means))]
    while open_ and len(found) < _MOST:
        first, last = open_.pop()
        at = _best(sums, first, last, shortest)
        if at is None:
            continue
        change = level(at, last) - level(first, at)
        gain = (at - first) * (last - at) / (last - first) * change**2
        if gain >= _PENALTY * noise * log(len(means)) and gain > 0:
            found.append(at)
            open_ += [(first, at), (at, last)]
    edges = [0, *sorted(found), len(means)]
    while len(edges) > 2:
        levels = [level(*each) for each in pairwise(edges)]
        change, at = min((abs(b - a) / max(abs(a), abs(b), most / 2), n)
                         for n, (a, b) in enumerate(pairwise(levels), 1))  # fmt: skip
        if change >= _SHARE:
            break
        del edges[at]
    return [blocks[at][0] for at in edges[1:-1]]


def _best(sums: Sequence[float], first: int, last: int, shortest: int) -> int | None:
    """Where two levels explain these blocks best; None where there is no room for two."""
    places = range(first + shortest, last - shortest + 1)
    total, count = sums[last] - sums[first], last - first

    def gain(at: int) -> float:
        part = sums[at] - sums[first]
        off = part * count - total * (at - first)
        return off * off / ((at - first) * (last - at))

    return max(places, key=gain, default=None)


def between(cuts: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """The parts of [first, last) that the cuts make."""
    edges = [first, *(cut for cut in cuts if first < cut < last), last]
    return list(pairwise(edges)) if last > first else []
