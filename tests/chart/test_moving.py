"""A plot that keeps its columns is the same as one painted anew, and moves in jumps."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.chart.filled import Drawn
from gpumon.chart.moving import MovingPlot, tick_s
from tests.chart.values import numbers
from tests.support.examples import examples

KINDS = tuple(Drawn(kind, kind) for kind in ("area", "area", "line", "dots", "hatch", "tint"))
COLUMNS, ROWS, SPAN_S = 12, 4, 240.0


def plot():
    return MovingPlot(KINDS, COLUMNS, ROWS, SPAN_S, 100.0, "braille")


def shown(one):
    """Without the first column, to which a line may come from outside."""
    return [(each.cells, each.looks) for each in one._columns[1:]]


def feed(one, course, first, newest):
    """As a screen does: from what may have changed on, up to the newest."""
    one.move(newest)
    first = max(first, one.begin)
    one.put(first, [course[first : newest + 1]] * len(KINDS))


@given(numbers(80).filter(len), st.lists(st.integers(1, 30), max_size=12))
@examples(300)
def test_what_is_kept_is_what_is_painted_anew(course, steps):
    kept, known, newest = plot(), 0, 0
    for step in steps:
        newest = min(newest + step, len(course) - 1)
        feed(kept, course, known, newest)
        known = max(newest - 3, 0)
    fresh = plot()
    feed(fresh, course, 0, newest)
    if steps:
        assert shown(kept) == shown(fresh)


def test_a_late_value_is_painted_where_it_belongs():
    kept, course = plot(), [50.0] * 20 + [None] * 3
    feed(kept, course, 0, 22)
    course[20:] = [80.0] * 3
    feed(kept, course, 20, 22)
    fresh = plot()
    feed(fresh, course, 0, 22)
    assert shown(kept) == shown(fresh)


def test_going_back_leaves_nothing_of_the_future():
    kept, course = plot(), [float(n) for n in range(60)]
    feed(kept, course, 0, 50)
    kept.move(48)
    assert kept.known == 0
    feed(kept, course, 0, 48)
    fresh = plot()
    feed(fresh, course, 0, 48)
    assert shown(kept) == shown(fresh)


def test_it_moves_by_an_eighth_and_stands_still_between():
    one, begins = plot(), []
    for newest in range(100, 200):
        one.move(newest)
        begins.append(one.begin)
        assert 0 <= newest - one.begin < one.buckets
    assert {after - before for before, after in zip(begins, begins[1:])} == {0, 2}
    short, begins = MovingPlot(KINDS, 60, ROWS, 60.0, 100.0, "braille"), []
    for newest in range(1000, 1200):
        short.move(newest)
        begins.append(short.begin)
    assert {after - before for before, after in zip(begins, begins[1:])} == {0, 40}  # 20 s


def test_a_moment_has_its_column():
    one = plot()
    one.move(100)
    assert one.column_of(100.5 * one.step_s) == (100 - one.begin) // 2
    assert one.column_of((one.begin - 1) * one.step_s) < 0


def test_ticks_are_whole_and_at_least_two():
    for span_s in (60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0, 604800.0, 777.0):
        assert 2 <= span_s // tick_s(span_s) <= 12
