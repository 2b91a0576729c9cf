"""Memory and CPU time of the whole run, where samples show a part of it."""

from dataclasses import replace

import pytest

from gpumon.analysis.reconcile import differences
from gpumon.analysis.rightsize.cores import cpus_need
from gpumon.analysis.rundata import Coverage
from gpumon.analysis.whole_run import counted_core_s, host_peak, why_partly
from gpumon.report.build import build
from gpumon.slurm.job import Job, NodeAllocation, Resources, Step, Usage
from tests.analysis.build import GIB, evidence, node

LATE = {"covered_percent": 20.0, "from_start": False, "to_end": True}
WHOLE = {"covered_percent": 100.0, "from_start": True, "to_end": True}


def run(kernel, cache=0.0, rss=None, version="24.11.7", coverage=None, **rest):
    """A run that was sampled at 3 GiB, and `cache`; `rss`: Slurm's figure."""
    job = Job(
        raw_id="4711", id="4711", state="COMPLETED", elapsed_s=3600.0,
        allocated=Resources(cpus=8, mem_bytes=128 * GIB, nodes=1), slurm_version=version,
        acct_gather="cgroup/v2", end=1.0,
        steps=() if rss is None else (
            Step("batch", max_rss_bytes=rss, tasks=1, usage=Usage(total={"mem": float(rss)})),
        ),
    )  # fmt: skip
    tracks = {"mem_charged_bytes": 3 * GIB + cache, "mem_cache_bytes": cache, "cpu_cores_used": 0.2}
    made = node(
        360, job=tracks, mem_peak_bytes=3.0 * GIB, mem_charged_peak_bytes=kernel,
        peak60_cores=1.0, cpu_core_s=720.0, **rest,
    )  # fmt: skip
    told = Coverage("recording", interval_s=15.0, **(coverage or WHOLE))
    return evidence(360, nodes=[made], job=job, coverage=told)


def test_a_spike_between_two_samples_counts_without_the_sampled_page_cache():
    known = host_peak(run(45.0 * GIB, cache=2.0 * GIB))
    assert known.nodes == [43 * GIB]
    assert "between two samples" in known.note
    assert host_peak(run(5.1 * GIB, cache=2.0 * GIB)).nodes == [3 * GIB]
    assert host_peak(run(None)) == ([3 * GIB], "cgroup", "")


def test_what_slurm_read_at_the_end_shows_a_spike_after_the_last_sample():
    assert host_peak(run(3.0 * GIB, rss=41 * GIB)).nodes == [41 * GIB]
    assert host_peak(run(46.0 * GIB, cache=40.0 * GIB, rss=46 * GIB)).nodes == [6 * GIB]


@pytest.mark.parametrize(
    ("kernel", "rss", "version", "peak", "note"),
    [
        (100.0 * GIB, None, "", 100, "the kernel's own peak, page cache included"),
        (None, 90 * GIB, "22.05.8", 90, "Slurm's peak, without page cache"),
        (None, None, "", 3, "an earlier peak is not known"),
    ],
)
def test_a_late_recording_takes_the_larger_of_slurms_and_the_kernels_peak(
    kernel, rss, version, peak, note
):
    known = host_peak(run(kernel, rss=rss, version=version, coverage=LATE))
    assert known.nodes == [peak * GIB]
    assert known.note.startswith("the recording began late; ")
    assert note in known.note


def test_page_cache_that_reached_the_kernels_peak_leaves_the_sampled_peak_with_a_bound():
    known = host_peak(run(64.0 * GIB, cache=60.0 * GIB, coverage=LATE))
    assert known.nodes == [3 * GIB]
    assert known.note == (
        "the recording began late: 3 GiB is the peak recorded, without page cache; the kernel's "
        "own peak is 64 GiB, page cache included"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"from_start": False, "covered_percent": 50.0}, "the recording began late"),
        ({"to_end": False, "covered_percent": 50.0}, "the recording ended early"),
        ({"covered_percent": 80.0, "longest_gap_s": 600.0}, "the recording has a gap of 10 min"),
        ({"unrecorded": ("gpu02",), "covered_percent": 50.0}, "1 of 2 nodes were not recorded"),
    ],
)
def test_why_samples_are_of_a_part(changes, why):
    assert why_partly(run(None, coverage={**WHOLE, **changes})) == why


