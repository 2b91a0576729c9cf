"""The error that a job's output ends with. A script whose last command succeeds is COMPLETED, even
where the program before it crashed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpumon.analysis.accounting import failed_steps
from gpumon.model.text import clean
from gpumon.slurm.job import Job

#: lines that launchers and the rest of a script write after an error (proposed)
_AFTER = 25
_LONGEST = 160
#: what `torchrun`, `srun --label` and PyTorch write before a rank's lines
_RANK = re.compile(r"^(?:\[[\w :]{1,30}\]:|\d{1,6}:)\s?")
_TRACEBACK = "Traceback (most recent call last)"
#: of a clean-up at exit, whose exception changes nothing
_IGNORED = ("Exception ignored in", "Exception in thread", "Error in atexit")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?=:|\s*$|\()")
#: it names another exception as its cause
_OF_A_CHILD = re.compile(r"ChildFailedError|ProcessExitedException")
_CRASH = re.compile(
    r"Segmentation fault|core dumped|\bBus error|terminate called after throwing|MPI_ABORT was|"
    r"srun: error: .*(?:Exited with exit code|Killed|Aborted)|line \d+: +\d+ Killed\b|"
    r"^Execution halted|^forrtl: severe|^Fatal error"
)
#: what Slurm writes of a step that was killed; most of these lines do not name it
_OF_A_STEP = re.compile(
    r"srun: error: \S+: tasks? [\d,-]+: (?:Killed|Terminated)|srun: Job step aborted|"
    r"srun: forcing job termination|slurmstepd\S*: error: \*\*\* STEP "
)
_ERROR = re.compile(
    r"\b(?:\w*Error|\w*Exception|error|ERROR|FATAL|fatal)\b|No space left on device|"
    r"Disk quota exceeded|[Cc]annot allocate memory|No such file or directory|Permission denied|"
    r"command not found|std::bad_alloc"
)


def crash(log_tail: str) -> str:
    """The exception or crash of a program, with little or nothing after it; "" where there is none.

    Guards: an exception that was reported while the program went on has more lines after it.
    """
    if not log_tail:
        return ""
    lines = _lines(log_tail)
    first = max(0, len(lines) - _AFTER)
    raised = [(n, line) for n, line in _raised(lines) if n >= first]
    own = [each for each in raised if not _OF_A_CHILD.search(each[1])] or raised
    if own:
        return clean(own[-1][1], _LONGEST)
    return next((clean(each, _LONGEST) for each in lines[first:] if _CRASH.search(each)), "")


def last_error(log_tail: str) -> str:
    """The same of a job that is known to have failed: also a line that only reads like one."""
    lines = _lines(log_tail)[-_AFTER:]
    named = (clean(each, _LONGEST) for each in reversed(lines) if _ERROR.search(each))
    return crash(log_tail) or next(named, "")


def without_own_steps(log_tail: str, job: Job) -> str:
    """The output without what Slurm writes there of gpumon's own steps, if they did not end well.

    Unless a step of the user's did not either: the lines may be of that one.
    """
    bad = [each for each in job.steps if each.is_own and each.is_cut_short]
    if not bad or any(each.id[:1].isdigit() for each in failed_steps(job)):
        return log_tail
    return "\n".join(each for each in log_tail.splitlines() if not _OF_A_STEP.match(each))


def _lines(log_tail: str) -> list[str]:
    return [_RANK.sub("", each.rstrip()) for each in log_tail.splitlines() if each.strip()]


def _raised(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The last line of each traceback, and where it stands."""
    for at, line in enumerate(lines):
        before = lines[at - 1] if at else ""
        if not line.startswith(_TRACEBACK) or before.startswith(_IGNORED):
            continue
        for n, each in enumerate(lines[at + 1 :], at + 1):
            if _EXCEPTION.match(each):
                yield n, each
                break
