"""How often verdicts are right: simulated jobs, their reports, and the truth.

    python -m benchmarks.verdicts                             # 300 jobs
    python -m benchmarks.verdicts --jobs 2000 --seed 1,2,3 --processes 2
    python -m benchmarks.verdicts --accounting                # the same, without a recording
    python -m benchmarks.verdicts --seed 1 --job 17           # one job: its report and its truth
    python -m benchmarks.verdicts --jobs 2000 --seed 1,2,3 --write   # also into docs/verdicts.md
    python -m benchmarks.verdicts --all                       # also kinds that are known to fail
    python -m benchmarks.verdicts --stability                 # each job once more in five ways
    python -m benchmarks.verdicts --jobs 350 --seed 1,2,3,41,42,43 --digest   # to compare checkouts

`--digest` prints findings, levels and lines, one job a line, and nothing else.

Every false or missing finding and every unsafe line is printed with what reproduces it, and every
contradiction on a page. `--notes` prints of what kind is asked for: waste, useless, unstable, late.

The table compares each job with one of its variants, in turn; `--stability` with all of them, and
prints the pairs that differ.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Collection
from contextlib import nullcontext
from multiprocessing import Pool
from pathlib import Path

from gpumon.report.render.text import text as report_text
from tests.simulator.array import SimArray
from tests.simulator.draw import ANEW, KINDS, NEW, NOT_YET, make, name_of, numbers
from tests.simulator.job import SimJob
from tests.simulator.judge import report_of
from tests.simulator.labels import needs, timeline
from tests.simulator.measures import Measures, measure
from tests.simulator.measures import table as measures_table
from tests.simulator.scaled import VARIANTS
from tests.simulator.score import Score, digest, score, table, truth_for

DOCUMENT = Path(__file__).parents[1] / "docs" / "verdicts.md"
Task = tuple[int, int, str, bool, bool]
ALWAYS_NOTED = ("contradiction",)


def judged(task: Task) -> tuple[Score, Measures]:
    seed, number, kind, accounting, stability = task
    job = make(seed, number, kind)
    report = report_of(job, accounting)
    every = list(VARIANTS)
    variants = every if stability else every[number % len(every) :][:1]
    measures = measure(job, report, accounting, variants)
    return score(job, report, accounting), measures


def run(
    tasks: list[Task], processes: int, id: str, noted: Collection[str]
) -> tuple[Score, Measures]:
    """All of them; misses of this finding, and notes of these kinds, are printed as found."""
    total, sums = Score(), Measures()
    with Pool(processes) if processes > 1 else nullcontext() as pool:
        found = pool.imap_unordered(judged, tasks, chunksize=4) if pool else map(judged, tasks)
        for each, measures in found:
            total.add(each)
            sums.add(measures)
            for miss in each.misses:
                if id in miss.what:
                    print(miss.text, flush=True)
            for kind, text in measures.notes:
                if kind in noted and not id:
                    print(text, flush=True)
    return total, sums


def digested(task: Task) -> str:
    seed, number, kind, accounting, _ = task
    job = make(seed, number, kind)
    return f"{seed}/{number} {job.story.partition(': ')[0]} {digest(report_of(job, accounting))}"


def digests(tasks: list[Task], processes: int) -> None:
    """A line for each, in their order."""
    with Pool(processes) if processes > 1 else nullcontext() as pool:
        for line in pool.imap(digested, tasks, chunksize=4) if pool else map(digested, tasks):
            print(line, flush=True)


def show(task: Task) -> None:
    """One job: its report, and what is true of it."""
    seed, number, kind, accounting, _ = task
    job = make(seed, number, kind)
    report, truth = report_of(job, accounting), truth_for(job)
    first = job.tasks[0] if isinstance(job, SimArray) else job
    asked, ended = first.request, first.ended
    print(report_text(report, width=100))
    print(f"\nSIMULATED {job.story}")
    board = asked.board.gres if asked.board else "gpu"
    print(f"  {asked.nodes} nodes × {asked.cpus} cores, {asked.mem / 2**30:.1f} GiB, "
          f"{asked.gpus} × {board}, limit {asked.limit_s / 60:.0f} min")  # fmt: skip
    causes = {name: round(share, 2) for name, share in first.program.causes.items()}
    print(f"  {ended.state} after {ended.seconds / 60:.0f} min; causes {causes}")
    for must in truth.must:
        print(f"  must: {must.level} {must.why}: {', '.join(sorted(must.ids))}")
    print(f"  may: {', '.join(f'{id} ({level})' for id, level in sorted(truth.may.items()))}")
    if isinstance(job, SimJob):
        print(f"  {needs(job)}")
        for (node, key), row in timeline(job).items():
            print(f"  node {node}, GPU {key}: " + "; ".join(
                f"{each.since / 60:.0f}-{each.until / 60:.0f} min {each.state.value}"
                f"{f' {each.used:.0%}' if each.used else ''} {each.cause}".rstrip()
                for each in row))  # fmt: skip
    for miss in score(job, report, accounting).misses:
        print(f"  MISS {miss.kind} {miss.level} {miss.what}: {miss.why}")
    for _, text in measure(job, report, accounting, VARIANTS).notes:
        print(f"  NOTE {text.partition(': ')[2].partition(' [')[0]}")


def write(total: Score, sums: Measures, args: argparse.Namespace) -> None:
    """Put the figures into the document, in the place of the same kind of run."""
    kind = "accounting" if args.accounting else "all" if args.all else "recordings"
    command = f"python -m benchmarks.verdicts --jobs {args.jobs} --seed {args.seed}"
    command += " --all" if args.all else ""
    command += " --accounting" if args.accounting else ""
    begin, end = f"<!-- {kind} -->\n", f"<!-- end of {kind} -->"
    before, _, rest = DOCUMENT.read_text().partition(begin)
    after = rest.partition(end)[2]
    text = f"`{command}`\n\n{table(total)}\n\n{measures_table(sums)}\n"
    DOCUMENT.write_text(f"{before}{begin}{text}{end}{after}")


def numbers_of(seed: int, args: argparse.Namespace) -> list[int]:
    """The jobs of a seed: of one kind, or of all that are drawn."""
    if not args.kind:
        return numbers(seed, args.jobs, args.all)
    is_new = args.kind in {name_of(kind) for kind, _ in NEW}
    first = ANEW if is_new else 0
    return list(range(first, first + args.jobs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", default="1", help="one, or several joined by commas")
    parser.add_argument("--job", type=int, help="print the report and the truth of this one")
    parser.add_argument("--kind", default="", help="only of this kind: training.never …")
    parser.add_argument("--kinds", action="store_true", help="list the kinds")
    parser.add_argument("--id", default="", help="print only misses of this finding")
    parser.add_argument("--all", action="store_true", help="also kinds that are known to fail")
    parser.add_argument("--stability", action="store_true", help="each job in all variants")
    parser.add_argument(
        "--notes", default="", help="print these notes: waste,useless,unstable,late"
    )
    parser.add_argument("--accounting", action="store_true", help="from accounting alone")
    parser.add_argument("--digest", action="store_true", help="what is said, one job a line")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"the figures into {DOCUMENT.name}")
    args = parser.parse_args()
    if args.kinds:
        print("\n".join(f"{name_of(kind)}  {weight:g}" for kind, weight in (*KINDS, *NEW)))
        print("\n".join(f"not yet: {kind}: {why}" for kind, why in NOT_YET.items()))
        return
    seeds = [int(each) for each in args.seed.split(",")]
    if args.job is not None:
        show((seeds[0], args.job, args.kind, args.accounting, True))
        return
    began = time.monotonic()
    tasks = [
        (seed, n, args.kind, args.accounting, args.stability)
        for seed in seeds
        for n in numbers_of(seed, args)
    ]
    if args.digest:
        digests(tasks, args.processes)
        return
    noted = {*ALWAYS_NOTED, *args.notes.split(","), *(["unstable"] if args.stability else [])}
    total, sums = run(tasks, args.processes, args.id, noted)
    print()
    for (kind, level, what), count in sorted(
        Counter((each.kind, each.level, each.what) for each in total.misses
                if each.kind != "unsafe").items()
    ):  # fmt: skip
        print(f"{count:5} {kind} {level} {what}")
    print(f"\n{table(total)}\n\n{measures_table(sums)}")
    if args.write:
        write(total, sums, args)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
