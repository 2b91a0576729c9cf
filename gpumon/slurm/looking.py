"""Looking at the jobs of one id again and again: everything once, then only what may change.

The first look asks squeue, whose rows no job's name can forge, and scontrol for what squeue does
not tell. After that one `scontrol show job`, the smallest question there is, is enough, as long as
it tells of the same jobs of the same size on the same nodes. The shares of several nodes come from
`scontrol show job -d`, which fetches the table of all nodes: once for each start of a job.

A command that fails does not hide what the others told; `missing` says what is not known, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from gpumon.slurm.job import Job, NodeAllocation
from gpumon.slurm.pace import FRESH_S, LEAST_PERIOD_S
from gpumon.slurm.runner import SlurmError

#: s for scontrol where squeue has told enough to continue, or has failed
PATIENCE_S = 5.0
#: s; shares do not change without what they are compared by
_SHARES_S = 3600.0
_MAX_KNOWN = 64
#: only in an earlier answer
_KEPT = ("allocations", "allocated")


class Show(Protocol):
    """Asks `scontrol show job`; raises SlurmError."""

    def __call__(
        self,
        id: str,
        period_s: float,
        *,
        shares: bool = False,
        local: bool = False,
        single: bool = False,
        strict: bool = False,
        first_s: float = FRESH_S,
        timeout_s: float | None = None,
    ) -> list[Job]:
        """`shares`: those of the nodes, too. `local`: of this cluster, whatever its federation
        knows. `single`: of one job. `strict`: nothing that a job's name may have forged.
        """


class Looks:
    """What was known of the jobs of each id."""

    def __init__(self, queue: Callable[[str, float], list[Job]], show: Show) -> None:
        self._queue = queue
        self._show = show
        self._known: dict[str, list[Job]] = {}

    def look(self, id: str, period_s: float) -> list[Job]:
        """The jobs of this id; none where the controller knows none. Raises SlurmError."""
        known = self._known.get(id, [])
        if any("queue" in job.missing for job in known):
            known = []  # squeue has not told of them
        jobs = self._again(id, known, period_s) or self._whole(id, known, period_s)
        jobs = [with_only_share(job) if job.allocated.gpus is not None else job for job in jobs]
        if any(_needs_shares(job) for job in jobs):
            jobs = self._with_shares(id, jobs)
        self._known.pop(id, None)
        self._known[id] = jobs  # the newest last
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return jobs

    def _again(self, id: str, known: Sequence[Job], period_s: float) -> list[Job]:
        """The same jobs by one small query; empty if its answer does not suffice."""
        if not known:
            return []
        single = len(known) == 1
        try:
            shown = self._show(
                id, period_s, local=True, single=single, strict=True, first_s=period_s
            )
        except SlurmError:
            return []
        now = _by_id(shown)
        if now.keys() != _by_id(known).keys():
            return []
        if not all(_is_same(now[job.raw_id], job) for job in known):
            return []
        return [_updated(now[job.raw_id], job) for job in known]

    def _whole(self, id: str, known: Sequence[Job], period_s: float) -> list[Job]:
        """As squeue lists them, with what scontrol adds, or what is known from before."""
        try:
            listed = self._queue(id, LEAST_PERIOD_S if known else period_s)
        except SlurmError as error:
            return self._without_queue(id, error)
        before = {job.raw_id: job for job in known if "details" not in job.missing}
        if all(job.raw_id in before and _key(job) == _key(before[job.raw_id]) for job in listed):
            return [job.merged(before[job.raw_id]) for job in listed]
        single = len(listed) == 1
        try:
            shown = self._show(id, LEAST_PERIOD_S, single=single, timeout_s=PATIENCE_S)
        except SlurmError as error:
            return [_lacking(job, "details", str(error)) for job in listed]
        details = _by_id(shown)
        return [_detailed(job, details.get(job.raw_id)) for job in listed]

    def _without_queue(self, id: str, error: SlurmError) -> list[Job]:
        """As scontrol shows them; raises `error` where that fails, too."""
        try:
            shown = self._show(id, LEAST_PERIOD_S, strict=True, timeout_s=PATIENCE_S)
        except SlurmError:
            raise error from None
        return [_lacking(job, "queue", str(error)) for job in shown]

    def _with_shares(self, id: str, jobs: Sequence[Job]) -> list[Job]:
        """With the shares of nodes; where they are not to be had, with the reason."""
        failure = next((why for job in jobs if (why := job.missing.get("details"))), "")
        found: dict[str, Job] = {}
        try:
            if not failure:
                found = self._shares(id, jobs)
            if found.keys() != _by_id(jobs).keys() and not failure:
                found = self._shares(id, jobs)  # anew: what there was is of an earlier start
        except SlurmError as error:
            failure = str(error)
        return [_shared(job, found.get(job.raw_id), failure) for job in jobs]

    def _shares(self, id: str, jobs: Sequence[Job]) -> dict[str, Job]:
        """Jobs with shares, those that are as they are now."""
        shown = self._show(
            id, LEAST_PERIOD_S, shares=True, single=len(jobs) == 1, first_s=_SHARES_S,
            timeout_s=PATIENCE_S,
        )  # fmt: skip
        same = {_key(job) for job in jobs}
        return _by_id(job for job in shown if _key(job) in same)


def with_only_share(job: Job) -> Job:
    """The job with its share of its only node, which is all that it has."""
    own = job.allocated
    if not _needs_shares(job) or len(job.nodes) != 1 or own.cpus is None:
        return job
    share = NodeAllocation(job.nodes[0], own.cpus, own.mem_bytes, own.gpus)
    sources = {**job.sources, "allocations": job.sources.get("allocated", "")}
    return replace(job, allocations=(share,), sources=sources)


def _needs_shares(job: Job) -> bool:
    if not job.is_running or job.state == "COMPLETING" or not job.nodes:
        return False
    return not job.allocations or "allocations" in job.missing


def _key(job: Job) -> tuple[object, ...]:
    """What changes when a job starts again, gets or gives nodes, or other cores."""
    return (job.raw_id, job.submit, job.start, job.node_list, job.allocated.cpus)


def _by_id(jobs: Iterable[Job]) -> dict[str, Job]:
    """The first of each: what follows may be a name's forgery."""
    found: dict[str, Job] = {}
    for job in jobs:
        found.setdefault(job.raw_id, job)
    return found


