"""`gpumon attach ARRAY` without a terminal: a line for each task, or its samples as JSON."""

import json

import pytest

from gpumon.config import Settings
from gpumon.errors import GpumonError
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.model.view import Status
from gpumon.services import samples
from gpumon.slurm.job import Job, Resources

GIB = 1 << 30


def task(number, state="RUNNING", **known):
    id = f"4711_{number}" if str(number).isdigit() else f"4711_[{number}]"
    nodes = ("n1",) if state == "RUNNING" else ()
    return Job(
        raw_id=f"50{number}", id=id, array_job_id="4711", array_task=str(number), state=state,
        nodes=nodes, node_list=",".join(nodes), allocated=Resources(cpus=8, gpus=2), **known,
    )  # fmt: skip


def header(job):
    facts = {"mem_total_bytes": 80 * GIB}
    devices = [Device(n, n, f"GPU-{n}", "A100", n, None, facts) for n in range(2)]
    own = JobContext(job.raw_id, mem_limit_bytes=64 * GIB)
    return Header("n1", "b", 0.0, 0.0, 1.0, "0", devices, job=own)


def sample(busy=(60.0, 40.0)):
    rows = {
        "device": {
            n: {"busy_percent": each, "mem_used_bytes": 20 * GIB} for n, each in enumerate(busy)
        },
        "job": {"": {"cpu_cores_used": 5.1, "mem_used_bytes": 31 * GIB}},
    }
    return Sample(0.0, 0.0, rows, {}, [])


class Source:
    """A task's nodes that say this, or why they say nothing."""

    def __init__(self, job, said, why=""):
        self.job, self.said, self.why = job, said, why

    def start(self, sink):
        if self.said is None:
            sink.status("n1", Status("lost", 0.0, self.why))
            return
        sink.header("n1", header(self.job))
        sink.add("n1", self.said)
        sink.add("n1", self.said._replace(mono=1.0))

    def stop(self):
        pass

    def jobs(self):
        return [self.job]

    def attempts(self, node):
        return []


class Available:
    """In the place of transports."""

    is_shared = False
    for_jobs = None

    def close(self):
        assert self.is_shared


@pytest.fixture
def said(monkeypatch):
    """By task id, what its node says."""
    found = {}

    def watch(jobs, look, ways, interval_s):
        return Source(jobs[0], found.get(jobs[0].id), "no route to n1")

    monkeypatch.setattr(samples, "WatchedJob", watch)
    return found


def printed(*jobs, as_json=False):
    return samples.print_tasks(jobs, Available(), Settings(), as_json=as_json)


def test_a_line_for_each_task(said, capsys):
    said["4711_1"] = sample()
    waiting = task("2-9%4", "PENDING", reason="Resources")
    assert printed(task(1), waiting) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["TASK", "STATE", "NODES"]
    assert first.split() == [
        "4711_1", "RUNNING", "n1", "2", "50", "%", "40", "/", "160", "GiB", "5.1", "/", "8",
        "31", "/", "64", "GiB",
    ]  # fmt: skip
    assert second.split() == ["4711_[2-9%4]", "PENDING", "Resources", "2"]


def test_what_is_not_known_is_no_number(said, capsys):
    said["4711_1"] = sample((60.0, Missing("lost")))
    assert printed(task(1)) == 0
    assert " ? " in capsys.readouterr().out


def test_a_node_that_says_nothing_is_named_and_the_others_are_shown(said, capsys):
    said["4711_1"] = sample()
    assert printed(task(1), task(2)) == 1
    out, err = capsys.readouterr()
    assert "50 %" in out
    assert err == "gpumon: 4711_2: n1: no route to n1\n"


def test_json_is_a_line_for_each_node_of_each_running_task(said, capsys):
    said["4711_1"], said["4711_2"] = sample(), sample()
    assert printed(task(1), task(2), task("3-9", "PENDING"), as_json=True) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["job"]["id"] for each in told] == ["501", "502"]
    with pytest.raises(GpumonError, match="waits"):
        printed(task("3-9", "PENDING"), as_json=True)


def test_tasks_beyond_the_bound_have_slurms_figures(said, capsys, monkeypatch):
    monkeypatch.setattr("gpumon.pipeline.array.MAX_STREAMS", 1)
    said["4711_1"] = said["4711_2"] = sample()
    assert printed(task(1, start=1.0), task(2, start=2.0)) == 0
    out, err = capsys.readouterr()
    assert out.count("50 %") == 1
    assert "1 running task not measured" in err
