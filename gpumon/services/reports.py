"""Where a report's facts come from: a recording, jobstats' summary, accounting, a saved dump."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.last_error import without_own_steps
from gpumon.analysis.run import Run as GatheredRun
from gpumon.analysis.rundata import Part, Queue, RunData
from gpumon.analysis.summary import RunSummary, run_summary
from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.model.lines import word
from gpumon.model.sample import JobContext
from gpumon.model.text import clean
from gpumon.recording.runs import Run, UnclearError, find_runs, resolve
from gpumon.report.arrays import build_array
from gpumon.report.build import attempts, build, from_accounting, numbered, with_attempts
from gpumon.report.model import Report
from gpumon.services.asking import shared_slurm
from gpumon.services.jobs import check_step
from gpumon.services.joining import joined, lacks_much
from gpumon.services.prometheus import Found, Measured
from gpumon.services.request import Request, is_path, own_job
from gpumon.services.runs import Stream, open_attempts, open_last, run_of
from gpumon.services.this_site import this_site
from gpumon.slurm import ids
from gpumon.slurm.job import Job, Step
from gpumon.slurm.records import Unread
from gpumon.slurm.runner import LocalRunner, NoSlurmError, Runner, SlurmError

_TAIL_BYTES = 16384
#: of more jobs than these only means and maxima are asked of Prometheus
_FEW_JOBS = 20
#: recordings of an array's tasks are read up to so many; each takes up to a second
_MAX_RUNS = 64
#: attempts of a requeued job whose recordings are read, the newest
_MAX_ATTEMPTS = 16


class Made(NamedTuple):
    """The reports requested on the command line, and notes on them."""

    reports: list[Report]
    notes: list[str]
    missing: list[str]  # of several jobs, those that were not found


def make_reports(request: Request) -> Made:
    """Raises GpumonError, UsageError, NotFoundError."""
    request.check()
    maker = _Maker(request)
    if request.recording:
        reports = [maker.of_recording(request.recording, request.runs[0])]
    elif request.from_sacct:
        reports = maker.of_dump(request.from_sacct, request.runs)
    elif request.is_window:
        reports = maker.of_window()
    else:
        reports = maker.of_runs(request.runs or [own_job()])
    if maker.unread.count:
        maker.notes.append(str(maker.unread))
        noted = str(maker.unread)
        reports = [replace(each, notes=(*each.notes, noted)) for each in reports]
    return Made(reports, maker.notes, maker.missing)


def script_diff(request: Request, report: Report) -> str:
    """The job's own script (else its submit line) with the recommended lines, as a diff.

    Before it stand the submit line's options that have to change: they win over the script's, and
    `patch` skips them. The bytes of the script, for `patch`: clean them before a terminal shows
    them. Of a saved dump only the submit line: a job with this number here may be another one.
    Raises GpumonError where neither is to be had.
    """
    from gpumon.analysis.rightsize.directives import apply_to_submit_line, diff, overridden

    changes = [each.change for each in report.recommendations]
    line, id = clean(report.job.submit_line), report.job.id or report.job.raw_id
    try:
        if request.from_sacct:
            raise NotFoundError(
                f"the dump has no submit line of job {id}; include the field SubmitLine"
            )
        script = shared_slurm(runner_for(request.login), request.login).batch_script(id)
    except GpumonError:
        if not line:
            raise
        return _line_diff(line, apply_to_submit_line(line, changes))
    submitted = overridden(line, changes)
    own = [each for each in changes if each not in submitted]
    return _line_diff(line, apply_to_submit_line(line, submitted)) + diff(
        script, own, f"job-{word('job', id) or 'script'}.sh"
    )


def _line_diff(line: str, changed: str) -> str:
    return f"-{line}\n+{changed}\n" if changed != line else ""


def runner_for(login: str | None) -> Runner:
    """Runs Slurm's commands here, or on the login host over ssh."""
    if login is None:
        return LocalRunner()
    from gpumon.services.prompting import Prompting
    from gpumon.transport.available import AvailableTransports, here

    return AvailableTransports(Prompting(), here(os.environ), login=login).on_login


