"""Runs made by hand, and a library of them that reads no files."""

from __future__ import annotations

from gpumon.errors import GpumonError
from gpumon.pipeline.pipeline import Pipeline
from gpumon.recording.runs import Run
from tests.tui.conftest import fill
from tests.tui.test_app import Still

NOW = 1_795_289_520.0
_A100 = "NVIDIA A100-SXM4-80GB"


def run(id, ago_s, seconds, size_bytes, *, job="", nodes=("gpu01",), devices=(_A100,), **more):
    start = NOW - ago_s
    return Run(
        "alpha" if job else "", job, list(nodes), start, start + seconds, size_bytes,
        [f"/state/jobs/{job or 'node'}/{id}-{node}.gpumon" for node in nodes],
        **{"state": "ended", **more}, devices=tuple(devices), id=id,
    )  # fmt: skip


RUNS = (
    run("4712", 900, 840, 4 << 20, job="4712", name="train-bf16", nodes=("gpu01", "gpu02")),
    run("4711", 90_000, 7500, 9 << 20, job="4711", name="train-fp32"),
    run("gpu03-20261119T184000", 180_000, 45, 900, devices=(_A100,) * 8, state="torn"),
)


class MadeLibrary:
    """What was asked of it is in `asked`."""

    folder = "/state"

    def __init__(self, runs=RUNS):
        self.runs = list(runs)
        self.asked = []

    def find(self):
        return list(self.runs), []

    def report(self, run, columns):
        self.asked.append(("report", run.id))
        if run.state == "torn":
            raise GpumonError(f"cannot read {run.id}")
        return f"report of {run.id}"

    def compare(self, a, b):
        self.asked.append(("compare", a.id, b.id))
        return f"A is {a.id}, B is {b.id}"

    def remove(self, run):
        self.asked.append(("remove", run.id))
        self.runs.remove(run)

    def replay(self, run):
        self.asked.append(("replay", run.id))
        store, now = fill(60)
        return Pipeline(Still(now), store=store)
