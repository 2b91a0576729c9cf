"""Lines and dots in one picture."""

from gpumon.chart.canvas import GLYPHS
from gpumon.chart.painter import paint

BRAILLE = GLYPHS["braille"]


def cells(layers, columns, rows, glyphs=BRAILLE):
    painted = [paint(layers, at, rows, glyphs) for at in range(columns)]
    return ["".join(each.cells[row] for each in painted) for row in range(rows)]


def test_a_gap_is_blank():
    assert cells([("line", [None, 3, None, 3])], 2, 1) == ["⢀⢀"]


def test_strokes_of_a_line_touch_and_dots_do_not():
    assert cells([("line", [0, 7])], 1, 2) == ["⢱", "⢸"]
    assert cells([("dots", [0, 7])], 1, 2) == ["⠁", "⢀"]


def test_lines_share_a_cell_in_the_colour_of_the_last():
    both = paint([("line", [0, 0]), ("line", [3, 3])], 0, 1, BRAILLE)
    assert both.cells == ["⣉"]
    assert both.owners == [1]


def test_ascii_has_one_column_of_dots():
    assert cells([("line", [1, 3])], 1, 2, GLYPHS["ascii"]) == [".", ":"]
