"""Questions that a way to the nodes must ask: passwords, codes, yes or no.

They come from other threads, which wait for the answer; only the screen reads the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from gpumon.model.text import clean

if TYPE_CHECKING:
    from gpumon.transport.prompt import Question


class Prompts(Protocol):
    """A broker between the threads that ask and the screen. Thread-safe; no call waits."""

    def listen(self, changed: Callable[[], None]) -> None:
        """Have this called when there is another question, or none."""

    def pending(self) -> Question | None:
        """The question to ask now; the same object until it is answered or withdrawn."""

    def answer(self, question: Question, text: str | None) -> None:
        """None refuses. To `yes-no`: `yes` or `no`."""


_TITLES = {"password": "Password", "passphrase": "Passphrase of a key", "code": "Second factor"}
_MOST_LINES = 12


class PromptDialog(ModalScreen["str | None"]):
    """Asks one question; what is typed shows as dots. Esc refuses."""

    BINDINGS = [("escape", "dismiss(None)", "refuse")]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical(classes="dialog"):
            title = _TITLES.get(question.kind, "Question")
            about = clean(question.host, 200)
            yield Label(f"{title} for {about}" if about else title, markup=False, id="asked")
            for line in question.text.splitlines()[:_MOST_LINES]:
                yield Label(clean(line, 400), markup=False)
            if question.kind == "yes-no":
                with Horizontal(classes="buttons"):  # the harmless one has the focus
                    yield Button("No", id="no")
                    yield Button("Yes", id="yes")
            else:
                yield Input(password=True, id="answer")
            yield Label("Enter send · Esc cancel", classes="dim", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id)


class Asker:
    """Shows the pending question in a dialog over whatever is on the screen."""

    def __init__(self, app: App[None], prompts: Prompts) -> None:
        self._app = app
        self._prompts = prompts
        self._dialog: PromptDialog | None = None

    def update(self) -> None:
        """Open, keep or close the dialog, as the broker says."""
        question, dialog = self._prompts.pending(), self._dialog
        if dialog is not None:
            if question is not dialog.question:  # withdrawn: the node is gone, say
                self._dialog = None
                if dialog.is_current:
                    dialog.dismiss(None)
        elif question is not None:
            self._ask(PromptDialog(question))

    def _ask(self, dialog: PromptDialog) -> None:
        def take(text: str | None) -> None:
            if self._dialog is dialog:
                self._dialog = None
                self._prompts.answer(dialog.question, text)

        self._dialog = dialog
        self._app.push_screen(dialog, take)

    def refuse(self) -> None:
        """Leaving: whoever waits for an answer gets none."""
        if (question := self._prompts.pending()) is not None:
            self._prompts.answer(question, None)
