"""The rows of an array's tasks, and their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.report.usage import Figures, Use, mean, total, working
from gpumon.slurm import ids
from gpumon.slurm.groups import task_count, task_order
from gpumon.tui.jobs import reason_text, state_text
from gpumon.tui.moment import Moment, states
from gpumon.tui.moment.facts import activities
from gpumon.tui.moment.remarks import LEVELS
from gpumon.tui.moment.zoom import Zoom
from gpumon.tui.screens.job.request import allocated, silent_nodes, uses

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.slurm.job import Job

#: worst first; then what runs, waits, has ended
_LEVELS = ("bad", "attention", "unknown", "note", "")
#: what a state says, where Slurm says no more
_OUTCOMES = {
    "TIMEOUT": "it reached its time limit",
    "OUT_OF_MEMORY": "it ran out of memory",
    "NODE_FAIL": "its node failed",
    "PREEMPTED": "it was preempted",
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "its deadline passed",
}


_GONE = "UNKNOWN"  # as gpumon.pipeline.array has it
#: a stream breaks off as its task ends: until Slurm has been asked, that is no trouble
_ENDING_S = 20.0


class TaskRow(NamedTuple):
    """One task, or several that wait or ended alike.

    level, remark: the worst that there is to say of it. moment: of one that is measured.
    """

    job: Job
    task: str
    size: int  # how many
    level: str
    remark: str
    waste_gpu_hours: float
    moment: Moment | None = None
    measured: Figures | None = None

    @property
    def state(self) -> str:
        return clean(self.job.state, 40)

    @property
    def identity(self) -> str:
        """The same from one moment to the next."""
        return self.job.id if self.is_single else f"{self.state} {self.remark}"

    @property
    def is_single(self) -> bool:
        return self.size == 1 and self.job.array_task.isdecimal()


class Rows:
    """Makes the rows, and remembers of each task what may be kept."""

    def __init__(self, moment: Moment) -> None:
        self._empty = moment
        self._moments: dict[str, Moment] = {}

    def of(
        self, tasks: Sequence[Job], followed: Mapping[str, Pipeline], zoom: Zoom
    ) -> list[TaskRow]:
        """One for each task that runs or is measured; of the others one for several."""
        self._moments = {id: self._moment(id, each, zoom) for id, each in followed.items()}
        rows = [self._row(job) for job in tasks if job.id in followed or job.is_running]
        rest = [job for job in tasks if not (job.id in followed or job.is_running)]
        return rows + [_group(jobs) for jobs in _alike(rest)]

    def _moment(self, id: str, pipeline: Pipeline, zoom: Zoom) -> Moment:
        before = self._moments.get(id) or replace(self._empty, kept=type(self._empty.kept)())
        return replace(before, zoom=zoom).looking_at(pipeline)

    def _row(self, job: Job) -> TaskRow:
        moment = self._moments.get(job.id)
        if moment is None:
            return TaskRow(job, job.array_task, 1, "", "not measured; Slurm's figures only", 0.0)
        if job.is_pending:  # it was put back into the queue
            return TaskRow(job, job.array_task, 1, "", _waits(job), 0.0, moment)
        findings = moment.evaluation.findings if moment.evaluation is not None else []
        waste = sum(each.waste_gpu_hours for each in findings)
        is_over = job.has_ended or job.state == _GONE
        level, remark = _outcome(job) if is_over else _worst(moment, findings)
        measured = None if is_over else measure(moment)
        return TaskRow(job, job.array_task, 1, level, remark, waste, moment, measured)


def _worst(moment: Moment, findings: Sequence[Finding]) -> tuple[str, str]:
    """(level, words): streams and devices that do not answer, then the first finding."""
    for node in moment.nodes:
        level, words = states.stream(node.status(moment.now), moment.now)
        if level == "bad":
            last = node.last_time
            silent_s = inf if last is None else moment.now - node.clock_offset_s - last
            return (level if silent_s >= _ENDING_S else "unknown"), f"{node.name} {words}"
    for _, device in moment.devices:
        said = states.title(device, moment.now)
        if said is not None:
            return said[1], f"GPU {device.device.label} {said[0]}"
    if not moment.nodes or all(node.header is None for node in moment.nodes):
        return "unknown", "connecting …"
    if findings:
        return LEVELS[findings[0].level], findings[0].title
    return "", ""


def _outcome(job: Job) -> tuple[str, str]:
    """(level, words): what the state alone does not say."""
    if job.state == _GONE:
        return "unknown", "no longer listed by Slurm"
    level = "" if job.state in ("COMPLETED", "CANCELLED") else "bad"
    said = state_text(job).removeprefix(clean(job.state, 40)).lstrip(" ,")
    return level, said or (_OUTCOMES.get(job.state, "") if level else "")


def measure(moment: Moment) -> Figures:
    """What the task does now, over all its nodes."""
    whole = allocated(moment)
    devices = moment.devices if moment.nodes else []
    keys = [(node, device.key) for node, device in devices]
    busy = [
        Use(used, of=f"{node.name}:{key}")
        for node, key in keys
        for used in activities(node, [key], moment.now)
    ]
    gpu_mem = [
        Use(used, number(device.device.facts.get("mem_total_bytes")), of=node.name)
        for node, device in devices
        for used in node.numbers("device", [device.key], "mem_used_bytes", moment.now)
    ]
    silent = [Use(why="no sample yet", of=name) for name in silent_nodes(moment)]
    limits = {node.name: moment.mem_limit(node) for node in moment.nodes}
    cores = total(uses(moment, "job", "cpu_cores_used"))
    return Figures(
        cores=cores._replace(given=whole.cpus if whole is not None else None),
        mem=total(uses(moment, "job", "mem_used_bytes", limits)),
        gpus=total([*map(working, busy), *silent]),
        busy=mean([*busy, *silent]),
        gpu_mem=total([*gpu_mem, *silent]),
        is_need=not any(facts.frameworks for facts in moment.facts().values()),
        is_now=True,
    )


def trend(moment: Moment, width: int) -> list[float | None]:
    """Busy of late, the mean over all GPUs; None where nothing was measured."""
    columns: list[list[float]] = [[] for _ in range(width)]
    for node, device in moment.devices:
        at = moment.now - node.clock_offset_s
        window = node.window("device", device.key, "busy_percent", at, moment.span_s, width)
        for column, bucket in zip(columns, window):
            if bucket is not None:
                column.append(bucket.mean)
    return [sum(column) / len(column) if column else None for column in columns]


# -- those that are not measured


def _waits(job: Job) -> str:
    return reason_text(job.reason) or "waits"


def _alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """Tasks that wait for the same, or ended in the same way."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        why = job.reason if job.is_pending else state_text(job)
        groups.setdefault((job.state, why), []).append(job)
    return list(groups.values())


