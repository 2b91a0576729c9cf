"""A recording is read as far as it goes: whole, cut, joined, damaged, hostile, by hand."""

import contextlib
import errno
import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.fields import FIELDS, GROUP_BY_KEY
from gpumon.model.reading import number
from gpumon.model.sample import Event, Header, Sample, State
from gpumon.recording import Recorder, Recording, file, frames
from gpumon.wire import MAX_LINE_BYTES, Decoder, Encoder
from tests.e2e.program import ROOT, Collecting, environment
from tests.nvml.emulator import Emulated, Proc, Scenario
from tests.recording import made

HANGS_S = 60


class Clock:
    """The recorder's, which stands where the samples are."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def record(path, samples, *, close="done", header=None, **options):
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, **options)
    recorder.header(header or made.header())
    for sample in samples:
        clock.now = sample.mono
        recorder.add(sample)
    if close is not None:
        recorder.close(close)
    return recorder


def written(sample):
    """The sample as the wire keeps it."""
    encoder, decoder = Encoder(), Decoder()
    decoder.line(encoder.header(made.header()))
    return decoder.line(encoder.sample(sample))


def samples_of(items):
    return [item for item in items if isinstance(item, Sample)]


@pytest.fixture(scope="module")
def few():
    """65 samples of a small node: one device, three processes."""
    fast = [field.name for field in GROUP_BY_KEY["device.fast"].fields]
    kept = []
    for sample in made.samples(65):
        rows = {
            "device": {0: {name: sample.rows["device"][0][name] for name in fast}},
            "host": {"": {"load1": sample.rows["host"][""]["load1"]}},
        }
        events = [event for event in sample.events if event.pid in (9000, 9001, 9002)]
        kept.append(Sample(sample.time, sample.mono, rows, {}, events))
    return kept


@pytest.fixture(scope="module")
def small(tmp_path_factory, few):
    """A whole file of four frames of at most 20 s."""
    path = tmp_path_factory.mktemp("small") / "small.gpumon"
    assert record(path, few, frame_s=20).failed == ""
    return path


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
        assert len(recording._frames) == 4
        for at, frame in enumerate(recording._frames):
            items = list(recording.items(recording._start(at)))
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
        assert samples_of(recording.items(1e12))[0].time == recording._frames[-1].start


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


# -- cut, joined, damaged -------------------------------------------------------------------------


def cut_is_read(path, data, cut, whole, flushed):
    """The first `cut` bytes give a prefix, at least what was flushed before, and say so."""
    path.write_bytes(data[:cut])
    os.utime(path, (1e9, 1e9))  # nobody writes there any more
    try:
        with Recording(str(path)) as recording:
            items = list(recording.items())
            problems, state = recording.problems, recording.state
            assert recording.end == pytest.approx(max(item.time for item in items[1:]), abs=0.01)
    except WireError:  # not even one sample
        assert cut < flushed[1][0]
        return
    assert items == whole[: len(items)]
    assert state == "torn"
    assert problems
    due = max(count for at, count in flushed if at <= cut)
    assert len(items) >= due


def flushes(data, items, size):
    """(byte, items) for every moment at which a flush had just been written, by zstd's own word."""
    seen = [(0, 0)]
    unpacker, lines, begin = zstandard.ZstdDecompressor().decompressobj(), 0, 0
    for at in range(size):
        got = unpacker.decompress(data[at : at + 1])
        plain = [line for line in got.splitlines() if not line.startswith(b'{"restated"')]
        lines += len(plain)
        if got:
            seen.append((at + 1, lines))
        if unpacker.eof:
            begin = at + 1
            skipped = 40 if data[begin + 8 : begin + 14] == b"gpumon" else 0
            if begin + skipped >= size:
                break
            return seen + [
                (begin + skipped + more, lines + count)
                for more, count in flushes(data[begin + skipped :], items, size - begin - skipped)
            ]
    return seen


def test_every_cut_gives_a_prefix_and_says_so(tmp_path, small):
    data = small.read_bytes()
    with Recording(str(small)) as recording:
        whole = list(recording.items())
    flushed = flushes(data, whole, len(data))
    assert flushed[-1][1] == len(whole)
    # nothing waits longer than 10 s for its flush: 10 samples at 1 s
    assert max(b[1] - a[1] for a, b in zip(flushed, flushed[1:])) <= 10
    for cut in range(len(data)):
        cut_is_read(tmp_path / "cut.gpumon", data, cut, whole, flushed)


