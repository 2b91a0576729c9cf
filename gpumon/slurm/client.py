"""Asking Slurm: one job with all that its commands know of it, many jobs, usage, the queue.

Nothing is asked more often than its period; in between the last answer is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpumon.errors import NotFoundError
from gpumon.model import clock as our_clock
from gpumon.model.text import clean
from gpumon.slurm import ids, records, sacct, scontrol, sinfo, squeue, sstat
from gpumon.slurm.choose import choose
from gpumon.slurm.job import Job, Step
from gpumon.slurm.pace import LEAST_PERIOD_S, Pace
from gpumon.slurm.runner import Result, Runner, SlurmError

#: epoch times, whole array ranges, English
ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "4096", "LC_ALL": "C"}
#: s, from the same question to the next; sstat asks every node of the job
CONTROLLER_PERIOD_S = 30.0
SSTAT_PERIOD_S = 60.0
SACCT_PERIOD_S = 300.0
#: s; what does not change while gpumon runs
_FACTS_PERIOD_S = 86400.0

_MAX_SCRIPT = 4 << 20
_ACCOUNTING_OFF = "accounting storage is disabled"
_UNKNOWN_JOB = "invalid job id"
_FOREIGN = "invalid user id"


class AccountingOffError(SlurmError):
    """The cluster keeps no accounting."""


class Slurm:
    """One cluster's Slurm, as its commands answer through `runner`."""

    def __init__(
        self,
        runner: Runner,
        *,
        clock: Callable[[], float] = our_clock.since_boot,
        now: Callable[[], float] = our_clock.now,
        timeout_s: float = 15.0,
        controller_period_s: float = CONTROLLER_PERIOD_S,
    ) -> None:
        self._runner = runner
        self._timeout_s = timeout_s
        self._controller_period_s = controller_period_s
        self._now = now
        self._pace = Pace(clock)

    # -- one job

    def job(self, text: str) -> Job:
        """All that Slurm knows of this job, its id as people type it; a step's names its job.

        Raises UsageError (no id, or an array of which no task is named), NotFoundError, and
        SlurmError where neither the controller nor the accounting answers.
        """
        id = ids.parse(text)
        live, controller_error = self._tried(lambda: self.live(id.whole))
        recorded, accounting_error = self._tried(lambda: self.jobs([id.whole]))
        now, past = choose(id, live), choose(id, recorded)
        if now is None and past is None:
            if controller_error:
                raise controller_error
            raise NotFoundError(_not_found(id, accounting_error))
        return self._with_facts(_combined(now, past, accounting_error))

    def live(self, id: str, *, soon: bool = False) -> list[Job]:
        """What the controller knows: of an array all tasks, of a het job all components.

        squeue, whose rows no job's name can forge, says which jobs these are; scontrol adds
        their allocations. Empty where the controller knows none: it forgets jobs minutes after
        their end. `soon`: something has happened, so an answer may be as young as is allowed.
        Raises SlurmError.
        """
        period_s = LEAST_PERIOD_S if soon else self._controller_period_s
        listed = self.queue([id], states=["all"], period_s=period_s)
        if not listed:
            return []

        def call() -> list[Job]:
            answer = self._run(scontrol.show_job(id))
            return [] if answer.code else scontrol.parse(answer.out, single=len(listed) == 1)

        shown = self._pace.ask(("show job", id), period_s, call)
        details = {job.raw_id: job for job in reversed(shown)}
        return [_detailed(job, details.get(job.raw_id)) for job in listed]

    def jobs(
        self,
        job_ids: Sequence[str] = (),
        *,
        user: str = "",
        since: str = "",
        until: str = "",
        states: Sequence[str] = (),
        duplicates: bool = False,
    ) -> list[Job]:
        """Jobs from the accounting in one call: these, or a user's, in a window of time.

        `since` and `until` as sacct takes them; `duplicates`: earlier attempts of requeued jobs
        too. Raises AccountingOffError and SlurmError.
        """
        available = self._fields("sacct")
        question = ("sacct", *job_ids, "", user, since, until, *states, str(duplicates))

        def call() -> list[Job]:
            delimiter = records.new_delimiter()
            command = sacct.argv(
                delimiter,
                available,
                job_ids=job_ids,
                user=user,
                since=since,
                until=until,
                states=states,
                duplicates=duplicates,
            )
            output = _checked("sacct", self._run(command))
            return self._told(sacct.parse(output, delimiter, sacct.fields(available)))

        return self._pace.ask(question, SACCT_PERIOD_S, call)

    def queue(
        self,
        job_ids: Sequence[str] = (),
        *,
        user: str = "",
        states: Sequence[str] = (),
        period_s: float | None = None,
    ) -> list[Job]:
        """Jobs in the queue: these, a user's, or all. Raises SlurmError."""

        def call() -> list[Job]:
            delimiter = records.new_delimiter()
            command = squeue.argv(delimiter, job_ids=job_ids, user=user, states=states)
            answer = self._run(command)
            if answer.code and _UNKNOWN_JOB in answer.err.lower():
                return []
            return self._told(squeue.parse(_checked("squeue", answer), delimiter))

        question = ("squeue", *job_ids, "", user, *states)
        return self._pace.ask(question, period_s or self._controller_period_s, call)

    # -- usage of running jobs

    def usage(self, raw_ids: Sequence[str]) -> dict[str, tuple[Step, ...]]:
        """Running steps with their usage so far, by job. Own jobs only; raises SlurmError."""
        available = self._fields("sstat")

        def call() -> dict[str, tuple[Step, ...]]:
            answer = self._run(sstat.argv(available, raw_ids))
            found = sstat.parse(_checked("sstat", answer), sstat.fields(available))
            if not found and _FOREIGN in answer.err.lower():
                raise SlurmError("sstat tells the usage of a running job only to its owner")
            return found

        return self._pace.ask(("sstat", *raw_ids), SSTAT_PERIOD_S, call)

    def with_usage(self, job: Job) -> Job:
        """The running job with its steps' usage from sstat; where that fails, with the reason."""
        try:
            told = self.usage([job.raw_id])
        except SlurmError as error:
            return replace(job, missing={**job.missing, "usage": str(error)})
        steps = {step.id: step for step in job.steps}
        for measured in next(iter(told.values()), ()):
            before = steps.get(measured.id, measured)
            steps[measured.id] = replace(
                before,
                state=before.state or measured.state,
                tasks=measured.tasks if measured.tasks is not None else before.tasks,
                cpu_s=measured.cpu_s,
                max_rss_bytes=measured.max_rss_bytes,
                max_rss_node=measured.max_rss_node,
                max_rss_task=measured.max_rss_task,
                ave_rss_bytes=measured.ave_rss_bytes,
                usage=measured.usage,
                source=sstat.SOURCE,
            )
        missing = dict(job.missing)
        if told:
            missing.pop("usage", None)
        return replace(job, steps=tuple(steps.values()), missing=missing)

    # -- the cluster

    def version(self) -> str:
        """Of Slurm, as `24.11.7`. Raises SlurmError."""

        def call() -> str:
            words = _checked("sacct", self._run(["sacct", "-V"])).decode("utf-8", "replace").split()
            return clean(words[-1], 40) if words else ""

        return self._pace.ask(("version",), _FACTS_PERIOD_S, call)

    def config(self) -> scontrol.Config:
        """The controller's configuration. Raises SlurmError."""

        def call() -> scontrol.Config:
            answer = self._run(["scontrol", "show", "config"])
            return scontrol.parse_config(_checked("scontrol", answer))

        return self._pace.ask(("config",), _FACTS_PERIOD_S, call)

    def nodes(self) -> list[sinfo.Node]:
        """All nodes with their GPUs. Raises SlurmError."""

        def call() -> list[sinfo.Node]:
            delimiter = records.new_delimiter()
            return sinfo.parse(_checked("sinfo", self._run(sinfo.argv(delimiter))), delimiter)

        return self._pace.ask(("sinfo",), self._controller_period_s, call)

    def gpu_queue(self, gpu_type: str) -> sinfo.GpuSupply | None:
        """GPUs of this type: all, idle, and waited for; None where there are none."""
        supply = sinfo.supply(self.nodes()).get(gpu_type)
        if supply is None:
            return None
        pending = self.queue(states=("PENDING",))
        waiting = sum(job.requested.resources.gpu_types.get(gpu_type, 0) for job in pending)
        return replace(supply, waiting=waiting)

    def batch_script(self, text: str) -> str:
        """The job's script as it was submitted, from the controller or the accounting.

        Foreign text: clean it before it is shown. Raises UsageError, NotFoundError, SlurmError.
        """
        id = ids.parse(text).job

        def call() -> str:
            answer = self._run(["scontrol", "write", "batch_script", id, "-"])
            if answer.code == 0 and answer.out.startswith(b"#!"):
                return answer.out[:_MAX_SCRIPT].decode("utf-8", "replace")
            stored = self._run(["sacct", "-B", "-j", id]).out[:_MAX_SCRIPT]
            return stored.decode("utf-8", "replace").partition("#!")[2]

        script = self._pace.ask(("script", id), self._controller_period_s, call)
        if not script:
            raise NotFoundError(
                f"Slurm does not show the script of job {id}: it shows it to the owner, and after "
                "the job's end only where the site stores scripts"
            )
        return script if script.startswith("#!") else "#!" + script

    # -- asking

    def _told(self, jobs: list[Job]) -> list[Job]:
        """The jobs of an answer that came just now."""
        told_at = self._now()
        return [replace(job, told_at=told_at) for job in jobs]

    def _run(self, argv: list[str]) -> Result:
        return self._runner.run(argv, env=ENVIRONMENT, timeout_s=self._timeout_s)

    def _fields(self, command: str) -> list[str]:
        """The fields that this release's command has: an unknown one is fatal to it."""

        def call() -> list[str]:
            output = _checked(command, self._run([command, "--helpformat"]))
            return output.decode("utf-8", "replace").split()

        return self._pace.ask(("fields", command), _FACTS_PERIOD_S, call)

    def _tried(self, ask: Callable[[], list[Job]]) -> tuple[list[Job], SlurmError | None]:
        try:
            return ask(), None
        except SlurmError as error:
            return [], error

    def _with_facts(self, job: Job) -> Job:
        """The job with the release that ran it and what measured its steps, where known."""
        try:
            config = self.config()
        except SlurmError:
            return job
        return replace(
            job,
            slurm_version=job.slurm_version or config.version,
            cluster=job.cluster or config.cluster,
            acct_gather=config.gathered_by,
            acct_params=config.gather_params,
        )


