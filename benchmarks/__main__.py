"""Measure gpumon beside its peers on the emulated driver, interleaved, and print the table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import table
from benchmarks.bed import Bed, bed
from benchmarks.budgets import Results
from benchmarks.measure import measure_live, measure_shot, middle
from benchmarks.programs import HELP, LIVE, ONCE, Found, Live, Shot, find


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="window of a running program")
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
    parser.add_argument("--write", action="store_true", help="put the results into README.md")
    return parser.parse_args()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wanted(programs: tuple, found: Found, only: list[str]) -> list[tuple[Live | Shot, list[str]]]:
    pairs = []
    for program in programs:
        argv = found.argv(program)
        if argv and (not only or any(text in program.name for text in only)):
            pairs.append((program, argv))
    return pairs


def run_live(on: Bed, found: Found, args: argparse.Namespace, markers: dict[str, str]) -> Results:
    columns, rows = map(int, args.size.split("x"))
    runs: dict[str, list] = {}
    for number in range(args.rounds + 1):  # round 0 compiles modules and is not counted
        for program, argv in wanted(LIVE, found, args.only):
            note(f"round {number} of {args.rounds}: {program.name}")
            size = (columns, rows) if program.terminal else None
            marker = markers.get(program.name, program.marker)
            result = measure_live(on, argv, size, marker, args.seconds if number else 0)
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
        found = find(args.peers, on.program_env())
        results = run_shots(on, found, args) | run_live(on, found, args, markers)
    command = f"python -m benchmarks --seconds {args.seconds:g} --rounds {args.rounds}"
    command += f" --runs {args.runs} --size {args.size}"
    text = table.report(results, found, command)
    print(text)
    if args.write:
        table.write(text)


if __name__ == "__main__":
    main()
