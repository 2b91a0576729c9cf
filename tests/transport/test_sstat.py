"""The last way: sstat's figures as a stream. The real sstat is in tests/slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.analysis.accounting import meaning_of
from gpumon.model.reading import MEASURING, Missing
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job, Step, Usage
from gpumon.slurm.runner import Result, SlurmError
from gpumon.sources.attach import AttachSource, NodeTask
from gpumon.transport import sstat
from gpumon.transport.sstat import SstatTransport, memory
from gpumon.transport.stream import Failure
from tests.sources.sinks import Sink, by

JOB = Job(raw_id="7", id="7", state="RUNNING", nodes=("n1",), node_list="n1")
CONFIG = b"SLURM_VERSION = 22.05.8\nJobAcctGatherType = jobacct_gather/linux\n"
HELP = b"JobID Nodelist TRESUsageInTot\n"
WIDE = replace(JOB, nodes=("n1", "n2"), node_list="n[1-2]")


class Answers:
    """Stands for Slurm's commands: sstat gives these answers in turn, the last again and again."""

    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = 0

    def run(self, argv, *, env, timeout_s):
        if argv[0] == "scontrol":
            return Result(0, CONFIG, "")
        if "--helpformat" in argv:
            return Result(0, HELP, "")
        self.asked += 1
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(answer, SlurmError):
            raise answer
        return Result(0, answer.encode(), "")


def transport(*answers, job=JOB):
    ticks = iter(range(0, 1_000_000, 1000))  # a clock on which every answer is old
    return SstatTransport(job, Slurm(Answers(*answers), clock=lambda: next(ticks)), 0.1)


def rows(sink, enough):
    sink.wait(lambda sink: len(sink.of("sample")) >= enough)
    return [sample.rows["job"][""] for sample in sink.of("sample")]


@pytest.fixture
def follow():
    running = []

    def start(way, *nodes):
        tasks = [NodeTask(node, ("7",), 2) for node in nodes or ["n1"]]
        source, sink = AttachSource(by(tasks, way), 1.0), Sink()
        running.append(source)
        source.start(sink)
        return source, sink

    yield start
    for source in running:
        source.stop()


def test_steps_that_run_become_the_job_s_figures(follow):
    source, sink = follow(transport(
        "7.batch|n1|cpu=00:00:10,mem=1M\n7.0|n1|cpu=00:01:00,mem=2M\n7.extern|n1|\n",
        "7.batch|n1|cpu=00:00:10,mem=1M\n7.0|n1|cpu=00:01:00,mem=2M\n7.extern|n1|\n",
        "7.0|n1|cpu=00:02:00,mem=5M\n7.1|n1|cpu=01:00:00,mem=1M\n",
    ))  # fmt: skip
    told = rows(sink, 3)
    first, used = told[0], [row["mem_used_bytes"] / (1 << 20) for row in told]
    assert first["cpu_cores_used"] == MEASURING
    new = next(place for place, mib in enumerate(used) if mib > 5)  # the first comes once or twice
    assert used[:new] == [pytest.approx(3, rel=1e-3)] * new
    assert used[new] == pytest.approx(6, rel=1e-3)
    before, after = sink.of("sample")[new - 1 : new + 1]
    cores = told[new]["cpu_cores_used"]  # of step 0 alone: nobody knows when 1 spent its hour
    assert cores * (after.mono - before.mono) == pytest.approx(60, rel=0.05)
    header = sink.of("header")[0]
    assert header.devices == []
    assert header.notes == [
        SstatTransport.lacks, "Memory is sum over processes, polled every 30 s.",
    ]  # fmt: skip
    assert header.interval_s == 0.1
    assert source.attempts("n1")[0].why == SstatTransport.lacks
    assert sink.last("n1").source == "sstat"


def test_a_question_without_an_answer_is_a_gap(follow, monkeypatch):
    monkeypatch.setattr(sstat, "_ANSWERS", 3)
    told = "7.0|n1|cpu=00:01:00,mem=2M\n"
    _, sink = follow(transport(told, SlurmError("down"), told))
    sink.wait(lambda sink: "lost" in sink.states("n1"))  # once in a while, for a better way
    assert len(sink.of("sample")) == 2
    (lost,) = (s for s in sink.of("status") if s.state == "lost")
    assert lost.detail.startswith("trying transports that show more")


@pytest.mark.parametrize(
    ("way", "says"),
    [
        (transport(""), "nothing about the job"),
        (transport(SlurmError("it took too long")), "it took too long"),
        (
            transport("7.0|n[1-2]|mem=2M\n", job=WIDE),
            "step 0 runs on several nodes, and sstat reports only",
        ),
        (transport("7.0||mem=2M\n", job=WIDE), "step 0 runs on several nodes"),  # not known where
        (transport("7.batch|n2|mem=2M\n7.extern|n[1-2]|\n", job=WIDE), "no step runs on this node"),
    ],
)
def test_where_it_cannot_tell(way, says):
    with pytest.raises(Failure, match=says) as refused:
        way.open("n1", [])
    assert (refused.value.final, refused.value.command) == (False, "sstat -a -j 7")


def test_steps_on_one_node_alone_are_that_node_s(follow):
    """And both nodes' figures come from one question."""
    told = "7.batch|n1|mem=1M\n7.0|n1|mem=2M\n7.1|n2|mem=7M\n7.extern|n[1-2]|mem=9M\n"
    answers = Answers(told)
    way = SstatTransport(WIDE, Slurm(answers), 3600.0)
    _, sink = follow(way, "n1", "n2")
    sink.wait(lambda sink: sink.of("sample", "n1") and sink.of("sample", "n2"))
    rows = [sink.of("sample", node)[0].rows["job"][""] for node in WIDE.nodes]
    assert [round(row["mem_used_bytes"] / (1 << 20)) for row in rows] == [3, 7]
    assert answers.asked == 1
    assert "Without ssh sessions (step extern)" in sink.of("header", "n1")[0].notes[-1]


def test_a_step_that_begins_on_several_nodes_ends_it(follow):
    alone, wide = "7.0|n1|mem=2M\n", "7.0|n1|mem=2M\n7.1|n[1-2]|mem=2M\n"
    _, sink = follow(transport(alone, alone, wide, job=WIDE))
    sink.wait(lambda sink: "lost" in sink.states("n1"))
    (lost,) = (s for s in sink.of("status") if s.state == "lost")
    assert lost.detail.startswith("step 1 runs on several nodes")
    assert len(sink.of("sample")) in (1, 2)  # the first answer is as old as the way


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
