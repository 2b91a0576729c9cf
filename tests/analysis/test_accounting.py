"""What accounting proves: meanings of MaxRSS, tasks and nodes, jobstats; why numbers differ."""

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.accounting import meaning_of, out_of_memory, used
from gpumon.analysis.reconcile import differences
from gpumon.analysis.rightsize.cores import threads_of_job, usable_cpus
from gpumon.analysis.rundata import Coverage
from gpumon.slurm.job import (
    OWN_STEP,
    ExitCode,
    Job,
    NodeAllocation,
    Request,
    Resources,
    Step,
    Usage,
)
from tests.analysis.accounted import Made, jobs_of
from tests.analysis.build import GIB, device, evidence, node

MIB = 1 << 20
ENDED = {"id": "4711", "raw_id": "4711", "state": "COMPLETED", "elapsed_s": 3600.0}


def step(rss=None, tasks=1, nodes=1, start=None, end=None, total=None, **rest):
    usage = Usage(total={} if total is None else {"mem": float(total)},
                  maximum={} if rss is None else {"mem": float(rss)})  # fmt: skip
    return Step(rest.pop("id", "batch"), start=start, end=end, tasks=tasks, node_count=nodes,
                max_rss_bytes=rss, usage=rest.pop("usage", usage), **rest)  # fmt: skip


def js1(**nodes):
    document = {"gpus": 4, "total_time": 3600, "nodes": nodes}
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()


def js1_node(mem=16 * GIB, total=128 * GIB, cpu_s=360.0, cpus=24, busy=(50, 60), held=70 * GIB):
    return {
        "cpus": cpus, "total_memory": total, "used_memory": mem, "total_time": cpu_s,
        "gpu_total_memory": {str(n): 80 * GIB for n in range(len(busy))},
        "gpu_used_memory": {str(n): held for n in range(len(busy))},
        "gpu_utilization": {str(n): b for n, b in enumerate(busy) if b is not None},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "gather", "params", "cache", "polled"),
    [
        ("22.05.8", "cgroup/v2", "", False, True),
        ("23.02.1", "cgroup/v2", "", False, True),
        ("22.05.8", "cgroup/v1", "", False, True),
        ("23.11.11", "cgroup/v2", "", True, True),
        ("24.05.4", "cgroup/v2", "", True, True),
        ("23.11.11", "cgroup/v1", "", False, True),
        ("24.11.7", "cgroup/v1", "", True, False),
        ("24.11.7", "cgroup/v2", "", True, False),
        ("25.11.1", "cgroup/v2", "no_file_cache", False, True),
        ("26.05.3", "linux", "", False, True),
        ("26.05.3", "", "", None, False),
        ("24.11.7", "cgroup", "", None, False),
        ("22.05.8", "", "", False, True),
        ("", "", "", None, True),
    ],
)
def test_the_meanings_of_max_rss(version, gather, params, cache, polled):
    meaning = meaning_of(Job(slurm_version=version, acct_gather=gather, acct_params=params))
    assert (meaning.cache, meaning.polled) == (cache, polled)
    assert meaning.is_upper_bound == (cache is not False)


def test_the_largest_task_times_the_tasks_on_a_node():
    job = Job(**ENDED, steps=(step(2 * GIB, tasks=8, nodes=2, id="0"),))
    assert used(job).mem_bytes == 8 * GIB


def test_nodes_with_more_cpus_get_more_tasks():
    job = Job(
        **ENDED,
        steps=(step(2 * GIB, tasks=8, nodes=2, id="0"),),
        allocations=(NodeAllocation("a", 6), NodeAllocation("b", 2)),
    )
    assert used(job).mem_bytes == 12 * GIB


def test_never_more_than_the_sum_over_all_tasks():
    job = Job(**ENDED, steps=(step(4 * GIB, tasks=4, total=5 * GIB, id="0"),))
    assert used(job).mem_bytes == 5 * GIB


def test_steps_at_the_same_time_are_added_and_others_are_not():
    batch = step(1 * GIB, start=0, end=100)
    first, second = step(4 * GIB, start=10, end=50, id="0"), step(3 * GIB, start=50, end=90, id="1")
    assert used(Job(**ENDED, steps=(batch, first, second))).mem_bytes == 5 * GIB


def test_gpumons_own_step_is_no_memory_of_the_job():
    """The accounting says 14 MiB for a job that was `sleep`; and nothing where only we ran."""
    batch = step(MIB, start=0, end=100)
    ours = step(14 * MIB, start=10, end=90, id="0", name=OWN_STEP)
    program = step(14 * MIB, start=10, end=90, id="0", name="gpumon")  # srun gpumon record -- CMD
    assert used(Job(**ENDED, steps=(batch, ours))).mem_bytes == MIB
    assert used(Job(**ENDED, steps=(batch, program))).mem_bytes == 15 * MIB
    alone = used(Job(**ENDED, steps=(step(0, elapsed_s=5.0), ours)))
    assert (alone.mem_bytes, "mem" in alone.missing) == (None, True)
    unpolled = step(None, elapsed_s=3000.0, id="0", name=OWN_STEP)
    assert used(Job(**ENDED, steps=(batch, unpolled))).mem_bytes == MIB