def _is_same(now: Job, before: Job) -> bool:
    """Whether this answer is about the job as it was known, and can be believed.

    A name with line ends is not equal to that from squeue. A job that another cluster of a
    federation runs is revoked here.
    """
    return now.name == before.name and _key(now) == _key(before) and now.state != "REVOKED"


def _updated(now: Job, before: Job) -> Job:
    missing = {name: why for name, why in before.missing.items() if name != "details"}
    sources = {**now.sources, **{n: before.sources[n] for n in _KEPT if n in before.sources}}
    kept = {name: getattr(before, name) for name in _KEPT}
    return replace(now, **kept, missing=missing, sources=sources)


def _lacking(job: Job, what: str, why: str) -> Job:
    return replace(job, missing={**job.missing, what: why})


def _detailed(job: Job, details: Job | None) -> Job:
    """A job of squeue with what scontrol adds."""
    if details is None or _key(details) != _key(job):  # it changed in between
        return _lacking(job, "details", "scontrol did not list it")
    return job.merged(details)


def _shared(job: Job, shown: Job | None, failure: str) -> Job:
    """With its shares; those of nodes that are not the job's are not."""
    if not _needs_shares(job):
        return job
    own = tuple(s for s in shown.allocations if s.node in job.nodes) if shown is not None else ()
    if shown is None or not own:
        why = failure or "scontrol did not list them"
        return with_only_share(_lacking(job, "allocations", why))
    sources = {"allocations": shown.sources.get("allocations", "")}
    missing = {name: why for name, why in job.missing.items() if name != "allocations"}
    told = Job(allocations=own, allocated=shown.allocated, sources=sources)
    return replace(job, allocations=(), missing=missing).merged(told)
