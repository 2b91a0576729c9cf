"""A list of which one thing is selected, of jobs or of recorded runs: cursor, order, filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from textual.screen import ModalScreen

from gpumon.model.units import plural
from gpumon.tui.columns import GAP, Column, cells, placed, titles
from gpumon.tui.dialogs.line import LineDialog
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.parts.device_rows import scrolled
from gpumon.tui.parts.phrasing import cursor
from gpumon.tui.parts.view import View, Zone

T = TypeVar("T")


class Listed(Protocol):
    """One of the things."""

    @property
    def id(self) -> str:
        """By which the cursor stays on it, wherever it is."""


Item = TypeVar("Item", bound=Listed)


class Order(NamedTuple):
    """Which things are shown, and how they are sorted."""

    sort: str
    is_reversed: bool = False
    filter_text: str = ""

    def by(self, name: str) -> Order:
        """By a column; once more: the other way round."""
        return self._replace(sort=name, is_reversed=name == self.sort and not self.is_reversed)


@dataclass
class ListState:
    """What stays while one of the things is looked at on another screen."""

    order: Order
    selected: str = ""  # ID of the one under the cursor
    message: str = ""  # what went wrong on the other screen


class ListKeys(Generic[Item]):
    """The keys of such a list, for the screen that shows it."""

    SORTS: ClassVar[Sequence[str]]
    NAME: ClassVar[str]  # of one thing
    #: rows from which the selected one has details below the table, and how many rows they take
    TALL: ClassVar[int]
    DETAILS: ClassVar[int]
    _state: ListState
    _glyphs: str
    _top = 0  # the first row shown

    def _items(self) -> list[Item]:
        """Those that are shown, in their order."""
        raise NotImplementedError

    def _table(self, items: Sequence[Item], selected: int, size: tuple[int, int]) -> View:
        """Their rows from `_top` on, under the titles."""
        raise NotImplementedError

    def _about(self, item: Item, width: int) -> list[Row]:
        """What its row has no room for."""
        raise NotImplementedError

    def _list(self, items: Sequence[Item], above: Sequence[Row], width: int, height: int) -> View:
        """Those rows, the table, and what there is to say of the selected one."""
        selected = self._place(items)
        below = self.DETAILS if height >= self.TALL else 0
        room = max(2, height - len(above) - below)
        self._top = scrolled(self._top, selected, room - 1, len(items))
        drawn = self._table(items, selected, (width, room))
        rows = drawn.rows + [[]] * (room - len(drawn.rows))
        if below:
            more = len(items) - self._top - (room - 1)
            text = f" {plural(more, f'more {self.NAME}')} below " if more > 0 else ""
            rule = "-" if self._glyphs == "ascii" else "─"
            rows += [[(f"{text:{rule}^{width}}", "track")], *self._about(items[selected], width)]
        return View(rows, drawn.zones).below([*above])

    def _ask(self, dialog: ModalScreen[T | None], take: Callable[[T], None]) -> None:
        """`take` gets the answer, where there is one."""
        raise NotImplementedError

    def _place(self, items: Sequence[Item]) -> int:
        """Where the cursor stands: on its own thing, wherever that is now."""
        places = (n for n, item in enumerate(items) if item.id == self._state.selected)
        place = next(places, 0)
        self._state.selected = items[place].id
        return place

    def _selected(self) -> Item | None:
        items = self._items()
        return items[self._place(items)] if items else None

    def action_move(self, step: int) -> None:
        if items := self._items():
            self.action_pick(self._place(items) + step)

    def action_pick(self, place: int) -> None:
        if items := self._items():
            self._state.selected = items[min(max(place, 0), len(items) - 1)].id

    def action_sort(self, step: int) -> None:
        place = self.SORTS.index(self._state.order.sort)
        self.action_sort_by(self.SORTS[(place + step) % len(self.SORTS)])

    def action_sort_by(self, name: str) -> None:
        self._state.order = self._state.order.by(name)

    def action_reverse(self) -> None:
        order = self._state.order
        self._state.order = order._replace(is_reversed=not order.is_reversed)

    def action_filter(self) -> None:
        before = self._state.order.filter_text
        self._ask(LineDialog("words in a row", before, complaint=lambda _: ""), self._filter)

    def _filter(self, text: str) -> None:
        self._state.order = self._state.order._replace(filter_text=text)


def list_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], sort: str, sorts: Sequence[str],
    place: tuple[int, int], size: tuple[int, int], room: int, glyphs: str,
    role: Callable[[int, int, bool], str], beside: int = 1,
    mark: Callable[[int], str] = lambda at: "",
) -> View:  # fmt: skip
    """The titles, which take clicks to sort, and as many rows as fit under them.

    place: the first row shown, and the selected one. room: cells for all columns. role: of a cell,
    by its row and column, and whether that is the selected row. beside: cells before the columns.
    mark: what stands there behind the cursor.
    """
    (top, selected), (width, height) = place, size
    shown = placed(columns, rows, room)
    head: Row = [(" " * beside, "dim")]
    zones = []
    x = beside
    for column, text in zip(shown, titles(columns, shown)):
        title = columns[column.number].title.partition(" / ")[0]
        head += [(GAP, "")] if x > beside else []
        head.append((text, "title" if title == sort else "dim"))
        if title in sorts:
            zones.append(Zone(x, 0, column.width, 1, f"sort_by('{title}')"))
        x += column.width + len(GAP)
    drawn = [fit_row(head, width)]
    for at in range(top, min(len(rows), top + height - 1)):
        zones.append(Zone(0, len(drawn), width, 1, f"pick({at})"))
        here = at == selected
        row: Row = [(cursor(glyphs) if here else " ", "key"), (mark(at), "attention")]
        for column, text in zip(shown, cells(columns, shown, rows[at])):
            row += [(text, role(at, column.number, here)), (GAP, "")]
        drawn.append(fit_row(row[:-1], width))
    return View(drawn, zones)
