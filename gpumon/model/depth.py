"""What is kept of a series for how long, by the number of nodes on one screen.

A node with eight GPUs has about 110 series (`model.fields.SERIES`), and a bucket of one takes 14
bytes (6 as long as it has held one value). Up to 16 nodes a series may grow to 63 KB, for a screen
that shows any stretch of the last day in detail. Of more nodes they are kept in rings that give the
windows of the time axis 50 to 300 buckets where they are short and 12 to 100 where they are long:
at most 1 MiB for a node, and 0.3 MiB where there are more than 256 of them, after a week as after a
day. Peaks are kept apart (`Series.high`, `Series.peak60`) and always exact.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

#: (seconds per bucket, buckets kept), the finest first. Each step divides the next, so that tiers
#: agree where one ends and the next begins; one of a minute is among them, for `Series.peak60`.
Tiers = Tuple[Tuple[int, int], ...]


#: of a node with eight GPUs; one that has more of them counts for several nodes
SERIES_A_NODE = 110


class Depth(NamedTuple):
    """`nodes`: up to how many (0: any number)."""

    nodes: int
    tiers: Tiers


DEPTHS = (
    # 15 min, 3 h, 24 h and 7 days, and 20 buckets beyond, for windows that end a little before
    # the newest sample
    Depth(16, ((1, 920), (10, 1100), (60, 1460), (600, 1028))),
    # 5 min, 30 min, 3 h, 24 h and 7 days, and 2 to 20 buckets beyond
    Depth(256, ((1, 320), (10, 184), (60, 184), (600, 146), (7200, 86))),
    # 10 min, 1 h, 4 h, 24 h and 7 days, and 2 beyond; they are sampled every 5 s or more seldom
    Depth(0, ((10, 62), (60, 62), (600, 26), (3600, 26), (21_600, 30))),
)


def depth_of(nodes: int) -> Depth:
    """The depth for so many nodes."""
    return next(depth for depth in DEPTHS if not depth.nodes or nodes <= depth.nodes)