def test_random_cuts_of_a_large_file(tmp_path):
    path = tmp_path / "large.gpumon"
    record(path, made.samples(400), frame_s=100)
    data = path.read_bytes()
    with Recording(str(path)) as recording:
        whole = list(recording.items())
    rng = random.Random(4)
    for cut in [rng.randrange(len(data)) for _ in range(25)]:
        path.write_bytes(data[:cut])
        try:
            with Recording(str(path)) as recording:
                items = list(recording.items())
        except WireError:
            assert cut < 4000
            continue
        assert items == whole[: len(items)]
        assert len(items) / len(whole) > cut / len(data) - 0.06  # ten samples, and chance


def test_joined_files_are_read_one_after_the_other(tmp_path, small):
    data = small.read_bytes()
    with Recording(str(small)) as recording:
        whole = list(recording.items())
    path = tmp_path / "joined.gpumon"
    torn = data[: len(data) // 2]
    path.write_bytes(data + torn + torn + data)
    with Recording(str(path)) as recording:
        items = list(recording.items())
        assert recording.state == "ended"
        assert any("in the middle" in problem for problem in recording.problems)
    assert items[: len(whole)] == whole
    assert items[-len(whole) :] == whole
    assert len(items) > 2 * len(whole) + 2 * len(whole) // 3


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"GARBAGE" * 100, b"\x28\xb5\x2f\xfd" * 500])
@pytest.mark.parametrize("part", [1.0, 0.7])
def test_foreign_tails_hide_nothing(tmp_path, small, tail, part):
    data = small.read_bytes()
    with Recording(str(small)) as recording:
        whole = list(recording.items())
    path = tmp_path / "tail.gpumon"
    path.write_bytes(data[: int(len(data) * part)] + tail)
    os.utime(path, (1e9, 1e9))
    with Recording(str(path)) as recording:
        items = list(recording.items())
        assert recording.problems
    assert items[: int(len(whole) * part) - 10] == whole[: int(len(whole) * part) - 10]


def test_packed_again_by_zstd_it_is_the_same(tmp_path, small):
    with small.open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    path = tmp_path / "again.gpumon"
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    with Recording(str(path)) as again, Recording(str(small)) as recording:
        assert again.start == recording.start
        assert again.end == recording.end
        assert [item for item in again.items() if isinstance(item, Sample) and item.rows] == [
            item for item in recording.items() if isinstance(item, Sample) and item.rows
        ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_damage_raises_anything_but_one_line(tmp_path_factory, small, data):
    content = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "drop", "insert", "zero"]))
        if kind == "flip":
            content[at] ^= data.draw(st.integers(1, 255))
        elif kind == "drop":
            del content[at : at + data.draw(st.integers(1, 300))]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=60))
        else:
            content[at : at + 100] = bytes(len(content[at : at + 100]))
        if len(content) < 10:
            break
    path = tmp_path_factory.getbasetemp() / "damaged.gpumon"
    path.write_bytes(content)
    try:
        with Recording(str(path)) as recording:
            for item in recording.items():
                assert isinstance(item, (Header, Sample))
            recording.columns({"device": ["busy_percent"], "host": ["load1"]})
            assert all("\n" not in problem for problem in recording.problems)
    except GpumonError as error:
        one_line = str(error)
    else:
        one_line = ""
    assert "\n" not in one_line


# -- hostile --------------------------------------------------------------------------------------


def zstd(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08" + bytes(9), "no recording"),
        (b"SQLite format 3\0" + bytes(9), "no recording"),
        (b"\x93R\x01", "no recording"),
        (zstd(b"hello\n" * 100), "not a line"),
        (zstd(b'{"a":1}\n' * 100), "something else"),
        (zstd(b'{"wire":"2.0","node":"x"}\n' * 2), "format 2.0"),
        (zstd((Encoder().header(made.header()) + "\n").encode()), "before the first sample"),
        (zstd(b"[" * 100_000 + b"\n"), "not a line"),
        (b"\x28\xb5\x2f\xfd", "cut off"),
        (b"\x5a\x2a\x4d\x18" + (1 << 30).to_bytes(4, "little"), "no recording"),
    ],
    ids=range(11),
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "x.gpumon"
    path.write_bytes(content)
    with pytest.raises(WireError, match=says) as caught:
        Recording(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="gpumon recordings"):
        Recording(str(tmp_path / "no.gpumon"))
    with pytest.raises(GpumonError, match="cannot read"):
        Recording(str(tmp_path))


