"""The screen of recorded runs: alone, and over the dashboard."""

from __future__ import annotations

import re
import threading
import time

import pytest

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.report.render.runs import cells, text_table
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.choice import ChoiceDialog
from gpumon.tui.dialogs.page import PageDialog
from gpumon.tui.lines import plain
from gpumon.tui.lists import Order
from gpumon.tui.runs.screen import RunsApp, RunsScreen, State
from gpumon.tui.runs.table import details, ordered, table
from gpumon.tui.screen_app import Clickable
from tests.support.waiting import HANGS_S
from tests.tui.conftest import fill
from tests.tui.runs.made import RUNS, MadeLibrary, run
from tests.tui.test_app import Still

NEWEST, OLDER, TORN = RUNS


def rows(width, **order):
    runs = ordered(RUNS, Order(**{"sort": "start", **order}))
    return plain(
        table(runs, Order(**{"sort": "start", **order}), (), (0, 0), (width, 20), "ascii").rows
    ).splitlines()


def ids(**order):
    return [each.id for each in ordered(RUNS, Order(**{"sort": "start", **order}))]


# -- the table -----------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_row_is_wider_than_the_screen_and_each_has_its_id(width):
    shown = rows(width)
    assert max(map(len, shown)) <= width
    assert [line[3:].split()[0] for line in shown[1:]] == [each.id for each in RUNS]


def test_a_row_says_what_where_when_and_how_long():
    head, newest, _, torn = rows(120)
    assert head.split() == ["ID", "what", "where", "start", "length", "size", "state"]
    assert re.search(r"4712 +train-bf16 +gpu01 \+1 +\d\d Nov +.* 14 min +4 MiB +ended$", newest)
    assert re.search(r"184000 +8 × A100-SXM4-80GB +gpu03|gpu01 .* 45 s +900 B +torn$", torn)


def test_sorting_and_filter():
    assert ids() == [NEWEST.id, OLDER.id, TORN.id]
    assert ids(sort="length") == ids(sort="size") == [OLDER.id, NEWEST.id, TORN.id]
    assert ids(sort="what") == [TORN.id, NEWEST.id, OLDER.id]
    assert ids(sort="what", is_reversed=True)[0] == OLDER.id
    assert ids(filter_text="TRAIN gpu01 fp32") == [OLDER.id]


def test_details_name_all_nodes_and_the_files():
    text = plain(details(NEWEST, 100))
    assert "job 4712 train-bf16  1 × A100-SXM4-80GB  gpu01, gpu02" in text
    assert "/state/jobs/4712/4712-gpu01.gpumon and 1 more" in text
    assert plain(details(TORN, 100)).startswith(" no job  8 × A100")


def test_what_a_run_holds_reaches_the_terminal_clean(monkeypatch):
    bad = run("4713", 10, 5, 1, job="4713", name="\x1b[2Jx", nodes=("n\n1",))
    assert "\x1b" not in "".join(cells(bad))
    assert len(text_table([bad], "/state").splitlines()) == 4
    monkeypatch.setenv("HOME", "/state")
    assert text_table(RUNS, "/state/jobs").endswith("\n3 runs, 13 MiB in ~/jobs\n")


# -- the screen ----------------------------------------------------------------------------------
def text(app):
    return "\n".join(part.text for part in app.screen.query(Clickable))


async def reached(pilot, holds):
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < deadline, text(pilot.app)
        await pilot.pause(0.01)


async def read(pilot):
    await reached(pilot, lambda: "runs," in text(pilot.app))


@pytest.fixture
def library():
    return MadeLibrary()


@pytest.fixture
def app(library):
    return RunsApp(library, Settings(theme="dark"), State())


async def test_what_is_chosen_is_replayed(app):
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        await pilot.press("down", "enter")
    assert app.return_value is OLDER


async def test_a_report_and_what_it_fails_with(app, library):
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        await pilot.press("r")
        await reached(pilot, lambda: isinstance(app.screen, PageDialog))
        await pilot.press("escape", "end", "r")
        await reached(pilot, lambda: f"cannot read {TORN.id}" in text(app))
    assert library.asked == [("report", NEWEST.id), ("report", TORN.id)]


@pytest.mark.parametrize(
    ("keys", "pair"),
    [
        ("c", (OLDER, NEWEST)),  # with the one before
        ("end m home c", (TORN, NEWEST)),  # with the marked one
        ("m m c", (OLDER, NEWEST)),  # the marked ones, wherever the cursor is
        ("end c", None),
        ("m m m c", None),
    ],
)
async def test_two_are_compared_the_older_one_first(app, library, keys, pair):
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        await pilot.press(*keys.split())
        if pair is None:
            await reached(pilot, lambda: "mark" in text(app).splitlines()[-1])
            assert library.asked == []
            return
        await reached(pilot, lambda: isinstance(app.screen, PageDialog))
    assert library.asked == [("compare", *(each.id for each in pair))]


