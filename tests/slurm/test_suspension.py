"""When a job was suspended, by answers that say only how long it ran and until when it may run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.slurm.job import Job
from gpumon.slurm.suspension import MAX_SUSPENSIONS, Suspensions, is_suspended
from tests.support.examples import examples

T0 = 1_795_200_000.0
LIMIT_S = 36_000.0


def answer(at, spans, *, limit_s=LIMIT_S):
    """What Slurm says at `at` of a job that is suspended in `spans` (s since its start)."""
    is_held = any(since <= at < until for since, until in spans)
    held_s = sum(min(until, at) - since for since, until in spans if since <= at)
    over_s = sum(until - since for since, until in spans if until <= at)  # its end moves later
    return Job(
        raw_id="7", state="SUSPENDED" if is_held else "RUNNING", restarts=0, start=T0,
        end=T0 + limit_s + over_s if limit_s else None, time_limit_s=limit_s,
        elapsed_s=float(int(at - held_s)), told_at=T0 + at,
    )  # fmt: skip


def watched(times, spans, **known):
    suspensions, job = Suspensions(), None
    for at in times:
        job = suspensions.take(answer(at, spans, **known))
    return job


@given(
    st.lists(st.tuples(st.floats(30, 600), st.floats(30, 600)), min_size=1, max_size=5),
    st.floats(5, 25),
    st.sampled_from([LIMIT_S, None]),
)
@examples(200)
def test_each_stretch_is_found_where_it_was(phases, period_s, limit_s):
    spans, at = [], 0.0
    for run_s, held_s in phases:
        spans.append((at + run_s, at + run_s + held_s))
        at += run_s + held_s
    times = [period_s * n for n in range(int((at + 2 * period_s) / period_s) + 2)]
    job = watched(times, spans, limit_s=limit_s)
    assert len(job.suspensions) == len(spans)
    for (since, until), (begun, over) in zip(spans, job.suspensions):
        assert begun - T0 == pytest.approx(since, abs=3)
        assert over - T0 == pytest.approx(until, abs=6)
        assert is_suspended(job, T0 + (since + until) / 2)
    assert not is_suspended(job, T0 + 10)
    assert job.suspended_s == pytest.approx(sum(held_s for _, held_s in phases), abs=6)


def test_while_it_is_suspended_the_stretch_lasts():
    job = watched([0, 90, 110], [(100, 10_000)])
    assert job.suspensions == ((T0 + 100, None),)
    assert is_suspended(job, T0 + 9999)
    assert not is_suspended(job, T0 + 99)


def test_what_was_not_seen_is_as_long_as_slurm_says():
    job = watched([0, 100, 200], [(120, 180)])
    assert job.suspensions == ((T0 + 100, T0 + 160),)


def test_a_job_that_was_suspended_before_it_was_watched_is_not_suspended_now():
    job = watched([500], [(100, 400)])
    assert (job.suspensions, job.suspended_s) == ((), 300)


def test_another_attempt_begins_anew():
    suspensions = Suspensions()
    suspensions.take(answer(150, [(100, 200)]))
    again = replace(answer(10, []), start=T0 + 1000, end=T0 + 1000 + LIMIT_S, restarts=1)
    assert suspensions.take(again).suspensions == ()


def test_a_job_that_is_suspended_all_the_time_fills_no_memory():
    spans = [(n * 20.0, n * 20.0 + 10) for n in range(1, MAX_SUSPENSIONS + 50)]
    job = watched([n * 10.0 + 1 for n in range(2 * len(spans) + 4)], spans)
    assert len(job.suspensions) == MAX_SUSPENSIONS


def test_time_goes_on_from_an_answer_but_not_while_it_is_suspended():
    job = answer(90, [(100, 200)])
    assert job.as_of(T0 + 95).elapsed_s == 95
    held = answer(150, [(100, 200)])
    assert held.as_of(T0 + 999).elapsed_s == 100
    assert Job(state="RUNNING").as_of(T0) == Job(state="RUNNING")
