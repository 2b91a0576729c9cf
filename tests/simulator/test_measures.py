"""The measures themselves: what lines free, what must not change, what contradicts itself."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import Change, Gpus, Recommendation, ask_for
from tests.simulator.contradictions import contradictions, seconds
from tests.simulator.draw import ANEW, make
from tests.simulator.job import Fate, View
from tests.simulator.judge import report_of
from tests.simulator.labels import needs, timeline
from tests.simulator.measures import measure, table
from tests.simulator.scaled import VARIANTS, names, verdict
from tests.simulator.useful import freed, told

pytestmark = pytest.mark.slow


def completed(kind, number):
    job = make(4, number, kind)
    return replace(job, fate=Fate(), view=View(10.0))


def with_lines(report, *changes):
    return replace(report, recommendations=tuple(Recommendation(each, "") for each in changes))


def test_lines_free_what_was_wasted():
    job = completed("training.some_gpus", 1)
    job.request.mem_form, bare = "node", with_lines(report_of(job))
    gpus = Gpus(f"{job.request.board.gres}:", needs(job).gpus)
    by = {
        each.resource: each for each in freed(job, with_lines(bare, Change("--gres", None, gpus)))
    }
    assert by["GPUs"].share == pytest.approx(1.0)
    assert not by["GPUs"].unsafe
    assert {each.freed for each in freed(job, bare)} == {0.0}


def test_lines_that_harm_free_nothing():
    job = completed("training.some_gpus", 1)
    short = with_lines(report_of(job), Change("--gres", None, None), Change("--time", 0, 600))
    (gpus,) = (each for each in freed(job, short) if each.resource == "GPUs")
    assert gpus.unsafe
    assert gpus.freed == 0


def test_no_line_is_due_of_a_job_that_failed():
    job = replace(make(4, 1, "mishaps.failed"), view=View(10.0))
    assert freed(job, report_of(job)) == []


def test_waste_is_compared_with_the_truth():
    job = completed("training.never", 2)
    report = report_of(job)
    found = told(job, report)
    assert found.true == pytest.approx(found.held)
    assert told(job, replace(report, waste_gpu_hours=found.true / 2)).error == pytest.approx(0.5)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_the_same_job(name):
    job = completed("training.healthy", 3)
    other = VARIANTS[name](job)
    times = 2 if name == "time" else 1
    wide = 2 if name in ("ranks", "nodes") else 1
    assert other.ended.seconds == pytest.approx(times * job.ended.seconds)
    assert other.ended.state == job.ended.state
    rows, before = timeline(other), timeline(job)
    assert len(rows) == wide * len(before)
    used = sum(each.used * each.seconds for row in rows.values() for each in row)
    once = sum(each.used * each.seconds for row in before.values() for each in row)
    assert used == pytest.approx(times * wide * once)
    assert verdict(report_of(other)) == verdict(report_of(job))


def test_what_changed_is_named():
    assert names([frozenset({("a", "warning")}), frozenset({("b", "critical")})]) == (
        "+b:critical -a:warning"
    )


def test_spans_are_read():
    assert seconds("2 h 05 min") == (7500.0, 60.0)
    assert seconds("1 d 3 h") == (97200.0, 3600.0)


@pytest.fixture
def page():
    job = completed("training.idle_end", 2)
    return report_of(job)


def kinds(report):
    return {each.kind for each in contradictions(report)}


def test_one_page_that_agrees(page):
    assert kinds(page) <= {"GPUs' worth"}
    assert any(each.id == "idle-tail" for each in page.findings)


def test_two_values_of_one_quantity_contradict(page):
    (tail,) = (each for each in page.findings if each.id == "idle-tail")
    other = replace(
        tail, id="timed-out", devices=(), title="its GPUs were idle for the last 25 min"
    )
    assert "until the end" in kinds(replace(page, findings=(*page.findings, other)))
    assert "waste" in kinds(replace(page, waste_gpu_hours=2 * page.gpu_hours))
    assert "GPUs' worth" in kinds(replace(page, waste_gpu_hours=0.0))


def test_two_lines_of_one_option_contradict(page):
    (tail,) = (each for each in page.findings if each.id == "idle-tail")
    action = ask_for(Change("--mem", 64 << 30, 9 << 30))
    lines = with_lines(page, Change("--mem", 64 << 30, 12 << 30))
    lines = replace(lines, findings=(replace(tail, actions=(action,)),))
    assert "lines" in kinds(lines)


def test_a_longer_limit_contradicts_an_idle_end(page):
    assert "longer limit" in kinds(with_lines(page, Change("--time", 3600, 7200)))


def test_no_problems_contradict_a_bad_end():
    report = replace(report_of(completed("mishaps.hot", 1)), findings=())
    assert "no problems" not in kinds(report)  # its events are one
    bad = replace(report, happenings=(), job=replace(report.job, state="FAILED"))
    assert "no problems" in kinds(bad)


def test_figures_make_a_table():
    job = make(4, ANEW, "hosts.minutes")
    made = measure(job, report_of(job), variants=["noise"])
    made.add(made)
    assert "| noise | 2 | 2 | 1.000 |" in table(made)
