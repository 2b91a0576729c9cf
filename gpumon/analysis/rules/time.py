"""The time limit: nearly over, far too long, or what ended the job."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.analysis.finding import Lack, NotEvaluable, to_do
from gpumon.analysis.ledger import Ledger, State, ledger_of
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.proof import RESTARTED, is_restarted, unproven
from gpumon.analysis.rules.cpu import cpu_never_used
from gpumon.analysis.rules.cpu_idle import idle_end_s
from gpumon.analysis.rules.needs import state
from gpumon.analysis.rules.phrasing import SHORT_FIRST, elapsed_s, finding, gpus_text, percent
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import is_interactive, job_devices
from gpumon.analysis.thresholds import Seconds, Share
from gpumon.model.units import age_text
from gpumon.slurm.job import Job
from gpumon.slurm.options import options_of_submit_line

#: in words: to a job script without a trap, the signal itself is the end
_SIGNAL = to_do(
    "Let the next run save a checkpoint before its limit: docs/troubleshooting.md has a job "
    "script that traps Slurm's signal."
)
_SAVE = to_do("Save a checkpoint now, if the program can, or ask the site's staff for more time.")
_SIGNALLED = to_do(
    "Check in its output that it saved a checkpoint after Slurm's signal (--signal), from "
    "which the next job can continue."
)
_SESSION = to_do("Save your work before the limit, and request as long as you will work.")
_STOOD = to_do("Find out what the program did at the end; more time alone may not help.")
#: s; few partitions allow twice such a limit: checkpoints come first
_LONG_S = 86_400.0
#: s; a job that runs for so much longer than its limit does not
_BEYOND_S = 300.0
#: of a submit line: what jobs have that go on where another one stopped, or are cut into parts
_CONTINUED = re.compile(
    r"\s(-d\b|--(dependency|signal|requeue|open-mode)\b)|restart|resume|continue|checkpoint|ckpt",
    re.IGNORECASE,
)
#: s; GPUs that were idle for so long at the end did not work until the end
_PAUSE_S = 60.0
#: … and one that was, while others worked, rested
_RESTS_S = 600.0
#: a user's mark of progress: `epoch 3/10`
_PROGRESS = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")


def _limit_s(run: RunData) -> float | NotEvaluable:
    job = run.job
    if job is not None and job.time_limit_s:
        return job.time_limit_s
    contexts = [each.header.job for each in run.nodes if each.header.job]
    known = [each.end - each.start for each in contexts if each.start and each.end]
    if known:
        return max(known)
    words = job.time_limit_words if job is not None else ""
    return NotEvaluable(Lack.SLURM, f"time limit {words}" if words else _UNKNOWN_LIMIT)


_UNKNOWN_LIMIT = "the time limit is not known"


class TimeShort(NamedTuple):
    critical_share: Share = 0.1  # of the limit
    warning_s: Seconds = 1800


@rule(
    "time-short",
    title="less than {critical_share} of the time limit left (warning: {warning_s})",
    why="Slurm ends the job at its limit; unsaved work is lost.",
    remedy="save a checkpoint",
    when="live",
)
def time_short(run: RunData, t: TimeShort) -> Checked:
    """Guards: half of the limit must be over, else a short job would be warned from its start;
    marks of progress (`epoch 3/10`) that promise an end in time keep it silent. Numbers proposed.
    Slurm counts the time that has passed. Without its answer a node's clock that puts a running job
    5 min (proposed; KillWait is 30 s) beyond its end is wrong, and proves nothing.
    """
    if not run.live:
        return None
    limit_s = _limit_s(run)
    if isinstance(limit_s, NotEvaluable):
        return limit_s
    counted_s = run.job.elapsed_at(run.end) if run.job else None
    passed_s = run.elapsed_s if counted_s is None else counted_s
    if counted_s is None and passed_s > limit_s + _BEYOND_S:
        clocks = "the node's clock differs from Slurm's, which did not answer"
        return NotEvaluable(Lack.SLURM, clocks)
    left_s = max(0.0, limit_s - passed_s)
    critical = left_s < t.critical_share * limit_s
    if not critical and (left_s >= t.warning_s or left_s > limit_s / 2):
        return None
    ends_in_s = _ends_in_s(run)
    if ends_in_s is not None and ends_in_s <= left_s:
        return None
    text = f"{age_text(left_s)} of the time limit of {age_text(limit_s)} left"
    if ends_in_s is not None:
        text += f"; by your progress marks it needs {age_text(ends_in_s)} more"
    return finding(
        run,
        "critical" if critical else "warning",
        text,
        numbers={"left_s": left_s, "limit_s": limit_s},
        actions=(
            _SAVE,
            changes.action_of(
                changes.time_line(limit_s, 2 * limit_s),
                f"A longer limit helps the next run, {changes.IF_ALLOWED}.",
            ),
            _SIGNAL,
        ),
        harm_in_s=left_s,
    )


def _ends_in_s(run: RunData) -> float | None:
    """By the newest mark that says `n/N`, if an earlier one tells the pace."""
    marks = [
        (event.time, int(match.group(1)), int(match.group(2)))
        for _, event in run.events
        if event.kind == "mark" and (match := _PROGRESS.search(event.text))
    ]
    if len(marks) < 2:
        return None
    (begin, first, _), (last, done, total) = marks[0], marks[-1]
    if done <= first or last <= begin or total < done:
        return None
    return max(0.0, last + (total - done) * (last - begin) / (done - first) - run.end)


class TimeOver(NamedTuple):
    elapsed_s: Seconds = 900
    info_share: Share = 0.65  # of the limit
    warning_share: Share = 0.1
    warning_s: Seconds = 1800  # a shorter run may be a test


@rule(
    "time-over",
    title="completed in under {info_share} ({warning_share}) of the limit",
    why=SHORT_FIRST,
    remedy="request a shorter limit",
    when="report",
    needs=(state,),
)
def time_over(run: RunData, t: TimeOver) -> Checked:
    """COMPLETED. Guards: the longest of the array's tasks counts, and one that the limit ended
    keeps it; a part of a longer run, and sessions of people do not show how long the next one
    takes; UNLIMITED and the partition's limit are not evaluable. Source: jobstats
    60 and 10; job_defense_shield 0.2.
    """
    job = run.job
    if job is None or job.state != "COMPLETED":
        return None
    if any(each.state == "TIMEOUT" for each in run.siblings):
        return None
    limit_s = _limit_s(run)
    if isinstance(limit_s, NotEvaluable):
        return limit_s
    known = amounts.completed(run) or [elapsed_s(run)]
    longest = max(known)
    share = longest / limit_s
    wanted = amounts.less_time(known, limit_s)
    if longest <= t.elapsed_s or share >= t.info_share or wanted is None:
        return None
    if (lacks := unproven(run)) is not None:
        return lacks
    if why := next_may_be_longer(run, job):
        return NotEvaluable(Lack.END, why)
    took = f"completed in {age_text(longest)} of its limit of {age_text(limit_s)}"
    if len(known) > 1 and longest > (job.elapsed_s or 0.0):
        took = f"the longest of {len(known)} such runs took {age_text(longest)}"
        took += f" of its limit of {age_text(limit_s)}"
    line = changes.time_line(limit_s, wanted)
    action = changes.action_of(line)
    if longest < t.warning_s and line is not None and len(amounts.completed(run)) < 2:
        action = to_do(f"If other runs are as short, {line.setting} will do.")
    return finding(
        run,
        "warning" if share < t.warning_share and longest >= t.warning_s else "info",
        f"{took} ({percent(100 * share)})",
        numbers={"elapsed_s": longest, "limit_s": limit_s},
        actions=[action],
    )


def next_may_be_longer(run: RunData, job: Job) -> str:
    """Why the time that this run took says little of the next one; "" where it does."""
    tasks = [each for each in (*run.siblings, job) if each.array_job_id]
    if is_restarted(run, job):
        return RESTARTED
    if _CONTINUED.search(f"{job.submit_line} {job.name}"):
        return "it seems to be a part of a longer run"
    if is_interactive(run, job_devices(run)):
        return "the length of a session is up to its user"
    is_partial = any(not each.has_ended for each in tasks)
    return "some tasks of the array have not ended" if is_partial else ""


@rule(
    "timed-out",
    title="ended by the time limit",
    why="Work that was not saved is lost.",
    remedy="request a longer limit, or write checkpoints",
    when="report",
    needs=(state,),
)
def timed_out(run: RunData) -> Checked:
    """The job's state is TIMEOUT, whatever its steps say: `.batch` then reads CANCELLED 0:15.

    Elapsed may exceed the limit by the kill's grace time. Guards: where the GPUs, or the cores of
    a CPU job, were idle or hung at the end, or nothing ran at all, the limit is not the cause, and
    no longer one is advised; nor of a job that has Slurm signal its limit, and is to go on in the
    next one; nor of a session of people, who choose its length.
    """
    if run.job is None or run.job.state != "TIMEOUT":
        return None
    limit_s = _limit_s(run)
    known_s = None if isinstance(limit_s, NotEvaluable) else limit_s
    text = "ended by the time limit" + (f" of {age_text(known_s)}" if known_s else "")
    end = _end_of(run)
    did_nothing = isinstance(found := cpu_never_used(run), list) and bool(found)
    stood = end.stood or did_nothing
    text += f"; {end.text}" if end.text else ""
    is_session = is_interactive(run, job_devices(run))
    is_signalled = "signal" in options_of_submit_line(run.job.submit_line)
    is_cut = not (stood or is_session or is_signalled)
    line = changes.time_line(known_s, 2 * known_s) if known_s and is_cut else None
    numbers = {"elapsed_s": elapsed_s(run)}
    if known_s:
        numbers["limit_s"] = known_s
        numbers["used_percent"] = min(100.0, 100 * elapsed_s(run) / known_s)
    if is_session:
        actions = [_SESSION]
    elif stood:
        actions = [_STOOD]
    elif is_signalled:
        actions = [_SIGNALLED]
    else:
        more = [changes.action_of(line)] if line else []
        is_long = known_s is not None and known_s >= _LONG_S
        actions = [_SIGNAL, *more] if is_long else [*more, _SIGNAL]
    return finding(run, "warning", text, numbers=numbers, actions=actions)


class _End(NamedTuple):
    """How a run spent its last time, in words; `stood`: not with work, so that more time may not
    help.
    """

    text: str
    stood: bool


def _end_of(run: RunData) -> _End:
    """By the ledger; of a job without GPUs by its cores."""
    ledger, least_s = ledger_of(run), max(600.0, 0.1 * run.elapsed_s)
    lost = [row.device for row in ledger.rows if row.count(State.LOST)]
    if lost:
        return _End(f"{gpus_text(run, lost)} was lost before", stood=True)
    if ledger.hang is not None:
        hung_s = ledger.seconds([ledger.hang.span])
        return _End(f"its GPUs seem to have hung for the last {age_text(hung_s)}", stood=True)
    if not ledger.rows:
        idle_s = idle_end_s(run)
        idle = f"its processes hardly computed for the last {age_text(idle_s)}" if idle_s else ""
        return _End(idle, idle_s >= least_s)
    if run.end - ledger.end >= _PAUSE_S or ledger.ends_unmeasured:
        return _End("", stood=False)
    tail_s = ledger.seconds([ledger.idle_now] if ledger.idle_now else [])
    if tail_s >= _PAUSE_S:
        return _End(f"its GPUs were idle for the last {age_text(tail_s)}", tail_s >= least_s)
    return _end_of_some(run, ledger, least_s) or _End("its GPUs worked until the end", stood=False)


def _end_of_some(run: RunData, ledger: Ledger, least_s: float) -> _End | None:
    """Where not all did the same: those that rested, while the others worked or waited for them."""
    tails = [(ledger.seconds([ledger.tail_of(row)]), row) for row in ledger.rows]
    resting = [each for each in tails if each[0] >= _RESTS_S]
    idle = gpus_text(run, [row.device for _, row in resting])
    rested_s = run.end - (ledger.last_work() or run.end)
    if rested_s >= least_s:
        last = ledger.count - run.bins(_PAUSE_S) - 1
        waits = resting and any(max(row.waits, default=0) >= last for row in ledger.rows)
        words = f"its other GPUs waited for {idle}" if waits else "its GPUs did nothing for it"
        return _End(f"{words} for the last {age_text(rested_s)}", stood=True)
    if not resting:
        return None
    rested = age_text(min(seconds for seconds, _ in resting))
    return _End(f"for the last {rested} {idle} did nothing, and the others worked", stood=False)
