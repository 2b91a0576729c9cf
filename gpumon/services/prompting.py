"""Where to prompt for passwords: on the terminal until the screen opens, then in a dialog."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.transport.prompt import PromptBroker, Question, TerminalPrompter


class Prompting:
    """A prompter for the ways to nodes, and the broker that the screen asks."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self._broker: PromptBroker | None = None

    def ask(self, question: Question) -> str | None:
        return (self._broker or self._terminal).ask(question)

    def to_screen(self) -> None:
        """From now on the screen prompts."""
        self._broker = PromptBroker()

    def close(self) -> None:
        """Prompts can no longer be answered."""
        if self._broker is not None:
            self._broker.close()

    # -- for the screen

    def listen(self, changed: Callable[[], None]) -> None:
        if self._broker is not None:
            self._broker.changed = changed

    def pending(self) -> Question | None:
        """The question that waits; the same object until it is answered or withdrawn."""
        return self._broker.pending() if self._broker is not None else None

    def answer(self, question: Question, text: str | None) -> None:
        if self._broker is not None:
            self._broker.answer(question, text)
