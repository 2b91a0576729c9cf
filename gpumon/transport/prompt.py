"""Asking people for what a login needs: a password, a passphrase, a code.

Before the screen starts the terminal asks; later a dialog does, in the screen's own thread, while
the thread that logs in waits.
"""

from __future__ import annotations

import getpass
import sys
import termios
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from gpumon import ending
from gpumon.transport.unhurried import unhurried

Kind = Literal["password", "passphrase", "code", "yes-no"]


class Question(NamedTuple):
    """`host` asks (for a passphrase: the key's file); `text` may have several lines, is clean."""

    host: str
    text: str
    secret: bool  # not to be shown while typed
    kind: Kind
    attempt: int = 1  # above 1: the answer before was wrong


class Prompter(Protocol):
    def ask(self, question: Question) -> str | None:
        """The answer; None when it was cancelled or nobody is there. Blocks; from any thread."""


class TerminalPrompter:
    """Asks on the terminal, before there is a screen; where there is none, nobody answers."""

    def ask(self, question: Question) -> str | None:
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        again = "not accepted, try again\n" if question.attempt > 1 else ""
        print(f"{again}{question.host}:", file=sys.stderr)
        *above, last = question.text.rstrip().split("\n")
        for line in above:
            print(line, file=sys.stderr)
        try:
            if question.secret:
                with ending.undone(_echo()):
                    return getpass.getpass(f"{last} ")
            print(f"{last} ", end="", file=sys.stderr, flush=True)
            return input()
        except (EOFError, OSError, KeyboardInterrupt):  # OSError: the terminal is gone
            return None


def _echo() -> Callable[[], None]:
    """Puts the terminal back to what it is now: an end in the middle of a password."""
    terminal = sys.stdin.fileno()
    attributes = termios.tcgetattr(terminal)
    return lambda: termios.tcsetattr(terminal, termios.TCSANOW, attributes)


class PromptBroker:
    """Hands questions from the threads that log in to a screen, one at a time.

    The screen calls `pending`, shows what it gets, and calls `answer`; `changed` is called when
    `pending` is another one.
    """

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._asking = threading.Lock()  # held while one question is open
        self._answered = threading.Condition()
        self._question: Question | None = None
        self._answer: str | None = None
        self._closed = False

    def ask(self, question: Question) -> str | None:
        with self._asking, self._answered:
            if self._closed:
                return None
            self._question, self._answer = question, None
            self.changed()
            self._answered.wait_for(lambda: self._question is None)
            return self._answer

    def pending(self) -> Question | None:
        """The question that waits for an answer; never blocks."""
        return self._question

    def answer(self, question: Question, text: str | None) -> None:
        """None: cancelled. An answer to a question that is no longer open is dropped."""
        with self._answered:
            if self._question is question:
                self._answer, self._question = text, None
                self._answered.notify_all()
                self.changed()

    def close(self) -> None:
        """Cancel what is open and whatever comes: the screen ends."""
        with self._answered:
            self._closed = True
            self._answer = self._question = None
            self._answered.notify_all()
            self.changed()


class RememberingPrompter:
    """Asks each question once, one at a time: 64 nodes with one key need one passphrase.

    An answer, also "cancelled", serves again for the same host, kind and text until a question
    comes with a higher attempt. Codes are always asked: each is good for one login.
    """

    def __init__(self, prompter: Prompter) -> None:
        self._prompter = prompter
        self._lock = threading.Lock()
        self._answers: dict[Question, tuple[int, str | None]] = {}

    def ask(self, question: Question) -> str | None:
        key = question._replace(attempt=1)
        with unhurried(), self._lock:
            if question.kind == "code":
                return self._prompter.ask(question)
            attempt, answer = self._answers.get(key, (0, None))
            if attempt < question.attempt:
                answer = self._prompter.ask(question)
                self._answers[key] = (question.attempt, answer)
            return answer
