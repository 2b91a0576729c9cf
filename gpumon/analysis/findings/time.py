"""The time limit: nearly over, far too long, or what ended the job."""

from __future__ import annotations

import re

from gpumon.analysis import rightsize
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import idle_since, job_devices, last_active, seconds_of
from gpumon.model.lines import Line
from gpumon.model.units import age_text, clock_text

#: asks for SIGUSR1 five minutes before the end, time to write a checkpoint
_SIGNAL = Action(
    "sbatch", Line("#SBATCH --signal=B:USR1@300"), text="and write a checkpoint when USR1 comes"
)
#: s; a job that runs for so much longer than its limit does not
_BEYOND_S = 300.0
#: a user's mark of progress: `epoch 3/10`
_PROGRESS = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")


def _limit_s(evidence: Evidence) -> float | NotEvaluable:
    job = evidence.job
    if job is not None and job.time_limit_s:
        return job.time_limit_s
    contexts = [each.header.job for each in evidence.nodes if each.header.job]
    known = [each.end - each.start for each in contexts if each.start and each.end]
    if known:
        return max(known)
    words = job.time_limit_words if job is not None else ""
    return NotEvaluable(f"time limit {words}" if words else "the time limit is not known")


def _elapsed_s(evidence: Evidence) -> float:
    told = evidence.job.elapsed_s if evidence.job and not evidence.live else None
    return evidence.elapsed_s if told is None else told


def time_short(evidence: Evidence) -> Outcome:
    """Running, and less than 10 % of the limit left (critical), or 30 min (warning).

    Guards: half of the limit must be over, else a short job would be warned from its start; marks
    of progress (`epoch 3/10`) that promise an end in time keep it silent. Numbers proposed. Slurm
    counts the time that has passed. Without its answer a node's clock that puts a running job 5 min
    (proposed; KillWait is 30 s) beyond its end is wrong, and proves nothing.
    """
    if not evidence.live:
        return []
    limit_s = _limit_s(evidence)
    if isinstance(limit_s, NotEvaluable):
        return limit_s
    counted_s = evidence.job.elapsed_at(evidence.end) if evidence.job else None
    elapsed_s = evidence.elapsed_s if counted_s is None else counted_s
    if counted_s is None and elapsed_s > limit_s + _BEYOND_S:
        return NotEvaluable("the node's clock differs from Slurm's, which did not answer")
    left_s = max(0.0, limit_s - elapsed_s)
    threshold = evidence.site.threshold
    critical = left_s < threshold("time-short.critical_share", 0.1) * limit_s
    if not critical and (left_s >= threshold("time-short.warning_s", 1800) or left_s > limit_s / 2):
        return []
    ends_in_s = _ends_in_s(evidence)
    if ends_in_s is not None and ends_in_s <= left_s:
        return []
    text = f"{age_text(left_s)} left of {clock_text(limit_s)}"
    if ends_in_s is not None:
        text += f"; by your marks it needs {age_text(ends_in_s)}"
    return [
        Finding(
            "time-short", "critical" if critical else "warning", text, text, resource="time",
            start=evidence.start, end=evidence.end, harm_in_s=left_s,
            numbers={"left_s": left_s, "limit_s": limit_s},
            actions=(_SIGNAL, rightsize.action_of(rightsize.time_line(limit_s, 2 * limit_s))),
        )
    ]  # fmt: skip


def _ends_in_s(evidence: Evidence) -> float | None:
    """By the newest mark that says `n/N`, if an earlier one tells the pace."""
    marks = [
        (event.time, int(match.group(1)), int(match.group(2)))
        for _, event in evidence.events
        if event.kind == "mark" and (match := _PROGRESS.search(event.text))
    ]
    if len(marks) < 2:
        return None
    (begin, first, _), (last, done, total) = marks[0], marks[-1]
    if done <= first or last <= begin or total < done:
        return None
    return max(0.0, last + (total - done) * (last - begin) / (done - first) - evidence.end)


