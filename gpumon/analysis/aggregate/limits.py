"""How much an aggregation may hold: of a whole run for its report, or beside a screen."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Buckets of the grid, 6 to 14 bytes each for about 30 readings a device, and samples."""

    least: int  # buckets, however many devices there are
    total: int  # buckets of all devices together, as if there were at least 8
    batch: int = 64  # samples of a node that wait for their bucket to be full, 20 KB each
    is_lean: bool = False  # few of the processes that ended
    with_shown: bool = False  # also readings that no rule asks for, but screens show


#: a day of buckets of 10 s for eight devices
WHOLE = Limits(720, 8640 * 8)
#: of a replay, for what was before the moment that it begins at
BACKFILL = WHOLE._replace(with_shown=True)
#: beside a recorder, which forgets the buckets of each frame once they are written
RECORDED = WHOLE._replace(with_shown=True)
#: beside a screen, where it lasts: 512 devices take 20 MiB. (Beyond 512 bytes an array moves from
#: one allocator to another, and the space that thousands leave behind is given back by neither.)
LIVE = Limits(112, 112 * 512, 10, is_lean=True)
