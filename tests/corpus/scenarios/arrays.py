"""Arrays of twelve tasks, by accounting, by jobstats and by recordings (findings, 3.10)."""

import base64
import gzip
import json
from dataclasses import replace

from gpumon.analysis.summary import DeviceRow, JobSummary, RunSummary
from gpumon.model.sample import Device
from gpumon.slurm.job import Step
from tests.corpus.cases import case
from tests.corpus.generator import START, Run
from tests.corpus.hardware import GIB
from tests.corpus.jobs import slurm, uva

_SIZES = (2.8, 2.9, 3.0, 3.0, 3.1, 3.1, 3.1, 3.2, 3.3, 3.4, 3.9, 4.05)


def tasks(sizes=_SIZES, elapsed=(2400,) * 12, states=None, mem=32 * GIB, limit=3600.0, gpus=0,
          cpus=8, **rest):  # fmt: skip
    """Jobs of one array that ran one after the other."""
    found = []
    for n, (size, seconds) in enumerate(zip(sizes, elapsed)):
        begin = START + 30_000 * n
        state = (states or {}).get(n, "COMPLETED")
        gres = f"gpu:a100:{gpus}" if gpus else ""
        found.append(slurm(
            seconds, (), per_node=(cpus, mem, gpus, gres), raw_id=str(4711 + n), id=f"4711_{n}",
            array_job_id="4711", array_task=str(n), state=state, start=begin, end=begin + seconds,
            time_limit_s=limit, partition="gpu" if gpus else "cpu",
            steps=(Step("batch", max_rss_bytes=int(size * GIB), tasks=1, node_count=1),),
            **rest,
        ))  # fmt: skip
    return found


def array(jobs, runs=None):
    """Seen from its first task; nothing of it was recorded by itself."""
    return Run(jobs[0].elapsed_s or 0.0, (), jobs[0], site=uva(), siblings=tuple(jobs[1:]),
               sibling_runs=runs or {})  # fmt: skip


def recorded(jobs, peaks=None, active=None):
    """A recording of each task: its peak of cores, and the active share of its GPU."""
    runs = {}
    for n, job in enumerate(jobs):
        peak, share = (peaks or [4.0] * 12)[n], (active or [0.9] * 12)[n]
        device = DeviceRow(
            "gpu01", Device(0, 0, f"GPU-{n}", "NVIDIA A100-SXM4-80GB"), 90.0 * share, 0.0, 0.0,
            share, 0.0, None, None, 0.0, 0.0, None, None, "", "", False, [], 1.0,
        )  # fmt: skip
        cores = JobSummary("gpu01", 8, 1.0, peak, None, 28.0 * GIB, 32.0 * GIB, None, 0)
        runs[job.raw_id] = RunSummary([], job.start, job.end, 100.0, 0,
                                      [device] if job.gpus else [], [cores])  # fmt: skip
    return runs


def jobstats(job, busy, held=60 * GIB):
    """The task with jobstats' summary of its one GPU."""
    node = {"used_memory": 28 * GIB, "total_memory": 32 * GIB, "total_time": job.elapsed_s * 6,
            "cpus": 8, "gpu_utilization": {"0": busy}, "gpu_used_memory": {"0": held},
            "gpu_total_memory": {"0": 80 * GIB}}  # fmt: skip
    document = {"total_time": job.elapsed_s, "gpus": 1, "nodes": {"gpu01": node}}
    text = base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()
    return replace(job, admin_comment=f"JS1:{text}")


# -- array-mem-over, array-time-over, array-cpu-over -----------------------------------------------


@case("array-mem-over:info mem-over:info", near="array-time-over array-outlier array-mixed-outcome")
def memory_too_much_for_all():
    """Memory p50 3.1, max 4.05 of 32 GiB."""
    return array(tasks())


@case(near="array-mem-over array-outlier")
def memory_needed_by_one():
    """The largest task needs 24 of 32 GiB: 75 %."""
    return array(tasks([23 + n / 10 for n in range(12)]))


@case("array-mixed-outcome:warning", near="array-mem-over")
def memory_ran_out_once():
    """One task ran out of memory: nobody gets less."""
    return array(tasks(states={7: "OUT_OF_MEMORY"}))


@case("array-mem-over:warning mem-over:info")
def memory_too_much_at_once():
    """The twelve tasks ran at the same time: 340 GiB wasted."""
    jobs = [replace(job, start=START, end=START + 2400) for job in tasks()]
    return array(jobs)


