"""One answer: no page says that there are no problems where one stands or nobody looked."""

import pytest

from gpumon.report.build import build
from gpumon.report.render.text import text
from gpumon.report.verdict import NONE, NOT_JUDGED, PROBLEM, verdict
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
