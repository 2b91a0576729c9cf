"""Verdicts against the truth: what was right, what was missed, which lines would do harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpumon.analysis.finding import Change
from gpumon.report.model import Report
from tests.simulator.array import SimArray, truth_of_array
from tests.simulator.follow import harm
from tests.simulator.job import SimJob
from tests.simulator.observe import node_name
from tests.simulator.truth import Must, Truth, gpu_needs, truth_of

LEVELS = ("critical", "warning")


@dataclass(frozen=True)
class Miss:
    """One thing that is wrong with a report. kind: false, missed, unsafe. level: also `need`, of
    GPU memory that was measured.
    """

    seed: int
    number: int
    kind: str
    level: str
    what: str  # id of the finding, or the line
    why: str
    story: str

    @property
    def text(self) -> str:
        return (f"--seed {self.seed} --job {self.number}: {self.kind} {self.level} {self.what}: "
                f"{self.why} [{self.story}]")  # fmt: skip


@dataclass
class Score:
    """Counts over jobs."""

    jobs: int = 0
    healthy: int = 0
    healthy_alarmed: int = 0
    raised: Counter[str] = field(default_factory=Counter)  # by level
    right: Counter[str] = field(default_factory=Counter)
    due: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    unsafe: int = 0
    needs: int = 0  # of GPUs, that were measured
    wrong_needs: int = 0
    misses: list[Miss] = field(default_factory=list)

    def add(self, other: Score) -> None:
        self.jobs += other.jobs
        self.healthy += other.healthy
        self.healthy_alarmed += other.healthy_alarmed
        self.lines += other.lines
        self.unsafe += other.unsafe
        self.needs += other.needs
        self.wrong_needs += other.wrong_needs
        for name in ("raised", "right", "due", "found"):
            getattr(self, name).update(getattr(other, name))
        self.misses += other.misses

    def precision(self, level: str) -> float:
        return self.right[level] / self.raised[level] if self.raised[level] else 1.0

    def recall(self, level: str) -> float:
        return self.found[level] / self.due[level] if self.due[level] else 1.0


def score(job: SimJob | SimArray, report: Report, accounting: bool = False) -> Score:
    truth, made = truth_for(job), Score(jobs=1)

    def miss(kind: str, level: str, what: str, why: str) -> None:
        made.misses.append(Miss(job.seed, job.number, kind, level, what, why, job.story))

    _precision(truth, report, made, miss)
    _recall(truth, report, made, miss, accounting)
    if isinstance(job, SimJob):
        _needs(job, report, made, miss)
    if is_healthy(job, truth):
        made.healthy = 1
        made.healthy_alarmed = int(made.raised.total() > made.right.total())
    for name, changes in offers(report):
        made.lines += 1
        why = next(filter(None, (harm(each, changes, accounting) for each in tasks_of(job))), "")
        if why:
            made.unsafe += 1
            miss("unsafe", "line", name, why)
    return made


def truth_for(job: SimJob | SimArray) -> Truth:
    return truth_of_array(job) if isinstance(job, SimArray) else truth_of(job)


def tasks_of(job: SimJob | SimArray) -> list[SimJob]:
    return job.tasks if isinstance(job, SimArray) else [job]


def is_healthy(job: SimJob | SimArray, truth: Truth) -> bool:
    """It did what it should, and nothing must be said of it."""
    tasks = tasks_of(job)
    return not truth.must and all(
        not each.program.causes and each.ended.state in ("COMPLETED", "RUNNING") for each in tasks
    )


def _precision(truth: Truth, report: Report, made: Score, miss) -> None:
    for each in report.findings:
        if each.level not in LEVELS:
            continue
        made.raised[each.level] += 1
        allowed = truth.may.get(each.id, "")
        if each.level == allowed or allowed == "critical":
            made.right[each.level] += 1
        else:
            why = f"only a warning is true: {each.title}" if allowed else each.title
            miss("false", each.level, each.id, why)


#: of what is true; a context is not known exactly where a framework does not tell what it reserves
_NEED_SHARE, _NEED_BYTES = 0.005, 0.25 * (1 << 30)


def _needs(job: SimJob, report: Report, made: Score, miss) -> None:
    """What was measured must be the need, and a GPU that is named must hold it."""
    needs = {f"{node_name(job, node)}:{key}": need for (node, key), need in gpu_needs(job).items()}
    for row in report.devices:
        if row.mem_need_bytes is None:
            continue
        made.needs += 1
        need = needs.get(row.label.partition("/")[0], 0.0)
        if abs(row.mem_need_bytes - need) > _NEED_SHARE * need + _NEED_BYTES:
            made.wrong_needs += 1
            miss("false", "need", row.label, f"{row.mem_need_bytes:.3g} B, and needs {need:.3g}")
    for each in report.findings:
        if each.id == "smaller-gpu" and each.mem_truth == "measured":
            need = max(needs.get(label.partition("/")[0], 0.0) for label in each.devices)
            if each.numbers["need_bytes"] < need:
                made.unsafe += 1
                miss("unsafe", "need", each.id, f"{each.title}, and needs {need:.3g} B")


def _recall(truth: Truth, report: Report, made: Score, miss, accounting: bool) -> None:
    said = {each.id: each.level for each in report.suppressed}
    said.update({each.id: each.level for each in report.findings})
    for must in truth.must:
        if accounting and not must.accounting:
            continue
        made.due[must.level] += 1
        if _is_said(must, said):
            made.found[must.level] += 1
        else:
            miss("missed", must.level, must.ids[0], must.why)


def _is_said(must: Must, said: dict[str, str]) -> bool:
    enough = LEVELS[: LEVELS.index(must.level) + 1]
    return any(said.get(id) in enough for id in must.ids)


def offers(report: Report) -> Iterable[tuple[str, Sequence[Change]]]:
    """The ready lines of each finding, and all of the report's together."""
    together = [each.change for each in report.recommendations]
    of_finding: dict[str, list[Change]] = {}
    for each in report.recommendations:
        of_finding.setdefault(each.finding, []).append(each.change)
    groups = [*of_finding.values(), together]
    groups += [action.changes for found in report.findings for action in found.actions]
    seen: set[str] = set()
    for changes in groups:
        name = " + ".join(_words(each) for each in changes)
        if name and name not in seen:
            seen.add(name)
            yield name, changes


