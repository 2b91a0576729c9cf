"""GPUs that others of their program wait for: they do far more meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.analysis.programs import programs_on
from gpumon.analysis.rules.phrasing import gpus_text
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import Span, job_devices, mean_of, observed

#: a rank with so many times the SM activity, or power, of others is what they wait for (proposed)
_FAR_MORE = 1.25
#: % of the run that is left where they do not wait, so that it can be compared (proposed)
_LEAST_REST = 10.0


class WaitedFor(NamedTuple):
    """`in_phases`: these GPUs do as much as the others in the rest of the run, so that no other
    finding is about them: those compare the GPUs over the run.
    """

    devices: list[DeviceData]
    in_phases: bool

    def says(self, run: RunData) -> str:
        """For a title, after the GPUs that wait."""
        if not self.in_phases:
            return ""
        return f"{'wait' if run.live else 'waited'} for {gpus_text(run, self.devices)}: "


def waited_for(
    run: RunData, devices: Sequence[DeviceData], spans: Iterable[Span], name: str
) -> WaitedFor:
    """Other GPUs with the same program, by the field of that name."""
    spans = list(spans)
    own = [each.track(name) for each in devices]
    programs = frozenset[str]().union(*map(programs_on, devices))
    least = _FAR_MORE * _mean(own, spans)
    found = [
        each
        for each in job_devices(run)
        if each not in devices
        and programs & programs_on(each)
        and (mean_of(each.track(name), spans) or 0.0) >= least
    ]
    rest = _rest(run, spans)
    bins = sum(last - first for first, last in rest)
    whole = observed(run)
    is_known = bool(found) and bins >= _LEAST_REST / 100 * (whole.last - whole.first)
    others = [each.track(name) for each in found]
    return WaitedFor(found, is_known and _FAR_MORE * _mean(own, rest) > _mean(others, rest))


def _mean(tracks: Sequence[Track], spans: Sequence[Span]) -> float:
    means = [mean for each in tracks if (mean := mean_of(each, spans)) is not None]
    return sum(means) / len(means) if means else 0.0


def _rest(run: RunData, spans: Iterable[Span]) -> list[Span]:
    """What of the run lies in none of these."""
    found, since = [], observed(run).first
    for first, last in sorted(spans):
        if first > since:
            found.append(Span(since, first))
        since = max(since, last)
    end = observed(run).last
    return [*found, Span(since, end)] if end > since else found
