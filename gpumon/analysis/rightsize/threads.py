"""CPUs that a job could use: Slurm counts hardware threads, of which a core may have two."""

from __future__ import annotations

from gpumon.analysis.accounting import used
from gpumon.analysis.known import highest
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.directives import options_of_submit_line
from gpumon.analysis.rundata import RunData
from gpumon.model.reading import number
from gpumon.slurm.job import Job

#: the share of half its CPUs above which a job must have used both threads of its cores; time
#: is counted in whole seconds, and Slurm's own processes are in it
_BOTH_THREADS = 1.1


def threads_per_core(run: RunData) -> int | None:
    """Hardware threads of a core, each of which Slurm may count as a CPU; None: not known."""
    if not run.has_samples:
        return None if run.job is None else threads_of_job(run.job)
    told = highest(number(each.header.facts.get("threads_per_core")) for each in run.nodes)
    return None if told is None else int(told)


@once
def threads_of_job(job: Job) -> int | None:
    """By accounting alone: 2 where the job could use one of two hardware threads of each core, and
    Slurm counts both as CPUs: by --hint=nomultithread or --threads-per-core=1, or because whole
    cores were allocated to it, twice as many CPUs as it requested. None: not known.

    A job that used more than half of its CPUs used both threads, whatever it asked for.
    """
    cpus, asked = job.allocated.cpus, job.requested.resources.cpus
    if not cpus or cpus % 2:
        return None
    options = options_of_submit_line(job.submit_line)
    is_single = options.get("hint") == "nomultithread" or options.get("threads-per-core") == "1"
    if not is_single and (asked is None or cpus != 2 * asked):
        return None
    mean = used(job).cpu_cores_mean
    return None if mean is not None and mean > _BOTH_THREADS * cpus / 2 else 2


def usable_cpus(job: Job) -> int | None:
    """The allocated CPUs, as far as the job could use them."""
    cpus = job.allocated.cpus
    return cpus if cpus is None else cpus // (threads_of_job(job) or 1)
