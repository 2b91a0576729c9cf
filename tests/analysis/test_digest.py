"""What was gathered when it was written is what is gathered of the lines."""

import dataclasses
import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.analysis import digest as digests
from gpumon.analysis.digester import Digester
from gpumon.analysis.gather import Gathering, gather
from gpumon.analysis.gather_run import RunGathering
from gpumon.analysis.room import Room
from gpumon.model.reading import Missing
from gpumon.model.sample import Event, Sample
from gpumon.model.ticks import Digest
from gpumon.recording import Recording
from tests.recording import made
from tests.recording.streams import KINDS, by_digests, record, same_evidence, stream
from tests.recording.test_ticks import differences

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
ALL = list(enumerate(KINDS * 6, 3))


@pytest.fixture(scope="module")
def eventful(tmp_path_factory):
    happenings = [(4 * at, kind) for at, kind in ALL if kind not in ("back", "slower")]
    path = tmp_path_factory.mktemp("digest") / "a.gpumon"
    return record(path, stream(1, 420, happenings))


def test_the_same_evidence(eventful):
    assert same_evidence(eventful) >= 4


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(
    st.integers(0, 99),
    st.integers(130, 260),
    st.lists(st.tuples(st.integers(0, 260), st.sampled_from(KINDS)), max_size=14),
    st.sampled_from((1.0, 2.0, 5.0, 10.0, 30.0)),
    st.sampled_from((0.0, 0.4, 0.9)),
)
def test_the_same_evidence_whatever_happens(
    tmp_path_factory, seed, ticks, happenings, interval_s, phase
):
    path = tmp_path_factory.mktemp("any") / "a.gpumon"
    count = same_evidence(record(path, stream(seed, ticks, happenings, interval_s), phase=phase))
    if not {"back", "slower"} & {kind for _, kind in happenings}:
        assert count > 0


def test_a_new_grid_ends_the_digests_and_a_clock_that_is_set_back_does_not(tmp_path):
    for kind, count in (("back", 8), ("slower", 3)):
        path = record(tmp_path / kind, stream(3, 900, [(400, kind), (401, kind), (402, kind)]))
        assert same_evidence(path) == count


def test_bins_that_frames_would_cut_have_no_digests(tmp_path):
    for interval_s, count in ((40.0, 34), (45.0, 0)):
        path = record(tmp_path / f"{interval_s}", stream(0, 99, [], interval_s))
        assert same_evidence(path) == count


def test_nothing_new_is_a_digest_too():
    digester = Digester()
    items = list(stream(1, 30, []))
    for item in items[:20]:
        digester.add(item)
    first, second = digester.digest(), digester.digest()
    assert digests.opened(first).width == 2
    assert digests.opened(second).width == 0
    for item in items[20:]:
        digester.add(item)
    assert digests.opened(digester.digest()).width > 0


def test_several_streams_of_a_node_and_several_nodes(tmp_path, eventful):
    other = record(tmp_path / "b.gpumon", stream(7, 300, [(9, "comes"), (200, "leaves")]))
    for nodes in (("gpu01", "gpu01"), ("gpu01", "gpu02")):
        found = []
        for way, gathering in ((Recording.items, None), (Recording.digested, RunGathering())):
            readers = [Recording(str(path)) for path in (eventful, other)]
            streams = zip(nodes, map(way, readers))
            found.append(gather(streams, gathering=gathering))
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


def test_a_grid_that_doubles(tmp_path):
    """20, 40, 80 s and more: bins 2 ** n times as long, whose means are means of means."""
    path = record(tmp_path / "a", stream(5, 2000, [(9, "comes"), (700, "xid"), (1500, "leaves")]))
    with Recording(str(path)) as recording:
        slow = gather([("gpu01", recording.ticks())], gathering=Gathering(Room(1, 240)))
        fast_gathering = RunGathering(Room(1, 240))
        fast = gather([("gpu01", recording.digested())], gathering=fast_gathering)
    assert slow.bin_s == fast.bin_s == 80.0
    assert (slow.count, slow.grid_start) == (fast.count, fast.grid_start)
    close_to(slow, fast)


# -- hostile digests -------------------------------------------------------------------------------


def items_of(path):
    with Recording(str(path)) as recording:
        found = []
        for item in recording.digested():
            if isinstance(item, Digest):
                kept = list(item.items())
                item = item._replace(items=lambda kept=kept: iter(kept))
            found.append(item)
    return found


@pytest.fixture(scope="module")
def good(eventful):
    return items_of(eventful)


@pytest.fixture(scope="module")
def truth(eventful):
    return by_digests(eventful)[0]


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
    evidence = gather([("gpu01", items)], gathering=RunGathering())
    assert all(text.isprintable() for text in strings(evidence))
    for device in evidence.devices:
        for track in (*device.tracks.values(), *device.throttle.values(), device.active):
            assert not any(map(math.isinf, (*track.mean, *track.low, *track.high)))
    return evidence


def with_data(good, at, data):
    return [item._replace(data=data) if n == at else item for n, item in enumerate(good)]


