"""A verdict: a finding with its evidence, and the changed request that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpumon.model.lines import EMPTY, Line, setting

LEVELS = ("critical", "warning", "info")  # worst first
CONFIDENCES = ("high", "medium", "low")
#: what used device memory says about need (findings, "mem_truth")
MEM_TRUTHS = ("real", "upper-bound", "unknown")


@dataclass(frozen=True)
class Action:
    """What to do about it. kind: `sbatch` (a directive, before → after), `export` (a line for the
    job script), `shell` (a command to run), `code` (a line in the program), `staff` (a line to
    send to the site's staff).
    """

    kind: str
    after: Line  # the line itself
    before: Line = EMPTY  # what stands there now
    text: str = ""  # one sentence for people

    def __post_init__(self) -> None:
        _only_lines(self.before, self.after)


@dataclass(frozen=True)
class Finding:
    """One verdict. Every number in its sentences was measured, and `numbers` has it raw."""

    id: str
    level: str  # LEVELS
    title: str  # one line for people, numbers included
    evidence: str  # what was measured, over which window
    confidence: str = "high"  # CONFIDENCES
    subject: str = "job"  # job, a node ("gpu01"), a device ("gpu01:0"), several ("gpu01:0,1")
    devices: tuple[str, ...] = ()  # labels of the devices it is about: "gpu01:0", …
    resource: str = ""  # gpu, gpu-mem, cpu, mem, time, storage, data: suppression stays within one
    start: float | None = None  # epoch s of the window that shows it
    end: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    refs: tuple[str, ...] = ()
    waste_gpu_hours: float = 0.0
    harm_in_s: float | None = None  # time left before it hurts: policy, time or memory limit
    mem_truth: str = ""
    suppressed_by: str = ""  # id of the root cause that folds it in


@dataclass(frozen=True)
class Recommendation:
    """One changed line of the request, before → after, and on what it rests."""

    directive: str  # --mem, --cpus-per-task, --gres, --time, --partition; "" for an export line
    before: Line
    after: Line
    basis: str
    confidence: str = "high"
    finding: str = ""  # id of the finding it follows from

    def __post_init__(self) -> None:
        _only_lines(self.before, self.after)

    @property
    def line(self) -> Line:
        """What to write into the job script; empty where a line is to be deleted."""
        if not self.directive:
            return self.after
        return Line("#SBATCH {}", setting(self.directive, self.after))


def _only_lines(*lines: Line) -> None:
    """Nothing but checked text may be offered for pasting. Raises TypeError."""
    for line in lines:
        if not isinstance(line, Line):
            raise TypeError(f"unchecked text offered as a line: {line!r}")
