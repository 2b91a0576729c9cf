"""What the cursor is on, the same on every screen that lists nodes or devices."""

from __future__ import annotations

from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.moment import Moment


class Selection:
    """The node and the device under the cursor, on every screen that lists them."""

    def __init__(self) -> None:
        self.device = 0  # position in the moment's devices
        self.node = ""
        self.top = 0  # first device row on screen

    def place(self, moment: Moment) -> int:
        """Where the cursor stands among the devices that there are."""
        self.device = min(max(self.device, 0), max(0, len(moment.devices) - 1))
        return self.device

    def current(self, moment: Moment) -> tuple[NodeView, DeviceView] | None:
        return moment.devices[self.place(moment)] if moment.devices else None

    def pick(self, moment: Moment, place: int) -> None:
        self.device = place
        current = self.current(moment)
        if current is not None:
            self.node = current[0].name

    def pick_node(self, moment: Moment, name: str) -> None:
        """A node, and its first device unless the cursor is on one of its own."""
        self.node = name
        positions = moment.positions_of(name)
        if positions and self.device not in positions:
            self.device = positions[0]
