"""Freed memory goes back to the system; glibc's allocator alone is meant."""

from __future__ import annotations

import gc
import subprocess
import sys

from gpumon.heap import uncollected
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S

#: of 32 MiB every second block is freed, and most of that must be gone after `trim`
HOLES = """
from gpumon import heap

def anonymous_mib():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("Anonymous:"))

blocks = [b"x" * (16 << 10) for _ in range(2048)]
before = anonymous_mib()
del blocks[::2]
heap.trim()
print(before - anonymous_mib())
"""


def test_what_is_free_between_used_blocks_goes_back():
    done = subprocess.run(
        [sys.executable, "-c", HOLES], env=environment(), capture_output=True, text=True,
        timeout=HANGS_S, check=True,
    )  # fmt: skip
    assert int(done.stdout) >= 8


def test_no_collection_of_cycles_until_the_outermost_work_ends():
    assert gc.isenabled()
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
