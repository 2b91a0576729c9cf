"""One's running and recent jobs, each with what its recording shows: for `gpumon jobs`.

Of jobs that ended without one, the site's Prometheus is asked, where a server is known: once for
all of them, after everything else is shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from gpumon.errors import GpumonError, UsageError
from gpumon.model import clock
from gpumon.recording.runs import Run, find_runs
from gpumon.report.jobs import READING, JobLine, Listing, Verdict, worst_of
from gpumon.report.usage import Figures, together, unknown
from gpumon.services.figures import File, accounted, files_of, measured, newest
from gpumon.services.listed_jobs import ListedJobs
from gpumon.services.prometheus import Measured
from gpumon.site import Site
from gpumon.slurm.client import Slurm
from gpumon.slurm.groups import JobGroup, groups_of
from gpumon.slurm.job import Job
from gpumon.slurm.runner import NoSlurmError

#: as `sacct -S` takes it
SINCE = "now-3days"
#: s; a recording that grows is evaluated anew so often, or after fifty times of what it took
_EVALUATE_S = 300.0
_TIMES_ITS_COST = 50.0
#: jobs whose recordings are read, the newest; each takes up to a second a node-day
MAX_READ = 64
_Key = tuple[str, Optional[float]]
RECORDING = "recording"  # the state of a run to which a recorder writes
#: lines of a listing
MAX_LINES = 1000


@dataclass
class _Kept:
    """What the reading of a job's recordings gave, and which files they were then."""

    files: tuple[File, ...]
    was_live: bool
    at: float
    again_s: float  # after so long, one that grows is evaluated anew
    answer: tuple[Figures, Verdict]
    was_asked: bool = False  # the site's Prometheus

    def is_stale(self, files: tuple[File, ...], now: float, *, is_live: bool) -> bool:
        if self.was_live != is_live or not self.files:
            return self.was_live != is_live or bool(files)
        return self.files != files and (not is_live or now - self.at >= self.again_s)


