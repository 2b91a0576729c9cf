"""The app on a job: nodes by keys, job states, output, prompts, tasks."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.widgets import Input, Label

from gpumon.cli.prompting import Prompting
from gpumon.config import Settings
from gpumon.model.view import Status
from gpumon.slurm.job import ExitCode, Job, Request, Resources
from gpumon.sources.prompt import Question
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.jobs import reason_text, state_text
from gpumon.tui.lines import plain
from gpumon.tui.output import harmless
from gpumon.tui.prompts import PromptScreen
from gpumon.tui.state import ViewState
from gpumon.tui.tasks import Task, TaskApp
from gpumon.tui.views.job import job_view
from gpumon.tui.views.title import time_row, title_row
from tests.tui import cluster
from tests.tui.test_app import Still, text

NOW = cluster.NOW
ASKED = Resources(cpus=64, mem_bytes=256 << 30, gpus=16, gpu_types={"a100": 16}, nodes=2)
RUNNING = Job(
    raw_id="4711", id="4711_3", array_job_id="4711", array_task="3", name="train-llama",
    user="ada", partition="gpu-a100", qos="normal", state="RUNNING", start=NOW - 8000,
    end=NOW + 78400, time_limit_s=86400, node_list="gpu[01-02]", nodes=("gpu01", "gpu02"),
    allocated=ASKED, requested=Request(ASKED, constraint="a100&nvlink"),
)  # fmt: skip
PENDING = Job(
    id="4711", name="train-llama", user="ada", partition="gpu-a100", state="PENDING",
    reason="Priority", submit=NOW - 4000, expected_start=NOW + 7200, time_limit_s=86400,
    expected_nodes="gpu[01-02]", requested=Request(ASKED),
)  # fmt: skip
FAILED = Job(
    id="4711", name="train-llama", user="ada", partition="gpu-a100", state="FAILED",
    exit_code=ExitCode(1), start=NOW - 8000, end=NOW + 120, elapsed_s=8120, time_limit_s=86400,
    nodes=("gpu01", "gpu02"), reason="NonZeroExitCode", allocated=ASKED,
)  # fmt: skip


class Known:
    """What Slurm is said to know; set by hand."""

    def __init__(self, job):
        self.known = job
        self.tell = ""

    def job(self):
        return self.known

    def news(self):
        told, self.tell = self.tell, ""
        return told


class Files:
    """A job's output as the source side reads it."""

    def __init__(self, **lines):
        self.lines = lines

    def path(self, stream):
        return f"/home/ada/slurm-4711.{stream}"

    def tail(self, stream):
        if stream not in self.lines:
            raise PermissionError(13, "Permission denied")
        return self.lines[stream]


def app_of(filled, **parts):
    store, now = filled
    return GpumonApp(Still(now, "ssh"), store, Settings(theme="dark"), **parts)


def looking_at(job, filled=None, **choices):
    store, now = filled or (Store(), NOW)
    state = ViewState("dark", "braille", 600.0, whole_node=False)
    state.job = job
    for name, value in choices.items():
        setattr(state, name, value)
    state.update(store.nodes(), now)
    return state


# -- nodes by keys ------------------------------------------------------------------------------


async def test_nodes_open_and_close_by_keys_and_clicks():
    app = app_of(cluster.fill(8, seconds=61))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4")
        assert "worst first" in text(app)
        await pilot.press("end", "up", "enter")
        assert app.state.view == "node"
        assert "gpu07  live by ssh" in text(app)
        await pilot.press("down")
        assert app.state.devices[app.state.selected][0].name == "gpu07"
        await pilot.press("enter")
        assert app.state.view == "device"
        assert "50 of 64" in text(app)
        await pilot.press("4", "home", "c")
        assert app.state.metric.name == "mem"
        zone = next(z for z in app._parts["view"].zones if z.action == "pick_node(4)")
        await pilot.click("#view", offset=(zone.x + 2, zone.y))
        await pilot.pause()
        assert app.state.node_name == app.state.summaries()[4].node.name
        await pilot.press("s", "S")
        assert (app.state.node_sort, app.state.node_reverse) == ("name", True)
        await pilot.press("enter", "escape")
        assert app.state.view == "nodes"
        await pilot.press("escape")
        assert app.state.view == "job"


