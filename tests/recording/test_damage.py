"""A recording is read as far as it goes: cut at any byte, joined, damaged."""

import os
import random

import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpumon.errors import GpumonError, WireError
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from tests.recording import made
from tests.recording.recorded import record
from tests.support.examples import examples

pytestmark = pytest.mark.slow


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
            begin, skipped = at + 1, 0
            while data[begin + skipped + 8 : begin + skipped + 14] == b"gpumon":
                skipped += 8 + int.from_bytes(
                    data[begin + skipped + 4 : begin + skipped + 8], "little"
                )
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


@examples(150, suppress_health_check=[HealthCheck.too_slow])
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
            assert all("\n" not in problem for problem in recording.problems)
    except GpumonError as error:
        one_line = str(error)
    else:
        one_line = ""
    assert "\n" not in one_line


def test_a_file_whose_beginning_is_damaged_is_called_damaged(tmp_path):
    path = tmp_path / "x.gpumon"
    record(path, made.samples(3))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(WireError, match="is damaged at its beginning"):
        Recording(str(path))
