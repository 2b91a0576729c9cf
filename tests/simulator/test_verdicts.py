"""Verdicts on a few dozen simulated jobs; `python -m benchmarks.verdicts` tries thousands."""

import pytest

from tests.simulator.draw import make
from tests.simulator.judge import report_of
from tests.simulator.score import Score, score

SEED, JOBS = 7, range(30)


@pytest.mark.slow
@pytest.mark.parametrize("accounting", [False, True], ids=["recordings", "accounting"])
def test_verdicts(accounting):
    total = Score()
    for number in JOBS:
        job = make(SEED, number)
        total.add(score(job, report_of(job, accounting), accounting))
    said = "\n".join(each.text for each in total.misses)
    assert total.unsafe == 0, said
    assert total.precision("critical") == 1.0, said
    assert total.precision("warning") >= 0.97, said
    assert total.recall("critical") >= 0.95, said
    assert total.recall("warning") >= 0.95, said
    assert total.healthy_alarmed == 0, said
    assert total.healthy >= 8
    assert total.lines >= 15
    assert total.due.total() >= 5
    assert total.wrong_needs == 0, said
    assert accounting or total.needs >= 5
