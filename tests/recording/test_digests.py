"""Digests behind the frames of whole, torn, joined and damaged recordings."""

import os
import random
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import zstandard

from gpumon.analysis.digester import Digester
from gpumon.cli.record import _new_recorder
from gpumon.cli.recorded import open_run
from gpumon.model.sample import Header, Sample
from gpumon.model.ticks import Digest
from gpumon.recording import Recorder, Recording, digesting, frames
from gpumon.recording.digesting import packed_digest, unpacked_digest
from gpumon.recording.frames import MAX_DIGEST_BYTES
from gpumon.recording.zstd import Broken
from gpumon.sources.tee import Tee
from tests.e2e.program import ROOT
from tests.recording import made
from tests.recording.recorded import HANGS_S
from tests.recording.streams import KINDS, by_digests, header, record, same_evidence, stream
from tests.recording.test_ticks import differences

HAPPENINGS = [(5, "comes"), (150, "comes"), (200, "xid"), (300, "lost"), (330, "well"),
              (400, "vanishes"), (440, "header"), (460, "comes")]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Five frames of two minutes."""
    return record(tmp_path_factory.mktemp("digests") / "a.gpumon", stream(2, 560, HAPPENINGS))


def frames_of(path):
    with Recording(str(path)) as recording:
        return list(recording._frames)


def test_a_frame_ends_on_the_grid_of_the_clock_and_has_a_digest(whole):
    found = frames_of(whole)
    assert [frame.digest.number for frame in found] == [0, 1, 2, 3, 4]
    assert len({frame.digest.stream for frame in found}) == 1
    assert [frame.start % 120 for frame in found[1:]] == [0.0] * 4
    assert same_evidence(whole) == 5


def test_closed_in_haste_the_last_frame_has_none(tmp_path):
    path = record(tmp_path / "a.gpumon", stream(2, 300, []), in_haste=True)
    with Recording(str(path)) as recording:
        assert recording.state == "ended"
        assert not recording.problems
    assert same_evidence(path) == 2


def test_cut_at_any_byte(tmp_path, whole):
    data = whole.read_bytes()
    edges = [at for frame in frames_of(whole) for at in (frame.end, frame.behind)]
    rng = random.Random(8)
    path = tmp_path / "cut.gpumon"
    cuts = {at + off for at in edges for off in (-1, 0, 30)}
    cuts |= {rng.randrange(5000, len(data)) for _ in range(10)}
    seen = set()
    for cut in sorted(cuts & set(range(5000, len(data)))):
        path.write_bytes(data[:cut])
        os.utime(path, (1e9, 1e9))  # nobody writes there any more
        seen.add(same_evidence(path))
    assert seen == {0, 1, 2, 3, 4}


def test_joined_files(tmp_path, whole):
    data = whole.read_bytes()
    frame = frames_of(whole)[2]
    path = tmp_path / "joined.gpumon"
    for parts, digests in (
        ((data, data), 5),
        ((data[: frame.behind], data), 3),
        ((data[: frame.begin + 100], data), 2),
        ((data[frame.begin :], data), 0),
        ((data[: frame.begin], data[frame.behind :]), 2),
    ):
        path.write_bytes(b"".join(parts))
        assert same_evidence(path) == digests


def test_a_damaged_digest_is_read_from_the_lines(tmp_path, whole):
    truth = by_digests(whole)[0]
    path = tmp_path / "x.gpumon"
    for n, frame in enumerate(frames_of(whole)):
        data = bytearray(whole.read_bytes())
        data[(frame.digest.begin + frame.digest.end) // 2] ^= 0x10
        path.write_bytes(data)
        evidence, count = by_digests(path)
        assert count == n
        assert differences(evidence, truth) == []


def test_damaged_lines_do_not_matter_where_the_digest_is_whole(tmp_path, whole):
    """But they are found by who reads them."""
    truth = by_digests(whole)[0]
    data = bytearray(whole.read_bytes())
    frame = frames_of(whole)[1]
    data[(frame.begin + frame.end) // 2] ^= 0x10
    path = tmp_path / "x.gpumon"
    path.write_bytes(data)
    assert differences(by_digests(path)[0], truth) == []
    with Recording(str(path)) as recording:
        sum(1 for _ in recording.items())
        assert any("damaged" in problem for problem in recording.problems)


def test_zstd_passes_over_digests(tmp_path, whole):
    with whole.open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    path = tmp_path / "again.gpumon"
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    assert same_evidence(path) == 0
    assert all(line.startswith(b"{") for line in lines.splitlines())


def test_a_digester_that_fails_costs_no_line(tmp_path):
    class Failing:
        def add(self, item):
            if isinstance(item, Sample) and item.time > made.START + 200:
                raise ZeroDivisionError

        def digest(self):
            return b"something"

    clock = [0.0]
    path = tmp_path / "a.gpumon"
    recorder = Recorder(str(path), clock=lambda: clock[0], frame_s=120.0, digester=Failing)
    recorder.header(header())
    samples = [item for item in stream(2, 400, [(220, "comes")]) if isinstance(item, Sample)]
    for sample in samples:
        clock[0] = sample.mono
        recorder.add(sample)
    recorder.close()
    assert not recorder.failed
    assert [frame.digest is not None for frame in frames_of(path)] == [True, False, False, False]
    with Recording(str(path)) as recording:
        assert sum(1 for _ in recording.items()) == 1 + len(samples) + 1


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_what_was_packed_is_unpacked(size):
    data = os.urandom(size)
    if size:
        assert unpacked_digest(packed_digest(data)) == data


def test_digests_that_lie_about_their_size_are_refused():
    packed = packed_digest(b"x" * 1000)
    for lie in (
        (999).to_bytes(4, "little") + packed[4:],
        (1001).to_bytes(4, "little") + packed[4:],
        (MAX_DIGEST_BYTES + 1).to_bytes(4, "little") + packed[4:],
        packed[:12],
        packed[:3],
        b"",
        os.urandom(500),
    ):
        with pytest.raises(Broken):
            unpacked_digest(lie)


_BOMB = """
import resource, sys
from gpumon.recording.digesting import unpacked_digest
from gpumon.recording.zstd import Broken
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpacked_digest(open(sys.argv[1], "rb").read())
except Broken as error:
    print("refused", error)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 24 << 10, grown
