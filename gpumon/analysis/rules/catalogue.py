"""The catalogue: every rule, asked in turn, and what comes of it.

Rules are independent of each other; only here a root cause folds in its own consequences, and only
here waste is shared out, so that no GPU second is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from types import ModuleType

from gpumon.analysis.finding import LEVELS, Finding, NotEvaluable, Recommendation
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.rightsize.gate import agreed
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules import (
    arrays,
    balance,
    bottleneck,
    communication,
    cpu,
    cpu_contention,
    cpu_idle,
    cpu_peak,
    gpu_choice,
    gpu_idle,
    gpu_idle_stretch,
    gpu_idle_time,
    gpu_ineffective,
    gpu_memory,
    gpu_partly_idle,
    gpu_processes,
    gpu_reserved,
    gpu_retries,
    hang,
    health,
    host_limit,
    host_memory,
    host_stall,
    outcome,
    quality,
    storage,
    time,
)
from gpumon.analysis.rules.rule import Need, Rule, lacking, rules_of
from gpumon.analysis.rules.weight import (
    claimed,
    doubted,
    fold,
    shared_out,
    total_gpu_hours,
    weighed,
)
from gpumon.analysis.rundata import RunData
from gpumon.analysis.thresholds import SHARED
from gpumon.plain import dataclass, replace

#: heading of the family in `docs/findings.md` -> the modules that declare its rules
_MODULES: dict[str, tuple[ModuleType, ...]] = {
    "GPUs that do nothing": (gpu_idle, gpu_partly_idle, gpu_idle_time, gpu_idle_stretch),
    "GPUs that work less than they seem": (gpu_ineffective, hang),
    "What holds them back": (bottleneck, host_stall, communication, balance),
    "GPU memory": (gpu_reserved, gpu_memory, gpu_retries, gpu_choice, gpu_processes),
    "Cores": (cpu, cpu_peak, cpu_idle, cpu_contention),
    "Host memory": (host_memory, host_limit),
    "Time and outcome": (time, outcome),
    "Hardware": (health,),
    "Disks and nodes": (storage,),
    "Arrays": (arrays,),
    "What gpumon could measure": (quality,),
}


FAMILIES = {
    name: tuple(rule for module in modules for rule in rules_of(module))
    for name, modules in _MODULES.items()
}
RULES = tuple(rule for rules in FAMILIES.values() for rule in rules)
BY_ID = {rule.id: rule for rule in RULES}
#: root cause -> its own consequences. The first root in this order that covers a finding folds it.
FOLDS = {each.id: each.folds for each in RULES if each.folds}
#: findings on time that was held and not used -> in which states of the ledger
_WASTING = {each.id: each.wastes for each in RULES if each.wastes}
#: section of a site's `[thresholds]` -> its numbers
SECTIONS = SHARED | {rule.id: rule.thresholds for rule in RULES if rule.thresholds}
#: what a site may write there: `low-busy.warning_percent`, …
THRESHOLDS = tuple(
    f"{name}.{each}" for name, numbers in SECTIONS.items() for each in numbers._fields
)


def why(id: str) -> str:
    """Why a finding matters to the user; "" for what is no rule's."""
    return BY_ID[id].why if id in BY_ID else ""


@dataclass(frozen=True)
class Evaluation:
    """What the catalogue says about a run: each rule that was asked stands in one of these."""

    raised: tuple[Finding, ...]  # in their rank
    suppressed: tuple[Finding, ...]  # folded in a root cause: `suppressed_by`
    not_evaluable: Mapping[str, NotEvaluable]  # id of the rule -> what is missing
    clear: tuple[str, ...]  # ids of rules
    recommendations: tuple[Recommendation, ...] = ()  # the lines that findings' actions show, too
    unattributed_gpu_hours: float = 0.0  # held and not used, which no finding explains
    known_gpu_hours: float = 0.0  # of which it is known what the GPUs did

    @property
    def waste_gpu_hours(self) -> float:
        """Of this run; never more than its GPUs were held."""
        return total_gpu_hours(self.raised) + self.unattributed_gpu_hours

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Raised ones first."""
        return self.raised + self.suppressed


def _by_needs(rules: Iterable[Rule], *, live: bool) -> dict[tuple[Need, ...], dict[str, Rule]]:
    """The rules that apply, by id; those that need the same stand together, and it is looked for
    once: most need a recording, which most of thousands of jobs have not.
    """
    groups: dict[tuple[Need, ...], dict[str, Rule]] = {}
    for rule in rules:
        if rule.applies(live=live):
            groups.setdefault(rule.needs, {})[rule.id] = rule
    return groups


_ALL = {live: _by_needs(RULES, live=live) for live in (True, False)}


def evaluate(run: RunData, rules: Iterable[Rule] | None = None) -> Evaluation:
    """Ask each rule that applies: live ones of a running job, report ones of an ended one.

    `rules`: None for all of the catalogue.
    """
    groups = _ALL[run.live] if rules is None else _by_needs(rules, live=run.live)
    found: list[Finding] = []
    not_evaluable: dict[str, NotEvaluable] = {}
    clear: list[str] = []
    for needs, group in groups.items():
        lack = lacking(needs, run)
        if isinstance(lack, NotEvaluable):
            not_evaluable.update(dict.fromkeys(group, lack))
            continue
        for id, rule in group.items():
            answer = rule.checked(run) if lack is None else lack
            if isinstance(answer, NotEvaluable):
                not_evaluable[id] = answer
            elif answer:
                found += answer
            else:
                clear.append(id)
    found = claimed(run, map(_capped, found), _WASTING)
    found = fold([doubted(run, weighed(run, each)) for each in found], FOLDS)
    found, unexplained = shared_out(run, found, _WASTING)
    known = ledger_of(run).known_s() / 3600
    if not found:
        return Evaluation((), (), not_evaluable, tuple(clear), (), unexplained, known)
    lines = recommend(run, ranked(found))
    shared = ranked(agreed(run, found, lines))
    return Evaluation(
        tuple(each for each in shared if not each.suppressed_by),
        tuple(each for each in shared if each.suppressed_by),
        not_evaluable,
        tuple(clear),
        tuple(lines),
        unexplained,
        known,
    )


def _capped(found: Finding) -> Finding:
    """What is not certain is no more than a warning."""
    unsure = found.level == "critical" and found.confidence == "low"
    return replace(found, level="warning") if unsure else found


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """By level, then by waste, then by the time left until it hurts."""
    return sorted(
        findings,
        key=lambda each: (
            LEVELS.index(each.level),
            -each.waste_gpu_hours,
            inf if each.harm_in_s is None else each.harm_in_s,
            each.id,
            each.subject,
        ),
    )
