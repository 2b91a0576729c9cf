"""Running commands of Slurm on this machine: real processes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from gpumon.slurm.runner import LocalRunner, NoSlurmError, SlurmError, SlurmTimeoutError
from tests.support.users import as_nobody
from tests.support.waiting import until


def run(*argv: str, timeout_s: float = 60, **env: str):
    return LocalRunner().run(list(argv), env=env, timeout_s=timeout_s)


def test_output_errors_and_code():
    result = run(sys.executable, "-c", "import sys; print('out'); sys.exit('err')")
    assert (result.code, result.out, result.err) == (1, b"out\n", "err\n")


def test_nothing_goes_through_a_shell():
    assert run("echo", "$HOME; `id` | x").out == b"$HOME; `id` | x\n"


def test_the_environment_is_added_and_what_steers_the_commands_is_not_there(monkeypatch):
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    out = run("env", SLURM_TIME_FORMAT="%s").out.decode().split()
    assert "SLURM_TIME_FORMAT=%s" in out
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in out
    assert not any(line.startswith("SQUEUE_FORMAT") for line in out)


def test_a_command_that_is_not_there():
    with pytest.raises(NoSlurmError, match="sacct-not-here not found") as caught:
        run("sacct-not-here")
    assert caught.value.code == 1


def test_a_folder_of_path_that_may_not_be_searched_holds_no_command(monkeypatch):
    with tempfile.TemporaryDirectory() as closed:
        Path(closed).chmod(0)
        monkeypatch.setenv("PATH", closed)

        def is_there() -> int:
            try:
                run("sacct-not-here")
            except NoSlurmError:
                return 0
            return 1

        assert as_nobody(is_there) == 0


def test_an_argument_that_no_command_line_holds():
    with pytest.raises(SlurmError, match="cannot run echo"):
        run("echo", "x" * 10_000_000)


def test_at_the_deadline_the_command_and_its_children_end(tmp_path):
    note = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {note}; wait"
    with pytest.raises(SlurmTimeoutError, match="is not responding"):
        run("sh", "-c", script, timeout_s=1)
    child = int(note.read_text())
    until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_input_is_empty():
    assert run("cat").out == b""
