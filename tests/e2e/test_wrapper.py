"""`bin/gpumon record -- COMMAND` runs COMMAND in any environment, from a clone in any state."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpumon.recording import Recording
from gpumon.transport.local import AgentProcess
from gpumon.wire.decoder import Decoder
from tests.e2e.broken import Clones, attempt
from tests.e2e.program import GPUMON, environment
from tests.e2e.screen import Dashboard
from tests.nvml.emulator import Emulated
from tests.support.clone import NO_NETWORK, ROOT, Clone
from tests.support.waiting import until
from tests.support.wheels import index

BORROWED = "borrowed>=1"


@pytest.fixture
def clone(tmp_path):
    """Not used yet; what it depends on is in `wheels(tmp_path)`."""
    clone = Clone(tmp_path / "clone")
    clone.depend_on(BORROWED)
    return clone


def wheels(tmp_path, requirement=BORROWED):
    return index(tmp_path / "wheels", requirement)


def recordings(clone):
    return [Recording(str(path)) for path in (clone.root.parent / "state").rglob("*.gpumon")]


# -- any environment -----------------------------------------------------------------------------
@pytest.mark.slow
def test_a_command_feels_nothing_in_any_environment(tmp_path):
    """Few of those that `python -m tests.e2e.broken` tries."""
    clones = Clones(tmp_path)
    for number in range(20):
        folder = tmp_path / f"case{number}"
        folder.mkdir()
        name, wrong = attempt(number, 24, clones, folder)
        assert not wrong, name


@pytest.mark.parametrize("options", [["--interval", "0"], ["--intervall", "5"], ["--nope"]])
def test_a_mistake_in_its_options_is_no_reason_not_to_run(options):
    command = ["sh", "-c", "cat; exit 3"]
    done = subprocess.run(
        [*GPUMON, "record", *options, "--", *command], env=environment(), input="in",
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "in")
    assert done.stderr.startswith("gpumon: not recording: ")
    assert done.stderr.count("\n") == 1
    alone = subprocess.run([*GPUMON, "record", *options], env=environment(), capture_output=True)
    assert alone.returncode == 2


def test_an_empty_command_is_a_mistake_and_no_recording_without_end(tmp_path):
    done = subprocess.run([*GPUMON, "record", "--"], env=environment(), capture_output=True)
    assert done.returncode == 2
    assert b"no command follows" in done.stderr


def test_it_records_for_its_owner_alone_whatever_the_umask(tmp_path):
    env = {**environment(), "GPUMON_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        ["sh", "-c", 'umask 777; exec "$@"', "sh", *GPUMON, "record", "--", "sh", "-c", "umask"],
        env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0777\n")
    (path,) = (tmp_path / "state").rglob("*.gpumon")
    modes = {each.stat().st_mode & 0o777 for each in [path, *path.parents][:5]}
    assert modes == {0o600, 0o700}


@pytest.mark.slow
def test_a_command_runs_where_no_other_process_can_be_started():
    """bash ends when it cannot fork, after 15 s in which it tries again."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        launcher = shutil.copytree(ROOT / "bin", Path(folder) / "bin") / "gpumon"
        run = f"exec {launcher} record -- sh -c 'echo runs; exit 3'"
        limited = ["prlimit", "--nproc=1", "bash", "-c", run]
        another = ["setpriv", "--reuid=64999", "--clear-groups"]  # root has no such limit
        done = subprocess.run(
            [*another, *limited] if os.geteuid() == 0 else limited,
            env={"PATH": os.environ["PATH"]}, cwd="/", capture_output=True, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "runs\n"), done.stderr
    assert done.stderr.splitlines()[-1].startswith("gpumon: not recording: no process can be")


FALLS = """
import sys
from gpumon.services import wrapper
def falls(*_): raise MemoryError
wrapper.{0} = falls
from gpumon.cli import main
sys.exit(main(["record", "--", "sh", "-c", "echo ran; exit 3"]))
"""


