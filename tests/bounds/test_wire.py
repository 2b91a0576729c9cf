"""What a stream may claim of itself, and what becomes of it after a header that cannot be taken."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import wire
from gpumon.errors import WireError
from gpumon.model.fields import GROUPS
from gpumon.model.reading import Missing
from gpumon.model.sample import Event, Header, Sample
from gpumon.report.build import build
from gpumon.report.render.json import document
from gpumon.store import Store
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.bounds.bombs import START, device, dump, header, row, sample
from tests.frames.framing import Gathering
from tests.support.examples import examples

GOOD = sample(1.0, {"device.fast": [row("device.fast", 0, 41)]})
#: headers that cannot be taken, the last ones no JSON or too long to be any
BAD_HEADERS = [
    header(t="now"),
    header(t=1e300),
    header(wire="2.0"),
    header(wire=[]),
    header(node=None),
    header(devices={}),
    header([device(n) for n in range(wire.MAX_DEVICES + 1)]),
    header([device(3), device(4), device(3)]),
    header(groups={"device.fast": {"fields": 7}}),
    header(groups=[]),
    header(interval_s="1"),
    header(facts=3),
    header(notes=[1]),
    dump({"restated": True, **json.loads(header(t=None))}),
    dump({"a": [0] * 100, **json.loads(header(t=None))}),
    header()[:-1],
    header(notes=["x" * MAX_LINE_BYTES]),
    header().replace(b"gpu01", b"\xff\xfe"),
]


@pytest.mark.parametrize("bad", BAD_HEADERS, ids=range(len(BAD_HEADERS)))
def test_no_sample_is_read_by_the_columns_of_a_refused_header(bad):
    reader = Decoder()
    reader.line(header())
    assert isinstance(reader.line(GOOD), Sample)
    with pytest.raises(WireError):
        reader.line(bad)
    for _ in range(2):
        with pytest.raises(WireError):
            reader.line(GOOD)
    assert isinstance(reader.line(header()), Header)
    assert isinstance(reader.line(GOOD), Sample)


@examples(300)
@given(st.data())
def test_every_part_of_a_header_is_taken_whole_or_refused(data):
    """Whatever stands in one place of it, samples behind it are read by its columns, or refused."""
    body = json.loads(header(job={"id": "1"}, notes=["n"]))
    odd = st.one_of(
        st.none(), st.booleans(), st.integers(), st.just(10**400), st.just(1e300), st.text(),
        st.just([]), st.just([[]]), st.just({}), st.just({"a": {}}),
    )  # fmt: skip
    name = data.draw(st.sampled_from(sorted(body)))
    body[name] = data.draw(odd)
    body["groups"] = {"device.fast": {"period_s": 0, "fields": [["power_w", "W"]]}} | (
        body["groups"] if name == "groups" and isinstance(body["groups"], dict) else {}
    )
    reader = Decoder()
    reader.line(header())
    try:
        taken = isinstance(reader.line(dump(body)), Header)
    except WireError:
        taken = False
    line = sample(2.0, {"device.fast": [[0, 250.5]]})
    if taken and (own := reader.columns.get("device.fast")) and len(own[None].columns) == 1:
        assert reader.line(line).rows["device"][0] == {"power_w": 250.5}
    else:
        for each in (line, GOOD):
            with pytest.raises(WireError):
                reader.line(each)


@pytest.mark.parametrize(
    ("claimed", "taken"),
    [(86_400, 3600), (1e14, 3600), (3600, 3600), (1, 1), (0.1, 0.1), (0, 0.1), (-5, 0.1)],
)
def test_an_interval_is_one_that_gpumon_has(claimed, taken):
    assert Decoder().line(header(interval_s=claimed)).interval_s == taken


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "GPU-1", "GPU-2"])), max_size=6))
def test_no_two_devices_have_one_key_or_one_uuid(listed):
    entries = [device(key, uuid=uuid) for key, uuid in listed]
    keys = [key for key, _ in listed]
    reader = Decoder()
    if len(set(keys)) < len(keys):
        with pytest.raises(WireError, match="two devices"):
            reader.line(header(entries))
        return
    uuids = [each.uuid for each in reader.line(header(entries)).devices]
    named = [uuid for uuid in uuids if uuid]
    assert len(named) == len(set(named))
    wanted = [uuid for _, uuid in listed if uuid]
    assert set(named) == set(wanted)
    doubled = len(wanted) - len(named)
    assert reader.left_out == ({"duplicate device UUIDs": doubled} if doubled else {})


@pytest.mark.parametrize(
    ("group", "key"),
    [
        ("device.fast", ""), ("device.fast", "0"), ("device.fast", [0, 1]), ("device.fast", None),
        ("device.fast", 0.5), ("device.fast", True), ("device.fast", 10**400),
        ("process.process", "x"), ("process.process", [1, 2]), ("usage.usage", 1),
        ("usage.usage", ""), ("usage.usage", [1]), ("usage.usage", [1, 2, 3]),
        ("usage.usage", ["0", 1]), ("host.host", [1, 2]), ("net.net", {}),
    ],
)  # fmt: skip
def test_a_key_is_of_the_kind_that_its_rows_have(group, key):
    reader = Decoder()
    reader.line(header())
    with pytest.raises(WireError):
        reader.line(sample(1.0, {group: [row(group, key)]}))


def test_a_row_of_unknown_fields_alone_is_no_row():
    reader = Decoder()
    reader.line(header(groups={"usage.usage": {"period_s": 1, "fields": [["new", ""]]}}))
    assert reader.line(sample(1.0, {"usage.usage": [[[0, 1], 5]]})).rows["usage"] == {}


@pytest.mark.parametrize("at", [1e12, -1e12, 1e300, 10**20])
def test_absurd_times_are_refused(at):
    reader = Decoder()
    reader.line(header())
    for body in (
        {"t": at, "m": 1}, {"t": 1, "m": 1, "states": [[0, "lost", at, ""]]},
        {"t": 1, "m": 1, "events": [{"t": at, "kind": "mark"}]},
    ):  # fmt: skip
        with pytest.raises(WireError):
            reader.line(dump(body))


def test_what_is_beyond_a_bound_is_counted():
    reader = Decoder()
    read = reader.line(
        header(
            [device(0, facts={str(n): n for n in range(wire.MAX_FACTS + 3)})],
            facts={str(n): n for n in range(wire.MAX_FACTS + 2)},
            notes=["x"] * (wire.MAX_NOTES + 7),
        )
    )
    assert len(read.devices[0].facts) == len(read.facts) == wire.MAX_FACTS
    assert len(read.notes) == wire.MAX_NOTES
    assert reader.left_out == {"facts": 5, "notes": 7}
    event = {"t": 1, "kind": "note", "data": {"h": {str(n): "" for n in range(wire.MAX_DATA + 4)}}}
    read = reader.line(sample(1.0, events=[event] + [{"t": 1, "kind": "x"}] * wire.MAX_EVENTS))
    assert len(read.events) == wire.MAX_EVENTS
    assert len(read.events[0].data["h"]) == wire.MAX_DATA
    states = [[n, "lost", 1.0, ""] for n in range(wire.MAX_DEVICES + 6)]
    assert len(reader.line(sample(1.0, states=states)).states) == wire.MAX_DEVICES
    for turn in range(3):
        words = [["device.fast", turn * 8000 + n, "power_w", "w"] for n in range(8000)]
        reader.line(sample(1.0, why=words))
    assert reader.left_out == {
        "facts": 5, "notes": 7, "entries of event data": 4, "events": 1, "device states": 6,
        "details of missing values": 24_000 - wire.MAX_WHY,
    }  # fmt: skip


def test_no_line_has_more_rows_than_a_reader_takes():
    reader = Decoder()
    reader.line(header())
    rows = [[n, 0, 0, 0, 0, 0] for n in range(wire.MAX_ROWS + 1)]
    assert len(reader.line(sample(1.0, {"device.fast": rows[:-1]})).rows["device"]) == wire.MAX_ROWS
    with pytest.raises(WireError, match=r"rows of device\.fast"):
        reader.line(sample(1.0, {"device.fast": rows}))


@pytest.mark.slow
def test_words_about_processes_go_with_them():
    """A job of a hundred thousand processes, sixteen at a time: both ends keep few words."""
    encoder, reader = Encoder(), Decoder()
    reader.line(header())
    lasting = {"device": {0: {"sm_active_percent": Missing("unsupported", "needs Hopper")}}}
    reader.line(encoder.sample(Sample(0.5, 0.5, lasting)))
    for turn in range(6000):
        pids = range(turn * 16, (turn + 1) * 16)
        missing = {"mem_peak_bytes": Missing("unsupported", "accounting mode is off")}
        rows = {"usage": {(0, pid): missing for pid in pids}}
        ends = [Event(float(turn), "process-end", pid=pid) for pid in pids] if turn else []
        read = reader.line(encoder.sample(Sample(float(turn), 1.0, rows, {}, ends)))
        assert read.rows["usage"][0, pids[0]]["mem_peak_bytes"].detail == "accounting mode is off"
    assert reader.left_out == {}
    assert len(encoder._said) <= 17
    read = reader.line(encoder.sample(Sample(7000.0, 1.0, lasting)))
    assert read.rows["device"][0]["sm_active_percent"].detail == "needs Hopper"


def test_a_process_that_is_read_again_has_its_words_again():
    encoder, reader = Encoder(), Decoder()
    reader.line(header())
    rows = {"process": {7: {"rss_bytes": Missing("no-permission", "somebody else's")}}}
    end = [Event(2.0, "process-end", pid=7, text="not among the busiest")]
    for time, events in ((1.0, []), (2.0, end), (3.0, [])):
        read = reader.line(encoder.sample(Sample(time, 1.0, rows, {}, events)))
        assert read.rows["process"][7]["rss_bytes"].detail == "somebody else's"


#: as they may stand in a line; Python reads the first two as infinite
ODD_NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1" + "0" * 400, "9" * 5000]
FACTS = dict.fromkeys(
    ("mem_total_bytes", "power_limit_max_w", "power_limit_default_w", "sm_clock_max_mhz",
     "mem_clock_max_mhz", "temperature_shutdown_c", "temperature_mem_max_c", "pcie_gen_max",
     "pcie_width_max", "nvlink_links", "cpus", "cpus_online"), "@",
)  # fmt: skip


def with_odd(line, number):
    return line.replace(b'"@"', number.encode())


@pytest.mark.parametrize("odd", ODD_NUMBERS, ids=lambda odd: odd[:9])
def test_numbers_that_are_none_become_reasons(odd):
    """In facts, rows and events: the line is refused, or they are implausible, to the report."""
    reader, store, gathered = Decoder(), Store(), Gathering()
    lines = [
        header([device(0, facts=FACTS)], facts=FACTS, interval_s="@"),
        header([device(0, facts=FACTS)], facts=FACTS),
        sample(1.0, {"device.fast": [row("device.fast", 0, 41)]}),
    ]
    for second, group in enumerate(GROUPS, 2):
        key = {"device": 0, "process": 7, "program": 7, "usage": [0, 7], "pool": [0, 7]}.get(
            group.entity, ""
        )
        values = ["x" if field.text else "@" for field in group.fields]
        lines.append(sample(second, {group.key: [[key, *values]]}))
    for place in ("t", "m", "why", "states", "events"):
        lines.append(sample(90.0, **{place: "@"}))
    data = {"facts": "@", "more": {"a": "@"}}
    lines += [
        sample(91.0, events=[{"t": START, "kind": "note", "data": data}]),
        sample(92.0, events=[{"t": "@", "kind": "note"}]),
        sample(93.0, states=[[0, "lost", "@", ""]]),
    ]
    seen, refused = [], []
    for line in lines:
        try:
            item = reader.line(with_odd(line, odd))
        except WireError as error:
            refused.append(str(error))
            if reader.header is None or reader.is_lost:
                reader.line(header([device(0)]))
            continue
        seen.append(item)
        gathered.add("gpu01", item)
        if isinstance(item, Header):
            store.header("gpu01", item)
            facts = [*item.facts.values(), *item.devices[0].facts.values()]
            assert all(fact == Missing("implausible") for fact in facts)
        else:
            store.add("gpu01", item)
            readings = [
                reading
                for table in item.rows.values()
                for of in table.values()
                for reading in of.values()
            ]
            numbers = [each for each in readings if isinstance(each, (int, float))]
            assert all(abs(number) < 1e19 for number in numbers)
    assert all(len(each) < 200 for each in refused)
    if seen:
        json.dumps(document(build(gathered.data())), allow_nan=False)


def test_lists_in_lists_are_no_numbers():
    reader = Decoder()
    for depth in (3, 900, 100_000):
        nested = "[" * depth + "]" * depth
        with pytest.raises(WireError):
            reader.line(with_odd(header(interval_s="@"), nested))
        taken = (
            None if depth > 900 else reader.line(with_odd(header([device(0, facts=FACTS)]), nested))
        )
        assert taken is None or taken.devices[0].facts == {}
