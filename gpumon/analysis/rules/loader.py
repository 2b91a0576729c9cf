"""Data loaders that GPUs wait for: measured by the probe, with the line that takes the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.finding import Action, to_write
from gpumon.analysis.rules.phrasing import percent
from gpumon.analysis.rules.stands import line_of, mostly_in, probed_of, ranks_text, seen
from gpumon.analysis.rundata import DeviceData, NodeData, ProgramData, RunData, Track
from gpumon.analysis.signals import Held, Span, busy_track, devices_on, mean_of, sustained
from gpumon.analysis.steps import probed_on
from gpumon.frames.places import ranked, share
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import plural

#: of a worker's looks from which on it waits for work itself, and is not what the GPU waits for
_RESTS_SHARE = 0.5
#: fewer workers do not pay
_LEAST_WORKERS = 2


def loader_action(workers: int) -> Action:
    """`workers`: of each process on a GPU."""
    return Action(
        "code",
        Line("DataLoader(..., num_workers={}, pin_memory=True, persistent_workers=True)", workers),
    )


def wait_tracks(run: RunData, device: DeviceData) -> list[Track]:
    """Of each probed process on it, the share of its time in its data loader."""
    tracks = [each.track("data_wait_percent") for each in probed_on(run, device)]
    return [each for each in tracks if each.known()]


def waits_held(
    run: RunData,
    device: DeviceData,
    first: int,
    seconds: float,
    percent_of_time: float,
    busy: tuple[float, float],
) -> Held:
    """When a process waits in its data loader for so much of its time, and the GPU is busy so."""
    low, high = busy
    found = Held([], False)
    for track in wait_tracks(run, device):

        def holds(means: Sequence[float]) -> bool:
            return low <= means[0] <= high and means[1] >= percent_of_time

        held = sustained(run, seconds, holds, [busy_track(device), track], first)
        if held.spans:
            return held
        found = Held([], found.known or held.known)
    return found


class Waits(NamedTuple):
    """How the processes on some devices wait for data, over some spans."""

    programs: list[ProgramData]
    percent: float  # of their time, in the mean
    where: str  # train.py:88 → next
    line: str  # the user's own that takes the time: train.py:88, or of the data set
    workers: int
    workers_in: str  # data.py:31 → open; "" where they mostly wait for work
    workers_percent: float  # of their looks, there

    @property
    def is_in_process(self) -> bool:
        """Without workers."""
        return not self.workers

    def says(self) -> str:
        """What was measured."""
        verb = "waits" if len(self.programs) == 1 else "wait"
        where = f", in {self.where}" if self.where else ""
        text = f"{ranks_text(self.programs)} {verb} for data {percent(self.percent)} of the time"
        if self.workers_in:
            stands = f"{plural(self.workers, 'worker')} at {self.workers_in}"
            where += f" ({stands}, {percent(self.workers_percent)} of the time)"
        return text + where


def waits_of(run: RunData, devices: Sequence[DeviceData], spans: Sequence[Span]) -> Waits | None:
    """None where the probe does not report on any of them."""
    programs = [each for each in probed_of(run, devices) if each.track("data_wait_percent").known()]
    means = [mean_of(each.track("data_wait_percent"), spans) for each in programs]
    known = [each for each in means if each is not None]
    if not known:
        return None
    waiting = seen(programs, spans, lambda place: place.waits_for == "data")
    loading = seen(programs, spans, workers=True)
    rests = share(loading, "work") or 0.0
    working = seen(programs, spans, lambda place: place.waits_for != "work", workers=True)
    is_at_work = bool(working) and rests < _RESTS_SHARE
    place, part = next(ranked(working), (None, 0.0))
    return Waits(
        programs,
        sum(known) / len(known),
        mostly_in(waiting),
        line_of(working if is_at_work else waiting),
        max(each.workers for each in programs),
        clean(place.shown, 120) if is_at_work and place is not None else "",
        100 * part * (1 - rests),
    )


def loader_actions(run: RunData, node: NodeData, waits: Waits) -> tuple[Action, ...]:
    """What to change where neither cores nor storage are at their limit."""
    gpus = max(len(devices_on(run, node)), 1)
    most = (node.cpus or 0) // gpus - 1
    if waits.is_in_process:
        text = f"The training process loads the data itself, in {waits.line or waits.where}"
        if most < _LEAST_WORKERS:
            return (to_write(f"{text}: prepare the data once, before the run."),)
        return (replace(loader_action(min(most, 8)), text=f"{text}: load it in workers."),)
    if not waits.workers_in:
        text = (
            "The workers wait for work, too: raise prefetch_factor, and look at what the program "
            "does with a batch before it trains on it."
        )
        return (to_write(text),)
    faster = f"Make {waits.line or waits.workers_in} faster, or do its work once before the run."
    if waits.workers >= most:
        return (to_write(faster),)
    more = replace(loader_action(min(most, 2 * waits.workers)), text="Or start more workers.")
    return to_write(faster), more
