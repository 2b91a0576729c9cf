"""What a condition weighs in a run: one that held for a small part of it is information."""

from __future__ import annotations

from gpumon.analysis.finding import Finding
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import observed, seconds_of
from gpumon.analysis.thresholds import Phases, of_site
from gpumon.model.units import age_text
from gpumon.plain import replace


def weighed(run: RunData, found: Finding) -> Finding:
    """The finding; in a report as information, with its share, where it held in a small part of
    what was observed and wasted little. What is no condition but an event has no such part.
    """
    if run.live or found.level == "info" or found.held_s is None:
        return found
    t = of_site(run.site, "phases", Phases)
    observed_s = seconds_of(run, [observed(run)])
    if found.held_s >= t.least_percent / 100 * observed_s or found.waste_gpu_hours >= t.gpu_hours:
        return found
    share = f"{age_text(found.held_s)} of {age_text(observed_s)}"
    joint = "; " if found.adds or found.goes_on else ""
    adds = None if found.adds is None else f"{found.adds}{joint}{share}"
    return replace(found, level="info", evidence=f"{found.evidence}; {share}", adds=adds)
