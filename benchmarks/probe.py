"""What the probe costs a program: `python -m benchmarks.probe --python PYTHON`.

PYTHON has PyTorch; its CPU build will do (`tests/probe/frameworks` prints one). It prints:

- how much longer a step takes with the probe's hook, and with an empty one. They and no hook take
  turns every 40 steps in one process: two processes differ by several percent without any hook;
- the CPU time of the probe's thread beside such steps;
- the peak memory with and without the probe, and the CPU time of a program that does nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from statistics import median

from gpumon.services.probing import INSIDE, probe_of

_NET = """
import os, random, sys, time, torch
from time import perf_counter as clock
torch.set_num_threads(1)
seconds, size = float(sys.argv[1]), int(sys.argv[2])
net = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, 8))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
rows = torch.randn(32, size)
def step():
    optimizer.zero_grad()
    net(rows).pow(2).mean().backward()
    optimizer.step()
for _ in range(500):
    step()
until = clock() + seconds
"""
_HOOKS = (
    _NET
    + """
sys.path.append(sys.argv[3])
import gpumon_steps
counted = gpumon_steps.Steps()
def empty(optimizer, args, kwargs):
    pass
hooks = {"no hook": None, "none again": None, "empty": empty, "the probe's": counted._hook.step}
register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
took = {name: [] for name in hooks}
while clock() < until:
    for name in random.sample(list(hooks), len(hooks)):
        handle = register(hooks[name]) if hooks[name] else None
        for _ in range(10):
            step()
        for _ in range(40):
            began = clock()
            step()
            took[name].append(clock() - began)
        if handle is not None:
            handle.remove()
    counted.look()
def at(name, part):
    return 1e6 * sorted(took[name])[int(part * len(took[name]))]
for name in hooks:
    more = "".join("%+9.2f" % (at(name, part) - at("no hook", part)) for part in (0.1, 0.25, 0.5))
    print("%-14s%9.1f µs a step; more at 10, 25, 50 %% of them:%s µs" % (name, at(name, 0.5), more))
"""
)
_THREAD = (
    _NET
    + """
def cpu_s():
    tasks = "/proc/self/task/"
    spent = {id: open(tasks + id + "/schedstat").read() for id in os.listdir(tasks)}
    return {id: int(text.split()[0]) / 1e9 for id, text in spent.items()}
before = cpu_s()
sys.path.append(sys.argv[3])
import gpumon_probe
gpumon_probe.begin()
steps, began = 0, clock()
while clock() < until:
    step()
    steps += 1
took, spent = clock() - began, sum(s for id, s in cpu_s().items() if id not in before)
share = 100 * spent / took
print("beside %.0f steps/s the probe's thread takes %.3f %% of a core" % (steps / took, share))
"""
)
_MEMORY = (
    _NET
    + """
while clock() < until:
    step()
print(next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line))
"""
)


def _environ(folder: str, *, probed: bool) -> dict[str, str]:
    environ = {**os.environ, "TMPDIR": folder}
    return environ | probe_of(environ).variables if probed else environ


def _run(
    python: str, program: str, seconds: float, folder: str, *, size: int, probed: bool = False
) -> str:
    environ = {**_environ(folder, probed=probed), "GPUMON_PROBE_DIR": folder}
    command = [python, "-c", program, str(seconds), str(size), INSIDE]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def memory(python: str, seconds: float, rounds: int, folder: str) -> None:
    """Peak memory, medians."""
    peaks = {
        probed: median(
            int(_run(python, _MEMORY, seconds, folder, size=256, probed=probed))
            for _ in range(rounds)
        )
        for probed in (False, True)
    }
    more = (peaks[True] - peaks[False]) / 1024
    print(f"at most {peaks[False] / 1024:.1f} MiB, with the probe {more:+.1f} MiB")


def starts(python: str, rounds: int, folder: str) -> None:
    """CPU of a Python that does nothing, ms, medians."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for probed in (False, True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            environ = _environ(folder, probed=probed)
            subprocess.run([python, "-c", "pass"], env=environ, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[probed].append(1e3 * spent)
    without, with_it = median(found[False]), median(found[True])
    print(f"an empty program takes {without:.1f} ms of CPU, with the probe {with_it:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--size", type=int, default=256, help="of the network's first layer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", action="store_true", help="only the start")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not args.starts:
            for program in (_HOOKS, _THREAD):
                print(_run(args.python, program, args.seconds, folder, size=args.size), end="")
            memory(args.python, 5.0, args.rounds, folder)
        starts(args.python, 40, folder)


if __name__ == "__main__":
    main()
