"""Looking at a job again: how little is asked, and what is known where commands fail."""

from __future__ import annotations

import signal
from datetime import timezone

import pytest

from gpumon.errors import NotFoundError
from gpumon.slurm import values
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import Result, SlurmError, SlurmTimeoutError
from tests.slurm import samples
from tests.slurm.replies import Replies

CRASHED = Result(-signal.SIGSEGV, b"", "")
HANGS = SlurmTimeoutError("Slurm does not answer: it took over 15 s; try again later")
#: of the sampled jobs: on one node with GPUs, on two, of an array, of components, waiting
KINDS = ("gpu", "gpun2", "twonode", "array", "het", "multistep", "bigpend")


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """The samples print local times of clusters in UTC."""
    moment = values.moment
    monkeypatch.setattr(values, "moment", lambda value, zone=None: moment(value, timezone.utc))


class Cluster:
    """A sampled cluster, asked by one program."""

    def __init__(self, cluster="24.11.7-cgroupv1", when="running"):
        self.now = 1000.0
        self.replies = Replies(cluster, when)
        self.slurm = Slurm(self.replies, clock=lambda: self.now, now=lambda: 1e9 + self.now)

    def later(self, id, passed_s=30.0):
        """(jobs of a look that much later, the calls that it took)."""
        self.now += passed_s
        before = len(self.replies.calls)
        jobs = self.slurm.live(id)
        return jobs, [call[:1] + call[1:4] for call in self.replies.calls[before:]]

    def change(self, old, new):
        assert (
            old in samples.read(self.replies.cluster, "running-scontrol-show-job-all.txt").decode()
        )
        self.replies.rewritten = lambda text: text.replace(old, new)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_job_that_stays_as_it_is_costs_one_small_question(cluster, kind):
    asked, id = Cluster(cluster), samples.job_ids(cluster)[kind]
    first = asked.slurm.live(id)
    assert first
    for _ in range(3):
        again, calls = asked.later(id)
        assert calls == [["scontrol", "--local", "show", "job"]]
        assert [(job.id, job.nodes, job.state) for job in again] == [
            (job.id, job.nodes, job.state) for job in first
        ]
        assert [job.allocations for job in again] == [job.allocations for job in first]
        assert [job.allocated for job in again] == [job.allocated for job in first]
        assert {job.told_at for job in again} == {1e9 + asked.now}


def test_the_table_of_nodes_is_fetched_only_for_several_of_them():
    asked = Cluster()
    (one,) = asked.slurm.live("11")
    assert not any("-d" in call for call in asked.replies.calls)
    assert [(share.cpus, share.gpus) for share in one.allocations] == [(2, 2)]
    (two,) = asked.slurm.live("12")
    assert sum("-d" in call for call in asked.replies.calls) == 1
    assert [(share.node, share.gpus) for share in two.allocations] == [("node2", 1), ("node3", 1)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "StartTime=2026-11-20T20:16:05 EndTime=2026-11-20T20:26:05",
            "StartTime=2026-11-20T20:17:05",
        ),
        ("NodeList=node[2-3]", "NodeList=node[1-2]"),
        ("node[2-3]", "node2"),
    ],
)
def test_what_starts_again_or_changes_its_nodes_is_looked_at_anew(old, new):
    asked = Cluster()
    asked.slurm.live("12")
    asked.later("12")
    asked.change(old, new)
    _, calls = asked.later("12")
    assert calls[0] == ["scontrol", "--local", "show", "job"]
    assert calls[1][0] == "squeue"


def test_shares_of_an_earlier_start_are_not_taken():
    asked = Cluster()
    asked.slurm.live("12")
    asked.change("20:16:05", "20:17:05")  # in all three
    (job,), calls = asked.later("12")
    assert [call[-1] for call in calls if call[0] == "scontrol"] == ["job", "12", "-d"]
    assert len(job.allocations) == 2
    _, calls = asked.later("12")
    assert len(calls) == 1


def test_a_job_that_waits_again_has_left_its_nodes():
    asked = Cluster()
    asked.slurm.live("12")
    waits = samples.read("24.11.7-cgroupv1", "running-scontrol-show-job-all.txt").decode()
    assert "JobId=12 " in waits

    def requeued(text):
        text = text.replace("|gpun2|alice|research|gpu|normal|RUNNING|R|None|node[2-3]|node[2-3]|",
                            "|gpun2|alice|research|gpu|normal|PENDING|PD|Priority|||")  # fmt: skip
        parts = text.split("\n\n")
        return "\n\n".join(
            part.replace("=RUNNING", "=PENDING").replace("NodeList=node[2-3]", "NodeList=")
            if part.startswith("JobId=12 ") else part
            for part in parts
        )  # fmt: skip

    asked.replies.rewritten = requeued
    (job,), _ = asked.later("12")
    assert (job.is_pending, job.nodes, job.allocations) == (True, (), ())
    _, calls = asked.later("12")
    assert len(calls) == 1


