"""Every case of the corpus says what its labels say, and nothing else."""

from dataclasses import replace

import pytest

from gpumon.analysis.aggregate import device as gather_device
from gpumon.analysis.aggregate import series as gather_series
from gpumon.analysis.finding import MEM_TRUTHS
from gpumon.analysis.rules.catalogue import RULES, evaluate
from tests.corpus.__main__ import DOCUMENT, table_of
from tests.corpus.cases import all_cases
from tests.corpus.generator import lines
from tests.corpus.table import text

pytestmark = pytest.mark.slow

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
    assert evaluate(beside_a_screen(case.evidence)) == evaluation


def beside_a_screen(evidence):
    """Without what is not gathered there, because no rule asks for it."""
    shown = gather_series.SHOWN

    def judged(tracks, names):
        return {name: track for name, track in tracks.items() if name not in names}

    return replace(
        evidence,
        devices=[
            replace(each, tracks=judged(each.tracks, gather_device.SHOWN))
            for each in evidence.devices
        ],
        nodes=[
            replace(
                each,
                job=judged(each.job, shown["job"]),
                host=judged(each.host, shown["host"]),
                net={key: judged(tracks, shown["net"]) for key, tracks in each.net.items()},
            )
            for each in evidence.nodes
        ],
    )


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
