"""Where a report's facts come from: a recording, jobstats' summary, accounting, a saved dump."""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from gpumon.analysis.accounting import used
from gpumon.analysis.evidence import Queue
from gpumon.analysis.finding import Recommendation
from gpumon.analysis.gather_run import RunGathering
from gpumon.analysis.run_summary import run_summary
from gpumon.analysis.summary import RunSummary
from gpumon.cli.recorded import Stream, evidence_of, open_run
from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.model.lines import word
from gpumon.model.text import clean
from gpumon.recording import SUFFIX, Run, UnclearError, find_runs, resolve
from gpumon.report.arrays import build_array
from gpumon.report.build import build, from_accounting
from gpumon.report.model import Attempt, Report
from gpumon.site.read import load_site
from gpumon.slurm import ids
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.runner import LocalRunner, NoSlurmError, Runner, SlurmError
from gpumon.slurm.sinfo import supply

_TAIL_BYTES = 16384
#: recordings of an array's tasks are read up to so many; each takes up to a second
_MAX_RUNS = 64


def make_reports(args: argparse.Namespace) -> tuple[list[Report], list[str]]:
    """The reports that the command line asks for, and what to say beside them, in sentences.

    Raises GpumonError, UsageError, NotFoundError.
    """
    _check(args)
    with uncollected():
        return _made(args)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's collector of cycles: tens of thousands of jobs stay in memory and form
    none, and to look through them again and again costs an eighth of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _made(args: argparse.Namespace) -> tuple[list[Report], list[str]]:
    maker = _Maker(args)
    if args.recording:
        return [maker.of_recording(args.recording, args.runs[0])], maker.notes
    if args.from_sacct:
        return maker.of_dump(args.from_sacct, args.runs), maker.notes
    if args.user or args.since or args.until:
        return maker.of_window(), maker.notes
    runs = args.runs or [_own_job()]
    return [report for run in runs for report in maker.of_run(run)], maker.notes


def _check(args: argparse.Namespace) -> None:
    paths = [run for run in args.runs if _is_path(run)]
    if args.recording and args.from_sacct:
        raise UsageError("give --recording or --from-sacct, not both")
    if args.recording and (len(args.runs) != 1 or paths):
        raise UsageError("--recording needs its one JOBID; 'gpumon report FILE' needs none")
    window = args.user or args.since or args.until
    if window and (args.runs or args.recording or args.from_sacct):
        raise UsageError("--user, --since and --until choose jobs; name no JOBID or file with them")
    if paths and args.from_sacct:
        raise UsageError("with --from-sacct name only JOBIDs")
    if paths and args.diff:
        raise UsageError("a recording holds no script; for --diff give JOBID --recording FILE")


def _is_path(run: str) -> bool:
    """Whether a word names a recording. A job's id does not, not even beside a file of its name.

    Raises UsageError where it is neither.
    """
    if os.sep in run or run.endswith(SUFFIX):
        return True
    try:
        ids.parse(run)
    except UsageError as error:
        if os.path.exists(run):
            return True
        raise UsageError(f"{error}; nor is it a file") from None
    return False


def _own_job() -> str:
    """The job around us."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
    if not job:
        raise UsageError("name a JOBID, or --user and --since; 'gpumon runs' lists the recordings")
    return job


def script_diff(args: argparse.Namespace, report: Report) -> str:
    """The job's own script (else its submit line) with the recommended lines, as a diff.

    The bytes of the script, for `patch`: clean them before a terminal shows them. Of a saved dump
    only the submit line: a job with this number here may be another one. Raises GpumonError where
    neither is to be had.
    """
    from gpumon.analysis.directives import apply_to_submit_line, diff

    changes: Sequence[Recommendation] = report.recommendations
    line, id = clean(report.job.submit_line), report.job.id or report.job.raw_id
    try:
        if args.from_sacct:
            raise NotFoundError(f"the dump holds no line that submitted job {id}; save SubmitLine")
        script = Slurm(runner_for(args.login)).batch_script(id)
    except GpumonError:
        if not line:
            raise
        changed = apply_to_submit_line(line, changes)
        return f"-{line}\n+{changed}\n" if changed != line else ""
    return diff(script, changes, f"job-{word('job', id) or 'script'}.sh")


def runner_for(login: str | None) -> Runner:
    """Runs Slurm's commands here, or on the login host over ssh."""
    if login is None:
        return LocalRunner()
    from gpumon.cli.prompting import Prompting
    from gpumon.sources.ways import Ways, here

    return Ways(Prompting(), here(os.environ), login=login).on_login


