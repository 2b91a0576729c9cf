"""How much a gathering may hold: of a whole run for its report, or beside a screen."""

from __future__ import annotations

from typing import NamedTuple


class Room(NamedTuple):
    """Bins of the grid, 12 bytes each for about 30 readings a device, and samples that wait."""

    least: int  # bins, however many devices there are
    total: int  # bins of all devices together, as if there were at least 8
    batch: int = 64  # samples of a node that wait for their bin to be full, 20 KB each
    is_lean: bool = False  # without readings that no rule asks for


#: a day of bins of 10 s for eight devices
WHOLE = Room(720, 8640 * 8)
#: beside a screen, where it lasts: 512 devices take 20 MiB. (Beyond 512 bytes an array moves from
#: one allocator to another, and the room that thousands leave behind is given back by neither.)
LIVE = Room(112, 112 * 512, 10, is_lean=True)
