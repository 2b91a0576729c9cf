"""The emulated driver's binaries, built on first use."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"


def _make(target: str) -> None:
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest-xdist start together
        # a make that runs the tests must not pass its own flags and job server down
        env = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
        command = ["make", "-s", "-j2", "-C", str(HERE), target]
        done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"the emulated driver does not build:\n{done.stderr}")


@functools.cache
def library_dir() -> Path:
    """The folder with libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    _make("all")
    return BUILD


@functools.cache
def old_library_dir(version: str) -> Path:
    """As `library_dir`, without the symbols that drivers of that time had not: 418, 470 or 510."""
    _make("all")
    _make(f"old-{version}")
    return BUILD / "old" / version


@functools.cache
def binding_dir() -> Path:
    """A folder with nothing but the official Python binding, for PYTHONPATH.

    The abandoned distribution `pynvml` installs a package of the same name, which hides the
    module of `nvidia-ml-py` when both are installed.
    """
    folder = BUILD / "binding"
    folder.mkdir(parents=True, exist_ok=True)
    official = Path(str(metadata.distribution("nvidia-ml-py").locate_file("pynvml.py")))
    link = folder / f".pynvml.{os.getpid()}"
    link.symlink_to(official)
    link.replace(folder / "pynvml.py")
    return folder
