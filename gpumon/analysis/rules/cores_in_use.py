"""How a job used its cores: findings about that, and levels that one mean would hide."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.once import once
from gpumon.analysis.phases import between
from gpumon.analysis.rightsize.proof import is_close, is_whole
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.core_time import cores_in_all
from gpumon.analysis.rules.phrasing import finding
from gpumon.analysis.rundata import RunData, Track
from gpumon.analysis.signals import observed, phase_bins
from gpumon.model.units import age_text

#: cores: a level that uses less is a wait
_RESTING = 0.1
#: more levels than these are no story; part of the cores below which a level uses few, and from
#: which on one uses them (proposed)
_MOST_LEVELS, _FEW, _MANY = 4, 0.5, 0.75


@once
def _in_use(run: RunData) -> Track:
    """Cores in use on all nodes; empty where one was not recorded."""
    tracks = [each.job.get("cpu_cores_used", Track()) for each in run.nodes]
    if len(tracks) < requested(run).nodes or not all(len(each.mean) for each in tracks):
        return Track()
    return Track(array("f", map(sum, zip(*(each.mean for each in tracks)))))


def levels_text(run: RunData) -> str:
    """`4.0 of 16 cores used for 2 h 00 min, then 15.8 for 1 h 00 min` of a run with a part that
    uses few of its cores and one that uses them; "" for any other.
    """
    track, cores = _in_use(run), cores_in_all(run)
    parts = between(track.cuts(phase_bins(run)), *observed(run)) if len(track.mean) else []
    levels = [
        (mean, (last - first) * run.bin_s)
        for first, last in parts
        if (mean := track.average(first, last)) is not None and mean >= _RESTING
    ]
    used = [mean for mean, _ in levels]
    if not 2 <= len(levels) <= _MOST_LEVELS:
        return ""
    if min(used) > _FEW * cores or max(used) < _MANY * cores:
        return ""
    (first, seconds), *others = levels
    more = "".join(f", then {mean:.1f} for {age_text(s)}" for mean, s in others)
    return f"{first:.1f} of {cores} cores used for {age_text(seconds)}{more}"


def seldom_text(run: RunData) -> str:
    """`; more than three quarters of them for 5 min` of a run that seldom used so many."""
    values, cores = _in_use(run).known(), cores_in_all(run)
    bins = sum(value > _MANY * cores for value in values)
    if not bins or bins > _FEW * len(values):
        return ""
    return f"; more than three quarters of them for {age_text(bins * run.bin_s)}"


def cores_finding(
    run: RunData, level: str, text: str, numbers: Mapping[str, float], *actions: Action | None
) -> Finding:
    """Of the cores over the whole run."""
    return finding(
        run,
        level,
        text,
        rest=f", over {age_text(run.elapsed_s)}",
        confidence="high" if is_whole(run) and is_close(run) and not run.live else "medium",
        numbers=numbers,
        actions=actions,
    )
