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


class Retention(NamedTuple):
    """`nodes`: up to how many (0: any number)."""

    nodes: int
    tiers: Tiers


RETENTIONS = (
    # 15 min, 3 h, 24 h and 7 days, and 20 buckets beyond, for windows that end a little before
    # the newest sample
    Retention(16, ((1, 920), (10, 1100), (60, 1460), (600, 1028))),
    # 5 min, 30 min, 3 h, 24 h and 7 days, and 2 to 20 buckets beyond
    Retention(256, ((1, 320), (10, 184), (60, 184), (600, 146), (7200, 86))),
    # 10 min, 1 h, 4 h, 24 h and 7 days, and 2 beyond; they are sampled every 5 s or more seldom
    Retention(0, ((10, 62), (60, 62), (600, 26), (3600, 26), (21_600, 30))),
)


def retention_of(nodes: int) -> Retention:
    """The retention for so many nodes."""
    return next(each for each in RETENTIONS if not each.nodes or nodes <= each.nodes)


#: courses of processes on GPUs (`model.fields.COURSES`) are kept where the nodes are as few as the
#: first of RETENTIONS is for, of so many processes and so many usages of a node: each has two
#: series of at most 13 KB
COURSES_KEPT = 64
COURSE_TIERS = RETENTIONS[1].tiers
