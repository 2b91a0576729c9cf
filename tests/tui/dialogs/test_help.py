"""The help: groups of keys, on pages that fit the screen."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.help import HelpDialog, help_pages
from gpumon.tui.overview.app import KEYS as JOBS_KEYS
from gpumon.tui.runs.screen import KEYS as RUNS_KEYS
from gpumon.tui.screens import ARRAY_KEYS, KEYS
from tests.tui.conftest import fill
from tests.tui.test_app import Still


def plain(page):
    return Text.from_markup(page.replace("$accent", "red")).plain.splitlines()


@pytest.mark.parametrize("keys", [KEYS, ARRAY_KEYS, JOBS_KEYS, RUNS_KEYS])
@pytest.mark.parametrize("size", [(40, 20), (74, 20), (96, 36), (96, 56)])
def test_every_page_fits_and_every_key_is_on_one(keys, size):
    width, height = size
    pages = [plain(page) for page in help_pages(keys, width, height)]
    if width >= 74:
        assert max(map(len, pages)) <= height
        assert max(cell_len(line) for page in pages for line in page) <= width
    text = " ".join(" ".join(line for page in pages for line in page).split())
    assert all(" ".join(key.help.split()) in text for key in keys if key.help)
    assert len({page.count("\n") for page in help_pages(keys, width, height)}) == 1  # none jumps


def test_keys_stand_in_groups_with_the_words_last():
    pages = [plain(page) for page in help_pages(KEYS, 96, 100)]
    (page,) = pages
    headings = [page[0], *(line for before, line in zip(page, page[1:]) if not before)]
    assert headings == [
        "Screens", "Select", "Time", "Replay", "Lists", "Report", "gpumon", "Words"
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["question_mark", "h", "f1"])
async def test_keys_that_open_it_close_it_and_tab_turns(key):
    store, now = fill(20)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        dialog = app.screen
        assert isinstance(dialog, HelpDialog)
        assert dialog.query_one(".help").region.height <= 24
        before = str(dialog.query_one("#help-page").render())
        await pilot.press("tab")
        assert str(dialog.query_one("#help-page").render()) != before
        assert "Page 2 of " in str(dialog.query_one("#help-below").render())
        await pilot.press("left", key)
        assert app.screen is not dialog


async def test_on_a_wide_screen_it_is_one_page_of_two_columns():
    store, now = fill(20)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("question_mark")
        dialog = app.screen
        assert "Page" not in str(dialog.query_one("#help-below").render())
        beside = dialog.query_one("#help-beside")
        assert beside.region.x > 90
        assert "Words" in str(beside.render())
