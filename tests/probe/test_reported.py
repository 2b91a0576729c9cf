"""From a real program under the probe to its file and line: in a report, and on a screen.

Rules look at minutes. The programs run for half a minute, and their recordings are stretched.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.recording import Recorder, Recording
from tests.e2e.program import GPUMON, environment, gpumon
from tests.e2e.screen import Dashboard
from tests.nvml.emulator import Emulated
from tests.probe.test_frameworks import line_of
from tests.support.waiting import HANGS_S

pytestmark = [pytest.mark.slow, pytest.mark.terminal]

_STRETCH = 12
_NET = """
import os, signal, sys, time, torch

net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

def step(rows=torch.ones(2, 8)):
    net(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOADER = f"""{_NET}
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, n):
        time.sleep(0.02)  # slow
        return torch.ones(8)

end = time.monotonic() + 50
for rows in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=int(sys.argv[1])):  # loop
    step(rows)
    if time.monotonic() > end:
        break
"""
RANKS = f"""{_NET}
import torch.distributed as dist

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
with open(f"{{folder}}/{{rank}}.pid", "w") as file:
    file.write(str(os.getpid()))
begun = time.monotonic()
while True:
    step()
    late = torch.tensor(float(time.monotonic() > begun + 8))
    dist.all_reduce(late)  # wait
    if late and rank == 2:
        time.sleep(40)  # stuck
        for other in (0, 1, 2):
            with open(f"{{folder}}/{{other}}.pid") as file:
                os.kill(int(file.read()), signal.SIGKILL)
    time.sleep(0.02)
"""


def recorded(folder: Path, *command: str) -> tuple[Path, dict[str, str]]:
    """The stretched recording of a program beside a GPU that is busy 28 %."""
    scenario = folder / "gpu.scn"
    scenario.write_text("[gpu 0]\nmodel = A100\nutil = 28\nmem = 20000\n")
    env = environment(GPUMON_STATE=str(folder / "state"), TMPDIR=str(folder))
    path = folder / "short.gpumon"
    with Emulated(scenario) as gpus:
        done = subprocess.run(
            [*GPUMON, "record", "--probe", "-o", str(path), "--", *command],
            env={**env, **gpus.env}, capture_output=True, text=True, timeout=2 * HANGS_S,
        )  # fmt: skip
    assert "the probe measured inside" in done.stderr, done.stderr
    return stretched(path, folder / "long.gpumon"), env


def stretched(path: Path, to: Path) -> Path:
    """The same readings, each `_STRETCH` times as long."""
    clock = [0.0]
    recorder = Recorder(str(to), clock=lambda: clock[0])
    start = mono = None
    with Recording(str(path)) as recording:
        for item in recording.items():
            if start is None:
                start, mono = item.time, item.mono
            clock[0] = mono + _STRETCH * (item.mono - mono)
            moved = item._replace(time=start + _STRETCH * (item.time - start), mono=clock[0])
            if isinstance(moved, Header):
                recorder.header(moved._replace(interval_s=_STRETCH * moved.interval_s))
            elif isinstance(moved, Sample):
                recorder.add(moved)
    recorder.close("")
    return to


def shown(path: Path, env: dict[str, str], text: str) -> None:
    """A replay's screen shows this in the end."""
    with Emulated("no_driver") as none:
        screen = Dashboard(
            none, size=(200, 50), program=[*GPUMON, "replay", str(path), "--speed", "12"], **env
        )
        with screen:
            screen.wait_for(text, HANGS_S)


def test_a_slow_loader_is_reported_with_its_line(tmp_path, frameworks):
    program = tmp_path / "train.py"
    program.write_text(LOADER)
    path, env = recorded(tmp_path, frameworks, str(program), "2")
    out = " ".join(gpumon("report", str(path), env=env).stdout.split())
    slow, loop = (line_of(LOADER, f"# {name}").partition(":")[2] for name in ("slow", "loop"))
    assert f"GPU 0 waits for data (train.py:{slow}): GPU busy 28 %" in out
    assert (
        f"of the time, in train.py:{loop} → DataLoader.__next__ (2 workers at train.py:{slow}"
        in out
    )
    shown(path, env, f"waits for data (train.py:{slow})")


def test_a_rank_that_does_not_come_is_reported_with_its_line(tmp_path, frameworks):
    program = tmp_path / "train.py"
    program.write_text(RANKS)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    path, env = recorded(tmp_path, frameworks, *launch, str(program), str(tmp_path))
    out = " ".join(gpumon("report", str(path), env=env).stdout.split())
    stuck, wait = (line_of(RANKS, f"# {name}").partition(":")[2] for name in ("stuck", "wait"))
    where = f"rank 2 stands in train.py:{stuck}; ranks 0 and 1 in train.py:{wait} → all_reduce"
    assert "Suspected hang: no step for " in out
    assert where in out
    shown(path, env, where)