"""


def test_a_bomb_in_a_digest_costs_no_memory(tmp_path):
    packed = zstandard.ZstdCompressor(level=3).compress(bytes(1 << 29))
    path = tmp_path / "bomb"
    path.write_bytes((1000).to_bytes(4, "little") + packed[4:])
    done = subprocess.run(
        [sys.executable, "-c", _BOMB, str(path)],
        capture_output=True, text=True, timeout=HANGS_S, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused ")


def test_trailers_with_digests_that_lie_mislead_to_nothing(tmp_path, whole):
    data = whole.read_bytes()
    path = tmp_path / "x.gpumon"
    for size in (0, 48, len(data), 1 << 31):
        digest = frames.PackedDigest(b"x" * 20, 0, b"12345678")
        lie = bytearray(frames.trailer(100, 1.0, 2.0, True, digest))
        lie[-16:-12] = size.to_bytes(4, "little")
        path.write_bytes(data + lie)
        with Recording(str(path)) as recording:
            assert len(list(recording.items())) == 563
        assert same_evidence(path) == 5


def test_recorders_write_digests_and_reports_read_them(tmp_path, whole, monkeypatch):
    """`gpumon record`, the dashboard; `gpumon report`, `fit` and the findings of a replay."""
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    [one] = open_run(str(whole))
    assert sum(isinstance(item, Digest) for item in one.gathered) == 5
    path = tmp_path / "record.gpumon"
    recorder = _new_recorder(str(path), header())
    recorder.header(header())
    for item in stream(2, 160, []):
        if isinstance(item, Sample):
            recorder.add(item)
    recorder.close()
    assert same_evidence(path) == 1
    tee = Tee(Silent(), str(tmp_path / "marks"), record=True)
    tee.start(Silent())
    tee.header("gpu01", header())
    digester = tee._recorders["gpu01"]._writer._digesting
    tee.stop()
    assert digester._make is Digester


def test_recorders_of_many_nodes_work_one_after_another(tmp_path):
    """By their phases: fed with the same ticks they write, gather and end their frames apart."""
    wrote, gathered, ended = zip(*(worked(tmp_path, phase) for phase in (0.0, 0.3, 0.7)))
    assert sum(map(len, wrote)) == len(set.union(*wrote)) > 0
    assert len(set(gathered)) == 3
    assert [(at + 1) % 600 for at in ended] == [0, 160, 400]  # multiples of 40 s


def worked(folder, phase):
    """Of its second minute when it wrote; when it gathered first; the end of its first frame."""

    class Noting(Digester):
        def __init__(self):
            super().__init__()
            made_at.append(clock[0])

    made_at, clock, wrote = [], [0.0], set()
    path = folder / str(phase)
    recorder = Recorder(str(path), clock=lambda: clock[0], digester=Noting, phase=phase)
    for item in stream(2, 1100, []):
        clock[0] = item.mono
        if isinstance(item, Header):
            recorder.header(item)
            continue
        recorder.add(item)
        if recorder.pending_bytes and 160 <= item.mono < 220:
            wrote.add(item.mono)
        while recorder.pending_bytes:
            time.sleep(0)
    recorder.close()
    with Recording(str(path)) as recording:
        frame = recording._frames[0]
    return wrote, made_at[0], frame.last


def test_among_several_recorders_each_turn_is_followed_by_a_rest(monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr(digesting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    turns = digesting._Turns()
    hurry = SimpleNamespace(wait=slept.append)
    for of in "aab":
        with turns.turn(of, hurry):
            now[0] += 0.5
    assert slept == [0.0, 0.0, 1.5]  # none before the first turn, nor between two of one recorder


def test_who_is_in_a_hurry_waits_for_no_turn(tmp_path):
    """Nor for a digest that is being made; the lines are all there."""
    path = tmp_path / "a.gpumon"
    items = list(stream(2, 300, []))
    recorder = Recorder(str(path), digester=Digester, frame_s=120.0)
    with digesting._turns.turn("another", threading.Event()):
        for item in items:
            recorder.header(item) if isinstance(item, Header) else recorder.add(item)
        recorder.close("that is all", in_haste=True)
    assert not recorder.failed
    with Recording(str(path)) as recording:
        assert recording.state == "ended"
        assert sum(bool(item.rows) for item in recording.items() if isinstance(item, Sample)) == 300


def test_a_frame_of_many_lines_is_gathered_in_parts(tmp_path, monkeypatch):
    happenings = [(4 * at, kind) for at, kind in enumerate(KINDS) if kind not in ("back", "slower")]
    count = same_evidence(record(tmp_path / "whole.gpumon", stream(1, 300, happenings)))
    monkeypatch.setattr(digesting, "_MOST", 30)
    assert same_evidence(record(tmp_path / "parts.gpumon", stream(1, 300, happenings))) == count > 1


def test_a_recording_of_seconds_has_none(tmp_path):
    """Its command must not wait for the import; lines so few are read as quickly."""
    assert same_evidence(record(tmp_path / "a.gpumon", stream(2, 20, []))) == 0


class Silent:
    """A source that says nothing, and a sink that keeps nothing."""

    name = "silent"

    def start(self, sink):
        pass

    def stop(self):
        pass

    def header(self, node, header):
        pass