def digest(report: Report) -> str:
    """Every finding with its level, also those folded into another, and every line to copy."""
    found = [
        f"{each.id}:{each.level} {each.subject}{'<' * bool(each.suppressed_by)}{each.suppressed_by}"
        for each in (*report.findings, *report.suppressed)
    ]
    lines = {_words(change) for _, changes in offers(report) for change in changes}
    return "; ".join([*sorted(found), *sorted(lines)])


def _words(change: Change) -> str:
    if not change.option:
        return str(change.after_line)
    return str(change.setting) if change.after is not None else f"no {change.option}"


def table(score: Score) -> str:
    """The figures in Markdown."""
    lines = ["| level | raised | right | precision | due | found | recall |",
             "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for level in LEVELS:
        lines.append(
            f"| {level} | {score.raised[level]} | {score.right[level]} "
            f"| {score.precision(level):.3f} | {score.due[level]} | {score.found[level]} "
            f"| {score.recall(level):.3f} |"
        )
    alarmed = score.healthy_alarmed / score.healthy if score.healthy else 0.0
    lines += ["", f"{score.jobs} jobs, {score.healthy} healthy, {score.healthy_alarmed} of them "
              f"({alarmed:.1%}) with a false warning. {score.lines} ready lines, "
              f"{score.unsafe} unsafe."]  # fmt: skip
    if score.needs:
        lines += ["", f"The probe measured the need of memory on {score.needs} GPUs, on "
                  f"{score.wrong_needs} of them wrongly."]  # fmt: skip
    return "\n".join(lines)