BROKEN = {
    "nothing": lambda data: b"",
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "another version": lambda data: b"\1" + data[1:],
    "huge counts": lambda data: data[:40] + struct.pack("<II", 2**32 - 1, 2**32 - 1) + data[48:],
    "endless step": lambda data: data[:32] + struct.pack("<d", math.inf) + data[40:],
    "no step": lambda data: data[:32] + struct.pack("<d", 0.0) + data[40:],
    "the end of time": lambda data: data[:16] + struct.pack("<q", 2**62) + data[24:],
    "infinity": lambda data: data[:-4] + struct.pack("<f", math.inf),
    "beyond its range": lambda data: data[:-4] + struct.pack("<f", 3e38),
    "words": lambda data: data.replace(b'"came":[[0,', b'"came":[["x",'),
    "another number": lambda data: data.replace(b'"came":[[0,', b'"came":[[9,'),
    "another series": lambda data: data.replace(b'"busy_percent"', b'"busy_percend"'),
    "another device": lambda data: data.replace(b'"busy_percent",[0]', b'"busy_percent",[7]'),
    "a series twice": lambda data: data.replace(b'"busy_percent",[0]', b'"busy_percent",[1]'),
    "no JSON": lambda data: data.replace(b'{"headers":', b'{"headers"["'[:11]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_read_from_the_lines(good, truth, how):
    data = BROKEN[how](good[0].data)
    assert data != good[0].data
    assert differences(judged(with_data(good, 0, data)), truth) == []


def test_a_state_that_is_broken_is_read_from_the_lines(good, truth):
    last = max(n for n, item in enumerate(good) if isinstance(item, Digest))
    for find, put in (
        (b'"seen":[', b'"seen":["'[:8] + b"["),
        (b'"polled":', b'"policy":'),
        (b'"cores":[', b'"cores":{'),
        (b'"longest', b"'longest"),
        (b'"energy_j":[', b'"energy_j":[1e99,'[:12]),
        (b'"rows":"{', b'"rows":"['),
    ):
        data = good[last].data.replace(find, put)
        if data != good[last].data:
            assert differences(judged(with_data(good, last, data)), truth) == []


def test_digests_that_do_not_go_on_are_read_from_the_lines(good, truth):
    assert all(isinstance(item, Digest) for item in good)
    for items in (
        [item._replace(stream=bytes([n] * 8)) for n, item in enumerate(good)],
        [item._replace(number=5 + n) for n, item in enumerate(good)],
        [good[0]._replace(is_last=True), *good[1:]],
        [*good[0].items(), *good[1:]],
        [good[0], *good[1].items(), *good[2:]],
    ):
        assert differences(judged(items), truth) == []


def test_a_plain_gathering_takes_the_lines_of_digests(good, truth):
    assert differences(gather([("gpu01", good)]), truth) == []


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_a_hostile_digest_does_no_harm(good, data):
    at = data.draw(st.integers(0, len(good) - 1).filter(lambda n: isinstance(good[n], Digest)))
    content = bytearray(good[at].data)
    for _ in range(data.draw(st.integers(1, 6))):
        begin = data.draw(st.integers(0, len(content) - 1))
        put = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from(
                    [b"NaN", b"-1", b"1e999", b"null", b'"\\u001b"', b"[]", b"{}", b"true",
                     b"9" * 30, struct.pack("<f", math.nan), struct.pack("<I", 2**31)]
                ),
            )
        )  # fmt: skip
        content[begin : begin + len(put)] = put
    judged(with_data(good, at, bytes(content)))


def test_nothing_that_is_no_digest_is_opened():
    for data in (b"", b"x" * 47, bytes(48), b"\xff" * 500):
        with pytest.raises(digests.MALFORMED):
            digests.news_of(digests.opened(data))


def test_a_wild_clock_fills_no_memory(eventful):
    """Neither by a digest nor by a sample: the grid gets coarser instead."""
    with Recording(str(eventful)) as recording:
        samples = [item for item in recording.items() if isinstance(item, Sample) and item.rows]
        header = recording.header
    wild = samples[5]._replace(time=1e14)
    evidence = gather([("gpu01", [header, *samples[:5], wild])])
    assert evidence.count < 9000
    assert evidence.devices[0].track("busy_percent").known_count() == 2


def test_who_ended_is_forgotten_once_a_digest_has_told_of_it():
    digester, sizes, pid = Digester(), [], 1000
    device = {"busy_percent": 50, "mem_used_bytes": 1 << 30, "processes": 1}
    digester.add(made.header()._replace(time=1_795_200_000.0, mono=0.0))
    for at in range(6000):
        time, events = 1_795_200_000.0 + at, []
        if at % 10 == 0:
            events.append(Event(time, "process-end", pid=pid, text="ended"))
            pid += 1
            facts = {"user": "ada", "command": f"python train.py {pid}", "start": time}
            events.append(Event(time, "process", pid=pid, data=facts))
        rows = {"device": {0: device}, "usage": {(0, pid): {"mem_bytes": 1 << 30}}}
        digester.add(Sample(time, float(at), rows, {}, events))
        if at % 600 == 599:
            assert digester.digest()
            sizes.append(len(digester._at_rest))
    assert max(sizes) < sizes[0] + 5000  # but for when each of them ended