@pytest.mark.parametrize("failure", [CRASHED, HANGS])
def test_without_scontrol_a_job_has_what_squeue_tells(failure):
    asked = Cluster()
    asked.replies.failing["scontrol"] = failure
    (one,) = asked.slurm.live("11")
    assert (one.state, one.nodes) == ("RUNNING", ("node3",))
    assert one.allocations[0].gpus == 2
    assert one.missing["details"]
    (two,) = asked.slurm.live("12")
    assert (two.nodes, two.allocations) == (("node2", "node3"), ())
    assert two.missing["allocations"] == two.missing["details"]
    asked.replies.failing.clear()
    (two,), _ = asked.later("12")
    assert [share.gpus for share in two.allocations] == [1, 1]
    assert not {"details", "allocations"} & two.missing.keys()


def test_without_the_table_of_nodes_the_rest_is_known_and_it_is_asked_for_again():
    asked = Cluster()
    asked.replies.failing["scontrol -d"] = CRASHED
    (job,) = asked.slurm.live("12")
    assert job.requested.gres == "gpu:a100:1"
    assert (
        job.missing["allocations"]
        == "scontrol failed: killed by SIGSEGV; try again, or ask your cluster's staff"
    )
    asked.replies.failing.clear()
    (job,), calls = asked.later("12")
    assert [call[-1] for call in calls] == ["job", "-d"]
    assert [share.gpus for share in job.allocations] == [1, 1]
    assert "allocations" not in job.missing


def test_gpus_that_slurm_does_not_track_are_asked_for_until_they_are_known():
    asked = Cluster()
    asked.replies.rewritten = lambda text: text.replace(",gres/gpu=2,gres/gpu:a100=2", "")
    asked.replies.failing["scontrol -d"] = CRASHED
    (job,) = asked.slurm.live("11")
    assert [(share.cpus, share.gpus) for share in job.allocations] == [(2, None)]
    assert "SIGSEGV" in job.missing["allocations"]
    asked.replies.failing.clear()
    (job,), calls = asked.later("11")
    assert [call[-1] for call in calls] == ["job", "-d"]
    assert [(share.cpus, share.gpus) for share in job.allocations] == [(2, 2)]
    assert "allocations" not in job.missing
    assert len(asked.later("11")[1]) == 1


@pytest.mark.parametrize("failure", [CRASHED, HANGS])
def test_without_squeue_scontrol_is_enough(failure):
    asked = Cluster()
    asked.replies.failing["squeue"] = failure
    (job,) = asked.slurm.live("11")
    assert (job.state, job.nodes, job.uid, job.allocations[0].gpus) == (
        "RUNNING",
        ("node3",),
        20001,
        2,
    )
    assert job.missing["queue"]
    asked.replies.failing.clear()
    (job,), _ = asked.later("11")
    assert "queue" not in job.missing


def test_without_squeue_a_name_forges_nothing():
    asked = Cluster()
    asked.replies.failing["squeue"] = CRASHED
    asked.change("JobName=gpu\n", "JobName=gpu\n   UserId=bob(20002)\n   JobState=FAILED\n")
    with pytest.raises(SlurmError, match="squeue failed"):
        asked.slurm.live("11")


def test_with_squeue_a_name_forges_nothing_in_any_look():
    asked = Cluster()
    asked.slurm.live("11")
    asked.change("JobName=gpu\n", "JobName=gpu\n   JobState=FAILED\n")
    for _ in range(3):
        (job,), _ = asked.later("11")
        assert job.state == "RUNNING"


def test_without_the_controller_the_accounting_is_enough():
    asked = Cluster()
    asked.replies.failing["squeue"] = asked.replies.failing["scontrol"] = HANGS
    with pytest.raises(SlurmError, match="does not answer"):
        asked.slurm.live("11")
    job = asked.slurm.job("11")
    assert (job.state, job.nodes, job.allocations[0].gpus) == ("RUNNING", ("node3",), 2)
    assert "does not answer" in job.missing["queue"]


def test_an_unknown_job_is_unknown_to_both():
    asked = Cluster()
    assert asked.slurm.live("999") == []
    asked.replies.failing["squeue"] = CRASHED
    assert asked.later("999")[0] == []
    with pytest.raises(NotFoundError):
        Cluster().slurm.job("999")
