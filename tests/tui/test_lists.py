"""What the screens of jobs and of runs have in common: help, settings, keys that do nothing."""

import asyncio

import pytest

from gpumon.config import Settings, load_settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.help import HelpDialog
from gpumon.tui.dialogs.settings import SettingsDialog
from gpumon.tui.lists import Order
from gpumon.tui.overview.app import JobsApp
from gpumon.tui.overview.app import State as JobsState
from gpumon.tui.runs.screen import RunsApp
from gpumon.tui.runs.screen import State as RunsState
from gpumon.tui.screen_app import Clickable
from tests.support.waiting import HANGS_S
from tests.tui.conftest import fill
from tests.tui.dialogs.test_settings import config
from tests.tui.overview.test_overview import MadeJobs
from tests.tui.runs.made import MadeLibrary
from tests.tui.test_app import Still

__all__ = ["config"]  # a fixture
DARK = Settings(theme="dark")


def dashboard():
    store, now = fill(20)
    return GpumonApp(Pipeline(Still(now), store=store), DARK, library=MadeLibrary())


LISTS = {
    "jobs": (lambda: JobsApp(MadeJobs(), DARK, "ada", JobsState()), ()),
    "runs": (lambda: RunsApp(MadeLibrary(), DARK, RunsState()), ()),
    "runs over the dashboard": (dashboard, ("6",)),
}


@pytest.fixture(params=LISTS)
def opened(request, config):
    make, keys = LISTS[request.param]
    return make(), keys


def parts(app, above=0):
    """Of the list, under so many dialogs."""
    return {each.id: each for each in app.screen_stack[-1 - above].query(Clickable)}


async def begun(pilot, keys):
    """Until the list is read."""
    await pilot.press(*keys)
    await reached(pilot, lambda: "471" in parts(pilot.app)["view"].text)


async def reached(pilot, condition):
    deadline = asyncio.get_running_loop().time() + HANGS_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await pilot.pause(0.01)


@pytest.mark.parametrize("key", ["h", "question_mark", "f1"])
async def test_help_has_three_keys_everywhere(opened, key):
    app, keys = opened
    async with app.run_test(size=(120, 40)) as pilot:
        await begun(pilot, keys)
        await pilot.press(key)
        assert isinstance(app.screen, HelpDialog)
        await pilot.press(key)
        assert not isinstance(app.screen, HelpDialog)


async def test_settings_are_changed_shown_and_kept(opened, config):
    app, keys = opened
    async with app.run_test(size=(120, 40)) as pilot:
        await begun(pilot, keys)
        await pilot.press("f2")
        assert isinstance(app.screen, SettingsDialog)
        await pilot.press("right", "escape")
        await reached(pilot, lambda: "saved theme in /" in parts(app)["keys"].text)
        assert {part.palette for part in parts(app).values()} == {"light"}
        await pilot.press("f2", "escape")  # it is what it was left at
        assert parts(app)["view"].palette == "light"
    assert load_settings().theme == "light"


async def test_the_palette_of_actions_has_them(opened):
    app, keys = opened
    async with app.run_test(size=(120, 40)) as pilot:
        await begun(pilot, keys)
        before = len(app.screen_stack)
        await pilot.press("ctrl+p")
        await reached(pilot, lambda: len(app.screen_stack) > before)
        await pilot.press(*"settings")
        await reached(pilot, lambda: app.screen.query_one("CommandList").option_count == 1)
        await pilot.press("enter")
        await reached(pilot, lambda: isinstance(app.screen, SettingsDialog))


async def test_a_key_that_does_nothing_says_so(opened):
    app, keys = opened
    async with app.run_test(size=(120, 40)) as pilot:
        await begun(pilot, keys)
        await pilot.press("z")
        await reached(pilot, lambda: "z does nothing here" in parts(app)["keys"].text)
        await pilot.press("f5")
        await reached(pilot, lambda: "F5 does nothing here" in parts(app)["keys"].text)


def test_the_same_column_again_is_the_other_way_round():
    order = Order("name", filter_text="x").by("size")
    assert order == Order("size", filter_text="x")
    assert order.by("size") == Order("size", is_reversed=True, filter_text="x")
    assert order.by("size").by("size") == order
