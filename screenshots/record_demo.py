"""Record the story that `gpumon demo` plays, with gpumon's own agent.

    sudo PYTHONPATH=. unshare --mount .venv/bin/python screenshots/record_demo.py --seconds 900

A job of four GPUs: two train, one holds a TensorFlow reservation and hardly works, one was
never used; once a GPU gets too hot. GPUs are the emulated driver's, and the host has the files of
`demo_host.py`; this script moves both every second. Processes and cgroup are real. Needs root, for
the job's cgroup (v1), the user and the mounts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from screenshots.demo_host import JOB_CPUS, DemoHost
from tests.nvml.emulator import Emulated, Proc, Scenario, binding_dir

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "gpumon" / "demos" / "finetune.jsonl.gz"
CONTROLLERS = ("memory", "cpuacct", "cpu")
JOB = "4711"
USER, UID = "ada", 4711

_RAN_S = 6700  # that the job ran before

# a stand-in maps the libraries that tell its framework, holds memory, and computes for a share
STAND_IN = """
import mmap, os, sys, time
spec = dict(pair.split("=") for pair in os.environ["STAND_IN"].split(","))
held = []
for name in spec["libs"].split("+"):
    path = os.path.join(os.environ["STAND_IN_DIR"], name)
    with open(path, "rb") as file:
        held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
held.append(bytearray(os.urandom(1 << 20) * int(spec["mib"])))
workers = int(spec.get("workers", 0))
for _ in range(workers):
    if os.fork() == 0:
        workers = 0
        spec["duty"] = "0.06"
        break
duty = float(spec["duty"])
while True:
    end = time.monotonic() + 0.1 * duty
    while time.monotonic() < end:
        pass
    time.sleep(0.1 * (1 - duty))
"""


class Story:
    """What the four GPUs do at second t; noise makes it look measured."""

    def __init__(self) -> None:
        self._random = random.Random(4711)
        self._heat = 64.0

    def _noise(self, width: float) -> float:
        return self._random.uniform(-width, width)

    def at(self, t: float) -> str:
        """The override file for this second."""
        lines = []
        for gpu in (0, 1):
            lines += self._training(gpu, t)
        burst = (t % 47) < 6
        lines += [
            "[gpu 2]",
            f"util = {max(0, 34 + self._noise(9)) if burst else max(0, self._noise(2)):.0f}",
            f"gpm_sm = {11 + self._noise(3) if burst else 0:.1f}",
            f"gpm_tensor = {2 + self._noise(1) if burst else 0:.1f}",
            f"gpm_dram = {6 + self._noise(2) if burst else 0:.1f}",
            f"power = {148 + self._noise(8) if burst else 112 + self._noise(2):.1f}",
            f"temp = {41 + self._noise(1):.0f}",
            "[gpu 3]", "util = 0", f"power = {69 + self._noise(1):.1f}", "temp = 29", "mem = 4",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _training(self, gpu: int, t: float) -> list[str]:
        """Epochs of 140 s: training, then validation, then a checkpoint is written."""
        phase = (t + 3 * gpu) % 140
        hot = gpu == 1 and 430 <= t % 900 <= 540
        if phase < 112:
            busy, sm, tensor, dram, power = 97, 83, 46, 51, 655
        elif phase < 128:
            busy, sm, tensor, dram, power = 71, 52, 21, 38, 430
        else:
            busy, sm, tensor, dram, power = 3, 1, 0, 2, 130
        target = {97: 66, 71: 58, 3: 47}[busy] + (23 if hot else 0)
        self._heat += (target - self._heat) * 0.04 if gpu == 1 else 0
        temp = self._heat if gpu == 1 else target
        slow = 0.62 if hot else 1.0
        mem = 61800 + (1500 if phase >= 128 else 0) - 700 * gpu
        clock = 1980 * slow if busy > 10 else 1980
        return [
            f"[gpu {gpu}]",
            f"util = {min(100, max(0, busy + self._noise(2.4))):.0f}",
            f"gpm_sm = {min(100, max(0, sm * (0.9 if hot else 1) + self._noise(3))):.1f}",
            f"gpm_occ = {min(100, max(0, sm * 0.55 + self._noise(2))):.1f}",
            f"gpm_tensor = {max(0, tensor * slow + self._noise(2)):.1f}",
            f"gpm_dram = {max(0, dram * slow + self._noise(2)):.1f}",
            f"power = {max(90, power * (0.72 if hot else 1) + self._noise(12)):.1f}",
            f"temp = {temp + self._noise(0.6):.0f}",
            f"mem = {mem}",
            f"smclk = {clock + self._noise(6):.0f}",
            f"throttle = {0x20 if hot and busy > 10 else 4 if busy > 90 else 0}",
            f"pcie_rx = {(2.4e6 if busy > 10 else 2e5) * (1 + self._noise(0.2)):.0f}",
            f"pcie_tx = {(4e5 if phase < 128 else 9e6) * (1 + self._noise(0.2)):.0f}",
            f"nvlink_tx = {(9e7 if busy > 90 else 1e6) * slow * (1 + self._noise(0.1)):.0f}",
            f"nvlink_rx = {(9e7 if busy > 90 else 1e6) * slow * (1 + self._noise(0.1)):.0f}",
        ]


def enter_cgroup() -> list[str]:
    """Make the job's directories as Slurm would; returns the files that take PIDs."""
    files = []
    for controller in CONTROLLERS:
        folder = Path(f"/sys/fs/cgroup/{controller}/slurm/uid_{UID}/job_{JOB}")
        (folder / "step_batch").mkdir(parents=True, exist_ok=True)
        if controller == "memory":
            (folder / "memory.limit_in_bytes").write_text(str(64 << 30))
        files.append(str(folder / "step_batch" / "cgroup.procs"))
    return files


