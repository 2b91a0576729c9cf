"""Who is asked, when, and how often."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from gpumon.transport.prompt import PromptBroker, Question, RememberingPrompter, TerminalPrompter
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S, until

PASSWORD = Question("login", "password:", True, "password")
CODE = Question("login", "code:", False, "code")


class Answers:
    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = []

    def ask(self, question):
        self.asked.append(question)
        return self.left.pop(0)


def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


def test_a_screen_answers_from_another_thread():
    broker = PromptBroker()
    assert broker.pending() is None
    thread, found = in_thread(lambda: broker.ask(PASSWORD))
    until(lambda: broker.pending() == PASSWORD)
    broker.answer(CODE, "not the question")
    assert broker.pending() == PASSWORD
    broker.answer(PASSWORD, "secret")
    thread.join(HANGS_S)
    assert found == ["secret"]
    assert broker.pending() is None
    broker.answer(PASSWORD, "too late")


def test_questions_come_one_at_a_time():
    broker = PromptBroker()
    threads = [in_thread(lambda q=q: (q.kind, broker.ask(q))) for q in (PASSWORD, CODE)]
    answered = []
    for _ in threads:
        until(lambda: broker.pending() is not None)
        question = broker.pending()
        answered.append(question.kind)
        broker.answer(question, question.kind.upper())
    for thread, found in threads:
        thread.join(HANGS_S)
        assert found[0][1] == found[0][0].upper()
    assert sorted(answered) == ["code", "password"]


def test_closing_cancels_what_is_open_and_what_comes():
    broker = PromptBroker()
    threads = [in_thread(lambda: broker.ask(PASSWORD)) for _ in range(2)]
    until(lambda: broker.pending() is not None)
    broker.close()
    for thread, found in threads:
        thread.join(HANGS_S)
        assert found == [None]
    assert broker.ask(CODE) is None


def test_the_same_question_is_asked_once():
    answers = Answers("secret", None)
    prompter = RememberingPrompter(answers)
    assert [prompter.ask(PASSWORD) for _ in range(3)] == ["secret"] * 3
    other = PASSWORD._replace(host="other")
    assert [prompter.ask(other) for _ in range(3)] == [None] * 3
    assert answers.asked == [PASSWORD, other]


def test_a_wrong_answer_is_asked_for_again_and_then_remembered():
    answers = Answers("wrong", "right")
    prompter = RememberingPrompter(answers)
    again = PASSWORD._replace(attempt=2)
    asked = [prompter.ask(PASSWORD), prompter.ask(again), prompter.ask(PASSWORD)]
    assert asked == ["wrong", "right", "right"]


def test_codes_are_never_remembered():
    prompter = RememberingPrompter(Answers("1", "2"))
    assert [prompter.ask(CODE), prompter.ask(CODE)] == ["1", "2"]


def test_where_there_is_no_terminal_nobody_answers(monkeypatch):
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert TerminalPrompter().ask(PASSWORD) is None


ASK = """
from gpumon.transport.prompt import Question, TerminalPrompter
ask = TerminalPrompter().ask
text = "1. Push" + chr(10) + "Code:"
print([ask(Question("login", text, False, "code")),
       ask(Question("login", "password:", True, "password", 2)),
       ask(Question("login", "code:", True, "code"))])
"""


@pytest.mark.terminal
def test_a_terminal_is_asked_and_does_not_show_secrets():
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
        env=environment(), start_new_session=True, text=True,
    )  # fmt: skip
    os.close(theirs)
    screen = b""
    for end, typed in ((b"Code: ", b"77\n"), (b"password: ", b"hidden\n"), (b"code: ", b"\x04")):
        while not screen.endswith(end):
            screen += os.read(ours, 1000)
        os.write(ours, typed)
    out, _ = program.communicate(timeout=HANGS_S)
    assert out == "['77', 'hidden', None]\n"
    assert b"login:\r\n1. Push\r\nCode: " in screen
    assert b"not accepted" in screen
    assert b"hidden" not in screen
