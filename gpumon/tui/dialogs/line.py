"""One line of text at the bottom: a filter, a time to go to, a mark."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label


class LineDialog(ModalScreen["str | None"]):
    """Enter takes the line, Esc leaves all as it was.

    complaint: what is wrong with a line, "" if nothing; with it, an empty line is an answer, too.
    """

    BINDINGS = [("escape", "dismiss(None)", "cancel")]

    def __init__(
        self, placeholder: str, text: str = "", *, complaint: Callable[[str], str] | None = None
    ) -> None:
        super().__init__()
        self._placeholder = placeholder
        self._text = text
        self._complaint = complaint

    def compose(self) -> ComposeResult:
        with Vertical(classes="bottom"):
            if self._complaint is not None:
                yield Label("", id="wrong")
            yield Input(self._text, placeholder=self._placeholder)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._complaint is not None:
            self.query_one("#wrong", Label).update(self._complaint(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        line = event.value.strip()
        if self._complaint is None:
            self.dismiss(line or None)
        elif not self._complaint(line):
            self.dismiss(line)
