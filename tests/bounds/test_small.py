"""Bounds of input that is no stream: labels, marks, Slurm's output, a site's file."""

import gzip
import sys

import pytest

from gpumon.collect.labels import MAX_OPEN_BYTES, Joiner
from gpumon.errors import GpumonError, UsageError
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.recorder import MAX_MARKS, RecorderStage
from gpumon.recording import Recording, reader
from gpumon.recording import zstd as zstd_of_files
from gpumon.site.read import load_site
from gpumon.slurm import runner
from gpumon.slurm.runner import LocalRunner, TooMuchError
from gpumon.transport import launch
from gpumon.wire.decoder import Decoder
from tests.bounds import bombs
from tests.recording.recorded import zstd
from tests.transport.test_rate import Sink


def test_nodes_that_never_end_their_lines_fill_nothing():
    joiner = Joiner(1 << 20)
    for turn in range(100):
        for node in range(1000):
            joiner.piece(b"n%d.%d +%s" % (turn, node, b"x" * 700))
    assert sum(map(len, joiner._open.values())) <= MAX_OPEN_BYTES
    assert joiner.piece(b"good -{}\n") == ("good", b"{}\n")


def test_a_node_that_is_not_read_is_cut_off_and_others_go_on():
    class Launch:
        def complaint(self):
            return ""

        def leave(self, node):
            pass

    fast, slow = (launch.NodeStream(Launch(), name) for name in ("n1", "n2"))
    for _ in range(40):
        fast.put(b"x" * (1 << 20))
        slow.put(b"line\n")
        assert slow.read() == b"line\n"
    got = list(iter(fast.read, b""))
    assert sum(map(len, got)) <= launch.MAX_WAITING_BYTES + (2 << 20)
    assert "cut off" in fast.complaint()
    assert slow.complaint() == ""


def test_marks_for_a_node_that_is_silent_are_few(tmp_path):
    class Source:
        name = "x"

    stage = RecorderStage(Source(), str(tmp_path), record=False)
    stage._sink = sink = Sink()
    for node in ("n1", "n2"):
        stage.header(node, Header(node, "b", 1.0, 1.0, 1.0, "0.1.0"))
    for n in range(5 * MAX_MARKS):
        stage.mark(f"mark {n}")
        stage.add("n1", Sample(float(n), float(n), {}))
    assert len(stage._nodes["n2"].marks) == MAX_MARKS
    assert "too fast" in "".join(iter(stage.news, ""))
    assert sum(len(sample.events) for sample in sink.samples) == 5 * MAX_MARKS


def test_a_command_that_prints_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(runner, "MAX_OUTPUT", 1 << 20)
    endless = [sys.executable, "-c", "while True: print('x' * 9999)"]
    with pytest.raises(TooMuchError, match="printed more than 1 MiB; request fewer"):
        LocalRunner().run(endless, env={}, timeout_s=60.0)


def test_a_site_file_without_end_is_refused(monkeypatch):
    monkeypatch.setenv("GPUMON_SITE", "/dev/zero")
    with pytest.raises(UsageError, match="longer than 1 MiB"):
        load_site()


STREAM = b"".join(line + b"\n" for line in (bombs.header(), *map(bombs.sample, range(1, 20))))


@pytest.mark.parametrize("filling", [b"\n", b"x\n", bombs.sample(30.0) + b"\n"])
def test_a_packed_stream_that_is_made_to_keep_a_program_busy_is_refused(tmp_path, filling):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(STREAM + filling * (8_000_000 // len(filling))))
    with pytest.raises(GpumonError, match="decompresses to far more than a recording can hold"):
        next(Recording(str(path)).items())
    path.write_bytes(gzip.compress(STREAM * 50))
    assert len(list(Recording(str(path)).items())) == 20 * 50


def test_a_stream_of_lines_that_are_none_is_read_up_to_a_bound(tmp_path, monkeypatch):
    read = []

    class Counting(Decoder):
        def line(self, line):
            read.append(line)
            return super().line(line)

    path = tmp_path / "x.jsonl"
    path.write_bytes(STREAM + b"x\n" * 100_000 + STREAM)
    recording = Recording(str(path))
    monkeypatch.setattr(reader, "Decoder", Counting)
    assert len(list(recording.items())) == 20
    assert len(read) < 11_000
    assert "the rest was left out" in recording.problems[0]
    path.write_bytes(STREAM + b"x\n" * 5_000 + STREAM)
    assert len(list(Recording(str(path)).items())) == 40


def test_a_recording_of_many_small_frames_unpacks_to_a_bound(tmp_path, monkeypatch):
    unpacked, original = [], zstd_of_files.unpacked

    def counting(*where):
        for piece in original(*where):
            unpacked.append(len(piece))
            yield piece

    monkeypatch.setattr(zstd_of_files, "unpacked", counting)
    path = tmp_path / "x.gpumon"
    path.write_bytes(zstd(STREAM) + 20 * zstd(b"\n" * (8 << 20)))
    with pytest.raises(GpumonError, match="decompresses to far more"):
        Recording(str(path))
    assert sum(unpacked) < 20 * (4 << 20)