def test_a_running_job_has_no_figures_yet_and_says_so():
    figures = used(Job(id="1", state="RUNNING", cpu_s=0.0, steps=(step(1, cpu_s=0.0),)))
    assert figures.cpu_core_s is None
    assert figures.mem_bytes is None
    assert set(figures.missing) == {"cpu", "mem"}


def test_a_step_that_died_of_memory_before_the_first_look_used_no_zero():
    killed = step(0, id="0", state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125))
    job = Job(id="1", state="FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125),
              steps=(killed,))  # fmt: skip
    figures = used(job)
    assert figures.mem_bytes is None
    assert "out of memory" in figures.missing["mem"]
    assert out_of_memory(job) == ["0"]
    assert out_of_memory(Job(derived_exit_code=ExitCode(0, 125))) == ["job"]
    assert out_of_memory(Job(exit_code=ExitCode(1), derived_exit_code=ExitCode(1))) == []


def test_cpu_time_is_the_larger_of_the_two_that_slurm_has():
    assert used(Job(**ENDED, cpu_s=10.0, steps=(step(cpu_s=7200.0),))).cpu_cores_mean == 2.0
    assert used(Job(**ENDED, cpu_s=0.0)).cpu_core_s == 0.0  # a true 0 of Slurm stays one
    assert used(Job(**ENDED)).cpu_core_s is None


def test_tracked_gpus_are_a_peak_never_a_mean():
    usage = Usage(maximum={"gres/gpuutil": 200.0, "gres/gpumem": 5.0})
    figures = used(Job(**ENDED, steps=(step(usage=usage),)))
    assert figures.gpu_peak_percent == 200
    assert figures.gpu_busy_percent is None


def test_jobstats_says_it_per_node():
    comment = js1(a=js1_node(mem=100 * GIB), b=js1_node(mem=2 * GIB))
    figures = used(Job(**ENDED, admin_comment=comment, steps=(step(1),)))
    assert figures.source == "jobstats"
    assert figures.mem_bytes == 100 * GIB  # the largest node, not the mean of 51
    assert figures.mem_meaning.cache is False
    assert figures.cpu_core_s == 720
    assert figures.gpu_busy_percent == 55


def test_jobstats_without_utilization_is_not_zero():
    figures = used(Job(**ENDED, admin_comment=js1(a=js1_node(busy=(None, None)))))
    assert figures.gpu_busy_percent is None


@pytest.mark.parametrize("comment", ["JS1:Short", "JS1:None", "JS1:!!", "something else"])
def test_without_a_summary_the_steps_count(comment):
    figures = used(Job(**ENDED, admin_comment=comment, steps=(step(5 * GIB),)))
    assert (figures.source, figures.mem_bytes) == ("sacct", 5 * GIB)


