"""The app under Pilot: keys, mouse, dialogs, freeze, themes."""

import gc
import time
import weakref

import pytest

from gpumon import demos
from gpumon.config import Settings
from gpumon.model.sample import Sample
from gpumon.model.view import NotRecorded
from gpumon.pipeline.pipeline import Pipeline
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.help import HelpDialog
from gpumon.tui.dialogs.line import LineDialog
from gpumon.tui.screens import KEYS
from tests.support.waiting import HANGS_S
from tests.tui.by_hand import device_row
from tests.tui.conftest import fill


class Still:
    """A source whose node was filled beforehand; its clock is set by hand."""

    def __init__(self, now, name="replay"):
        self.clock = now
        self.name = name
        self.stopped = False

    def start(self, sink):
        pass

    def stop(self):
        self.stopped = True

    def now(self):
        return self.clock


@pytest.fixture
def app():
    store, now = fill(120)
    return GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))


def text(app):
    return "\n".join(part.text for part in app._parts.values())


def without_plots(app):
    return "".join(" " if "\u2800" <= char <= "\u28ff" else char for char in text(app))


@pytest.mark.slow
async def test_every_key_of_the_table_does_something_without_a_fault(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write a file
    async with app.run_test(size=(120, 40)) as pilot:
        for key in KEYS:
            if key.action != "quit":
                for name in key.keys.split(","):
                    await pilot.press(name)
                    if app.screen_stack[1:]:
                        await pilot.press("escape")


@pytest.mark.slow
async def test_closed_dialogs_leave_nothing_behind(app):
    """Each is a ring of objects, which would be frozen as what lasts before Python looks for it."""
    async with app.run_test(size=(120, 40)) as pilot:
        kept = gc.get_threshold()
        gc.set_threshold(0)
        await pilot.press("question_mark")
        await pilot.pause(0.1)
        opened = weakref.ref(app.screen)
        await pilot.press("escape")
        end = time.monotonic() + HANGS_S
        while opened() and time.monotonic() < end:
            await pilot.pause(0.1)
        gc.set_threshold(*kept)
        assert opened() is None


async def test_screens_by_key_and_by_click(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "asked" not in text(app)
        assert "GPU mem" in text(app)
        await pilot.press("2")
        assert "SM clock" in text(app)
        await pilot.press("right")
        assert "2 of 4" in text(app)
        await pilot.press("3")
        assert "processes, 3 on GPUs" in text(app)
        zone = next(zone for zone in app._parts["keys"].zones if zone.action == "view('job')")
        await pilot.click("#keys", offset=(zone.x + 1, 0))
        await pilot.pause()
        assert app.pane.name == "job"
        pick = next(zone for zone in app._parts["view"].zones if zone.action == "pick(3)")
        await pilot.click("#view", offset=(pick.x + 2, pick.y + 1))
        await pilot.pause()
        assert app.pane.selection.device == 3
        await pilot.press("enter")
        assert "4 of 4" in text(app)


async def test_processes_open_their_device_too_and_headers_sort(app):
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.press("3", "end", "home")
        header = next(z for z in app._parts["view"].zones if z.action == "sort_by('cpu')")
        await pilot.click("#view", offset=(header.x + 1, header.y))
        await pilot.pause()
        assert app.panes["processes"].sort == "cpu"
        await pilot.press("slash", *"gpu=1", "enter")
        assert "1 process, " in text(app)
        await pilot.press("enter")
        assert app.pane.name == "process"
        assert "python train.py --model llama-3-8b" in text(app)
        await pilot.press("escape", "2")
        assert app.pane.selection.device == 1
        assert app.pane.name == "device"


async def test_filter_refuses_what_it_cannot_read_and_escape_clears(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash", *"mem>lots", "enter")
        assert isinstance(app.screen, LineDialog)
        await pilot.press("escape")
        assert app.panes["processes"].filter_text == ""
        await pilot.press("slash", *"train", "enter")
        assert app.panes["processes"].filter_text == "train"
        await pilot.press("escape")
        assert app.panes["processes"].filter_text == ""
        assert app.pane.name == "processes"


async def test_freeze_holds_numbers_while_samples_go_on(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("space")
        assert "frozen" in text(app)
        before = without_plots(app)
        now, store = app._pipeline._source.clock, app._pipeline._store
        store.add("gpu07", Sample(now + 1, 1e6, {"device": {0: device_row(busy_percent=1)}}))
        app._pipeline._source.clock += 1
        await pilot.press("2", "1")
        assert without_plots(app) == before
        await pilot.press("space")
        assert "busy 1 %" in text(app)


async def test_zoom_goes_from_a_minute_to_everything(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*["plus"] * 10)
        assert app.moment.span_s == 60
        seen = []
        for _ in range(10):
            seen.append(app.moment.span_text)
            await pilot.press("minus")
        assert seen == [
            "1 min",
            "5 min",
            "10 min",
            "30 min",
            "1 h",
            "3 h",
            "12 h",
            "1 d",
            "7 d",
            "all",
        ]
        assert "plots cannot show more time" in text(app)
        await pilot.press("5", "plus")
        assert "plots show 7 d" in text(app)


async def test_every_theme_draws_and_comes_round(app):
    async with app.run_test(size=(120, 40)) as pilot:
        seen = set()
        for _ in range(5):
            await pilot.press("t")
            seen.add(app.theme)
        assert seen == {f"gpumon-{n}" for n in ("dark", "light", "colour-blind", "ansi", "mono")}


@pytest.mark.slow
async def test_sizes_change_while_it_runs(app):
    async with app.run_test(size=(200, 60)) as pilot:
        for size in [(80, 24), (10, 3), (300, 90), (41, 9), (120, 40)]:
            await pilot.resize_terminal(*size)
            for key in "1234":
                await pilot.press(key)
            await pilot.press("enter", "o", "3")
        assert "processes" in text(app)


async def test_help_lists_every_key(app):
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpDialog)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpDialog)


async def test_garbage_is_collected_from_the_first_evaluation_on(app):
    gc.disable()
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await wait_for(pilot, gc.isenabled)
    finally:
        gc.enable()


async def test_freed_memory_is_returned_as_the_screen_settles(app, monkeypatch):
    trimmed = []
    monkeypatch.setattr("gpumon.heap.trim", lambda: trimmed.append(1))
    monkeypatch.setattr("gpumon.tui.app._SETTLED_S", 0.01)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for(pilot, lambda: len(trimmed) > 1)


async def test_quitting_stops_the_source(app):
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app._pipeline._source.stopped


async def test_keys_move_through_a_recording():
    source = ReplaySource(tracks_of([demos.path("finetune")]), ahead_s=100)
    app = GpumonApp(Pipeline(source, player=source), Settings(theme="dark"))

    async def settled(pilot):
        deadline = time.monotonic() + HANGS_S
        while source.seeking:
            assert time.monotonic() < deadline
            await pilot.pause(0.02)
        app.draw()

    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("space")
        assert "paused" in text(app)
        before = source.now()
        await pilot.press("full_stop")
        await settled(pilot)
        assert source.now() == before + 1
        await pilot.press("left_square_bracket")
        await settled(pilot)
        assert source.now() < before
        await pilot.press("g", *"5m", "enter")
        await settled(pilot)
        assert source.now() == source.origin + 300
        assert "paused 5 min" in text(app)
        await pilot.press("right_curly_bracket")
        assert source.speed == 2
        await pilot.press("g", *"soon", "enter")  # the prompt stays
        assert "is not a valid time" in str(app.screen.query_one("#wrong").render())
        await pilot.press(*["backspace"] * 4, "enter")
        assert len(app.screen_stack) == 1


async def test_escape_stops_a_seek_whose_progress_is_shown():
    source = ReplaySource(tracks_of([demos.path("finetune")]), ahead_s=100)
    app = GpumonApp(Pipeline(source, player=source), Settings(theme="dark"))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("3")
        source.seeking, source.progress = True, 0.25
        app._waker.wake()
        await wait_for(pilot, lambda: "seeking 25 %" in text(app))
        source.progress = 0.5
        await wait_for(pilot, lambda: "seeking 50 %" in text(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: not source.seeking)
        assert app.pane.name == "processes"


async def test_a_seek_that_finds_nothing_says_so_and_ends_on_screen():
    source = ReplaySource(tracks_of([demos.path("finetune")]), ahead_s=300)
    app = GpumonApp(Pipeline(source, player=source), Settings(theme="dark"))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("space")
        source.seeking, source.progress = True, 0.25
        app._waker.wake()
        await wait_for(pilot, lambda: "seeking 25 %" in text(app))
        source.seeking = False
        await wait_for(pilot, lambda: "seeking" not in text(app))
        await pilot.press("n")
        await wait_for(pilot, lambda: "no further finding, mark or Xid" in text(app))
        assert "seeking" not in text(app)


async def wait_for(pilot, condition):
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


async def test_live_data_cannot_be_sought(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("right_square_bracket")
        assert "gpumon replay" in text(app)


class Recorded(Still):
    """A source that should record, and does not."""

    def __init__(self, now, not_recorded):
        super().__init__(now, "local")
        self.not_recorded = not_recorded

    def mark(self, text):
        return text

    silence = None

    def news(self):
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("nodes", [1, 3])
async def test_why_nothing_is_recorded_stays_on_every_screen(size, nodes):
    store, now = fill(120)
    why = NotRecorded("your disk quota is used up", "/home/ada/x.gpumon")
    source = Recorded(now, {})
    app = GpumonApp(Pipeline(source, recorder=source, store=store), Settings(theme="dark"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert "not recorded" not in text(app)
        source.not_recorded.update({f"gpu{number:02}": why for number in range(nodes)})
        app._look()
        for key in ("1", "2", "3", "4", "5", "1"):
            await pilot.press(key)
            app._said = ("", 0.0)  # whatever was said for a moment is gone
            app.draw()
            assert "not recorded" in app._parts["title"].text
            if size[0] >= 100:
                assert "not recorded: your disk quota is used up" in app._parts["title"].text
        which = " (3 nodes)" if nodes == 3 else ""
        assert f"not recorded{which}: your disk quota is used up" in app._parts["view"].text
