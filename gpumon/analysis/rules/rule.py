"""A rule of the catalogue: what it declares, and the frame that asks it.

    class LowBusy(NamedTuple):                      # what a site may change
        seconds: Seconds = 900

    @rule("low-busy", title=..., why=..., remedy=..., needs=(gpus,), folds=(...))
    def low_busy(run: RunData, t: LowBusy) -> Checked:
        ...

The name is then the rule. Called with a run it answers: the findings raised (one per subject), an
empty list where it is clear, or why it cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import ModuleType
from typing import Any

from gpumon.analysis.finding import Finding, Lack, NotEvaluable, Outcome
from gpumon.analysis.ledger import State
from gpumon.analysis.rundata import NodeData, RunData
from gpumon.analysis.thresholds import of_site
from gpumon.plain import replace

#: what a check returns: what it found, and of what a reading was missing; nothing of it: clear
Checked = Finding | NotEvaluable | Iterable[Finding | NotEvaluable] | None
Answers = Iterator[Finding | NotEvaluable]  # of a check that yields them
#: what is asked before the check: an answer in its place, or None where the check can do its work
Need = Callable[[RunData], Outcome | None]


@dataclass(frozen=True)
class Rule:
    """One entry of the catalogue. `check` is pure; its docstring has guards and source."""

    id: str
    title: str  # the condition in a few words; {name} stands for a threshold
    why: str  # what it costs the user, or puts at risk: one sentence
    remedy: str  # what to do, in a few words
    check: Callable[..., Checked]
    when: str = "both"  # live, report, both
    needs: tuple[Need, ...] = ()
    thresholds: type[Any] | None = None  # what a site may change
    folds: tuple[str, ...] = ()  # ids of its own consequences, on the same devices
    is_event: bool = False  # it weighs the same however short it was
    wastes: tuple[State, ...] = ()  # of the ledger, whose unused time it is about

    def applies(self, *, live: bool) -> bool:
        return self.when in ("both", "live" if live else "report")

    def __call__(self, run: RunData) -> Outcome:
        """Ask the rule, by the site's numbers."""
        lack = lacking(self.needs, run)
        return self.checked(run) if lack is None else lack

    def checked(self, run: RunData) -> Outcome:
        """The answer where all that it needs is there."""
        if self.thresholds is None:
            answer = self.check(run)
        else:
            answer = self.check(run, of_site(run.site, self.id, self.thresholds))
        if answer is None:
            return []
        return answer if isinstance(answer, NotEvaluable) else self._named(answer)

    def _named(self, checked: Finding | Iterable[Finding | NotEvaluable]) -> Outcome:
        """Findings, if there are any; else what was missing; else clear."""
        if isinstance(checked, Finding):
            return [self._own(checked)]
        answers = list(checked)
        missing = [each for each in answers if isinstance(each, NotEvaluable)]
        found = [self._own(each) for each in answers if isinstance(each, Finding)]
        return found if found or not missing else NotEvaluable.of(missing)

    def _own(self, found: Finding) -> Finding:
        return replace(found, id=self.id, held_s=None if self.is_event else found.held_s)


def lacking(needs: Iterable[Need], run: RunData) -> Outcome | None:
    """The answer in place of a check; None where all that it needs is there."""
    for need in needs:
        answer = need(run)
        if answer is not None:
            return answer
    return None


def rule(
    id: str,
    *,
    title: str,
    why: str,
    remedy: str,
    when: str = "both",
    needs: tuple[Need, ...] = (),
    folds: tuple[str, ...] = (),
    is_event: bool = False,
    wastes: tuple[State, ...] = (),
) -> Callable[[Callable[..., Checked]], Rule]:
    """Declare a rule. Its thresholds are the type of the check's parameter `t`."""

    def declare(check: Callable[..., Checked]) -> Rule:
        name = check.__annotations__.get("t")
        thresholds = check.__globals__[name] if name else None
        return Rule(id, title, why, remedy, check, when, needs, thresholds, folds, is_event, wastes)

    return declare


def of_nodes(
    run: RunData, check: Callable[[NodeData], Iterable[Finding] | None], lacking: str
) -> Checked:
    """What is found on each node; not evaluable where nothing can be known (None) of any."""
    known = [found for node in run.nodes if (found := check(node)) is not None]
    return chain.from_iterable(known) if known else _no_readings(lacking)


@lru_cache(64)  # each of thousands of jobs without a recording has the same
def _no_readings(lacking: str) -> NotEvaluable:
    return NotEvaluable(Lack.READINGS, lacking)


def rules_of(module: ModuleType) -> list[Rule]:
    """Those that a module declares, in its order."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, Rule) and each.check.__module__ == module.__name__
    ]
