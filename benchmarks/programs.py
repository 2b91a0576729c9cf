"""The programs that are measured, and where they are found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

GPUMON = [sys.executable, "-m", "gpumon"]


class Live(NamedTuple):
    """A program that runs on; `marker` is a text of its first full screen."""

    name: str
    argv: tuple[str, ...]
    marker: str
    terminal: bool = True


class Shot(NamedTuple):
    """A command that ends by itself."""

    name: str
    argv: tuple[str, ...]


LIVE = (
    Live("gpumon", ("gpumon",), "busy"),
    Live("gpumon collect", ("gpumon", "collect", "--interval", "1"), "\n", terminal=False),
    Live("nvitop", ("nvitop",), "Processes:"),
    Live("nvitop 1 s", ("nvitop", "--interval", "1"), "Processes:"),
    Live("gpustat -i 1", ("gpustat", "--interval", "1"), "[7]"),
    Live("nvtop 1 s", ("nvtop", "--delay", "10"), "Device 7"),
    # it needs a Slurm job; its demonstration draws the same screen from made-up numbers
    Live("slurmwatch --demo 1 s", ("slurmwatch", "--demo", "--interval", "1"), "GPU"),
    Live("btop (no GPUs)", ("btop",), "cpu"),
)

ONCE = (
    Shot("gpumon once", ("gpumon", "once")),
    Shot("gpumon once --json", ("gpumon", "once", "--json")),
    Shot("nvitop -1", ("nvitop", "-1")),
    Shot("gpustat", ("gpustat",)),
    Shot("nvtop -s", ("nvtop", "-s")),
)

HELP = (
    Shot("gpumon --help", ("gpumon", "--help")),
    Shot("gpumon --version", ("gpumon", "--version")),
    Shot("nvitop --help", ("nvitop", "--help")),
    Shot("gpustat --help", ("gpustat", "--help")),
    Shot("slurmwatch --version", ("slurmwatch", "--version")),
    Shot("python -c pass", (sys.executable, "-c", "pass")),
)


#: the same of another checkout, by `--before`
BEFORE = "before"


def of_before(program: Live | Shot) -> Live | Shot:
    """The twin of one of gpumon's programs."""
    return program._replace(name=f"{BEFORE}: {program.name}", argv=(BEFORE, *program.argv[1:]))


class Found(NamedTuple):
    """Commands by program with their versions, and why the others are left out."""

    commands: dict[str, list[str]]
    versions: dict[str, str]
    missing: dict[str, str]

    def argv(self, program: Live | Shot) -> list[str] | None:
        first, *rest = program.argv
        if first == sys.executable:
            return list(program.argv)
        command = self.commands.get(first)
        return command + rest if command else None


def find(peers: list[Path], env: dict[str, str], before: Path | None = None) -> Found:
    """Look for each program in the directories of peers, beside this Python, then on PATH.

    `before` is another checkout of gpumon, which this Python runs too.

    A program whose `--version` fails is left out, with what it said.
    """
    path = os.pathsep.join([*map(str, peers), str(Path(sys.executable).parent), os.environ["PATH"]])
    found = Found({}, {}, {})
    for name in dict.fromkeys(program.argv[0] for program in (*LIVE, *ONCE, *HELP)):
        if name == sys.executable:
            continue
        where = shutil.which(name, path=path)
        command = GPUMON if name == "gpumon" else [where] if where else None
        if command is None:
            found.missing[name] = "not found"
            continue
        done = subprocess.run(
            [*command, "--version"], env=env, capture_output=True, text=True, timeout=30
        )
        said = (done.stdout + done.stderr).strip().split("\n")
        if done.returncode:
            found.missing[name] = f"`{name} --version` fails: {said[-1][:150]}"
            continue
        version = re.search(r"\d+(\.\w+)+", said[0])
        found.commands[name] = command
        found.versions[name] = version.group() if version else said[0][:40]
    if before is not None:
        paths = env["PYTHONPATH"].split(os.pathsep)
        path = os.pathsep.join([str(before.resolve()), *paths[1:]])
        # from another folder: with -m Python looks for modules in the current one first
        found.commands[BEFORE] = ["env", "--chdir=/", f"PYTHONPATH={path}", *GPUMON]
    return found