def _checked(command: str, answer: Result) -> bytes:
    """What it printed. Raises SlurmError with its own words where it failed."""
    if _ACCOUNTING_OFF in answer.err.lower():
        raise AccountingOffError("accounting is off on this cluster: Slurm keeps no past jobs")
    if answer.code:
        lines = [line for line in answer.err.splitlines() if line.strip()] or ["it says nothing"]
        said = clean(lines[-1].strip(), 200).removeprefix(f"{command}: ").removeprefix("error: ")
        raise SlurmError(f"{command} failed: {said}; try again, or ask your cluster's staff")
    return answer.out


def _detailed(job: Job, details: Job | None) -> Job:
    """A job of squeue with what scontrol adds; shares of nodes that are not the job's are not."""
    if details is None or details.is_pending != job.is_pending:  # it started in between
        return replace(job, missing={**job.missing, "allocations": "scontrol did not tell them"})
    own = tuple(share for share in details.allocations if share.node in job.nodes)
    return job.merged(replace(details, allocations=own))


def _combined(now: Job | None, past: Job | None, accounting_error: SlurmError | None) -> Job:
    """The two views of one job; the one that saw its end is believed where they differ."""
    if now is None or past is None:
        only = now or past or Job()
        if past is None and accounting_error:
            return replace(only, missing={**only.missing, "usage": str(accounting_error)})
        if past is None:
            missing = {**only.missing, "usage": "the accounting does not know the job yet"}
            return replace(only, missing=missing)
        return only
    if now.submit and past.submit and abs(now.submit - past.submit) > 1:
        return now  # the record is of an earlier attempt, or of another job with this id
    if not past.has_ended:
        return now.merged(past)
    # a record whose end arrived before its start is called "allocation" for a while
    named = replace(past, name=now.name, sources={**past.sources, "name": squeue.SOURCE})
    return named.merged(now)


def _not_found(id: ids.JobId, accounting_error: SlurmError | None) -> str:
    if accounting_error:
        return (
            f"the controller does not know job {id.whole} (it forgets jobs minutes after their "
            f"end), and {accounting_error}"
        )
    return f"there is no job {id.whole} that Slurm shows you; check the number with: squeue --me"