class _Maker:
    """What all reports of one call share: the site, Slurm's answers, the list of recordings."""

    def __init__(self, request: Request) -> None:
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.unread = Unread()  # rows of the accounting
        self._request = request
        self._site = this_site()
        self._slurm = shared_slurm(runner_for(request.login), request.login)
        self._runs: dict[str, Run] | None = None
        self._is_few = True  # jobs: the samples of each are read
        # of a dump, which may be from elsewhere, only the server that the user names
        is_here = not request.from_sacct or bool(request.prometheus)
        self._measured = Measured(self._site, request.prometheus) if is_here else None

    # -- one job

    def of_runs(self, runs: Sequence[str]) -> list[Report]:
        """Of several, as far as they are found. Raises GpumonError where none is."""
        reports: list[Report] = []
        for run in runs:
            try:
                reports += self.of_run(run)
            except NotFoundError as error:
                if len(runs) == 1:
                    raise
                self.missing.append(str(error))
        if not reports:
            raise NotFoundError("; ".join(self.missing))
        return reports

    def of_run(self, run: str) -> list[Report]:
        """Of a job by its id, or of a recording or a folder of them by its path."""
        return [self.of_recording(run)] if is_path(run) else self.of_job(run)

    def of_job(self, name: str) -> list[Report]:
        """By its id: Slurm's facts, with its recording where there is one.

        One report; of a het job that is named as a whole one for each component.
        """
        id = ids.parse(name)
        try:
            parts = [] if id.task or id.het else self._parts(id)
            tasks = [job for job in parts if job.array_job_id == id.job]
            if len(tasks) > 1:
                return [build_array(tasks, self._site, self._recorded_tasks(tasks))]
            components = [job.id for job in parts if job.het_job_id == id.job]
            jobs = [self._slurm.job(each) for each in components or [id.whole]]
        except (SlurmError, NotFoundError) as error:
            return [self._unknown(id.whole, error)]
        check_step(self._slurm, id, jobs)
        return [self._of_known(job) for job in jobs]

    def _unknown(self, name: str, error: GpumonError) -> Report:
        """Slurm does not know it, but perhaps we recorded it."""
        try:
            run = resolve(name)
        except NotFoundError:
            if isinstance(error, NoSlurmError):
                raise NoSlurmError(
                    f"{error}; there is no recording of job {name} either"
                ) from error
            raise error from None
        self.notes.append(f"{error}; using only the recording")
        where = run.paths[0] if len(run.paths) == 1 else name
        return self._of_attempts(open_attempts(where), None, {})

    def _parts(self, id: ids.JobId) -> list[Job]:
        """All that goes by this id: tasks of an array, components of a het job."""
        try:
            jobs, unread = self._slurm.accounted([id.whole])
        except SlurmError:
            return self._slurm.live(id.whole)
        self.unread.join(unread)
        return jobs

    def _of_known(self, job: Job) -> Report:
        runs = self._attempts(job) if job.restarts else {}
        recorded = self._recorded(job, runs)
        if not runs and max(recorded, default=0) > 0:  # older releases do not count restarts
            runs = self._attempts(job)
        return self._of_attempts(recorded, job, runs)

    def _recorded(self, job: Job, runs: Mapping[int, Job]) -> dict[int, list[Stream]]:
        """The recordings of each attempt of a job."""
        name = job.id or job.raw_id
        try:
            run = resolve(name)
        except UnclearError as error:
            self.notes.append(f"{error}; using only Slurm's accounting")
            return {}
        except NotFoundError:
            return {}
        if run.cluster and run.cluster not in (job.cluster, "local"):
            return {}
        known = runs or ({job.restarts: job} if job.restarts is not None else {})
        starts = {n: each.start for n, each in known.items() if each.start is not None}
        return open_attempts(name, starts)

    def _of_attempts(
        self,
        recorded: Mapping[int, list[Stream]],
        job: Job | None,
        runs: Mapping[int, Job],
        last: int | None = None,
    ) -> Report:
        """Of one attempt, by default the last that Slurm or recordings show; a line for each."""
        if last is None:
            last = max([*recorded, *runs, (job.restarts or 0) if job is not None else 0])
        earlier = {
            n: self._of_streams(streams, None)
            for n, streams in list(recorded.items())[-_MAX_ATTEMPTS:]
            if n < last
        }
        siblings = list(runs.values())
        if last in recorded and (job is None or not job.is_pending):
            report = self._of_streams(recorded[last], job, siblings)
        elif job is not None:
            report = self._of_server(job, siblings)
        return replace(report, attempts=attempts(runs, {**earlier, last: report}))

    def _of_server(self, job: Job, siblings: Sequence[Job]) -> Report:
        """From Prometheus where a server has samples of it, else from Slurm alone."""
        found = self._measured.streams(job) if self._measured is not None else Found()
        if found.streams:
            return self._of_streams(found.streams, job, siblings, found)
        if job.is_running and not self._request.from_sacct:
            job = self._slurm.with_usage(job)
        run = from_accounting(job, self._site, siblings=siblings)
        return build(found.noted(run))

    def _accounted(self, job: Job, runs: Sequence[Job]) -> Report:
        """Without a recording; `runs`: its attempts if it was requeued."""
        if self._is_few:
            report = self._of_server(job, runs)
        else:
            report = build(from_accounting(job, self._site, siblings=runs))
        return replace(report, attempts=attempts(numbered(runs), {})) if runs else report

    def _of_streams(
        self,
        streams: Sequence[Stream],
        job: Job | None,
        siblings: Sequence[Job] = (),
        server: Found | None = None,
    ) -> Report:
        gathered = run_of(streams)
        self._note_problems(streams)
        if job is not None:
            job = job.with_own_steps(_own_steps(streams))
            self.notes += [_killed(each) for each in job.steps if each.is_own and each.is_cut_short]
        run = self._data(gathered, job, siblings)
        if server is not None:
            run = server.noted(run)
        elif job is not None and lacks_much(run):
            run, gathered = self._filled(run, gathered, streams, job, siblings)
        self.notes += gathered.left_out()
        run.coverage.source = "recording" if server is None else "prometheus"  # if it runs, too
        if job is not None and any(gpu.gres for gpu in self._site.gpus):
            run.queue = self._queue()
        return build(run)

    def _data(self, gathered: GatheredRun, job: Job | None, siblings: Sequence[Job]) -> RunData:
        live = job is not None and job.is_running
        tail = without_own_steps(_log_tail(job), job) if job else ""
        return gathered.data(
            job, self._site, live=live, log_tail=tail, siblings=siblings, shared=True
        )

    def _filled(
        self, run: RunData, gathered: GatheredRun, streams: Sequence[Stream], job: Job,
        siblings: Sequence[Job],
    ) -> tuple[RunData, GatheredRun]:  # fmt: skip
        """The recorded run with what the server has of the time and the nodes that it lacks."""
        # a recording that the user names is reported alone
        is_asked = self._is_few and (not self._request.recording or self._request.prometheus)
        found = self._measured.streams(job) if self._measured is not None and is_asked else Found()
        if not found.streams:
            return found.noted(run), gathered
        both = joined(streams, found.streams, len(job.nodes))
        whole = found.noted(self._data(both, job, siblings))
        more = whole.coverage.covered_percent - run.coverage.covered_percent
        if more <= 0:  # its scrapes are of the time that was recorded
            return found.noted(run), gathered
        recorded_s = run.coverage.interval_s or 0.0
        whole.coverage.interval_s = max(recorded_s, found.interval_s)
        whole.coverage.parts = (
            Part("recording", recorded_s, run.coverage.covered_percent),
            Part("prometheus", found.interval_s, more),
        )
        return whole, both

    def _note_problems(self, streams: Sequence[Stream]) -> None:
        """Of streams that were read."""
        self.notes += [f"{s.node}: {said}" for s in streams for said in s.problems]

    def _queue(self) -> Queue | None:
        """Which GPUs are idle and waited for now; None where Slurm does not say."""
        try:
            idle = self._slurm.idle_gpus()
            pending = self._slurm.queue(states=("PENDING",))
        except SlurmError:
            return None
        waiting = Counter(
            f"gpu:{kind}" for job in pending for kind in job.requested.resources.gpu_types
        )
        return Queue(time.time(), waiting, {f"gpu:{kind}": count for kind, count in idle.items()})

    def _attempts(self, job: Job) -> dict[int, Job]:
        """Of a job that was requeued, each run by itself, by the number of restarts before it."""
        try:
            runs = self._slurm.jobs([job.id or job.raw_id], duplicates=True)
        except SlurmError:
            return {}
        return numbered(runs) if len(runs) > 1 else {}

    # -- recordings and dumps

    def of_recording(self, path: str, job: str = "") -> Report:
        """A recording alone, or combined with Slurm's facts of its `job`."""
        recorded = open_attempts(path)
        streams = [stream for attempt in recorded.values() for stream in attempt]
        every = (each.header.job for stream in streams for each in stream.recordings)
        contexts = {context for context in every if context is not None}
        if len({context.id for context in contexts}) > 1:
            raise UsageError(f"{clean(path, 200)} contains several jobs; name the folder of one")
        told = self._told(job) if job else None
        if job and contexts and not _is_of(contexts, job, told):
            held = clean(f"{path} is a recording of job {contexts.pop().id}", 300)
            raise UsageError(f"{held}, not of {job}")
        return self._of_attempts(recorded, told, {}, max(recorded))

    def _told(self, job: str) -> Job | None:
        try:
            return self._slurm.job(job)
        except GpumonError as error:
            self.notes.append(f"{error}; using only the recording")
            return None

    def of_dump(self, path: str, names: Sequence[str]) -> list[Report]:
        """From a file alone: no other source is used."""
        from gpumon.slurm import saved

        jobs = saved.read(path, unread=self.unread)
        if names:
            wanted = {name: ids.parse(name) for name in names}
            held = [name for name, id in wanted.items() if any(_is(job, id) for job in jobs)]
            where = clean(path, 200)
            self.missing = [f"{where} holds no job {name}" for name in names if name not in held]
            jobs = [job for job in jobs if any(_is(job, wanted[name]) for name in held)]
        if not jobs:
            raise NotFoundError(f"{clean(path, 200)} contains none of these jobs")
        return self._of_many(jobs, recordings=False)

    # -- many jobs

    def of_window(self) -> list[Report]:
        """A user's jobs, or all visible ones, in a window of time; one call."""
        request = self._request
        jobs, unread = self._slurm.accounted(
            user=request.user or "", since=request.since or "", until=request.until or ""
        )
        self.unread.join(unread)
        if not jobs:
            whose = f" of {clean(request.user, 40)}" if request.user else ""
            raise NotFoundError(f"no jobs{whose} found in that period; widen --since")
        return self._of_many(jobs, recordings=True)

    def _of_many(self, jobs: Iterable[Job], *, recordings: bool) -> list[Report]:
        jobs = list(jobs)
        self._is_few = self._measured is not None and len(jobs) <= _FEW_JOBS
        if self._measured is not None and not self._is_few:
            jobs, why = self._measured.summarized(jobs)
            self.notes += [why] if why else []
        arrays: dict[str, list[Job]] = defaultdict(list)
        reports = []
        for job, runs in with_attempts(jobs):
            if job.array_job_id:
                arrays[job.array_job_id].append(job)
            else:
                reports.append(self._of_one(job, runs, recordings=recordings))
        for tasks in arrays.values():
            if len(tasks) > 1:
                recorded = self._recorded_tasks(tasks) if recordings else {}
                reports.append(build_array(tasks, self._site, recorded))
            else:
                reports.append(self._of_one(tasks[0], (), recordings=recordings))
        return reports

    def _of_one(self, job: Job, runs: Sequence[Job], *, recordings: bool) -> Report:
        if recordings and self._run_of(job) is not None:
            return self._of_known(job)
        return self._accounted(job, runs)

    def _run_of(self, job: Job) -> Run | None:
        if self._runs is None:
            self._runs = {run.job: run for run in find_runs(self.notes) if run.job}
        run = self._runs.get(job.id) or self._runs.get(job.raw_id)
        return run if run and run.cluster in (job.cluster, "local", "") else None

    def _recorded_tasks(self, tasks: Sequence[Job]) -> dict[str, RunSummary]:
        found = [(job, run) for job in tasks if (run := self._run_of(job))]
        if len(found) > _MAX_RUNS:
            self.notes.append(f"only the first {_MAX_RUNS} of {len(found)} recorded tasks are read")
        return {job.raw_id: self._summary(run) for job, run in found[:_MAX_RUNS]}

    def _summary(self, run: Run) -> RunSummary:
        streams = open_last(os.path.dirname(run.paths[0]))
        summary = run_summary(run_of(streams).data(shared=True))
        self._note_problems(streams)
        return summary