_BOMB = """
import resource, sys
from gpumon.errors import GpumonError
from gpumon.recording import Recording
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with Recording(sys.argv[1]) as recording:
        n = sum(1 for _ in recording.items())
        recording.columns({"device": ["busy_percent"]})
        print("read", n, len(recording.problems))
except GpumonError as error:
    print("refused", error)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 64 << 10, grown
"""


@pytest.mark.parametrize("fill", [b"\n", b"x", b'{"restated":true,"t":1}\n'])
def test_a_zip_bomb_costs_neither_memory_nor_an_hour(tmp_path, few, fill):
    encoder = Encoder()
    start = f"{encoder.header(made.header())}\n{encoder.sample(few[0])}\n".encode()
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    piece = fill * ((1 << 20) // len(fill))
    packed = stream.compress(start) + b"".join(stream.compress(piece) for _ in range(400))
    path = tmp_path / "bomb.gpumon"
    path.write_bytes(packed + stream.flush())
    assert path.stat().st_size < 1 << 20
    done = subprocess.run(
        [sys.executable, "-c", _BOMB, str(path)],
        capture_output=True, text=True, timeout=HANGS_S, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("read ")


def test_a_line_without_end_is_not_gathered(tmp_path, few):
    encoder = Encoder()
    start = f"{encoder.header(made.header())}\n{encoder.sample(few[0])}\n".encode()
    noise = os.urandom(3 * MAX_LINE_BYTES).hex().encode()
    end = f"\n{encoder.sample(few[1])}\n".encode()
    path = tmp_path / "x.gpumon"
    path.write_bytes(zstd(start + noise + end))
    with Recording(str(path)) as recording:
        assert [item.time for item in samples_of(recording.items())] == [
            round(few[0].time, 3),
            round(few[1].time, 3),
        ]
        assert any("1 lines" in problem for problem in recording.problems)


def test_trailers_that_lie_mislead_to_nothing(tmp_path, small):
    data = small.read_bytes()
    path = tmp_path / "x.gpumon"
    for lie in (
        frames.trailer(10, 0.0, 0.0, True),
        frames.trailer(len(data), float("nan"), 1.0, True),
        frames.trailer(0, 1.0, 2.0, False),
        frames.trailer(0xFFFFFFFF, 1.0, 2.0, True),
    ):
        path.write_bytes(data + lie)
        with Recording(str(path)) as recording:
            assert len(samples_of(recording.items())) == 66


# -- writers that die or cannot write -------------------------------------------------------------

_WRITER = """
import sys, time
from gpumon.recording import Recorder
from tests.recording import made
recorder = Recorder(sys.argv[1], flush_s=0.2, frame_s=0.6)
recorder.header(made.header()._replace(interval_s=0.02))
for sample in made.samples(100_000):
    recorder.add(sample)
    print(sample.time, flush=True)
    time.sleep(0.02)
"""


def test_a_killed_writer_leaves_all_but_the_last_seconds(tmp_path):
    path = tmp_path / "killed.gpumon"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(100):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        taken = 100 + len(writer.stdout.read().splitlines())
    os.utime(path, (1e9, 1e9))
    with Recording(str(path)) as recording:
        found = [sample for sample in samples_of(recording.items()) if sample.rows]
        assert recording.state == "torn"
        assert recording.problems
        assert [sample.time for sample in found] == [
            round(sample.time, 3) for sample in made.samples(len(found))
        ]
    # 0.2 s of 0.02 s each, and what the disk was slow to take: bounded by half, not by speed
    assert taken / 2 < len(found) <= taken


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("partial", [0, 7])
def test_an_error_ends_the_recording_and_not_the_caller(
    tmp_path, few, monkeypatch, code, says, partial
):
    real, calls = os.write, []

    def failing(fd, data):
        calls.append(len(data))
        if len(calls) < 4:
            return real(fd, data)
        if len(calls) == 4 and partial:
            return real(fd, data[:partial])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(file.os, "write", failing)
    path = tmp_path / "full.gpumon"
    recorder = record(path, few)  # never raises
    monkeypatch.undo()
    assert says in recorder.failed
    assert "\n" not in recorder.failed
    with Recording(str(path)) as recording:
        got = samples_of(recording.items())
    assert got == [written(sample) for sample in few[: len(got)]]
    assert len(got) >= 10


def test_a_sync_that_fails_is_an_error_too(tmp_path, few, monkeypatch):
    def quota(_fd):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(file.os, "fdatasync", quota)  # as network file systems report it
    assert "quota" in record(tmp_path / "x.gpumon", few).failed


@contextlib.contextmanager
def full_disk(folder):
    """A file system of 64 KiB; None where nobody may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(tmp_path):
    """A real one, else the device that is always full in place of the file."""
    with full_disk(tmp_path) as disk:
        path = tmp_path / "x.gpumon"
        if disk is None:
            recorder = record(path, made.samples(30), close=None)
            while recorder.pending_bytes:
                time.sleep(0.001)
            os.dup2(os.open("/dev/full", os.O_WRONLY), recorder._writer._file._fd)
            recorder.close()
        else:
            recorder = record(path, made.samples(300))
        assert "no space left" in recorder.failed
        with Recording(str(path)) as recording:
            assert len(samples_of(recording.items())) >= 20


def test_a_file_size_limit(tmp_path):
    """The limit that the shell's `ulimit -f` sets, in a process of its own."""
    path = tmp_path / "x.gpumon"
    code = (
        "import sys\nfrom tests.recording import made\n"
        "from tests.recording.test_recording import record\n"
        "print(record(sys.argv[1], made.samples(300)).failed)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )  # fmt: skip
    assert "File too large" in done.stdout, done.stderr
    with Recording(str(path)) as recording:
        assert len(samples_of(recording.items())) > 20


def test_a_disk_that_hangs_holds_nobody_up(tmp_path, few, monkeypatch):
    release = threading.Event()
    real = os.write

    def hanging(fd, data):
        release.wait(HANGS_S)
        return real(fd, data)

    monkeypatch.setattr(file.os, "write", hanging)
    monkeypatch.setattr("gpumon.recording.writer._CLOSE_S", 0.05)
    monkeypatch.setattr("gpumon.recording.writer._MAX_PENDING_BYTES", 20_000)
    try:
        recorder = record(tmp_path / "x.gpumon", few)
        assert "does not answer" in recorder.failed
    finally:
        release.set()


def test_two_writers_never_share_a_file(tmp_path, few):
    path = tmp_path / "x.gpumon"
    first = record(path, few[:3], close=None)
    with pytest.raises(GpumonError, match="never writes over"):
        Recorder(str(path))
    first.close()
    with pytest.raises(GpumonError, match="never writes over"):
        Recorder(str(path))
    link = tmp_path / "link.gpumon"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GpumonError, match="never writes over"):
        Recorder(str(link))
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GpumonError, match="cannot record to"):
        Recorder(str(tmp_path / "file" / "x.gpumon"))


def test_it_ends_at_its_limit_with_the_file_whole(tmp_path):
    path = tmp_path / "x.gpumon"
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, max_bytes=20_000)
    recorder.header(made.header())
    for sample in made.samples(200):
        clock.now = sample.mono
        recorder.add(sample)
        while recorder.pending_bytes:
            time.sleep(0.001)
    assert "limit of 20000 bytes" in recorder.failed
    recorder.close()
    assert path.stat().st_size < 60_000
    with Recording(str(path)) as recording:
        assert (recording.state, recording.problems) == ("ended", [])
        assert "limit" in samples_of(recording.items())[-1].events[0].text


