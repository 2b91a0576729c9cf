"""A list of which one thing is selected, of jobs or of recorded runs: cursor, order, filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from textual.screen import ModalScreen

from gpumon.tui.dialogs.line import LineDialog

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
    _state: ListState

    def _items(self) -> list[Item]:
        """Those that are shown, in their order."""
        raise NotImplementedError

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
