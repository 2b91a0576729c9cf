"""The screen of an array: rows and their order, what is below them, Enter and the way back."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpumon.analysis.finding import Finding
from gpumon.analysis.rundata import Coverage, RunData
from gpumon.config import Settings
from gpumon.model.sample import JobContext, Sample
from gpumon.model.view import NotRecorded, Status
from gpumon.pipeline.array import WatchedArray
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.pipeline.pipeline import Pipeline
from gpumon.site import Site
from gpumon.slurm.job import ExitCode, Job, Resources
from gpumon.tui.app import GpumonApp
from gpumon.tui.screens.array import rows as array_rows
from tests.tui.by_hand import NOW as BEGIN
from tests.tui.by_hand import device_row, one_node
from tests.tui.test_app import Still, text
from tests.tui.test_attached import Known

GIB = 1 << 30
NOW = BEGIN + 60
ASKED = Resources(cpus=8, mem_bytes=64 * GIB, gpus=2, gpu_types={"a100": 2}, nodes=1)


def task(number, state="RUNNING", **known):
    several = not str(number).isdigit()
    id = f"4711_[{number}]" if several else f"4711_{number}"
    facts = {
        "raw_id": f"50{number}", "id": id, "array_job_id": "4711", "array_task": str(number),
        "name": "sweep-lr", "user": "ada", "partition": "gpu-a100", "state": state,
        "time_limit_s": 7200.0, "told_at": NOW,
    }  # fmt: skip
    if state == "RUNNING":
        facts |= {
            "nodes": ("gpu01",), "node_list": "gpu01", "start": NOW - 600, "elapsed_s": 600,
            "allocated": ASKED,
        }  # fmt: skip
    return Job(**(facts | known))


def measured(job, *, busy=90.0, findings=(), lost=False, cores=6.0, samples=60, devices=2):
    """A task's pipeline with a node of two GPUs, or so many."""
    store = one_node(devices, JobContext(job.raw_id, cpus=8, mem_limit_bytes=64 * GIB))
    rows = {
        "device": {
            n: device_row(busy_percent=busy, mem_used_bytes=70 * GIB) for n in range(devices)
        },
        "job": {"": {"cpu_cores_used": cores, "mem_used_bytes": 31 * GIB}},
        "host": {"": {"cpu_percent": 10.0}},
    }
    for second in range(samples):
        store.add("gpu01", Sample(BEGIN + second, second, rows, {}, []))
    store.status(
        "gpu01", Status("lost" if lost else "live", NOW, "no route" if lost else "", "ssh")
    )
    pipeline = Pipeline(Still(NOW, "ssh"), job=Known(job), store=store)
    run = RunData(None, 0.0, 1.0, True, 10.0, [], [], [], Coverage("live", 100.0, 1.0), Site())
    pipeline._evaluator.latest = LiveEvaluation(list(findings), run, None)
    return pipeline


def finding(level, title, waste=0.0):
    return Finding("x", level, title, "", waste_gpu_hours=waste)


WASTES = finding("warning", "1 of 2 GPUs was never used", 2.0)
WORSE = finding("warning", "both GPUs are idle", 5.0)
CRITICAL = finding("critical", "GPU 0 dropped off the bus (Xid 79)")


class Asked(Still):
    """The array as a source whose clock stands still."""

    def __init__(self, array):
        super().__init__(NOW, "array")
        self._array = array

    def start(self, sink):
        self._array.start(sink)

    def stop(self):
        self._array.stop()


class Tasks:
    """An array whose tasks and their pipelines are made by hand."""

    def __init__(self, *made):
        self.pipelines = {job.id: followed for job, followed in made if followed}
        jobs = [job for job, _ in made]
        self.array = WatchedArray("4711", jobs, lambda soon: jobs, list, self._follow)
        self.array.asked_at = NOW
        pipeline = Pipeline(Asked(self.array), job=self.array)
        self.app = GpumonApp(pipeline, Settings(theme="dark"), array=self.array)

    def _follow(self, job):
        return self.pipelines.get(job.id) or measured(job)


