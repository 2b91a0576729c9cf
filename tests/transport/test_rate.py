"""A live stream that sends far more than any agent does is ended, with a sentence."""

import collections
import itertools

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.model.spacing import Spacing
from gpumon.sources.attempt import Attempt
from gpumon.transport import rate
from gpumon.transport.intake import MAX_NOISE_BYTES, Intake, Lines
from gpumon.transport.rate import Rate, TooFast
from gpumon.transport.stream import Failure
from gpumon.wire import MAX_LINE_BYTES
from tests.bounds import bombs
from tests.sources.sinks import node


class Pipe:
    """A stream of given bytes, in pieces of one size."""

    def __init__(self, lines, piece=65536):
        self._lines = lines
        self._piece = piece
        self._rest = b""
        self.closed = False

    def read(self):
        while len(self._rest) < self._piece:
            line = next(self._lines, None)
            if line is None:
                break
            self._rest += line + b"\n"
        data, self._rest = self._rest[: self._piece], self._rest[self._piece :]
        return data

    def write(self, data):
        pass

    def close(self):
        self.closed = True

    def complaint(self):
        return ""


class Sink:
    def __init__(self):
        self.headers, self.samples = [], []

    def header(self, node, header):
        self.headers.append(header)

    def add(self, node, sample, received=None):
        self.samples.append(sample)

    def status(self, node, status):
        pass

    def reset(self):
        pass


def follow(lines, sink=None):
    sink = sink or Sink()
    attempt = Attempt(None, node(Pipe(lines), sink))
    try:
        attempt.arrive()
    except Failure as failure:
        return failure.text
    while attempt.take():
        pass
    return attempt.outcome()


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb", ["same_headers", "new_headers", "tiny", "one_moment", "long_lines"]
)
def test_a_stream_without_end_is_cut_off_in_words(bomb):
    why = follow(bombs.lines_of(bomb))
    assert "cut off: it sent" in why
    assert "MB" in why


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 60.0])
def test_an_agent_at_its_interval_is_never_cut_off(interval_s):
    """For a day, in the largest samples that one line takes a quarter of; a header each hour."""
    now = [0.0]
    limit = Rate(lambda: now[0])
    size = min(250_000, int(interval_s * 200_000))
    for turn in range(20_000):
        now[0] += interval_s
        limit.take(size, is_sample=turn % 3600 > 0)


def test_what_waited_while_a_connection_was_held_up_is_taken():
    """Two minutes at the shortest interval, and what fits the buffers on the way."""
    limit = Rate(lambda: 0.0)
    for _ in range(1200):
        limit.take(10_000, is_sample=True)


def test_more_than_that_is_not():
    now = itertools.count(0, 0.01)
    limit = Rate(lambda: next(now))
    lines = [10] * 20 * rate.BURST_SAMPLES
    with pytest.raises(TooFast, match="lines with"):
        collections.deque((limit.take(size, is_sample=True) for size in lines), maxlen=0)


def test_what_could_not_be_taken_is_a_note_of_the_header():
    sink = Sink()
    lines = [bombs.header(), *(bombs.sample(n, {}) for n in range(3)), *[b"{torn"] * 12]
    follow(iter(lines), sink)
    notes = [header.notes for header in sink.headers]
    assert notes[0] == []
    assert [each[0].split(" of this")[0] for each in notes[1:]] == ["1 line", "10 lines"]


def test_samples_behind_a_refused_header_are_counted():
    intake = Intake()
    good = bombs.sample(1.0, {"device.fast": [bombs.row("device.fast", 0)]})
    found = [
        intake.line(line)
        for line in (bombs.header(), good, bombs.header(t=None), good, good, bombs.header(), good)
    ]
    kinds = ["".join("H" if isinstance(each, Header) else "S" for each in some) for some in found]
    assert kinds == ["H", "S", "H", "", "", "H", "S"]
    assert isinstance(found[-1][0], Sample)
    assert intake.bad_lines == 3
    assert Intake().line(good) == []  # whatever it is, its columns are unknown


def test_a_line_too_long_is_one_bad_line():
    lines = Lines()
    got = []
    for _ in range(5 * MAX_LINE_BYTES // 65536):
        got += lines.feed(b"x" * 65536)
    got += lines.feed(b"\nshort\n")
    assert [len(line) > MAX_LINE_BYTES for line in got] == [True, False]
    assert len(got[0]) <= MAX_LINE_BYTES + 1 + 65536


@pytest.mark.parametrize(
    ("claimed", "spacing", "believed"),
    [(3600, 1.0, 1.0), (3600, 60, 60), (1, 1.0, 1), (1, 5.0, 1), (60, 59, 60), (3600, 0.01, 0.1)],
)
def test_an_interval_is_believed_as_far_as_samples_come_by_it(claimed, spacing, believed):
    seen = Spacing()
    for n in range(6):
        seen.note(100.0 + n * spacing)
    assert seen.interval_s(claimed) == pytest.approx(believed)


def test_two_samples_are_too_few_to_doubt_an_interval():
    """The first comes at once, the next on the clock's grid."""
    seen = Spacing()
    seen.note(0.0)
    assert seen.interval_s(60) == 60
    seen.note(0.3)
    assert seen.interval_s(60) == 60


NOISE = [b"motd\n", b"\x00\xff{}[\n", b'{"s":1}\n', b"no end of line", b""]


@pytest.mark.parametrize("noise", NOISE)
def test_what_comes_before_the_first_header_is_skipped(noise):
    lines, intake = Lines(), Intake()
    data = noise + bombs.header() + b"\n"
    got = [item for line in lines.feed(data) for item in intake.line(line)]
    assert [type(item) for item in got] == [Header]
    assert intake.bad_lines == 0


@pytest.mark.parametrize("noise", NOISE[:-1])
def test_more_than_the_bound_before_the_first_header_is_named(noise):
    pieces = [noise * (65536 // len(noise))] * (MAX_NOISE_BYTES // 65536 + 2)
    why = follow(iter(pieces))
    assert "16 MiB of other output came before the agent's first line" in why
