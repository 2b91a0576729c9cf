"""Rollup lines that were written and read again give what the aggregation of the samples gives."""

import dataclasses
import json
import math
import pickle
from functools import partial

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpumon.analysis.aggregate.limits import Limits
from gpumon.analysis.aggregate.roller import Roller
from gpumon.analysis.aggregate.run import gather
from gpumon.model.reading import Missing
from gpumon.model.rolled import RolledFrame
from gpumon.model.sample import Event, Sample
from gpumon.recording import Recording
from tests.recording import made
from tests.recording.streams import KINDS, by_rollups, record, same_evidence, stream
from tests.recording.test_batches import differences
from tests.support.examples import examples

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
ALL = list(enumerate(KINDS * 6, 3))


@pytest.fixture(scope="module")
def eventful(tmp_path_factory):
    happenings = [(4 * at, kind) for at, kind in ALL if kind not in ("back", "slower")]
    path = tmp_path_factory.mktemp("rollups") / "a.gpumon"
    return record(path, stream(1, 420, happenings))


def test_the_same_evidence(eventful):
    assert same_evidence(eventful) >= 4


@pytest.mark.slow
@examples(30, suppress_health_check=SLOW)
@given(
    st.integers(0, 99),
    st.integers(130, 260),
    st.lists(st.tuples(st.integers(0, 260), st.sampled_from(KINDS)), max_size=14),
    st.sampled_from((0.5, 1.0, 2.0, 5.0, 10.0, 30.0)),
    st.sampled_from((0.0, 0.4, 0.9)),
)
def test_the_same_evidence_whatever_happens(
    tmp_path_factory, seed, ticks, happenings, interval_s, phase
):
    path = tmp_path_factory.mktemp("any") / "a.gpumon"
    count = same_evidence(record(path, stream(seed, ticks, happenings, interval_s), phase=phase))
    if not {"back", "slower"} & {kind for _, kind in happenings}:
        assert count > 0


@pytest.mark.slow
def test_a_new_grid_ends_the_rollups_and_a_clock_that_is_set_back_does_not(tmp_path):
    for kind, count in (("back", 8), ("slower", 3)):
        path = record(tmp_path / kind, stream(3, 900, [(400, kind), (401, kind), (402, kind)]))
        assert same_evidence(path) == count


def test_buckets_that_frames_would_cut_have_no_rollups(tmp_path):
    for interval_s, count in ((40.0, 33), (45.0, 0)):
        path = record(tmp_path / f"{interval_s}", stream(0, 99, [], interval_s))
        assert same_evidence(path) == count


def test_lines_of_nothing_new():
    roller = Roller()
    items = list(stream(1, 30, []))
    for item in items[:20]:
        roller.add(item)
    first, second = roller.rolled(), roller.rolled()
    assert max(first.columns[0].sizes) == 2
    assert second.columns == []
    for item in items[20:]:
        roller.add(item)
    assert roller.rolled().columns[0].names


def test_several_streams_of_a_node_and_several_nodes(tmp_path, eventful):
    other = record(tmp_path / "b.gpumon", stream(7, 300, [(9, "comes"), (200, "leaves")]))
    for nodes in (("gpu01", "gpu01"), ("gpu01", "gpu02")):
        found = []
        for way in (Recording.items, Recording.rolled):
            readers = [Recording(str(path)) for path in (eventful, other)]
            found.append(gather(zip(nodes, map(way, readers))))
        assert differences(*found) == []


def close_to(one, other):
    """Both the same, but for means that were taken of means."""
    for a, b in zip(one.devices, other.devices):
        assert a.tracks.keys() == b.tracks.keys()
        for name, track in a.tracks.items():
            for mine, its in zip(dataclasses.astuple(track), dataclasses.astuple(b.tracks[name])):
                assert list(map(math.isnan, mine)) == list(map(math.isnan, its))
                assert [x for x in mine if x == x] == pytest.approx(
                    [x for x in its if x == x], rel=1e-5
                )


