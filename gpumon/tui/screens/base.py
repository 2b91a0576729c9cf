"""What all screens have in common, and what they ask of the program around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar

from textual.screen import ModalScreen

from gpumon.tui.keys import Key
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.title import title_row
from gpumon.tui.parts.view import View
from gpumon.tui.selection import Selection

T = TypeVar("T")


class Shell(Protocol):
    """The program around the screens: it draws after every action."""

    moment: Moment  # drawn last
    pane: Pane  # shown now

    def show(self, name: str) -> None:
        """Change to another screen."""

    def leave(self) -> None:
        """Go back from the first screen of a task to its array, if there is one."""

    def say(self, message: str) -> None:
        """One line in the place of the key bar, for some seconds."""

    def ask(self, dialog: ModalScreen[T | None], take: Callable[[T], None]) -> None:
        """Open a dialog; `take` gets its answer, if there is one."""

    def copy_to_clipboard(self, text: str) -> None: ...


class Actor:
    """Keys and what they do: the methods `action_NAME`, by the names in the tables of keys.

    bar_where: what `Key.where` may name because of it, beside screens.
    """

    keys: ClassVar[tuple[Key, ...]] = ()
    bar_where: tuple[str, ...] = ()

    def __init__(self, shell: Shell) -> None:
        self.shell = shell


class Pane(Actor):
    """One screen: its state, how it is drawn, its keys and what they do."""

    name: ClassVar[str]
    wheel: ClassVar[int] = 1  # rows, or devices
    lacks: ClassVar[str] = "not on this screen"  # what it says to other keys

    def __init__(self, shell: Shell, selection: Selection) -> None:
        super().__init__(shell)
        self.selection = selection

    def draw(self, moment: Moment, width: int, height: int) -> View:
        raise NotImplementedError

    def title(self, moment: Moment, width: int) -> Row:
        """The first row of the terminal."""
        return title_row(moment, width)

    def choose(self, moment: Moment) -> None:
        """Put the selection on what Enter would open."""

    def entered(self, before: str) -> None:
        """It is shown, after the screen of that name."""

    @property
    def actor(self) -> Pane:
        """The screen whose cursor is shown and moved here."""
        return self

    def beside(self, bar: str) -> str:
        """What the key bar says beside a key's text."""
        return self.shell.moment.span_text if bar == "Zoom" else ""

    def action_move(self, step: int) -> None:
        moment = self.shell.moment
        last = max(0, len(moment.devices) - 1)
        before = self.selection.place(moment)
        self.selection.pick(moment, min(max(before + step, 0), last))
        if self.selection.device == before:
            which = "only" if not last else "first" if step < 0 else "last"
            self.shell.say(f"this is the {which} GPU" if moment.devices else "no GPU to select")

    def action_pick(self, place: int) -> None:
        self.selection.pick(self.shell.moment, place)

    def action_open(self) -> None:
        """Enter: the device under the cursor, large."""
        self.choose(self.shell.moment)
        self.shell.show("device")

    def action_leave(self) -> None:
        """Esc: one up."""
        if self.shell.pane.name == "job":
            self.shell.leave()
        else:
            self.shell.show("job")
