"""What a run proves: use is not need.

A run that failed, was killed or still goes on shows what it used until then; a run that completes
may need more. So what asks for less (memory, cores, GPUs, nodes, time, another type of GPU) is
advised from runs that completed alone, and from no part of one.
"""

from __future__ import annotations

from gpumon.analysis.accounting import failed_steps, has_completed
from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.last_error import crash
from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import node_of
from gpumon.model.text import clean
from gpumon.slurm.job import Job

#: what may be missing of a node's time: this part; of a short run s, but no more than that part
_MISSING_SHARE, _MISSING_S, _MOST_MISSING = 0.05, 60.0, 0.1
#: samples; s between them
_LEAST_SAMPLES, CLOSE_S = 3, 5.0
#: s without a sample in which no peak is missed
_SEAM_S = 10.0
#: why a run that was not measured as a whole proves nothing
PARTLY = NotEvaluable(Lack.READINGS, "a part of the run was not measured")
RESTARTED = "it was restarted: the last attempt may be a part of the work"
#: less than this part of the request is not worth a change, nor the risk
LEAST_SAVING = 0.2


@once
def unproven(run: RunData) -> NotEvaluable | None:
    """Why this run does not prove that less would do; None where it completed."""
    state = run.job.state if run.job is not None else ""
    if run.live or (run.job is not None and run.job.is_running):
        return NotEvaluable(Lack.END, "the job is still running and may need more")
    if not state:
        return NotEvaluable(Lack.SLURM, "it is unknown how the job ended (Slurm was not queried)")
    if state != "COMPLETED":
        return NotEvaluable(Lack.END, f"the job ended as {state}; one that completes may need more")
    job = run.job or Job()
    if not has_completed(job):
        bad = next((f"step {clean(s.id)} ended as {clean(s.state)}" for s in failed_steps(job)), "")
        bad = bad or "a step ran out of memory"
        return NotEvaluable(Lack.END, f"{bad}; a run whose steps all complete may need more")
    if is_restarted(run, job):
        return NotEvaluable(Lack.END, RESTARTED)
    if crash(run.log_tail):
        return NotEvaluable(Lack.END, "its output ends with an error; a whole run may need more")
    return None


def is_restarted(run: RunData, job: Job) -> bool:
    """The last attempt may have begun with a checkpoint."""
    others = (each for each in run.siblings if each.raw_id == job.raw_id and each != job)
    return bool(job.restarts) or any(others)


def is_whole(run: RunData) -> bool:
    """Samples of the whole run on every node of the job."""
    return not run.coverage.unrecorded and covers_time(run)


def unrecorded_text(run: RunData) -> str:
    """`3 of 4 nodes were not recorded`; "" where all were."""
    lacking = run.coverage.unrecorded
    nodes = {each.node for each in run.nodes}.union(lacking)
    return f"{len(lacking)} of {len(nodes)} nodes were not recorded" if lacking else ""


def covers_time(run: RunData) -> bool:
    """Samples of the whole run on every node that was recorded."""
    start_s = min(_MISSING_S, _MOST_MISSING * run.elapsed_s)
    whole_s = run.elapsed_s - max(_MISSING_SHARE * run.elapsed_s, start_s)
    least_s = max(whole_s, _LEAST_SAMPLES * (run.coverage.interval_s or 0.0))
    return run.coverage.from_start and all(each.covered_s >= least_s for each in run.nodes)


def is_seamless(run: RunData, device: DeviceData, name: str) -> bool:
    """A device's reading came from the run's start to its end without a gap, in which a peak of it
    may lie.
    """
    coverage, node = run.coverage, node_of(run, device)
    whole = coverage.from_start and coverage.to_end and not coverage.unrecorded
    gap_s = max(_SEAM_S, coverage.interval_s or 0.0)
    if not whole or node is None or coverage.longest_gap_s > gap_s:
        return False
    return device.track(name).known_count() >= node.covered.known_count()


def is_close(run: RunData) -> bool:
    """Samples so close together that nothing which lasts lies between two of them."""
    interval_s = run.coverage.interval_s
    return interval_s is not None and interval_s <= CLOSE_S


def is_worth(before: float, after: float, least: float = LEAST_SAVING) -> bool:
    """Whether asking for so much less is worth a change."""
    return after <= (1 - least) * before
