"""Arrays: one finding for all tasks, from the greatest of them, with how they are spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable, Outcome, to_do
from gpumon.analysis.known import most_at_once
from gpumon.analysis.programs import coordinates
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.amounts import GIB
from gpumon.analysis.rightsize.cores import threads_per_core
from gpumon.analysis.rightsize.proof import is_worth
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rightsize.tasks import (
    LEAST_TASKS,
    Task,
    all_tasks,
    array_cpus,
    completed_tasks,
    ended_tasks,
    gpu_hours,
    outcome,
    outcomes,
    outliers,
    spread,
)
from gpumon.analysis.rules.advice import AS_MANY, share_the_node
from gpumon.analysis.rules.core_time import cores_in_all, few_nodes_text, has_more_than_requested
from gpumon.analysis.rules.cpu_peak import IF_SERIAL, SerialManyCores
from gpumon.analysis.rules.needs import array
from gpumon.analysis.rules.outcome import is_cancelled_by_others
from gpumon.analysis.rules.phrasing import (
    CORES_HELD,
    GPU_HELD,
    MEM_HELD,
    SHORT_FIRST,
    finding,
    more_memory,
    percent,
    range_text,
)
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.time import next_may_be_longer
from gpumon.analysis.rundata import RunData
from gpumon.analysis.thresholds import Array, Bytes, Share, of_site
from gpumon.model.lines import Line, path, word, words
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, plural
from gpumon.slurm import ids
from gpumon.slurm.job import Job
from gpumon.slurm.options import submitted_script

#: state -> what such tasks did; the last one's cause must be mended by hand
_BAD = {
    "OUT_OF_MEMORY": "that ran out of memory",
    "TIMEOUT": "that reached the time limit",
    "DEADLINE": "that passed the deadline",
    "PREEMPTED": "that another job preempted",
    "NODE_FAIL": "whose node failed",
    "BOOT_FAIL": "whose node did not start",
    "CANCELLED": "that another user cancelled",
    "FAILED": "that failed",
}
_MOST_NAMES, _MOST_CODES = 30, 3
#: of the CPUs, from which on one thread per core may be all, of cores with two
_MAYBE_HALF = 0.45


def tasks_that_count(run: RunData) -> Outcome | None:
    """An array with enough tasks that ran long enough; any other job is clear."""
    if run.job is None or not run.job.array_job_id:
        return []
    count = len(ended_tasks(run))
    if count >= LEAST_TASKS:
        return None
    least = f"{of_site(run.site, 'array', Array).elapsed_s / 60:g} min"
    few = f"{count} tasks ran {least} or longer; an array is evaluated from {LEAST_TASKS}"
    return NotEvaluable(Lack.TIME, few)


def gpus_asked(run: RunData) -> Outcome | None:
    return [] if requested(run).gpus == 0 else None


class ArrayMemOver(NamedTuple):
    share: Share = 0.7  # of the request
    waste_bytes: Bytes = 64 * GIB  # by the tasks that ran at once: warning


@rule(
    "array-mem-over",
    title="no task used {share} of the requested memory",
    why=f"{MEM_HELD} An array multiplies the waste.",
    remedy="request the largest use and a margin",
    when="report",
    needs=(tasks_that_count,),
)
def array_mem_over(run: RunData, t: ArrayMemOver) -> Checked:
    """Of the COMPLETED tasks. Guards: any task OUT_OF_MEMORY forbids a smaller request; what a
    failed one used is kept; every figure has its own margin; the site's default is kept; what one
    request for all tasks could save counts as waste, and must be worth a change. Proposed.
    """
    tasks = ended_tasks(run)
    request = requested(run)
    known = [task for task in tasks if task.mem_bytes is not None]
    figures = spread(task.mem_bytes for task in completed_tasks(run))
    if figures is None or request.mem_bytes is None:
        few = (
            f"memory is known for fewer than {LEAST_TASKS} completed tasks, or no request is known"
        )
        return NotEvaluable(Lack.SLURM, few)
    if amounts.was_out_of_memory(run):
        return None
    wanted = max((task.mem_bytes or 0.0) * task.mem_factor for task in known)
    wanted = max(wanted, amounts.site_default_bytes(run, request.cpus))
    line = changes.memory_line(request, wanted)
    asked = amounts.round_memory(wanted)
    most = max(task.mem_bytes or 0.0 for task in known)
    is_enough = most >= t.share * request.mem_bytes or not is_worth(request.mem_bytes, asked)
    if is_enough or line is None:
        return None
    jobs = (task.job for task in tasks)
    times = [(e.start, e.end) for e in jobs if e.start is not None and e.end is not None]
    at_once = max(1, most_at_once(times))
    waste = (request.mem_bytes - asked) * request.nodes * at_once
    return _finding(
        run,
        "warning" if waste >= t.waste_bytes else "info",
        f"{figures.count} tasks used at most {bytes_text(figures.high)} of the requested "
        f"{bytes_text(request.mem_bytes)} (median {bytes_text(figures.p50)}, "
        f"95th percentile {bytes_text(figures.p95)})",
        tasks,
        [changes.action_of(line)],
        {"p50_bytes": figures.p50, "max_bytes": figures.high, "waste_bytes": waste},
    )


class ArrayTimeOver(NamedTuple):
    share: Share = 0.65  # of the limit


@rule(
    "array-time-over",
    title="no task took {share} of the time limit",
    why=SHORT_FIRST,
    remedy="request a shorter limit",
    when="report",
    needs=(tasks_that_count,),
)
def array_time_over(run: RunData, t: ArrayTimeOver) -> Checked:
    """The longest of the COMPLETED tasks. Guards: any TIMEOUT forbids a shorter limit, and so does
    whatever lets the next tasks take longer (`rules.time`). Source: jobstats 60 %.
    """
    tasks = ended_tasks(run)
    limit_s = requested(run).time_limit_s
    elapsed = amounts.completed_s(task.job for task in tasks)
    figures = spread(elapsed)
    if not limit_s or figures is None:
        few = f"the limit is not known, or fewer than {LEAST_TASKS} tasks completed"
        return NotEvaluable(Lack.SLURM, few)
    timed_out = any(job.state == "TIMEOUT" for job in all_tasks(run))
    wanted = amounts.less_time(elapsed, limit_s)
    if figures.high >= t.share * limit_s or wanted is None or timed_out:
        return None
    if run.job is not None and (why := next_may_be_longer(run, run.job)):
        return NotEvaluable(Lack.END, why)
    return _finding(
        run,
        "info",
        f"{figures.count} tasks took at most {age_text(figures.high)} of their limit of "
        f"{age_text(limit_s)} (median {age_text(figures.p50)}, 95th percentile "
        f"{age_text(figures.p95)})",
        tasks,
        [changes.action_of(changes.time_line(limit_s, wanted))],
        {"max_s": figures.high, "limit_s": limit_s},
        is_sure=True,
    )


class ArrayCpuOver(NamedTuple):
    share: Share = 0.5  # of the cores


@rule(
    "array-cpu-over",
    title="95 % of the tasks used under {share} of their cores",
    why=f"{CORES_HELD} An array multiplies the waste.",
    remedy="request fewer cores",
    when="report",
    needs=(array,),
)
def array_cpu_over(run: RunData, t: ArrayCpuOver) -> Checked:
    """By their peak (mean of a minute), of the COMPLETED tasks; where fewer than five have one, by
    their mean over the run: a mean proves no need, so this asks and offers no line, of any number
    of tasks.

    Guards: what a failed one used is kept; the GPUs' cores are kept. Information where a single job
    would get no more: with GPUs, more cores than requested, steps on some nodes only, or hardware
    threads that may be all of the cores. Proposed.
    """
    tasks = ended_tasks(run)
    request = requested(run)
    figures = spread(task.peak_cores for task in completed_tasks(run))
    if not request.cpus:
        return NotEvaluable(Lack.SLURM, "the number of cores is unknown")
    if figures is None:
        return _by_mean(run, t)
    cpus = request.cpus // (threads_per_core(run) or 1)
    if figures.p95 >= t.share * cpus:
        return None
    wanted = array_cpus(run, tasks)
    line = changes.cpus_line(request, wanted) if wanted else None
    return _finding(
        run,
        _level_of_cores(run, figures.p95 / cpus),
        f"{figures.count} tasks used at most {figures.high:.1f} of {cpus} cores in any "
        f"minute (95th percentile {figures.p95:.1f})",
        tasks,
        [changes.action_of(line)] if line else [],
        {"p95": figures.p95, "max": figures.high},
    )


def _by_mean(run: RunData, t: ArrayCpuOver) -> Checked:
    known = [(task, task.mean_cores) for task in completed_tasks(run) if task.mean_cores]
    if not known:
        return NotEvaluable(Lack.READINGS, "cores used are known for no completed task")
    means = sorted(mean for _, mean in known)
    figures, cores = spread(means), cores_in_all(run)
    usual, low, high = figures.p95 if figures else means[-1], means[0], means[-1]
    if usual >= t.share * cores or coordinates(run):
        return None
    one = of_site(run.site, "serial-many-cores", SerialManyCores)
    asked, text = "", AS_MANY if (requested(run).tasks or 1) > 1 else _RECORD_ONE
    if one.low <= low and high <= one.high:
        asked, text = " (is the program serial?)", IF_SERIAL
    if requested(run).is_alone:
        text = share_the_node(requested(run))
    return _finding(
        run,
        _level_of_cores(run, usual / cores),
        f"{plural(len(known), 'task')} used {_range(low, high)} of {cores} cores on average{asked}",
        [task for task, _ in known],
        [to_do(text)],
        {"p95": usual, "max": high},
    )


_RECORD_ONE = "Record one task with gpumon: it shows how many cores it needs at once."


def _level_of_cores(run: RunData, share: float) -> str:
    """As a single job that used so much of its cores."""
    may_be_all = threads_per_core(run) is None and share >= _MAYBE_HALF
    is_part = run.job is not None and few_nodes_text(run, run.job)
    is_asked = requested(run).gpus == 0 and not has_more_than_requested(run)
    return "warning" if is_asked and not may_be_all and not is_part else "info"


def _range(low: float, high: float) -> str:
    return range_text((low, high), lambda value: f"{value:.{1 if value >= 0.1 else 2}f}")


class ArrayGpuIdle(NamedTuple):
    critical_share: Share = 0.5  # of the tasks that are known


@rule(
    "array-gpu-idle",
    title="tasks that never used their GPUs",
    why=GPU_HELD,
    remedy="check the output of one of them",
    when="report",
    needs=(gpus_asked, array),
)
def array_gpu_idle(run: RunData, t: ArrayGpuIdle) -> Checked:
    """Guards: only recorded tasks, and those with a summary by jobstats, are known: few of them
    show nothing of the others. Proposed.
    """
    tasks = ended_tasks(run)
    known = [task for task in tasks if task.gpu_idle is not None]
    idle = [task for task in known if task.gpu_idle]
    is_few = len(known) < LEAST_TASKS
    if is_few and not idle:
        return NotEvaluable(Lack.READINGS, f"GPU use is known for fewer than {LEAST_TASKS} tasks")
    if not idle:
        return None
    hours = sum(gpu_hours(task.job) for task in idle)
    whose = "its" if len(idle) == 1 else "their"
    who = f"{len(idle)} of {len(known)} tasks"
    more = ""
    if is_few:
        who = _named([task.job for task in idle])
        more = f"; GPU use is known of {len(known)} of {len(tasks)} tasks"
    is_most = len(idle) > t.critical_share * len(known) and not is_few
    return _finding(
        run,
        "critical" if is_most else "warning",
        f"{who} never used {whose} GPUs ({hours:.1f} GPU-h){more}",
        known,
        [to_do(f"Check the output of {_named([task.job for task in idle])}.")],
        {"idle": len(idle), "known": len(known)},
        wasted_s=3600 * hours,
    )


@rule(
    "array-outlier",
    title="a task that used far more than the others",
    why="One request serves all tasks, so it has to fit the largest one.",
    remedy="submit that task by itself, with its own request",
    when="report",
    needs=(tasks_that_count,),
)
def array_outlier(run: RunData) -> Answers:
    """A task beyond Q3 + 3 · IQR, or at twice the median, in memory (1 GiB), time (10 min) or GPU
    busy (20 points), each by at least so much.

    Guards: where more than a fifth of the tasks would be, nobody is. Proposed.
    """
    tasks = ended_tasks(run)
    for what, figure, least, show in _FIGURES:
        far = sorted(outliers(tasks, figure, least), key=lambda each: -each[1])
        if not far:
            continue
        task, value, middle = far[0]
        text = f"task {clean(task.name)}: {what} {show(value)}, median of all tasks {show(middle)}"
        if len(far) > 1:
            them = "an outlier" if len(far) == 2 else "outliers"
            text += f"; also {them}: {_named([each.job for each, _, _ in far[1:]])}"
        ids = (word("count", each) for each in (task.job.array_job_id, task.job.array_task))
        file = Line("less slurm-{}_{}.out", *ids)
        actions = (
            Action("shell", file, text="Read its output: does it need that much?"),
            to_do("If so, submit it by itself, with its own request."),
        )
        numbers = {"value": value, "median": middle}
        yield _finding(run, "info", text, tasks, actions, numbers, is_sure=what == "time")


_FIGURES: tuple[tuple[str, Callable[[Task], float | None], float, Callable[[float], str]], ...] = (
    ("memory", lambda task: task.mem_bytes, float(GIB), bytes_text),
    ("time", lambda task: task.job.elapsed_s, 600.0, age_text),
    ("GPU busy", lambda task: task.busy_percent, 20.0, percent),
)


@rule(
    "array-mixed-outcome",
    title="tasks that did not complete",
    why="Results are missing; only tasks that did not complete need to run again.",
    remedy="resubmit only those tasks",
    when="report",
    needs=(array,),
)
def array_mixed_outcome(run: RunData) -> Checked:
    """Some or all tasks ended otherwise than COMPLETED.

    Guards: tasks of any length, for a failure may be quick; a task that its owner cancelled is not
    bad. The line to run them again asks for half as much memory more, or twice the time, where that
    was the cause.
    """
    jobs = [job for job in all_tasks(run) if job.has_ended]
    ended = [(_ended(each), each) for each in jobs]
    tasks = {name: found for name in _BAD if (found := [e for state, e in ended if state == name])}
    if not tasks:
        return None
    counts = [f"{len(found)} {state}" for state, found in tasks.items()]
    states = outcomes(jobs)
    completed = states["COMPLETED"]
    own = states["CANCELLED"] - len(tasks.get("CANCELLED", ()))
    others = f", {own} CANCELLED" if own else ""
    each = "".join(f". {state}: {_told(run, state, found)}" for state, found in tasks.items())
    return finding(
        run,
        "warning",
        f"{len(jobs)} tasks: {', '.join(counts)}",
        rest=(f", {completed} COMPLETED" if completed else "; none completed") + others + each,
        numbers={state.lower(): len(found) for state, found in tasks.items()},
        actions=[_again(run, state, found) for state, found in tasks.items()],
    )


def _ended(job: Job) -> str:
    """Its state; "" where its owner cancelled it, or where it is not known who did."""
    state = outcome(job)
    return state if state != "CANCELLED" or is_cancelled_by_others(job) else ""


def _told(run: RunData, state: str, jobs: Sequence[Job]) -> str:
    """`tasks 3, 9; limit 1 h 00 min`."""
    request = requested(run)
    named = _named(jobs)
    if state == "OUT_OF_MEMORY" and request.mem_bytes:
        return f"{named}; limit {bytes_text(request.mem_bytes)}"
    if state == "TIMEOUT" and request.time_limit_s:
        return f"{named}; limit {age_text(request.time_limit_s)}"
    codes = dict.fromkeys(str(job.exit_code) for job in jobs if job.exit_code is not None)
    codes.pop("0:0", None)
    if state == "FAILED" and codes:
        return f"{named}; exit code {', '.join([*codes][:_MOST_CODES])}"
    return named


def _again(run: RunData, state: str, jobs: Sequence[Job]) -> Action:
    """`sbatch --array=4,7 --mem=48G job.sh`."""
    request = requested(run)
    these = f"the {'task' if len(jobs) == 1 else 'tasks'} {_BAD[state]}"
    change, text = None, f"Resubmit {these}."
    if state == "OUT_OF_MEMORY":
        change, text = more_memory(run), f"Resubmit {these}, with more memory."
        if change is None:
            text = f"Let {these} use less: no larger request is known to fit a node."
            return to_do(text)
    elif state == "TIMEOUT" and request.time_limit_s:
        change = changes.time_line(request.time_limit_s, 2 * request.time_limit_s)
        text = f"Resubmit {these}, from a checkpoint or with more time, {changes.IF_ALLOWED}."
    elif state == "FAILED":
        first = min(jobs, key=lambda job: _order(job.array_task or job.id))
        text = f"Mend the cause first (see the output of {_named([first])}), then resubmit {these}."
    elif state == "CANCELLED":
        text = f"Ask why they were cancelled before you resubmit {these}."
    job = run.job
    script = path((submitted_script(job.submit_line) if job else "") or "job.sh") or Line("SCRIPT")
    options = Line("--array={}", word("counts", ids.ranges(job.array_task for job in jobs)))
    if change is not None:
        options = Line("{} {}", options, change.setting)
    return Action("shell", Line("sbatch {} {}", options, script), text=text)


def _order(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 1 << 62, name)


def _named(jobs: Sequence[Job]) -> str:
    return f"{'task' if len(jobs) == 1 else 'tasks'} {_names(jobs)}"


def _names(jobs: Iterable[Job]) -> str:
    """`4, 7, 9`, at most 30 of them."""
    names = [words(name) for name in sorted((job.array_task or job.id for job in jobs), key=_order)]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _finding(
    run: RunData,
    level: str,
    text: str,
    tasks: Sequence[Task],
    actions: Sequence[Action],
    numbers: Mapping[str, float],
    *,
    is_sure: bool = False,  # Slurm knows the figure exactly
    wasted_s: float = 0.0,
) -> Finding:
    sources = Counter(task.source for task in tasks)
    told = ", ".join(
        f"{source} for {plural(count, 'task')}" for source, count in sorted(sources.items())
    )
    if len(sources) == 1:
        told = f"{tasks[0].source} for each task"
    return finding(
        run,
        level,
        text,
        rest=f"; source: {told}",
        confidence="high" if [*sources] == ["recording"] or is_sure else "medium",
        numbers=numbers,
        actions=actions,
        wasted_s=wasted_s,
    )