async def test_deleting_asks_first(app, library):
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        await pilot.press("d", "enter")  # "keep" is what Enter takes
        await pilot.press("d", "escape")
        assert library.asked == []
        await pilot.press("d")
        assert isinstance(app.screen, ChoiceDialog)
        await pilot.press("down", "enter")
        await reached(pilot, lambda: "2 runs," in text(app))
        assert NEWEST.id not in text(app).replace(f"deleted {NEWEST.id}", "")
    assert library.asked == [("remove", NEWEST.id)]


async def test_escape_clears_marks_and_filter_before_it_leaves(app):
    async with app.run_test(size=(120, 24)) as pilot:
        await read(pilot)
        await pilot.press("slash", *"fp32", "enter", "m", "s", "I")
        assert "filter: fp32" in text(app)
        assert NEWEST.id not in text(app)
        await pilot.press("escape")
        assert NEWEST.id in text(app)
        assert "Sort length" in text(app)
        await pilot.press("question_mark", "escape", "escape")
    assert app.return_value is None
    assert app.return_code == 0


async def test_a_click_on_a_heading_sorts(app):
    async with app.run_test(size=(120, 24)) as pilot:
        await read(pilot)
        at = text(app).splitlines()[1].index("size")
        await pilot.click("#view", offset=(at + 2, 0))
        await reached(pilot, lambda: "Sort size" in text(app))


async def test_no_runs_are_no_error(library):
    library.runs.clear()
    app = RunsApp(library, Settings(theme="dark"), State(message="that went wrong"))
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        assert "no recordings   'gpumon' and 'gpumon record' create them" in text(app)
        assert "that went wrong" in text(app)
        await pilot.press("enter", "r", "c", "d", "m", "up")
        assert library.asked == []


# -- over the dashboard ----------------------------------------------------------------------------
@pytest.fixture
def dashboard(library):
    store, now = fill(120)
    pipeline = Pipeline(Still(now), store=store)
    return GpumonApp(pipeline, Settings(theme="dark"), library=library)


async def test_the_last_two_runs_are_compared_by_two_keys(dashboard, library):
    """Four are allowed, from the start."""
    async with dashboard.run_test(size=(100, 24)) as pilot:
        await pilot.press("6")
        await read(pilot)
        await pilot.press("c")
        await reached(pilot, lambda: isinstance(dashboard.screen, PageDialog))
    assert library.asked == [("compare", OLDER.id, NEWEST.id)]


async def test_a_run_is_played_in_the_place_of_what_is_shown(dashboard, library):
    async with dashboard.run_test(size=(100, 24)) as pilot:
        live = dashboard.moment
        await pilot.press("6")
        await read(pilot)
        await pilot.press("down", "enter")
        await reached(pilot, lambda: dashboard.moment.now != live.now)
        played = dashboard._shown.pipeline
        assert library.asked == [("replay", OLDER.id)]
        await pilot.press("2", "escape", "escape")  # from the device to the job, then back
        await reached(pilot, lambda: isinstance(dashboard.screen, RunsScreen))
        assert played._source.stopped
        await read(pilot)
        assert re.search(f"^[>▶]  {OLDER.id}", text(dashboard), re.M)  # where it was
        await pilot.press("escape")
        assert dashboard.moment.now >= live.now
        assert not dashboard._shown.pipeline._source.stopped


async def test_what_is_read_after_the_list_was_left_is_dropped(dashboard, library, monkeypatch):
    left, asked = threading.Event(), threading.Event()

    def find():
        asked.set()
        left.wait(HANGS_S)
        return list(RUNS), []

    monkeypatch.setattr(library, "find", find)
    async with dashboard.run_test(size=(100, 24)) as pilot:
        await pilot.press("6")
        await reached(pilot, asked.is_set)
        screen = dashboard.screen
        await pilot.press("escape")
        left.set()
        await reached(pilot, lambda: screen._runs is not None)
        await pilot.press("6", "escape", "2")
        assert dashboard.pane.name == "device"


async def test_escape_leaves_a_replay_that_was_chosen_from_a_list():
    store, now = fill(20)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"), is_from_list=True)
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press("2", "escape")
        assert app.is_running
        await pilot.press("escape")
        await reached(pilot, lambda: app.return_code == 0)


async def test_a_dashboard_without_a_library_names_the_command():
    store, now = fill(20)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press("6")
        assert "gpumon runs" in "\n".join(part.text for part in app._parts.values())
