"""Who asks people for passwords: the terminal until the screen opens, then a dialog of it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.sources.prompt import PromptBroker, Question, TerminalPrompter


class Asked(NamedTuple):
    """A question as the screen shows it."""

    question: Question

    @property
    def text(self) -> str:
        return self.question.text

    @property
    def about(self) -> str:
        return self.question.host

    @property
    def kind(self) -> str:
        return self.question.kind


class Prompting:
    """A prompter for the ways to nodes, and the broker that the screen polls."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self._broker: PromptBroker | None = None
        self._asked: Asked | None = None

    def ask(self, question: Question) -> str | None:
        return (self._broker or self._terminal).ask(question)

    def to_screen(self) -> None:
        """From now on the screen asks."""
        self._broker = PromptBroker()

    def close(self) -> None:
        """Nobody is there to answer any more."""
        if self._broker is not None:
            self._broker.close()

    # -- for the screen

    def pending(self) -> Asked | None:
        """The question that waits; the same object until it is answered or withdrawn."""
        question = self._broker.pending() if self._broker is not None else None
        if question is None:
            self._asked = None
        elif self._asked is None or self._asked.question is not question:
            self._asked = Asked(question)
        return self._asked

    def answer(self, text: str | None) -> None:
        if self._broker is not None and self._asked is not None:
            self._broker.answer(self._asked.question, text)
