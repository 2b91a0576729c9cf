"""The row with the job's steps."""

from __future__ import annotations

import pytest

from gpumon.analysis.rundata import Coverage, RunData
from gpumon.analysis.steps import StepsNow, steps_now
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.site import Site
from gpumon.tui.lines import row_width
from gpumon.tui.moment import Moment
from gpumon.tui.moment.zoom import Zoom
from gpumon.tui.screens.job.steps import step_rows
from tests.analysis.build import device, evidence, node, program

BARRIER = {"place": "train.py:120 all_reduce", "waits_for": "ranks"}


def row(programs, width=200, glyphs="braille", **changes):
    """The row's text, where `programs` are there."""
    known = {"per_s": 3.1, "step_s": 0.312, "data_wait_percent": 7.0, "still_s": 0.3, **changes}
    run = RunData(None, 0.0, 1.0, True, 10.0, [], [], [], Coverage("live", 100.0, 1.0), Site())
    told = LiveEvaluation([], run, None, steps=StepsNow(programs=programs, **known))
    rows = step_rows(Moment(Zoom(600.0), glyphs, evaluation=told), width)
    assert len(rows) == 1
    assert row_width(rows[0]) <= width
    return "".join(text for text, _ in rows[0]), dict((text, role) for text, role in rows[0])


RANKS = [program(rank=0), *(program(rank=n, **BARRIER) for n in (1, 2, 3))]


def test_steps_in_one_row():
    text, _ = row([program(rank=0)])
    assert text.rstrip() == (
        " steps 3.1 per s  312 ms each  waiting for data 7 %  rank 0 stands in train.py:131"
    )


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_it_fits(width):
    text, _ = row(RANKS, width)
    assert "3.1 per s" in text
    assert ("all_reduce" in text) == (width >= 200)


def test_a_wait_stands_out():
    _, roles = row(RANKS, data_wait_percent=72.0)
    assert roles["waiting for data 72 %"] == "attention"


def test_without_steps_it_says_where_each_rank_stands():
    text, roles = row(RANKS, still_s=240.0)
    assert text.rstrip() == (
        " steps ▲ none for 4 min; rank 0 stands in train.py:131; "
        "ranks 1, 2 and 3 in train.py:120 → all_reduce"
    )
    assert set(roles.values()) - {""} == {"dim", "attention"}
    assert "none" not in row(RANKS, still_s=240.0, step_s=60.0)[0]
    assert row(RANKS, still_s=240.0, glyphs="ascii")[0].startswith(" steps ^ none")


def test_nothing_without_a_probe():
    assert step_rows(Moment(Zoom(600.0), "braille"), 80) == []


def test_what_the_last_minute_was():
    count = 30
    probed = [
        program(count, pid=n, rank=n, step_us=[9e5] * 24 + [2e5] * 6, data_wait_percent=20 * n)
        for n in (1, 2)
    ]
    probed.append(program(count, pid=3, rank=3, step_us=1e5, last=0.0))  # it has ended
    run = evidence(count, [device(count)], [node(count, programs=probed)], live=True)
    now = steps_now(run)
    assert (now.per_s, now.step_s, now.data_wait_percent) == pytest.approx((5, 0.2, 30))
    assert now.programs == probed[:2]
    assert now.still_s == 0
    assert steps_now(evidence(count, [device(count)], [node(count)])) is None
