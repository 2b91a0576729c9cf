"""Ticks that come in columns are told as if each had been taken when it came."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.batch import ColumnBatch, KeyRows
from gpumon.model.fields import COURSES, FIELDS, SERIES
from gpumon.model.reading import UNSUPPORTED
from gpumon.model.series import Series
from gpumon.recording import Recorder, Recording
from gpumon.store import Store
from gpumon.store.columns import take_columns
from gpumon.store.row import Row
from tests.recording import made
from tests.store.test_waiting import KEPT, T0, TIERS, told
from tests.support.examples import examples

#: groups of one row: the extremes come apart from what they are of, and more seldom
GROUPS = (("busy_percent", "power_w"), ("busy_min_percent", "busy_max_percent"))
VALUE = st.integers(0, 100).map(float) | st.floats(0, 100) | st.none()
STEPS = st.sampled_from([1.0] * 12 + [2.0, 0.4, 1.3, 3.0, 70.0, 4000.0])


@st.composite
def ticks(draw):
    """(time, for each group its values or None where it was not read)."""
    at, found = T0, []
    for _ in range(draw(st.integers(1, 60))):
        at += draw(STEPS)
        is_read = (True, draw(st.booleans()))
        rows = [[draw(VALUE) for _ in group] if read else None
                for group, read in zip(GROUPS, is_read)]  # fmt: skip
        found.append((at, rows))
    return found


def readings_of(group, row):
    return {name: UNSUPPORTED if value is None else value for name, value in zip(group, row)}


def columns_of(ticks):
    for place, group in enumerate(GROUPS):
        read = [(at, rows[place]) for at, rows in ticks if rows[place] is not None]
        if read:
            places = {name: (n, FIELDS["device"][name]) for n, name in enumerate(group)}
            times, rows = map(list, zip(*read))
            yield KeyRows(times, rows, places, readings_of(group, rows[-1]))


@examples(400)
@given(ticks(), st.integers(0, 60), TIERS, st.sampled_from([1.0, 2.0, 5.0]))
def test_a_row_takes_columns_as_it_takes_ticks(ticks, split, tiers, period_s):
    one, many = Row(), Row()
    new = lambda _: Series(period_s, tiers)  # noqa: E731
    for at, rows in ticks:
        found = [readings_of(group, row) for group, row in zip(GROUPS, rows) if row is not None]
        one.take(dict(chain.from_iterable(map(dict.items, found))), at, KEPT, new)
    for part in (ticks[:split], ticks[split:]):
        take_columns(many, list(columns_of(part)), KEPT, new)
    end = ticks[-1][0] + 1
    assert told(many, end) == told(one, end)
    assert (many.readings, many.times) == (one.readings, one.times)


@pytest.fixture
def items(tmp_path):
    """Of a busy node, as its recording has them in columns."""
    clock = [0.0]
    recorder = Recorder(str(tmp_path / "a.gpumon"), clock=lambda: clock[0])
    recorder.header(made.header())
    for sample in made.samples(400):
        clock[0] = sample.mono
        recorder.add(sample)
    recorder.close("done")
    with Recording(recorder.path) as recording:
        return list(recording.batches())


def test_a_node_takes_columns_as_it_takes_samples(items):
    singly, together, now = Store(), Store(), made.START + 399.5
    for item in items:
        together.show("gpu01", item)
        for each in item.samples() if isinstance(item, ColumnBatch) else [item]:
            singly.show("gpu01", each)
    assert sum(len(item.times) for item in items if isinstance(item, ColumnBatch)) > 200
    one, other = singly.node("gpu01"), together.node("gpu01")
    assert other.processes(now) == one.processes(now)
    for entity in {*SERIES, *COURSES} - {"agent", "collector"}:  # whose rows no column has
        assert other.keys(entity) == one.keys(entity)
        for key in one.keys(entity):
            assert other.row(entity, key, now) == one.row(entity, key, now), (entity, key)
            for field in SERIES[entity] | COURSES.get(entity, frozenset()):
                name = (entity, key, field)
                assert other.first_time(*name) == one.first_time(*name), name
                assert other.peak(*name) == one.peak(*name), name
                for span_s in (60, 600):
                    args = (*name, now, span_s, 60)
                    assert repr(other.window(*args)) == repr(one.window(*args)), name
