"""A clone of gpumon with an environment of its own, which borrows the packages of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

from gpumon.toml import read_toml

ROOT = Path(__file__).parents[2]
#: pip's settings of a node without network: what is asked refuses at once
NO_NETWORK = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_EXTRA_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_FIND_LINKS": "/nonexistent",
    "PIP_RETRIES": "0",
}
_WITHOUT = shutil.ignore_patterns("__pycache__")


class Clone:
    """`program` is its launcher."""

    def __init__(self, root: Path) -> None:
        """Without an environment."""
        self.root = root
        self.program = root / "bin" / "gpumon"
        for name in ("gpumon", "bin"):
            shutil.copytree(ROOT / name, root / name, ignore=_WITHOUT)
        (root / "docs").mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE", "docs/gpumon.1"):
            shutil.copy(ROOT / name, root / name)

    def prepare(self) -> Clone:
        """Make the environment, as if bin/venv had."""
        folder = self.root / ".venv-first"
        venv.create(folder, symlinks=True, with_pip=False)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (self.root / ".venv").symlink_to(folder.name)
        listed = read_toml(str(self.root / "pyproject.toml"))["project"]["dependencies"]
        self.stamp.write_text("\n".join(listed) + "\n")
        return self

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / ".gpumon-stamp"

    def depend_on(self, *packages: str) -> None:
        """A `git pull` brings these dependencies in place of the others."""
        file = self.root / "pyproject.toml"
        head, found, tail = file.read_text().partition("\ndependencies = [\n")
        listed = "".join(f'    "{each}",\n' for each in packages)
        file.write_text(f"{head}{found}{listed}]{tail.partition(chr(10) + ']')[2]}")

    @property
    def environment(self) -> str:
        """The name of the folder that .venv stands for; "" for none."""
        link = self.root / ".venv"
        return os.readlink(link) if link.is_symlink() else ""

    def run(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """A program in this environment."""
        return subprocess.run(
            [str(word) for word in words], env={**os.environ, **env}, capture_output=True,
            text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def record(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`gpumon record --quiet -- WORDS`, whose recordings lie beside the clone."""
        state = str(self.root.parent / "state")
        return self.run(self.program, "record", "--quiet", "--", *words, GPUMON_STATE=state, **env)
