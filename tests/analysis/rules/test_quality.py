"""Data quality: stopped and unreadable, the wrong job, gaps, and numbers that differ."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.analysis.rundata import Coverage
from gpumon.model.reading import Missing
from gpumon.model.sample import JobContext
from gpumon.slurm.job import Job, Resources, Step, Usage
from tests.analysis.build import GIB, device, evidence, node, track
from tests.analysis.rightsize.test_recommend import job, run

CHECK = BY_ID


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def with_last(busy=50, xids=(), **readings):
    made = device(60, busy_percent=busy)
    made.last = dict(readings)
    made.xids = list(xids)
    return made


def test_a_gpu_that_does_not_answer():
    gpu = with_last([50] * 40 + [None] * 20, busy_percent=Missing("timeout", "GetUtilization"))
    found = only("data-stale", run(count=60, devices=[gpu], live=True))
    assert found.title == "GPU 0: hung for 3 min (GetUtilization)"
    assert found.devices == ("gpu01:0",)
    assert CHECK["data-stale"](run(count=60, devices=[with_last(busy_percent=50)], live=True)) == []


def test_a_gpu_that_failed_to_answer_for_a_moment_is_no_problem_and_several_are_one():
    def quiet(*labels, count):
        gpus = []
        for label in labels:
            gpu = device(60, label, busy_percent=[50] * (60 - count) + [None] * count)
            gpu.last["busy_percent"] = Missing("timeout", "")
            gpus.append(gpu)
        return CHECK["data-stale"](run(count=60, devices=gpus))

    assert quiet(0, 1, count=2) == []
    [found] = quiet(0, 1, count=20)
    assert found.title == "GPUs 0,1: hung for 3 min"


def test_a_node_that_fell_silent():
    silent = node(60, "n07")
    silent.covered = track([1] * 50 + [None] * 10)
    this = evidence(60, nodes=[node(60, "n06"), silent], job=job("RUNNING", nodes=2), live=True)
    assert only("data-stale", this).title == "n07: no samples for 100 s"
    short = node(60)
    short.covered = track([1] * 58 + [None] * 2)
    assert CHECK["data-stale"](evidence(60, nodes=[short], live=True)) == []
    part = Coverage("recording", 80.0, 1.0, from_start=True, to_end=False)
    ended = evidence(60, nodes=[silent], coverage=part)
    assert CHECK["data-stale"](ended) == []  # the recording ended earlier, and does not hide it


@pytest.mark.parametrize(
    ("readings", "level", "words"),
    [
        ({"busy_percent": Missing("lost")}, None, ""),  # gpu-health
        (
            {"busy_percent": Missing("mig")},
            "info",
            "busy % is not available: the driver does not report it for MIG instances",
        ),
        (
            {"busy_percent": Missing("no-permission")},
            "warning",
            "busy % is not available: it needs a permission",
        ),
        (
            {"busy_percent": Missing("error", "code 9"), "power_w": Missing("error", "code 9")},
            "warning",
            "busy % and power are not available: the driver answered with an error (code 9)",
        ),
        (
            {"sm_active_percent": Missing("no-permission")},
            "warning",
            "SM activity is not available",
        ),
        ({"sm_active_percent": Missing("unsupported")}, None, ""),
        ({"busy_percent": Missing("timeout")}, None, ""),
        ({"busy_percent": 0}, None, ""),
    ],
)
def test_what_cannot_be_read(readings, level, words):
    answer = CHECK["gpu-unreadable"](run(count=60, devices=[with_last(**readings)]))
    assert [each.level for each in answer] == ([level] if level else [])
    assert all(words in each.title for each in answer)


def in_job(job_id, **made):
    this = run(made=job(**made))
    this.nodes[0].header = this.nodes[0].header._replace(job=JobContext(job_id))
    return this


def test_another_job():
    found = only("wrong-job", in_job("124"))
    assert found.title == "gpu01: this login runs inside job 124, not 4711"
    assert CHECK["wrong-job"](in_job("4711")) == []
    assert CHECK["wrong-job"](in_job("4710", het_job_id="4710")) == []
    assert isinstance(CHECK["wrong-job"](evidence(60, job=Job())), NotEvaluable)
    this = run()
    this.nodes[0].header = this.nodes[0].header._replace(job=None)
    assert isinstance(CHECK["wrong-job"](this), NotEvaluable)


@pytest.mark.parametrize(
    ("coverage", "text"),
    [
        (Coverage("recording", 61.0, 2.0, 2, 300.0), "61 % of the run observed, 2 gaps"),
        (Coverage("recording", 99.0, 1.0, 1, 700.0), "longest 11 min"),
        (Coverage("recording", 100.0, 1800.0), "too short: 2 samples"),
        (Coverage("recording", 1.0, 1800.0), "too short: 1 sample"),
        (Coverage("recording", 80.0, 1.0, 1, 500.0), None),
        (
            Coverage("recording", 90.0, 1.0, unrecorded=("gpu02",)),
            "1 of 2 nodes were not recorded: gpu02",
        ),
    ],
)
def test_coverage(coverage, text):
    answer = CHECK["low-coverage"](run(coverage=coverage))
    assert len(answer) == (text is not None)
    assert all(text in each.title for each in answer)


def accounted(state="COMPLETED", peak=8 * GIB, rss=64 * GIB):
    usage = Usage(total={"mem": float(rss)}, maximum={"mem": float(rss)})
    made = Job(
        state=state, id="4711", elapsed_s=3600.0, slurm_version="24.11.7", acct_gather="cgroup/v2",
        allocated=Resources(cpus=8, mem_bytes=64 * GIB, nodes=1),
        steps=(Step("batch", usage=usage, tasks=1, max_rss_bytes=rss),),
    )  # fmt: skip
    one = node(360, job={"mem_cache_bytes": 48 * GIB}, mem_peak_bytes=peak)
    return evidence(360, nodes=[one], job=made)


def test_seff_and_the_recording_differ():
    found = only("accounting-mismatch", accounted())
    assert found.title.startswith("seff reports 100 % memory use, gpumon measured 12 %: ")
    assert "page cache (48 GiB" in found.title
    assert CHECK["accounting-mismatch"](accounted(rss=9 * GIB)) == []


def test_a_mismatch_needs_both_sides_and_an_end():
    assert isinstance(CHECK["accounting-mismatch"](accounted("RUNNING")), NotEvaluable)
    assert isinstance(CHECK["accounting-mismatch"](accounted(peak=None)), NotEvaluable)
    assert isinstance(CHECK["accounting-mismatch"](evidence(60, job=Job())), NotEvaluable)


def test_gpus_that_fail_alike_are_one_finding():
    mute = [device(60, n) for n in range(4)]
    for each in mute:
        each.last["busy_percent"] = Missing("error", "code 9")
    mute[3].last["busy_percent"] = Missing("no-permission")
    answer = CHECK["gpu-unreadable"](evidence(60, mute))
    assert isinstance(answer, list)
    assert [each.title.partition(":")[0] for each in answer] == ["GPUs 0–2", "GPU 3"]
    assert answer[0].devices == ("gpu01:0", "gpu01:1", "gpu01:2")
    assert "code 9" in answer[0].title
