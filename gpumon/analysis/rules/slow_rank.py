"""Ranks that the others of their program wait for in each step, by the probe's readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from gpumon.analysis.finding import Finding, to_write
from gpumon.analysis.programs import program
from gpumon.analysis.rules.phrasing import alike, finding, percent
from gpumon.analysis.rules.stands import line_of, most_text, ranks_text, seen
from gpumon.analysis.rundata import ProgramData, RunData
from gpumon.analysis.signals import job_devices, observed
from gpumon.analysis.steps import probed, probed_on
from gpumon.frames.places import share
from gpumon.model.units import step_text

#: ranks whose steps differ by no more take them together (proposed)
_TOGETHER = 1.1
_LEAST_RANKS = 3
#: % of their time that the others wait in collectives; points more in its data loader (proposed)
_OTHERS_WAIT_PERCENT, _DATA_POINTS = 15.0, 20.0


class SlowRank(NamedTuple):
    """One of several ranks that take their steps together."""

    program: ProgramData
    others: list[ProgramData]
    own_s: float  # of a step, without waiting for others
    others_own_s: float  # their median
    data_percent: float  # of its time, in its data loader
    others_data_percent: float


def slow_ranks(run: RunData, seconds: float, off_percent: float) -> Iterator[SlowRank]:
    """In lockstep all steps take as long: whoever waits least in collectives, or most for its own
    data, is what the others wait for. Not more than a third of the ranks.
    """
    programs = [each for node in run.nodes for each in probed(node)]
    for ranks in alike(programs, program):
        steps = [each.track("step_us").average() for each in ranks]
        times = [each / 1e6 for each in steps if each]
        known_s = min(each.track("step_us").known_count() for each in ranks) * run.bin_s
        if len(times) < max(_LEAST_RANKS, len(ranks)) or known_s < seconds:
            continue
        if max(times) > _TOGETHER * min(times):
            continue
        found = [_looked_at(ranks, times, n) for n in range(len(ranks))]
        slow = [each for each in found if _is_slow(each, off_percent)]
        if len(slow) <= len(ranks) // 3:
            yield from slow


def _looked_at(ranks: Sequence[ProgramData], times: Sequence[float], n: int) -> SlowRank:
    own = [time * (1 - _waits(each)) for time, each in zip(times, ranks)]
    data = [each.track("data_wait_percent").average() or 0.0 for each in ranks]

    def of_others(values: Sequence[float]) -> float:
        return median([*values[:n], *values[n + 1 :]])

    others = [*ranks[:n], *ranks[n + 1 :]]
    return SlowRank(ranks[n], others, own[n], of_others(own), data[n], of_others(data))


def _waits(rank: ProgramData) -> float:
    """In collectives, 0 to 1, while it made steps: others wait for one that evaluates, too."""
    spans, first = [], 0
    for is_known, bins in groupby(value == value for value in rank.track("step_us").mean):
        last = first + len(list(bins))
        spans += [(first, last)] if is_known else []
        first = last
    return share(rank.places(spans), "ranks") or 0.0


def _is_slow(each: SlowRank, off_percent: float) -> bool:
    if each.data_percent - each.others_data_percent >= _DATA_POINTS:
        return True
    wait = 100 * median(_waits(other) for other in each.others)
    return each.own_s > (1 + off_percent / 100) * each.others_own_s and wait >= _OTHERS_WAIT_PERCENT


def slow_rank_finding(run: RunData, slow: SlowRank) -> Finding:
    name = ranks_text([slow.program])
    devices = [
        each
        for each in job_devices(run)
        if slow.program.facts.pid in {of.facts.pid for of in probed_on(run, each)}
        and each.node in {node.node for node in run.nodes if slow.program in node.programs}
    ]
    spans = [observed(run)]
    by_data = slow.data_percent - slow.others_data_percent >= _DATA_POINTS
    if by_data:
        what = (
            f"{name} waits for its own data {percent(slow.data_percent)} of the time, the others "
            f"{percent(slow.others_data_percent)}"
        )
        looks = seen([slow.program], spans, lambda place: place.waits_for != "work", workers=True)
        looks = looks or seen([slow.program], spans, lambda place: place.waits_for == "data")
    else:
        what = (
            f"{name} needs {step_text(1e6 * slow.own_s)} for its part of a step, the others "
            f"{step_text(1e6 * slow.others_own_s)}"
        )
        looks = seen([slow.program], spans, lambda place: place.waits_for != "ranks")
    waiting = f"the other {len(slow.others)} ranks wait for it"
    line = line_of(looks)
    text = f"See what makes it slow{f' in {line}' if line else ''}: its share of the data may be "
    text += "read more slowly." if by_data else "larger."
    return finding(
        run,
        "warning",
        f"{what}; {waiting}",
        f"{what}; {waiting}; {most_text([slow.program], spans)}",
        adds=most_text([slow.program], spans),
        devices=devices,
        spans=spans,
        confidence="medium",
        numbers={
            "own_s": slow.own_s,
            "others_own_s": slow.others_own_s,
            "data_wait_percent": slow.data_percent,
            "others_data_wait_percent": slow.others_data_percent,
        },
        actions=[to_write(text)],
    )
