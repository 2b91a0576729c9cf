"""Under `ulimit -v` gpumon works, or ends with one line; it neither hangs nor aborts."""

from __future__ import annotations

import resource
import subprocess

import pytest

from gpumon.errors import NO_MEMORY
from tests.e2e.program import GPUMON, environment, gpumon
from tests.e2e.screen import Dashboard
from tests.nvml.emulator import Emulated
from tests.recording import made
from tests.recording.recorded import record
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.terminal

#: MiB: from where the interpreter just starts to where eight devices have room
LIMITS = (34, 40, 50, 64, 80, 120, 160, 200, 300, 500, 1000, 2000)
ENOUGH = 200


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "small.gpumon"
    record(path, made.samples(5))
    return str(path)


def limited(mebibytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))


@pytest.mark.parametrize("mebibytes", LIMITS)
def test_commands(mebibytes, recording):
    with Emulated("a100x8") as gpus:
        for words in (["once"], ["collect", "--count", "2"], ["report", recording], ["runs"]):
            done = gpumon(*words, env=environment(gpus.env), preexec_fn=limited(mebibytes))
            if done.returncode == 0:
                assert done.stderr == ""
                continue
            assert mebibytes < ENOUGH
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert done.stderr.startswith("gpumon: ")
            assert "mistake" not in done.stderr


@pytest.mark.parametrize("mebibytes", LIMITS)
def test_a_recorder_costs_its_command_nothing(mebibytes, tmp_path):
    done = gpumon(
        "record", "-o", str(tmp_path), "--", "sh", "-c", "echo hi; exit 7",
        preexec_fn=limited(mebibytes),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "hi\n")


@pytest.mark.parametrize("mebibytes", [44, 60, 80, 120, 200, 400, 1000])
def test_the_dashboard(mebibytes):
    """It shows the devices, or has ended with the one line; the terminal is whole after it."""
    shell = f'ulimit -v {mebibytes << 10}; "$@"; echo "ended $?"; exec cat'
    with Emulated("a100x8") as gpus, Dashboard(
        gpus, program=["sh", "-c", shell, "sh", *GPUMON]
    ) as dashboard:  # fmt: skip
        shown = dashboard.wait_until(lambda text: "ended" in text or "GPU 7" in text)
        if "ended" in shown:
            assert mebibytes < ENOUGH
            assert shown.split("\n")[-1] in ("", "ended 1")
            assert NO_MEMORY in " ".join(shown.split())


def test_a_limit_is_no_reason_for_fewer_readings():
    """As many devices as without one."""
    with Emulated("a100x8") as gpus:
        env = environment(gpus.env)
        done = subprocess.run(
            [*GPUMON, "once"], env=env, capture_output=True, text=True, timeout=HANGS_S,
            preexec_fn=limited(ENOUGH),
        )  # fmt: skip
        assert (done.returncode, done.stdout.count("GPU ")) == (
            0, gpumon("once", env=env).stdout.count("GPU "),
        )  # fmt: skip