@pytest.mark.parametrize("part", ["Companion", "_follow", "_cpu_use"])
def test_what_falls_beside_a_running_command_costs_it_nothing(part, tmp_path):
    env = environment(GPUMON_STATE=str(tmp_path))
    code = [sys.executable, "-c", FALLS.format(part)]
    done = subprocess.run(code, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "ran\n"), done.stderr
    assert "gpumon: recording failed: MemoryError" in done.stderr


def test_settings_with_a_mistake_remove_no_recording(tmp_path, monkeypatch):
    from gpumon.services.record import _settings

    monkeypatch.setenv("GPUMON_RECORD_MAX_BYTES", "many")
    settings, lines = _settings(5.0)
    assert settings.interval_s == 5.0
    assert min(settings.record_keep_days, settings.record_max_bytes) >= 36500
    assert lines[0].startswith("gpumon: recording with default settings: GPUMON_RECORD_MAX_BYTES")


# -- a clone -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_three_first_uses_at_once_make_one_environment(clone, tmp_path):
    pip = {**wheels(tmp_path), "PIP_USER": "true", "PIP_TARGET": str(tmp_path / "elsewhere")}
    env = {**os.environ, **pip, "GPUMON_STATE": str(tmp_path / "state")}
    argv = [clone.program, "record", "--quiet", "--", "sh", "-c", "echo $PIP_USER; exit 7"]
    running = [
        subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [(*each.communicate(), each.returncode) for each in running] == [("true\n", "", 7)] * 3
    assert len(recordings(clone)) == 3
    assert [path.name for path in clone.root.glob(".venv-*")] == [clone.environment]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_killed_half_way_the_earlier_environment_stays_until_its_python_has_gone(clone, tmp_path):
    pip = wheels(tmp_path, "borrowed>=2")
    clone.prepare()
    clone.depend_on("borrowed>=2")
    with subprocess.Popen(
        [clone.root / "bin" / "venv"], env={**os.environ, **pip}, start_new_session=True
    ) as making:
        until(lambda: len(list(clone.root.glob(".venv-*/bin/python"))) == 2)
        os.killpg(making.pid, signal.SIGKILL)
    assert clone.environment == ".venv-first"
    done = clone.record("sh", "-c", "exit 7", **NO_NETWORK)
    assert (done.returncode, done.stderr) == (7, "")
    assert len(recordings(clone)) == 1
    assert clone.environment == ".venv-first"
    (clone.root / ".venv.failed").unlink()  # or ten minutes later
    (clone.root / ".venv" / "bin" / "python").unlink()
    done = clone.record("sh", "-c", "exit 7", **pip)
    assert (done.returncode, done.stderr) == (7, "")
    assert clone.environment not in ("", ".venv-first")
    assert (clone.root / ".venv-first").exists()  # for what runs in it
    assert clone.stamp.read_text() == "borrowed>=2\n"


@pytest.mark.slow
def test_a_first_use_without_network_runs_the_command(clone):
    for _ in range(2):  # the second does not try again
        done = clone.record("sh", "-c", "exit 7", **NO_NETWORK)
        assert done.returncode == 7
        assert done.stderr.startswith("gpumon: not recording: pip cannot install what gpumon needs")
        assert done.stderr.count("\n") == 1
    assert not list(clone.root.glob(".venv-*"))


def test_after_a_pull_with_the_same_dependencies_nothing_is_installed(clone):
    clone.depend_on("psutil>=5")
    clone.prepare()
    with (clone.root / "pyproject.toml").open("a") as file:
        file.write('[tool.other]\ndependencies = [\n    "another",\n]\n')
    shutil.rmtree(clone.root / "docs")  # which an installation needs
    pip = clone.root / "bin" / "python3"  # another's, which ends with 9
    pip.write_text("#!/bin/sh\nexit 9\n")
    done = clone.record("sh", "-c", "exit 7", PATH=f"{pip.parent}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (7, "")
    assert len(recordings(clone)) == 1


def test_after_a_pull_that_the_environment_satisfies_nothing_is_fetched(clone):
    clone.prepare()
    clone.depend_on("psutil>=5", "pyyaml")
    done = clone.run(clone.program, "--version", **NO_NETWORK)
    assert (done.returncode, done.stderr) == (0, "")
    assert clone.environment == ".venv-first"
    assert clone.stamp.read_text() == "psutil>=5\npyyaml\n"


@pytest.mark.slow
def test_after_a_pull_without_network_the_earlier_environment_records(clone):
    clone.prepare()
    clone.depend_on("no-such-package-of-ours")
    done = clone.record("sh", "-c", "exit 7", **NO_NETWORK)
    assert (done.returncode, done.stderr) == (7, "")
    assert len(recordings(clone)) == 1
    done = clone.run(clone.program, "--version", **NO_NETWORK)
    assert (done.returncode, done.stdout.split()[0]) == (0, "gpumon")
    assert done.stderr.startswith("gpumon: pip cannot install what gpumon needs")
    assert done.stderr.endswith("; using the earlier environment\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_read_only_clone_of_somebody_else(clone, is_prepared):
    if is_prepared:
        clone.prepare()
    clone.depend_on("no-such-package-of-ours")
    before = sorted(path for path in clone.root.rglob("*") if "__pycache__" not in path.parts)
    read_only = ["sh", "-c", 'chmod -R a-w "$0"; exec "$@"', clone.root]
    if os.geteuid() == 0:  # whom modes do not stop
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        read_only = ["unshare", "--mount", "sh", "-c", mount, clone.root]
    command = [clone.program, "record", "--quiet", "--", "sh", "-c", "echo ran; exit 7"]
    done = clone.run(*read_only, *command, GPUMON_STATE=str(clone.root.parent / "state"))
    assert (done.returncode, done.stdout) == (7, "ran\n")
    assert done.stderr.startswith("gpumon: not recording: ") is not is_prepared
    assert len(recordings(clone)) == is_prepared
    assert before == sorted(p for p in clone.root.rglob("*") if "__pycache__" not in p.parts)


# -- all commands --------------------------------------------------------------------------------
@pytest.fixture
def other_python(tmp_path):
    """PYTHONPATH of another Python, whose modules are of no use to this one."""
    for name in ("select", "rich", "psutil", "typing_extensions", "zstandard", "json", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of another Python')")
    (tmp_path / "sitecustomize.py").write_text("print('site banner')")
    return str(tmp_path)


def test_json_is_json_whatever_the_site_prints(other_python):
    clone = Clone(Path(other_python) / "clone").prepare()
    recording = str(ROOT / "gpumon" / "demos" / "finetune.jsonl.gz")
    more = {"PYTHONPATH": other_python, "PYTHONHOME": "/nonexistent", "PYTHONINSPECT": "1"}
    for words in (
        ["once", "--json"],
        ["doctor", "--json"],
        ["report", recording, "--format", "json"],
    ):
        done = clone.run(clone.program, *words, **more)
        assert done.stderr == ""
        assert json.loads(done.stdout)


@pytest.mark.parametrize("words", [["once", "--json"], ["doctor", "--json"]])
def test_without_the_launcher_no_module_of_another_python_is_taken(other_python, words):
    """By the console script of pip, or `python -m`: it starts itself again."""
    (Path(other_python) / "sitecustomize.py").unlink()  # prints before anything of ours
    env = environment(PYTHONPATH=f"{other_python}:{ROOT}", PYTHONWARNINGS="error")
    done = subprocess.run([*GPUMON, *words], env=env, capture_output=True, text=True)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert json.loads(done.stdout)


@pytest.mark.terminal
def test_the_dashboard_runs_beside_modules_of_another_python(other_python):
    path = f"{other_python}:{ROOT}"
    with Emulated("a100x4") as gpus, Dashboard(gpus, PYTHONPATH=path) as dashboard:
        dashboard.wait_for("GPU 0")
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0


def test_the_local_agent_takes_no_module_of_another_python(other_python, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", other_python)
    agent = AgentProcess(["--count=1"])
    try:
        assert Decoder().line(agent.read().splitlines()[0]) is not None
    finally:
        agent.close()