def sweep():
    made = {
        1: {},
        2: {"findings": [WASTES], "busy": 44.0},
        3: {"findings": [WORSE], "busy": 0.0, "cores": 0.1},
        4: {"findings": [CRITICAL, WASTES]},
    }
    running = [(job := task(n), measured(job, **how)) for n, how in made.items()]
    ended = [
        (task(0, "COMPLETED", elapsed_s=500, end=NOW - 60), None),
        (task(5, "FAILED", elapsed_s=20, end=NOW - 50, exit_code=ExitCode(3)), None),
        (task(6, "FAILED", elapsed_s=20, end=NOW - 50, exit_code=ExitCode(3)), None),
    ]
    waiting = [(task("7-99%4", "PENDING", reason="Resources"), None)]
    return Tasks(*running, *ended, *waiting)


def drawn(app):
    return [line for line in app._parts["view"].text.split("\n") if line]


def first_words(app):
    """Of the rows of tasks, down to the line below them."""
    lines = drawn(app)
    end = next(place for place, line in enumerate(lines) if line.startswith("───"))
    return [line.replace("▶", " ").split()[0] for line in lines[2:end]]


# -- rows


async def test_the_worst_comes_first_then_waste_then_state():
    app = sweep().app
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        assert first_words(app) == ["4", "5-6", "3", "2", "1", "7-99%4", "0"]
        shown = text(app)
        assert "array 4711 sweep-lr  ada · gpu-a100 · 4 of 100 tasks running" in shown
        for what in ("dropped off the bus", "2 tasks  ● exit code 3", "6.0/8",
                     "93 tasks  Resources: it is next", "31 / 64 GiB", "44 %"):  # fmt: skip
            assert what in shown, what
        await pilot.press("s")
        assert first_words(app)[0] == "0"  # by number
        await pilot.press("s", "s")
        assert "s elapsed" in text(app)


async def test_with_little_room_the_columns_that_matter_least_are_left_out():
    app = sweep().app
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        heading = drawn(app)[1]
        assert heading.split() == ["task", "state", "elapsed", "busy", "GPU", "mem", "cores", "mem"]
        assert "● GPU 0 dropped" in text(app)
        assert "Enter Open" in text(app)
        assert all(len(line) <= 80 for line in drawn(app))


async def test_a_reservation_has_a_star_and_silence_is_no_zero():
    from tests.tui.by_hand import process

    job, silent = task(1), task(2)
    followed = measured(job)
    event = process(7, framework="tf")
    rows = {"usage": {(0, 7): {"type": "C", "mem_bytes": GIB}}}
    followed._store.add("gpu01", Sample(NOW, 60, rows, {}, [event]))
    nothing = measured(silent, samples=0)
    app = Tasks((job, followed), (silent, nothing)).app
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        lines = drawn(app)
        assert next(line for line in lines if "140 / 160 GiB*" in line)
        row = next(line for line in lines if line[2:].startswith("2 "))
        assert row.count("?") >= 5, row
        assert "0 %" not in row


async def test_a_stream_that_just_broke_off_is_no_trouble_yet_and_later_is(monkeypatch):
    job = task(1)
    app = Tasks((job, measured(job, lost=True))).app
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        assert "? gpu01 lost by ssh" in text(app)
        monkeypatch.setattr(array_rows, "_ENDING_S", 0.5)
        app.draw()
        assert "● gpu01 lost by ssh" in text(app)


async def test_of_more_tasks_than_are_measured_it_says_so(monkeypatch):
    monkeypatch.setattr("gpumon.pipeline.array.MAX_STREAMS", 2)
    app = Tasks(*((task(n, start=NOW - n), None) for n in range(5))).app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "Measuring the latest 2 of 5 running tasks" in text(app)
        assert text(app).count("not measured") == 3
        await pilot.press("end", "enter")
        assert "gpumon  4711_4" in text(app)
        await pilot.press("b")
        assert "Measuring the latest 3 of 5 running tasks" in text(app)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"state": "TIMEOUT", "exit_code": ExitCode(0)}, "● it reached its time limit"),
        ({"state": "CANCELLED", "state_by": "1000", "exit_code": ExitCode(0, 15)},
         "by 1000, signal 15"),
        ({"state": "UNKNOWN"}, "? no longer listed by Slurm"),
        ({"state": "OUT_OF_MEMORY", "exit_code": ExitCode(0, 125)}, "● out of memory"),
    ],
)  # fmt: skip
async def test_how_a_task_ended_is_said(known, said):
    app = Tasks((task(1, elapsed_s=9, **known), None), (task(2), None)).app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert said in text(app)


