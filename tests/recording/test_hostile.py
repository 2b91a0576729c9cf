"""What is no recording, or made to do harm, costs one line and little memory."""

import os
import subprocess
import sys

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from gpumon.recording.blocks import Identity, trailer
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.encoder import Encoder
from tests.e2e.program import ROOT
from tests.recording import made
from tests.recording.recorded import samples_of, zstd
from tests.support.examples import examples
from tests.support.waiting import HANGS_S

ANY = Identity(bytes(8), 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"SQLite", "is a text file, not a recording"),
        (b"SQLite format 3\0" + bytes(9), "is a binary file, not a recording"),
        (b"\x93R\x00", "is a binary file, not a recording"),
        (zstd(b"hello\n" * 100), "is a text file, not a recording"),
        (zstd(b'{"a":1}\n' * 100), "is a JSON file, not a recording"),
        (zstd(b'{"wire":"2.0","node":"x"}\n' * 2), "format 2.0"),
        (zstd((Encoder().header(made.header()) + "\n").encode()), "before the first sample"),
        (zstd(b"[" * 100_000 + b"\n"), "is a text file, not a recording"),
        (b"\x28\xb5\x2f\xfd", "cut off"),
        (b"\x5a\x2a\x4d\x18" + (1 << 30).to_bytes(4, "little"), "not a gpumon recording"),
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
    with pytest.raises(NotFoundError, match="gpumon runs"):
        Recording(str(tmp_path / "no.gpumon"))
    with pytest.raises(GpumonError, match="cannot read"):
        Recording(str(tmp_path))


def test_nobody_waits_for_a_pipe(tmp_path):
    path = tmp_path / "pipe.gpumon"
    os.mkfifo(path)
    for what in (path, "/dev/null"):
        with pytest.raises(WireError, match="not a regular file"):
            Recording(str(what))


_BOMB = """
import resource, sys
from gpumon.errors import GpumonError
from gpumon.recording import Recording
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with Recording(sys.argv[1]) as recording:
        n = sum(1 for _ in recording.items())
        print("read", n, len(recording.problems))
except GpumonError as error:
    print("refused", error)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 64 << 10, grown
"""


@pytest.mark.slow
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
    assert "decompresses to far more than a recording can hold" in done.stdout


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
        assert any("1 line could" in problem for problem in recording.problems)


def test_trailers_that_lie_mislead_to_nothing(tmp_path, small):
    data = small.read_bytes()
    path = tmp_path / "x.gpumon"
    for lie in (
        trailer(10, 0.0, 0.0, True, ANY),
        trailer(len(data), float("nan"), 1.0, True, ANY),
        trailer(0, 1.0, 2.0, False, ANY),
        trailer(0xFFFFFFFF, 1.0, 2.0, True, ANY),
        trailer(len(data), 1.0, float("nan"), True, ANY),
    ):
        path.write_bytes(data + lie)
        with Recording(str(path)) as recording:
            assert len(samples_of(recording.items())) == 66


def test_times_that_no_clock_has(tmp_path, small, few):
    """In a trailer, and in lines that are only looked over."""
    path = tmp_path / "x.gpumon"
    with Recording(str(small)) as recording:
        last, end = recording._parts[-1], recording.end
    for time in (1e300, -1e300, 1e12):
        lie = trailer(last.end - last.begin, last.start, time, False, last.identity)
        path.write_bytes(small.read_bytes()[: last.end] + lie)
        with Recording(str(path)) as recording:
            assert recording.end == end
    encoder = Encoder()
    lines = [encoder.header(made.header()), *map(encoder.sample, few)]
    for told in ("1.2.3", "9" * 29):
        odd = f'{{"t":{told},"m":5,"rows":{{}}}}'
        path.write_text("\n".join([*lines, odd, ""]))
        with Recording(str(path)) as recording:
            ticks = [item.time for item in samples_of(recording.ticks())]
            assert ticks == [round(sample.time, 3) for sample in few]


@examples(200)
@given(st.binary(max_size=600), st.sampled_from(["frame", "trailer", "lines"]))
def test_random_bytes_raise_nothing_but_one_line(tmp_path_factory, data, kind):
    encoder = Encoder()
    start = f"{encoder.header(made.header())}\n{encoder.sample(Sample(1.0, 1.0, {}))}\n".encode()
    content = {
        "frame": zstandard.FRAME_HEADER + data,
        "trailer": zstd(start) + data + trailer(len(data), 1.0, 2.0, True, ANY),
        "lines": zstd(start + data),
    }[kind]
    path = tmp_path_factory.getbasetemp() / "random.gpumon"
    path.write_bytes(content)
    try:
        with Recording(str(path)) as recording:
            assert all(isinstance(item, (Header, Sample)) for item in recording.items())
            said = recording.problems
    except GpumonError as error:
        said = [str(error)]
    assert all("\n" not in each for each in said)
