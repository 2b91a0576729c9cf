"""In a hostile world a program ends, prints and waits as without the probe."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpumon.services import probing
from tests.probe.hostile import DEEDS, ROOTS, Hostile, ran, world
from tests.probe.standins import TORCH, plant
from tests.support.waiting import HANGS_S

#: all deeds once; GPUMON_WORLDS=0-1000 for more
_FIRST, _LAST = map(int, os.environ.get("GPUMON_WORLDS", f"0-{len(DEEDS) + len(ROOTS)}").split("-"))


def both(seed: int, hostile: Hostile, base: Path, python: str = sys.executable) -> tuple:
    """What a program did with the probe, and without it."""
    found = []
    alone = hostile._replace(call="the optimizer's")
    for name, this in (("with", hostile), ("without", alone)):
        within = base / f"{seed}-{name}"
        packages = plant(within / "site-packages", TORCH)
        told = this.made(within)
        environ = {
            **os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(within), "TOLD": str(within / "told"),
            "GPUMON_STATE": str(within / "state"),
        }  # fmt: skip
        if name == "with":
            environ["GPUMON_PROBE_DIR"] = told
            environ["PYTHONPATH"] = os.pathsep.join([probing.INSIDE, str(packages)])
        code, out, err = ran(this, within, environ, python, HANGS_S)
        found.append((code, out, err.replace(str(within).encode(), b"HERE")))
    return tuple(found)


@pytest.mark.slow
def test_a_program_notices_nothing(tmp_path):
    worlds = {seed: world(seed) for seed in range(_FIRST, _LAST)}
    with ThreadPoolExecutor(4) as threads:
        found = dict(
            zip(worlds, threads.map(lambda seed: both(seed, worlds[seed], tmp_path), worlds))
        )
    felt = {worlds[seed]: each for seed, each in found.items() if each[0] != each[1]}
    assert not felt, "\n".join(f"{of}\n  {one}\n  {other}" for of, (one, other) in felt.items())
