"""`gpumon` inside of a job: the node at once, Slurm's knowledge later, and what the job becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.config import Settings
from gpumon.model import clock
from gpumon.services import own_job
from gpumon.services.around import is_in_job
from gpumon.services.own_job import OwnJob, job_here, watch_here
from gpumon.services.prompting import Prompting
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.slurm.parts import parts_of
from gpumon.slurm.runner import SlurmError
from gpumon.transport.available import AvailableTransports
from gpumon.transport.fallback import Transports
from tests.sources.sinks import Sink
from tests.support.waiting import until

JOB = Job(raw_id="7", id="7", state="RUNNING", node_list="here", nodes=("here",))


def no_ways(self, jobs):
    return {part.name: Transports([]) for part in parts_of(jobs)}


@pytest.fixture
def inside(monkeypatch):
    """A job on this node; `answers` is what Slurm says next, or raises."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURMD_NODENAME", "here")
    monkeypatch.setattr(own_job, "_LATER_S", 0.1)
    monkeypatch.setattr("gpumon.sources.watched.LEAST_PERIOD_S", 0.2)
    answers = [SlurmError("no such program: squeue")]

    def look_again(slurm, jobs, *, soon=False):
        if isinstance(answers[-1], Exception):
            raise answers[-1]
        return [replace(answers[-1], told_at=clock.now())]

    monkeypatch.setattr(own_job, "look_again", look_again)
    monkeypatch.setattr(AvailableTransports, "for_jobs", no_ways)
    watched = watch_here(JOB, Settings(interval_s=0.2, record=False), Prompting())
    watched._ask_s = 0.2
    sink = Sink()
    own = OwnJob(watched)
    watched.start(sink)
    yield own, sink, answers
    watched.stop()


def test_it_is_asked_again_and_again_and_what_changes_is_followed(inside):
    own, sink, answers = inside
    sink.wait(lambda sink: sink.of("sample", "here"))
    assert (own.job(), own.silence) == (None, None)  # there may be no Slurm here at all
    job = replace(JOB, name="train", allocations=(NodeAllocation("here", gpus=2),))
    answers.append(job)
    until(lambda: own.job() and own.job().name == "train")
    answers.append(replace(job, time_limit_s=60.0, state="SUSPENDED"))
    until(lambda: own.job().time_limit_s == 60.0)
    answers.append(replace(job, nodes=("here", "there"), node_list="here,there"))
    sink.wait(lambda sink: sink.states("there"))
    answers.append(job)
    sink.wait(lambda sink: sink.states("there")[-1] == "left")
    assert sink.states("here").count("live") == 1  # its stream went on
    answers.append(SlurmError("Slurm does not answer"))
    assert until(lambda: own.silence).why == "Slurm does not answer"
    assert own.job().name == "train"


def test_outside_of_a_job_there_is_none():
    assert job_here({}) is None
    assert job_here({"SLURM_JOB_ID": "x"}) is None
    assert job_here({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here"}) == JOB


@pytest.mark.parametrize(
    ("names", "inside"),
    [((), False), (("SLURM_CLUSTER_NAME", "PATH"), False), (("SLURM_JOB_ID",), True),
     (("SLURM_JOB_ID_HET_GROUP_1",), True)],
)  # fmt: skip
def test_a_shell_in_a_job_is_known_by_its_environment(names, inside):
    assert is_in_job(names) is inside
