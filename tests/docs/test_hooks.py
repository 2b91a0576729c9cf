"""The hooks for commits: the configuration loads, and a commit meets them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.e2e.program import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with our hooks, whose `.venv` is the environment of the tests."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PRE_COMMIT"))]:
        monkeypatch.delenv(name)  # a test may itself run in a hook
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.org")
    root = tmp_path / "repository"
    root.mkdir()
    (root / "bin").mkdir()
    for name in (".pre-commit-config.yaml", "bin/check-subject", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    (root / ".venv").symlink_to(sys.prefix)
    (root / ".gitignore").write_text(".venv\n")

    def run(*command, **options):
        return subprocess.run(command, cwd=root, capture_output=True, text=True, **options)

    run("git", "init", "--quiet", check=True)
    run(sys.executable, "-m", "pre_commit", "install", check=True)
    run("git", "add", ".", check=True)
    return run


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ("report: name the idle GPUs", ""),
        ("docs, bench: state the memory of the packer", ""),
        ("Name the idle GPUs", "Write the subject as 'area: change'"),
        ("report: name the idle GPUs.", "Write the subject as 'area: change'"),
        ("report:name the idle GPUs", "Write the subject as 'area: change'"),
        ("report: " + "x" * 65, "The subject line has 73 characters"),
    ],
)
def test_the_subject_of_a_commit(repository, subject, complaint):
    done = repository("git", "commit", "--quiet", "-m", subject)
    assert (done.returncode == 0) == (not complaint), done.stderr
    assert complaint in done.stdout + done.stderr


def test_code_that_ruff_refuses_is_not_committed(repository, tmp_path, monkeypatch):
    (tmp_path / "repository" / "bad.py").write_text("import os\nx = ( 1 )\n")
    repository("git", "add", "bad.py", check=True)
    monkeypatch.setenv("SKIP", "mypy,imports")  # there is no package in this repository
    done = repository("git", "commit", "-m", "docs: add a file")
    assert done.returncode != 0
    assert "F401" in done.stdout + done.stderr
    assert re.search(r"ruff format\.+Failed", done.stdout + done.stderr)
