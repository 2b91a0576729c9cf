"""A page of text to scroll through, such as a report."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static


class PageDialog(ModalScreen[None]):
    """The text, with colours as a terminal takes them."""

    BINDINGS = [("escape,q,r", "dismiss", "close")]

    def __init__(self, page: str) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page"):
            yield Static(Text.from_ansi(self._page, no_wrap=True))
        yield Label(" ↑↓ scroll · Esc back", classes="dim", markup=False)
