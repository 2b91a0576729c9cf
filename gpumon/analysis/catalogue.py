"""The catalogue: every rule, asked in turn, and what comes of it.

Rules are independent of each other; only here a root cause folds in its own consequences, and only
here waste is shared out, so that no GPU second is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import LEVELS, Finding
from gpumon.analysis.findings import (
    arrays,
    balance,
    bottleneck,
    cpu,
    gpu_idle,
    gpu_idle_time,
    gpu_ineffective,
    gpu_memory,
    hang,
    health,
    host_memory,
    outcome,
    quality,
    storage,
    time,
)
from gpumon.analysis.rules import NotEvaluable, Rule
from gpumon.analysis.suppression import fold
from gpumon.analysis.waste import allocated_gpu_hours, attribute, total_gpu_hours

RULES: tuple[Rule, ...] = (
    *gpu_idle.RULES,
    *gpu_idle_time.RULES,
    *gpu_ineffective.RULES,
    *hang.RULES,
    *bottleneck.RULES,
    *balance.RULES,
    *gpu_memory.RULES,
    *cpu.RULES,
    *host_memory.RULES,
    *time.RULES,
    *outcome.RULES,
    *health.RULES,
    *storage.RULES,
    *arrays.RULES,
    *quality.RULES,
)


@dataclass(frozen=True)
class Verdicts:
    """What the catalogue says about a run: each rule that was asked stands in one of these."""

    raised: tuple[Finding, ...]  # in their rank
    suppressed: tuple[Finding, ...]  # folded in a root cause: `suppressed_by`
    not_evaluable: Mapping[str, str]  # id of the rule -> what is missing
    clear: tuple[str, ...]  # ids of rules
    held_gpu_hours: float | None = None  # None: how many GPUs it had is not known

    @property
    def waste_gpu_hours(self) -> float:
        """Of this run; never more than its GPUs were held."""
        return total_gpu_hours(self.raised)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Raised ones first."""
        return self.raised + self.suppressed


def evaluate(evidence: Evidence, rules: Iterable[Rule] = RULES) -> Verdicts:
    """Ask each rule that applies: live ones of a running job, report ones of an ended one."""
    found: list[Finding] = []
    not_evaluable: dict[str, str] = {}
    clear: list[str] = []
    for rule in rules:
        if not (rule.live if evidence.live else rule.report):
            continue
        answer = rule.check(evidence)
        if isinstance(answer, NotEvaluable):
            not_evaluable[rule.id] = answer.reason
        elif answer:
            found += answer
        else:
            clear.append(rule.id)
    shared = attribute(fold(found), evidence.start, evidence.end)
    return Verdicts(
        tuple(ranked(each for each in shared if not each.suppressed_by)),
        tuple(ranked(each for each in shared if each.suppressed_by)),
        not_evaluable,
        tuple(clear),
        allocated_gpu_hours(evidence),
    )


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """By waste, then by level, then by the time left until it hurts (findings, 1.4)."""
    return sorted(
        findings,
        key=lambda each: (
            -each.waste_gpu_hours,
            LEVELS.index(each.level),
            inf if each.harm_in_s is None else each.harm_in_s,
            each.id,
            each.subject,
        ),
    )