def time_over(evidence: Evidence) -> Outcome:
    """COMPLETED in less than 60 % (info) or 10 % (warning) of the limit, elapsed > 15 min.

    Guards: the longest of the array's tasks counts, and one that the limit ended keeps it;
    UNLIMITED and the partition's limit are not evaluable. Source: jobstats 60 and 10;
    job_defense_shield 0.2; UVA 10 to 25 % on top.
    """
    job = evidence.job
    if job is None or not job.state:
        return NotEvaluable("how the job ended is not known")
    if job.state != "COMPLETED" or any(each.state == "TIMEOUT" for each in evidence.siblings):
        return []
    limit_s = _limit_s(evidence)
    if isinstance(limit_s, NotEvaluable):
        return limit_s
    longest = max([_elapsed_s(evidence), *rightsize.completed(evidence)])
    threshold = evidence.site.threshold
    share = longest / limit_s
    wanted = rightsize.less_time([longest])
    if (
        longest <= threshold("time-over.elapsed_s", 900)
        or share >= threshold("time-over.info_share", 0.6)
        or wanted is None
        or wanted >= limit_s
    ):
        return []
    warning = share < threshold("time-over.warning_share", 0.1)
    text = f"used {clock_text(longest)} of its time limit of {clock_text(limit_s)}"
    text += f" ({percent(100 * share)})"
    return [
        Finding(
            "time-over", "warning" if warning else "info", text,
            f"{text}; COMPLETED", resource="time", start=evidence.start, end=evidence.end,
            numbers={"elapsed_s": longest, "limit_s": limit_s},
            actions=(rightsize.action_of(rightsize.time_line(limit_s, wanted)),),
        )
    ]  # fmt: skip


def timed_out(evidence: Evidence) -> Outcome:
    """The job's state is TIMEOUT, whatever its steps say: `.batch` then reads CANCELLED 0:15.

    Elapsed may exceed the limit by the kill's grace time. Guards: where the GPUs were idle at the
    end, the limit is not the cause, and no longer one is advised.
    """
    job = evidence.job
    if job is None or not job.state:
        return NotEvaluable("how the job ended is not known")
    if job.state != "TIMEOUT":
        return []
    limit_s = _limit_s(evidence)
    known_s = None if isinstance(limit_s, NotEvaluable) else limit_s
    tail_s = idle_tail_s(evidence)
    text = "ended by the time limit" + (f" {clock_text(known_s)}" if known_s else "")
    idle = tail_s is not None and tail_s >= max(600.0, 0.1 * evidence.elapsed_s)
    if idle:
        text += f"; its GPUs were idle for the last {age_text(tail_s or 0)}"
    elif tail_s is not None:
        text += "; its GPUs worked until the end"
    line = rightsize.time_line(known_s, 2 * known_s) if known_s and not idle else None
    actions = (_SIGNAL,) if line is None else (rightsize.action_of(line), _SIGNAL)
    elapsed_s = _elapsed_s(evidence)
    numbers = {"elapsed_s": elapsed_s}
    if known_s:
        numbers |= {"limit_s": known_s, "used_percent": min(100.0, 100 * elapsed_s / known_s)}
    return [
        Finding(
            "timed-out", "warning", text, text, resource="time", start=evidence.start,
            end=evidence.end, numbers=numbers, actions=actions,
        )
    ]  # fmt: skip


def idle_tail_s(evidence: Evidence) -> float | None:
    """How long no GPU of the job had worked when it ended; None where that is not known."""
    devices = job_devices(evidence)
    if any(last_active(each) == evidence.count - 1 for each in devices):
        return 0.0
    span = idle_since(evidence, devices)
    return None if span is None else seconds_of(evidence, [span])


RULES: tuple[Rule, ...] = (
    Rule("time-short", time_short, report=False),
    Rule("time-over", time_over, live=False),
    Rule("timed-out", timed_out, live=False),
)