def stand_in(folder: Path, words: list[str], spec: str) -> subprocess.Popen[bytes]:
    env = {"STAND_IN": spec, "STAND_IN_DIR": str(folder), "SLURM_JOB_ID": JOB}
    return subprocess.Popen(
        words, executable="/usr/bin/python3", cwd=folder, env=env, user=UID,
        group=UID, start_new_session=True,
    )  # fmt: skip


def record(seconds: int, out: Path) -> None:
    procs_files = enter_cgroup()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        host = DemoHost(folder, USER, UID)
        host.mount()
        for library in ("libtorch_cuda.so", "libnccl.so.2", "libtensorflow_framework.so.2"):
            (folder / library).write_bytes(b"\0" * 4096)
        for script in ("train.py", "evaluate.py"):
            (folder / script).write_text(STAND_IN)
        torch = "libs=libtorch_cuda.so+libnccl.so.2,mib=900,duty=0.12,workers=2"
        train = ["python", "train.py", "--model", "llama-3-8b", "--data", "/scratch/ada/c4"]
        train += ["--wandb-key", "0123456789abcdef0123456789abcdef01234567"]
        evaluate = ["python", "evaluate.py", "--checkpoint", "latest", "--batch", "8"]
        jobs = [
            stand_in(folder, [*train, "--rank", "0"], torch),
            stand_in(folder, [*train, "--rank", "1"], torch),
            stand_in(folder, evaluate, "libs=libtensorflow_framework.so.2,mib=300,duty=0.02"),
        ]
        for job in jobs:
            join(job.pid, procs_files)
        scenario = Scenario()
        scenario.gpu("0-3", model="H100-SXM5-80GB")
        for gpu, (job, mem_mib, sm) in enumerate(zip(jobs, (61200, 60500, 79300), (95, 94, 4))):
            scenario.gpu(gpu, mem_mib=mem_mib, procs=[Proc(job.pid, mem_mib, sm)])
        scenario.gpu(3, mem_mib=4, util=0)
        try:
            stream(scenario, host, seconds, procs_files, out)
        finally:
            for job in jobs:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def join(pid: int, procs_files: list[str]) -> None:
    """Put a process into the job's cgroup, before it forks."""
    for file in procs_files:
        Path(file).write_text(str(pid))


def stream(
    scenario: Scenario, host: DemoHost, seconds: int, procs_files: list[str], out: Path
) -> None:
    """Run the agent as the user, move GPUs and host, and keep its lines."""
    story = Story()
    with Emulated(scenario) as gpus:
        for path in (Path(gpus.scenario).parent, Path(gpus.scenario)):
            path.chmod(0o755)
        now = time.time()
        env = {
            **{key: value for key, value in gpus.env.items() if key.startswith(("FAKE", "LD_"))},
            "PYTHONPATH": f"{ROOT}:{binding_dir()}", "PATH": "/usr/bin:/bin",
            "SLURM_JOB_ID": JOB, "SLURM_JOB_NAME": "finetune-llama", "SLURM_JOB_USER": USER,
            "SLURM_JOB_ACCOUNT": "lab", "SLURM_JOB_PARTITION": "gpu-h100",
            "SLURM_CLUSTER_NAME": "demo", "SLURM_JOB_NODELIST": "gpu07", "SLURM_NNODES": "1",
            "SLURMD_NODENAME": "gpu07", "SLURM_CPUS_ON_NODE": "16", "SLURM_JOB_GPUS": "0,1,2,3",
            "SLURM_JOB_START_TIME": str(int(now - _RAN_S)),
            "SLURM_JOB_END_TIME": str(int(now + 36500)),
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        }  # fmt: skip
        env.pop("FAKE_NVML_STATS", None)
        gpus.override(story.at(0))
        agent = subprocess.Popen(
            ["/usr/bin/python3", "-m", "gpumon.collect", "--count", str(seconds)],
            stdout=subprocess.PIPE, env=env, user=UID, group=UID, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        join(agent.pid, procs_files)
        assert agent.stdout is not None
        with gzip.open(out, "wb", 9) as file:
            for number, line in enumerate(agent.stdout):
                file.write(anonymous(line) if line.startswith(b'{"wire"') else earlier(line))
                gpus.override(story.at(float(number)))
                host.move(float(number))
        agent.wait()


def anonymous(line: bytes) -> bytes:
    """The header of the job's node, without what tells of the machine it was made on."""
    header = json.loads(line)
    for name in ("kernel", "cpu_model", "threads_per_core"):
        header["facts"].pop(name, None)
    header["facts"].update(cpus=JOB_CPUS, job_cpus=f"0-{JOB_CPUS - 1}")
    return json.dumps(header, separators=(",", ":")).encode() + b"\n"


def earlier(line: bytes) -> bytes:
    """With the CPU time of the job before it was recorded, as its cgroup would have counted it."""
    sample = json.loads(line)
    for row in sample.get("rows", {}).get("job.cgroup", ()):
        row[2] = round(row[2] + _RAN_S * 0.4, 3)
    return json.dumps(sample, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="record the demo")
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("-o", type=Path, default=OUT, help="the file (the demo's own)")
    arguments = parser.parse_args()
    record(arguments.seconds, arguments.o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
