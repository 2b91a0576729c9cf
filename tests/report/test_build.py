"""Reports by accounting alone: what they say, and what they must not."""

from dataclasses import replace

import pytest

from gpumon.report.build import build, from_accounting
from gpumon.report.document import document
from gpumon.report.page import page, plain
from gpumon.site import Site
from gpumon.slurm.job import Resources, Step, Usage

from .made import GIB, job


def ended(**changes):
    """An hour of four cores, three of which did nothing."""
    step = Step(
        "batch", state="COMPLETED", cpu_s=3600.0, max_rss_bytes=2 * GIB, tasks=1,
        usage=Usage(total={"cpu": 3600.0, "mem": 2.0 * GIB}),
    )  # fmt: skip
    known = job(
        name="j", elapsed_s=3600.0, time_limit_s=7200.0, cpu_s=3600.0, steps=(step,),
        nodes=("cn01",), node_list="cn01", acct_gather="cgroup/v1", slurm_version="23.11.4",
        allocated=Resources(cpus=4, mem_bytes=16 * GIB, nodes=1, tres={"cpu": 4}),
    )  # fmt: skip
    return replace(known, **changes)


def made(this):
    return build(from_accounting(this, Site()))


def lines(this):
    return "\n".join(plain(page(made(this))))


def test_a_job_without_gpus_has_none_and_says_so():
    body = document(made(ended()))
    assert body["allocated"]["gpus"] == 0
    assert body["efficiency"]["gpu_busy_percent"] is None
    assert body["missing"]["gpu_busy_percent"] == "the job had no GPUs"
    assert body["gpu_hours"] is None
    assert "GPU" not in lines(ended())


def test_gpus_of_which_accounting_knows_nothing():
    this = ended(allocated=Resources(cpus=4, gpus=1, gpu_types={"a100": 1}, tres={"cpu": 4}))
    body = document(made(this))
    assert body["efficiency"]["gpu_busy_percent"] is None
    assert "does not say" in body["missing"]["gpu_busy_percent"]
    assert body["waste_gpu_hours"] == 0
    assert "how the one was used" in lines(this)


def test_a_mean_of_cores_advises_no_number():
    body = document(made(ended()))
    assert "cpu-low" in {each["id"] for each in body["findings"]}
    assert {each["directive"] for each in body["recommendations"]} == {"--mem", "--time"}
    assert body["used"]["cpu_cores_peak"] is None


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "PREEMPTED"])
def test_cpu_time_that_slurm_lost_is_not_known(state):
    lost = Step("batch", state="CANCELLED", cpu_s=0.0)
    body = document(made(ended(state=state, cpu_s=0.0, steps=(lost,))))
    assert body["used"]["cpu_core_s"] is None
    assert not {each["id"] for each in body["findings"]} & {"cpu-low", "cpu-never-used"}
    polled = document(made(ended(state=state)))
    assert polled["used"]["cpu_core_s"] == 3600
    assert "lost" in polled["used"]["cpu_note"]


def test_out_of_memory_needed_more_and_not_less():
    this = ended(state="OUT_OF_MEMORY", acct_gather="cgroup/v2", slurm_version="24.11.1")
    note = document(made(this))["used"]["mem_note"]
    assert "needed more" in note
    assert "less" not in note
    assert "much less" in document(made(replace(this, state="COMPLETED")))["used"]["mem_note"]


def test_a_pending_job_has_used_nothing_and_began_never():
    this = ended(state="PENDING", elapsed_s=0.0, steps=(), cpu_s=None, start=None, submit=1e9)
    report = made(this)
    assert (report.start, report.end, report.elapsed_s) == (None, None, None)
    page = lines(this)
    assert "limit 02:00:00" in page
    assert "job began" not in page
    assert "used" not in page
    assert "n/a" not in page


def test_a_running_job_so_far_by_sstat():
    running = ended(state="RUNNING", cpu_s=None, steps=(Step("batch", state="RUNNING"),))
    assert made(running).used.cpu_core_s is None
    told = Step("batch", state="RUNNING", cpu_s=1800.0, max_rss_bytes=GIB, source="sstat")
    report = made(replace(running, steps=(told,)))
    assert (report.used.cpu_core_s, report.used.mem_peak_bytes) == (1800, GIB)
    assert report.recommendations == ()
    assert "(so far)" in lines(replace(running, steps=(told,)))
    refused = replace(running, missing={"usage": "sstat tells it only to its owner"})
    assert "usage: sstat tells it only to its owner" in lines(refused)


def test_the_same_evidence_gives_the_same_report():
    assert made(ended()) == made(ended())
