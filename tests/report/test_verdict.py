"""One answer: no page says that there are no problems where one stands or nobody looked."""

import pytest

from gpumon.analysis.rules.catalogue import evaluate
from gpumon.report.build import build
from gpumon.report.render.text import text
from gpumon.report.verdict import NONE, NOT_JUDGED, PROBLEM, verdict, verdict_now
from tests.analysis.build import device, evidence
from tests.analysis.rightsize.test_recommend import job
from tests.corpus.cases import all_cases

CASES = all_cases()


@pytest.mark.parametrize("name", list(CASES)[::6])
def test_no_problems_are_told_only_of_what_was_judged(name):
    report = build(CASES[name].evidence)
    found, page = verdict(report), text(report, width=100)
    levels = {each.level for each in report.findings} | {e.level for e in report.happenings}
    assert (found.answer == PROBLEM) == bool(levels - {"info"})
    assert ("No problems found" in page) <= (found.answer == NONE)
    assert ("Not judged: " in page) == (found.answer == NOT_JUDGED and not report.job.is_pending)
    assert (found.answer == NONE) == (not found.because)


@pytest.mark.parametrize(("busy", "answer"), [(90, NONE), (40, NOT_JUDGED)])
def test_a_run_that_hardly_used_its_gpus_is_not_called_well(busy, answer):
    """Eight minutes, of which no check says anything."""
    gpu = device(48, busy_percent=busy, power_w=200)
    ended = build(evidence(48, [gpu], job=job(gpus=1, elapsed=480.0, limit=600)))
    assert (verdict(ended).answer, ended.findings) == (answer, ())
    assert ("60 % of the GPU time was not used" in text(ended, width=100)) == (answer != NONE)
    live = evidence(48, [gpu], job=job("RUNNING", gpus=1, limit=3600), live=True)
    found = evaluate(live)
    assert verdict_now(live, found.raised, found).answer == answer
    live.coverage.unrecorded, live.coverage.covered_percent = ("gpu02",), 50.0
    because = verdict_now(live, found.raised, found).because
    assert because[-1] == "1 node not recorded"
    assert because[:-1] == verdict(ended).because
