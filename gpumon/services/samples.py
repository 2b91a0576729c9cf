"""One sample of each node of a job, or of the tasks of an array, where there is no dashboard."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import EXIT_FAILED, EXIT_OK, GpumonError
from gpumon.export.sample_json import sample_json
from gpumon.export.sample_text import sample_text
from gpumon.model import clock
from gpumon.model.reading import NOT_SAMPLED, Reading, number
from gpumon.model.sample import Header, Sample
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural
from gpumon.model.view import Status
from gpumon.pipeline.array import to_follow
from gpumon.report.render.layout import aligned
from gpumon.report.usage import NO_GPUS, Figures, Use, size_text, together, unknown
from gpumon.services.figures import sampled
from gpumon.services.jobs import waiting_text
from gpumon.services.once import merged
from gpumon.slurm.parts import parts_of
from gpumon.sources.watched import WatchedJob
from gpumon.transport.fallback import why_not as refusals

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.slurm.job import Job
    from gpumon.transport.available import AvailableTransports

#: a node that has sent nothing by then is reported as such
WAIT_S = 60.0
#: s; a shorter time says nothing about the cores that a job uses
_WINDOW_S = 1.0
#: s; a driver that is slow to begin on a busy node is waited for so long
_DRIVER_S = 5.0


_HEADINGS = ("TASK", "STATE", "NODES", "ELAPSED", "LEFT", "GPUS", "BUSY", "GPU MEMORY", "CORES",
             "MEMORY")  # fmt: skip
_RIGHT = range(3, len(_HEADINGS))


class Samples:
    """A sink that keeps of each node what its first samples tell: rates need two, and a second
    between them.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self.headers: dict[str, Header] = {}
        self.samples: dict[str, Sample] = {}
        self.windows_s: dict[str, float] = {}  # between the samples that rates are from
        self.statuses: dict[str, Status] = {}
        self._open = set(nodes)
        self._news = threading.Condition()

    def header(self, node: str, header: Header) -> None:
        self.headers[node] = header

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._news:
            first = self.samples.get(node)
            if first is None:
                self.samples[node] = sample
            elif node in self._open:
                events = [*first.events, *sample.events]
                window_s = sample.mono - first.mono
                if window_s < (_DRIVER_S if self._lacks_gpus(node) else _WINDOW_S):
                    self.samples[node] = first._replace(events=events)
                    return
                cpu = _cpu(first, sample)
                rows = merged(first.rows, sample.rows)
                if cpu:
                    rows["job"][""].update(cpu)
                self.samples[node] = sample._replace(rows=rows, events=events)
                self.windows_s[node] = window_s
                self._open.discard(node)
                self._news.notify_all()

    def _lacks_gpus(self, node: str) -> bool:
        """Whether none of the job's GPUs was seen on the node so far."""
        header = self.headers.get(node)
        job = header.job if header is not None else None
        return header is not None and job is not None and bool(job.gpus) and not header.devices

    def status(self, node: str, status: Status) -> None:
        with self._news:
            self.statuses[node] = status
            if status.state in ("lost", "ended"):
                self._open.discard(node)
            self._news.notify_all()

    def json(self, node: str) -> str:
        """The sample of a node as a line of JSON."""
        window_s = self.windows_s.get(node)
        return json.dumps(sample_json(self.headers[node], self.samples[node], window_s))

    def reset(self) -> None:
        """Nothing is played here."""

    def wait(self, timeout_s: float) -> None:
        """Until every node has sent something or was lost."""
        until = time.monotonic() + timeout_s
        with self._news:
            while self._open and time.monotonic() < until:
                self._news.wait(min(1.0, until - time.monotonic()))  # so that Ctrl-C comes through


def _cpu(first: Sample, last: Sample) -> dict[str, Reading]:
    """CPU time of the job, and cores from one sample to the other; empty where not known."""
    before, after = (
        number(sample.rows.get("job", {}).get("", {}).get("cpu_s", NOT_SAMPLED))
        for sample in (first, last)
    )
    if before is None or after is None or after < before:
        return {}
    return {"cpu_s": after, "cpu_cores_used": (after - before) / (last.mono - first.mono)}


class _Asked(NamedTuple):
    """A job or task whose nodes are asked."""

    source: WatchedJob
    nodes: list[str]
    samples: Samples
    task: str = ""  # its id

    @property
    def told(self) -> list[str]:
        return [node for node in self.nodes if node in self.samples.samples]

    @property
    def said(self) -> list[tuple[Header, Sample]]:
        return [(self.samples.headers[node], self.samples.samples[node]) for node in self.told]

    def figures(self) -> Figures:
        """Of all nodes together."""
        silent = [unknown("no answer", node) for node in self.nodes if node not in self.told]
        return together([*(sampled(header, [sample]) for header, sample in self.said), *silent])


