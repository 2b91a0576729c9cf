"""A throw-away copy of the tree, changed as CONTRIBUTING.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.program import ROOT, environment

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "*.png"
)


class Tree:
    """The copy; every change of a file goes through it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "gpumon"
        self.changed: list[str] = []
        shutil.copytree(ROOT, self.root, ignore=_LEFT_OUT)

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def write(self, path: str, text: str) -> None:
        """A new file."""
        assert not (self.root / path).exists()
        (self.root / path).write_text(text)
        self.changed.append(path)

    def replace(self, path: str, old: str, new: str) -> None:
        """Change the only place of `old`."""
        content = self.read(path)
        assert content.count(old) == 1, f"{path}: {content.count(old)} × {old!r}"
        (self.root / path).write_text(content.replace(old, new))
        self.changed.append(path)

    def insert(self, path: str, after: str, text: str) -> None:
        """Add text behind the only place of `after`."""
        self.replace(path, after, after + text)

    def code(self) -> set[str]:
        """The changed files of the package."""
        return {path for path in self.changed if path.startswith("gpumon/")}

    def run(self, *command: str, **more: str) -> str:
        """A Python module with its arguments, in the copy; what it printed."""
        env = environment(**{**more, "PYTHONPATH": str(self.root)})
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.root,
            env={**env, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def check(self, *tests: str) -> None:
        """The style of what was changed, and these tests."""
        self.run("ruff", "check", *sorted(self.code()))
        self.run("ruff", "format", "--check", *sorted(self.code()))
        self.run("pytest", "-q", "-p", "no:cacheprovider", *tests)


def follows(tree: Tree, title: str, most: int) -> None:
    """The changed files are those that the recipe lists, and no more than `most`."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = text.split(f"### {title}\n")[1].split("\n##")[0]
    listed = re.findall(r"^\d+\. `(gpumon/[^`]+)`", recipe, re.M)
    changed = tree.code()
    assert listed
    assert [path for path in changed if not path.startswith(tuple(listed))] == []
    assert [path for path in listed if not any(each.startswith(path) for each in changed)] == []
    assert len(changed) <= most
