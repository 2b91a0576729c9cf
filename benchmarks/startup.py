"""What it costs to start gpumon's light commands: wall time, CPU, and the modules they import.

    python -m benchmarks.startup [--runs N] [COMMAND ...]      e.g. "once --json" "--version"

Import times come from `python -X importtime`, which slows every import; compare them with each
other, not with the wall times, which are taken without it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.bed import Bed, bed
from benchmarks.measure import Failed, measure_shot, middle
from benchmarks.programs import GPUMON
from benchmarks.table import rows_table

COMMANDS = (
    "--version",
    "--help",
    "once",
    "once --json",
    "collect --count 1",
    "runs",
    "doctor --json",
)
DEAREST = 10


def imports(on: Bed, arguments: list[str]) -> list[tuple[int, str]]:
    """Return (own microseconds, module) of every import, the dearest first.

    A line of importtime is `import time: SELF | CUMULATIVE | MODULE`, after one line of headings.
    """
    done = subprocess.run(
        [GPUMON[0], "-X", "importtime", *GPUMON[1:], *arguments],
        env=on.program_env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    found = []
    for line in done.stderr.splitlines():
        fields = line.removeprefix("import time:").split("|")
        if line.startswith("import time:") and fields[0].strip().isdigit():
            found.append((int(fields[0]), fields[2].strip()))
    return sorted(found, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=9, help="runs of each command")
    parser.add_argument("command", nargs="*", help="arguments of gpumon")
    args, options = parser.parse_known_args()  # "--version" is a command of gpumon's
    rows, dearest = [], []
    with bed() as on:
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        wanted = [*args.command, *options] or COMMANDS
        commands |= {f"gpumon {each}": [*GPUMON, *each.split()] for each in wanted}
        runs: dict[str, list] = {name: [] for name in commands}
        for number in range(args.runs + 1):  # run 0 compiles modules and is not counted
            for name, argv in commands.items():
                result = measure_shot(on, argv)
                if number:
                    runs[name].append(result)
        for name, argv in commands.items():
            of_all = middle(runs[name])
            if isinstance(of_all, Failed):
                print(f"{name}: {of_all.reason}", file=sys.stderr)
                continue
            modules = imports(on, argv[len(GPUMON) :]) if name.startswith("gpumon") else []
            count = str(len(modules)) if modules else ""
            rows.append([f"`{name}`", f"{of_all.wall_s:.3f}", f"{of_all.cpu_s:.3f}", count])
            listed = ", ".join(f"{module} {us / 1000:.1f}" for us, module in modules[:DEAREST])
            if modules:
                dearest.append(f"- `{name}`: {listed}")
    print(rows_table(["", "wall s", "CPU s", "modules"], rows))
    print(f"\nThe {DEAREST} dearest imports, own ms under importtime:\n\n" + "\n".join(dearest))


if __name__ == "__main__":
    main()
