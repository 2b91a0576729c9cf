"""How the job ended, in words, and whose fault it was; waiting and coming back, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import localtime, strftime

from gpumon.analysis.accounting import failed_steps, out_of_memory
from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable, to_do
from gpumon.analysis.last_error import crash, last_error
from gpumon.analysis.rules.needs import state
from gpumon.analysis.rules.phrasing import finding
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import RunData
from gpumon.model.lines import Line, word, words
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural
from gpumon.slurm.job import ExitCode, Job

_SIGNALS = {
    1: "hang-up", 2: "interrupted", 3: "quit", 4: "illegal instruction", 6: "aborted",
    7: "bus error", 8: "arithmetic error", 9: "killed by SIGKILL", 11: "segmentation fault",
    13: "broken pipe", 15: "terminated", 24: "CPU time limit", 25: "file too large",
    53: "could not start: a file or directory is missing", 125: "out of memory",
}  # fmt: skip
_CODES = {
    1: "the program reported an error", 2: "a command was used incorrectly",
    126: "the command cannot be executed", 127: "command not found",
}  # fmt: skip
#: state -> level, in words, what to do
_STATES = {
    "NODE_FAIL": ("info", "the node failed, not your fault", "Submit it again."),
    "PREEMPTED": ("info", "preempted by another job, not your fault", "Submit it again, with "
                  "--requeue and checkpoints."),
    "BOOT_FAIL": ("info", "the node did not start, not your fault", "Submit it again."),
    "DEADLINE": ("warning", "its deadline passed", "Set a later --deadline, or request less time."),
    "FAILED": ("warning", "", "Read the end of the job's output."),
}  # fmt: skip
#: of the job's time: a step that took so much was its work
_MOST_OF_IT = 0.5


def exit_words(code: ExitCode | None) -> str:
    """`0:11` as `segmentation fault`; a shell's 128 + signal as that signal. "" for none."""
    if code is None:
        return ""
    if code.signal:
        return _SIGNALS.get(code.signal, f"signal {code.signal}")
    if 128 < code.code <= 192:
        return _SIGNALS.get(code.code - 128, f"signal {code.code - 128}")
    return _CODES.get(code.code, "the program reported an error") if code.code else ""


@rule(
    "ended-badly",
    title="failed, cancelled by others, node failure, preempted",
    why="Its results may be missing or incomplete.",
    remedy="Slurm's state and exit code, explained",
    when="report",
    needs=(state,),
)
def ended_badly(run: RunData) -> Checked:
    """FAILED, NODE_FAIL, PREEMPTED, BOOT_FAIL, DEADLINE, or CANCELLED by somebody else; COMPLETED
    with an output that ends with an error, or with a step that failed for most of the job's time;
    with a shorter one, or one that was cancelled, as information.

    Guards: else the job's row explains, never a step's; the owner's own scancel is not bad, nor a
    step that Slurm cancels as the job's script ends; where memory ran out, `oom-killed` says so.
    """
    job = run.job or Job()
    after = f" after {age_text(job.elapsed_s)}" if job.elapsed_s is not None else ""
    if job.state == "CANCELLED":
        return _cancelled(run, job, after)
    if out_of_memory(job):
        return None
    if job.state == "COMPLETED":
        return _not_all_completed(run, job)
    if job.state not in _STATES:
        return None
    level, why, action = _STATES[job.state]
    node = clean(job.failed_node)
    code = f", exit code {job.exit_code}" if job.exit_code and job.state == "FAILED" else ""
    why = why or exit_words(job.exit_code) or "Slurm gives no reason"
    if job.state == "FAILED" and (error := last_error(run.log_tail)):
        why = f"{why}; its output ends with: {error}"
    actions = [to_do(action)]
    if node:
        avoid = Line("#SBATCH --exclude={}", word("nodes", job.failed_node))
        actions.append(Action("sbatch", avoid, text="Exclude that node."))
    title = f"{job.state}{f' on {node}' if node else ''}{after}{code}: {why}"
    return _finding(run, job, level, title, actions)


