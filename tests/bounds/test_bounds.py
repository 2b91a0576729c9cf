"""No input fills the memory of who watches, reports, exports or replays it, and none ends them."""

import json
import subprocess
import sys

import pytest

from tests.bounds.bombs import SINGLE
from tests.e2e.program import ROOT

pytestmark = pytest.mark.slow

#: a recording is read several times, which takes long: half the bomb, and half the memory
MOST_MIB = {"live": 300, "recorded": 240}
_HANGS_S = 600
#: MB of a bomb that are enough to show that it grows; of others a few lines are
_LARGE = {"new_device_keys": 10, "time_jumps": 2, "one_moment": 8, "new_headers": 6,
          "processes": 12, "wild_times": 1}  # fmt: skip
#: and of those that cost a reader most, as each of their lines has rows of a thousand devices
_LEAST = {"time_jumps": 1, "wild_times": 1}
_MB, _SECONDS = 3, 8
#: bombs that are cut at once, which somebody has to say
_CUT = ("new_device_keys", "new_devices", "states", "events", "processes", "labels")


def peak(way, bomb, folder):
    """MiB at most. That something was cut is said, where it was."""
    large = _LARGE.get(bomb, _MB) // (2 if way == "recorded" else 1)
    size = str(max(large, _LEAST.get(bomb, _MB)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.bounds.feed", way, bomb, str(folder), size, str(_SECONDS)],
        capture_output=True, text=True, timeout=_HANGS_S, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["lines"] > 1
    assert bomb not in _CUT or any("left out" in text for text in told["said"]), told["said"]
    return told["peak_mib"]


@pytest.mark.parametrize("bomb", [*SINGLE, "mixed-1", "mixed-2"])
def test_no_stream_fills_the_memory_of_who_watches_it(tmp_path, bomb):
    assert peak("live", bomb, tmp_path) <= MOST_MIB["live"]


@pytest.mark.parametrize("bomb", [*SINGLE, "mixed-1", "mixed-2"])
def test_no_recording_fills_the_memory_of_who_reads_it(tmp_path, bomb):
    assert peak("recorded", bomb, tmp_path) <= MOST_MIB["recorded"]
