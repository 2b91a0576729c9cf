"""How the job ended, in words, and whose fault it was; waiting and coming back, too."""

from __future__ import annotations

from gpumon.analysis.accounting import out_of_memory
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.model.lines import EMPTY, Line, word, words
from gpumon.model.text import clean
from gpumon.model.units import age_text, clock_text
from gpumon.slurm.job import ExitCode, Job

_SIGNALS = {
    1: "hang-up", 2: "interrupted", 3: "quit", 4: "illegal instruction", 6: "aborted",
    7: "bus error", 8: "arithmetic error", 9: "killed", 11: "segmentation fault",
    13: "broken pipe", 15: "terminated", 24: "CPU time limit", 25: "file too large",
    53: "could not start: a file or directory is missing", 125: "out of memory",
}  # fmt: skip
_CODES = {
    1: "the program reported an error", 2: "wrong usage of a command",
    126: "the command cannot be executed", 127: "command not found",
}  # fmt: skip
#: state -> level, in words, what to do
_STATES = {
    "NODE_FAIL": ("info", "the node failed: not your fault", "Submit it again."),
    "PREEMPTED": ("info", "another job took its place: not your fault", "Submit it again, with "
                  "--requeue and checkpoints."),
    "BOOT_FAIL": ("info", "the node did not start: not your fault", "Submit it again."),
    "DEADLINE": ("warning", "its deadline passed", "Set a later --deadline, or ask for less time."),
    "FAILED": ("warning", "", "Read the job's output from its end."),
}  # fmt: skip


def exit_words(code: ExitCode | None) -> str:
    """`0:11` as `segmentation fault`; a shell's 128 + signal as that signal. "" for none."""
    if code is None:
        return ""
    if code.signal:
        return _SIGNALS.get(code.signal, f"signal {code.signal}")
    if 128 < code.code <= 192:
        return _SIGNALS.get(code.code - 128, f"signal {code.code - 128}")
    return _CODES.get(code.code, "the program reported an error") if code.code else ""


def ended_badly(evidence: Evidence) -> Outcome:
    """FAILED, NODE_FAIL, PREEMPTED, BOOT_FAIL, DEADLINE, or CANCELLED by somebody else.

    Guards: the job's row explains, never a step's; the owner's own scancel is not bad; where memory
    ran out, `oom-killed` says so.
    """
    job = evidence.job
    if job is None or not job.state:
        return NotEvaluable("how the job ended is not known")
    if job.state == "CANCELLED":
        return _cancelled(evidence, job)
    if job.state not in _STATES or out_of_memory(job):
        return []
    level, why, action = _STATES[job.state]
    node = clean(job.failed_node)
    after = f" after {clock_text(job.elapsed_s)}" if job.elapsed_s is not None else ""
    code = f" {job.exit_code}" if job.exit_code and job.state == "FAILED" else ""
    why = why or exit_words(job.exit_code) or "no reason given"
    title = f"{job.state}{code}{f' on {node}' if node else ''}: {why}{after}"
    actions = [Action("shell", EMPTY, text=action)]
    if node:
        avoid = Line("#SBATCH --exclude={}", word("nodes", job.failed_node))
        actions.append(Action("sbatch", avoid, text="Keep off that node."))
    return [_finding(evidence, job, level, title, actions)]


def _cancelled(evidence: Evidence, job: Job) -> Outcome:
    if not job.state_by or job.state_by in (str(job.uid), job.user):
        return []
    if job.uid is None and not (job.user and not job.state_by.isdecimal()):
        return NotEvaluable("whether its owner cancelled it is not known")
    by = clean(job.state_by)
    after = f" after {clock_text(job.elapsed_s)}" if job.elapsed_s is not None else ""
    who = f"user {by}" if by.isdecimal() else by
    ask = Action("staff", Line("job {} was cancelled by {}: why?", word("job", job.id), words(who)))
    return [_finding(evidence, job, "warning", f"CANCELLED by {who}{after}", [ask])]


def _finding(
    evidence: Evidence, job: Job, level: str, title: str, actions: list[Action]
) -> Finding:
    reason = f"; reason {clean(job.reason)}" if job.reason not in ("", "None") else ""
    return Finding(
        "ended-badly", level, title, f"{title}{reason}", resource="outcome",
        start=evidence.start, end=evidence.end, actions=tuple(actions),
    )  # fmt: skip


def requeued(evidence: Evidence) -> Outcome:
    """Slurm counts restarts, or has several records of this id: each attempt by itself.

    Source: asked for in reportseff#25, where attempts overwrite each other.
    """
    job = evidence.job
    if job is None:
        return NotEvaluable("Slurm's record of the job is not known")
    records = sorted(
        {
            (each.start or each.submit or 0.0, each.submit or 0.0): each
            for each in (*evidence.siblings, job)
            if each.raw_id == job.raw_id
        }.items()
    )
    if len(records) < 2 and not job.restarts:
        return []
    attempts = [
        f"{clock_text(each.elapsed_s) if each.elapsed_s is not None else '?'} ({clean(each.state)})"
        for _, each in records
    ]
    count = max(len(records), (job.restarts or 0) + 1)
    told = "" if len(records) == count else f"; Slurm still has {len(records)} of them"
    text = f"{count} attempts: {', '.join(attempts)}{told}"
    return [
        Finding("requeued", "info", text, f"{text}; figures are of the last one",
                resource="outcome", start=evidence.start, end=evidence.end,
                numbers={"attempts": count})
    ]  # fmt: skip


def job_pending(evidence: Evidence) -> Outcome:
    """State PENDING: why, and when the scheduler expects it to start."""
    job = evidence.job
    if job is None or not job.state:
        return NotEvaluable("the job's state is not known")
    if not job.is_pending:
        return []
    text = f"waits for {clean(job.reason)}" if job.reason else "waits, no reason given"
    if job.expected_start is not None:
        text += f"; estimated start in {age_text(job.expected_start - evidence.end)}"
    return [
        Finding("job-pending", "info", text, f"{text}, by the scheduler", "medium",
                resource="outcome", end=evidence.end)
    ]  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("ended-badly", ended_badly, live=False),
    Rule("requeued", requeued, live=False),
    Rule("job-pending", job_pending),
)
