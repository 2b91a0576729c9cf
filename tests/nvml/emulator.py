"""Run programs over the emulated NVIDIA driver.

    with Emulated("a100x8") as gpus:
        done = gpus.run([sys.executable, "-m", "gpumon", "once", "--json"])
        truth = gpus.expected()

LD_LIBRARY_PATH is read when a process starts, so the program under test is always another
process. From a shell:

    python -m tests.nvml.emulator run a100x8 [--freeze T] -- COMMAND...
    python -m tests.nvml.emulator show a100x8 [T]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.nvml.library import binding_dir, library_dir, old_library_dir
from tests.nvml.oracle import dump, expected
from tests.nvml.scenario import Proc, Scenario, scenario_path
from tests.support.waiting import HANGS_S

__all__ = [
    "CallStats",
    "Emulated",
    "Proc",
    "Scenario",
    "binding_dir",
    "dump",
    "expected",
    "library_dir",
    "old_library_dir",
    "read_stats",
    "scenario_path",
]

#: command lines of the stand-in jobs, in turn
_COMMANDS = (
    ("python", "train_resnet.py", "--epochs", "90", "--data", "/scratch/u1234/imagenet"),
    ("python", "-m", "torch.distributed.run", "--nproc", "8", "llama_ft.py", "--bf16"),
    ("python3", "tf_mnist.py", "--allocate-all"),
    ("python", "sweep.py", "--trial", "17"),
)


class CallStats(NamedTuple):
    """How often one NVML function was called."""

    calls: int
    errors: int
    seconds: float  # spent inside the library


def read_stats(path: Path) -> dict[str, CallStats]:
    """The call table that a process left behind (FAKE_NVML_STATS.<pid>; `struct table`).

    A process that is about to begin one has made no call.
    """
    data = path.read_bytes()
    if not any(data[:8]):
        return {}
    magic, slots, _pid, _start_ns, _init_ns = struct.unpack_from("<8sIIQQ", data)
    if magic != b"FNVMLST1":
        raise ValueError(f"{path} is not a call table")
    header, slot = struct.calcsize("<8sIIQQ") + 4064, struct.Struct("<96s5Q")
    found = {}
    for number in range(slots):
        name, calls, errors, ns, _first_ns, _last_ns = slot.unpack_from(
            data, header + number * slot.size
        )
        found[name.split(b"\0")[0].decode()] = CallStats(calls, errors, ns / 1e9)
    return found


class Emulated:
    """A scenario that is running: its environment, its stand-in jobs, its call statistics.

    scenario: a `Scenario`, a name from the folder `scenarios`, a path, or "preset:MODELxN".
    freeze_s: values stand still at this time; counters and time stamps stand still as well.
    start_s:  the scenario's time when the block is entered.
    driver:   "418", "470" or "510" for a library without the newer symbols.
    settable_clock: the programs' wall clock is the machine's and what `set_clock` adds.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        *,
        freeze_s: float | None = None,
        start_s: float = 0.0,
        driver: str | None = None,
        settable_clock: bool = False,
    ) -> None:
        self._settable_clock = settable_clock
        self._scenario = scenario
        self._freeze_s = freeze_s
        self._start_s = start_s
        self._library = old_library_dir(driver) if driver else library_dir()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.env: dict[str, str] = {}
        self.scenario = ""  # path or preset
        self.epoch_s = 0.0  # wall clock of the scenario's t=0

    def __enter__(self) -> Emulated:
        self._folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        if isinstance(self._scenario, Scenario):
            self.scenario = str(self._scenario.write(self._folder / "scenario.scn"))
        elif str(self._scenario).startswith("preset:"):
            self.scenario = str(self._scenario)
        else:
            self.scenario = str(scenario_path(self._scenario).resolve(strict=True))
        self._start_standins()
        self.epoch_s = time.time() - self._start_s
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML_SCENARIO": self.scenario,
            "FAKE_NVML_OVERRIDE": str(self._folder / "override.scn"),
            "FAKE_NVML_STATS": str(self._folder / "stats"),
            "FAKE_NVML_EPOCH": repr(self.epoch_s),
            "FAKE_NVML_STANDINS": ",".join(f"{name}={pid}" for name, pid in self.pids.items()),
        }
        if self._settable_clock:
            clock = self._folder / "clock"
            clock.write_bytes(struct.pack("d", 0.0))
            self.env["FAKE_WALL_CLOCK"] = str(clock)
            self.env["LD_PRELOAD"] = str(library_dir() / "wallclock.so")
        if self._freeze_s is not None:
            self.env["FAKE_NVML_FREEZE"] = repr(self._freeze_s)

    def _start_standins(self) -> None:
        """One real process for each @name in the scenario."""
        if self.scenario.startswith("preset:"):
            return
        text = re.sub("#.*", "", Path(self.scenario).read_text())
        names = dict.fromkeys(re.findall(r"^\s*proc\s*=\s*@(\w+)", text, re.MULTILINE))
        for number, name in enumerate(names):
            self._children[name] = subprocess.Popen(
                _COMMANDS[number % len(_COMMANDS)],
                executable=library_dir() / "sleeper",
                env={**os.environ, "SLEEPER_MB": str(5 + number % 8)},
            )

    @property
    def pids(self) -> dict[str, int]:
        """The stand-in jobs: name in the scenario (without @) -> pid."""
        return {name: child.pid for name, child in self._children.items()}

    def end(self, name: str) -> None:
        """End a stand-in job. The driver lists it no more, unless the scenario says reap=0."""
        child = self._children.pop(name)
        child.kill()
        child.wait()

    @property
    def t(self) -> float:
        """The scenario's time, in seconds."""
        return time.time() - self.epoch_s if self._freeze_s is None else self._freeze_s

    def override(self, text: str) -> None:
        """Change values while programs run: scenario lines that win; seen within 20 ms."""
        path = Path(self.env["FAKE_NVML_OVERRIDE"])
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def set_clock(self, added_s: float) -> None:
        """Set the wall clock of the programs that run, and of the driver in them."""
        with open(self.env["FAKE_WALL_CLOCK"], "r+b") as file:
            file.write(struct.pack("d", added_s))

    def expected(self, t: float | None = None) -> list[dict[str, Any]]:
        """What an ideal monitor shows at `t`, or now; see `oracle.expected`."""
        return expected(self.scenario, t, self.env)

    def run(
        self, command: Sequence[str | Path], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; its output is captured as text."""
        settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": HANGS_S}
        return subprocess.run(command, **{**settings, "env": self.env, **options})

    def stats(self) -> dict[str, CallStats]:
        """Calls of every process so far, added up: function -> CallStats."""
        total: dict[str, CallStats] = {}
        for path in self._folder.glob("stats.*"):
            for name, one in read_stats(path).items():
                old = total.get(name, CallStats(0, 0, 0.0))
                total[name] = CallStats(
                    old.calls + one.calls, old.errors + one.errors, old.seconds + one.seconds
                )
        return total


# -- the command -------------------------------------------------------------------------------
def _show(arguments: argparse.Namespace) -> int:
    with Emulated(arguments.scenario) as gpus:
        print(json.dumps(dump(gpus.scenario, arguments.t, gpus.env), indent=1))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    with Emulated(arguments.scenario, freeze_s=arguments.freeze, driver=arguments.driver) as gpus:
        code = subprocess.call(arguments.command, env=gpus.env)
        if arguments.stats:
            _print_stats(gpus.stats())
    return code


def _print_stats(stats: dict[str, CallStats]) -> None:
    for name, one in sorted(stats.items(), key=lambda item: -item[1].calls):
        each_us = 1e6 * one.seconds / max(1, one.calls)
        print(
            f"{one.calls:8} calls {one.errors:6} errors {each_us:9.1f} us  {name}", file=sys.stderr
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nvml.emulator")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run a command over a scenario, with its stand-in jobs")
    run.add_argument("scenario", help="name, path, or preset:MODELxN")
    run.add_argument("--freeze", type=float, metavar="T", help="time stands still at T seconds")
    run.add_argument("--driver", choices=("418", "470", "510"), help="hide newer symbols")
    run.add_argument("--stats", action="store_true", help="print the calls made, at the end")
    run.add_argument("command", nargs="+", metavar="-- COMMAND")
    run.set_defaults(action=_run)
    show = commands.add_parser("show", help="print what a scenario says at a time")
    show.add_argument("scenario")
    show.add_argument("t", type=float, nargs="?", default=0.0)
    show.set_defaults(action=_show)
    arguments = parser.parse_args()
    return int(arguments.action(arguments))


if __name__ == "__main__":
    sys.exit(main())
