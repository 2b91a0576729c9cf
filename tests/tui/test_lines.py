"""Rows: exact widths, and exactly the cells that changed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from textual._compositor import ChopsUpdate
from textual.app import App
from textual.screen import ModalScreen
from textual.strip import Strip

from gpumon.tui.lines import Lines, changed_spans, fit, fit_row, plain, row_width, spread
from gpumon.tui.update import TightUpdate

text = st.text(st.sampled_from("ab 漢é▁🎉"), max_size=12)
row = st.lists(st.tuples(text, st.sampled_from(["", "dim", "bad"])), max_size=5)


@settings(max_examples=6000, deadline=None)
@given(row, row, st.integers(0, 40), st.booleans())
def test_rows_have_exactly_the_width_asked(left, right, width, to_the_right):
    assert row_width(fit_row(left, width)) == width
    assert row_width(spread(left, right, width)) == width
    for part, _ in left:
        assert cell_len(fit(part, width, right=to_the_right)) == width


@settings(max_examples=6000, deadline=None)
@given(row, row, st.integers(1, 40))
def test_what_is_sent_again_covers_every_change(before, after, width):
    old, new = fit_row(before, width), fit_row(after, width)
    spans = changed_spans(old, new)
    assert all(0 <= start < end <= width for start, end in spans)
    assert [span[0] for span in spans] == sorted(span[0] for span in spans)
    cells_old, cells_new = cells(old), cells(new)
    changed = {x for x in range(width) if cells_old[x] != cells_new[x]}
    assert changed <= {x for start, end in spans for x in range(start, end)}
    if not changed and old == new:
        assert spans == []


def cells(row):
    """(character, role) by cell; both cells of a wide character hold it."""
    return [(char, role) for part, role in row for char in part for _ in range(cell_len(char))]


def test_two_far_changes_are_two_spans_and_near_ones_are_one():
    old = [("0" * 40, "")]
    assert changed_spans(old, [("1" + "0" * 38 + "1", "")]) == [(0, 1), (39, 40)]
    assert changed_spans(old, [("1001" + "0" * 36, "")]) == [(0, 4)]
    assert changed_spans(old, [("0" * 10, ""), ("0" * 5, "bad"), ("0" * 25, "")]) == [(10, 15)]


@pytest.mark.parametrize(
    ("given_text", "width", "shown"),
    [("abc", 5, "abc  "), ("abcdef", 4, "abc…"), ("漢字", 3, "漢…")],
)
def test_fit_as_it_looks(given_text, width, shown):
    assert fit(given_text, width) == shown


def test_plain_drops_blanks_at_line_ends():
    assert plain([[("a ", ""), ("b  ", "dim")], []]) == "a b\n"


class Screenful(App[None]):
    CSS = "Lines { height: 20; }"

    def compose(self):
        yield Lines()


@pytest.mark.parametrize("covered", [False, True])
async def test_what_changed_is_not_kept(covered):
    app, letters = Screenful(), random.Random(1)
    async with app.run_test(size=(80, 24)) as pilot:
        lines = app.query_one(Lines)
        if covered:
            app.push_screen(ModalScreen())
            await pilot.pause()
        for number in range(200):
            lines.show([[("".join(letters.choices("ab", k=80)), "")] for _ in range(20)])
            if number % 20 == 0:
                await pilot.pause()
        assert len(lines._dirty_regions) + len(lines._repaint_regions) < 1500


def test_few_of_the_pieces_that_were_cut_are_kept():
    console = Console()
    for number in range(2000):
        strip = Strip([Segment("…" * 40 + str(number))])
        TightUpdate(ChopsUpdate([{0: strip}], [(0, 3, 20)], [[80]])).render_segments(console)
    assert Segment._split_cells.cache_info().currsize < 1000
