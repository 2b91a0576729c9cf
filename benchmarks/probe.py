"""What the probe costs a program: `python -m benchmarks.probe --python PYTHON`.

PYTHON has PyTorch (its CPU build will do). The same loop runs with and without the probe in turn.
It prints the CPU time of a step, the most memory, and the CPU time of a program that does nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from statistics import median

from gpumon.services.probing import probe_of

_LOOP = """
import sys, time, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
rows = torch.randn(32, 256)
until = time.perf_counter() + float(sys.argv[1])
steps, cpu = 0, time.process_time()
while time.perf_counter() < until:
    optimizer.zero_grad()
    net(rows).pow(2).mean().backward()
    optimizer.step()
    steps += 1
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line)
print(steps, (time.process_time() - cpu) / steps, peak)
"""


def _environ(folder: str, *, probed: bool) -> dict[str, str]:
    environ = {**os.environ, "TMPDIR": folder}
    return environ | probe_of(environ).variables if probed else environ


def steps(python: str, seconds: float, rounds: int, folder: str) -> None:
    """CPU of a step and peak memory, medians."""
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for probed in (False, True):
            done = subprocess.run(
                [python, "-c", _LOOP, str(seconds)],
                env=_environ(folder, probed=probed), capture_output=True, text=True, check=True,
            )  # fmt: skip
            count, cpu_s, peak_kib = map(float, done.stdout.split())
            found[probed].append((count, cpu_s, peak_kib))
    for probed, rows in found.items():
        count, cpu_s, peak_kib = (median(column) for column in zip(*rows))
        print(
            f"{'with' if probed else 'without':8}{count / seconds:8.0f} steps/s"
            f"{1e6 * cpu_s:9.1f} µs CPU a step{peak_kib / 1024:9.1f} MiB at most"
        )
    ratio = median(b[1] / a[1] for a, b in zip(found[False], found[True]))
    print(f"a step takes {100 * (ratio - 1):+.2f} % CPU with the probe (median of pairs)")


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
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", action="store_true", help="only the start")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not args.starts:
            steps(args.python, args.seconds, args.rounds, folder)
        starts(args.python, 40, folder)


if __name__ == "__main__":
    main()
