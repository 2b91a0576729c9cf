"""All processes: on the devices, and those of the job."""

from __future__ import annotations

import os
import signal
from math import ceil, floor

from gpumon.tui.keys import Key, grouped
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.moment.cache import Current
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.picture import width_of
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.processes.entries import (
    SORTS,
    Entry,
    Listing,
    Order,
    in_order,
    listing,
    ordered,
)
from gpumon.tui.screens.processes.filter import parse_filter
from gpumon.tui.screens.processes.one import process_view
from gpumon.tui.screens.processes.table import process_table, summary_row
from gpumon.tui.selection import Selection

_BELOW_S = 5
_LEAST_COURSE = 8  # rows below the table from which the selected process is shown there
#: cells that a long table leaves, from which it is shown beside that
_LEAST_BESIDE, _STEP_CELLS = 72, 12
_STEP = 4  # rows of the table that come and go at once, so that what is below seldom moves
_HERE, _ONE, _LISTS = ("processes",), ("processes", "process"), ("processes", "nodes")


class ProcessesPane(Pane):
    """The table; the cursor follows its process."""

    name = "processes"
    wheel = 3
    keys = grouped(
        "Lists",
        Key("s", "sort(1)", "s", "Sort", "sort by the next column", _LISTS),
        Key("I", "reverse", "I", "", "invert the order"),
        Key("P", "sort_by('cpu')", "P", "", "processes by CPU"),
        Key("M", "sort_by('rss')", "M", "", "processes by memory"),
        Key("v", "tree", "v", "Tree", "show processes as a tree", _HERE),
        Key("k", "signal", "k", "Signal",
            "send a signal to the selected process, if it is yours", _ONE),
    )  # fmt: skip

    def __init__(self, shell: Shell, selection: Selection, *, is_local: bool) -> None:
        super().__init__(shell, selection)
        self._is_local = is_local  # what is shown is this node, live
        self._listings: Current[Listing] = Current()
        self.sort = ""  # until the user chooses
        self.reverse = False
        self.tree = False
        self.filter_text = ""
        self.cursor = 0
        self._identity: tuple[str, int] | None = None  # of the process under the cursor
        self.opened_from = self.name  # the screen of one process
        self._top = 0  # first row on screen
        self._below: dict[int, tuple[object, int, list[Row]]] = {}  # by height; look, when, rows

    def order(self, moment: Moment) -> Order:
        """As the user chose."""
        return Order(self.sort or _usual(moment), self.reverse, self.tree, self.filter_text)

    def entries(self, moment: Moment) -> list[Entry]:
        return ordered(self._all(moment), self.order(moment))

    def _all(self, moment: Moment) -> list[Listing]:
        return [
            self._listings.of(node, moment.now, lambda node: listing(node, moment.now))
            for node in moment.nodes
        ]

    # -- drawing

    def draw(self, moment: Moment, width: int, height: int) -> View:
        listings, order = self._all(moment), self.order(moment)
        found = ordered(listings, order)
        self._follow(found, height - 2)
        seen = found[self._top : self._top + max(0, height - 2)]
        table = process_table(seen, order, moment, width, selected=self.cursor - self._top)
        places = [
            Zone(0, 1 + y, width, 1, f"point({self._top + y - 1})") for y in range(1, len(seen) + 1)
        ]
        rows = [summary_row(found, listings, order, width), *table.rows]
        if not found:
            nothing = "nothing matches the filter; Esc clears it"
            rows.append([(f"  {nothing if self.filter_text else 'no processes'}", "dim")])
        zones = [*table.below([[]]).zones, *places]
        rows += [[]] * (2 + _STEP * ceil(len(found) / _STEP) + 1 - len(rows))
        room = height - len(rows)
        if found and room >= _LEAST_COURSE:
            below = process_view(found[self.cursor], moment, width, room).below(rows)
            return View(below.rows, [*zones, *below.zones])
        beside = _room_beside(rows, width)
        if not found or beside < _LEAST_BESIDE:
            return View(rows[:height], zones)
        course = process_view(found[self.cursor], moment, beside, height - 1)
        return _beside(View(rows[:height], zones), course, width - beside, 1)

    def busiest(self, moment: Moment, width: int, height: int) -> list[Row]:
        """Those with the most CPU, without a cursor: a part of another screen."""
        order = Order("cpu", filter_text=self.filter_text)
        found = ordered(self._all(moment), order)[: max(0, height - 1)]
        return process_table(found, order, moment, width).rows

    def below(self, moment: Moment, width: int, height: int) -> list[Row]:
        """By device, or, where not all have room, those with the most of the devices: as a part of
        another screen.

        Drawn anew every few seconds, as readings of processes never stand still.
        """
        look = (width, height, self.filter_text, moment.glyphs, [n.name for n in moment.nodes])
        at = floor(moment.now / _BELOW_S)
        kept = self._below.get(height)
        if kept is None or kept[:2] != (look, at):
            self._below[height] = kept = (look, at, self._part(moment, width, height))
        return kept[2]

    def _part(self, moment: Moment, width: int, height: int) -> list[Row]:
        order = Order(_usual(moment), filter_text=self.filter_text)
        found = ordered(self._all(moment), order)
        found = [each for each in found if each.process.ended is None]
        if not found:
            return []
        if len(found) < height and order.sort == "mem" and len(moment.nodes) == 1:
            order = order._replace(sort="gpu")
            found = in_order(found, order)
        more = len(found) - (height - 1)
        rows = process_table(found[: max(0, height - 1)], order, moment, width).rows
        if more > 0 and len(rows) > 1:
            text = f"  +{more + 1} more; 3 shows all"
            rows[-1] = [(text, "dim")]
        return rows

    def _follow(self, found: list[Entry], room: int) -> None:
        """The cursor on its process, wherever that is now, and the row of it on screen."""
        if self._identity is not None:
            name, pid = self._identity
            places = (
                place
                for place, entry in enumerate(found)
                if entry.process.facts.pid == pid and entry.node.name == name
            )
            self.cursor = next(places, self.cursor)
        self._point(found, self.cursor)
        room = max(1, room)
        self._top = min(max(self._top, self.cursor - room + 1, 0), self.cursor)
        self._top = min(self._top, max(0, len(found) - room))

    def _point(self, found: list[Entry], place: int) -> None:
        self.cursor = min(max(place, 0), max(0, len(found) - 1))
        self._identity = found[self.cursor].identity if found else None

    def selected(self, moment: Moment) -> Entry | None:
        """The process under the cursor, wherever it is in the table now."""
        found = self.entries(moment)
        return next((each for each in found if each.identity == self._identity), None)

    # -- keys

    def action_open(self) -> None:
        """Enter: the process under the cursor, in full."""
        entry = self.selected(self.shell.moment)
        if entry is None:
            self.shell.say("there is no process to open")
        else:
            self.open(entry, self.name)

    def open(self, entry: Entry, before: str) -> None:
        """Show it on a screen of its own, from which Esc goes back to the one of that name."""
        self._identity, self.opened_from = entry.identity, before
        self.shell.show("process")

    def choose(self, moment: Moment) -> None:
        """The first device that the process is on."""
        entry = self.selected(moment)
        if entry is None:
            return
        for place, (node, device) in enumerate(moment.devices):
            if node is entry.node and device.key in entry.process.usage:
                self.selection.device = place
                return

    def action_move(self, step: int) -> None:
        self._point(self.entries(self.shell.moment), self.cursor + step)

    def action_point(self, place: int) -> None:
        self._point(self.entries(self.shell.moment), place)

    def action_leave(self) -> None:
        """Esc: clears the filter first."""
        if self.filter_text:
            self.filter_text = ""
        else:
            self.shell.show("job")

    def action_sort(self, step: int) -> None:
        place = SORTS.index(self.order(self.shell.moment).sort)
        self.action_sort_by(SORTS[(place + step) % len(SORTS)])

    def action_sort_by(self, name: str) -> None:
        """By a column; once more: the other way round."""
        is_again = self.shell.pane is self and name == self.order(self.shell.moment).sort
        self.reverse = is_again and not self.reverse
        self.sort = name
        self.shell.show(self.name)

    def action_reverse(self) -> None:
        self.reverse = not self.reverse
        self.shell.show(self.name)

    def action_tree(self) -> None:
        self.tree = not self.tree
        self.shell.show(self.name)

    def action_filter(self) -> None:
        def take(text: str) -> None:
            self.filter_text = text

        from gpumon.tui.dialogs.line import LineDialog

        self.shell.show(self.name)
        dialog = LineDialog(
            "text, or gpu=0 user=ada mem>10G cpu>50",
            self.filter_text,
            complaint=lambda text: parse_filter(text)[1],
        )
        self.shell.ask(dialog, take)

    def action_signal(self) -> None:
        if self.shell.pane is self:
            self.signal_selected()
        else:
            self.shell.show(self.name)

    def signal_selected(self) -> None:
        """Ask which signal to send to the process under the cursor; only to one's own, and here."""
        entry = self.selected(self.shell.moment)
        if entry is None:
            self.shell.say("there is no process to signal")
            return
        facts = entry.process.facts
        refused = ""
        several = len(self.shell.moment.nodes) > 1
        if not self._is_local or several or entry.node.header is None:
            refused = "signals can only be sent to processes of this node, live"
        elif entry.process.ended is not None:
            refused = f"{facts.pid} has ended"
        elif facts.uid != os.getuid():
            refused = f"{facts.pid} belongs to {facts.user or 'another user'}"
        if refused:
            self.shell.say(refused)
            return
        from gpumon.tui.dialogs.signals import SignalDialog, Target, send_signal

        target = Target(facts.pid, facts.start, facts.command or facts.name)

        def send(number: signal.Signals) -> None:
            self.shell.say(send_signal(target, number))

        self.shell.ask(SignalDialog(target), send)


def _usual(moment: Moment) -> str:
    """By GPU memory, or CPU where no process is on a GPU, until the user chooses."""
    return "mem" if any(node.keys("usage") for node in moment.nodes) else "cpu"


def _room_beside(rows: list[Row], width: int) -> int:
    """Cells that the rows leave at their right; in steps, so that what is there seldom moves."""
    used = max(width_of("".join(text for text, _ in row).rstrip()) for row in rows)
    return max(0, width - ceil((used + 1) / _STEP_CELLS) * _STEP_CELLS)


def _without_end(row: Row) -> Row:
    """The row without the blanks at its end, which would be marked as cut."""
    found = list(row)
    while found and not found[-1][0].strip():
        found.pop()
    return [*found[:-1], (found[-1][0].rstrip(), found[-1][1])] if found else []


def _beside(table: View, right: View, x: int, y: int) -> View:
    """The table, and at its right the other, whose clicks come first."""
    rows = list(table.rows)
    for line, row in enumerate(right.rows[: len(rows) - y], y):
        rows[line] = [*fit_row(_without_end(rows[line]), x), *row]
    zones = [zone._replace(x=zone.x + x, y=zone.y + y) for zone in right.zones]
    return View(rows, [*zones, *table.zones])
