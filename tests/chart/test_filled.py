"""Columns of a moving plot: areas without gaps, lines on them, what is hatched and what is not."""

from gpumon.chart.canvas import GLYPHS
from gpumon.chart.filled import SHADES, Drawn, blank, fill

BUSY, SM = Drawn("area", "hollow"), Drawn("area", "busy")
MEMORY, HATCH = Drawn("line", "mem"), Drawn("hatch", "hatch")


def drawn(layers, columns, rows, glyphs="braille"):
    painted = [fill(layers, at, rows, GLYPHS[glyphs]) for at in range(columns)]
    texts = ["".join(each.cells[row] for each in painted) for row in range(rows)]
    return texts, [[each.looks[row] for each in painted] for row in range(rows)]


def test_an_area_is_filled_to_an_eighth_of_a_cell():
    assert drawn([(BUSY, [0.5, 0.5, 1.0, 1.0])], 2, 2)[0] == [" █", "██"]
    assert drawn([(BUSY, [0.75, 0.75, 0.3, 0.3])], 2, 1)[0] == ["▆▂"]
    assert drawn([(BUSY, [0.0, 0.0])], 1, 2)[0] == [" ", "▁"]


def test_a_steep_edge_lies_within_a_cell():
    assert drawn([(BUSY, [0.0, 1.0, 1.0, 0.0])], 2, 2)[0] == ["▐▌", "▐▌"]


def test_a_gap_is_blank_and_half_a_cell_is_the_other_half():
    assert drawn([(BUSY, [None, None, None, 1.0])], 2, 1)[0] == [" █"]


def test_the_narrow_area_lies_on_the_wide_one():
    texts, looks = drawn([(BUSY, [1.0, 1.0]), (SM, [0.75, 0.75])], 1, 2)
    assert texts == ["▄", "█"]
    middle = SHADES // 2
    assert looks == [[f"busy.{middle}/hollow.{middle}"], ["busy.0"]]


def test_an_area_that_is_not_known_leaves_the_other_one():
    both = [(BUSY, [0.5, 0.5, 1.0, 1.0]), (SM, [None, None, 0.5, 0.5])]
    texts, looks = drawn(both, 2, 1)
    assert texts == ["▄▄"]
    assert looks == [["hollow.0", "busy.0/hollow.0"]]
    assert drawn([(BUSY, [None, None]), (SM, [0.5, 0.5])], 1, 1)[1] == [["busy.0"]]


def test_three_colours_in_a_cell_are_two():
    texts, looks = drawn([(BUSY, [0.6, 0.6]), (SM, [0.5, 0.5])], 1, 1)
    assert (texts, looks) == (["▅"], [["busy.0"]])
    assert drawn([(BUSY, [0.6, 0.6]), (SM, [0.1, 0.1])], 1, 1)[1] == [["hollow.0"]]


def test_a_line_lies_on_the_area_without_a_gap():
    texts, looks = drawn([(BUSY, [1.0, 1.0, None, None]), (MEMORY, [0.6] * 4)], 2, 1)
    assert (texts, looks) == (["━━"], [["mem/hollow.0", "mem"]])
    both = [(BUSY, [1.0, 1.0]), (SM, [0.2, 0.2]), (MEMORY, [0.6, 0.6])]
    assert drawn(both, 1, 1) == (["━"], [["mem/hollow.0"]])
    assert drawn([(MEMORY, [1.0, 0.0])], 1, 2)[0] == ["⢱", "⢸"]


def test_a_reservation_is_hatched_where_nothing_worked():
    texts, looks = drawn([(BUSY, [0.5, 0.5]), (HATCH, [1.0, 1.0])], 1, 4)
    assert texts == ["╱", "╱", "█", "█"]
    assert looks[0] == ["hatch"]


def test_areas_have_another_colour_while_throttled():
    tint = Drawn("tint", "slowed")
    looks = drawn([(BUSY, [1.0] * 4), (tint, [0.0, 0.0, 0.0, 0.01])], 2, 1)[1]
    assert looks == [["hollow.0", "hollow-slowed.0"]]


def test_what_was_not_yet_is_dotted():
    assert blank(3, GLYPHS["braille"]).cells == [" ", " ", "·"]


def test_ascii_tells_the_areas_apart():
    texts, _ = drawn([(BUSY, [1.0, 1.0]), (SM, [0.5, 0.5]), (MEMORY, [0.5] * 2)], 1, 4, "ascii")
    assert texts == [":", ":", "-", "#"]
