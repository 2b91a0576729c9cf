"""CPU seconds that a report over many jobs costs beyond `sacct`: parsing, judging, writing.

    python -m benchmarks.report                 # 10,000 jobs of sacct's own output
    python -m benchmarks.report --jobs 1000 --dump FILE

The dump is made of what a real cluster printed for 18 kinds of job, over and over, each with a
number, a user and a time of its own (a minute to a day), in the fields that gpumon asks for.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import tempfile
import time
from pathlib import Path

from gpumon.cli.reporting import uncollected
from gpumon.model.units import clock_text
from gpumon.report.build import build, from_accounting
from gpumon.report.document import document
from gpumon.report.html import html_page
from gpumon.report.table import text_table
from gpumon.site.read import load_site
from gpumon.slurm import sacct, saved
from tests.slurm import samples

_CLUSTER = "24.11.7-cgroupv1"
_BUDGET_S = 5.0


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


def dump(count: int) -> str:
    """sacct's output for so many jobs."""
    names, jobs = rows_of_jobs()
    numbers = random.Random(7)
    lines = ["|".join(names)]
    for n in range(count):
        number, elapsed = str(100_000 + n), clock_text(numbers.randrange(60, 86_400))
        user = f"user{numbers.randrange(40):02d}"
        for row in numbers.choice(jobs):
            own, dot, step = row["JobID"].partition(".")
            suffix = own.lstrip("0123456789") + dot + step
            changed = {"JobID": number + suffix, "JobIDRaw": number + dot + step}
            changed |= {"Elapsed": elapsed, "User": "" if step else user, "ElapsedRaw": ""}
            cells = row | changed
            lines.append("|".join(cells[name] for name in names))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--dump", help="judge this one, and make none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.dump or str(Path(folder) / "dump")
        if not args.dump:
            Path(path).write_text(dump(args.jobs))
        with uncollected():
            _measure(path)


def _measure(path: str) -> None:
    began = time.process_time()
    jobs = saved.read(path)
    parsed = time.process_time()
    site = load_site()
    reports = [build(from_accounting(job, site)) for job in jobs]
    judged = time.process_time()
    text_table(reports)
    written = time.process_time()
    documents = [document(report) for report in reports]
    html = html_page(reports[:100])
    ended = time.process_time()
    found = sum(len(report.findings) for report in reports)
    print(f"{len(jobs)} jobs, {Path(path).stat().st_size / 1e6:.0f} MB, {found} findings")
    print(f"  parsing    {parsed - began:6.2f} s")
    print(f"  judging    {judged - parsed:6.2f} s")
    print(f"  the table  {written - judged:6.2f} s")
    total = written - began
    verdict = "within" if total <= _BUDGET_S else "over"
    print(f"  together   {total:6.2f} s, {verdict} the budget of {_BUDGET_S:g} s")
    print(f"  besides: JSON of {len(documents)} and HTML of 100 ({len(html) / 1e6:.1f} MB)"
          f" {ended - written:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
