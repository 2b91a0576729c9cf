"""What `gpumon report` over many jobs costs, as the whole command.

    python -m benchmarks.report                 # 10,000 jobs, from sacct and from saved dumps
    python -m benchmarks.report --only '--user' --before DIR    # beside another checkout

The jobs are those of 18 kinds that a real cluster printed, over and over, each with a number, a
user, times (a minute to a day) and figures of its own, in the fields that gpumon asks for. `sacct`
is a script that prints them; what it costs by itself is in the first row. CPU is that of the
command and its children, wall and CPU the least of the rounds, since other work only adds.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import resource
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.bed import ROOT
from benchmarks.programs import GPUMON
from benchmarks.table import rows_table
from gpumon.model.units import clock_text
from gpumon.slurm import sacct
from tests.slurm import samples

_CLUSTER = "24.11.7-cgroupv1"
_BUDGET_S = 3.0
_FIRST = 1_795_000_000  # epoch s of the first job's start
#: stands for the delimiter, which gpumon chooses anew for each call
_MARK = "\x1e"
_SACCT = """#!/bin/sh
for word; do case $word in
--helpformat) exec cat {names} ;;
--delimiter=*) exec sed "s/{mark}/${{word#--delimiter=}}/g" {rows} ;;
esac; done
"""


class Files(NamedTuple):
    """The same jobs as `sacct` on PATH prints them, and as people save them."""

    path: Path
    dump: Path
    document: Path  # of a tenth of the jobs: `sacct --json` is 30 times as long


def rows_of_jobs() -> tuple[list[str], list[list[dict[str, str]]]]:
    """(the fields that gpumon asks for, for each job its own row and those of its steps)."""
    text = samples.read(_CLUSTER, "after-sacct-P-all.txt").decode()
    names, *rows = csv.reader(io.StringIO(text), delimiter="|", quoting=csv.QUOTE_NONE)
    jobs: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        if len(row) == len(names):
            cells = dict(zip(names, row))
            jobs.setdefault(cells["JobID"].partition(".")[0], []).append(cells)
    # the name of one holds the delimiter: its own row is not among them
    whole = [rows for rows in jobs.values() if "." not in rows[0]["JobID"]]
    return sacct.fields(names), whole


def made_jobs(count: int) -> tuple[list[str], list[list[str]]]:
    """(fields, a row for each of so many jobs and of their steps)."""
    names, jobs = rows_of_jobs()
    numbers = random.Random(7)
    rows = []
    for n in range(count):
        number, elapsed_s = str(100_000 + n), numbers.randrange(60, 86_400)
        start = _FIRST + 60 * n
        times = {
            "Elapsed": clock_text(elapsed_s), "ElapsedRaw": str(elapsed_s), "Start": str(start),
            "Submit": str(start - 30), "Eligible": str(start - 30), "End": str(start + elapsed_s),
        }  # fmt: skip
        user = f"user{numbers.randrange(40):02d}"
        for row in numbers.choice(jobs):
            own, dot, step = row["JobID"].partition(".")
            suffix = own.lstrip("0123456789") + dot + step
            cpu = clock_text(numbers.randrange(elapsed_s * int(row["AllocCPUS"] or 1)))
            changed = {"JobID": number + suffix, "JobIDRaw": number + dot + step, "TotalCPU": cpu}
            changed |= {**times, "User": "" if step else user}
            if step:
                used_kib = numbers.randrange(400, 1 << 20)
                used = f"cpu={cpu},energy=0,fs/disk={used_kib * 7},mem={used_kib}K,pages=0"
                changed |= {"MaxRSS": f"{used_kib}K"}
                changed |= {"TRESUsageInTot": used, "TRESUsageInMax": used}
            cells = row | changed
            rows.append([cells[name] for name in names])
    return names, rows


def made_document(count: int) -> str:
    """What `sacct --json` prints for so many jobs."""
    document = json.loads(samples.read(_CLUSTER, "after-sacct-json.json"))
    numbers, jobs = random.Random(7), []
    for n in range(count):
        job = json.loads(json.dumps(numbers.choice(document["jobs"])))
        job["job_id"] = 100_000 + n
        job["time"]["elapsed"] = numbers.randrange(60, 86_400)
        jobs.append(job)
    return json.dumps({**document, "jobs": jobs}, indent=2)


def write(folder: Path, count: int) -> Files:
    names, rows = made_jobs(count)
    found = Files(folder / "bin", folder / "dump", folder / "dump.json")
    found.path.mkdir()
    printed, listed = folder / "rows", folder / "names"
    printed.write_text("".join(_MARK.join(row) + "\n" for row in rows))
    listed.write_text(" ".join(names) + "\n")
    found.dump.write_text("".join("|".join(row) + "\n" for row in [names, *rows]))
    found.document.write_text(made_document(max(1, count // 10)))
    script = found.path / "sacct"
    paths = {"names": shlex.quote(str(listed)), "rows": shlex.quote(str(printed))}
    script.write_text(_SACCT.format(mark=_MARK, **paths))
    script.chmod(0o755)
    return found


class Run(NamedTuple):
    """What a command cost."""

    wall_s: float
    cpu_s: float
    printed_bytes: int


def run(argv: list[str], env: dict[str, str]) -> Run:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env=env, cwd=env["PYTHONPATH"], stdout=subprocess.PIPE, check=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Run(wall_s, cpu_s, len(done.stdout))


def commands(files: Files, count: int) -> dict[str, list[str]]:
    report = [*GPUMON, "report"]
    window = [*report, "--user", "ada", "--since", "now-30days"]
    saved, document = [*report, "--from-sacct", str(files.dump)], str(files.document)
    return {
        "the script `sacct` alone": [str(files.path / "sacct"), "--delimiter=|"],
        "`gpumon report`, one job of a dump": [*saved, "100000"],
        f"`gpumon report --user U --since T`, {count:,} jobs": window,
        f"`gpumon report --from-sacct FILE`, {count:,} jobs": saved,
        f"the same of `sacct --json`, {max(1, count // 10):,} jobs": [
            *report, "--from-sacct", document,
        ],
        f"`gpumon report --format json`, {count:,} jobs": [*window, "--format", "json"],
    }  # fmt: skip


def environment(folder: Path, files: Files, tree: str) -> dict[str, str]:
    """Of gpumon in a checkout, from compiled modules as an installed one is."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return env | {
        "PATH": f"{files.path}{os.pathsep}{env['PATH']}",
        "PYTHONPATH": tree, "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
        "XDG_STATE_HOME": f"{folder}/state", "XDG_RUNTIME_DIR": f"{folder}/run",
        "XDG_CONFIG_HOME": f"{folder}/config", "LC_ALL": "C.UTF-8",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="commands with this in their name")
    parser.add_argument("--before", metavar="DIR", help="measure another checkout, too, in turn")
    args = parser.parse_args()
    trees = {"": str(ROOT)} | ({", before": args.before} if args.before else {})
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        files, rows = write(folder, args.jobs), []
        for env in (environment(folder, files, tree) for tree in trees.values()):
            run([*GPUMON, "report", "--from-sacct", str(files.document)], env)  # which compiles
        for each, argv in commands(files, args.jobs).items():
            if args.only not in each:
                continue
            runs: dict[str, list[Run]] = {tree: [] for tree in trees}
            for tree in [*trees] * args.rounds:
                runs[tree].append(run(argv, environment(folder, files, trees[tree])))
            for tree, found in runs.items():
                wall_s, cpu_s = min(e.wall_s for e in found), min(e.cpu_s for e in found)
                size = f"{found[0].printed_bytes / 1e6:.1f}"
                rows.append([each + tree, f"{wall_s:.2f}", f"{cpu_s:.2f}", size])
        print(rows_table(["", "wall s", "CPU s", "MB printed"], rows))
        print(f"\nThe budget of {_BUDGET_S:g} s is for 10,000 jobs as a table.")


if __name__ == "__main__":
    main()