@pytest.mark.slow
def test_a_grid_that_doubles(tmp_path):
    """20, 40, 80 s and more: bins 2 ** n times as long, whose means are means of means."""
    path = record(tmp_path / "a", stream(5, 2000, [(9, "comes"), (700, "xid"), (1500, "leaves")]))
    with Recording(str(path)) as recording:
        slow = gather([("gpu01", recording.batches())], limits=Limits(1, 240))
        fast = gather([("gpu01", recording.rolled())], limits=Limits(1, 240))
    assert slow.bin_s == fast.bin_s == 80.0
    assert (slow.count, slow.grid_start) == (fast.count, fast.grid_start)
    close_to(slow, fast)


# -- hostile lines ---------------------------------------------------------------------------------


def items_of(path):
    with Recording(str(path)) as recording:
        found = []
        for item in recording.rolled():
            if isinstance(item, RolledFrame):
                kept = list(item.items())
                item = item._replace(items=lambda kept=kept: iter(kept))
            found.append(item)
    return found


@pytest.fixture(scope="module")
def good(eventful):
    return items_of(eventful)


@pytest.fixture(scope="module")
def truth(eventful):
    return by_rollups(eventful)[0]


def strings(value):
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield from strings(getattr(value, each.name))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from strings(key)
            yield from strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from strings(each)
    elif isinstance(value, Missing):
        yield value.detail


def judged(items):
    """The evidence of items; nothing in it may harm a terminal or a sum."""
    evidence = gather([("gpu01", items)])
    assert all(text.isprintable() for text in strings(evidence))
    for device in evidence.devices:
        for track in (*device.tracks.values(), *device.throttle.values(), device.active):
            assert not any(map(math.isinf, (*track.mean, *track.low, *track.high)))
    return evidence


def bodies_of(frame):
    """What the frame's lines hold: the head, the state, and series."""
    return [json.loads(line) for line in frame.opened.args[0]]


def with_bodies(good, at, bodies):
    lines = [json.dumps(body).encode() for body in bodies]
    frame = good[at]._replace(opened=partial(good[at].opened.func, lines))
    return [*good[:at], frame, *good[at + 1 :]]


def put(*path):
    *steps, last, value = path

    def change(bodies):
        for step in steps:
            bodies = bodies[step]
        bodies[last] = value

    return change


def words(bodies):
    bodies[0]["devices"] = json.loads(
        json.dumps(bodies[0]["devices"]).replace('"came": [[0,', '"came": [["x",')
    )


def without(at, *names):
    def change(bodies):
        for name in names:
            del bodies[at][name]

    return change


def last_number(digits):
    def change(bodies):
        bodies[2]["values"] = bodies[2]["values"][: -len(digits)] + digits

    return change


