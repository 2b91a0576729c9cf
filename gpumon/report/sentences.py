"""A finding in sentences: what was measured, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.finding import Action, Finding, Recommendation
from gpumon.report.why import WHY


def sentences(finding: Finding) -> tuple[str, str]:
    """(what was found, on what it rests and why it matters), as sentences."""
    title, evidence = _merged(finding.title.strip(), finding.evidence.strip())
    sure = "" if finding.confidence == "high" else f"{finding.confidence} confidence"
    parts = (evidence, WHY.get(finding.id, ""), sure)
    return _sentence(title), " ".join(_sentence(part) for part in parts if part)


def _merged(title: str, evidence: str) -> tuple[str, str]:
    """Neither says what the other does: evidence that goes on where the title ends joins it."""
    words = title.split(" ")
    for n in range(len(words)):
        tail = " ".join(words[n:])
        if evidence.lower().startswith(tail.lower()) and (n == 0 or len(words) - n > 2):
            return title + evidence[len(tail) :], ""
    clauses = [each for each in evidence.split("; ") if each.rstrip(".") not in title]
    return title, "; ".join(clauses)


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name, and a full stop."""
    first = text.split(" ", 1)[0]
    if first.isalpha() and first.islower():
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!", ":")) else f"{text}."


def action_text(action: Action) -> str:
    """The action as one line: its sentence, and the line to write."""
    change: str = action.after
    if action.kind == "sbatch" and not change:
        change = f"Delete {action.before}." if action.before else ""
    return _joined(action.text, change)


def steps_of(finding: Finding, changes: Sequence[Recommendation]) -> list[str]:
    """The one line that the page has room for; a change below is named and not repeated."""
    for action in finding.actions:
        below = in_changes(action, changes)
        if below:
            return [_joined(below, action.text.rstrip(":"))]
    if not finding.actions:
        return []
    first, *more = finding.actions
    step = first.text if first.kind == "staff" and first.text else action_text(first)
    if step.endswith(":") and more:
        step = _joined(step, more[0].after)
    return [step] if step else []


def in_changes(action: Action, changes: Sequence[Recommendation]) -> str:
    """The action in words, where "next time" below has its line; else nothing."""
    return next(filter(None, (_below(action, each) for each in changes)), "")


def _below(action: Action, change: Recommendation) -> str:
    if not change.directive:
        return f"{action.after} (below)." if action.after == change.after else ""
    option = f"{change.directive}={change.after}"
    if change.after and action.after == f"#SBATCH {option}":
        return f"Ask for {option} (below)."
    deleted = not change.after and action.kind == "sbatch" and not action.after
    if deleted and f"{change.directive}=" in action.before:
        return f"Delete {change.directive} (below)."
    return ""


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
