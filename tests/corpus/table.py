"""The confusion table: per finding, the cases it belongs to, and what was said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpumon.analysis.rules.catalogue import RULES
from tests.corpus.cases import Case, all_cases


@dataclass
class Row:
    """One finding. A case counts as detected with the right level only."""

    id: str
    positives: int = 0
    detected: int = 0
    near: int = 0
    false_alarms: int = 0

    @property
    def precision(self) -> float | None:
        raised = self.detected + self.false_alarms
        return self.detected / raised if raised else None

    @property
    def recall(self) -> float | None:
        return self.detected / self.positives if self.positives else None


Said = Callable[[Case], "set[tuple[str, str]]"]


def rows(cases: Iterable[Case], said: Said = Case.raised) -> list[Row]:
    """A row for each rule of the catalogue, in its order. `said`: what was raised of a case."""
    found = {rule.id: Row(rule.id) for rule in RULES}
    for case in cases:
        labelled, raised = case.labelled(), said(case)
        for id, row in found.items():
            here = {pair for pair in labelled if pair[0] == id}
            there = {pair for pair in raised if pair[0] == id}
            row.positives += bool(here)
            row.detected += bool(here) and here <= there
            row.near += id in case.near
            row.false_alarms += bool(there - here)
    return list(found.values())


def text(judge: bool = True) -> str:
    """The table in Markdown, and what it was made of.

    Without `judge` nothing is evaluated: as it is where every case says what its labels say.
    """
    cases = list(all_cases().values())
    healthy = [case for case in cases if case.healthy]
    said: Said = Case.raised if judge else Case.labelled
    alarms = sum(level != "info" for case in healthy for _, level in said(case))
    lines = [
        f"{len(cases)} cases, {len(healthy)} of them healthy jobs, with {alarms} warnings or "
        "critical findings among these.",
        "",
        "| finding | positives | detected | near misses | others | false alarms | precision "
        "| recall |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows(cases, said):
        others = len(cases) - row.positives - row.near
        lines.append(
            f"| `{row.id}` | {row.positives} | {row.detected} | {row.near} | {others} "
            f"| {row.false_alarms} | {_share(row.precision)} | {_share(row.recall)} |"
        )
    truths = [(case, label) for case in cases for label in case.truth]
    right = sum(
        not judge or case.truths().get(label) == case.truth[label] for case, label in truths
    )
    lines += ["", f"Memory need (`mem_truth`): {right} of {len(truths)} labelled devices right."]
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
