"""Whatever happens to a file's bytes: no value is read that was not recorded, and gaps are said.

`GPUMON_FLIPS` sets how many damaged files are tried.
"""

import os
import random
import shutil
import time
from collections import Counter
from contextlib import suppress

import pytest

from gpumon.errors import GpumonError
from gpumon.frames.lines import lines_of
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recorder, Recording, zstd
from tests.frames.alike import differences
from tests.frames.framing import FramedRecorder
from tests.recording.recorded import Clock
from tests.recording.streams import by_frames, stream

pytestmark = pytest.mark.slow

FLIPS = int(os.environ.get("GPUMON_FLIPS", "300"))
HAPPENINGS = [(3, "comes"), (20, "comes"), (50, "missing"), (61, "missing"), (70, "xid"),
              (72, "lost"), (85, "well"), (95, "leaves"), (105, "header")]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Name -> file: finished and not, with rollup lines and without."""
    folder = tmp_path_factory.mktemp("flips")
    found = {}
    for name, kind in (("lines", Recorder), ("frames", FramedRecorder)):
        path, torn = folder / f"{name}.gpumon", folder / f"{name}-torn.gpumon"
        clock = Clock()
        recorder = kind(str(path), clock=clock, frame_s=40.0)
        for item in stream(3, 150, HAPPENINGS):
            clock.now = item.mono
            recorder.header(item) if isinstance(item, Header) else recorder.add(item)
        while recorder.pending_bytes:
            time.sleep(0.001)
        shutil.copy(path, torn)
        os.utime(torn, (1e9, 1e9))
        recorder.close("done")
        assert not recorder.failed
        found |= {path.stem: path, torn.stem: torn}
    return found


class Read:
    """All that one file gives."""

    def __init__(self, path):
        os.utime(path, (1e9, 1e9))  # nobody writes there any more
        with Recording(str(path)) as recording:
            self.about = (recording.header, recording.start, recording.end)
            self.state = recording.state
            self.items = list(recording.items())
            opened = [each.opened() for each in recording.stretches(shown=True)]
            self.frames = [lines_of(each, 0) for each in opened if each is not None]
            self.problems = list(recording.problems)


class Truth(Read):
    """Of an undamaged file; each frame was also read alone, as behind a damaged one."""

    def __init__(self, path):
        super().__init__(path)
        self.path = path
        with Recording(str(path)) as recording:
            starts = [part.start for part in recording._parts]
            every = [item for at in starts for item in recording.items(at)]
        self.headers = [item for item in every if isinstance(item, Header)]
        self.samples = {}
        for item in every:
            if isinstance(item, Sample):
                self.samples.setdefault(item.time, []).append(item)
        self.data = set(map(tuple, self.frames))
        self.edges = edges_of(path)

    def falsehoods(self, read):
        """What was read and never recorded."""
        header, start, end = read.about
        if header not in self.headers:
            yield f"header {header}"
        if start not in self.samples or end not in self.samples:
            yield f"from {start} to {end}"
        for item in read.items:
            known = self.headers if isinstance(item, Header) else self.samples.get(item.time, ())
            if item not in known:
                yield f"{item}"
        for lines in read.frames:
            if tuple(lines) not in self.data:
                yield f"frame {lines}"

    def silences(self, read):
        """What is missing without a word."""
        if read.problems == self.problems:
            same = ("about", "state", "items")
            yield from (
                name for name in same if repr(getattr(read, name)) != repr(getattr(self, name))
            )


def _range(rng, data, most=4000):
    begin = rng.randrange(len(data))
    return begin, min(len(data), begin + rng.randrange(1, most))


def flip(rng, data):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def substitute(rng, data):
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[rng.randrange(len(data))] = rng.randrange(256)


def truncate(rng, data):
    del data[rng.randrange(8, len(data)) :]


def drop(rng, data):
    begin, end = _range(rng, data)
    del data[begin:end]


def duplicate(rng, data):
    begin, end = _range(rng, data)
    at = rng.choice((end, rng.randrange(len(data))))
    data[at:at] = data[begin:end]


def swap(rng, data):
    cuts = sorted(rng.randrange(len(data)) for _ in range(4))
    a, b, c, d = cuts
    data[a:d] = data[c:d] + data[b:c] + data[a:b]


def zero(rng, data):
    begin, end = _range(rng, data)
    begin = rng.choice((begin, begin & ~511))
    end = rng.choice((end, len(data)))
    data[begin:end] = bytes(end - begin)


def insert(rng, data):
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randrange(1, 200))


DAMAGES = (flip, flip, flip, flip, substitute, substitute, truncate, drop, duplicate, swap, zero,
           insert)  # fmt: skip


def on_block_edges(rng, truth, data):
    """Whole frames, or parts of a file between two flushes, are skipped, repeated or swapped."""
    a, b, c = sorted(rng.sample(truth.edges, 3))
    kind = rng.choice(("skip", "repeat", "swap"))
    if kind == "skip":
        del data[a:b]
    elif kind == "repeat":
        data[b:b] = data[a:b]
    else:
        data[a:c] = data[b:c] + data[a:b]


def edges_of(path):
    """Where frames, their blocks and their trailers begin."""
    data = path.read_bytes()
    found = {0, len(data)}
    with Recording(str(path)) as recording:
        for frame in recording._parts:
            found |= {frame.begin, frame.end, frame.behind or frame.end}
            with suppress(zstd.Torn):
                for begin, _ in zstd.blocks(lambda size, at: data[at : at + size],
                                            frame.begin, frame.end):  # fmt: skip
                    found.add(begin)
    return sorted(found)


def test_no_false_value_and_no_silent_gap(tmp_path, corpus):
    truths = {name: Truth(path) for name, path in corpus.items()}
    for truth in truths.values():
        assert list(truth.falsehoods(truth)) == []
    path = tmp_path / "x.gpumon"
    seen, wrong = Counter(), []
    for n in range(FLIPS):
        rng = random.Random(n)
        name = rng.choice(list(truths))
        truth = truths[name]
        data = bytearray(truth.path.read_bytes())
        damage = rng.choice((*DAMAGES, None))
        if damage is None:
            on_block_edges(rng, truth, data)
        else:
            damage(rng, data)
        path.write_bytes(data)
        try:
            read = Read(path)
        except GpumonError:
            seen["refused"] += 1
            continue
        found = [*truth.falsehoods(read), *truth.silences(read)]
        if found:
            kind = damage.__name__ if damage else "edges"
            wrong.append(f"{n} {name} {kind}: {found[0][:200]} ({len(found)})")
        seen["whole" if read.items == truth.items else "part"] += 1
        if n % 20 == 0 and read.items == truth.items and read.problems == truth.problems:
            assert differences(by_frames(path)[0], by_frames(truth.path)[0]) == []
            seen["evidence"] += 1
    assert wrong == []
    assert min(seen[each] for each in ("refused", "whole", "part")) > 0
    print(dict(seen))
