"""The screen of `gpumon jobs`: what it shows at each size, and what its keys do."""

from __future__ import annotations

import pytest

from gpumon.config import Settings
from gpumon.model import clock
from gpumon.report.jobs import Listing
from gpumon.tui.columns import Column, placed
from gpumon.tui.dialogs.choice import ChoiceDialog
from gpumon.tui.dialogs.page import PageDialog
from gpumon.tui.lines import plain
from gpumon.tui.lists import Order
from gpumon.tui.overview.app import Chosen, JobsApp, State
from gpumon.tui.overview.table import ordered, table
from tests.support.waiting import until
from tests.tui.overview.made import JOBS, NOW, MadeJobs


@pytest.fixture(autouse=True)
def at_a_time(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(clock, "wall", lambda at: at)


def rows(width):
    lines = MadeJobs().listing.lines
    return plain(table(lines, Order("state"), 0, 0, (width, 20), NOW, "braille").rows).splitlines()


def ids(order):
    return [line.id for line in ordered(MadeJobs().listing.lines, order, NOW)]


# -- what is shown -----------------------------------------------------------------------------
@pytest.mark.parametrize("width", [40, 60, 80, 120, 160, 250])
def test_no_row_is_wider_than_the_screen(width):
    shown = rows(width)
    assert len(shown) == 1 + len(JOBS)
    assert max(map(len, shown)) <= width
    assert "\x1b" not in "".join(shown)


def test_sorting():
    assert ids(Order("state")) == [each.id for each, _, _ in JOBS]
    assert ids(Order("waste"))[:3] == ["4713", "4711", "4700"]
    assert ids(Order("GPUs busy"))[:3] == ["4713", "4711", "4700"]  # the least first
    assert ids(Order("GPUs busy", is_reversed=True))[:3] == ["4700", "4711", "4713"]
    assert ids(Order("name"))[:2] == ["4712", "4711"]
    assert ids(Order("left"))[-1] in ("4700", "4690", "4714")  # what has none is last


def test_the_filter_wants_all_words():
    assert ids(Order("state", filter_text="running 2 a100:3")) == ["4711"]
    assert ids(Order("state", filter_text="FAILED")) == ["4700"]
    assert ids(Order("state", filter_text="nothing")) == []


def test_columns_never_take_more_than_there_is():
    columns = (Column("a"), Column("bb", 1, least=3), Column("c", 2))
    for width in range(1, 40):
        shown = placed(columns, [["xxxxx", "yyyyyyyy", "zzz"]], width)
        assert sum(each.width for each in shown) + 2 * (len(shown) - 1) <= width
        assert shown[0].number == 0


# -- keys --------------------------------------------------------------------------------------
async def press(*keys, jobs=None, size=(80, 24), state=None, look=None):
    """The app after these keys; `look` is called with it before it ends."""
    app = JobsApp(jobs or MadeJobs(), Settings(theme="dark"), "ada", state or State())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.draw()
        await pilot.press(*keys)
        await pilot.pause()
        if look is not None:
            await look(app, pilot)
    return app


def text_of(app):
    return "\n".join(
        app.screen_stack[0].query_one(f"#{part}").text for part in ("title", "view", "keys")
    )


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["enter"], Chosen("attach", "4711")),
        (["down", "down", "enter"], Chosen("attach", "4713")),
        (["down", "down", "down", "enter"], Chosen("attach", "4714")),  # waits for its start
        (["end", "up", "p"], Chosen("replay", "4700")),
        (["p"], Chosen("replay", "4711")),
        (["end", "up", "enter", "down", "enter"], Chosen("replay", "4700")),
        (["s", "enter"], Chosen("attach", "4711")),  # the cursor stays on its job
        (["q"], None),
    ],
)
async def test_what_is_opened(keys, chosen):
    assert (await press(*keys)).return_value == chosen


async def test_a_click_selects_and_a_second_one_opens():
    async def look(app, pilot):
        await pilot.click("#view", offset=(5, 3), times=2)

    assert (await press(look=look)).return_value == Chosen("attach", "4713")


async def test_the_report_is_a_page_to_scroll():
    jobs = MadeJobs()

    async def look(app, pilot):
        until(lambda: jobs.reports == ["4711"], "the report is made")
        await pilot.pause()
        assert isinstance(app.screen, PageDialog)
        await pilot.press("escape")
        assert not isinstance(app.screen, PageDialog)

    await press("r", jobs=jobs, look=look)


async def test_an_ended_job_without_a_recording_has_a_report_alone():
    async def look(app, pilot):
        await pilot.pause()
        app.draw()
        assert not isinstance(app.screen, ChoiceDialog)
        assert "job 4690 has no report" in text_of(app)
        await pilot.press("p")
        assert "job 4690 was not recorded" in text_of(app)

    await press("end", "enter", look=look)


async def test_a_pending_job_has_no_report():
    async def look(app, pilot):
        assert "job 4714 has not started" in text_of(app)

    jobs = MadeJobs()
    await press("down", "down", "down", "r", jobs=jobs, look=look)
    assert jobs.reports == []


async def test_the_filter_is_typed_and_cleared():
    async def look(app, pilot):
        assert "filter: failed" in text_of(app)
        assert "finetune" not in text_of(app)
        await pilot.press("escape")
        assert "finetune" in text_of(app)

    await press("slash", *"failed", "enter", look=look)


async def test_what_is_wrong_stays_until_it_ends():
    jobs = MadeJobs(notes=["accounting is off on this cluster"])
    jobs.trouble = "Slurm does not answer; showing the state as of 12:31:00"

    async def look(app, pilot):
        assert "Slurm does not answer" in text_of(app)
        assert "accounting is off" in text_of(app)
        jobs.trouble = ""
        app.draw()
        assert "Slurm does not answer" not in text_of(app)

    await press(jobs=jobs, look=look)


async def test_before_the_first_answer_and_without_jobs():
    jobs = MadeJobs()
    jobs.listing = None

    async def look(app, pilot):
        assert "querying Slurm" in text_of(app)
        await pilot.press("enter", "r", "p", "down", "s")
        jobs.listing = Listing(at=NOW)
        app.draw()
        assert "no jobs" in text_of(app)

    await press(jobs=jobs, look=look)


async def test_a_message_of_the_other_screen_is_shown():
    async def look(app, pilot):
        assert "job 4711 is gone" in text_of(app)

    await press(state=State(message="job 4711 is gone"), look=look)


async def test_many_jobs_scroll():
    jobs = MadeJobs([(JOBS[0][0].__class__(**{**vars(JOBS[0][0]), "raw_id": f"{n}", "id": f"{n}"}),
                      *JOBS[0][1:]) for n in range(100, 150)])  # fmt: skip

    async def look(app, pilot):
        assert "▶149" in text_of(app)
        await pilot.press("home")
        assert "▶100" in text_of(app)
        assert "more jobs below" in text_of(app)

    await press("end", jobs=jobs, look=look)


@pytest.mark.parametrize(
    ("theme", "size"), [("dark", (80, 24)), ("light", (160, 50)), ("mono", (80, 24))]
)
def test_the_list_looks_as_before(snap_compare, theme, size):
    app = JobsApp(MadeJobs(), Settings(theme=theme), "ada", State())
    assert snap_compare(app, press=["down"], terminal_size=size)
