"""The layers of the tests: markers for what a test needs, so that a run can leave it out.

Folders and fixtures bring `slurm` and `ssh`; `terminal` and `slow` are written at the test or file.
A test that starts a program of a layer without having its marker fails.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

#: by folder of tests, by fixture, and by program that a test starts
_FOLDERS = {"e2e": "slow", "ssh": "ssh"}
_FIXTURES = {"cluster": "slurm", "world": "ssh", "prometheus": "slow"}
_PROGRAMS = {
    "cluster.sh": "slurm",
    "ssh": "ssh", "sshd": "ssh", "ssh-agent": "ssh", "ssh-add": "ssh", "ssh-keygen": "ssh",
    "tmux": "terminal",
}  # fmt: skip
#: what a run for every edit leaves out
NOT_FAST = frozenset({"slurm", "ssh", "terminal", "slow", "gpu"})

#: (layer, program) that the running test used
_used: set[tuple[str, str]] = set()


def of(folder: str, fixtures: Iterable[str]) -> set[str]:
    """The layers of all tests in a folder of this name, and of those with these fixtures."""
    found = {_FIXTURES[name] for name in fixtures if name in _FIXTURES}
    return found | ({_FOLDERS[folder]} if folder in _FOLDERS else set())


def without_marker(markers: Iterable[str]) -> list[str]:
    """Programs that were started since the last call by a test with these markers only."""
    has = set(markers)
    found = [f"{program} ({layer})" for layer, program in sorted(_used) if layer not in has]
    _used.clear()
    return found


def watch() -> None:
    """Note from now on what this process starts."""
    sys.addaudithook(_audit)
    openpty = os.openpty

    def noted() -> tuple[int, int]:
        _used.add(("terminal", "openpty"))
        return openpty()

    os.openpty = noted  # raises no audit event


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.forkpty":
        _used.add(("terminal", "forkpty"))
    elif event == "subprocess.Popen":
        executable, _, _, env = arguments
        name = os.path.basename(os.fsdecode(executable))
        if (layer := _PROGRAMS.get(name)) and not _stands_in(os.fsdecode(executable), env):
            _used.add((layer, name))


def _stands_in(program: str, env: Any) -> bool:
    """Whether it is a script of the test's own, in a folder of its own."""
    path = (os.environ if env is None else env).get("PATH")
    found = shutil.which(program, path=path) or program
    return not found.startswith(("/usr/", "/bin/", os.path.dirname(os.path.dirname(__file__))))
