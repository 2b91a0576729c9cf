"""Arrays: one verdict for all tasks, from the greatest of them, with how they are spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpumon.analysis import rightsize
from gpumon.analysis.directives import submitted_script
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import GIB
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.tasks import (
    LEAST_TASKS,
    Task,
    all_tasks,
    ended_tasks,
    gpu_hours,
    most_at_once,
    outcomes,
    outliers,
    spread,
)
from gpumon.model.lines import EMPTY, Line, path, setting, word, words
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text
from gpumon.slurm.job import Job

_BAD = ("OUT_OF_MEMORY", "TIMEOUT", "FAILED", "NODE_FAIL")
_MOST_NAMES = 30


def _is_array(evidence: Evidence) -> bool:
    return evidence.job is not None and bool(evidence.job.array_job_id)


def _tasks(evidence: Evidence) -> list[Task] | NotEvaluable:
    tasks = ended_tasks(evidence)
    if len(tasks) < LEAST_TASKS:
        return NotEvaluable(f"{len(tasks)} tasks ran 5 min or longer; an array is judged from 5")
    return tasks


def array_mem_over(evidence: Evidence) -> Outcome:
    """The greatest task needed under 0.7 of the request; warning where the tasks that ran at once
    wasted 64 GiB.

    Guards: any task OUT_OF_MEMORY forbids a smaller request; every figure has its own margin; the
    site's default is kept. Proposed.
    """
    if not _is_array(evidence):
        return []
    tasks = _tasks(evidence)
    if isinstance(tasks, NotEvaluable):
        return tasks
    request = requested(evidence)
    known = [task for task in tasks if task.mem_bytes is not None]
    figures = spread(task.mem_bytes for task in known)
    if figures is None or request.mem_bytes is None:
        return NotEvaluable("memory is known of fewer than 5 tasks, or not what was asked for")
    if rightsize.was_out_of_memory(evidence):
        return []
    wanted = max((task.mem_bytes or 0.0) * task.mem_factor for task in known)
    wanted = max(wanted, rightsize.site_default_bytes(evidence, request.cpus))
    line = rightsize.memory_line(request, wanted)
    share = evidence.site.threshold("array-mem-over.share", 0.7)
    if (
        figures.high >= share * request.mem_bytes
        or rightsize.round_memory(wanted) >= request.mem_bytes
        or line is None
    ):
        return []
    at_once = most_at_once(task.job for task in tasks)
    waste = (request.mem_bytes - figures.p50) * request.nodes * at_once
    warning = waste >= evidence.site.threshold("array-mem-over.waste_bytes", 64.0 * GIB)
    text = (
        f"{figures.count} tasks: memory p50 {bytes_text(figures.p50)}, "
        f"p95 {bytes_text(figures.p95)}, max {bytes_text(figures.high)} "
        f"of {bytes_text(request.mem_bytes)}"
    )
    numbers = {"p50_bytes": figures.p50, "max_bytes": figures.high, "waste_bytes": waste}
    return [
        _finding(evidence, "array-mem-over", "warning" if warning else "info", text, "mem",
                 tasks, rightsize.action_of(line), numbers)
    ]  # fmt: skip


def array_time_over(evidence: Evidence) -> Outcome:
    """The longest of the COMPLETED tasks took under 60 % of the limit.

    Guards: any TIMEOUT forbids a shorter limit. Source: jobstats 60 %; UVA 10 to 25 % on top.
    """
    if not _is_array(evidence):
        return []
    tasks = _tasks(evidence)
    if isinstance(tasks, NotEvaluable):
        return tasks
    limit_s = requested(evidence).time_limit_s
    elapsed = rightsize.completed_s(task.job for task in tasks)
    figures = spread(elapsed)
    wanted = rightsize.less_time(elapsed)
    if not limit_s or figures is None or wanted is None:
        return NotEvaluable("the limit is not known, or fewer than 5 tasks completed")
    share = evidence.site.threshold("array-time-over.share", 0.6)
    if (
        figures.high >= share * limit_s
        or wanted >= limit_s
        or any(job.state == "TIMEOUT" for job in all_tasks(evidence))
    ):
        return []
    text = (
        f"{figures.count} tasks: p50 {clock_text(figures.p50)}, p95 {clock_text(figures.p95)}, "
        f"max {clock_text(figures.high)} of {clock_text(limit_s)}"
    )
    line = rightsize.time_line(limit_s, wanted)
    numbers = {"max_s": figures.high, "limit_s": limit_s}
    return [
        _finding(evidence, "array-time-over", "info", text, "time", tasks,
                 rightsize.action_of(line), numbers)
    ]  # fmt: skip


def array_cpu_over(evidence: Evidence) -> Outcome:
    """95 % of the recorded tasks peaked (mean of a minute) under half of the cores.

    Guards: a mean, all that accounting has, proves nothing; so five tasks must be recorded; the
    GPUs' cores are kept. Proposed.
    """
    if not _is_array(evidence):
        return []
    tasks = _tasks(evidence)
    if isinstance(tasks, NotEvaluable):
        return tasks
    request = requested(evidence)
    figures = spread(task.peak_cores for task in tasks)
    if figures is None or not request.cpus:
        return NotEvaluable("peak cores are known of fewer than 5 tasks: record them")
    share = evidence.site.threshold("array-cpu-over.share", 0.5)
    wanted = array_cpus(tasks, request.gpus or 0)
    if figures.p95 >= share * request.cpus or wanted is None or wanted >= request.cpus:
        return []
    line = rightsize.cpus_line(request, wanted)
    text = (
        f"{figures.count} tasks: peak cores p95 {figures.p95:.1f}, max {figures.high:.1f} "
        f"of {request.cpus}"
    )
    return [
        _finding(evidence, "array-cpu-over", "info", text, "cpu", tasks,
                 rightsize.action_of(line), {"p95": figures.p95, "max": figures.high})
    ]  # fmt: skip


def array_cpus(tasks: list[Task], gpus: int) -> int | None:
    """CPUs per node for all tasks, from the greatest peak; None where none is known."""
    peaks = [task.peak_cores for task in tasks if task.peak_cores is not None]
    return rightsize.cpus_for(max(peaks), gpus) if peaks else None


def array_gpu_idle(evidence: Evidence) -> Outcome:
    """Tasks whose GPUs never worked; critical where they are more than half of those known.

    Guards: only recorded tasks, and those with a summary by jobstats, are known. Proposed.
    """
    if not _is_array(evidence) or requested(evidence).gpus == 0:
        return []
    tasks = _tasks(evidence)
    if isinstance(tasks, NotEvaluable):
        return tasks
    known = [task for task in tasks if task.gpu_idle is not None]
    if len(known) < LEAST_TASKS:
        return NotEvaluable("GPU use is known of fewer than 5 tasks")
    idle = [task for task in known if task.gpu_idle]
    if not idle:
        return []
    hours = sum(gpu_hours(task.job) for task in idle)
    part = evidence.site.threshold("array-gpu-idle.critical_share", 0.5)
    text = f"{len(idle)} of {len(known)} tasks never used their GPU ({hours:.1f} GPU-h)"
    found = _finding(
        evidence, "array-gpu-idle", "critical" if len(idle) > part * len(known) else "warning",
        text, "gpu", known, Action("shell", EMPTY, text=f"Tasks {_names(t.job for t in idle)}."),
        {"idle": len(idle), "known": len(known)}, hours,
    )  # fmt: skip
    return [found]


def array_outlier(evidence: Evidence) -> Outcome:
    """A task beyond Q3 + 3 · IQR, or at twice the median, in memory (1 GiB), time (10 min) or GPU
    busy (20 points), each by at least so much.

    Guards: where more than a fifth of the tasks would be, nobody is. Proposed.
    """
    if not _is_array(evidence):
        return []
    tasks = _tasks(evidence)
    if isinstance(tasks, NotEvaluable):
        return tasks
    found = [
        finding
        for what, figure, least, show in _FIGURES
        if (finding := _outlier(evidence, tasks, what, figure, least, show))
    ]
    return found


_FIGURES: tuple[tuple[str, Callable[[Task], float | None], float, Callable[[float], str]], ...] = (
    ("memory", lambda task: task.mem_bytes, float(GIB), bytes_text),
    ("time", lambda task: task.job.elapsed_s, 600.0, clock_text),
    ("GPU busy", lambda task: task.busy_percent, 20.0, percent),
)


def _outlier(
    evidence: Evidence, tasks: list[Task], what: str,
    figure: Callable[[Task], float | None], least: float, show: Callable[[float], str],
) -> Finding | None:  # fmt: skip
    far = sorted(outliers(tasks, figure, least), key=lambda each: -each[1])
    if not far:
        return None
    task, value, middle = far[0]
    text = f"task {clean(task.name)}: {what} {show(value)} (median {show(middle)})"
    if len(far) > 1:
        text += f"; and {len(far) - 1} more: {_names(each.job for each, _, _ in far[1:])}"
    output = Line(
        "less slurm-{}_{}.out",
        word("count", task.job.array_job_id), word("count", task.job.array_task),
    )  # fmt: skip
    return _finding(
        evidence, "array-outlier", "info", text, what, tasks,
        Action("shell", output, text="Run it apart, with a request of its own."),
        {"value": value, "median": middle},
    )  # fmt: skip


def array_mixed_outcome(evidence: Evidence) -> Outcome:
    """Some tasks OUT_OF_MEMORY, TIMEOUT, FAILED or NODE_FAIL, while others COMPLETED.

    Guards: tasks of any length, for a failure may be quick. The line to run them again asks for
    half as much memory more, or twice the time, where that was the cause.
    """
    if not _is_array(evidence):
        return []
    jobs = [job for job in all_tasks(evidence) if job.has_ended]
    counts = outcomes(jobs)
    bad = [state for state in _BAD if counts[state]]
    if not jobs or not bad or not counts["COMPLETED"]:
        return []
    text = f"{', '.join(f'{counts[state]} {state}' for state in bad)} of {len(jobs)}"
    actions = tuple(_again(evidence, jobs, state) for state in bad)
    return [
        Finding(
            "array-mixed-outcome", "warning", text, f"{text} tasks; the others COMPLETED",
            resource="outcome", start=evidence.start, end=evidence.end,
            numbers={state.lower(): counts[state] for state in bad}, actions=actions,
        )
    ]  # fmt: skip


def _again(evidence: Evidence, jobs: list[Job], state: str) -> Action:
    """`sbatch --array=4,7 --mem=48G job.sh`."""
    request = requested(evidence)
    line = None
    if state == "OUT_OF_MEMORY" and request.mem_bytes:
        line = rightsize.memory_line(request, 1.5 * request.mem_bytes)
    elif state == "TIMEOUT" and request.time_limit_s:
        line = rightsize.time_line(request.time_limit_s, 2 * request.time_limit_s)
    tasks = [job for job in jobs if state in outcomes([job])]
    job = evidence.job
    script = path((submitted_script(job.submit_line) if job else "") or "job.sh") or Line("SCRIPT")
    options = Line("--array={}", word("counts", _ranges(tasks)))
    if line is not None:
        options = Line("{} {}", options, setting(line.directive, line.after))
    return Action("shell", Line("sbatch {} {}", options, script), text=f"The {state} again.")


def _ranges(jobs: list[Job]) -> str:
    """`4,7-9` of the tasks' numbers, whole: it is to be pasted."""
    numbers = sorted({int(job.array_task) for job in jobs if job.array_task.isdecimal()})
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def _order(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 1 << 62, name)


def _names(jobs: Iterable[Job]) -> str:
    """`4, 7, 9`, at most 30 of them."""
    names = [words(name) for name in sorted((job.array_task or job.id for job in jobs), key=_order)]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _finding(
    evidence: Evidence, rule: str, level: str, text: str, resource: str, tasks: list[Task],
    action: Action, numbers: dict[str, float], hours: float = 0.0,
) -> Finding:  # fmt: skip
    sources = sorted({task.source for task in tasks})
    counts = ", ".join(f"{sum(t.source == s for t in tasks)} by {s}" for s in sources)
    return Finding(
        rule, level, text, f"{text} ({counts})",
        "high" if sources == ["recording"] or resource == "time" else "medium",
        resource=resource, start=evidence.start, end=evidence.end, numbers=numbers,
        actions=(action,), waste_gpu_hours=hours,
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("array-mem-over", array_mem_over, live=False),
    Rule("array-time-over", array_time_over, live=False),
    Rule("array-cpu-over", array_cpu_over, live=False),
    Rule("array-gpu-idle", array_gpu_idle, live=False),
    Rule("array-outlier", array_outlier, live=False),
    Rule("array-mixed-outcome", array_mixed_outcome, live=False),
)
