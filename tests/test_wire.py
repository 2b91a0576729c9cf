"""The stream: what is written is read again; what is hostile is refused in words."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import WireError
from gpumon.model.fields import FIELDS, GROUPS
from gpumon.model.reading import REASONS, Missing
from gpumon.model.sample import Device, Event, Header, JobContext, Mig, Sample, State
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.support.examples import examples

HEADER = Header(
    node="gpu01",
    boot_id="b-1",
    time=1_795_200_000.0,
    mono=12.5,
    interval_s=1.0,
    gpumon="0.1.0",
    devices=[
        Device(0, 0, "GPU-aa", "NVIDIA H200", 1, None, {"mem_total_bytes": 150 << 30}),
        Device(
            1,
            1,
            "MIG-bb",
            "NVIDIA A100 MIG 1g.10gb",
            None,
            Mig("GPU-cc", 9, 0, "1g.10gb"),
            {"power_limit_default_w": Missing("mig", "whole GPU")},
        ),
    ],
    driver="580.159.03",
    cuda="13.0",
    job=JobContext("4711", name="train", cpus=8, start=1_795_100_000.0),
    facts={"cpus": 64, "kernel": "6.1", "mem_total_bytes": 1 << 40},
    notes=["MIG is on."],
)

READINGS = st.one_of(
    st.integers(0, 1 << 50),
    st.floats(0, 1e6, allow_nan=False),
    st.sampled_from(sorted(REASONS)).map(Missing),
)


def decoder() -> Decoder:
    reader = Decoder()
    assert reader.line(Encoder().header(HEADER)) == HEADER
    return reader


@st.composite
def samples(draw):
    rows = {}
    for group in draw(st.lists(st.sampled_from(GROUPS), max_size=4, unique_by=lambda g: g.key)):
        keys = {  # not devices 0 and 1: their facts set narrower ranges than the fields
            "device": st.integers(2, 60),
            "process": st.integers(1, 1 << 22),
            "usage": st.tuples(st.integers(2, 60), st.integers(1, 1 << 22)),
            "pool": st.tuples(st.integers(2, 60), st.integers(1, 1 << 22)),
            "program": st.integers(1, 1 << 22),
        }.get(group.entity, st.sampled_from(["", "eth0", "tmp"]))
        table = rows.setdefault(group.entity, {})
        for key in draw(st.lists(keys, min_size=1, max_size=4, unique=True)):
            table.setdefault(key, {}).update(
                {
                    field.name: draw(st.text(st.characters(codec="ascii"), max_size=5))
                    if field.text
                    else draw(READINGS)
                    for field in group.fields
                }
            )
    return Sample(draw(st.floats(1e9, 2e9)), draw(st.floats(0, 1e7)), rows)


@examples(300)
@given(samples())
def test_samples_survive_the_round_trip(sample):
    encoder = Encoder()
    reader = Decoder()
    reader.line(encoder.header(HEADER))
    read = reader.line(encoder.sample(sample))
    assert isinstance(read, Sample)
    assert read.rows.keys() == {entity for entity, rows in sample.rows.items() if rows}
    for entity, rows in sample.rows.items():
        for key, readings in rows.items():
            for name, value in readings.items():
                got = read.rows[entity][key][name]
                field = FIELDS[entity][name]
                if isinstance(value, (int, float)) and not field.low <= value <= field.high:
                    assert got == Missing("implausible")
                elif isinstance(value, (int, float)):
                    assert_kept(value, got, field)
                elif isinstance(value, str):
                    assert got.isprintable()
                else:
                    assert got == value


def assert_kept(value, got, field):
    """With the digits of its field: rounded, sizes cut off."""
    if field.unit == "B" and field.digits:
        assert math.isclose(got, value, rel_tol=10 ** (1 - field.digits), abs_tol=0.51)
        assert got <= max(value, round(value))
    elif field.digits:
        assert math.isclose(got, value, rel_tol=0.501 * 10 ** (1 - field.digits), abs_tol=0.51)
    elif isinstance(value, int):
        assert got == value
    else:
        assert math.isclose(got, value, rel_tol=1e-12, abs_tol=0.501 * 10**-field.decimals)


@pytest.mark.parametrize(
    ("entity", "name", "value", "kept"),
    [
        ("device", "busy_percent", 97.46, 97.5),
        ("device", "busy_percent", 97.0, 97),
        ("device", "power_w", 611.249, 611.2),
        ("device", "energy_j", 1234567.8, 1234568),
        ("device", "mem_used_bytes", 85899345919, 85899345919),
        ("device", "pcie_tx_bytes_per_s", 1_234_567.8, 1_230_000),
        ("device", "pcie_tx_bytes_per_s", 1_235_000.0, 1_240_000),
        ("device", "pcie_tx_bytes_per_s", 999.6, 1000),
        ("device", "pcie_tx_bytes_per_s", 0.4, 0),
        ("device", "temperature_c", -12.34, -12.3),
        ("process", "cpu_s", 12.3456, 12.35),
        ("process", "rss_bytes", 8_589_934_591, 8_589_000_000),
        ("process", "rss_bytes", 4096, 4096),
        ("job", "mem_charged_bytes", 8_589_999_999, 8_589_000_000),
        ("job", "mem_limit_bytes", 8_589_999_999, 8_589_999_999),
        ("job", "mem_peak_bytes", 8_589_999_999, 8_589_999_999),
        ("host", "load1", 1.234, 1.23),
        ("collector", "ms", 3.1234, 3.1),
    ],
)
def test_values_have_the_digits_of_their_instrument(entity, name, value, kept):
    reader = decoder()
    sample = Sample(1.0, 1.0, {entity: {0: {name: value}}})
    assert reader.line(Encoder().sample(sample)).rows[entity][0][name] == kept


def test_details_are_said_once_and_remembered():
    encoder, reader = Encoder(), Decoder()
    reader.line(encoder.header(HEADER))
    missing = Missing("unsupported", "needs Hopper")
    rows = {"device": {0: {"sm_active_percent": missing}}}
    first, second = (encoder.sample(Sample(t, t, rows)) for t in (1.0, 2.0))
    assert "needs Hopper" in first
    assert "needs Hopper" not in second
    for line in (first, second):
        read = reader.line(line).rows["device"][0]["sm_active_percent"]
        assert (read.reason, read.detail) == ("unsupported", "needs Hopper")
    assert "needs Hopper" in (encoder.header(HEADER) and encoder.sample(Sample(3.0, 3.0, rows)))


def test_states_and_events_survive():
    encoder = Encoder()
    reader = decoder()
    sample = Sample(
        5.0,
        6.0,
        {},
        {0: State("lost", 4.5, "Xid 79")},
        [Event(4.5, "xid", 0, None, "79"), Event(5, "process", data={"pid": 7, "own": True})],
    )
    assert reader.line(encoder.sample(sample)) == sample


def test_newer_minor_version_is_read_and_newer_major_refused():
    body = json.loads(Encoder().header(HEADER))
    body |= {
        "wire": "1.7",
        "news": [1],
        "groups": {**body["groups"], "quantum.fast": {"fields": []}},
    }
    body["groups"]["device.fast"]["fields"].insert(1, ["qubits", ""])
    reader = Decoder()
    reader.line(json.dumps(body))
    row = [0, 97, 12, 41, 5, None, 611.2, "?"]
    line = {"t": 1, "m": 1, "rows": {"device.fast": [row], "quantum.fast": [[0]]}, "moods": []}
    read = reader.line(json.dumps(line)).rows["device"][0]
    assert read["busy_percent"] == 97
    assert read["mem_controller_percent"] == 41
    assert read["mem_reserved_bytes"] == Missing("error")  # a reason letter of the future
    assert "qubits" not in read
    with pytest.raises(WireError, match=r"format 2\.0.*use the gpumon version"):
        Decoder().line(json.dumps({**body, "wire": "2.0"}))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"x" * (MAX_LINE_BYTES + 1), "bytes"),
        (b'{"t": NaN, "m": 1}', "NaN"),
        (b'{"t": Infinity, "m": 1}', "Infinity"),
        (b"[" * 100_000, "not a line"),
        (b'{"t": 1', "not a line"),
        (b"\xff\xfe", "not a line"),
        (b"[1]", "not a line of a gpumon stream"),
        (b'{"t": 1, "m": 1, "rows": {"device.fast": [[0, 1]]}}', "declared"),
        (b'{"t": 1, "m": 1, "rows": {"device.fast": [[0, "a", 1, 1, 1, 1]]}}', "number"),
        (b'{"t": 1, "m": 1, "rows": []}', "object"),
        (b'{"t": 1, "m": 1, "states": [[1]]}', "malformed"),
        (b'{"t": "now", "m": 1}', "number"),
        (b'{"t": 1' + b"0" * 400 + b', "m": 1}', "range"),
        (b'{"t": 1e99, "m": 1}', "range"),
    ],
)
def test_bad_lines_are_refused_in_words(line, words):
    with pytest.raises(WireError, match=words):
        decoder().line(line)


def test_a_sample_needs_a_header():
    with pytest.raises(WireError, match="before the header"):
        Decoder().line(b'{"t": 1, "m": 1}')


def test_numbers_out_of_range_become_implausible():
    line = {"t": 1, "m": 1, "rows": {"device.fast": [[0, 37100, -1, 1e300, 0, 1 << 70]]}}
    read = decoder().line(json.dumps(line)).rows["device"][0]
    assert {name for name, value in read.items() if value == Missing("implausible")} == {
        "busy_percent", "mem_controller_percent", "mem_used_bytes", "power_w",
    }  # fmt: skip


def test_text_cannot_move_the_cursor():
    line = {
        "t": 1,
        "m": 1,
        "states": [[0, "lost", 1, "\x1b[2J"]],
        "events": [
            {
                "t": 1,
                "kind": "process\x07",
                "text": "\u202egnp.exe\x9b31m",
                "data": {"a\x1b": "b\x1b]0;x\x07", "h": {"k\n": "v\x00"}, "deep": {"a": {"b": 1}}},
            }
        ],
        "rows": {"disk.disk": [["/tmp\x1b[1m", "\x1b", 1, 1, 1]]},
    }
    read = decoder().line(json.dumps(line))
    assert all(char.isprintable() for char in repr(read))
    assert "\\x1b" not in repr(read)
    assert "\\u202e" not in repr(read)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["t", "m", "rows", "states", "events", "why", "wire", "kind", "key", "data"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@examples(4000)
@given(
    st.binary(max_size=60)
    | JSON.map(json.dumps)
    | st.fixed_dictionaries(
        {"t": st.integers() | st.floats(), "m": st.floats() | st.text(max_size=2)},
        optional={
            "rows": st.dictionaries(st.sampled_from([g.key for g in GROUPS]) | st.text(), JSON),
            "states": JSON,
            "events": st.lists(JSON, max_size=2),
            "why": JSON,
            "wire": st.text(max_size=3),
            "devices": JSON,
            "groups": JSON,
        },
    ).map(json.dumps)
)
def test_no_line_does_worse_than_a_wire_error(line):
    reader = READER
    try:
        item = reader.line(line)
    except WireError:
        return
    assert item is None or isinstance(item, (Header, Sample))


READER = decoder()


@examples(1500)
@given(st.randoms(use_true_random=False))
def test_mangled_lines_do_no_worse_than_a_wire_error(random):
    for _ in range(20):  # 30,000 mangled lines
        line = bytearray(LINE)
        for _ in range(random.randint(1, 4)):
            line[random.randrange(len(line))] = random.randrange(256)
        cut = random.choice([len(line), random.randrange(len(line))])
        try:
            item = READER.line(bytes(line[:cut]))
        except WireError:
            continue
        assert item is None or isinstance(item, (Header, Sample))


LINE = (
    Encoder()
    .sample(
        Sample(
            1_795_200_001.0,
            13.5,
            {
                "device": {
                    0: dict.fromkeys(FIELDS["device"], 1.0),
                    1: {"busy_percent": Missing("mig")},
                },
                "usage": {(0, 77): {"type": "C", "mem_bytes": 5}},
            },
            {1: State("hung", 3.0, "nvmlDeviceGetPowerUsage")},
            [Event(1.0, "process", pid=77, data={"user": "ada", "hints": {"TF": "true"}})],
        )
    )
    .encode()
)
