"""What the agent prints is a recording: lines alone, plain or packed, whatever wrote the file."""

import gzip

import pytest
import zstandard

from gpumon import demos
from gpumon.errors import GpumonError, WireError
from gpumon.model.sample import Event, Sample
from gpumon.recording import Recording
from gpumon.recording.runs import resolve
from gpumon.services.runs import open_run
from gpumon.sources.files import tracks_of
from gpumon.wire.encoder import Encoder
from tests.recording import made
from tests.recording.recorded import record


def zstd_of(data):
    """In several blocks, as of a long file."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    parts = [data[at : at + 3000] for at in range(0, len(data), 3000)]
    flushed = [
        packer.compress(part) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for part in parts
    ]
    return b"".join(flushed) + packer.flush()


PACKINGS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "two of gzip": lambda data: gzip.compress(data[:999]) + gzip.compress(data[999:]),
    "zstd": zstd_of,
    "pzstd": lambda data: b"".join(  # which splits lines, and begins with skippable frames
        b"\x50\x2a\x4d\x18\x04\0\0\0size" + zstd_of(part)
        for part in (data[:999], data[999:])
    ),
}  # fmt: skip


@pytest.fixture(params=PACKINGS)
def packed(request):
    return PACKINGS[request.param]


@pytest.fixture
def lines(few):
    """As the agent prints them."""
    encoder = Encoder()
    end = Sample(few[-1].time, few[-1].mono, {}, {}, [Event(few[-1].time, "end", text="done")])
    told = [encoder.header(made.header()), *map(encoder.sample, [*few, end])]
    return "".join(f"{line}\n" for line in told).encode()


def items_of(path):
    with Recording(str(path)) as recording:
        return list(recording.items()), recording.problems, recording.state


def test_lines_are_a_recording(tmp_path, small, lines, packed):
    for name in ("x", "x.gpumon", "x.jsonl.gz"):
        path = tmp_path / name
        path.write_bytes(packed(lines))
        assert items_of(path) == items_of(small)


def test_report_replay_and_export_read_them(tmp_path, small, lines, packed):
    path = tmp_path / "x.jsonl"
    path.write_bytes(packed(lines))
    [stream], [same] = open_run(str(path)), open_run(str(small))
    assert list(stream.items) == list(same.items)
    [track] = tracks_of(resolve(str(path)).paths)
    assert len(list(track.items(None))) == 67
    assert not track.problems()


@pytest.mark.parametrize("name", ["plain", "gzip", "two of gzip", "zstd"])
def test_a_recording_unpacked_and_packed_again(tmp_path, small, name):
    with small.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    path = tmp_path / "again.gpumon"
    path.write_bytes(PACKINGS[name](lines))
    assert [item for item in items_of(path)[0] if isinstance(item, Sample) and item.rows] == [
        item for item in items_of(small)[0] if isinstance(item, Sample) and item.rows
    ]


def test_every_cut_is_read_as_a_prefix(tmp_path, lines, packed):
    data, path = packed(lines), tmp_path / "x"
    path.write_bytes(data)
    whole, read = items_of(path)[0], set()
    for cut in range(1, len(data), 97):
        path.write_bytes(data[:cut])
        try:
            items, problems, _ = items_of(path)
        except WireError:
            assert not read  # not even one sample
            continue
        assert items == whole[: len(items)]
        assert problems or data == lines
        read.add(len(items))
    assert len(read) > 1


def test_nothing_of_a_file_that_its_checksum_disproves_is_given(tmp_path, lines):
    for pack in (gzip.compress, zstd_of):
        data, path = bytearray(pack(lines)), tmp_path / "x"
        data[-3] ^= 1
        path.write_bytes(data)
        with pytest.raises(GpumonError, match="cannot read"):
            Recording(str(path))


def test_a_recording_whose_first_line_is_damaged_is_none_of_these(tmp_path, few):
    path, plain = tmp_path / "x.gpumon", tmp_path / "x.jsonl"
    record(path, few)
    data = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()
    plain.write_bytes(data.replace(b'"frame"', b'"fram3"'))
    with pytest.raises(GpumonError, match="its first line is damaged"):
        Recording(str(plain))


def test_the_demos_are_read(tmp_path):
    for name in demos.names():
        items, problems, _ = items_of(demos.path(name))
        assert len(items) > 900
        assert not problems
