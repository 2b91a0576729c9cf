"""Write goldens anew: `python -m tests.golden --write [--only screens]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from multiprocessing import Pool

from tests.corpus.cases import all_cases
from tests.golden import files, reports, screens


def write_reports() -> None:
    """Of every case of the corpus and of the simulated jobs."""
    with Pool() as pool:
        said = [*pool.map(_of_case, all_cases(), 4), *pool.map(reports.of_job, range(reports.JOBS))]
    groups: dict[str, list[reports.Said]] = {}
    for each in said:
        groups.setdefault(each.group, []).append(each)
    for folder in ("pages", "verdicts"):
        shutil.rmtree(files.FOLDER / folder, ignore_errors=True)
    for group, members in groups.items():
        files.write(f"pages/{group}", {each.title: each.page for each in members})
        files.write(f"verdicts/{group}", {each.title: each.verdict for each in members})


def _of_case(name: str) -> reports.Said:
    return reports.of_case(all_cases()[name])


def write_screens() -> None:
    shutil.rmtree(files.FOLDER / "screens", ignore_errors=True)
    for name in screens.SCENES:
        files.write(f"screens/{name}", asyncio.run(screens.texts(name)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.add_argument("--only", choices=("reports", "screens"))
    arguments = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    if arguments.only != "screens":
        write_reports()
    if arguments.only != "reports":
        write_screens()


if __name__ == "__main__":
    main()
