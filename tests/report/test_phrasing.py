"""No decision rests on the words of a finding: with markers in their place all else is the same."""

from dataclasses import replace

import pytest

from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import Evaluation, ranked
from gpumon.analysis.rules.hysteresis import Live
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.report import build as building
from gpumon.report.advice import step_of, steps_of
from gpumon.report.render.json import document
from gpumon.report.render.layout import plain
from gpumon.report.render.markdown import markdown
from gpumon.report.render.page import finding_rows, page
from gpumon.report.sentences import capital, sentences
from gpumon.tui.screens.job.notes import notes
from tests.corpus.cases import all_cases
from tests.tui.looking import Looking

CASES = all_cases()
#: one case for each finding
NAMES = sorted({
    next(name for name, case in CASES.items() if id in case.finds)
    for id in {id for case in CASES.values() for id in case.finds}
})  # fmt: skip
pytestmark = pytest.mark.slow
WIDE = 4000  # cells, so that nothing is wrapped


def marked(finding, number):
    """The finding with markers in the place of all that is written for people."""
    return replace(
        finding,
        title=f"⟦title {number}⟧", evidence=f"⟦evidence {number}⟧",
        adds=finding.adds and f"⟦adds {number}⟧",
        actions=tuple(
            replace(each, text=each.text and f"⟦text {number}.{n}⟧")
            for n, each in enumerate(finding.actions)
        ),
    )  # fmt: skip


def spoken(finding, changes):
    """All that forms of the report make of a finding's words."""
    steps = [*steps_of(finding, changes), *map(step_of, finding.actions)]
    return [*sentences(finding), *(text for step in steps for text in step)]


@pytest.mark.parametrize("name", NAMES)
def test_markers_in_the_place_of_words_change_nothing_else(name, monkeypatch):
    case = CASES[name]
    real, run = case.evaluation, case.evidence
    number = iter(range(1000))
    raised = tuple(marked(each, next(number)) for each in real.raised)
    changes, same = recommend(run, real.raised), recommend(run, raised)
    markers = Evaluation(
        raised, tuple(marked(each, next(number)) for each in real.suppressed),
        real.not_evaluable, real.clear, tuple(same), real.unattributed_gpu_hours,
            real.known_gpu_hours,
    )  # fmt: skip
    words = dict(zip(map(id, markers.raised), real.raised))
    assert [words[id(each)] for each in ranked(markers.raised)] == ranked(real.raised)
    assert changes == list(real.recommendations)
    assert [(each.change, each.adds, each.confidence, each.finding) for each in same] == [
        (each.change, each.adds, each.confidence, each.finding) for each in changes
    ]

    def read(text):
        for marker, finding in zip(markers.findings, real.findings):
            pairs = zip(spoken(marker, changes), spoken(finding, changes))
            for old, new in sorted(pairs, key=lambda pair: -len(pair[0])):
                text = text.replace(old, new) if old else text
        return text

    def report(evaluation):
        monkeypatch.setattr(building, "evaluate", lambda run: evaluation)
        return building.build(run)

    plainly, marks = report(real), report(markers)
    for plots in (False, True):
        shown = [list(page(each, WIDE, plots=plots)) for each in (plainly, marks)]
        assert [[role for _, role in row] for row in shown[1]] == [
            [role for _, role in row] for row in shown[0]
        ]
        assert read("\n".join(plain(shown[1]))) == "\n".join(plain(shown[0]))
    for marker, finding in zip(marks.findings, plainly.findings):
        rows = [list(plain(finding_rows(each, WIDE))) for each in (marker, finding)]
        assert read("\n".join(rows[0])) == "\n".join(rows[1])
    bodies = document(plainly), document(marks)
    for body in bodies:
        for each in body["findings"]:
            del each["title"], each["evidence"]
            for action in each["actions"]:
                del action["text"]
        for each in body["recommendations"]:
            del each["basis"]
    assert bodies[0] == bodies[1]
    assert len(markdown(marks).splitlines()) == len(markdown(plainly).splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_shows_the_same_notes_for_markers(name):
    run, real = CASES[name].evidence, CASES[name].evaluation

    def shown(raised):
        found = Live().update(replace(real, raised=raised), run.end)
        return notes(Looking(evaluation=LiveEvaluation(found, run, None)).moment)

    said, marks = shown(real.raised), shown(tuple(map(marked, real.raised, range(99))))
    assert [(each.level, bool(each.action)) for each in marks] == [
        (each.level, bool(each.action)) for each in said
    ]
    order = [int(each.text.split()[1].rstrip("⟧")) for each in marks]
    assert [capital(real.raised[n].title) for n in order] == [each.text for each in said]
