"""A finding in sentences: what was measured, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpumon.analysis.finding import Action, Change, Finding, Recommendation


def sentences(finding: Finding) -> tuple[str, str]:
    """(what was found, on what it rests and why it matters), as sentences.

    Why a mere information matters stands in its details.
    """
    from gpumon.analysis.rules.catalogue import why  # not before a screen's first paint

    title = finding.title
    evidence = finding.evidence if finding.adds is None else finding.adds
    if finding.goes_on:
        title, evidence = title + evidence, ""
    matters = "" if finding.level == "info" else why(finding.id)
    parts = (evidence, matters, finding.doubt)
    return _sentence(title), " ".join(_sentence(part) for part in parts if part)


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name, and a full stop."""
    text = capital(text.strip())
    return text if text.endswith((".", "?", "!", ":")) else f"{text}."


def capital(text: str) -> str:
    """With a capital, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


#: to do first, at most; the changed request is one of them
_MOST_STEPS = 3


class Step(NamedTuple):
    """What to do: a sentence, and the line to write or to send; either may be empty."""

    text: str
    line: str = ""


def step_of(action: Action) -> Step:
    return Step(action.text, action.after)


def brief_action(action: Action) -> str:
    """What to do, in the few words that fit behind a title."""
    if action.kind == "staff":
        return "Report the node"
    if action.before:
        return f"{action.before} → {action.after}"
    return action.after or action.text.rstrip(".:")


def first_steps(findings: Sequence[Finding], changes: Sequence[Recommendation]) -> list[Step]:
    """What to do first beside the changes: a step of each finding that warns, worst first."""
    warning = (each for each in findings if each.level != "info")
    steps = (step for each in warning for step in steps_of(each, changes) if step.line or step.text)
    return list(dict.fromkeys(steps))[: _MOST_STEPS - bool(changes)]


def steps_of(finding: Finding, changes: Sequence[Recommendation]) -> list[Step]:
    """What the page has room for: one step, and a check that comes before it. Of changes that stand
    first only what is said beside them, and which of them belong together.
    """
    for n, action in enumerate(finding.actions):
        if above := in_changes(action, changes):
            checks = [step_of(each) for each in finding.actions[:n] if each.kind == "shell"]
            together = above if len(action.changes) > 1 else ""
            text = " ".join(filter(None, (together, action.text)))
            return [*checks[:1], *([Step(text)] if text else [])]
    return [each for each in map(step_of, finding.actions[:1]) if any(each)]


def in_changes(action: Action, changes: Sequence[Recommendation]) -> str:
    """The action in words, where the changes that stand first have its lines; else nothing."""
    known = [each.change for each in changes]
    if not action.changes:
        return f"{action.after} (above)." if action.after in _scripts(known) else ""
    settings = [each.setting for each in known if each in action.changes]
    if len(settings) < len(action.changes):
        return ""
    *more, last = settings
    if more:
        return f"Request {', '.join(more)} and {last} only together (above)."
    return f"Request {last} (above)."


def _scripts(changes: Sequence[Change]) -> list[str]:
    return [each.after_line for each in changes if not each.option]