def test_nothing_recorded_leaves_no_file(tmp_path):
    recorder = Recorder(str(tmp_path / "x.gpumon"))
    recorder.close()
    recorder.close()
    assert (recorder.failed, list(tmp_path.iterdir())) == ("", [])


def test_a_file_that_is_being_written_is_read_and_called_so(tmp_path, few):
    path = tmp_path / "x.gpumon"
    recorder = record(path, few[:25], close=None)
    while recorder.pending_bytes:
        time.sleep(0.001)
    with Recording(str(path)) as recording:
        assert recording.state == "recording"
        assert recording.problems == []
        assert len(samples_of(recording.items())) >= 15
    recorder.close()


# -- columns --------------------------------------------------------------------------------------


def columns_slowly(items, wanted):
    found = {}
    for sample in samples_of(items):
        for entity, names in wanted.items():
            for key, readings in sample.rows.get(entity, {}).items():
                for name in names:
                    if name in readings:
                        found.setdefault((entity, key, name), []).append(
                            (sample.time, number(readings[name]))
                        )
    return found


def told(columns):
    return {
        at: [(t, None if v != v else v) for t, v in zip(column.times, column.values)]
        for at, column in columns.items()
    }


WANTED = {
    entity: [name for name, field in FIELDS[entity].items() if not field.text] for entity in FIELDS
}


