"""One of a few things, from a table of them, before there is anything else to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from gpumon.config import Settings
from gpumon.model.text import clean
from gpumon.terminal import prepare_output
from gpumon.tui.columns import GAP, Column, cells, placed, titles
from gpumon.tui.screen_app import ScreenApp, run_to_end

#: cells beside the rows: border, padding of the dialog and of each row, a scroll bar
_AROUND = 10
_SHARE = 0.9  # of the screen, as in app.tcss


class Choice(NamedTuple):
    """One thing to choose: a cell for each column, any text."""

    id: str
    cells: Sequence[str]


class ChoiceDialog(ModalScreen["str | None"]):
    """Enter chooses, Esc chooses none."""

    BINDINGS = [("escape,q", "dismiss(None)", "none")]

    def __init__(self, title: str, columns: Sequence[Column], choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = clean(title, 200)
        self._columns = columns
        self._choices = choices

    def compose(self) -> ComposeResult:
        rows = [[clean(cell, 80) for cell in choice.cells] for choice in self._choices]
        shown = placed(self._columns, rows, max(8, int(self.app.size.width * _SHARE) - _AROUND))
        width = sum(each.width for each in shown) + len(GAP) * (len(shown) - 1)
        with Vertical(classes="dialog") as dialog:
            dialog.styles.width = max(width, cell_len(self._title)) + _AROUND
            yield Label(self._title, markup=False, id="asked")
            if any(column.title for column in self._columns):
                head = GAP.join(titles(self._columns, shown)).rstrip()
                yield Label(f" {head}", classes="dim", markup=False, id="head")
            options = [GAP.join(cells(self._columns, shown, row)).rstrip() for row in rows]
            yield OptionList(*(Option(text) for text in options), markup=False)
            yield Label("Enter select · Esc cancel", classes="dim", markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index].id)


class ChoiceApp(ScreenApp["str | None"]):
    """The dialog alone, on the whole terminal."""

    def __init__(self, dialog: ChoiceDialog, theme_setting: str) -> None:
        super().__init__(Settings(theme=theme_setting))
        self._dialog = dialog

    def on_mount(self) -> None:
        self.push_screen(self._dialog, self.exit)


def choose(
    title: str, columns: Sequence[Column], choices: Sequence[Choice], theme_setting: str = ""
) -> str | None:
    """Ask on the whole terminal which one; its id, or None when the user leaves."""
    prepare_output()
    dialog = ChoiceDialog(title, columns, choices)
    return run_to_end(ChoiceApp(dialog, theme_setting))