def _is_of(contexts: Iterable[JobContext], name: str, told: Job | None) -> bool:
    """Whether nodes tell of this job: of it, its array or its het job, by any of their names."""
    names = {name, name.partition("_")[0].partition("+")[0]}
    if told is not None:
        names |= {told.id, told.raw_id, told.array_job_id, told.het_job_id, told.sluid}
    own = {n for each in contexts for n in (each.id, each.array, each.array.partition("_")[0])}
    return bool((names & own) - {""})


def _is(job: Job, id: ids.JobId) -> bool:
    return id.whole in (job.id, job.raw_id, job.array_job_id, job.het_job_id)


def _own_steps(streams: Iterable[Stream]) -> set[str]:
    """The steps that their recordings state to be gpumon's alone."""
    contexts = [each.header.job for stream in streams for each in stream.recordings]
    return {context.step for context in contexts if context is not None and context.own_step}


def _killed(step: Step) -> str:
    state = f"{clean(step.state)} {step.exit_code or ''}".rstrip()
    return f"step {clean(step.id)} was gpumon's recorder, not your program; it ended {state}"


def _log_tail(job: Job) -> str:
    """The end of the job's error output, where it is a plain file of our own; else ""."""
    for path in (job.std_err, job.std_out):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except (OSError, ValueError):
            continue
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not os.path.isfile(f"/proc/self/fd/{handle}") or status.st_uid != os.getuid():
                continue
            file.seek(max(0, status.st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
            return "\n".join(clean(line, 500) for line in lines)
    return ""