class _Maker:
    """What all reports of one call share: the site, Slurm's answers, the list of recordings."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.notes: list[str] = []
        self._args = args
        self._site = load_site()
        self._slurm = Slurm(runner_for(args.login))
        self._runs: dict[str, Run] | None = None

    # -- one job

    def of_run(self, run: str) -> list[Report]:
        """Of a job by its id, or of a recording or a folder of them by its path."""
        return [self.of_recording(run)] if _is_path(run) else self.of_job(run)

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
        return [self._of_known(job) for job in jobs]

    def _unknown(self, name: str, error: GpumonError) -> Report:
        """Slurm does not know it, but perhaps we recorded it."""
        try:
            run = resolve(name)
        except NotFoundError:
            if isinstance(error, NoSlurmError):
                raise NoSlurmError(f"{error}; and no recording of job {name} is here") from error
            raise error from None
        self.notes.append(f"{error}; the recording alone is used")
        return self._of_streams(open_run(run.paths[0] if len(run.paths) == 1 else name), None)

    def _parts(self, id: ids.JobId) -> list[Job]:
        """All that goes by this id: tasks of an array, components of a het job."""
        try:
            return self._slurm.jobs([id.whole])
        except SlurmError:
            return self._slurm.live(id.whole)

    def _of_known(self, job: Job) -> Report:
        runs = self._attempts(job)
        try:
            run = resolve(job.id or job.raw_id) if not job.is_pending else None
        except UnclearError as error:
            self.notes.append(f"{error}; only Slurm's accounting is used")
            run = None
        except NotFoundError:
            run = None
        if run is not None and (not run.cluster or run.cluster in (job.cluster, "local")):
            streams = open_run(job.id or job.raw_id)
            return replace(self._of_streams(streams, job, runs), attempts=_attempts(runs))
        if job.is_running:
            job = self._slurm.with_usage(job)
        return self._accounted(job, runs)

    def _accounted(self, job: Job, runs: Sequence[Job]) -> Report:
        """By what Slurm says alone; `runs`: its attempts, where it was requeued."""
        evidence = from_accounting(job, self._site, siblings=runs)
        return replace(build(evidence), attempts=_attempts(runs))

    def _of_streams(
        self, streams: Sequence[Stream], job: Job | None, siblings: Sequence[Job] = ()
    ) -> Report:
        gathering = RunGathering()
        for stream in streams:
            for item in stream.gathered:
                gathering.add(stream.node, item)
        self._note_problems(streams)
        self.notes += gathering.left_out()
        live = job is not None and job.is_running
        tail = _log_tail(job) if job else ""
        evidence = gathering.evidence(
            job, self._site, live=live, log_tail=tail, siblings=siblings, shared=True
        )
        evidence.coverage.source = "recording"  # of a running job too
        if job is not None and any(gpu.gres for gpu in self._site.gpus):
            evidence.queue = self._queue()
        return build(evidence)

    def _note_problems(self, streams: Sequence[Stream]) -> None:
        """Of streams that were read."""
        self.notes += [f"{s.node}: {said}" for s in streams for said in s.problems]

    def _queue(self) -> Queue | None:
        """Which GPUs are idle and waited for now; None where Slurm does not say."""
        try:
            idle = supply(self._slurm.nodes())
            pending = self._slurm.queue(states=("PENDING",))
        except SlurmError:
            return None
        waiting = Counter(
            f"gpu:{kind}" for job in pending for kind in job.requested.resources.gpu_types
        )
        return Queue(time.time(), waiting, {f"gpu:{kind}": it.idle for kind, it in idle.items()})

    def _attempts(self, job: Job) -> list[Job]:
        """Of a job that was requeued, each run by itself."""
        if not job.restarts:
            return []
        try:
            runs = self._slurm.jobs([job.id or job.raw_id], duplicates=True)
        except SlurmError:
            return []
        return runs if len(runs) > 1 else []

    # -- recordings and dumps

    def of_recording(self, path: str, job: str = "") -> Report:
        """A recording alone, or with what Slurm says of `job`, whose it is."""
        streams = open_run(path)
        jobs = {each.header.job for stream in streams for each in stream.recordings}
        if len({context.id for context in jobs if context is not None}) > 1:
            raise UsageError(f"{clean(path, 200)} holds several jobs; name the folder of one")
        told = self._told(job) if job else None
        report = self._of_streams(streams, told)
        if job.isdecimal() and told is None and report.job.raw_id not in ("", job):
            self.notes.append(f"the recording is of job {report.job.raw_id}, not of {job}")
        return report

    def _told(self, job: str) -> Job | None:
        try:
            return self._slurm.job(job)
        except GpumonError as error:
            self.notes.append(f"{error}; the recording alone is used")
            return None

    def of_dump(self, path: str, names: Sequence[str]) -> list[Report]:
        """From a file alone: nothing else is asked."""
        from gpumon.slurm import saved

        jobs = saved.read(path)
        if names:
            wanted = [ids.parse(name) for name in names]
            jobs = [job for job in jobs if any(_is(job, id) for id in wanted)]
        if not jobs:
            raise NotFoundError(f"{clean(path, 200)} holds none of these jobs")
        return self._of_many(jobs, recordings=False)

    # -- many jobs

    def of_window(self) -> list[Report]:
        """A user's jobs, or everybody's who may be seen, in a window of time; one call."""
        args = self._args
        jobs = self._slurm.jobs(
            user=args.user or "", since=args.since or "", until=args.until or ""
        )
        if not jobs:
            whose = f" of {clean(args.user, 40)}" if args.user else ""
            raise NotFoundError(f"Slurm shows no jobs{whose} in that time; widen --since")
        return self._of_many(jobs, recordings=True)

    def _of_many(self, jobs: Iterable[Job], *, recordings: bool) -> list[Report]:
        arrays: dict[str, list[Job]] = defaultdict(list)
        reports = []
        for job, runs in _with_attempts(jobs):
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
            self.notes.append(f"of {len(found)} recorded tasks the first {_MAX_RUNS} are read")
        return {job.raw_id: self._summary(run) for job, run in found[:_MAX_RUNS]}

    def _summary(self, run: Run) -> RunSummary:
        streams = open_run(os.path.dirname(run.paths[0]))
        summary = run_summary(evidence_of(streams))
        self._note_problems(streams)
        return summary


def _is(job: Job, id: ids.JobId) -> bool:
    return id.whole in (job.id, job.raw_id, job.array_job_id, job.het_job_id)


def _with_attempts(jobs: Iterable[Job]) -> Iterator[tuple[Job, Sequence[Job]]]:
    """Each job once, its last attempt, with all of them where there are several."""
    runs: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        runs[(job.cluster, job.raw_id or job.id)].append(job)
    for attempts in runs.values():
        attempts.sort(key=lambda job: job.submit or job.start or 0.0)
        yield attempts[-1], attempts if len(attempts) > 1 else ()


def _attempts(runs: Sequence[Job]) -> tuple[Attempt, ...]:
    return tuple(_attempt(n, run) for n, run in enumerate(runs, 1))


def _attempt(number: int, run: Job) -> Attempt:
    known = used(run)
    end = run.end if run.has_ended or run.state == "REQUEUED" else None
    return Attempt(
        str(number),
        run.start,
        end,
        run.state,
        note=_why(run),
        mem_peak_bytes=known.mem_bytes,
        gpu_busy_percent=known.gpu_busy_percent,
    )


def _why(run: Job) -> str:
    return f"failed node {run.failed_node}" if run.failed_node else ""


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
