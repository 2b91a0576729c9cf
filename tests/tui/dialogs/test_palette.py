"""The command palette: every action of the tables of keys, by its name."""

from __future__ import annotations

import pytest
from textual.command import CommandPalette

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.palette import open_palette
from gpumon.tui.overview.app import KEYS as JOBS_KEYS
from gpumon.tui.runs.screen import KEYS as RUNS_KEYS
from gpumon.tui.screens import ARRAY_KEYS, KEYS
from tests.support.waiting import HANGS_S
from tests.tui.conftest import fill
from tests.tui.test_app import Still


@pytest.fixture
def app():
    store, now = fill(120)
    return GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))


@pytest.mark.parametrize("keys", [KEYS, ARRAY_KEYS, JOBS_KEYS, RUNS_KEYS])
def test_every_action_but_moving_is_in_it(keys):
    found = []

    class Shows:
        def search_commands(self, commands, placeholder):
            found.extend(commands)

    open_palette(Shows(), keys, print)
    wanted = {key.help for key in keys if key.help and key.action != "palette"}
    wanted -= {key.help for key in keys if key.action.startswith("move")}
    texts = [command.name.lower() for command in found]
    assert all(any(help.lower() in text for text in texts) for help in wanted)


async def test_an_action_is_found_and_done(app):
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("ctrl+p")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press(*"heatmap")
        for _ in range(int(HANGS_S / 0.05)):
            if app.pane.name == "nodes":
                break
            await pilot.pause(0.05)
            await pilot.press("enter")
        assert app.pane.name == "nodes"
        assert len(app.screen_stack) == 1


async def test_a_message_covers_no_data(app):
    """It stands in the place of the key bar, which comes back."""
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space")  # nothing changes any more
        view = app._parts["view"].text
        await pilot.press("g")  # a key of replays
        assert "for replays" in app._parts["keys"].text
        assert app._parts["view"].text == view
        app._said = (app._said[0], 0.0)
        app.draw()
        assert "q Quit" in app._parts["keys"].text


async def test_a_key_without_an_action_says_so(app):
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("W")
        assert "W does nothing here; ? lists the keys" in app._parts["keys"].text
        await pilot.press("question_mark", "w", "escape")  # not what is typed in a dialog
        app._said = ("", 0.0)
        await pilot.press("2")
        assert "nothing here" not in app._parts["keys"].text
