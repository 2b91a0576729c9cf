"""Measure gpumon beside its peers on the emulated driver, interleaved, and print the table."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from benchmarks import table
from benchmarks.bed import Bed, bed
from benchmarks.budgets import Results
from benchmarks.measure import Failed, LiveFigures, measure_live, measure_shot, middle
from benchmarks.programs import HELP, LIVE, ONCE, Found, Live, Shot, find, of_before


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="window of a running program")
    parser.add_argument(
        "--settle", type=float, default=4, metavar="SECONDS",
        help="from the first screen to the window; plots of ten minutes are full after 660",
    )  # fmt: skip
    parser.add_argument(
        "--together", action="store_true", help="all running programs at once, not in turn"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each running program")
    parser.add_argument("--runs", type=int, default=9, help="runs of each one-shot command")
    parser.add_argument("--size", default="160x50", help="columns x rows of the terminal")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="programs whose name has such a text"
    )
    parser.add_argument(
        "--peers", nargs="+", type=Path, default=[], metavar="DIR", help="where peers are installed"
    )
    parser.add_argument(
        "--marker", action="append", default=[], metavar="NAME=TEXT", help="text of a first screen"
    )
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="another checkout of gpumon to compare with"
    )
    parser.add_argument("--write", action="store_true", help="put the results into README.md")
    return parser.parse_args()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wanted(programs: tuple, found: Found, only: list[str]) -> list[tuple[Live | Shot, list[str]]]:
    pairs = []
    twins = [of_before(each) for each in programs if each.argv[0] == "gpumon"]
    for program in (*programs, *twins):
        argv = found.argv(program)
        if argv and (not only or any(text in program.name for text in only)):
            pairs.append((program, argv))
    return pairs


def run_live(on: Bed, found: Found, args: argparse.Namespace, markers: dict[str, str]) -> Results:
    columns, rows = map(int, args.size.split("x"))
    programs = wanted(LIVE, found, args.only)
    runs: dict[str, list] = {}

    def measure(pair: tuple[Live, list[str]], seconds: float) -> LiveFigures | Failed:
        program, argv = pair
        size = (columns, rows) if program.terminal else None
        marker = markers.get(program.name, program.marker)
        return measure_live(on, argv, size, marker, seconds, args.settle)

    with ThreadPoolExecutor(len(programs) if args.together else 1) as at_once:
        for number in range(args.rounds + 1):  # round 0 compiles modules and is not counted
            note(f"round {number} of {args.rounds}")
            seconds = args.seconds if number else 0
            results = at_once.map(measure, programs, repeat(seconds))
            for (program, _), result in zip(programs, results):
                if number:
                    runs.setdefault(program.name, []).append(result)
    return {name: middle(results) for name, results in runs.items()}


def run_shots(on: Bed, found: Found, args: argparse.Namespace) -> Results:
    runs: dict[str, list] = {}
    for number in range(args.runs + 1):  # run 0 compiles modules and is not counted
        note(f"commands, run {number} of {args.runs}")
        for program, argv in wanted((*ONCE, *HELP), found, args.only):
            result = measure_shot(on, argv)
            if number:
                runs.setdefault(program.name, []).append(result)
    return {name: middle(results) for name, results in runs.items()}


def main() -> None:
    args = parse_arguments()
    markers = dict(entry.split("=", 1) for entry in args.marker)
    with bed() as on:
        found = find(args.peers, on.program_env(), args.before)
        results = run_shots(on, found, args) | run_live(on, found, args, markers)
    command = f"python -m benchmarks --seconds {args.seconds:g} --rounds {args.rounds}"
    command += f" --runs {args.runs} --size {args.size} --settle {args.settle:g}"
    command += " --together" if args.together else ""
    text = table.report(results, found, command)
    print(text)
    if args.write:
        table.write(text)


if __name__ == "__main__":
    main()