def test_what_slurms_polls_saw_after_the_last_sample_is_the_peak():
    ended = {**WHOLE, "to_end": False, "covered_percent": 97.0}
    early = run(None, rss=60 * GIB, version="22.05.8", coverage=ended)
    assert why_partly(early) == "the recording ended early"
    known = host_peak(early)
    assert known.nodes == [60 * GIB]
    assert "Slurm's peak" in known.note
    alike = run(None, rss=3 * GIB, version="22.05.8", coverage=ended)
    assert why_partly(alike) == ""


def test_cores_that_accounting_counted_after_the_last_sample_are_needed():
    ended = {**WHOLE, "to_end": False, "covered_percent": 97.0}
    for cpu_s, cpus in ((720.0, 2), (720.0 + 108 * 7.5, 9)):
        this = run(None, version="22.05.8", coverage=ended)
        this.job = replace(this.job, steps=(Step("batch", cpu_s=cpu_s),))
        assert cpus_need(this).cpus == cpus


def test_a_difference_to_seff_is_explained_by_the_late_recording():
    late = run(None, rss=90 * GIB, version="24.11.7", coverage=LATE)
    assert not [each for each in differences(late) if each.quantity == "mem" and each.points]
    cached = run(64.0 * GIB, cache=60.0 * GIB, rss=64 * GIB, coverage=LATE)
    [found] = [each for each in differences(cached) if each.quantity == "mem"]
    assert found.reasons[-1] == "the recording began late"
    assert "60 GiB were measured" in found.reasons[0]


def test_no_page_cache_is_named_where_none_was_measured():
    [found] = [each for each in differences(run(None, rss=3.1 * GIB)) if each.quantity == "mem"]
    assert found.reasons == ("the recording may have missed a short peak",)


@pytest.mark.parametrize(
    ("cpu_s", "state", "nodes", "reason"),
    [
        (360.0, "CANCELLED", 1, "Slurm does not count the CPU time of killed processes"),
        (360.0, "COMPLETED", 2, "Slurm's steps ran on 1 of 2 nodes only"),
        (36_000.0, "COMPLETED", 1, "the job's cores cannot do as much as Slurm counted"),
        (1_080.0, "COMPLETED", 1, None),
    ],
)
def test_a_difference_of_cpu_time_has_a_reason_only_where_something_shows_it(
    cpu_s, state, nodes, reason
):
    this = run(None, rss=3 * GIB)
    step = replace(this.job.steps[0], cpu_s=cpu_s, node_count=1)
    held = replace(this.job.allocated, nodes=nodes)
    this.job = replace(this.job, state=state, cpu_s=cpu_s, steps=(step,), allocated=held)
    this.nodes += [replace(this.nodes[0], node=f"gpu0{n}") for n in range(2, nodes + 1)]
    [found] = [each for each in differences(this) if each.quantity == "cpu"]
    assert found.reasons == ((reason,) if reason else ())


def test_percentages_are_of_what_all_nodes_got_together():
    this = run(None, rss=3 * GIB)
    step = replace(this.job.steps[0], cpu_s=1440.0)
    held = replace(this.job.allocated, nodes=2, cpus=9, mem_bytes=150 * GIB)
    made = tuple(NodeAllocation(name, cpus, 0) for name, cpus in (("gpu01", 8), ("gpu02", 1)))
    this.job = replace(this.job, cpu_s=1440.0, steps=(step,), allocated=held, allocations=made)
    this.nodes.append(replace(this.nodes[0], node="gpu02"))
    found = {each.quantity: each.ours for each in differences(this)}
    assert found["cpu"] == pytest.approx(100 * 1440 / (9 * 3600))
    assert found["mem"] == pytest.approx(100 * 6 / 150)


def test_the_cores_of_a_late_recording_are_by_the_kernels_counter():
    late = run(None, coverage=LATE, last={"cpu_s": 18_000.0})
    assert counted_core_s(late) == 18_000
    assert counted_core_s(run(None, last={"cpu_s": 18_000.0})) is None
    used = build(late).used
    assert (used.cpu_core_s, used.cores.used, used.cores.peak) == (18_000, 5, None)
    assert "began late" in used.cpu_note
