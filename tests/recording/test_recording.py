"""What is recorded is read again: whole, from any frame, by any zstd."""

import os
import stat

import pytest
import zstandard

from gpumon.model.sample import Event, Header, Sample, State
from gpumon.recording import Recorder, Recording
from gpumon.wire.decoder import Decoder
from tests.recording import made
from tests.recording.recorded import Clock, record, samples_of, written


def test_what_is_recorded_is_read_again(small, few):
    with Recording(str(small)) as recording:
        header, *samples = recording.items()
        assert header == recording.header == made.header()
        assert samples[:-1] == [written(sample) for sample in few]
        assert [(event.kind, event.text) for event in samples[-1].events] == [("end", "done")]
        assert (recording.start, recording.end) == (samples[0].time, samples[-1].time)
        assert (recording.state, recording.problems) == ("ended", [])


def test_any_zstd_shows_the_lines(small):
    with small.open("rb") as packed:
        stream = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        lines = stream.read().splitlines()
    decoder = Decoder()
    items = [decoder.line(line) for line in lines]
    assert [type(item) for item in items[:2]] == [Header, Sample]
    assert None not in items


def test_files_and_folders_are_the_users_own(tmp_path, few):
    old = os.umask(0)
    try:
        path = tmp_path / "state" / "jobs" / "x.gpumon"
        record(path, few[:3])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parents[:2]} == {0o700}


def test_each_frame_is_read_alone(small, few):
    with Recording(str(small)) as recording:
        assert len(recording._parts) == 4
        for at, frame in enumerate(recording._parts):
            items = list(recording.items(recording._parts[at].start))
            assert isinstance(items[0], Header)
            pids = [event.pid for event in items[1].events if event.kind == "process"]
            assert pids == [9000, 9001, 9002]
            assert items[1].time == frame.start
            own = [item for item in samples_of(items) if item.rows]
            assert own == [written(sample) for sample in few if sample.time > frame.start - 0.01]


def test_a_seek_begins_in_the_frame_that_holds_the_time(small, few):
    with Recording(str(small)) as recording:
        for sample in few:
            first = samples_of(recording.items(sample.time))[0]
            assert (
                -0.001 <= sample.time - first.time < 22
            )  # a frame, and the sample that begins the next
        assert samples_of(recording.items(0.0))[0].time == recording.start
        assert samples_of(recording.items(1e12))[0].time == recording._parts[-1].start


def test_ended_processes_are_not_restated(tmp_path, few):
    path = tmp_path / "x.gpumon"
    gone = few[5]._replace(events=[Event(few[5].time, "process-end", pid=9001)])
    record(path, [*few[:5], gone, *few[6:]], frame_s=20)
    with Recording(str(path)) as recording:
        restated = samples_of(recording.items(few[30].time))[0]
    assert [event.pid for event in restated.events] == [9000, 9002]


def test_a_header_in_between_is_kept_and_restated(tmp_path, few):
    path = tmp_path / "x.gpumon"
    newer = made.header()._replace(driver="590.1", time=few[30].time)
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, frame_s=20)
    recorder.header(made.header())
    for n, sample in enumerate(few):
        clock.now = sample.mono
        if n == 30:
            recorder.header(newer)
        recorder.add(sample)
    recorder.close()
    with Recording(str(path)) as recording:
        headers = [item.driver for item in recording.items() if isinstance(item, Header)]
        assert headers == [made.header().driver, "590.1"]
        assert next(recording.items(few[60].time)).driver == "590.1"


def test_marks_keep_the_states_of_devices(tmp_path, few):
    path = tmp_path / "x.gpumon"
    lost = few[1]._replace(states={0: State("lost", few[1].time, "Xid 79")})
    recorder = record(path, [few[0], lost], close=None)
    recorder.mark(lost.time + 0.5, "epoch\x1b[2J 2")
    recorder.close()
    with Recording(str(path)) as recording:
        mark = samples_of(recording.items())[2]
    assert mark.events == [Event(round(lost.time + 0.5, 3), "mark", text="epoch?[2J 2")]
    assert mark.states.keys() == {0}
    assert mark.mono == pytest.approx(lost.mono + 0.5, abs=0.01)
