"""Asking Slurm: which commands are asked, how often, and what becomes of their answers."""

from __future__ import annotations

import signal
from datetime import timezone

import pytest

from gpumon.errors import NotFoundError, UsageError
from gpumon.slurm import client, sacct, values
from gpumon.slurm.client import AccountingOffError, Slurm
from gpumon.slurm.job import ExitCode
from gpumon.slurm.runner import Result, SlurmError
from tests.slurm import samples
from tests.slurm.replies import Replies

OFF = Result(1, b"", "Slurm accounting storage is disabled\n")
DOWN = Result(1, b"", "slurm_load_jobs error: Unable to contact slurm controller\n")
CRASHED = Result(-signal.SIGSEGV, b"", "")


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """The samples print local times of clusters in UTC."""
    moment = values.moment
    monkeypatch.setattr(values, "moment", lambda value, zone=None: moment(value, timezone.utc))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def slurm(cluster: str = "24.11.7-cgroupv1", when: str = "running", clock=None):
    replies = Replies(cluster, when)
    return Slurm(replies, clock=clock or Clock()), replies


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_running_job_is_joined_from_three_commands(cluster):
    asked, replies = slurm(cluster)
    job = asked.job("11")
    assert (job.id, job.state, job.user, job.slurm_version) == (
        "11",
        "RUNNING",
        "alice",
        cluster.partition("-")[0],
    )
    assert job.allocations[0].gpus is not None
    assert job.allocations[0].gpus == 2
    assert (job.requested.gres, job.requested.mem_form) == ("gpu:a100:2", "node")
    assert {"batch", "extern"} <= {step.id for step in job.steps}
    assert job.missing["usage"] == sacct.NOT_YET
    assert job.sources["state"] == "squeue"
    assert job.sources["allocations"] == "squeue"  # its only node's
    assert job.sources["steps"] == job.sources["cluster"] == "sacct"
    assert job.acct_gather == ("linux" if "nocgroup" in cluster else "cgroup/v1")
    assert job.end == job.start + 600
    assert replies.environment == client.ENVIRONMENT


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_of_an_ended_job_the_accounting_is_believed(cluster):
    job = slurm(cluster, "after")[0].job("7")
    assert (job.state, job.exit_code) == ("FAILED", ExitCode(3))
    assert job.sources["state"] == "sacct"
    assert job.requested.mem_form == "node"  # only scontrol has it
    assert "usage" not in job.missing


def test_ids_of_steps_tasks_and_components():
    asked, _ = slurm(when="after")
    assert asked.job("11.batch").id == "11"
    assert asked.job("6_2").raw_id == "21"
    assert asked.job("21").id == "6_2"
    assert asked.job("14").id == "14+0"
    assert asked.job("14+1").raw_id == "15"


def test_an_array_needs_a_task():
    with pytest.raises(UsageError, match="6_1, 6_2, 6_3, 6_4"):
        slurm(when="after")[0].job("6")


def test_an_unknown_job_is_not_found():
    with pytest.raises(NotFoundError, match="999") as caught:
        slurm()[0].job("999")
    assert caught.value.code == 4


def test_without_accounting_a_running_job_says_so():
    asked, replies = slurm()
    replies.failing["sacct"] = OFF
    job = asked.job("11")
    assert job.state == "RUNNING"
    assert "accounting is disabled" in job.missing["usage"]
    with pytest.raises(NotFoundError, match="accounting is disabled"):
        asked.job("999")
    with pytest.raises(AccountingOffError):
        asked.jobs(["11"])


def test_without_the_controller_the_accounting_answers():
    asked, replies = slurm(when="after")
    replies.failing["squeue"] = replies.failing["scontrol"] = DOWN
    assert asked.job("4").derived_exit_code == ExitCode(0, 125)
    with pytest.raises(SlurmError, match="Unable to contact"):
        asked.job("999")


def test_a_command_that_failed_without_a_message(clock):
    asked, replies = slurm(clock=clock)
    replies.failing["squeue"] = CRASHED
    with pytest.raises(SlurmError, match=r"squeue failed: killed by SIGSEGV; try again"):
        asked.queue()
    replies.failing["squeue"] = Result(139, b"", " \n")
    clock.now += 60
    with pytest.raises(SlurmError, match=r"squeue failed: exit code 139 without a message"):
        asked.queue()


def test_a_record_of_another_job_with_the_same_id_is_not_mixed_in(monkeypatch):
    asked, replies = slurm()
    old = Replies("22.05.8-cgroupv1", "after")  # the same ids, an hour before
    monkeypatch.setattr(replies, "_sacct", old._sacct)
    job = asked.job("11")
    assert job.state == "RUNNING"
    assert job.steps == ()


