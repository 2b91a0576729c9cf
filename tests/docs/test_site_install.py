"""An installation for a site: built once, moved as a whole, loaded as a module."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gpumon import __version__
from screenshots.terminal_png import Session
from tests.e2e.program import ROOT

pytestmark = pytest.mark.slow

_MODULES = "/usr/share/modules/init/bash"
_COMPLETION = "/usr/share/bash-completion/bash_completion"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    """The tree at its second place; the first is gone.

    Without an index: gpumon's dependencies are those of the environment of the tests.
    """
    folder = tmp_path_factory.mktemp("site")
    first, second = folder / "built", folder / "software"
    subprocess.run(
        [ROOT / "bin" / "site-install", first, "--no-deps", "--no-build-isolation"],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
    )
    library = first / "gpumon" / __version__ / "lib"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "gpumon" not in path.name and not path.name.startswith("."):
            (library / path.name).symlink_to(path)
    first.rename(second)
    return second


def loaded(prefix: Path, commands: str, **more: str) -> str:
    """What bash prints for the commands with the module loaded."""
    names = ("PATH", "LANG", "TERM", "TMPDIR")
    script = f"source {_MODULES}; module use {prefix}/modulefiles; {commands}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={name: os.environ[name] for name in names if name in os.environ}
        | {"HOME": str(prefix.parent), "LC_ALL": "C.UTF-8"}
        | more,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=prefix.parent,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_command_runs_from_where_it_lies_now(prefix):
    said = loaded(prefix, "module load gpumon; command -v gpumon; gpumon --version")
    bin = prefix / "gpumon" / __version__ / "bin"
    assert said == f"{bin}/gpumon\ngpumon {__version__}\n"


def test_nothing_in_the_tree_names_the_place_where_it_was_built(prefix):
    built = str(prefix.parent / "built").encode()
    files = [path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 100
    naming = [path for path in files if built in path.read_bytes()]
    assert [path for path in naming if path.suffix != ".pyc"] == []  # in tracebacks alone


def test_the_module_describes_itself_and_unloads_without_a_trace(prefix):
    told = loaded(prefix, "module whatis gpumon 2>&1; module help gpumon 2>&1")
    assert f"gpumon {__version__}: terminal dashboard" in told
    assert "gpumon attach JOBID" in told
    before, after = loaded(
        prefix,
        "echo $PATH; module load gpumon; module unload gpumon; echo $PATH",
        XDG_DATA_DIRS="/usr/share",
        MANPATH=":",
    ).splitlines()
    assert before == after


@pytest.mark.parametrize("own_path", [{}, {"MANPATH": "/usr/share/man"}])
def test_the_man_page_is_found(prefix, own_path):
    said = loaded(prefix, "module load gpumon; man --where gpumon; manpath --quiet", **own_path)
    page = prefix / "gpumon" / __version__ / "share" / "man" / "man1" / "gpumon.1"
    where, path = said.splitlines()
    assert where == str(page)
    assert "/usr/share/man" in path.split(":")  # the system's own are found as before


@pytest.mark.parametrize("own_dirs", [{}, {"XDG_DATA_DIRS": "/usr/share"}])
def test_bash_completes_commands(prefix, own_dirs):
    said = loaded(
        prefix,
        f"module load gpumon; source {_COMPLETION}; _completion_loader gpumon;"
        "COMP_WORDS=(gpumon att) COMP_CWORD=1; _gpumon; echo ${COMPREPLY[@]}",
        **own_dirs,
    )
    assert said == "attach\n"


def test_completion_for_other_shells_lies_where_they_look(prefix):
    share = prefix / "gpumon" / __version__ / "share"
    assert (share / "zsh/site-functions/_gpumon").read_text().startswith("#compdef gpumon\n")
    assert "complete -c gpumon" in (share / "fish/vendor_completions.d/gpumon.fish").read_text()


def test_the_users_python_does_not_reach_it_nor_it_the_recorded_commands(prefix, tmp_path):
    (tmp_path / "zstandard.py").write_text("raise SystemExit('not this one')")
    said = loaded(
        prefix,
        f"module load gpumon; cd {tmp_path};"
        "gpumon record --quiet -o run.gpumon -- printenv PYTHONPATH",
        PYTHONPATH=str(tmp_path),
    )
    assert said == f"{tmp_path}\n"
    assert (tmp_path / "run.gpumon").stat().st_size > 0


def test_without_its_python_a_recorded_command_runs(prefix):
    python = prefix / "gpumon" / __version__ / "lib" / "python"
    target = python.readlink()
    python.unlink()
    python.symlink_to("/nonexistent/python3.99")
    launcher = prefix / "gpumon" / __version__ / "bin" / "gpumon"
    command = [launcher, "record", "--quiet", "--", "sh", "-c", "echo ran; exit 3"]
    done = subprocess.run(command, capture_output=True, text=True)
    alone = subprocess.run([launcher, "--version"], capture_output=True, text=True)
    python.unlink()
    python.symlink_to(target)
    why = "python3.99 is not installed here; load a module that has it"
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert done.stderr == f"gpumon: not recording: {why}\n"
    assert (alone.returncode, alone.stdout, alone.stderr) == (1, "", f"gpumon: {why}\n")


@pytest.mark.terminal
def test_the_demo_plays_in_a_terminal(prefix):
    command = f"source {_MODULES}; module use {prefix}/modulefiles; module load gpumon; gpumon demo"
    session = Session(["bash", "--norc", "-c", command], (120, 40), dict(os.environ))
    with session:
        assert "replay" in session.wait_for("finetune-llama")


def test_an_installed_version_is_not_written_over(prefix):
    done = subprocess.run(
        [ROOT / "bin" / "site-install", prefix, "--no-deps", "--no-build-isolation"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("exists; remove it first\n")
    assert not list((prefix / "gpumon").glob(".*"))