@given(
    st.lists(
        st.builds(
            step,
            st.none() | st.integers(0, 1 << 45), st.none() | st.integers(0, 64),
            st.none() | st.integers(0, 8), st.none() | st.floats(0, 1e9),
            st.none() | st.floats(0, 1e9), st.none() | st.integers(0, 1 << 45),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_the_bound_is_never_below_any_task(steps):
    figures = used(Job(**ENDED, steps=tuple(steps)))
    largest = max((each.max_rss_bytes or 0 for each in steps), default=0)
    assert figures.mem_bytes is None if not largest else figures.mem_bytes >= largest


# -- why numbers differ ----------------------------------------------------------------------------


def reconciled(job_facts, node_facts, devices=(), count=360, peak=8 * GIB, core_s=None):
    job = Job(
        **{**ENDED, "slurm_version": "24.11.7", "acct_gather": "cgroup/v2",
           "allocated": Resources(cpus=8, mem_bytes=64 * GIB, nodes=1), **job_facts}
    )  # fmt: skip
    run = evidence(
        count, list(devices),
        [node(count, job=node_facts, mem_peak_bytes=peak, cpu_core_s=core_s)], job,
        coverage=Coverage("recording", 100.0, 1.0, from_start=True, to_end=True),
    )  # fmt: skip
    return {each.quantity: each for each in differences(run)}


def test_page_cache_is_the_reason():
    found = reconciled({"steps": (step(64 * GIB, total=64 * GIB),)}, {"mem_cache_bytes": 48 * GIB})
    assert found["mem"].theirs == 100
    assert found["mem"].ours == 12.5
    assert "page cache (48 GiB" in found["mem"].reasons[0]


def test_a_sum_of_peaks_is_a_reason_only_from_24_11_with_several_tasks():
    found = reconciled({"steps": (step(4 * GIB, tasks=4, total=16 * GIB),)}, {})
    assert any("not simultaneous" in reason for reason in found["mem"].reasons)
    found = reconciled({"steps": (step(16 * GIB, total=16 * GIB),)}, {})
    assert not any("not simultaneous" in reason for reason in found["mem"].reasons)


def test_gpumons_own_step_stays_in_slurms_figure_and_is_the_reason():
    ours = step(16 * GIB, total=16 * GIB, id="0", name=OWN_STEP)
    found = reconciled({"steps": (step(8 * GIB, total=8 * GIB), ours)}, {})
    assert found["mem"].theirs == 25
    assert found["mem"].reasons == ("Slurm counts gpumon's own step (16 GiB)",)


def test_polling_misses_spikes():
    found = reconciled(
        {"slurm_version": "22.05.8", "steps": (step(2 * GIB),),
         "requested": Request(
             Resources(mem_bytes=64 * GIB))}, {},
    )  # fmt: skip
    assert any("every 30 s" in reason for reason in found["mem"].reasons)


def test_gpuutil_is_a_peak():
    usage = Usage(total={"mem": 1.0}, maximum={"gres/gpuutil": 100.0})
    found = reconciled({"steps": (step(1, usage=usage),)}, {}, [device(360, busy_percent=14)])
    assert found["gpu"].ours == pytest.approx(14)
    assert "polls every 30 s" in found["gpu"].reasons[0]


def test_cpu_time_of_killed_processes_is_lost():
    found = reconciled({"cpu_s": 100.0}, {}, core_s=14_400.0)
    assert found["cpu"].ours == 50
    assert "killed" in found["cpu"].reasons[0]


def test_a_missing_figure_is_no_difference():
    assert reconciled({}, {}, peak=None) == {}


# -- what is not known is not 0 --------------------------------------------------------------------
EARLY = "the job ran out of memory before Slurm's first poll"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Made(state="OUT_OF_MEMORY", rss="0"), EARLY),
        (Made(state="OUT_OF_MEMORY", rss=""), EARLY),
        (
            Made(state="OUT_OF_MEMORY", rss="16M", version="23.02.1"),
            "the job ran out of memory after Slurm's last poll, at 16 MiB",
        ),
        (Made(rss=""), "the accounting holds no memory use"),
        (Made(rss="16?"), "the accounting holds no memory use"),
        (Made(batch=None), "the accounting holds no memory use"),
        (Made(rss="4096T"), "Slurm's 4 PiB cannot be right: the limit was 32 GiB"),
        (Made(rss="3M", steps=({"MaxRSS": ""},)), "Slurm has no memory of step 0"),
        (
            Made(rss="3M", steps=({"MaxRSS": "0", "State": "OUT_OF_MEMORY", "ElapsedRaw": "9"},)),
            EARLY,
        ),
    ],
)
def test_memory_that_is_not_known(made, reason):
    [job] = jobs_of(made)
    assert used(job).mem_bytes is None
    assert used(job).missing["mem"] == reason


@pytest.mark.parametrize(
    ("made", "gib"),
    [
        (Made(rss="3G", steps=({"MaxRSS": "", "ElapsedRaw": "2"},)), 3),  # ended too early
        (Made(rss="30G", state="OUT_OF_MEMORY", version="23.02.1"), 30),
        (Made(rss="3G", nodes=4, batch={"NTasks": "8", "TRESUsageInTot": ""}), 6),
        (Made(rss="3G", nodes=4, batch={"NTasks": "9", "TRESUsageInTot": ""}), 27),
        (Made(rss="3G", nodes=4, batch={"NTasks": "9", "TRESUsageInTot": "mem=12G"}), 12),
    ],
)
def test_memory_of_the_node_that_may_have_used_most(made, gib):
    [job] = jobs_of(made)
    assert used(job).mem_bytes == gib * GIB


@pytest.mark.parametrize(
    ("made", "threads", "cpus"),
    [
        (Made(cpus=16, cores=7.8), None, 16),  # not known
        (Made(cpus=16, asked_cpus=8, cores=7.8), 2, 8),
        (Made(cpus=2, asked_cpus=1, cores=1.0), 2, 1),
        (Made(cpus=16, cores=7.8, submit="sbatch --hint=nomultithread job.sh"), 2, 8),
        (Made(cpus=16, cores=7.8, submit="sbatch --threads-per-core 1 job.sh"), 2, 8),
        (Made(cpus=16, cores=7.8, submit="sbatch --threads-per-core=2 job.sh"), None, 16),
        (Made(cpus=16, asked_cpus=8, cores=15.0), None, 16),  # used both threads
        (Made(cpus=15, cores=7.0, submit="sbatch --hint=nomultithread job.sh"), None, 15),
        (Made(cpus=128, asked_cpus=64, cores=63, submit="sbatch --exclusive job.sh"), 2, 64),
        (Made(cpus=128, asked_cpus=1, cores=63, submit="sbatch --exclusive job.sh"), None, 128),
    ],
)
def test_cpus_that_a_job_could_use(made, threads, cpus):
    [job] = jobs_of(made)
    assert (threads_of_job(job), usable_cpus(job)) == (threads, cpus)
