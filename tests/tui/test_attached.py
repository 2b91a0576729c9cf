"""The app on a job: nodes by keys, job states, news."""

import time

import pytest

from gpumon.config import Settings
from gpumon.model.view import Status
from gpumon.pipeline.pipeline import Pipeline
from gpumon.slurm.job import ExitCode, Job, Request, Resources
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.jobs import reason_text, state_text
from gpumon.tui.lines import plain
from gpumon.tui.parts.title import time_row
from tests.tui import cluster
from tests.tui.looking import Looking
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

    silence = None

    def news(self):
        told, self.tell = self.tell, ""
        return told


def app_of(filled, job=None, output=None, **parts):
    store, now = filled
    pipeline = Pipeline(Still(now, "ssh"), job=job, store=store, output=output)
    return GpumonApp(pipeline, Settings(theme="dark"), **parts)


def looking_at(job, filled=None, **known):
    store, now = filled or (Store(), NOW)
    looking = Looking()
    return looking.at(job=job, nodes=store.nodes(), now=now, **known)


@pytest.mark.slow
async def test_nodes_open_and_close_by_keys_and_clicks():
    app = app_of(cluster.fill(8, seconds=61))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4")
        assert "worst first" in text(app)
        await pilot.press("end", "up", "enter")
        assert app.pane.name == "node"
        assert "gpu07  live by ssh" in text(app)
        await pilot.press("down")
        assert app.pane.selection.current(app.moment)[0].name == "gpu07"
        await pilot.press("enter")
        assert app.pane.name == "device"
        assert "50 of 64" in text(app)
        await pilot.press("4", "home", "c")
        assert app.panes["nodes"].metric.name == "mem"
        zone = next(z for z in app._parts["view"].zones if z.action == "pick_node(4)")
        await pilot.click("#view", offset=(zone.x + 2, zone.y))
        await pilot.pause()
        nodes = app.panes["nodes"]
        assert app.pane.selection.node == nodes.summaries(app.moment)[4].node.name
        await pilot.press("s", "I")
        assert (nodes.sort, nodes.reverse) == ("name", True)
        await pilot.press("enter", "escape")
        assert app.pane.name == "nodes"
        await pilot.press("escape")
        assert app.pane.name == "job"


async def test_a_folded_job_screen_selects_nodes():
    app = app_of(cluster.fill(12, seconds=10))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: app.moment.is_folded)
        await pilot.press("end", "enter")
        assert "gpu12  live by ssh" in text(app)
        await pilot.press("enter", "escape")
        assert app.pane.name == "node"
        await pilot.press("escape")
        assert app.pane.name == "job"


async def test_escape_goes_back_to_where_the_device_was_opened():
    app = app_of(cluster.fill(2, seconds=5))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "enter", "2")
        assert "gpu01:0  A100" in text(app)
        await pilot.press("escape")
        assert app.pane.name == "node"
        await pilot.press("escape", "down", "2")
        assert "gpu02:0  A100" in text(app)
        await pilot.press("escape")
        assert app.pane.name == "nodes"


async def test_the_node_screen_follows_a_device_to_its_node():
    app = app_of(cluster.fill(2, seconds=5))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "enter", *["down"] * 8)
        assert "gpu02  live" in text(app)


def test_a_waiting_job_without_an_estimate_says_that():
    looking = looking_at(Job(id="7", state="PENDING", reason="Resources"))
    shown = looking.text("job", 80, 22)
    assert "no estimate yet" in shown
    late = looking_at(Job(id="7", state="PENDING", expected_start=NOW - 5))
    assert "which has passed" in late.text("job", 80, 22)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "Priority: jobs with a higher priority are ahead of it"),
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
        app._pipeline._source.clock += 600
        app.draw()
        app.draw()
        shown = text(app)
        assert "● FAILED, exit code 1  ended" in shown
        assert "after 2 h 15 min" in shown
        assert "below: the last samples" in shown
        assert "ended · " in shown
        assert " old)" not in shown
        assert [line for line in shown.splitlines() if "gpu02:1" in line] == before


def time_text(moment, width):
    row = time_row(moment, width)
    assert row is not None
    return plain([row])


def test_slurms_times_fill_the_bar():
    looking = looking_at(RUNNING)
    assert "2 h 13 min" in time_text(looking.moment, 120)
    assert "1 d  9 %" in time_text(looking.moment, 120)
    done = time_text(looking_at(FAILED).moment, 120)
    assert "2 h 15 min" in done
    assert "left" not in done
    unlimited = Job(id="7", state="RUNNING", start=NOW - 60, time_limit_words="UNLIMITED")
    assert time_text(looking_at(unlimited).moment, 80) == " time    60 s"
    assert time_row(looking_at(Job(id="7", state="RUNNING")).moment, 80) is None


async def test_news_of_the_job_is_said_once():
    known = Known(RUNNING)
    known.tell = "Slurm does not answer\x1b[31m"
    app = app_of(cluster.fill(1, seconds=2), job=known)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: "Slurm does not answer?[31m" in text(app))
        assert known.tell == ""


async def settled(pilot, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)
