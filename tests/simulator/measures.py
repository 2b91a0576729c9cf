"""What a page is worth beside right verdicts: useful, stable, free of contradictions, counted well.

How these are measured stands in docs/verdicts.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median

from gpumon.report.model import Report
from tests.simulator.array import SimArray
from tests.simulator.contradictions import contradictions
from tests.simulator.job import SimJob
from tests.simulator.judge import report_of
from tests.simulator.labels import last_useful_s
from tests.simulator.scaled import VARIANTS, names, verdict
from tests.simulator.score import offers
from tests.simulator.useful import RESOURCES, Freed, Told, freed, told

#: s and part of the run after the last useful work, from which on a longer limit helps nobody
_LATE_S, _LATE_SHARE = 600.0, 0.1


@dataclass
class Measures:
    """Of many jobs."""

    jobs: int = 0
    freed: list[Freed] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    contradictions: Counter[str] = field(default_factory=Counter)  # pages, by kind
    contradicting: int = 0  # pages
    late: int = 0  # jobs with a longer limit, whose last useful work lies well before their end
    pairs: Counter[str] = field(default_factory=Counter)  # by variant
    equal: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[str, str]] = field(default_factory=list)  # kind, and what to reproduce it

    def add(self, other: Measures) -> None:
        self.jobs += other.jobs
        self.freed += other.freed
        self.told += other.told
        self.contradictions.update(other.contradictions)
        self.contradicting += other.contradicting
        self.late += other.late
        self.pairs.update(other.pairs)
        self.equal.update(other.equal)
        self.notes += other.notes


def measure(
    job: SimJob | SimArray, report: Report, accounting: bool = False, variants: Iterable[str] = ()
) -> Measures:
    """`variants`: those with which the verdict is compared."""
    made = Measures(jobs=1, freed=freed(job, report, accounting))

    def note(kind: str, text: str) -> None:
        where = f"--seed {job.seed} --job {job.number}: {kind}: {text} [{job.story}]"
        made.notes.append((kind, where))

    for each in made.freed:
        if each.share < 0.5 or each.unsafe:
            sign = "unsafe" if each.unsafe else f"{each.share:.0%} freed"
            note(
                "useless", f"{each.resource} {sign} of {each.wasted:.1f} {RESOURCES[each.resource]}"
            )
    counted = None if accounting else told(job, report)
    if counted is not None:
        made.told.append(counted)
        if counted.error > 0.2:
            note("waste", f"{counted.said:.2f} GPU-h told, {counted.true:.2f} of "
                          f"{counted.held:.2f} wasted")  # fmt: skip
    against = contradictions(report)
    made.contradictions.update({each.kind for each in against})
    made.contradicting = int(bool(against))
    for one in against:
        note("contradiction", f"{one.kind}: {one.text}")
    if isinstance(job, SimJob):
        _late(job, report, made, note)
        for name in variants:
            _compare(job, report, name, accounting, made, note)
    return made


def _late(job: SimJob, report: Report, made: Measures, note) -> None:
    idle_s = job.ended.seconds - last_useful_s(job)
    if idle_s < max(_LATE_S, _LATE_SHARE * job.ended.seconds):
        return
    for name, changes in offers(report):
        if any(each.option == "--time" and isinstance(each.after, int)
               and each.after > job.request.limit_s for each in changes):  # fmt: skip
            made.late = 1
            note("late", f"{name}, and {idle_s / 60:.0f} min before its end was its last work")
            return


def _compare(
    job: SimJob, report: Report, name: str, accounting: bool, made: Measures, note
) -> None:
    other = VARIANTS[name](job)
    if other is None or (accounting and name in ("noise", "sampling")):
        return
    both = [verdict(report), verdict(report_of(other, accounting))]
    made.pairs[name] += 1
    made.equal[name] += both[0] == both[1]
    if both[0] != both[1]:
        note("unstable", f"{name}: {names(both)}")


def table(made: Measures) -> str:
    """The figures in Markdown."""
    return "\n".join([*_usefulness(made.freed), "", *_stability(made), "", *_rest(made)])


def _usefulness(found: list[Freed]) -> list[str]:
    lines = ["| resource | jobs | wasted | freed | usefulness | mean of jobs | unsafe |",
             "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    of_resource: dict[str, list[Freed]] = defaultdict(list)
    for each in found:
        of_resource[each.resource].append(each)
    for name, unit in RESOURCES.items():
        rows = of_resource[name]
        wasted, spared = sum(each.wasted for each in rows), sum(each.freed for each in rows)
        share = f"{spared / wasted:.2f}" if wasted else "-"
        mean = f"{fmean(each.share for each in rows):.2f}" if rows else "-"
        lines.append(f"| {name} | {len(rows)} | {wasted:,.0f} {unit} | {spared:,.0f} | {share} "
                     f"| {mean} | {sum(each.unsafe for each in rows)} |")  # fmt: skip
    return lines


def _stability(made: Measures) -> list[str]:
    lines = ["| once more | pairs | equal | stability |", "|---|--:|--:|--:|"]
    for name in VARIANTS:
        lines.append(_row(name, made.pairs[name], made.equal[name]))
    return [*lines, _row("all", made.pairs.total(), made.equal.total())]


def _row(name: str, pairs: int, equal: int) -> str:
    return f"| {name} | {pairs} | {equal} | {f'{equal / pairs:.3f}' if pairs else '-'} |"


def _rest(made: Measures) -> list[str]:
    kinds = ", ".join(f"{kind} {count}" for kind, count in made.contradictions.most_common())
    against = f"{made.contradicting} of {made.jobs} pages contradict themselves"
    late = f"{made.late} jobs are advised a longer limit long after their last useful work."
    lines = [f"{against}: {kinds}." if kinds else f"{against}.", "", late, ""]
    large = [each.error for each in made.told if each.is_large]
    small = [each.error for each in made.told if not each.is_large]
    if large:
        said, true = sum(each.said for each in made.told), sum(each.true for each in made.told)
        lines.append(
            f"Of {true:.0f} GPU-h truly wasted {said:.0f} are told. On {len(large)} jobs that "
            f"wasted a tenth or more, the relative error is {median(large):.2f} in the median and "
            f"{max(large):.2f} at worst"
            + (f"; on {len(small)} others, {max(small):.2f} of what they held." if small else ".")
        )
    return lines
