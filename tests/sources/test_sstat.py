"""The last way: sstat's figures as a stream. The real sstat is in tests/slurm."""

from __future__ import annotations

import pytest

from gpumon.analysis.accounting import meaning_of
from gpumon.model.reading import MEASURING, Missing
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job, Step, Usage
from gpumon.slurm.runner import Result, SlurmError
from gpumon.sources import sstat
from gpumon.sources.ladder import Ladder
from gpumon.sources.sstat import SstatLauncher, memory
from gpumon.sources.stream import Failure
from gpumon.sources.supervisor import AttachSource, NodeTask
from tests.sources.sinks import Sink

JOB = Job(raw_id="7", id="7", state="RUNNING", nodes=("n1",), node_list="n1")
CONFIG = b"SLURM_VERSION = 22.05.8\nJobAcctGatherType = jobacct_gather/linux\n"
HELP = b"JobID TRESUsageInTot\n"


class Answers:
    """Stands for Slurm's commands: sstat gives these answers in turn, the last again and again."""

    def __init__(self, *answers):
        self.left = list(answers)

    def run(self, argv, *, env, timeout_s):
        if argv[0] == "scontrol":
            return Result(0, CONFIG, "")
        if "--helpformat" in argv:
            return Result(0, HELP, "")
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(answer, SlurmError):
            raise answer
        return Result(0, answer.encode(), "")


def launcher(*answers, job=JOB):
    ticks = iter(range(0, 1_000_000, 1000))  # a clock on which every answer is old
    return SstatLauncher(job, Slurm(Answers(*answers), clock=lambda: next(ticks)), 0.05)


def rows(sink, enough):
    sink.wait(lambda sink: len(sink.of("sample")) >= enough)
    return [sample.rows["job"][""] for sample in sink.of("sample")]


@pytest.fixture
def follow():
    running = []

    def start(way):
        source, sink = AttachSource([NodeTask("n1", ("7",), 2)], Ladder([way]), 1.0), Sink()
        running.append(source)
        source.start(sink)
        return source, sink

    yield start
    for source in running:
        source.stop()


def test_steps_that_run_become_the_job_s_figures(follow):
    source, sink = follow(launcher(
        "7.batch|cpu=00:00:10,mem=1M\n7.0|cpu=00:01:00,mem=2M\n7.extern|\n",
        "7.batch|cpu=00:00:10,mem=1M\n7.0|cpu=00:01:00,mem=2M\n7.extern|\n",
        "7.0|cpu=00:02:00,mem=5M\n7.1|cpu=01:00:00,mem=1M\n",
    ))  # fmt: skip
    first, second = rows(sink, 2)[:2]
    assert first["cpu_cores_used"] == MEASURING
    assert first["mem_used_bytes"] == pytest.approx(3 << 20, rel=1e-3)
    assert second["mem_used_bytes"] == pytest.approx(6 << 20, rel=1e-3)
    assert second["cpu_cores_used"] > 0  # of step 0 alone: nobody knows when step 1 spent its hour
    before, after = sink.of("sample")[:2]
    assert second["cpu_cores_used"] * (after.mono - before.mono) == pytest.approx(60, rel=0.05)
    header = sink.of("header")[0]
    assert header.devices == []
    assert header.notes == [
        SstatLauncher.lacks, "Memory is sum over processes, polled every 30 s.",
    ]  # fmt: skip
    assert header.interval_s == 0.05
    assert source.rungs("n1")[0].why == SstatLauncher.lacks
    assert sink.last("n1").source == "sstat"


def test_a_question_without_an_answer_is_a_gap(follow, monkeypatch):
    monkeypatch.setattr(sstat, "_ANSWERS", 3)
    told = "7.0|cpu=00:01:00,mem=2M\n"
    _, sink = follow(launcher(told, told, SlurmError("down"), told))
    sink.wait(lambda sink: "lost" in sink.states("n1"))  # once in a while, for a better way
    assert len(sink.of("sample")) == 2
    (lost,) = (s for s in sink.of("status") if s.state == "lost")
    assert lost.detail.startswith("looking for a way that shows more")


@pytest.mark.parametrize(
    ("way", "says", "final"),
    [
        (launcher("", job=Job(raw_id="7", nodes=("n1", "n2"))), "all the job's nodes", True),
        (launcher(""), "nothing of the job", False),
        (launcher(SlurmError("it took too long")), "it took too long", False),
    ],
)
def test_where_it_cannot_tell(way, says, final):
    with pytest.raises(Failure, match=says) as refused:
        way.open("n1", [])
    assert (refused.value.final, refused.value.command) == (final, "sstat -a -j 7")


@pytest.mark.parametrize(
    ("version", "gather", "name"),
    [
        ("22.05.8", "linux", "mem_used_bytes"),
        ("22.05.8", "cgroup/v1", "mem_used_bytes"),
        ("23.11.4", "cgroup/v2", "mem_charged_bytes"),
        ("26.05.3", "cgroup/v2", "mem_peak_bytes"),
        ("", "", "mem_charged_bytes"),
    ],
)
def test_memory_stands_under_what_it_counts(version, gather, name):
    steps = [Step("0", usage=Usage(total={"mem": 5.0})), Step("1", usage=Usage(total={"mem": 2.0}))]
    meaning = meaning_of(Job(slurm_version=version, acct_gather=gather))
    found = memory(steps, meaning)
    assert found[name] == 7
    if name != "mem_used_bytes":
        assert isinstance(found["mem_used_bytes"], Missing)
    assert isinstance(memory([Step("0")], meaning)["mem_used_bytes"], Missing)
