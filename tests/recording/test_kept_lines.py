"""A line of a stream is recorded as it came, where it holds what was taken of it and no more."""

import json
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.model.reading import Missing
from gpumon.model.sample import Event, Header, Received, Sample
from gpumon.recording import Recorder, Recording
from gpumon.transport.intake import Intake
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.encoder import Encoder
from tests.recording import made
from tests.recording.recorded import Clock

NUMBERS = count()
NO_GPM = Missing("unsupported", "needs Hopper")


def received(*lines: bytes) -> list:
    """What an intake hands on for a header and these lines."""
    intake = Intake()
    header = Encoder().header(made.header()).encode()
    return [item for line in (header, *lines) for item in intake.line(line)]


def recorded(path, items, frame_s=600):
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, frame_s=frame_s)
    for item in items:
        if isinstance(item, Header):
            recorder.header(item)
        else:
            clock.now = item.mono
            recorder.add(item)
    recorder.close("done")
    assert recorder.failed == ""
    return Recording(str(path))


def line(at: float, **more: object) -> bytes:
    return json.dumps({"t": made.START + at, "m": 100 + at, **more}, separators=(",", ":")).encode()


FAST = {"device.fast": [[0, 50, 20, 5 << 30, 0, 300.5]]}


def is_kept(sent: bytes) -> bool:
    item = received(sent)[1]
    return isinstance(item, Received) and item.line == sent


def test_a_line_is_recorded_as_it_came(tmp_path):
    spaced = line(1, rows=FAST).replace(b":", b": ", 1).replace(b"{", b"{", 1)
    sent = line(1.5, rows=FAST, states=[[1, "lost", made.START, "Xid 79"]])
    with recorded(tmp_path / "run.gpumon", received(sent, spaced)) as recording:
        frame = recording._parts[0]
        lines = list(recording._lines(frame))
    assert sent in lines
    assert spaced not in lines  # it begins differently, and was encoded anew
    assert is_kept(sent)


def test_what_was_changed_has_no_line():
    (sample,) = received(line(1, rows=FAST))[1:]
    changed = sample._replace(events=[Event(made.START, "mark", text="here")])
    assert isinstance(sample, Received)
    assert sample.line
    assert getattr(changed, "line", b"") == b""


@pytest.mark.parametrize(
    "sent",
    [
        line(1, rows=FAST, other=1),
        line(1, rows=FAST, check="0a1b2c3d"),
        line(1, rows={"device.fast": [[0, 500, 20, 0, 0, 300]]}),  # not plausible
        line(1, rows={"device.fast": [[0, None, 20, 0, 0, 300, "?"]]}),  # a newer reason
        line(1, events=[{"t": made.START, "kind": "mark", "data": {str(n): n for n in range(99)}}]),
        line(1, events=[{"t": made.START, "kind": "mark", "text": ""}]).replace(
            b'""', '"é"'.encode()
        ),
        line(1, rows=FAST).replace(b'"rows":', b'"rows":\t'),
        line(1, rows=FAST)[:-1] + b" " * (MAX_LINE_BYTES // 2) + b"}",
        b'{"restated":true,' + line(1, rows=FAST)[1:],
    ],
)
def test_what_holds_more_than_was_taken_is_encoded_anew(sent):
    item = received(sent)[1]
    assert isinstance(item, Sample)
    assert not is_kept(sent)


def test_a_stream_of_other_columns_is_encoded_anew():
    body = json.loads(Encoder().header(made.header()))
    fields = body["groups"]["device.fast"]["fields"]
    fields[0], fields[1] = fields[1], fields[0]
    intake = Intake()
    intake.line(json.dumps(body).encode())
    (sample,) = intake.line(line(1, rows=FAST))
    assert sample.rows["device"][0]["busy_percent"] == 20
    assert not isinstance(sample, Received)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_a_reader_finds_the_samples_that_were_taken(tmp_path_factory, seed, changed):
    """In every frame alone, with the details of what is missing."""
    samples = list(made.samples(40))
    rng = seed
    encoder, lines = Encoder(), []
    encoder.header(made.header())
    for sample in samples:
        rng = rng * 6364136223846793005 % 2**64
        for readings in sample.rows["device"].values():
            if rng >> 60 & 1 and "sm_active_percent" in readings:
                readings["sm_active_percent"] = NO_GPM
        lines.append(encoder.sample(sample).encode())
    items = received(*lines)
    if changed:
        items[1::changed] = [item._replace(states=dict(item.states)) for item in items[1::changed]]
    path = tmp_path_factory.mktemp("kept") / f"{next(NUMBERS)}.gpumon"
    with recorded(path, items, frame_s=10) as recording:
        read = [item for item in recording.items() if isinstance(item, Sample) and item.rows]
        later = [
            item
            for item in recording.items(since=made.START + 25)
            if isinstance(item, Sample) and item.rows
        ]
    taken = [item for item in items if isinstance(item, Sample)]
    assert [_told(item) for item in read] == [_told(item) for item in taken]
    assert [_told(item) for item in later] == [_told(item) for item in taken[-len(later) :]]
    assert len(later) < len(read)


def _told(sample: Sample) -> object:
    """With the words for what is missing, which are no part of a comparison."""
    words = {
        (entity, key, name): value.detail
        for entity, rows in sample.rows.items()
        for key, readings in rows.items()
        for name, value in readings.items()
        if isinstance(value, Missing)
    }
    return round(sample.time, 3), sample.rows, sample.states, words
