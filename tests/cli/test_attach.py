"""`gpumon attach` before it reaches a node: which job, which nodes, in words."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gpumon.config import Settings
from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.export.sample_json import sample_json
from gpumon.model.reading import MEASURING
from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.model.view import Status
from gpumon.services import jobs as finding
from gpumon.services.attach import paced
from gpumon.services.own_job import jobs_around, named_around
from gpumon.services.prompting import Prompting
from gpumon.services.samples import Samples
from gpumon.slurm import ids
from gpumon.slurm.job import Job
from gpumon.transport.available import here
from gpumon.transport.prompt import Question

JOB = Job(raw_id="7", id="7", state="RUNNING", user="ada", node_list="gpu[01-02]",
          nodes=("gpu01", "gpu02"))  # fmt: skip


class Slurm:
    """The controller's answer."""

    def __init__(self, *jobs):
        self.listed = list(jobs)
        self.past = []
        self.asked = []

    def live(self, id, *, soon=False):
        self.asked.append(id)
        return self.listed

    def job(self, text):
        raise NotFoundError(f"there is no job {text}")

    def jobs(self, job_ids):
        return self.past


# -- which job ---------------------------------------------------------------------------------
def test_a_het_job_is_all_its_components_and_one_of_them_alone():
    parts = [
        Job(raw_id="15", id="14+1", het_job_id="14", het_offset=1, state="RUNNING"),
        Job(raw_id="14", id="14+0", het_job_id="14", het_offset=0, state="RUNNING"),
    ]
    slurm = Slurm(*parts)
    assert finding.find_jobs(slurm, ids.parse("14")) == parts[::-1]
    assert finding.find_jobs(slurm, ids.parse("14+1")) == [parts[0]]
    assert not finding.is_array(parts)


def test_an_array_is_its_tasks_that_have_not_ended():
    tasks = [
        Job(raw_id=raw, id=f"20_{task}", array_job_id="20", array_task=task, state=state)
        for raw, task, state in [
            ("20", "11-99", "PENDING"), ("30", "10", "RUNNING"), ("29", "9", "RUNNING"),
            ("28", "8", "FAILED"),
        ]
    ]  # fmt: skip
    slurm = Slurm(*tasks)
    found = finding.find_jobs(slurm, ids.parse("20"))
    assert [job.id for job in found] == ["20_9", "20_10", "20_11-99"]
    assert finding.is_array(found)
    assert [job.raw_id for job in finding.find_jobs(slurm, ids.parse("20_9.batch"))] == ["29"]


def test_of_an_array_whose_tasks_have_all_ended_they_are_all():
    tasks = [
        Job(raw_id=f"2{n}", id=f"20_{n}", array_job_id="20", array_task=f"{n}", state="COMPLETED")
        for n in (2, 1)
    ]
    past = Slurm()
    past.past = tasks  # the controller has forgotten them
    for slurm in (Slurm(*tasks), past):
        assert finding.find_jobs(slurm, ids.parse("20")) == tasks[::-1]


def test_a_task_that_waits_with_others_is_followed_when_it_starts():
    """Until then it has the number of those that wait."""
    rest = Job(raw_id="20", id="20_[4-9%1]", array_job_id="20", array_task="4-9%1", state="PENDING")
    slurm = Slurm(rest)
    (task,) = finding.find_jobs(slurm, ids.parse("20_5"))
    assert (task.id, task.array_task, task.state) == ("20_5", "5", "PENDING")
    assert finding.look_again(slurm, [task]) == [task]
    started = Job(raw_id="31", id="20_5", array_job_id="20", array_task="5", state="RUNNING")
    other = replace(started, raw_id="30", id="20_4", array_task="4")
    slurm.listed = [replace(rest, array_task="6-9%1"), other, started]
    assert finding.look_again(slurm, [task]) == [started]


def test_an_unknown_job():
    with pytest.raises(NotFoundError):
        finding.find_jobs(Slurm(), ids.parse("9"))


def test_looking_again_keeps_what_only_the_first_look_told():
    first = replace(JOB, cluster="alpha")
    slurm = Slurm(replace(JOB, state="COMPLETED"), Job(raw_id="8"))
    assert finding.look_again(slurm, [first]) == [replace(first, state="COMPLETED")]
    task = Job(raw_id="29", id="20_9", array_job_id="20", array_task="9")
    finding.look_again(Slurm(task), [task])
    with pytest.raises(NotFoundError):
        finding.look_again(Slurm(), [JOB])


