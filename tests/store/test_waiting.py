"""Readings that wait are told as if each had been taken when it came."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.reading import Missing
from gpumon.model.retention import RETENTIONS
from gpumon.model.series import Series
from gpumon.store.row import Row
from tests.recording import made
from tests.support.examples import examples

KEPT = frozenset(("busy_percent", "power_w"))
T0 = made.START
TIERS = st.sampled_from([((1, 7), (10, 3), (60, 3), (600, 4)), *(r.tiers for r in RETENTIONS)])
VALUE = st.integers(0, 100) | st.floats(0, 100) | st.just(Missing("lost")) | st.just("text")
STEPS = st.sampled_from([1.0] * 12 + [2.0, 2.0, 0.4, 1.3, 3.0, 9.0, 70.0, 4000.0, 0.0, -1.0, -30.0])


READ = st.sampled_from([(), (), (), (), ("busy_percent",), ("power_w",), tuple(KEPT)])


@st.composite
def ticks(draw):
    """(seconds since the tick before, readings, the series that somebody reads)."""
    found = []
    for _ in range(draw(st.integers(1, 60))):
        readings = {"busy_percent": draw(VALUE)}
        if draw(st.booleans()):
            readings |= {"power_w": draw(VALUE), "busy_max_percent": draw(VALUE)}
            readings |= {"busy_min_percent": draw(VALUE)}
        found.append((draw(STEPS), readings, draw(READ)))
    return found


def told(row, end, fields=tuple(KEPT)):
    """All that a row tells of these series, as far as single precision has it."""
    found = [row.peaks]
    for name in sorted(row.series.keys() & set(fields)):
        series = row.settled(name)
        found += [name, series.first_time, series.last, series.high, series.peak60]
        for span_s, n in ((10, 10), (60, 12), (600, 30)):
            found += series.window(end, span_s, n)
        found += [tuple(series.stats(end - back_s, end)) for back_s in (5, 60, 5000)]
    return repr([_rounded(each) for each in found])


def _rounded(value):
    if isinstance(value, float):
        return f"{value:.6g}"
    return tuple(map(_rounded, value)) if isinstance(value, tuple) else value


@examples(400)
@given(ticks(), TIERS, st.sampled_from([1.0, 2.0, 5.0]), st.sampled_from([3, 10, 40]))
def test_readings_that_wait_are_told_as_if_each_had_been_taken_at_once(
    ticks, tiers, period_s, waiting
):
    one, many = Row(), Row()
    at = T0
    for step_s, readings, read in ticks:
        at += step_s
        for row, most in ((one, 1), (many, waiting)):
            row.take(readings, at, KEPT, lambda _: Series(period_s, tiers), most)
        for field in one.series:
            assert many.peak(field) == one.peak(field)
            assert many.first_time(field) == one.first_time(field)
        assert told(many, at, read) == told(one, at, read)
    frozen = many.frozen()
    assert [frozen.peak(field) for field in KEPT] == [one.peak(field) for field in KEPT]
    assert told(many, at + 1) == told(frozen, at + 1) == told(one, at + 1)
    assert many.series.keys() == one.series.keys()
    assert (many.readings, many.times) == (one.readings, one.times)


@examples(100)
@given(ticks(), TIERS)
def test_one_by_one_is_what_a_series_adds(ticks, tiers):
    row, series, at = Row(), Series(1.0, tiers), T0
    for step_s, readings, _ in ticks:
        at += step_s
        row.take({"power_w": readings.get("power_w", 1.0)}, at, KEPT, lambda _: Series(1.0, tiers))
        value = readings.get("power_w", 1.0)
        if isinstance(value, (int, float)):
            series.add(at, float(value))
        elif isinstance(value, Missing):
            series.miss()
    own = Row()
    own.series["power_w"] = series
    assert told(row, at + 1) == told(own, at + 1)
