"""`gpumon stack` as its users run it, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import zstandard

from tests.collect.stacks.programs import standing
from tests.collect.stacks.test_stacks import TOLD, probed
from tests.e2e.program import GPUMON, environment, gpumon
from tests.nvml.emulator import Emulated
from tests.probe.standins import TORCH, plant
from tests.support.waiting import until


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


PROBED = """
import sys, time, torch
torch.cuda.init()
torch.cuda.hold(0, 1, 2)

def loss_item(password):
    sys.stdin.read()

loss_item("hunter2")
"""


def test_a_recorded_command_with_the_probe_and_its_recording_without_the_stack(tmp_path):
    packages = plant(tmp_path / "site-packages", TORCH)
    (tmp_path / "train.py").write_text(PROBED)
    env = environment(TMPDIR=str(tmp_path), PATH="/usr/bin:/bin")
    env["PYTHONPATH"] += os.pathsep + str(packages)
    path = tmp_path / "run.gpumon"
    command = [sys.executable, str(tmp_path / "train.py")]
    record = subprocess.Popen(
        [*GPUMON, "record", "--quiet", "--probe", "-o", str(path), "--", *command],
        env=env, stdin=subprocess.PIPE,
    )  # fmt: skip
    try:
        told = tmp_path / f"gpumon-probe-{os.getuid()}"
        until(lambda: list(told.glob("*.json")) if told.exists() else [])
        (file,) = told.glob("*.json")
        done = gpumon("stack", file.name.partition("-")[0], env=env)
    finally:
        record.communicate(b"")
    assert record.returncode == 0
    first, second, *_ = done.stdout.splitlines()
    assert re.search(r"train\.py:7  \(probe(, \d+ s ago)?\)$", first)
    assert second.split() == [">", "train.py:7", "loss_item"]
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True)
    recorded = lines.read()
    assert b'"program' in recorded
    assert b'"stack"' not in recorded
    assert b"hunter2" not in recorded + done.stdout.encode()


@pytest.mark.parametrize("word", ["x/y", "1_2_3"])
def test_what_is_neither_a_job_nor_a_process(word):
    done = stack(word, PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1


def test_a_number_of_neither_names_both(tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n"
    )
    squeue.chmod(0o755)
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = stack(str(gone.pid), PATH=f"{tmp_path}:{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    assert done.returncode != 0
    assert f"no process {gone.pid} of yours on this node; as a job: " in done.stderr
    assert done.stderr.count("\n") == 1