async def test_what_is_not_recorded_is_said():
    job = task(1)
    followed = measured(job)
    followed._recorder = SimpleNamespace(
        not_recorded={"gpu01": NotRecorded("No space left on device")}, news=lambda: ""
    )
    followed.stop = lambda: None
    app = Tasks((job, followed)).app
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        assert "not recorded: No space left on device" in text(app)


async def test_slurms_silence_is_said():
    tasks = sweep()
    tasks.array.asked_at = NOW - 300
    async with tasks.app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        assert "Slurm's answer is 5 min old" in text(tasks.app)


# -- keys


@pytest.mark.parametrize("back", ["escape", "b"])
async def test_enter_opens_the_task_and_a_key_comes_back(back):
    app = sweep().app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("down", "down", "enter")
        assert "gpumon  4711_3 sweep-lr" in text(app)
        assert "b Array" in text(app)
        await pilot.press("2", "escape")
        assert app.pane.name == "job"
        await pilot.press(back)
        assert app.pane.name == "array"
        assert next(line for line in drawn(app) if line.startswith("▶")).split()[1] == "3"


async def test_every_row_and_key_answers():
    app = sweep().app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for key, said in (
            ("end", None), ("enter", "gpumon report 4711_0"), ("up", None),
            ("enter", "93 tasks: not started yet"), ("2", "Enter opens"), ("5", "Enter opens"),
            ("escape", "q quits"), ("slash", "Enter opens"),
        ):  # fmt: skip
            await pilot.press(key)
            assert said is None or said in text(app), key
        await pilot.press("question_mark")
        assert "open the selected task" in app.screen.query_one("#help-page").render().plain
        await pilot.press("escape", "space")
        assert "frozen" in text(app)


async def test_the_time_of_the_plots_is_chosen_for_all_tasks():
    app = sweep().app
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        await pilot.press("down", "down")
        assert "+ - Zoom 1 min" in text(app)
        before = drawn(app)
        await pilot.press("minus")
        assert "+ - Zoom 5 min" in text(app)
        assert drawn(app) != before


async def test_rows_are_clicked():
    app = sweep().app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        zone = next(z for z in app._parts["view"].zones if z.action == "point(3)")
        await pilot.click("#view", offset=(4, zone.y))
        await pilot.pause()
        assert next(line for line in drawn(app) if line.startswith("▶")).split()[1] == "2"


async def test_the_cursor_stays_on_its_task_and_the_end_is_said():
    tasks = sweep()
    app = tasks.app
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("down", "down")
        done = [
            replace(job, state="COMPLETED", reason="", end=NOW) if not job.has_ended else job
            for job in tasks.array.tasks()
        ]
        tasks.array._know(done)
        app.draw()
        assert next(line for line in drawn(app) if line.startswith("▶")).split()[1] == "3"
        assert "0 of 100 tasks running" in text(app)
        assert "gpumon report 4711_3" in text(app)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_it_looks_as_before(snap_compare, size):
    assert snap_compare(sweep().app, terminal_size=size)


async def test_a_task_that_was_put_back_into_the_queue_waits():
    job = task(1)
    tasks = Tasks((job, measured(job)), (task(2), None))
    async with tasks.app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        tasks.array._know([task(1, "PENDING", reason="BeginTime"), task(2)])
        tasks.app.draw()
        assert "BeginTime: its begin time has not been reached" in text(tasks.app)


async def test_tasks_without_gpus_have_no_columns_of_gpus():
    jobs = [task(n, allocated=Resources(cpus=8)) for n in range(2)]
    app = Tasks(*((job, measured(job, devices=0)) for job in jobs)).app
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        heading = drawn(app)[1]
        assert heading.split() == ["task", "state", "node", "elapsed", "left", "cores", "memory"]
        assert "?" not in app._parts["view"].text
