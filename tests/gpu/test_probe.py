"""The probe in real frameworks on a real GPU, which alone has memory pools.

They must be installed for the Python that GPUMON_TESTS_PYTHON names, or that runs the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.probe.world import WAIT, World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="no NVIDIA GPU here"),
]
PYTHON = os.environ.get("GPUMON_TESTS_PYTHON", sys.executable)
GIB = 1 << 30

#: use 2 GiB and then 1 GiB, and print the framework's own figures: in use and peak
PROGRAMS = {
    "torch": """
import torch
kept = torch.ones(1 << 28, device="cuda")
gone = torch.ones(1 << 28, device="cuda")
del gone
print(json.dumps([torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]))
""",
    "jax": """
import jax
kept = jax.numpy.ones(1 << 28).block_until_ready()
gone = jax.numpy.ones(1 << 28).block_until_ready()
del gone
stats = jax.local_devices()[0].memory_stats()
print(json.dumps([stats["bytes_in_use"], stats["peak_bytes_in_use"]]))
""",
    "tensorflow": """
import tensorflow as tf
with tf.device("GPU:0"):
    kept = tf.ones(1 << 28)
    gone = tf.ones(1 << 28)
del gone
stats = tf.config.experimental.get_memory_info("GPU:0")
print(json.dumps([stats["current"], stats["peak"]]))
""",
}
#: what has each take memory only as it needs it
GROWTH = {
    "torch": {},
    "jax": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "tensorflow": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
}


def told(folder: Path, name: str, **variables: str) -> tuple[dict[str, Any], list[int]]:
    """The pool that the probe read, and the framework's own figures at the same time."""
    folder.mkdir()
    world = World(folder)
    text = f"{WAIT}{PROGRAMS[name]}\ntold(lambda found: found['pools'])\ntime.sleep(3)\n"
    code, out, err = world.run(text, python=PYTHON, **variables)
    assert code == 0, f"{PYTHON} needs {name} for CUDA: {err.decode()[-2000:]}"
    (pool,) = world.last()["pools"]
    return pool, json.loads(out)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_probe_reads_the_need_however_much_is_preallocated(tmp_path: Path, name: str) -> None:
    pool, (used, peak) = told(tmp_path / "usual", name)
    assert (pool["by"], pool["device"]) == (name, 0)
    assert pool["used"] == used
    assert pool["peak"] == peak
    assert 2 * GIB <= peak < 2.2 * GIB
    grown, _ = told(tmp_path / "growth", name, **GROWTH[name])
    assert pool["peak"] == pytest.approx(grown["peak"], rel=0.1)
