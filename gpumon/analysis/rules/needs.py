"""What a rule needs before its check has anything to do: an answer in its place, or None."""

from __future__ import annotations

from gpumon.analysis.finding import Lack, NotEvaluable, Outcome
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules import jobstats
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import is_allocated, job_devices

_NO_RECORDING, _NO_JOB = NotEvaluable(Lack.RECORDING), NotEvaluable(Lack.JOB)


def samples(run: RunData) -> Outcome | None:
    return None if run.has_samples else _NO_RECORDING


@once
def gpus(run: RunData) -> Outcome | None:
    """Devices that were read; a job without GPUs is clear."""
    if job_devices(run):
        return None
    asked = requested(run).gpus
    if asked == 0:
        return []
    if not run.has_samples:
        return _NO_RECORDING
    known = asked or run.devices
    return NotEvaluable(Lack.READINGS, "no GPU of the job could be read") if known else []


def allocation(run: RunData) -> Outcome | None:
    """A job that holds the devices; without one nobody wastes them."""
    return None if is_allocated(run) else _NO_JOB


def state(run: RunData) -> Outcome | None:
    """Slurm's state of the job."""
    known = run.job is not None and run.job.state
    return None if known else NotEvaluable(Lack.SLURM, "the job's state is not known")


def array(run: RunData) -> Outcome | None:
    """A task of an array; any other job is clear."""
    return None if run.job is not None and run.job.array_job_id else []


def gpus_or_means(run: RunData) -> Outcome | None:
    """Devices that were read, or jobstats' mean of each."""
    means = None if job_devices(run) else jobstats.mean_busy(run)
    if isinstance(means, NotEvaluable):
        return means
    return gpus(run) if means is None else None


def gpu_memory(run: RunData) -> Outcome | None:
    """Devices that were read; a peak in jobstats' summary may be a reservation."""
    return None if job_devices(run) else jobstats.memory(run) or gpus(run)