@pytest.mark.parametrize(
    ("job", "asked"),
    [
        (Job(raw_id="29", id="20_9", array_job_id="20", array_task="9"), "29"),
        (Job(raw_id="20", id="20_10", array_job_id="20", array_task="10"), "20_10"),
        (Job(raw_id="20", id="20_[4-9]", array_job_id="20", array_task="4-9"), "20"),
        (Job(raw_id="15", id="14+1", het_job_id="14", het_offset=1), "14"),
        (Job(raw_id="7", id="7"), "7"),
    ],
)
def test_looking_again_asks_for_no_more_than_the_job(job, asked):
    slurm = Slurm(job)
    finding.look_again(slurm, [job])
    assert slurm.asked == [asked]


def test_who_may_attach(monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 1000)
    finding.check([replace(JOB, uid=1000)], remote=False)
    finding.check([replace(JOB, uid=1001)], remote=True)
    with pytest.raises(GpumonError, match="job 7 is ada's"):
        finding.check([replace(JOB, uid=1001)], remote=False)
    monkeypatch.setattr("os.getuid", lambda: 0)
    finding.check([replace(JOB, uid=1001)], remote=False)


def test_the_nodes_that_are_wanted():
    assert finding.chosen_nodes(None, [JOB]) == []
    assert finding.chosen_nodes("gpu[01-02]", [JOB]) == ["gpu01", "gpu02"]
    with pytest.raises(
        NotFoundError, match=r"gpu03 is not a node of job 7; it runs on gpu\[01-02\]"
    ):
        finding.chosen_nodes("gpu[02-03]", [JOB])
    for text in ("", "gpu[1", "gpu[2-1]"):
        with pytest.raises(UsageError):
            finding.chosen_nodes(text, [JOB])


def test_a_job_that_waits(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    pending = Job(id="7", state="PENDING", reason="Prio\x1b[2Jrity", expected_start=1e9)
    text = finding.waiting_text(pending)
    assert text.isprintable()
    assert text.startswith("job 7 waits (Prio?[2Jrity); expected to start 2001-09-09")
    assert "(" not in finding.waiting_text(Job(id="7", state="PENDING"))


# -- the job around this shell -----------------------------------------------------------------
AROUND = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[01-02]", "SLURMD_NODENAME": "gpu01",
    "SLURM_CLUSTER_NAME": "alpha", "SLURM_JOB_START_TIME": "1795200000",
}  # fmt: skip


def test_an_allocation_of_several_nodes():
    (job,) = jobs_around(AROUND)
    assert (job.raw_id, job.nodes, job.cluster) == ("7", ("gpu01", "gpu02"), "alpha")
    assert (job.is_running, job.start) == (True, 1795200000.0)
    assert here(AROUND) == ("gpu01", "7")


def test_a_shell_of_salloc_on_a_login_host():
    shell = {name: value for name, value in AROUND.items() if name != "SLURMD_NODENAME"}
    (job,) = jobs_around(shell | {"SLURM_JOB_NODELIST": "gpu05"})
    assert job.nodes == ("gpu05",)
    assert here(shell).job == ""  # it does not stand in the job


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_JOB_NODELIST": "gpu01"},  # this node alone
        {"SLURM_JOB_NODELIST": "gpu[01"},
        {"SLURM_JOB_NODELIST": ""},
        {"SLURM_JOB_ID": "\x1b[2J"},
        {"SLURM_JOB_ID": ""},
        {"SLURM_HET_SIZE": "2"},  # without its components' variables
    ],
)
def test_this_node_is_enough(change):
    assert jobs_around(AROUND | change) == []


def test_without_slurm_the_job_around_is_the_one_that_is_named():
    (job,) = jobs_around(AROUND)
    (found,) = named_around(AROUND, ids.parse(job.raw_id), "Slurm does not answer")
    assert found == replace(job, missing={"queue": "Slurm does not answer"})
    assert named_around(AROUND, ids.parse("99999"), "") == []
    assert named_around({}, ids.parse(job.raw_id), "") == []


def test_components_of_a_het_job_around():
    told = {
        "SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "14",
        "SLURM_JOB_ID_HET_GROUP_0": "14", "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu01",
        "SLURM_JOB_ID_HET_GROUP_1": "15", "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu02",
    }  # fmt: skip
    jobs = jobs_around(AROUND | told)
    assert [(job.raw_id, job.id, job.het_offset, job.nodes) for job in jobs] == [
        ("14", "14+0", 0, ("gpu01",)), ("15", "14+1", 1, ("gpu02",)),
    ]  # fmt: skip


