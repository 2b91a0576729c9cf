"""A finding with its evidence, and the changed request that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Union

from gpumon.model import lines
from gpumon.model.lines import EMPTY, Line
from gpumon.model.units import clock_text, size_text
from gpumon.plain import dataclass

LEVELS = ("critical", "warning", "info")  # worst first
CONFIDENCES = ("high", "medium", "low")
#: what used device memory says about need (findings, "mem_truth")
MEM_TRUTHS = ("real", "upper-bound", "unknown", "measured")


@dataclass(frozen=True)
class Gpus:
    """GPUs as a request names them: `gpu:a100:4` is ("gpu:a100:", 4), `gpu` is ("gpu", None)."""

    kind: str  # all before the count
    count: int | None = None

    def __str__(self) -> str:
        return self.kind if self.count is None else f"{self.kind}{self.count}"


#: kind of an option's value -> how Slurm reads a number of that kind
_WRITERS: dict[str, Callable[[int], str]] = {"size": size_text, "time": clock_text}
#: bytes, seconds or a number, as the option has it; GPUs; a name; a line of the job script
Value = Union[int, Gpus, str]


@dataclass(frozen=True)
class Change:
    """One option of the request, before → after; before None: not there. `option` is "" for a line
    of the job script.
    """

    option: str
    before: Value | None
    after: Value | None

    @property
    def before_line(self) -> Line:
        """`64G`."""
        return _text(self.option, self.before)

    @property
    def after_line(self) -> Line:
        """`9G`; empty where the option is to be deleted."""
        return _text(self.option, self.after)

    @property
    def setting(self) -> Line:
        """`--mem=9G`."""
        return _setting(self.option, self.after)

    @property
    def line(self) -> Line:
        """What to write into the job script; empty where a line is to be deleted."""
        if not self.option:
            return self.after_line
        return Line("#SBATCH {}", self.setting)


def _text(option: str, value: Value | None) -> Line:
    """The value as Slurm reads it, where it is one of this option; else nothing.

    Raises TypeError for unchecked text in the place of a line.
    """
    if value is None:
        return EMPTY
    if not option:
        if not isinstance(value, Line):
            raise TypeError(f"unchecked text offered as a line: {value!r}")
        return value
    text = str(value)
    if isinstance(value, int):
        text = _WRITERS.get(lines.kind_of(option), str)(value)
    return lines.value(option, text) or EMPTY


def _setting(option: str, value: Value | None) -> Line:
    return lines.setting(option, _text(option, value))


@dataclass(frozen=True)
class Action:
    """What to do about it. kind: `sbatch` (a directive, before → after), `export` (a line for the
    job script), `try` (a directive that may be enough, which nothing proves), `shell` (a command to
    run), `code` (a line in the program), `staff` (a line to send to the site's staff).
    """

    kind: str
    after: Line  # the line itself
    before: Line = EMPTY  # what stands there now
    text: str = ""  # one sentence for people
    changes: tuple[Change, ...] = ()  # what the lines say, as data

    def __post_init__(self) -> None:
        for line in (self.before, self.after):
            if not isinstance(line, Line):
                raise TypeError(f"unchecked text offered as a line: {line!r}")


def to_do(text: str) -> Action:
    """What to do, where no line says it."""
    return Action("shell", EMPTY, text=text)


def to_write(text: str) -> Action:
    """What to change in the program, where no line says it."""
    return Action("code", EMPTY, text=text)


def ask_for(*changes: Change, text: str = "") -> Action:
    """The action of asking for something else next time."""
    before = (_setting(each.option, each.before) for each in changes)
    after = (each.setting for each in changes)
    return Action("sbatch", _directive(*after), _directive(*before), text, changes)


def _directive(*settings: Line) -> Line:
    """One directive of all that are there."""
    line = Line("#SBATCH")
    for each in filter(None, settings):
        line = Line("{} {}", line, each)
    return line if any(settings) else EMPTY


@dataclass(frozen=True)
class Finding:
    """What a rule found. Every number in its sentences was measured, and `numbers` has it raw."""

    id: str
    level: str  # LEVELS
    title: str  # one line for people, numbers included
    evidence: str  # what was measured, over which window
    confidence: str = "high"  # CONFIDENCES
    subject: str = "job"  # job, a node ("gpu01"), a device ("gpu01:0"), several ("gpu01:0,1")
    devices: tuple[str, ...] = ()  # labels of the devices it is about: "gpu01:0", …
    start: float | None = None  # epoch s of the window that shows it
    end: float | None = None
    spans: tuple[tuple[float, float], ...] = ()  # parts of it, epoch s, in which it held; (): all
    held_s: float | None = None  # how long of it the condition held; None: it is no condition
    numbers: Mapping[str, float] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    refs: tuple[str, ...] = ()
    waste_gpu_hours: float = 0.0
    harm_in_s: float | None = None  # time left before it hurts: policy, time or memory limit
    mem_truth: str = ""
    suppressed_by: str = ""  # id of the root cause that folds it in
    adds: str | None = None  # what of the evidence its title does not say; None: all of it
    goes_on: bool = False  # `adds` is the end of the title's sentence
    uses_more: bool = False  # its advice is to use more of what the job holds
    doubt: str = ""  # why the confidence is not high, as a fact about the data

    def change(self, option: str) -> Change | None:
        """What it advises for one option of the request."""
        found = (change for action in self.actions for change in action.changes)
        return next((each for each in found if each.option == option), None)


class Lack(Enum):
    """What a rule can lack."""

    RECORDING = "recording"  # samples, or a time series
    SLURM = "slurm"  # Slurm's record of the job, or a figure in it
    SITE = "site"  # a figure of the site's file
    END = "end"  # of a job that still runs
    JOB = "job"  # nobody reserved the devices
    READINGS = "readings"  # one at all, or often enough
    NEED = "need"  # what is needed of memory that may be a reservation
    TIME = "time"  # it is too short


@dataclass(frozen=True)
class NotEvaluable:
    """A signal that the rule needs is missing: neither raised nor clear."""

    kind: Lack
    detail: str = ""  # what exactly is missing, in a few words
    subjects: tuple[str, ...] = ()  # where: labels of devices, names of nodes; (): everywhere
    more: tuple[NotEvaluable, ...] = ()  # what is missing elsewhere

    @classmethod
    def of(cls, missing: Iterable[NotEvaluable]) -> NotEvaluable:
        """One for all of them (at least one), what is missing in several places once."""
        places: dict[tuple[Lack, str], dict[str, None]] = {}
        for each in missing:
            places.setdefault((each.kind, each.detail), {}).update(dict.fromkeys(each.subjects))
        first, *more = [(*what, tuple(subjects)) for what, subjects in places.items()]
        return cls(*first, tuple(cls(*each) for each in more))


#: findings raised (one per subject), or none of them: clear; or not evaluable, and why
Outcome = list[Finding] | NotEvaluable


@dataclass(frozen=True)
class Recommendation:
    """One changed line of the request, and on what it rests."""

    change: Change
    basis: str
    confidence: str = "high"
    finding: str = ""  # id of the finding it follows from
    adds: str = ""  # what of the basis its finding does not say
