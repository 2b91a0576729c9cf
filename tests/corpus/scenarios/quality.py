"""What could not be measured, and where two measurements differ (findings, 3.11)."""

from gpumon.slurm.job import Step, Usage
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import GIB, MIG_10, torch
from tests.corpus.jobs import run

# -- data-stale ------------------------------------------------------------------------------------


@case(
    "data-stale:warning", near="gpu-unreadable gpus-partly-idle", devices={"data-stale": "gpu01:1"}
)
def a_gpu_hangs():
    """The driver does not answer for GPU 1 since 4 min; the other one moves on."""
    return run(900, Node([Gpu(94), Gpu(94, hung_at=660)], cpus=16), live=True)


@case("data-stale:warning")
def connection_lost():
    """One of two nodes sent nothing for 70 s."""
    nodes = [Node([Gpu()], "gpu01"), Node([Gpu()], "gpu02", until=530)]
    return run(600, *nodes, live=True)


@case(near="data-stale")
def connection_slow():
    """One of two nodes is 20 s behind."""
    nodes = [Node([Gpu()], "gpu01"), Node([Gpu()], "gpu02", until=582)]
    return run(600, *nodes, live=True)


@case("gpu-unreadable:info", near="data-stale")
def never_there():
    """A slice has no utilization: unreadable once, not stale for ever."""
    gpu = Gpu(80, [Proc(mem=torch(6 * GIB))], MIG_10, mig="1g.10gb")
    return run(420, Node([gpu]), live=True)


# -- wrong-job -------------------------------------------------------------------------------------


@case("wrong-job:critical")
def adopted_into_another_job():
    """The login was adopted into job 124."""
    return run(60, Node([Gpu()], job_id="124"), live=True)


@case(near="wrong-job")
def the_same_job():
    """The agent stands in the job that was asked for."""
    return run(60, Node([Gpu()]), live=True)


@case(near="wrong-job")
def component_of_a_het_job():
    """The second component of a heterogeneous job names its leader."""
    fields = {"raw_id": "4712", "id": "4711+1", "het_job_id": "4711", "het_offset": 1}
    return run(60, Node([Gpu()], job_id="4711"), live=True, job=fields)


# -- low-coverage ----------------------------------------------------------------------------------


@case("low-coverage:info", near="data-stale")
def attached_late():
    """The recording begins after 40 % of the run."""
    return run(1800, Node([Gpu()], since=720))


@case("low-coverage:info")
def a_long_gap():
    """A gap of 11 min in an hour and a half."""
    return run(5400, Node([Gpu()], gaps=[(2000, 2660)]), interval=5)


@case(near="low-coverage")
def a_gap():
    """A gap of 9 min in an hour and a half."""
    return run(5400, Node([Gpu()], gaps=[(2000, 2540)]), interval=5)


@case(near="low-coverage")
def attached_soon():
    """The recording begins after 15 % of the run."""
    return run(1800, Node([Gpu()], since=270))


# -- accounting-mismatch ---------------------------------------------------------------------------


def accounted(peak_gib, cpu_s=None, gpu_percent=None, seconds=960, **rest):
    maximum = {} if gpu_percent is None else {"gres/gpuutil": gpu_percent}
    usage = Usage(total={"mem": peak_gib * GIB}, maximum=maximum)
    step = Step("batch", state="COMPLETED", tasks=1, node_count=1, usage=usage,
                max_rss_bytes=int(peak_gib * GIB), cpu_s=cpu_s, elapsed_s=seconds)  # fmt: skip
    return run(seconds, Node([Gpu(rest.pop("busy", 90))], anon=50 * GIB, cache=13 * GIB),
               job={"steps": (step,), "cpu_s": cpu_s})  # fmt: skip


@case("accounting-mismatch:info", near="mem-over")
def page_cache_in_slurms_figure():
    """Slurm's peak is 63.9 of 64 GiB: the page cache is in it."""
    return accounted(63.9)


@case("accounting-mismatch:info")
def killed_processes_lost():
    """Slurm counts half of the CPU time: the time of killed processes is lost."""
    return accounted(51, cpu_s=3000)


@case("accounting-mismatch:info")
def a_peak_is_no_mean():
    """gres/gpuutil says 100, the GPU's mean was 62."""
    return accounted(51, gpu_percent=100, busy=62)


@case(near="accounting-mismatch")
def figures_agree():
    """Memory 51 against 50 GiB, CPU and GPU alike."""
    return accounted(51, cpu_s=0.78 * 8 * 960, gpu_percent=100)


@case(unknown="accounting-mismatch")
def no_figures():
    """Slurm lacks the figures."""
    return run(600, Node([Gpu()]))