# -- the rest ----------------------------------------------------------------------------------
def test_two_samples_of_a_node_are_enough_and_none_of_a_lost_one():
    samples = Samples(["a", "b"])
    samples.add("a", Sample(1.0, 1.0, {"host": {"": {"load1": 1}}}))
    samples.add("a", Sample(2.0, 2.0, {"host": {"": {"cpu_percent": 5.0}}}))
    samples.add("a", Sample(3.0, 3.0, {"host": {"": {"cpu_percent": 9.0}}}))
    samples.status("b", Status("lost", 1.0, "ssh: no"))
    samples.wait(60)
    assert samples.samples["a"].rows["host"][""] == {"load1": 1, "cpu_percent": 5.0}
    assert samples.statuses["b"].detail == "ssh: no"


def test_the_cores_of_a_job_are_those_of_a_second_at_least():
    samples = Samples(["a"])

    def add(mono, cpu_s, cores):
        row = {"cpu_s": cpu_s, "cpu_cores_used": cores}
        samples.add("a", Sample(1e9 + mono, mono, {"job": {"": row}}))

    add(10.0, 100.0, MEASURING)
    add(10.05, 100.0, 0.0)  # the clock of its interval struck just then
    assert "a" not in samples.windows_s
    add(11.05, 104.2, 4.2)
    assert samples.samples["a"].rows["job"][""]["cpu_cores_used"] == pytest.approx(4.0)
    assert samples.windows_s["a"] == pytest.approx(1.05)
    header = Header("a", "", 1e9, 0.0, 1.0, "1", job=JobContext("7", start=1e9 - 41.05 + 11.05))
    job = sample_json(header, samples.samples["a"], samples.windows_s["a"])["job"]
    assert job["cpu_window_s"] == 1.05
    assert job["cpu_cores_mean"] == pytest.approx(104.2 / 41.05, abs=0.001)


def test_a_driver_that_is_slow_to_begin_is_waited_for():
    device = Device(0, 0, "GPU-0", "NVIDIA A100", 0, None, {})
    for devices, enough in (([], [11.5, 15.5]), ([device], [11.5])):
        samples = Samples(["a"])
        header = Header("a", "", 1e9, 0.0, 1.0, "1", job=JobContext("7", gpus=1))
        samples.header("a", header._replace(devices=devices))
        for mono in (10.0, *enough):
            assert "a" not in samples.windows_s
            samples.add("a", Sample(1e9 + mono, mono, {}))
        assert "a" in samples.windows_s


def test_cores_since_a_start_that_is_not_known_have_a_reason():
    sample = Sample(1e9, 10.0, {"job": {"": {"cpu_s": 100.0}}})
    for start in (None, 1e9 - 0.5, 1e9 + 9):
        header = Header("a", "", 1e9, 0.0, 1.0, "1", job=JobContext("7", start=start))
        job = sample_json(header, sample)["job"]
        assert (job["cpu_cores_mean"], job["cpu_window_s"]) == (None, None)
        assert "start" in job["missing"]["cpu_cores_mean"]


def test_a_question_reaches_the_screen_once_it_is_open():
    prompting = Prompting()
    question = Question("ada@login", "Password:", True, "password")
    assert prompting.ask(question) is None  # the tests have no terminal
    prompting.to_screen()
    assert prompting.pending() is None
    answers = []
    asking = threading.Thread(target=lambda: answers.append(prompting.ask(question)))
    asking.start()
    while (asked := prompting.pending()) is None:
        pass
    assert (asked.host, asked.text, asked.kind) == ("ada@login", "Password:", "password")
    assert prompting.pending() is asked
    prompting.answer(asked, "secret")
    asking.join(60)
    assert answers == ["secret"]
    prompting.close()
    assert prompting.ask(question) is None


@pytest.mark.parametrize(
    ("nodes", "interval_s", "used_s"),
    [(1, 1.0, 1.0), (1, 0.5, 0.5), (128, 1.0, 1.0), (129, 1.0, 2.0), (512, 1.0, 5.0),
     (1024, 1.0, 10.0), (1024, 30.0, 30.0), (9999, 1.0, 60.0)],
)  # fmt: skip
def test_many_nodes_are_sampled_less_often(nodes, interval_s, used_s):
    assert paced(Settings(interval_s=interval_s), nodes).interval_s == used_s
