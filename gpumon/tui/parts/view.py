"""A screen, drawn: its rows, and the parts of it that take clicks."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.tui.lines import Row


class Zone(NamedTuple):
    """A part of the screen that takes clicks: `action` as in the tables of keys.

    `{x}` in it stands for the column of the click within the zone.
    """

    x: int
    y: int
    width: int
    height: int
    action: str

    def action_at(self, x: int) -> str:
        return self.action.replace("{x}", str(x - self.x))

    def holds(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


class View(NamedTuple):
    """Rows, and where clicks mean something."""

    rows: list[Row]
    zones: list[Zone] = []

    def below(self, rows: list[Row]) -> View:
        """This view under some rows."""
        zones = [zone._replace(y=zone.y + len(rows)) for zone in self.zones]
        return View([*rows, *self.rows], zones)
