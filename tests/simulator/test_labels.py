"""Labels of every second and of the need: complete, and as the programs were made."""

from math import ceil

import pytest

from gpumon.analysis.finding import Change, Gpus
from tests.simulator.array import SimArray
from tests.simulator.draw import ANEW, KINDS, NEW, make, name_of
from tests.simulator.follow import SLOWER, as_requested, core_slowdown, harm
from tests.simulator.job import peaks
from tests.simulator.labels import State, last_useful_s, needs, observed, timeline, wasted_s

NAMES = [(name_of(kind), 1) for kind, _ in KINDS] + [(name_of(kind), ANEW + 1) for kind, _ in NEW]


def states(job):
    return {place: {each.state for each in row} for place, row in timeline(job).items()}


@pytest.mark.parametrize(("kind", "number"), NAMES)
def test_every_second_has_one_state(kind, number):
    job = make(2, number, kind)
    rows = timeline(job)
    assert len(rows) == job.request.nodes * job.request.gpus
    lasts = min(job.ended.seconds, job.program.seconds)
    for row in rows.values():
        assert row[0].since == 0
        assert row[-1].until == pytest.approx(lasts)
        assert all(one.until == other.since for one, other in zip(row, row[1:]))
        assert all(0 <= each.used <= 1 for each in row)
        assert all(each.used == 0 or each.state is State.WORKING for each in row)
    held = lasts * len(rows)
    assert 0 <= wasted_s(job) <= held
    assert wasted_s(job, [(0, lasts / 2)]) <= wasted_s(job)
    assert last_useful_s(job) <= job.ended.seconds


@pytest.mark.parametrize(("kind", "number"), NAMES)
def test_needs_are_within_what_was_requested(kind, number):
    job = make(2, number, kind)
    asked, known = job.request, needs(job)
    assert 1 <= known.cores <= asked.cpus
    assert 0 <= known.gpus_at_once <= asked.nodes * asked.gpus
    assert 0 <= known.gpus <= asked.nodes * asked.gpus
    most = peaks(job, job.program.seconds)
    assert all(min(asked.mem, own) <= need for own, need in zip(most, known.mem))
    fewer = as_requested(asked)
    fewer.cpus = known.cores
    assert core_slowdown(job, fewer) <= SLOWER


def lines_of_the_need(job, less=0):
    """What the job needs, line by line; or a little less."""
    asked, known = job.request, needs(job)
    mem = max(known.mem)
    yield "memory", Change("--mem", None, ceil(mem) if not less else int(0.97 * mem))
    if asked.tasks == 1 and known.cores > less:
        yield "cores", Change("--cpus-per-task", None, known.cores - less)
    if asked.nodes == 1 and known.gpus:
        gpus = Gpus(f"{asked.board.gres}:", known.gpus - less)
        yield "GPUs", Change("--gres", None, gpus if known.gpus > less else None)
    if not less:
        yield "limit", Change("--time", None, ceil(known.limit_s))


@pytest.mark.parametrize("first", [0, ANEW])
def test_a_line_of_the_need_is_safe_and_less_is_not(first):
    jobs = [make(6, number) for number in range(first, first + 30)]
    tried = 0
    for job in jobs:
        if isinstance(job, SimArray) or job.ended.state != "COMPLETED":
            continue
        job.request.mem_form, job.request.submit_line, tried = "node", "", tried + 1
        for name, line in lines_of_the_need(job):
            assert harm(job, [line]) == "", (job.story, name)
        for name, line in lines_of_the_need(job, less=1):
            if name != "memory" or max(needs(job).mem) < job.request.mem:
                assert harm(job, [line]), (job.story, name)
    assert tried >= 10


def test_a_hang_uses_nothing_and_work_ends_where_it_begins():
    job = make(2, ANEW + 3, "stuck.node_dead")
    at = job.program.causes["hang"]
    assert last_useful_s(job) == pytest.approx(min(at, job.ended.seconds))
    assert all(State.HUNG in each for each in states(job).values())
    assert wasted_s(job) >= (job.ended.seconds - at - 20) * len(timeline(job))


def test_a_lost_gpu_is_lost_until_the_end():
    job = make(2, ANEW + 5, "stuck.gpu_lost_early")
    at, key = job.program.lost
    row = timeline(job)[0, key]
    assert (row[-1].state, row[-1].since) == (State.LOST, at)
    others = [row for place, row in timeline(job).items() if place != (0, key)]
    assert all(each.state is not State.LOST for row in others for each in row)


def test_gpus_used_in_turns_need_one_at_a_time():
    job = make(2, 1, "training.sequential")
    assert all(each == {State.WORKING, State.TURNS} for each in states(job).values())
    assert (needs(job).gpus, needs(job).gpus_at_once) == (job.request.gpus, 1)


def test_idle_gpus_are_alone_before_between_or_behind():
    some = make(2, 1, "training.some_gpus")
    assert {State.ALONE, State.BEFORE} <= states(some)[0, some.request.gpus - 1]
    assert State.BEHIND in states(make(2, 2, "training.idle_end"))[0, 0]
    assert states(make(2, 1, "training.never"))[0, 0] == {State.NEVER}


def test_what_another_user_does_is_no_waste():
    job = make(2, ANEW + 2, "strangers.on_unused")
    last = timeline(job)[0, job.request.gpus - 1]
    assert [each.state for each in last] == [State.OTHERS]
    assert wasted_s(job) < job.ended.seconds * (job.request.gpus - 1)


def test_only_what_was_recorded_counts():
    job = make(2, 1, "training.healthy")
    job.view.since, job.view.until, job.view.gaps = 100.0, 1000.0, ((400.0, 500.0),)
    assert observed(job) == [(100.0, 400.0), (500.0, 1000.0)]
