"""Rows: exact widths, and exactly the rows that changed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App
from textual.screen import ModalScreen

from gpumon.tui.lines import Lines, fit, fit_row, plain, row_width, spread
from tests.support.examples import examples

text = st.text(st.sampled_from("ab 漢é▁🎉"), max_size=12)
row = st.lists(st.tuples(text, st.sampled_from(["", "dim", "bad"])), max_size=5)


@examples(6000)
@given(row, row, st.integers(0, 40), st.booleans())
def test_rows_have_exactly_the_width_asked(left, right, width, to_the_right):
    assert row_width(fit_row(left, width)) == width
    assert row_width(spread(left, right, width)) == width
    for part, _ in left:
        assert cell_len(fit(part, width, right=to_the_right)) == width


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


async def test_only_rows_that_changed_are_named():
    async with Screenful().run_test(size=(20, 24)) as pilot:
        lines = pilot.app.query_one(Lines)
        assert lines.show([[("a", "")], [("b", "")]]) == [0, 1]
        assert lines.show([[("a", "")], [("c", "bad")]]) == [1]
        assert "".join(text for text, _ in lines.runs(1)) == "c" + " " * 19
        assert lines.show([[("a", "")]]) == [1]
        assert "".join(text for text, _ in lines.runs(1)) == " " * 20
        assert lines.show([[("b", "")]] * 30) == list(range(20))  # it has no more
        assert lines.show([]) == list(range(20))


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
            lines.refresh()
            if number % 20 == 0:
                await pilot.pause()
        assert len(lines._dirty_regions) + len(lines._repaint_regions) < 100