def _group(jobs: list[Job]) -> TaskRow:
    first = jobs[0]
    count = sum(task_count(job.array_task) for job in jobs)
    single = [job.array_task for job in jobs if job.array_task.isdecimal()]
    several = [clean(job.array_task, 60) for job in jobs if not job.array_task.isdecimal()]
    task = ",".join(filter(None, [ids.ranges(single), *several]))
    if first.is_pending:
        return TaskRow(first, task, count, "", _waits(first), 0.0)
    return TaskRow(first, task, count, *_outcome(first), 0.0)


# -- order

SORTS = ("worst", "task", "busy", "elapsed", "memory")
_STATES: tuple[Callable[[Job], bool], ...] = (
    lambda job: job.is_running, lambda job: job.is_pending, lambda job: True,
)  # fmt: skip


def in_order(rows: list[TaskRow], sort: str, *, reverse: bool) -> list[TaskRow]:
    """By one of SORTS: the worst or the largest first; what is not known comes last."""
    if sort == "worst":
        rows = sorted(rows, key=_badness)
    elif sort == "task":
        rows = sorted(rows, key=lambda row: task_order(row.job))
    else:
        known = [row for row in rows if _figure(row, sort) is not None]
        known.sort(key=lambda row: _figure(row, sort) or 0.0, reverse=not reverse)
        return known + [row for row in rows if _figure(row, sort) is None]
    return rows[::-1] if reverse else rows


def _badness(row: TaskRow) -> tuple[int, float, int]:
    state = next(place for place, holds in enumerate(_STATES) if holds(row.job))
    return _LEVELS.index(row.level), -row.waste_gpu_hours, state


def _figure(row: TaskRow, sort: str) -> float | None:
    if sort == "elapsed":
        return row.job.elapsed_s
    if row.measured is None:
        return None
    return row.measured.busy.used if sort == "busy" else row.measured.mem.share
