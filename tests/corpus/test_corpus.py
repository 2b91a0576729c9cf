"""Every case of the corpus says what its labels say, nothing else, and as the goldens say it."""

import pytest

from gpumon.analysis.finding import MEM_TRUTHS
from gpumon.analysis.rules.catalogue import RULES, evaluate
from tests.corpus.__main__ import DOCUMENT, table_of
from tests.corpus.cases import all_cases
from tests.corpus.generator import evidence_of, lines
from tests.corpus.table import text
from tests.golden.reports import of_case

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("utc")]

CASES = all_cases()
IDS = {rule.id for rule in RULES}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case = CASES[name]
    evaluation = case.evaluation
    assert case.raised() == case.labelled(), [each.title for each in evaluation.raised]
    assert {*case.folds} <= {each.id for each in evaluation.suppressed}
    assert [id for id in case.near if id not in evaluation.clear] == [], evaluation.not_evaluable
    assert [id for id in case.unknown if id not in evaluation.not_evaluable] == []
    assert {id: case.devices_of(id) for id in case.devices} == case.devices
    assert {label: case.truths().get(label) for label in case.truth} == case.truth
    if case.healthy:
        assert {level for _, level in case.labelled()} <= {"info"}
    recorded = evaluate(evidence_of(case.make(), name, as_recorded=True))
    assert outcome(recorded) == outcome(evaluation)
    assert not (found := of_case(case).difference()), found


def outcome(evaluation):
    return [(each.id, each.level, each.devices, each.title) for each in evaluation.raised]


def test_every_finding_has_a_positive_and_a_near_miss():
    found = {id for case in CASES.values() for id in case.finds}
    near = {id for case in CASES.values() for id in (*case.near, *case.unknown)}
    assert sorted(IDS - found) == []
    assert sorted(IDS - near) == []
    assert sorted((found | near) - IDS) == []


def test_labels_are_of_the_vocabulary():
    for case in CASES.values():
        assert case.about, case.name
        assert set(case.truth.values()) <= set(MEM_TRUTHS), case.name
        assert set(case.folds) <= IDS, case.name
    assert sum(case.healthy for case in CASES.values()) >= 15


def test_a_recording_is_the_same_every_time():
    made = CASES["little_power"].make()
    once = list(lines(made, made.nodes[0], "little_power"))
    again = CASES["little_power"].make()
    assert once == list(lines(again, again.nodes[0], "little_power"))
    assert once != list(lines(again, again.nodes[0], "another"))


def test_the_document_has_the_table():
    """As the command prints it when every case says what its labels say: `test_case` sees to it."""
    assert table_of(DOCUMENT.read_text()) == text(judge=False)