def _not_all_completed(run: RunData, job: Job) -> Checked:
    """A job's script goes on after a step or program that fails, and its own exit code is what
    Slurm keeps.
    """
    error, steps = crash(run.log_tail), failed_steps(job)
    if not error and not steps:
        return None
    titles = [f"its output ends with an error: {error}"] if error else []
    if steps:
        first = max(steps, key=lambda each: (each.state == "FAILED", each.elapsed_s or 0.0))
        words = exit_words(first.exit_code) if first.state == "FAILED" else ""
        code = f" {first.exit_code}: {words}" if words else ""
        more = f", and {len(steps) - 1} more" if len(steps) > 1 else ""
        titles.append(f"step {clean(first.id)} {clean(first.state)}{code}{more}")
    failed_s = max((each.elapsed_s or 0.0 for each in steps if each.state == "FAILED"), default=0.0)
    is_most = failed_s >= _MOST_OF_IT * (job.elapsed_s or run.elapsed_s) > 0
    level = "warning" if error or is_most else "info"
    actions = [to_do(_STATES["FAILED"][2])]
    return _finding(run, job, level, f"COMPLETED, but {'; '.join(titles)}", actions)


def is_cancelled_by_others(job: Job) -> bool | None:
    """None where Slurm names who did, and not whose job it is."""
    if not job.state_by or job.state_by in (str(job.uid), job.user):
        return False
    is_known = job.uid is not None or bool(job.user and not job.state_by.isdecimal())
    return True if is_known else None


def _cancelled(run: RunData, job: Job, after: str) -> Checked:
    by_others = is_cancelled_by_others(job)
    if by_others is None:
        return NotEvaluable(Lack.SLURM, "it is unknown whether its owner cancelled it")
    if not by_others:
        return None
    by = clean(job.state_by)
    who = f"user {by}" if by.isdecimal() else by
    line = Line("job {} was cancelled by {}: why?", word("job", job.id), words(who))
    ask = Action("staff", line, text="Ask that user, or the site's staff:")
    return _finding(run, job, "warning", f"CANCELLED by {who}{after}", [ask])


def _finding(run: RunData, job: Job, level: str, title: str, actions: Sequence[Action]) -> Finding:
    reason = f"; reason {clean(job.reason)}" if job.reason not in ("", "None") else ""
    return finding(run, level, title, rest=reason, actions=actions)


@rule(
    "requeued",
    title="the job ran more than once",
    why="An attempt that was cut short used less than a whole run needs.",
    remedy="look at each attempt by itself",
    when="report",
)
def requeued(run: RunData) -> Checked:
    """Slurm counts restarts, or has several records of this id: each attempt by itself.

    Source: asked for in reportseff#25, where attempts overwrite each other.
    """
    job = run.job
    if job is None:
        return NotEvaluable(Lack.SLURM)
    if not run.siblings and not job.restarts:
        return None
    records = sorted(
        {
            (each.start or each.submit or 0.0, each.submit or 0.0): each
            for each in (*run.siblings, job)
            if each.raw_id == job.raw_id
        }.items()
    )
    if len(records) < 2 and not job.restarts:
        return None
    attempts = [
        f"{age_text(each.elapsed_s) if each.elapsed_s is not None else '?'} ({clean(each.state)})"
        for _, each in records
    ]
    count = max(len(records), (job.restarts or 0) + 1)
    kept = plural(len(records), "record")
    told = "" if len(records) == count else f"; Slurm has kept {kept} of them"
    text = f"{count} attempts: {', '.join(attempts)}{told}"
    numbers = {"attempts": count}
    return finding(run, "info", text, rest="; all figures are of the last one", numbers=numbers)


@rule(
    "job-pending",
    title="the job is pending: why, and when it should start",
    why="A pending job costs nothing, and nothing can be measured yet.",
    remedy="depends on the reason",
    needs=(state,),
)
def job_pending(run: RunData) -> Checked:
    """State PENDING: why, and when the scheduler expects it to start."""
    job = run.job
    if job is None or not job.is_pending:
        return None
    text = f"pending: {clean(job.reason)}" if job.reason else "pending, no reason given"
    if job.expected_start is not None:
        when = strftime("%Y-%m-%d %H:%M", localtime(job.expected_start))
        text += f"; Slurm expects it to start at {when}"
    made = finding(run, "info", text)
    return replace(made, start=None)  # it has not begun
