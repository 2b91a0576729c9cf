"""What the host did while the GPUs were idle: it shows the cause, and so what to do."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.known import total
from gpumon.analysis.rundata import RunData, Track
from gpumon.analysis.signals import Span

#: of a core: less is waiting, or a heartbeat (proposed)
WORKING_CORES = 0.8
#: part of the time in which processes of the job waited for storage, in % (proposed)
_STALLED_PERCENT = 40.0

#: of the cores, from which on they are what the job waits for, whatever it reads; and from which
#: on it computes (proposed)
_FULL, _HALF = 0.8, 0.5
#: of the job's reading and writing, from which on it moves data (proposed)
_MOVES_BYTES_PER_S = 50e6


class Phase(NamedTuple):
    """`kind`: staging (reads or writes), cpu (half of the cores or more), prepare (some cores),
    nothing; "" where it is not known. `text`: what was measured, for people.
    """

    kind: str
    text: str

    @property
    def works(self) -> bool:
        return self.kind in ("staging", "cpu", "prepare")


def host_phase(run: RunData, span: Span) -> Phase:
    """Of all nodes together, by the larger cause."""
    rates = _rates(run, span)
    io = fmean(rates) if rates else 0.0
    often = sum(rate > _MOVES_BYTES_PER_S for rate in rates) >= 0.5 * len(rates)
    stalled = [_mean(node.job, "io_pressure_percent", span) or 0.0 for node in run.nodes]
    cores, cpus = total_cores(run, span), total(node.cpus for node in run.nodes)
    moves = io > _MOVES_BYTES_PER_S and often
    moved = f"the job read or wrote {io / 1e6:.0f} MB/s" if moves else ""
    if cores is not None and cpus and cores >= _FULL * cpus:
        also = f", and {moved}" if moved else ""
        return Phase("cpu", f"{cores:.1f} of {cpus:.0f} cores were busy{also}")
    if moved:
        return Phase("staging", moved)
    if max(stalled, default=0.0) >= _STALLED_PERCENT:
        return Phase("staging", f"processes waited for storage {max(stalled):.0f} % of the time")
    if cores is None or not cpus:
        return Phase("", "")
    text = f"{cores:.1f} of {cpus:.0f} cores were busy"
    if cores > _HALF * cpus:
        return Phase("cpu", text)
    if cores >= WORKING_CORES:
        return Phase("prepare", text)
    return Phase(
        "nothing", f"only {text}" if cores >= 0.05 else f"none of {cpus:.0f} cores was busy"
    )


def _rates(run: RunData, span: Span) -> list[float]:
    """Of reading and writing on all nodes, by bin, where any is known."""
    known = [
        node.job[name].mean[span.first : span.last]
        for node in run.nodes
        for name in ("read_bytes_per_s", "write_bytes_per_s")
        if name in node.job
    ]
    bins = ([rate for rate in each if rate == rate] for each in zip(*known))
    return [sum(each) for each in bins if each]


def total_cores(run: RunData, span: Span) -> float | None:
    """How many cores the job used on all nodes, in the mean; None where one is not known."""
    return total(_mean(node.job, "cpu_cores_used", span) for node in run.nodes)


def _mean(tracks: dict[str, Track], name: str, span: Span) -> float | None:
    return tracks[name].average(*span) if name in tracks else None
