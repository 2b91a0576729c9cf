"""Why a finding is not certain, as a fact about the data it rests on."""

from __future__ import annotations

from gpumon.analysis.finding import Finding
from gpumon.analysis.rightsize.proof import is_whole, unrecorded_text
from gpumon.analysis.rundata import RunData
from gpumon.model.units import age_text, measured_text
from gpumon.plain import replace


def doubted(run: RunData, found: Finding) -> Finding:
    """The finding, with the reason of a confidence that is not high, where the data has one."""
    return found if found.confidence == "high" else replace(found, doubt=_doubt(run, found))


def _doubt(run: RunData, found: Finding) -> str:
    if run.sibling_runs:
        return ""  # a task's figure has its source beside it
    if not run.has_samples:
        source = "jobstats' summary" if run.coverage.source == "jobstats" else "Slurm's accounting"
        return f"Based on {source} alone"
    if lacking := unrecorded_text(run):
        return f"Preliminary: {lacking}"
    if not is_whole(run) and run.nodes:
        seen_s = min(each.covered_s for each in run.nodes)
        return f"Preliminary: {measured_text(seen_s)} of {age_text(run.elapsed_s)} observed"
    return "Uncertain: no reading shows it directly" if found.confidence == "low" else ""
