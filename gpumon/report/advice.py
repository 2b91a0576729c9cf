"""What to do about a job: the box that stands first on every form of its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from gpumon.analysis.finding import Action, Change, Finding, Recommendation
    from gpumon.report.model import Report

_Shown = TypeVar("_Shown")
#: to do first, at most; the changed request is one of them
_MOST_STEPS = 3
#: kinds of actions whose lines stand in a job script
_OF_SCRIPT = ("sbatch", "export")


class Step(NamedTuple):
    """What to do: a sentence, and the line to write or to send; either may be empty."""

    text: str
    line: str = ""
    kind: str = ""  # of its action

    @property
    def copied(self) -> str:
        return self.line or self.text

    @property
    def commented(self) -> str:
        """Among the lines of a job script: others than those for it are comments."""
        return self.line if self.line and self.kind in _OF_SCRIPT else f"# {self.brief}"

    @property
    def brief(self) -> str:
        """In the few words that fit into a row."""
        text = "Report:" if self.kind == "staff" else self.text
        text = "" if self.line and self.kind in _OF_SCRIPT else text
        return " ".join(filter(None, (text, self.line))).rstrip(".:")


def step_of(action: Action) -> Step:
    return Step(action.text, action.after, action.kind)


class Box(NamedTuple):
    """The changed request of next time, which holds only as a whole; and what to do beside it: a
    step of each finding that warns, worst first, three at most with the request. What may be
    tried stands with its finding.
    """

    changes: tuple[Recommendation, ...] = ()
    steps: tuple[Step, ...] = ()
    is_running: bool = False  # what to do now comes before the request of next time

    def in_order(self, changes: _Shown, steps: _Shown) -> tuple[_Shown, _Shown]:
        """What shows the one and the other, in the order in which they stand."""
        return (steps, changes) if self.is_running else (changes, steps)

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """Of each change: option ("": a line of the script), before, after, on what it rests."""
        changes = ((each.change, each.adds) for each in self.changes)
        return [(each.option, each.before_line, each.after_line, adds) for each, adds in changes]

    @property
    def changed(self) -> list[str]:
        """The lines of the request."""
        return [line for each in self.changes if (line := each.change.line)]

    @property
    def lines(self) -> list[str]:
        """What is to be copied of it; what is no line is a comment among them."""
        return [*self.changed, *(each.commented for each in self.steps)]

    @property
    def request(self) -> str:
        """In one row."""
        words = (each.change.setting or each.change.after_line for each in self.changes)
        return " ".join(filter(None, words))

    @property
    def brief(self) -> str:
        steps = [each.brief for each in self.steps]
        first, then = self.in_order([self.request], steps)
        return " · ".join(filter(None, (*first, *then)))

    def cause(self, step: Step, findings: Sequence[Finding]) -> Finding | None:
        """Of which of them it is a step."""
        return next((each for each in findings if step in steps_of(each, self.changes)), None)

    def beside(self, finding: Finding) -> list[Step]:
        """What else to do about a finding: one step, and a check that comes before it; of changes
        that stand first only what is said beside them.
        """
        return [each for each in steps_of(finding, self.changes) if each not in self.steps]

    def rest(self, finding: Finding) -> list[Step]:
        """All that there is to do about a finding and does not stand first."""
        found = []
        for action in finding.actions:
            above = in_changes(action, self.changes)
            words = " ".join(filter(None, (above, action.text)))
            found.append(Step(words) if above else step_of(action))
        return [each for each in found if each.copied and each not in self.steps]


def box(
    findings: Sequence[Finding], changes: Sequence[Recommendation], is_running: bool = False
) -> Box:
    """Of findings in their rank, and of what follows from them for the request."""
    warning = (each for each in findings if each.level != "info")
    steps = (step for each in warning for step in steps_of(each, changes))
    told = dict.fromkeys(each for each in steps if each.copied and each.kind != "try")
    return Box(tuple(changes), tuple(told)[: _MOST_STEPS - bool(changes)], is_running)


def box_of(report: Report) -> Box:
    return box(report.findings, report.recommendations, report.running)


def steps_of(finding: Finding, changes: Sequence[Recommendation]) -> list[Step]:
    """What there is room for of one finding, wherever it stands: see `Box.beside`."""
    for n, action in enumerate(finding.actions):
        if in_changes(action, changes):
            checks = [step_of(each) for each in finding.actions[:n] if each.kind == "shell"]
            return [*checks[:1], *([Step(action.text)] if action.text else [])]
    return [each for each in map(step_of, finding.actions[:1]) if each.copied]


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