def test_many_jobs_are_one_call():
    asked, replies = slurm(when="after")
    found = asked.jobs(["1", "2", "6", "14"])
    assert [job.id for job in found] == [
        "1", "2", "14+0", "14+1", "6_1", "6_2", "6_3", "6_4",
    ]  # fmt: skip
    assert replies.asked("sacct") == 1
    assert len(asked.accounted(user="alice", since="now-7days").jobs) == 21
    call = replies.calls[-1]
    assert call[call.index("-u") + 1] == "alice"
    assert call[call.index("-S") + 1] == "now-7days"


def test_fields_are_asked_once():
    asked, replies = slurm()
    for id in ("1", "2", "3"):
        asked.jobs([id])
    assert sum("--helpformat" in call for call in replies.calls) == 1


def test_the_same_is_not_asked_again_before_its_period(clock):
    asked, replies = slurm(clock=clock)
    first = asked.queue(user="alice")
    clock.now += 29
    assert asked.queue(user="alice") is first
    assert replies.asked("squeue") == 1
    clock.now += 2
    asked.queue(user="alice")
    assert replies.asked("squeue") == 2


def test_the_controller_is_never_asked_faster_than_every_10_s(clock):
    replies = Replies("24.11.7-cgroupv1")
    asked = Slurm(replies, clock=clock, controller_period_s=1)
    for _ in range(20):
        asked.queue()
        clock.now += 1
    assert replies.asked("squeue") == 2


def test_what_has_happened_is_asked_sooner_and_no_oftener_than_every_10_s(clock):
    asked, replies = slurm(clock=clock)
    asked.live("11")
    clock.now += 30
    asked.live("11")
    times = []
    for _ in range(40):
        clock.now += 1
        before = len(replies.calls)
        asked.live("11", soon=clock.now > 1045)
        if len(replies.calls) > before:
            times.append(clock.now - 1030)
    assert times == [16, 26, 36]
    before = len(replies.calls)
    clock.now += 29 - 4  # since the last
    asked.live("11")
    assert len(replies.calls) == before
    clock.now += 1
    asked.live("11")
    assert len(replies.calls) == before + 1


def test_sstat_is_asked_every_minute(clock):
    asked, replies = slurm(clock=clock)
    for _ in range(119):
        asked.usage(["11"])
        clock.now += 1
    assert replies.asked("sstat") == 2


def test_an_error_that_will_not_pass_is_asked_again_after_the_period(clock):
    asked, replies = slurm(clock=clock)
    replies.failing["squeue"] = Result(1, b"", "squeue: error: Access/permission denied")
    times = []
    for _ in range(220):
        before = replies.asked("squeue")
        with pytest.raises(SlurmError, match="denied"):
            asked.queue()
        if replies.asked("squeue") > before:
            times.append(clock.now - 1000)
        clock.now += 1
    assert times == [0, 30, 90, 210]


def test_errors_are_repeated_without_asking_and_asked_less_and_less(clock):
    asked, replies = slurm(clock=clock)
    replies.failing["squeue"] = DOWN
    times = []
    for _ in range(400):
        before = replies.asked("squeue")
        with pytest.raises(SlurmError, match="Unable to contact"):
            asked.queue()
        if replies.asked("squeue") > before:
            times.append(clock.now - 1000)
        clock.now += 1
    assert times == [0, 10, 30, 70, 150, 310]
    del replies.failing["squeue"]
    clock.now += 600
    assert asked.queue()


def test_usage_of_a_running_job():
    asked, _ = slurm()
    job = asked.with_usage(asked.job("11"))
    batch = next(step for step in job.steps if step.id == "batch")
    assert batch.max_rss_bytes == 4748 * 1024
    assert batch.usage.maximum["mem"] == 4748 * 1024
    assert batch.source == "sstat"
    assert "usage" not in job.missing


def test_usage_of_a_foreign_job_has_a_reason():
    asked, replies = slurm()
    error = samples.commands("24.11.7-cgroupv1")["running-sstat-bob.txt"].err
    replies.failing["sstat"] = Result(0, b"", error)
    with pytest.raises(SlurmError, match="owner"):
        asked.usage(["11"])
    assert "owner" in asked.with_usage(asked.job("11")).missing["usage"]


def test_the_script_of_a_job():
    asked, replies = slurm()
    script = asked.batch_script("2")
    assert script.startswith("#!/bin/bash\n#SBATCH -J cpuhog")
    replies.failing["scontrol"] = Result(1, b"", "job script retrieval failed")
    stored = slurm()
    stored[1].failing["scontrol"] = Result(1, b"", "job script retrieval failed")
    assert stored[0].batch_script("2").rstrip() == script.rstrip()


def test_a_script_that_nobody_shows():
    asked, replies = slurm()
    replies.failing["scontrol"] = replies.failing["sacct"] = Result(1, b"", "denied")
    with pytest.raises(NotFoundError, match="script of job 2"):
        asked.batch_script("2")


def test_words_of_slurm_are_cleaned():
    asked, replies = slurm()
    replies.failing["squeue"] = Result(1, b"", "squeue: error: \x1b[31mred\x07\n")
    with pytest.raises(SlurmError) as caught:
        asked.queue()
    assert str(caught.value).isprintable()
