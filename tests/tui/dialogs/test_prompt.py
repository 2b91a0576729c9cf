"""Questions of other threads, in dialogs."""

import threading

import pytest
from textual.widgets import Input, Label

from gpumon.services.prompting import Prompting
from gpumon.transport.prompt import Question
from gpumon.tui.dialogs.prompt import PromptDialog
from tests.tui import cluster
from tests.tui.test_app import text
from tests.tui.test_attached import app_of, settled


def on_screen():
    """The broker that `gpumon attach` gives to the screen."""
    broker = Prompting()
    broker.to_screen()
    return broker


def question(kind, text):
    return Question("ada@login1", text, kind != "yes-no", kind)


def asking(broker, *questions):
    got = []
    thread = threading.Thread(target=lambda: got.extend(map(broker.ask, questions)), daemon=True)
    thread.start()
    return thread, got


async def dialog(pilot, text):
    """Wait for the dialog of that question, ready for keys."""

    def is_open():
        screen = pilot.app.screen
        asks = isinstance(screen, PromptDialog) and screen.question.text == text
        return asks and screen.focused is not None

    await settled(pilot, is_open)
    return pilot.app.screen


@pytest.mark.slow
async def test_questions_of_another_thread_are_answered_in_dialogs():
    broker = on_screen()
    app = app_of(cluster.fill(1, seconds=2), prompts=broker)
    async with app.run_test(size=(80, 24)) as pilot:
        thread, got = asking(
            broker, question("password", "Password:"), question("code", "Duo\n1. Push"),
            question("yes-no", "Trust \x1b[31mthis key?"), question("yes-no", "Really?"),
            question("passphrase", "id_ed25519"),
        )  # fmt: skip
        screen = await dialog(pilot, "Password:")
        assert screen.query_one("#asked").content == "Password for ada@login1"
        assert screen.query_one(Input).password
        await pilot.press(*"q4?secret", "enter")  # no key of the dashboard is taken from it
        await dialog(pilot, "Duo\n1. Push")
        await pilot.press("1", "enter")
        screen = await dialog(pilot, "Trust \x1b[31mthis key?")
        assert "\x1b" not in "".join(str(label.content) for label in screen.query(Label))
        assert screen.query_one("#no").has_focus
        await pilot.press("enter")
        await dialog(pilot, "Really?")
        await pilot.press("tab", "enter")
        await dialog(pilot, "id_ed25519")
        await pilot.press("escape")
        await settled(pilot, lambda: not thread.is_alive())
    assert got == ["q4?secret", "1", "no", "yes", None]
    assert "secret" not in text(app)


async def test_a_question_that_is_withdrawn_closes_its_dialog():
    broker = on_screen()
    app = app_of(cluster.fill(1, seconds=2), prompts=broker)
    async with app.run_test(size=(80, 24)) as pilot:
        thread, got = asking(broker, question("password", "Password:"))
        await dialog(pilot, "Password:")
        broker.close()
        await settled(pilot, lambda: not isinstance(app.screen, PromptDialog))
        thread.join(60)
        assert got == [None]


async def test_a_question_comes_also_over_another_dialog_and_a_frozen_screen():
    broker = on_screen()
    app = app_of(cluster.fill(1, seconds=2), prompts=broker)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space", "question_mark")
        _, got = asking(broker, question("password", "Password:"))
        await dialog(pilot, "Password:")
        await pilot.press("x", "enter")
        await settled(pilot, lambda: got == ["x"])


async def test_quitting_refuses_what_is_asked():
    broker = on_screen()
    app = app_of(cluster.fill(1, seconds=2), prompts=broker)
    async with app.run_test(size=(80, 24)) as pilot:
        thread, got = asking(broker, question("password", "Password:"))
        await dialog(pilot, "Password:")
        app.exit()
    thread.join(60)
    assert got == [None]
