"""What every program is measured on: the emulated driver with 8 A100 and 16 real processes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.nvml.emulator import Emulated, binding_dir, read_stats

ROOT = Path(__file__).parents[1]
SCENARIO = "a100x8"


class Calls(NamedTuple):
    """NVML calls so far, and how many of them the driver answered with an error."""

    total: int
    failing: int


class Bed:
    """Gives each program an environment of its own, in which the scenario starts afresh."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = env

    def program_env(self) -> dict[str, str]:
        own = Path(tempfile.mkdtemp(dir=self._folder))
        return {
            **self._env,
            "FAKE_NVML_EPOCH": repr(time.time()),
            "FAKE_NVML_STATS": str(own / "stats"),
            "XDG_STATE_HOME": str(own / "state"),
        }

    def calls(self, env: dict[str, str]) -> Calls:
        """Count the calls of all processes that had this environment."""
        files = Path(env["FAKE_NVML_STATS"]).parent.glob("stats.*")
        counts = [count for file in files for count in read_stats(file).values()]
        return Calls(sum(each.calls for each in counts), sum(each.errors for each in counts))


@contextmanager
def bed() -> Iterator[Bed]:
    with Emulated(SCENARIO) as gpus, tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        env = {
            **{name: text for name, text in gpus.env.items() if not name.startswith("PYTHON")},
            # gpumon from this checkout, and the official binding where another one hides it
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(binding_dir())]),
            # compiled modules as an installed program has them, without writing to the checkout:
            # the first run of each program fills the folder and is not counted
            "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_HOME": f"{folder}/config",
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR", "TMUX"):
            env.pop(name, None)
        yield Bed(Path(folder), env)
