"""Reports by accounting alone: what they say, and what they must not."""

from dataclasses import replace

import pytest

from gpumon.report.arrays import build_array
from gpumon.report.build import build, from_accounting
from gpumon.report.render.json import document
from gpumon.report.render.layout import plain
from gpumon.report.render.page import page
from gpumon.report.render.text import text
from gpumon.site import Site
from gpumon.slurm.job import Resources, Step, Usage
from tests.analysis.build import device, evidence, node
from tests.analysis.rules.test_arrays import recorded, task

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
    assert "no GPU usage" in body["missing"]["gpu_busy_percent"]
    assert body["waste_gpu_hours"] == 0
    assert "1 GPU: Slurm's accounting has no GPU usage" in lines(this)
    most = {"gres/gpuutil": 100.0, "gres/gpumem": 79.0 * GIB}
    polled = replace(this, steps=(Step("batch", usage=Usage(maximum=most)),))
    assert "saw at most 100 % busy and 79 GiB held" in lines(polled)
    assert document(made(polled))["efficiency"]["gpu_busy_percent"] is None


def test_a_mean_of_cores_advises_no_number():
    body = document(made(ended()))
    assert "serial-many-cores" in {each["id"] for each in body["findings"]}
    assert {each["directive"] for each in body["recommendations"]} == {"--time"}
    peak = document(made(ended(acct_gather="cgroup/v2", slurm_version="24.11.1")))
    assert {each["directive"] for each in peak["recommendations"]} == {"--mem", "--time"}
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


def test_all_memory_of_a_node_is_not_0_bytes():
    asked = replace(ended().requested, mem_form="node", mem_form_bytes=0)
    this = replace(ended(), requested=asked, allocated=replace(ended().allocated, mem_bytes=None))
    page = lines(this)
    assert "· all memory" in page
    assert "memory        all " in page


def test_a_pending_job_has_used_nothing_and_began_never():
    this = ended(state="PENDING", elapsed_s=0.0, steps=(), cpu_s=None, start=None, submit=1e9)
    report = made(this)
    assert (report.start, report.end, report.elapsed_s) == (None, None, None)
    page = lines(this)
    assert "limit 2 h" in page
    assert "job began" not in page
    assert "used" not in page
    assert "n/a" not in page


def test_a_running_job_so_far_by_sstat():
    running = ended(state="RUNNING", cpu_s=None, steps=(Step("batch", state="RUNNING"),))
    assert made(running).used.cpu_core_s is None
    told = Step("batch", state="RUNNING", cpu_s=1800.0, max_rss_bytes=GIB, source="sstat")
    report = made(replace(running, steps=(told,)))
    assert (report.used.cpu_core_s, report.used.mem.peak) == (1800, GIB)
    assert report.recommendations == ()
    assert "(so far)" in lines(replace(running, steps=(told,)))
    refused = replace(running, missing={"usage": "sstat tells it only to its owner"})
    assert "usage: sstat tells it only to its owner" in lines(refused)


def test_the_same_evidence_gives_the_same_report():
    assert made(ended()) == made(ended())


def test_sums_over_one_of_several_nodes_are_said_as_such_or_taken_from_accounting():
    nodes = tuple(f"gpu0{n}" for n in (1, 2, 3, 4))
    held = Resources(cpus=64, mem_bytes=480 * GIB, nodes=4, gpus=8, tres={"cpu": 64})
    this = ended(nodes=nodes, node_list="gpu0[1-4]", allocated=held, cpu_s=72000.0)
    one = node(360, job={"cpu_cores_used": 1.0}, mem_peak_bytes=10 * GIB)
    run = evidence(360, [device(360, n, busy_percent=0) for n in (0, 1)], nodes=[one], job=this)
    run.coverage = replace(run.coverage, unrecorded=nodes[1:], covered_percent=25.0)
    report = build(run)
    said = "\n".join(plain(page(report)))
    assert "8 × A100" in said
    assert "GPUs: 2 of 8 were recorded" in said
    assert "CPU: sacct; 3 of 4 nodes were not recorded" in said
    assert "memory: 3 of 4 nodes were not recorded; Slurm's peak of a node: 2 GiB" in said
    assert (report.used.cpu_core_s, report.used.cores.peak) == (72000.0, None)
    assert report.efficiency["mem_percent"] is None
    assert report.efficiency_missing["mem_percent"] == "3 of 4 nodes were not recorded"


def test_a_sum_of_tasks_peaks_is_a_bound_of_one_nodes_memory():
    nodes = ("cn01", "cn02")
    step = replace(ended().steps[0], tasks=8, node_count=2)
    this = ended(nodes=nodes, node_list="cn[01-02]", steps=(step,))
    assert "memory: at most, of one node; " in lines(this)
    alone = replace(this, steps=(replace(step, tasks=2),))
    assert "memory: of the node that used most; " in lines(alone)


# -- an array ------------------------------------------------------------------------------------


def text_of(tasks, runs=None):
    return text(build_array(tasks, Site(), runs))


def test_gpu_use_that_was_recorded_is_not_said_to_be_missing():
    tasks = [task(n, gpus=1) for n in range(6)]
    known = text_of(tasks, {each.raw_id: recorded(active=0.9) for each in tasks})
    assert "GPU busy" in known
    assert "no GPU usage" not in known
    assert "no GPU usage" in text_of(tasks)


def test_gpu_use_of_one_recorded_task_is_not_said_to_be_missing():
    tasks = [task(n, gpus=1) for n in range(6)]
    known = text_of(tasks, {tasks[0].raw_id: recorded(active=0.0)})
    assert "Task 0 never used its GPUs" in known
    assert "no GPU usage" not in known
    assert "source: recording for 1 task, sacct for 5 tasks" in known
    assert "accounting alone" not in known


def test_the_times_of_all_tasks_are_in_the_table():
    tasks = [task(n) for n in range(6)] + [task(7, elapsed=28_800.0, state="TIMEOUT")]
    assert "5 h 48 min 8 h 00 min 8 h 00 min" in text_of(tasks)


def test_the_table_tells_how_many_tasks_it_leaves_out():
    tasks = [task(n) for n in range(6)] + [task(7, None, state="OUT_OF_MEMORY")]
    table = text_of(tasks)
    assert "memory: known of 6 of 7 tasks" in table
    assert "elapsed: known" not in table
    assert "known of" not in text_of(tasks[:6])