@case("array-time-over:info time-over:info", near="array-mem-over array-outlier")
def time_too_much_for_all():
    """The longest took 52 min of 8 h."""
    elapsed = [2400 + 65 * n for n in range(12)]
    return array(tasks([28.0] * 12, elapsed, limit=28_800.0))


@case(near="array-time-over time-over")
def time_needed_by_one():
    """The longest took 40 of 60 min."""
    elapsed = [2250 + 15 * n for n in range(12)]
    return array(tasks([28.0] * 12, elapsed))


@case("array-mixed-outcome:warning array-outlier:info", near="array-time-over")
def one_timed_out():
    """Eleven took 40 min of 2 h; one was ended by the limit."""
    elapsed = [2400] * 11 + [7200]
    return array(tasks([28.0] * 12, elapsed, {11: "TIMEOUT"}, limit=7200.0))


@case("array-cpu-over:warning", near="array-mem-over array-outlier array-gpu-idle")
def cores_too_many_for_all():
    """Peak cores p95 1.1 of 8, all recorded."""
    jobs = tasks([28.0] * 12)
    return array(jobs, recorded(jobs, [1.0 + n / 100 for n in range(12)]))


@case(near="array-cpu-over")
def cores_needed_by_some():
    """Two of twelve peak at 5 of 8."""
    jobs = tasks([28.0] * 12)
    return array(jobs, recorded(jobs, [1.0] * 10 + [5.0, 5.2]))


@case(unknown="array-cpu-over array-gpu-idle")
def cores_not_recorded():
    """Accounting alone has no peak."""
    return array(tasks([28.0] * 12, gpus=1))


@case(unknown="array-mem-over array-time-over")
def four_tasks():
    """Four tasks are too few."""
    return array(tasks([3.0] * 4, [2400] * 4, mem=4 * GIB))


# -- array-gpu-idle, array-outlier, array-mixed-outcome --------------------------------------------


@case("array-gpu-idle:warning", near="array-cpu-over array-mixed-outcome")
def some_never_used_their_gpu():
    """Four of twelve tasks never used their GPU."""
    jobs = tasks([28.0] * 12, gpus=1)
    return array(jobs, recorded(jobs, None, [0.0] * 4 + [0.9] * 8))


@case("array-gpu-idle:critical gpu-never-used:warning")
def most_never_used_their_gpu():
    """Seven of twelve, by jobstats' summaries."""
    jobs = tasks([28.0] * 12, gpus=1)
    return array([jobstats(job, *((0.0, 0) if n < 7 else (80.0,))) for n, job in enumerate(jobs)])


@case("low-busy:warning", near="array-gpu-idle gpu-never-used")
def a_mean_rounded_to_zero():
    """Seven of twelve by jobstats at 0 % of a mean, with memory of a process on the GPU."""
    jobs = tasks([28.0] * 12, gpus=1)
    return array([jobstats(job, 0.0 if n < 7 else 80.0) for n, job in enumerate(jobs)])


@case(near="array-gpu-idle array-outlier")
def all_used_their_gpu_a_little():
    """The least of twelve worked in 2 % of the time."""
    jobs = tasks([28.0] * 12, gpus=1)
    return array(jobs, recorded(jobs, None, [0.02] + [0.9] * 11))


@case("array-outlier:info", near="array-mem-over")
def one_needs_far_more():
    """One task needs 23 GiB, the median is 3.1."""
    sizes = [*_SIZES[:11], 23.0]
    return array(tasks(sizes)[::-1])


@case(near="array-outlier array-mem-over")
def spread_widely():
    """A third of the tasks need five times the median: a spread, nobody is far off."""
    return array(tasks([24.0] * 4 + [4.6] * 8))


@case("array-mixed-outcome:warning", near="array-mem-over")
def some_failed():
    """Two TIMEOUT, one FAILED and one OUT_OF_MEMORY of twelve."""
    states = {3: "TIMEOUT", 4: "FAILED", 7: "OUT_OF_MEMORY", 9: "TIMEOUT"}
    return array(tasks([28.0] * 12, states=states))


@case("array-mixed-outcome:warning ended-badly:warning")
def all_failed():
    """All twelve FAILED: a fault of the script."""
    return array(tasks([28.0] * 12, states=dict.fromkeys(range(12), "FAILED")))


@case(near="array-mixed-outcome")
def one_was_cancelled():
    """One of twelve was cancelled by its owner."""
    return array(tasks([28.0] * 12, states={5: "CANCELLED"}))
