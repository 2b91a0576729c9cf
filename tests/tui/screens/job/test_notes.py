"""Findings as lines: as loud as they are severe, what to do never louder."""

from types import SimpleNamespace

import pytest

from gpumon.report.verdict import NONE, NOT_JUDGED, PROBLEM, Verdict
from gpumon.tui.parts.phrasing import signs
from gpumon.tui.screens.job import notes
from gpumon.tui.screens.job.notes import Note, note_rows
from gpumon.tui.theme import NAMES, style_of

FOUND = [
    Note("bad", "GPU 3 dropped off the bus", "report the node"),
    Note("attention", "GPU 1 idle", "request fewer GPUs"),
    Note("note", "0.3 of 16 cores used", "-c 2"),
]


def rows(monkeypatch, width=100, most=4, found=FOUND):
    monkeypatch.setattr(notes, "notes", lambda moment: found)
    return note_rows(SimpleNamespace(glyphs="braille"), width, most)


def test_a_line_has_one_colour_and_what_to_do_is_in_one_column(monkeypatch):
    drawn = rows(monkeypatch)
    assert [row[0][1] for row in drawn] == ["bad", "attention", "dim"]
    texts = ["".join(text for text, _ in row) for row in drawn]
    assert len({text.index(note.action) for text, note in zip(texts, FOUND)}) == 1


def test_what_to_do_is_never_brighter_than_what_was_found(monkeypatch):
    for palette in NAMES:
        for row in rows(monkeypatch):
            found, action = (style_of(palette, role) for _, role in (row[0], row[-1]))
            assert action.color == found.color
            assert not action.bold


def test_of_a_narrow_line_what_to_do_goes_below_or_is_left_out(monkeypatch):
    below = rows(monkeypatch, width=36, most=5)
    assert ["".join(text for text, _ in row).strip() for row in below][:2] == [
        "● GPU 3 dropped off the bus", "report the node",
    ]  # fmt: skip
    assert all("report" not in text for row in rows(monkeypatch, 36, 3) for text, _ in row)


def test_more_findings_are_counted_at_the_right_edge(monkeypatch):
    drawn = rows(monkeypatch, most=2)
    assert "".join(text for text, _ in drawn[1]).endswith("+1 more")


@pytest.mark.parametrize(
    ("answer", "others", "shown"),
    [
        (Verdict(NONE), [], ["✓ No problems found so far"]),
        (Verdict(NONE), FOUND[2:], []),
        (Verdict(NOT_JUDGED, ("too short",)), FOUND[2:], ["? Not judged so far: too short"]),
        (Verdict(NOT_JUDGED, ("too short",)), FOUND, []),
        (Verdict(PROBLEM), [], []),
    ],
)
def test_where_nothing_warns_the_answer_stands(answer, others, shown):
    evaluation = SimpleNamespace(verdict=answer)
    moment = SimpleNamespace(evaluation=evaluation, has_ended=False, glyphs="braille")
    found = notes._answer(moment, others)
    assert [f"{signs('braille')[each.level]} {each.text}" for each in found] == shown
