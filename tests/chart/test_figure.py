"""Charts: every row as wide as asked, gaps are gaps, nothing reaches plotext that it dies of."""

import math
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.chart import figure
from gpumon.chart.figure import Line, dot_columns, draw
from tests.chart.values import numbers
from tests.support.examples import examples

Y = ("0", "50", "100")
X = ("-10m", "-5m", "now")
GLYPHS = ("braille", "ascii")


def wave(n):
    """A sine from 5 to 95 with a gap."""
    return [None if n // 2 <= i < n // 2 + 6 else 50 + 45 * math.sin(i / 9) for i in range(n)]


def small(glyphs="braille", width=44, height=8):
    n = dot_columns(width, Y)
    return draw([Line([97.0] * n), Line(wave(n))], width, height, 0, 100, Y, X, glyphs)


#: a full line under a wave with a gap
GOLDEN = {
    "braille": (
        "100┤⠠⠤⠤⠤⠤⢤⣤⣤⣤⣤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⣤⣤⣤⣤⠤⠄\n"
        "   │   ⡠⠒⠁    ⠉⠢⣀                  ⡠⠔⠉    ⠉⠂\n"
        "   │ ⡠⠊          ⠑⢄              ⡠⠊         \n"
        " 50┤⠈              ⠑⢄          ⡠⠊           \n"
        "   │                 ⠑⠤⣀    ⣀⠔⠊             \n"
        "  0┤                       ⠉                \n"
        "   └┬───────────────────┬──────────────────┬\n"
        "    -10m               -5m               now\n"
    ),
    "ascii": (
        "100+''''::'''::''''''''''''''''''''''::'''::\n"
        "   |  .:'      '.                 .:'       \n"
        "   | :'          '.              .'         \n"
        " 50+'              :.          .'           \n"
        "   |                ':.      .:'            \n"
        "  0+                  ''   :''              \n"
        "   ++-------------------+------------------+\n"
        "    -10m               -5m               now\n"
    ),
}


def test_plotext_is_what_draws_here():
    assert figure._plotext() is not None


def test_golden_braille():
    assert small().text() == golden("braille")


def test_golden_ascii():
    assert small("ascii").text() == golden("ascii")


def top(column):
    """The row of the highest character of a column; -1 when it is blank."""
    return next((y for y, character in enumerate(column) if character != " "), -1)


@pytest.mark.parametrize("glyphs", GLYPHS)
@pytest.mark.parametrize("x_labels", [X, (), ("one",)])
def test_own_rows_have_plotexts_layout(glyphs, x_labels, monkeypatch):
    """Axes and labels are the same, and nearly every cell of the lines."""
    for width, height in ((24, 6), (60, 12), (61, 9), (120, 20)):
        n = dot_columns(width, Y)
        lines = [Line(wave(n))]
        theirs = draw(lines, width, height, 0, 100, Y, x_labels, glyphs).text()
        with monkeypatch.context() as patch:
            patch.setattr(figure, "_plotext", lambda: None)
            ours = draw(lines, width, height, 0, 100, Y, x_labels, glyphs).text()
        theirs, ours = theirs.split("\n"), ours.split("\n")
        assert [len(row) for row in theirs] == [len(row) for row in ours]
        assert [row[:4] for row in theirs] == [row[:4] for row in ours]
        if x_labels:
            assert theirs[-2:] == ours[-2:]
        for one, other in zip(zip(*theirs), zip(*ours)):
            assert abs(top(one) - top(other)) <= 1


@pytest.mark.parametrize("glyphs", GLYPHS)
def test_runs_name_the_line_they_belong_to(glyphs):
    n = dot_columns(40, Y)
    canvas = draw([Line([100.0] * n), Line([0.0] * n)], 40, 6, 0, 100, Y, X, glyphs)
    owners = [{number for _, number in row} for row in canvas.rows]
    assert owners == [{None, 0}, {None}, {None}, {None, 1}, {None}, {None}]


@pytest.mark.parametrize("glyphs", GLYPHS)
def test_a_gap_is_blank_and_one_bucket_a_dot(glyphs):
    n = dot_columns(40, Y)
    values = [50.0 if i < 20 or i >= 50 else None for i in range(n)]
    canvas = draw([Line(values)], 40, 6, 0, 100, Y, (), glyphs)
    columns = list(zip(*(row[4:] for row in canvas.text().split("\n"))))
    blank = [set(column) == {" "} for column in columns]
    assert blank.index(True) == 11
    assert blank[11:25] == [True] * 14
    assert not any(blank[:10])
    lone = draw([Line([None] * 30 + [50.0] + [None] * (n - 31))], 40, 6, 0, 100, Y, (), glyphs)
    assert (
        sum(character not in " │|┤+" for row in lone.text().split("\n") for character in row[4:])
        == 1
    )


def test_dots_are_not_joined():
    n = dot_columns(40, Y)
    saw = [0.0 if i % 2 else 100.0 for i in range(n)]
    for glyphs in ("braille", "ascii"):
        dots = draw([Line(saw, joined=False)], 40, 9, 0, 100, Y, (), glyphs).text().split("\n")
        lines = draw([Line(saw)], 40, 9, 0, 100, Y, (), glyphs).text().split("\n")
        assert dots[4][4:].strip() == ""
        assert lines[4][4:].strip() != ""


def test_outside_values_lie_on_the_edge():
    n = dot_columns(40, Y)
    for glyphs in GLYPHS:
        wild = draw([Line([1e300] * n)], 40, 6, 0, 100, Y, X, glyphs)
        assert wild.text() == draw([Line([100.0] * n)], 40, 6, 0, 100, Y, X, glyphs).text()


def test_fewer_values_are_drawn_at_the_right_and_more_are_cut():
    n = dot_columns(40, Y)
    few = draw([Line([50.0] * 10)], 40, 6, 0, 100, Y)
    assert few.text() == draw([Line([None] * (n - 10) + [50.0] * 10)], 40, 6, 0, 100, Y).text()
    many = draw([Line([0.0] * 50 + [50.0] * n)], 40, 6, 0, 100, Y)
    assert many.text() == draw([Line([50.0] * n)], 40, 6, 0, 100, Y).text()


@pytest.mark.parametrize(
    ("width", "height", "lo", "hi"),
    [
        (11, 9, 0, 100),
        (40, 2, 0, 100),
        (40, 9, 5, 5),
        (40, 9, 9, 0),
        (40, 9, 0, math.nan),
        (40, 9, -math.inf, 0),
        (40, 9, -1e308, 1e308),
        (0, 0, 0, 100),
        (-5, 9, 0, 100),
    ],
)
def test_nothing_is_drawn_where_there_is_no_room_or_no_range(width, height, lo, hi):
    for glyphs in GLYPHS:
        assert draw([Line([1.0] * 50)], width, height, lo, hi, Y, X, glyphs) is None


def test_wide_labels_leave_no_room():
    assert draw([Line([1.0])], 14, 5, 0, 1, ("0", "80000000000")) is None
    assert draw([Line([1.0])], 17, 5, 0, 1, ("0", "80000000000")) is not None


FUZZ = """
import random, sys
from gpumon.chart.figure import Line, _plotext, draw

NAN, INF = float("nan"), float("inf")
HOSTILE = [NAN, INF, -INF, None, 1e300, -1e300, 1e18, -5, 0, 100, 1e-320, True]
LABELS = [("0", "50", "100"), ("0", "", "100 %"), ("0", "80000000000"), (), ("",)]
LABELS += [("a\\x1b[2Jb", "c\\nd")]
LIMITS = [(0, 100), (0, 1), (0, 80e9), (-5, 5), (0, 0), (NAN, 1), (0, INF), (0, 1e-320)]
LIMITS += [(1e300, 1.1e300)]
rnd = random.Random(int(sys.argv[1]))
assert _plotext() is not None
drawn = 0
for n in range(int(sys.argv[2])):
    large = n % 50 == 0
    width, height = rnd.randint(0, 260 if large else 50), rnd.randint(0, 80 if large else 12)
    lo, hi = rnd.choice(LIMITS)
    scale = (hi - lo) if hi > lo and hi - lo < 1e301 else 1.0
    lines = [
        Line(
            [
                rnd.choice(HOSTILE) if rnd.random() < 0.2 else lo + rnd.uniform(-0.5, 1.5) * scale
                for _ in range(rnd.choice([0, 1, 2, 5, 40, 100, 600 if large else 7]))
            ],
            rnd.random() < 0.8,
        )
        for _ in range(rnd.randint(0, 3))
    ]
    glyphs = rnd.choice(["braille", "braille", "ascii"])
    canvas = draw(lines, width, height, lo, hi, rnd.choice(LABELS), rnd.choice(LABELS), glyphs)
    if canvas is None:
        continue
    drawn += 1
    assert len(canvas.rows) == canvas.height == height, (width, height)
    for row in canvas.rows:
        text = "".join(part for part, _ in row)
        assert len(text) == width, (width, text)
        assert text.isprintable(), text
        assert all(number is None or 0 <= number < len(lines) for _, number in row)
print(drawn)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_input_ends_the_process(seed):
    """In a child: plotext's kernel calls abort() where an exception would do."""
    child = subprocess.run(
        [sys.executable, "-c", FUZZ, str(seed), "10000"], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert int(child.stdout) > 3000


def test_plotext_without_the_guard_would_end_the_process():
    """Why the guard is there; when this fails, plotext has learned and the guard can be simpler."""
    code = (
        "import plotext as p; p.terminal.limit(False, False); f = p.figure; f.plot_size(60, 12);"
        "f.ruler('y').lim(0, 100); f.ruler('x').lim(0, 2);"
        "f.draw(f.signal([0, 1, 2], [1, float('nan'), 2], marker='braille').lines()); f.build()"
    )
    limit = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
    child = subprocess.run([sys.executable, "-c", limit + code], capture_output=True)
    assert child.returncode < 0


def test_import_is_late_and_only_here():
    code = textwrap.dedent("""
        import sys, gpumon.chart.figure as chart
        assert not {"plotext", "textual", "rich"} & set(sys.modules)
        chart.draw([chart.Line([1.0])], 40, 9, 0, 1, glyphs="ascii")
        assert "plotext" not in sys.modules
        chart.draw([chart.Line([1.0])], 40, 9, 0, 1)
        assert "plotext" in sys.modules
    """)
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "broken", ["raise OSError('kernel.so: cannot open shared object file')", "plot = clf = print"]
)
def test_a_plotext_that_does_not_work_is_replaced(broken, tmp_path):
    (tmp_path / "plotext.py").write_text(broken)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from gpumon.chart.figure import *;"
        "print(draw([Line([50.0] * 70)], 40, 9, 0, 100).text())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert out.stdout.count("\n") == 9
    assert "⠒" in out.stdout or "⠤" in out.stdout


@given(numbers(20), st.integers(12, 40), st.integers(3, 8), st.sampled_from(GLYPHS), st.booleans())
@examples(1500)
def test_own_rows_are_as_wide_as_asked(values, width, height, glyphs, joined):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure, "_plotext", lambda: None)
        canvas = draw([Line(values, joined)], width, height, 0, 100, Y, X, glyphs)
    rows = canvas.text().split("\n")
    assert [len(row) for row in rows] == [width] * height
    finite = [value for value in values[-dot_columns(width, Y) :] if value is not None]
    owners = {owner for row in canvas.rows for _, owner in row}
    assert owners == ({None, 0} if any(map(math.isfinite, finite)) else {None})


def golden(glyphs):
    return GOLDEN[glyphs].strip("\n")
