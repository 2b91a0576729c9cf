"""What a rule of the catalogue is, and its three answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Finding


@dataclass(frozen=True)
class NotEvaluable:
    """A signal that the rule needs is missing: neither raised nor clear."""

    reason: str


#: findings raised (one per subject), or none of them: clear; or not evaluable, and why
Outcome = list[Finding] | NotEvaluable


@dataclass(frozen=True)
class Rule:
    """One entry of the catalogue. `check` is pure; its docstring has condition, guards, source."""

    id: str
    check: Callable[[Evidence], Outcome]
    live: bool = True
    report: bool = True
