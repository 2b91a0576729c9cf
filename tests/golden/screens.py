"""Rows of every screen, by the app itself without a terminal, at a clock that stands still."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple
from unittest import mock

from gpumon import demos
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.hysteresis import Live
from gpumon.config import Settings
from gpumon.model import clock
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.pipeline.pipeline import Pipeline
from gpumon.recording import Recording
from gpumon.report.build import build
from gpumon.site.read import load_site
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.overview.app import JobsApp
from gpumon.tui.overview.app import State as JobsState
from gpumon.tui.runs.screen import RunsApp
from gpumon.tui.runs.screen import State as RunsState
from tests.frames.framing import Gathering
from tests.support.waiting import HANGS_S
from tests.tui import cluster
from tests.tui.conftest import fill
from tests.tui.overview.made import MadeJobs
from tests.tui.runs.made import MadeLibrary
from tests.tui.screens.test_array import sweep
from tests.tui.screens.test_output import Files
from tests.tui.test_app import Still
from tests.tui.test_attached import PENDING, Known

SIZES = ((80, 24), (120, 40), (200, 60))
_DARK = Settings(theme="dark")


class Scene(NamedTuple):
    """A screen: the app, the keys that lead to it, and words that it shows when it is there."""

    make: Callable[[], Any]
    keys: str = ""
    shows: str = "gpumon"


def _dashboard(filled: tuple[Store, float], via: str = "replay", **parts: Any) -> GpumonApp:
    store, now = filled
    evaluation = parts.pop("evaluation", None)
    pipeline = Pipeline(Still(now, via), store=store, **parts)
    pipeline._evaluator.latest = evaluation
    pipeline.evaluate = lambda: None  # type: ignore[method-assign]  # when it would is chance
    return GpumonApp(pipeline, _DARK)


#: stores are only read
_story = cache(lambda: fill(500))
_nodes = cache(lambda count: cluster.fill(count, seconds=70))


@cache
def _judged() -> LiveEvaluation:
    """Fifteen minutes into the story."""
    gathering = Gathering()
    for item in islice(Recording(demos.path("finetune")).items(), 902):
        gathering.add("gpu07", item)
    run = gathering.data(None, site := load_site(), live=True)
    findings = Live().update(evaluate(run), run.end)
    return LiveEvaluation(findings, run, build(gathering.data(None, site)))


def _of_story() -> GpumonApp:
    return _dashboard(_story())


def _with_findings() -> GpumonApp:
    return _dashboard(_story(), evaluation=_judged())


def _of_nodes(count: int) -> Callable[[], GpumonApp]:
    return lambda: _dashboard(_nodes(count), "ssh")


def _with_output() -> GpumonApp:
    files = Files(out=[f"step {n}" for n in range(100)], err=["Traceback\x1b[31m!"])
    return _dashboard(_nodes(1), "ssh", output=files)


def _waiting() -> GpumonApp:
    return _dashboard((Store(), cluster.NOW), "ssh", job=Known(PENDING))


SCENES: dict[str, Scene] = {
    "job": Scene(_of_story),
    "device": Scene(_of_story, "2", "SM clock"),
    "processes": Scene(_of_story, "3", "on GPUs"),
    "process": Scene(_of_story, "3 enter", "evaluate.py"),
    "help": Scene(_of_story, "question_mark", "Screens"),
    "settings": Scene(_of_story, "f2", "theme"),
    "job-judged": Scene(_with_findings),
    "report": Scene(_with_findings, "5"),
    "finding": Scene(_with_findings, "5 enter"),
    "job-of-1-node": Scene(_of_nodes(1)),
    "job-of-2-nodes": Scene(_of_nodes(2)),
    "job-of-8-nodes": Scene(_of_nodes(8)),
    "job-of-64-nodes": Scene(_of_nodes(64)),
    "nodes-8": Scene(_of_nodes(8), "4", "worst first"),
    "nodes-64": Scene(_of_nodes(64), "4", "worst first"),
    "nodes-64-memory": Scene(_of_nodes(64), "4 c", "worst first"),
    "node": Scene(_of_nodes(8), "4 enter", "by ssh"),
    "output": Scene(_with_output, "o", "step 99"),
    "pending": Scene(_waiting, "", "Priority"),
    "array": Scene(lambda: sweep().app, "", "sweep-lr"),
    "jobs": Scene(lambda: JobsApp(MadeJobs(), _DARK, "ada", JobsState()), "", "4711"),
    "runs": Scene(lambda: RunsApp(MadeLibrary(), _DARK, RunsState()), "", "runs,"),
}


async def texts(name: str) -> dict[str, str]:
    """The rows of a scene at each size, by the title of its section."""
    scene, found = SCENES[name], {}
    app = scene.make()
    still = mock.patch.multiple(clock, now=lambda: cluster.NOW + 69, wall=float)
    with still:
        async with app.run_test(size=SIZES[0]) as pilot:
            await pilot.pause()
            await pilot.press(*scene.keys.split())
            for width, height in SIZES:
                await pilot.resize_terminal(width, height)
                await _until(pilot.pause, partial(_is_there, app, scene, width, height), name)
                if hasattr(app, "draw"):
                    app.draw()
                await pilot.pause()
                found[f"{width}x{height}"] = "\n".join(_rows(app))
    return found


def _is_there(app: Any, scene: Scene, width: int, height: int) -> bool:
    rows = list(_rows(app))
    return len(rows) == height and len(rows[0]) == width and scene.shows in "\n".join(rows)


async def _until(
    pause: Callable[[], Awaitable[None]], holds: Callable[[], bool], what: str
) -> None:
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} was never shown"
        await pause()


def _rows(app: Any) -> Iterator[str]:
    update = app.screen._compositor.render_update(full=True)
    for line in update.strips:
        yield "".join(segment.text for strip in line for segment in strip)