async def test_a_folded_job_screen_selects_nodes():
    app = app_of(cluster.fill(12, seconds=10))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: app.state.is_folded)
        await pilot.press("end", "enter")
        assert "gpu12  live by ssh" in text(app)
        await pilot.press("enter", "escape")
        assert app.state.view == "node"
        await pilot.press("escape")
        assert app.state.view == "job"


async def test_escape_goes_back_to_where_the_device_was_opened():
    app = app_of(cluster.fill(2, seconds=5))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "enter", "2")
        assert "gpu01:0  A100" in text(app)
        await pilot.press("escape")
        assert app.state.view == "node"
        await pilot.press("escape", "down", "2")
        assert "gpu02:0  A100" in text(app)
        await pilot.press("escape")
        assert app.state.view == "nodes"


async def test_the_node_screen_follows_a_device_to_its_node():
    app = app_of(cluster.fill(2, seconds=5))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "enter", *["down"] * 8)
        assert "gpu02  live" in text(app)


# -- the job's states ---------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(80, 22), (120, 38)])
def test_a_waiting_job_says_why_and_until_when(golden, width, height):
    state = looking_at(PENDING)
    rows = job_view(state, width, height).rows
    golden(f"pending-{width}x{height}", [title_row(state, width), *rows])


def test_a_waiting_job_without_an_estimate_says_that():
    state = looking_at(Job(id="7", state="PENDING", reason="Resources"))
    shown = plain(job_view(state, 80, 22).rows)
    assert "no estimate yet" in shown
    late = looking_at(Job(id="7", state="PENDING", expected_start=NOW - 5))
    assert "which has passed" in plain(job_view(late, 80, 22).rows)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "Priority: jobs with a higher priority are before it"),
        ("(Resources)", "Resources: it is next"),
        ("QOSMaxGRESPerUser", "a limit of the QOS is reached"),
        ("AssocGrpGRES", "a limit of the account is reached"),
        ("SomethingNew", "SomethingNew"), ("None", ""), ("", ""),
        ("\x1b[31mred", "?[31mred"),
    ],
)  # fmt: skip
def test_reasons_in_words(reason, words):
    assert words in reason_text(reason)
    assert reason_text(reason) == "" or words


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (FAILED, "FAILED, exit code 1"),
        (Job(state="COMPLETED", exit_code=ExitCode(0)), "COMPLETED"),
        (Job(state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125)), "OUT_OF_MEMORY, out of memory"),
        (Job(state="CANCELLED", state_by="1000", exit_code=ExitCode(0, 15)),
         "CANCELLED by 1000, signal 15"),
        (Job(state="RUNNING", exit_code=ExitCode(0)), "RUNNING"),
    ],
)  # fmt: skip
def test_states_in_words(job, words):
    assert state_text(job) == words


async def test_a_job_that_ends_while_watched_keeps_its_last_samples():
    store, now = cluster.fill(2, seconds=61)
    known = Known(RUNNING)
    app = app_of((store, now), job=known)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "4711_3 train-llama  ada · gpu-a100 · RUNNING · gpu[01-02]" in text(app)
        assert "gpu01:0" in text(app)
        before = [line for line in text(app).splitlines() if "gpu02:1" in line]
        for name in ("gpu01", "gpu02"):
            store.status(name, Status("ended", now, "the job ended", "ssh"))
        known.known = FAILED
        app._source.clock += 600
        app.draw()
        app.draw()
        shown = text(app)
        assert "● FAILED, exit code 1  ended" in shown
        assert "after 02:15:20" in shown
        assert "below: the last samples" in shown
        assert "ended · " in shown
        assert " old)" not in shown
        assert [line for line in shown.splitlines() if "gpu02:1" in line] == before


def test_slurms_times_fill_the_bar():
    state = looking_at(RUNNING)
    assert "02:13:20" in plain([time_row(state, 120, "braille")])
    assert "1-00:00:00  9 %" in plain([time_row(state, 120, "braille")])
    done = plain([time_row(looking_at(FAILED), 120, "braille")])
    assert "02:15:20" in done
    assert "left" not in done
    unlimited = Job(id="7", state="RUNNING", start=NOW - 60, time_limit_words="UNLIMITED")
    assert plain([time_row(looking_at(unlimited), 80, "braille")]) == " time    00:01:00"
    assert time_row(looking_at(Job(id="7", state="RUNNING")), 80, "braille") is None