HEAD, STATE, SERIES = range(3)
BROKEN = {
    "no names": without(SERIES, "names"),
    "no lines": without(HEAD, "lines"),
    "endless step": put(HEAD, "step_s", math.inf),
    "no step": put(HEAD, "step_s", 0.0),
    "the end of time": put(HEAD, "buckets", [2**62, 2**62 + 3]),
    "too many buckets": put(HEAD, "buckets", [0, 10**9]),
    "no digits": put(SERIES, "values", "zz"),
    "too few values": lambda bodies: put(SERIES, "values", bodies[SERIES]["values"][:-8])(bodies),
    "infinity": last_number("0000807f"),
    "beyond its range": last_number("ffff7f7f"),
    "negative": last_number("caf249f1"),
    "words": words,
    "huge sizes": put(SERIES, "sizes", 0, 2**40),
    "no sizes": put(SERIES, "sizes", 0, 0),
    "counts of words": put(SERIES, "counts", 0, ["x"]),
    "too many counts": put(SERIES, "counts", 0, [1] * 999),
    "another series": put(SERIES, "names", 0, ["device", "buzy", [[0]]]),
    "another device": put(SERIES, "names", 0, ["device", "busy_percent", [[7]]]),
    "a duplicate series": lambda bodies: put(SERIES, "names", 0, bodies[SERIES]["names"][1])(
        bodies
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_read_from_the_samples(good, truth, how):
    bodies = bodies_of(good[0])
    BROKEN[how](bodies)
    assert repr(bodies) != repr(bodies_of(good[0]))
    assert differences(judged(with_bodies(good, 0, bodies)), truth) == []


STATES = {
    "seen": put("seen", ["x"]),
    "polled": lambda state: state["devices"][0].pop("polled"),
    "cores": put("job", "cores", {}),
    "energy": put("devices", 0, "counters", "energy_j", [1e99, 0.0, True]),
    "rows": put("rows", []),
    "devices": put("devices", []),
    "nothing": lambda state: state.clear(),
}


@pytest.mark.parametrize("how", STATES)
def test_a_state_that_is_broken_is_read_from_the_samples(good, truth, how):
    bodies = bodies_of(good[-1])
    STATES[how](bodies[STATE])
    assert differences(judged(with_bodies(good, len(good) - 1, bodies)), truth) == []


def test_lines_that_do_not_go_on_are_read_from_the_samples(good, truth):
    assert all(isinstance(item, RolledFrame) for item in good)
    for items in (
        [item._replace(stream=bytes([n] * 8)) for n, item in enumerate(good)],
        [item._replace(number=5 + n) for n, item in enumerate(good)],
        [good[0]._replace(is_last=True), *good[1:]],
        [*good[0].items(), *good[1:]],
        [good[0], *good[1].items(), *good[2:]],
    ):
        assert differences(judged(items), truth) == []


@pytest.mark.slow
@examples(60, suppress_health_check=SLOW)
@given(st.data())
def test_hostile_lines_do_no_harm(good, data):
    at = data.draw(st.integers(0, len(good) - 1))
    content = json.dumps(bodies_of(good[at]))
    for _ in range(data.draw(st.integers(1, 6))):
        begin = data.draw(st.integers(0, len(content) - 1))
        instead = data.draw(
            st.sampled_from(
                [
                    "NaN",
                    "-1",
                    "1e999",
                    "null",
                    '"\\u001b"',
                    "[]",
                    "{}",
                    "true",
                    "9" * 30,
                    "7f80",
                    "ff",
                ]
            )
        )
        content = content[:begin] + instead + content[begin + len(instead) :]
    try:
        bodies = json.loads(content)
    except ValueError:
        return
    judged(with_bodies(good, at, bodies))


def test_a_wild_clock_fills_no_memory(eventful):
    """Neither by a rollup nor by a sample: the grid gets coarser instead."""
    with Recording(str(eventful)) as recording:
        samples = [item for item in recording.items() if isinstance(item, Sample) and item.rows]
        header = recording.header
    wild = samples[5]._replace(time=1e14)
    evidence = gather([("gpu01", [header, *samples[:5], wild])])
    assert evidence.count < 9000
    assert evidence.devices[0].track("busy_percent").known_count() == 2


def test_who_ended_is_forgotten_once_a_line_has_told_of_it():
    roller, sizes, pid = Roller(), [], 1000
    device = {"busy_percent": 50, "mem_used_bytes": 1 << 30, "processes": 1}

    def add(item):
        roller.add(item)

    add(made.header()._replace(time=1_795_200_000.0, mono=0.0))
    for at in range(6000):
        time, events = 1_795_200_000.0 + at, []
        if at % 10 == 0:
            events.append(Event(time, "process-end", pid=pid, text="ended"))
            pid += 1
            facts = {"user": "ada", "command": f"python train.py {pid}", "start": time}
            events.append(Event(time, "process", pid=pid, data=facts))
        rows = {"device": {0: device}, "usage": {(0, pid): {"mem_bytes": 1 << 30}}}
        add(Sample(time, float(at), rows, {}, events))
        if at % 600 == 599:
            assert roller.rolled()
            sizes.append(len(pickle.dumps(vars(roller._aggregation)["_nodes"])))
    assert max(sizes) < sizes[0] + 5000  # but for when each of them ended
