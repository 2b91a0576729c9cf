"""Questions that a way to the nodes must ask: passwords, codes, yes or no.

They come from other threads, which wait for the answer; only the screen reads the keyboard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from gpumon.model.text import clean

if TYPE_CHECKING:
    from textual.app import App

    class _Host(App[None]):
        prompts: Prompts | None
else:
    _Host = object


class Question(Protocol):
    """One question, for people."""

    @property
    def text(self) -> str:
        """What is asked, as the other side words it: hostile, possibly of several lines."""

    @property
    def about(self) -> str:
        """For whom: `ada@login1`."""

    @property
    def kind(self) -> str:
        """`password`, `passphrase`, `code` (a second factor) or `yes-no`."""


class Prompts(Protocol):
    """A broker between the threads that ask and the screen. Thread-safe; no call waits."""

    def pending(self) -> Question | None:
        """The question to ask now; the same object until it is answered or withdrawn."""

    def answer(self, text: str | None) -> None:
        """Of the pending question; None refuses. To `yes-no`: `yes` or `no`."""


_TITLES = {
    "password": "Password", "passphrase": "Passphrase of a key", "code": "Second factor",
    "yes-no": "Question",
}  # fmt: skip
_MOST_LINES = 12


class PromptScreen(ModalScreen["str | None"]):
    """Asks one question; what is typed shows as dots. Esc refuses."""

    BINDINGS = [("escape", "dismiss(None)", "refuse")]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical(classes="dialog"):
            title = _TITLES.get(question.kind, "Question")
            about = clean(question.about, 200)
            yield Label(f"{title} for {about}" if about else title, markup=False, id="asked")
            for line in question.text.splitlines()[:_MOST_LINES]:
                yield Label(clean(line, 400), markup=False)
            if question.kind == "yes-no":
                with Horizontal(classes="buttons"):  # the harmless one has the focus
                    yield Button("No", id="no")
                    yield Button("Yes", id="yes")
            else:
                yield Input(password=True, id="answer")
            yield Label("Enter answers · Esc refuses", classes="dim", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id)


class PromptActions(_Host):
    """The app's part: the pending question in a dialog over whatever is shown."""

    _asking: PromptScreen | None = None

    def ask_pending(self) -> None:
        """Open, keep or close the dialog, as the broker says."""
        if self.prompts is None:
            return
        question = self.prompts.pending()
        asking = self._asking
        if asking is not None:
            if question is not asking.question:  # withdrawn: the node is gone, say
                self._asking = None
                if asking.is_current:
                    asking.dismiss(None)
            return
        if question is None:
            return
        screen = self._asking = PromptScreen(question)

        def take(text: str | None) -> None:
            if self._asking is screen and self.prompts is not None:
                self._asking = None
                self.prompts.answer(text)

        self.push_screen(screen, take)

    def refuse_pending(self) -> None:
        """Leaving: whoever waits for an answer gets none."""
        if self.prompts is not None and self.prompts.pending() is not None:
            self.prompts.answer(None)
