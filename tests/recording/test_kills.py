"""Recorders that are killed at any moment: what they flushed is read, and little is lost.

`GPUMON_KILLS=200` kills as many, at their real pace: a sample a second, flushed every 10 s. Else a
few are, ten times as fast.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import zstandard

from gpumon.errors import WireError
from gpumon.recording import Recording
from tests.e2e.program import ROOT
from tests.recording import made
from tests.recording.recorded import samples_of
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("GPUMON_KILLS", "0"))
INTERVAL_S = 1.0 if KILLS else 0.1
FLUSH_S = 10 * INTERVAL_S
AT_ONCE = 20
#: says of each sample when it came, and whether all that was flushed before it is on disk: one that
#: was held up for a while brings several at once
_RECORDER = """
import sys, time
from tests.frames.framing import FramedRecorder
from gpumon.recording import Recorder
from tests.recording import made
path, interval_s = sys.argv[1], float(sys.argv[2])
recorder = FramedRecorder(path, flush_s=10 * interval_s, frame_s=25 * interval_s)
recorder.header(made.header()._replace(interval_s=interval_s))
began = time.monotonic()
for n, sample in enumerate(made.samples(100_000, interval_s=interval_s)):
    time.sleep(max(0.0, began + n * interval_s - time.monotonic()))
    written = not recorder.pending_bytes
    came = time.monotonic()
    recorder.add(sample)
    print(round(sample.time, 3), came, int(written), flush=True)
"""


def shown_by_zstd(path):
    """The samples' times that `zstd -dc` shows, without what is repeated."""
    if shutil.which("zstd"):
        shown = subprocess.run(["zstd", "-dcq", str(path)], capture_output=True).stdout
    else:
        unpacker = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True)
        shown = unpacker.decompress(path.read_bytes())
    lines = shown.split(b"\n")[:-1]
    bodies = [json.loads(line) for line in lines if not line.startswith(b'{"restated"')]
    return [body["t"] for body in bodies if "t" in body and "wire" not in body]


@pytest.mark.parametrize("batch", range(max(1, KILLS // AT_ONCE)))
def test_what_was_flushed_is_read_and_nothing_else_is_lost(tmp_path, batch):
    rng = random.Random(batch)
    count = AT_ONCE if KILLS else 6
    recorders = []
    for n in range(count):
        path = tmp_path / f"{n}.gpumon"
        command = [sys.executable, "-c", _RECORDER, str(path), str(INTERVAL_S)]
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        recorders.append((running, path, rng.uniform(0.0, 60 * INTERVAL_S)))
    lost, empty = [], 0
    try:
        first = {path: running.stdout.readline() for running, path, _ in recorders}
        assert all(first.values())  # they have begun
        began = time.monotonic()
        for running, path, after_s in sorted(recorders, key=lambda each: each[2]):
            time.sleep(max(0.0, began + after_s - time.monotonic()))
            running.send_signal(signal.SIGKILL)
            said = first[path] + running.communicate(timeout=HANGS_S)[0]
            taken = [line.split() for line in said.splitlines()]
            came = {float(at): float(when) for at, when, _ in taken}
            shown = shown_by_zstd(path)
            try:
                with Recording(str(path)) as recording:
                    read = [sample.time for sample in samples_of(recording.items())]
            except WireError:
                read, empty = [], empty + 1
            assert read == shown
            # a file system that is slow is no loss of ours: up to when nothing waited for it
            settled = [float(when) for _, when, written in taken if written == "1"][-1:]
            newest = came[round(read[-1] if read else made.START, 3)]
            lost.append(max([when - newest for when in settled], default=0.0))
    finally:
        for running, *_ in recorders:
            running.kill()
            running.wait()
    assert max(lost) <= FLUSH_S + 0.01
    print(f"{len(lost)} killed, {empty} without a sample, at most {max(lost):.1f} s lost")
