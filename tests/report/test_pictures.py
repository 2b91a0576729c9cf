"""The course of a GPU in a report covers the run, and agrees with the numbers beside it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.chart.bars import spark_of_all
from gpumon.report.build import build
from gpumon.report.render.forms import Medium, render
from gpumon.slurm.job import Job
from tests.analysis.build import START, device, evidence

HOURS = 360  # bins
LEVELS = "▁▂▃▄▅▆▇█"


def report(*busy, start=START, count=None):
    """One GPU, busy by the hour."""
    count = count or HOURS * len(busy)
    values = [percent for percent in busy for _ in range(HOURS)]
    job = Job(raw_id="4711", id="4711", state="COMPLETED", start=start, end=START + count * 10.0)
    run = evidence(count, [device(len(values), busy_percent=values)], job=job)
    return build(replace(run, start=start))


def drawn(text):
    """What stands under "over the run"."""
    (course,) = re.findall(rf"[{LEVELS}·]{{8,}}", text)
    return course


@pytest.mark.parametrize("form", ["text", "md"])
def test_idle_hours_show_wherever_they_lie(form):
    course = drawn(render(form, [report(0, 0, 0, 90, 90, 90, 90, 90)], Medium()))
    idle = [cell == "▁" for cell in course]
    assert 0.3 < sum(idle) / len(idle) < 0.45
    assert idle == sorted(idle, reverse=True)


@pytest.mark.parametrize("form", ["text", "md"])
def test_what_was_before_the_recording_is_a_gap(form):
    course = drawn(render(form, [report(90, 90, start=START - 6 * 3600)], Medium()))
    assert course.count("·") / len(course) == pytest.approx(0.75, abs=0.07)
    assert course[0] == "·" != course[-1]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(1, 30))
def test_every_value_is_in_the_picture(values, width):
    course = spark_of_all(values, width)
    assert len(course) == min(width, len(values))
    assert LEVELS.index(max(course)) >= round(sum(values) / len(values) / 100 * 7) - 1
    assert LEVELS.index(min(course)) <= round(sum(values) / len(values) / 100 * 7) + 1


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_the_picture_has_the_mean_of_the_numbers(busy):
    (row,) = report(*busy).devices
    known = [value for value in row.busy_over_time if value is not None]
    assert sum(known) / len(known) == pytest.approx(row.busy_mean, abs=2)
