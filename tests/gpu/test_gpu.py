"""The acceptance script: its short form on a real GPU, its flow over the emulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.accept import honest
from tests.nvml.emulator import Emulated

ROOT = Path(__file__).parents[2]
ACCEPT = [sys.executable, "-m", "tests.gpu.accept"]


@pytest.mark.gpu
@pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="no NVIDIA GPU here")
def test_idle_and_tiny_kernels_on_a_gpu(tmp_path: Path) -> None:
    command = [*ACCEPT, "--out", str(tmp_path), "--seconds", "6", "--only", "idle,tiny"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_flow_over_the_emulated_driver(tmp_path: Path) -> None:
    """nvitop agrees; a device with a job on it is not idle, and the script says so."""
    command = [*ACCEPT, "--out", str(tmp_path), "--seconds", "3", "--only", "idle,probe"]
    with Emulated("constant") as gpus:
        env = {**gpus.env, "PATH": str(Path(sys.executable).parent)}
        done = gpus.run(command, cwd=ROOT, env=env, timeout=300)
    assert done.returncode == 1, done.stderr
    cases = json.loads((tmp_path / "summary.json").read_text())["cases"]
    idle = cases["idle"]
    assert [check["ok"] for check in idle["checks"]] == [False] * 4
    assert idle["peers"]["nvidia-smi"] == "nvidia-smi: not found"
    verdicts = {line["verdict"] for line in idle["compare"]}  # the first rows may come too early
    assert "agree" in verdicts
    assert "differ" not in verdicts
    assert idle["agent"]["pss_bytes"] > 0
    assert cases["probe"]["ok"], cases["probe"]
    assert cases["probe"]["idle"]["buffers"]["gpu"]["steps_s"][1] == pytest.approx(1 / 6, abs=1e-3)
    assert {path.name for path in tmp_path.iterdir()} == {
        "idle.jsonl.gz",
        "report.md",
        "summary.json",
    }


def test_a_false_zero_is_not_honest() -> None:
    assert honest(0.8, 0.7)
    assert honest(0.8, "no-permission RmProfilingAdminOnly is 1")
    assert honest("unsupported needs Hopper or later", "unsupported needs Hopper or later")
    assert not honest(0.8, 0.0)
    assert not honest(0.8, "unsupported")


@pytest.mark.slow
def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    command = [*ACCEPT, "--out", str(tmp_path), "--seconds", "3", "--only", "idle,tiny"]
    with Emulated("no_driver") as gpus:
        env = {**gpus.env, "PATH": str(Path(sys.executable).parent)}
        done = gpus.run(command, cwd=ROOT, env=env)
    assert done.returncode == 1
    assert done.stdout.startswith("idle: cannot run: CannotRunError: No NVIDIA driver"), done.stdout