async def test_news_of_the_job_is_said_once():
    known = Known(RUNNING)
    known.tell = "Slurm does not answer\x1b[31m"
    app = app_of(cluster.fill(1, seconds=2), job=known)
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(100):
            await pilot.pause(0.05)
            if "Slurm does not answer?[31m" in text(app):
                break
        assert "Slurm does not answer?[31m" in text(app)
        assert known.tell == ""


# -- output -------------------------------------------------------------------------------------


async def test_output_is_followed_until_one_goes_back():
    files = Files(out=[f"step {n}" for n in range(100)], err=["Traceback\x1b[31m!"])
    app = app_of(cluster.fill(1, seconds=2), output=files)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("o")
        assert "step 99" in text(app)
        assert "/home/ada/slurm-4711.out" in text(app)
        await pilot.press("up", "up")
        assert "step 99" not in text(app)
        files.lines["out"] = [f"step {n}" for n in range(1, 101)]
        app.draw()
        assert "step 97" in text(app)
        assert "2 before the end" in text(app)
        await pilot.press("end")
        assert "step 100" in text(app)
        await pilot.press("home")
        assert "step 1\n" in text(app)
        await pilot.press("o")
        assert "Traceback!" in text(app)
        assert "step" not in text(app)
        del files.lines["err"]
        app.draw()
        assert "Permission denied" in text(app)
        await pilot.press("escape")
        assert app.state.view == "job"


async def test_without_a_job_there_is_no_output_and_no_key_for_it():
    app = app_of(cluster.fill(1, seconds=2))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "Output" not in app._parts["keys"].text
        await pilot.press("o")
        assert "gpumon attach" in text(app)
        assert app.state.view == "job"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;32mok\x1b[0m done", "ok done"),
        (" 10%|#\r 20%|##\r 45%|####\r", " 45%|####"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\tb", "a    b"),
        ("\x1b[2J\x1b[Hgone?", "gone?"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("bell\x07", "bell?"),
        ("\u202etxt.exe", "?txt.exe"),
        ("\r\r", ""),
    ],
)
def test_output_becomes_plain_text(raw, shown):
    assert harmless(raw) == shown


@settings(max_examples=3000, deadline=None)
@given(st.text(st.sampled_from("a \x1b[]P;0m\x07\r\t\x9b\x90\\漢\u202e\x00"), max_size=30))
def test_no_output_reaches_the_terminal_with_a_control(raw):
    assert harmless(raw).isprintable()


# -- questions ----------------------------------------------------------------------------------


def on_screen():
    """The broker that `gpumon attach` gives to the screen."""
    broker = Prompting()
    broker.to_screen()
    return broker


def question(kind, text):
    return Question("ada@login1", text, kind != "yes-no", kind)


async def settled(pilot, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


def asking(broker, *questions):
    got = []
    thread = threading.Thread(target=lambda: got.extend(map(broker.ask, questions)), daemon=True)
    thread.start()
    return thread, got


async def dialog(pilot, text):
    """Wait for the dialog of that question, ready for keys."""

    def is_open():
        screen = pilot.app.screen
        asks = isinstance(screen, PromptScreen) and screen.question.text == text
        return asks and screen.focused is not None

    await settled(pilot, is_open)
    return pilot.app.screen


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
        await settled(pilot, lambda: not isinstance(app.screen, PromptScreen))
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


# -- tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "chosen"), [(("down", "enter"), "4700_2"), (("escape",), None), (("q",), None)]
)
async def test_a_task_of_an_array_is_chosen(keys, chosen):
    tasks = [Task(f"4700_{n}", "RUNNING", f"gpu0{n}", "\x1b[31m[b]02:14") for n in (1, 2, 3)]
    app = TaskApp("4700", tasks, "dark")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "4700 is 3 jobs: which one?" in app.screen.query_one("#asked").content
        await pilot.press(*keys)
    assert app.return_value == chosen
