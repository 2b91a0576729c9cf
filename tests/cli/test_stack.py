"""`gpumon stack` as its users run it, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.collect.stacks.programs import standing
from tests.collect.stacks.test_stacks import TOLD, probed
from tests.e2e.program import environment, gpumon
from tests.nvml.emulator import Emulated


def stack(*args, **more):
    return gpumon("stack", *args, env=environment(**more))


def test_a_process_by_its_number(tmp_path):
    with standing(tmp_path) as child:
        done = stack(str(child.pid))
        every = stack(str(child.pid), "--threads")
    assert (done.returncode, done.stderr) == (0, "")
    first, *frames = done.stdout.splitlines()
    assert first == f"PID {child.pid}: train.py:9  (py-spy)"
    assert frames == ["> train.py:9   wait_here", "> train.py:13  main", "> train.py:15  <module>"]
    assert "  thread loader\n" in every.stdout


def test_by_the_probe_inside(tmp_path):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, TOLD)
        body = json.loads(stack(str(child.pid), "--json").stdout)
    (told,) = body["stacks"]
    assert (told["by"], told["pid"]) == ("probe", child.pid)
    assert [frame["line"] for frame in told["threads"][0]["frames"]] == [9, 13]


def test_what_ended_and_what_is_no_python():
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = stack(str(gone.pid), PATH="/nowhere")  # where there is no Slurm either
    assert done.returncode == 4
    assert f"no process {gone.pid} on this node" in done.stderr
    other = subprocess.Popen(["sleep", "1000"])
    try:
        done = stack(str(other.pid))
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 1
    assert done.stdout == f"PID {other.pid}: no stack: it is not a Python program\n"


def test_without_a_number_the_programs_on_the_gpus(tmp_path):
    with Emulated("h200") as gpus:
        name = next(iter(gpus.pids))
        none = gpumon("stack", env=environment(gpus.env))
        assert (none.returncode, none.stdout) == (1, "")
        assert "no Python program found" in none.stderr
        with standing(tmp_path, RANK="1", LOCAL_RANK="1") as child:
            env = environment(gpus.env, FAKE_NVML_STANDINS=f"{name}={child.pid}")
            done = gpumon("stack", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "rank 1: train.py:9  (py-spy)"


@pytest.mark.parametrize("word", ["x/y", "1_2_3"])
def test_what_is_neither_a_job_nor_a_process(word):
    done = stack(word, PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
