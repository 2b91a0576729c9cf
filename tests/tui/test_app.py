"""The app under Pilot: keys, mouse, dialogs, freeze, themes."""

import os
import signal
import subprocess
import time

import pytest

from gpumon import demos
from gpumon.config import Settings
from gpumon.model.sample import Header
from gpumon.sources.replay import ReplaySource, tracks_of
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs import FilterScreen, HelpScreen, SignalScreen, Target, send_signal
from gpumon.tui.keys import KEYS
from tests.tui.conftest import fill
from tests.tui.test_views import NOW, Device, Sample, device_row


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
    return GpumonApp(Still(now), store, Settings(theme="dark"))


def text(app):
    return "\n".join(part.text for part in app._parts.values())


def without_plots(app):
    return "".join(" " if "\u2800" <= char <= "\u28ff" else char for char in text(app))


async def test_every_key_of_the_table_does_something_without_a_fault(app):
    async with app.run_test(size=(120, 40)) as pilot:
        for key in KEYS:
            if key.action != "quit":
                for name in key.keys.split(","):
                    await pilot.press(name)
                    if app.screen_stack[1:]:
                        await pilot.press("escape")


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
        assert app.state.view == "job"
        pick = next(zone for zone in app._parts["view"].zones if zone.action == "pick(3)")
        await pilot.click("#view", offset=(pick.x + 2, pick.y + 1))
        await pilot.pause()
        assert app.state.selected == 3
        await pilot.press("enter")
        assert "4 of 4" in text(app)


async def test_processes_open_their_device_and_headers_sort(app):
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.press("3", "end", "home")
        header = next(z for z in app._parts["view"].zones if z.action == "sort_by('cpu')")
        await pilot.click("#view", offset=(header.x + 1, header.y))
        await pilot.pause()
        assert app.state.sort == "cpu"
        await pilot.press("slash", *"gpu=1", "enter")
        assert "1 processes" in text(app)
        await pilot.press("enter")
        assert app.state.selected == 1


async def test_filter_refuses_what_it_cannot_read_and_escape_clears(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash", *"mem>lots", "enter")
        assert isinstance(app.screen, FilterScreen)
        await pilot.press("escape")
        assert app.state.filter_text == ""
        await pilot.press("slash", *"train", "enter")
        assert app.state.filter_text == "train"
        await pilot.press("escape")
        assert app.state.filter_text == ""
        assert app.state.view == "processes"


async def test_freeze_holds_numbers_while_samples_go_on(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("space")
        assert "frozen" in text(app)
        before = without_plots(app)
        now = app._source.clock
        app._store.add("gpu07", Sample(now + 1, 1e6, {"device": {0: device_row(busy_percent=1)}}))
        app._source.clock += 1
        await pilot.press("2", "1")
        assert without_plots(app) == before
        await pilot.press("space")
        assert "busy 1 %" in text(app)


async def test_zoom_goes_from_a_minute_to_everything(app):
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*["plus"] * 10)
        assert app.state.span_s == 60
        seen = []
        for _ in range(10):
            seen.append(app.state.span_text)
            await pilot.press("minus")
        assert seen == ["1m", "5m", "10m", "30m", "1h", "3h", "12h", "1d", "7d", "all"]


async def test_every_theme_draws_and_comes_round(app):
    async with app.run_test(size=(120, 40)) as pilot:
        seen = set()
        for _ in range(5):
            await pilot.press("t")
            seen.add(app.theme)
        assert seen == {f"gpumon-{n}" for n in ("dark", "light", "colour-blind", "ansi", "mono")}


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
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_quitting_stops_the_source(app):
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app._source.stopped


# -- signals ------------------------------------------------------------------------------------


def watched(pid, uid, source="local"):
    """An app that shows one process of that owner."""
    store = Store()
    store.header("gpu01", Header("gpu01", "b", NOW, 0, 1, "0", [Device(0, 0, "GPU-0", "A100")]))
    start = os.stat(f"/proc/{pid}").st_ctime
    from gpumon.model.sample import Event

    facts = {"user": "x", "command": "sleep", "name": "sleep", "uid": uid, "start": start}
    sample = Sample(
        NOW,
        0,
        {"usage": {(0, pid): {"mem_bytes": 1}}},
        {},
        [Event(NOW, "process", pid=pid, data=facts)],
    )
    store.add("gpu01", sample)
    return GpumonApp(Still(NOW, source), store, Settings(theme="dark"))


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "60"])
    time.sleep(0.05)
    yield child
    child.kill()
    child.wait()


async def test_a_signal_is_sent_after_it_was_chosen(sleeper):
    app = watched(sleeper.pid, os.getuid())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("3", "k")
        assert isinstance(app.screen, SignalScreen)
        await pilot.press("enter")  # the first choice is to cancel
        assert sleeper.poll() is None
        await pilot.press("k", "down", "enter")
        assert sleeper.wait(5) == -signal.SIGTERM
        assert f"sent SIGTERM to {sleeper.pid}" in text(app)


@pytest.mark.parametrize(
    ("uid", "source", "words"),
    [(os.getuid() + 1, "local", "belongs to"), (os.getuid(), "replay", "this node, live")],
)
async def test_no_signal_to_others_or_into_a_recording(sleeper, uid, source, words):
    app = watched(sleeper.pid, uid, source)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("3", "k")
        assert not isinstance(app.screen, SignalScreen)
        assert words in text(app)


def test_another_process_with_the_same_number_gets_nothing(sleeper):
    words = send_signal(Target(sleeper.pid, time.time() - 5000, "old"), signal.SIGKILL)
    assert "another process" in words
    assert sleeper.poll() is None


def test_a_process_that_has_ended_is_said():
    child = subprocess.Popen(["true"])
    child.wait()
    assert "has ended" in send_signal(Target(child.pid, time.time(), "true"), signal.SIGTERM)


# -- a recording that is played -------------------------------------------------------------------


async def test_keys_move_through_a_recording():
    source = ReplaySource(tracks_of([demos.path("finetune")]), ahead_s=100)
    app = GpumonApp(source, Store(), Settings(theme="dark"))

    async def settled(pilot):
        for _ in range(400):
            await pilot.pause(0.02)
            if not source.seeking:
                break
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
        assert "00:05:00" in text(app)
        await pilot.press("right_curly_bracket")
        assert source.speed == 2
        await pilot.press("g", *"soon", "enter")
        assert "is no time" in text(app)


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

    def news(self):
        return ""


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("nodes", [1, 3])
async def test_why_nothing_is_recorded_stays_on_every_screen(size, nodes):
    store, now = fill(120)
    why = "/home/ada/x.gpumon: recording stopped: your disk quota is used up"
    source = Recorded(now, {})
    app = GpumonApp(source, store, Settings(theme="dark"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert "not recorded" not in text(app)
        source.not_recorded.update({f"gpu{number:02}": why for number in range(nodes)})
        app._tick()
        for key in ("1", "2", "3", "4", "5", "1"):
            await pilot.press(key)
            app.state.message_until = 0.0  # whatever was said for a moment is gone
            app.draw()
            assert "not recorded" in app._parts["title"].text
            if size[0] >= 100:
                assert "not recorded: your disk quota is used up" in app._parts["title"].text
        which = " (3 nodes)" if nodes == 3 else ""
        assert f"not recorded{which}: your disk quota is used up" in app._parts["view"].text