def test_columns_are_what_the_decoder_gives(tmp_path):
    path = tmp_path / "x.gpumon"
    record(path, made.samples(130), frame_s=50)
    with Recording(str(path)) as recording:
        assert told(recording.columns(WANTED)) == columns_slowly(recording.items(), WANTED)
        some = {"device": ["power_w"]}
        late = recording.start + 60
        assert told(recording.columns(some, late)) == columns_slowly(recording.items(late), some)


def test_columns_of_lines_in_another_writing(tmp_path, few):
    """Other blanks, other orders, brackets in texts, rows that come and go, numbers beyond."""
    encoder = Encoder()
    lines = [json.loads(encoder.header(made.header()))]
    lines += [json.loads(encoder.sample(sample)) for sample in few]
    lines[3]["rows"]["device.fast"].insert(0, [5, 1, 2, 3, 4, "]]"])
    lines[4]["rows"]["device.fast"] = []
    lines[5]["rows"]["device.fast"][0][1] = 5000
    lines[6]["rows"]["device.fast"][0][1] = None
    lines[6]["rows"]["device.fast"][0].append("l")
    text = "\n".join(json.dumps(line, sort_keys=True) for line in lines) + "\n"
    path = tmp_path / "x.gpumon"
    path.write_bytes(zstd(text.encode()))
    wanted = {"device": ["busy_percent", "mem_used_bytes"], "host": ["load1"]}
    with Recording(str(path)) as recording:
        got = told(recording.columns(wanted))
    busy = dict(got["device", 0, "busy_percent"])
    times = [round(sample.time, 3) for sample in few]
    assert len(busy) == len(few) - 1  # one sample had no row
    assert busy[times[4]] is None
    assert busy[times[5]] is None
    assert busy[times[10]] == lines[11]["rows"]["device.fast"][0][1]
    assert len(got["host", "", "load1"]) == len(few)


# -- nothing secret -------------------------------------------------------------------------------


def test_no_secret_of_a_command_line_is_in_the_file(tmp_path):
    """Real processes with the arguments of the corpus, as the agent sees them."""
    corpus = (ROOT / "tests/collect/fixtures/commands.txt").read_text()
    lines = [line for line in corpus.splitlines() if "s3cr3tvalue" in line]
    assert len(lines) > 15
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with contextlib.ExitStack() as stack:
        running = []
        for line in lines:
            process = subprocess.Popen([*sleep, *line.split("|")])
            stack.callback(process.wait)
            stack.callback(process.kill)
            running.append(process.pid)
        scenario = Scenario().gpu(0, model="T4", procs=[Proc(pid, mem_mib=100) for pid in running])
        gpus = stack.enter_context(Emulated(scenario))
        collecting = stack.enter_context(Collecting("--count", "3", env=environment(gpus.env)))
        assert collecting.rest() == 0
    path = tmp_path / "x.gpumon"
    record(path, collecting.samples, header=collecting.header)
    with path.open("rb") as packed:
        text = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    for pid in running:
        assert f'"kind":"process","pid":{pid},'.encode() in text
    assert b"s3cr3t" not in text