def print_samples(source: WatchedJob, only: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Print a sample of each node (those in `only`), and why there is none; 1 where that is any.

    As JSON a line each. Returns the exit code.
    """
    asked = _asked(source, only)
    _ask([asked])
    for place, (header, sample) in enumerate(asked.said):
        if as_json:
            print(asked.samples.json(asked.told[place]))
        else:
            print("\n" * bool(place) + sample_text(header, sample))
    return _complain([asked])


def print_tasks(
    jobs: Sequence[Job], available: AvailableTransports, settings: Settings, *, as_json: bool
) -> int:
    """Print what is known of each task, as JSON the samples of each node of each running one.

    Returns the exit code: 1 where a node sent nothing. Raises GpumonError where there is no sample
    to print as JSON.
    """
    if as_json and not any(job.is_running for job in jobs):
        raise GpumonError(waiting_text(jobs[0]))
    available.is_shared = True
    try:
        asked = [_task(job, available, settings) for job in to_follow(jobs, ())]
        _ask(asked)
    finally:
        available.close()
    if as_json:
        for each in asked:
            for node in each.told:
                print(each.samples.json(node))
    else:
        told = {each.task: each.figures() for each in asked if each.told}
        lines = [_line(job, told.get(job.id)) for job in jobs]
        print("\n".join(aligned([_HEADINGS, *lines], _RIGHT)))
    left_out = sum(job.is_running for job in jobs) - len(asked)
    if left_out:
        print(f"gpumon: {plural(left_out, 'running task')} not measured", file=sys.stderr)
    return _complain(asked)


def _asked(source: WatchedJob, only: Sequence[str] = (), task: str = "") -> _Asked:
    nodes = [part.name for part in parts_of(source.jobs(), only)]
    return _Asked(source, nodes, Samples(nodes), task)


def _task(job: Job, available: AvailableTransports, settings: Settings) -> _Asked:
    source = WatchedJob([job], lambda soon: [job], available.for_jobs, settings.interval_s)
    return _asked(source, task=job.id)


def _ask(asked: Sequence[_Asked]) -> None:
    for each in asked:
        each.source.start(each.samples)
    until = time.monotonic() + WAIT_S
    try:
        for each in asked:
            each.samples.wait(until - time.monotonic())
    finally:
        for each in asked:
            each.source.stop()


def _complain(asked: Iterable[_Asked]) -> int:
    """Print why nodes sent nothing; returns the exit code, 1 where any did not."""
    failed = [(each, node) for each in asked for node in each.nodes if node not in each.told]
    for each, node in failed:
        status = each.samples.statuses.get(node)
        why = refusals(each.source.attempts(node)) or (status.detail if status else "")
        task = f"{clean(each.task, 40)}: " if each.task else ""
        print(f"gpumon: {task}{node}: {why or 'no answer'}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK


def _line(job: Job, figures: Figures | None) -> tuple[str, ...]:
    elapsed_s = None if job.is_pending else job.elapsed_at(clock.now())
    left_s = None if elapsed_s is None or not job.time_limit_s else job.time_limit_s - elapsed_s
    where = clean(job.reason if job.is_pending else job.node_list, 60)
    return (
        clean(job.id, 60),
        clean(job.state, 40),
        where,
        "" if elapsed_s is None else age_text(elapsed_s),
        "" if left_s is None else age_text(left_s),
        "" if job.gpus is None else f"{job.gpus}",
        *(_figures(job, figures) if figures is not None else ("",) * 4),
    )


def _figures(job: Job, figures: Figures) -> tuple[str, str, str, str]:
    """Busy, GPU memory, cores and memory; "?" where one is not known."""
    cores = figures.cores
    given = f" / {job.allocated.cpus}" if job.allocated.cpus else ""
    return (
        _shown(figures.busy, lambda value: f"{value:.0f} %"),
        _shown(figures.gpu_mem, lambda value: size_text(value, figures.gpu_mem.given)),
        _shown(cores, lambda value: f"{value:.1f}{given}"),
        _shown(figures.mem, lambda value: size_text(value, figures.mem.given)),
    )


def _shown(use: Use, text: Callable[[float], str]) -> str:
    if use.used is not None:
        return text(use.used)
    return "" if use.why == NO_GPUS else "?"