class JobsOverview:
    """Asks Slurm, reads recordings. Used by one thread."""

    def __init__(
        self, slurm: Slurm, user: str, since: str | None, site: Site,
        now: Callable[[], float] = clock.now,
    ) -> None:  # fmt: skip
        """`since`: how far back, as `sacct -S` takes it; None: three days, and all recordings."""
        self._listed = ListedJobs(slurm, user, since or SINCE, now)
        self._since = since
        self._site = site
        self._now = now
        self._runs: list[Run] = []
        self._runs_at: float | None = None
        self._kept: dict[_Key, _Kept] = {}
        self._server: Measured | None = None
        self._server_trouble = ""

    # -- which jobs

    def look(self) -> Listing:
        """The jobs as Slurm has them now, with figures as far as they are kept.

        Without Slurm these are the recorded jobs. Raises SlurmError, UsageError.
        """
        try:
            jobs = self._listed.look()
        except NoSlurmError:
            note = "Slurm was not found; showing recorded runs"
            return self._listing(self._recorded(set()), [note], "recordings")
        groups = sorted(groups_of(jobs), key=_place)
        if not self._listed.has_accounting:
            groups += self._recorded({id for each in groups for id in _ids(each)})
        notes = [self._listed.trouble, self._listed.unread, self._server_trouble]
        notes = [note for note in notes if note]
        return self._listing(groups, notes, "slurm")

    def _listing(self, groups: Sequence[JobGroup], notes: list[str], source: str) -> Listing:
        if len(groups) > MAX_LINES:
            notes.append(f"{len(groups)} jobs; showing the first {MAX_LINES}: narrow --since")
        shown = groups[:MAX_LINES]
        kept = {_key(job) for each in shown for job in each.jobs}
        self._kept = {key: each for key, each in self._kept.items() if key in kept}
        at = self._listed.told_at or self._now()
        return Listing([self._line(each) for each in shown], at, source, notes)

    def _recorded(self, known: set[str]) -> list[JobGroup]:
        """Recorded runs in the window that Slurm does not list."""
        since = since_epoch(self._since, time.time()) if self._since else None
        if self._since and since is None:
            raise UsageError(
                f"without Slurm's accounting --since takes a date or now-3days, not {self._since!r}"
            )
        if self._runs_at is None or self._now() - self._runs_at >= _EVALUATE_S:
            self._runs, self._runs_at = find_runs(), self._now()  # which opens each file
        runs = [run for run in self._runs if run.job and not {run.job, run.raw_id} & known]
        groups = groups_of(_job_of(run) for run in runs if since is None or run.end >= since)
        return sorted(groups, key=lambda each: -(each.start or 0.0))

    # -- what recordings show of them

    def read(self, listing: Listing) -> Iterator[Listing]:
        """The same listing again and again, each time with the figures of one more job."""
        lines = list(listing.lines)
        left = MAX_READ
        for n, line in enumerate(lines):
            if line.group.is_pending:
                continue
            lines[n] = self._read(line, may_read=left > 0)
            left -= lines[n].is_recorded
            if lines[n] != line:
                yield replace(listing, lines=list(lines))
        answered = self._ask_server([job for line in lines for job in line.group.shown])
        if answered is not None:
            lines = [
                self._line(line.group) if answered & set(map(_key, line.group.shown)) else line
                for line in lines
            ]
            trouble = self._server_trouble
            notes = [*listing.notes, *([trouble] if trouble not in ("", *listing.notes) else ())]
            yield replace(listing, lines=lines, notes=notes)

    def _ask_server(self, jobs: Sequence[Job]) -> set[_Key] | None:
        """Have what the site's server has of jobs that ended without a recording kept, each asked
        once. Gives those it knows; None: none is asked for.
        """
        asked = []
        for job in jobs:
            kept = self._kept.get(_key(job))
            if kept is None or kept.files or kept.was_asked:
                continue
            if job.has_ended and job.sources:  # Slurm knows it
                kept.was_asked = True
                asked.append(job)
        if not asked:
            return None
        try:
            self._server = self._server or Measured(self._site, None, is_quiet=True)
            found, self._server_trouble = self._server.summarized(asked)
        except GpumonError as error:  # the server's address is not a valid one
            found, self._server_trouble = [], str(error)
        known = [job for job in found if job.summary is not None]
        for job in known:
            self._kept[_key(job)].answer = accounted(job, self._site)
        return set(map(_key, known))

    def whole(self) -> Listing:
        """Look, and read everything."""
        listing = self.look()
        for each in self.read(listing):
            listing = each
        return listing

    def _line(self, group: JobGroup) -> JobLine:
        """With what is kept of it."""
        if group.is_pending:
            why = "pending"
            return JobLine(group, figures=unknown(why), verdict=Verdict(missing=why))
        kept = [self._kept.get(_key(job)) for job in group.shown]
        if any(each is None for each in kept):
            return JobLine(group, figures=unknown(READING), verdict=Verdict(missing=READING))
        answers = [each.answer for each in kept if each is not None]
        return JobLine(
            group,
            is_recorded=any(each.files for each in kept if each is not None),
            figures=together([figures for figures, _ in answers]),
            verdict=worst_of([verdict for _, verdict in answers]),
        )

    def _read(self, line: JobLine, *, may_read: bool) -> JobLine:
        for job in line.group.shown if may_read else ():
            files = files_of(job, self._listed.cluster)
            is_live = job.is_running or job.state == RECORDING
            kept = self._kept.get(_key(job))
            if kept is None or kept.is_stale(files, self._now(), is_live=is_live):
                kept = self._kept[_key(job)] = self._evaluated(job, files, is_live=is_live)
            if files and is_live:
                kept.answer = newest(files, job.nodes), kept.answer[1]
        if not may_read:
            why = f"only the {MAX_READ} newest recorded jobs are read"
            return replace(line, figures=unknown(why), verdict=Verdict(missing=why))
        return self._line(line.group)

    def _evaluated(self, job: Job, files: tuple[File, ...], *, is_live: bool) -> _Kept:
        began = time.process_time()
        known = job if job.sources else None  # to Slurm
        try:
            answer = measured(known, files, self._site) if files else accounted(job, self._site)
        except GpumonError as error:
            answer = unknown(str(error)), Verdict(missing=str(error))
        again_s = max(_EVALUATE_S, _TIMES_ITS_COST * (time.process_time() - began))
        return _Kept(files, is_live, self._now(), again_s, answer)


def _key(job: Job) -> _Key:
    """Numbers are used again: a job is known by its submission too."""
    return job.raw_id or job.id, job.submit


def _place(group: JobGroup) -> tuple[int, float]:
    """Running, pending, ended; each the newest first."""
    rank = 0 if group.is_running else 1 if group.is_pending else 2
    return rank, -(group.start or group.submit or 0.0)


def _ids(group: JobGroup) -> set[str]:
    return {group.id, *(id for job in group.jobs for id in (job.id, job.raw_id))}


def _job_of(run: Run) -> Job:
    """A recorded run as a job of which nothing but that is known; no command is its source."""
    array, _, task = run.job.partition("_")
    return Job(
        raw_id=run.raw_id or run.job,
        id=run.job,
        array_job_id=array if task else "",
        array_task=task,
        cluster=run.cluster,
        name=run.name,
        state=RECORDING if run.state == RECORDING else "recorded",
        submit=run.start,
        start=run.start,
        end=run.end,
        elapsed_s=run.end - run.start,
        nodes=tuple(run.nodes),
    )


#: times as `sacct -S` takes them, where there is no sacct
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_AGO = re.compile(rf"now-(\d{{1,9}})({'|'.join(_UNITS)}|)s?")
_FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def since_epoch(text: str, now: float) -> float | None:
    """Epoch seconds of `now-3days`, `2026-11-20`, `2026-11-20T08:00`; None for another form."""
    if text == "now":
        return now
    if found := _AGO.fullmatch(text):
        return now - int(found[1]) * _UNITS[found[2] or "second"]
    for form in _FORMS:
        try:
            return time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    return None
