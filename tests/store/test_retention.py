"""The more nodes a store has heard of, the less it keeps of each: coarser, but never wrong."""

import math

import pytest

from gpumon.model.fields import COURSES, FIELDS
from gpumon.model.sample import Header, Sample
from gpumon.model.series import retention_of
from gpumon.model.view import Status
from gpumon.store import Store
from tests.recording import made

T0 = made.START
KEYS = {"device": 0, "host": "", "job": "", "net": "ib0", "disk": "scratch"}


def store_of(nodes):
    """A store that has heard of so many; their first is a busy one."""
    store = Store()
    for n in range(nodes):
        store.status(f"n{n}", Status("connecting", T0))
    return store, store.node("n0")


def level(at):
    return float(at * 7919 % 101)


def feed(store, name, seconds, begun_s=0):
    for at in range(begun_s, begun_s + seconds):
        rows = {
            "device": {0: {"busy_percent": level(at), "busy_max_percent": level(at)}},
            "job": {"": {"cpu_cores_used": level(at)}},
        }
        store.add(name, Sample(T0 + at, float(at), rows))


@pytest.mark.parametrize("nodes", [1, 16, 17, 256, 257])
def test_what_is_told_of_a_device_is_right_however_many_nodes_there_are(nodes):
    store, node = store_of(nodes)
    seconds = 4000
    feed(store, "n0", seconds)
    values = [level(at) for at in range(seconds)]
    name = ("device", 0, "busy_percent")
    mean, low, high, coverage = node.stats(*name, T0, T0 + seconds)
    assert mean == pytest.approx(sum(values) / seconds)
    assert (low, high, coverage) == (0, 100, 1)
    assert node.peak(*name) == 100
    minutes = [sum(values[at : at + 60]) / 60 for at in range(0, seconds - 60, 60)]
    assert node.peak60("job", "", "cpu_cores_used") == pytest.approx(max(minutes))
    assert node.first_time(*name) == T0
    for span_s in (60, 300, 600, 1800, 3600):
        shown = node.window(*name, T0 + seconds - 1, span_s, 60)
        step_s = next(
            step_s for step_s, kept in retention_of(nodes).tiers if step_s * kept >= span_s
        )
        for k, bucket in enumerate(shown, math.floor((T0 + seconds - 1) * 60 / span_s) - 59):
            middle = math.floor((k + 0.5) * span_s / 60 - T0)
            around = values[max(middle - step_s - span_s // 60, 0) :][: 2 * (step_s + span_s // 60)]
            assert min(around) <= bucket.mean <= max(around)


def test_nodes_that_join_make_those_before_them_shallower_and_change_no_figure():
    store, node = store_of(16)
    feed(store, "n0", 290)
    name = ("device", 0, "busy_percent")
    before = node.window(*name, T0 + 289, 280, 280)
    held = node.frozen()
    store.status("n16", Status("connecting", T0))
    assert node.window(*name, T0 + 289, 280, 280) == before
    assert node.peak("device", 0, "busy_percent") == 100
    assert held.peak("device", 0, "busy_percent") == 100
    feed(store, "n0", 300, begun_s=290)
    whole = node.stats(*name, T0, T0 + 590)
    assert whole.mean == pytest.approx(sum(map(level, range(590))) / 590)
    for n in range(17, 257):
        store.status(f"n{n}", Status("connecting", T0))
    assert [b.count for b in node.window(*name, T0 + 589, 290, 29)] == [10] * 29
    assert node.stats(*name, T0, T0 + 590).mean == pytest.approx(whole.mean)
    store.reset()
    store.status("n0", Status("connecting", T0))
    feed(store, "n0", 900)
    shown = store.node("n0").window(*name, T0 + 899, 900, 900)
    assert [bucket.count for bucket in shown] == [1] * 900


def test_series_are_kept_of_the_fields_that_say_so():
    store, node = store_of(1)
    store.header("n0", Header("n0", "b", T0, 0.0, 1.0, "0.1.0"))
    rows = {
        entity: {KEYS.get(entity, ""): {n: 1.0 for n, field in fields.items() if not field.text}}
        for entity, fields in FIELDS.items()
    }
    store.add("n0", Sample(T0, 0.0, rows))
    for entity, fields in rows.items():
        for field in fields[KEYS.get(entity, "")]:
            key = KEYS.get(entity, "")
            is_series = node.first_time(entity, key, field) is not None
            assert is_series == (FIELDS[entity][field].series and entity not in COURSES)
            if is_series:
                assert node.peak(entity, key, field) == 1
