"""Asking Slurm: one job with all that its commands know of it, many jobs, usage, the queue.

No query runs more often than its period; in between the last answer is returned again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from gpumon.errors import NotFoundError
from gpumon.model import clock as our_clock
from gpumon.model.text import clean
from gpumon.slurm import ids, nodes, records, sacct, scontrol, sinfo, squeue, sstat
from gpumon.slurm.choose import choose
from gpumon.slurm.job import Job, Step
from gpumon.slurm.looking import PATIENCE_S, Looks, with_only_share
from gpumon.slurm.pace import FRESH_S, LEAST_PERIOD_S, Answers, Pace, Printed, Told
from gpumon.slurm.records import Unread
from gpumon.slurm.runner import NoSlurmError, Result, Runner, SlurmError

#: epoch times, whole array ranges, English
ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "4096", "LC_ALL": "C"}
#: s, from the same question to the next; sstat asks every node of the job
CONTROLLER_PERIOD_S = 30.0
SSTAT_PERIOD_S = 60.0
SACCT_PERIOD_S = 300.0
#: s; what does not change while gpumon runs, and how old it may be when it starts
_FACTS_PERIOD_S = 86400.0
_OLD_FACTS_S = 3600.0

_MAX_SCRIPT = 4 << 20
_ACCOUNTING_OFF = "accounting storage is disabled"
_UNKNOWN_JOB = "invalid job id"
_FOREIGN = "invalid user id"
_NO_CONFIG = "could not establish a configuration source"


Answer = TypeVar("Answer")


class AccountingOffError(SlurmError):
    """The cluster keeps no accounting."""


class Accounted(NamedTuple):
    """What the accounting has: jobs, and rows that could not be read."""

    jobs: list[Job]
    unread: Unread


class Slurm:
    """One cluster's Slurm, as its commands answer through `runner`."""

    def __init__(
        self,
        runner: Runner,
        *,
        answers: Answers | None = None,
        clock: Callable[[], float] = our_clock.since_boot,
        now: Callable[[], float] = our_clock.now,
        timeout_s: float = 15.0,
        controller_period_s: float = CONTROLLER_PERIOD_S,
    ) -> None:
        """`answers`: shared with other programs of this user."""
        self._runner = runner
        self._timeout_s = timeout_s
        self._controller_period_s = controller_period_s
        self._clock = clock
        self._now = now
        self._pace = Pace(clock, answers)
        self._looks = Looks(self._listed, self._shown)

    # -- one job

    def job(self, text: str) -> Job:
        """Everything Slurm has of this job, by the ID that users type; a step's ID names its job.

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
        job = self._with_facts(_combined(now, past, accounting_error))
        if controller_error is None:
            return job
        return with_only_share(
            replace(job, missing={**job.missing, "queue": str(controller_error)})
        )

    def live(self, id: str, *, soon: bool = False) -> list[Job]:
        """From the controller: of an array all tasks, of a het job all components.

        Empty where the controller knows none: it forgets jobs minutes after their end. `soon`:
        something has happened, so an answer may be as young as is allowed. Raises SlurmError.
        """
        return self._looks.look(id, LEAST_PERIOD_S if soon else self._controller_period_s)

    def _listed(self, id: str, period_s: float) -> list[Job]:
        return self.queue([id], states=["all"], period_s=period_s)

    def _shown(
        self, id: str, period_s: float, *, shares: bool = False, local: bool = False,
        single: bool = False, strict: bool = False, first_s: float = FRESH_S,
        timeout_s: float | None = None,
    ) -> list[Job]:  # fmt: skip
        """As `looking.Show` has it."""

        def parse(told: Told) -> Told:
            if not _is_unknown(told.result):
                _checked("scontrol", told.result)
            return told

        argv = scontrol.show_job(id, shares=shares, local=local)
        told = self._ask(lambda _: argv, parse, period_s, first_s=first_s, timeout_s=timeout_s)
        if strict and scontrol.may_be_forged(told.result.out):
            raise SlurmError(f"scontrol shows fields of job {id} twice")
        return self._timed(scontrol.parse(told.result.out, single=single), told)

    def jobs(self, job_ids: Sequence[str], *, duplicates: bool = False) -> list[Job]:
        """These jobs as `accounted` has them, where rows that cannot be read do not matter."""
        return self.accounted(job_ids, duplicates=duplicates).jobs

    def accounted(
        self,
        job_ids: Sequence[str] = (),
        *,
        user: str = "",
        since: str = "",
        until: str = "",
        duplicates: bool = False,
    ) -> Accounted:
        """Jobs from the accounting in one call: these, or a user's, in a window of time.

        `since` and `until` as sacct takes them; `duplicates`: earlier attempts of requeued jobs
        too. Raises AccountingOffError and SlurmError.
        """
        available = self._fields("sacct")
        options = _options({"-j": ",".join(job_ids), "-u": user, "-S": since, "-E": until})
        options += ["-D"] if duplicates else []

        def parse(told: Told) -> Accounted:
            output, unread = _checked("sacct", told.result), Unread()
            names, told_at = sacct.fields(available), self._told_at(told)
            jobs = sacct.parse(output, told.delimiter, names, unread, told_at)
            return Accounted(jobs, unread)

        return self._ask(
            lambda delimiter: sacct.argv(delimiter, available, options), parse, SACCT_PERIOD_S
        )

    def queue(
        self,
        job_ids: Sequence[str] = (),
        *,
        user: str = "",
        states: Sequence[str] = (),
        period_s: float | None = None,
    ) -> list[Job]:
        """Jobs in the queue: these, a user's, or all. Raises SlurmError."""
        options = [f"--jobs={','.join(job_ids)}"] if job_ids else []
        options += _options({"-u": user, "-t": ",".join(states)})

        def parse(told: Told) -> list[Job]:
            if _is_unknown(told.result):
                return []
            output = _checked("squeue", told.result)
            return self._timed(squeue.parse(output, told.delimiter), told)

        return self._ask(
            lambda delimiter: squeue.argv(delimiter, options),
            parse,
            period_s or self._controller_period_s,
        )

    # -- usage of running jobs

    def usage(self, raw_ids: Sequence[str]) -> dict[str, tuple[Step, ...]]:
        """Running steps with their usage so far, by job. Own jobs only; raises SlurmError."""
        available = self._fields("sstat")

        def parse(told: Told) -> dict[str, tuple[Step, ...]]:
            found = sstat.parse(_checked("sstat", told.result), sstat.fields(available))
            if not found and _FOREIGN in told.result.err.lower():
                raise SlurmError("sstat shows the usage of a running job only to its owner")
            return found

        return self._ask(lambda _: sstat.argv(available, raw_ids), parse, SSTAT_PERIOD_S)

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

        def parse(told: Told) -> str:
            words = _checked("sacct", told.result).decode("utf-8", "replace").split()
            return clean(words[-1], 40) if words else ""

        return self._ask(lambda _: ["sacct", "-V"], parse, _FACTS_PERIOD_S, share=False)

    def config(self) -> scontrol.Config:
        """The controller's configuration. Raises SlurmError."""

        def parse(told: Told) -> scontrol.Config:
            return scontrol.parse_config(_checked("scontrol", told.result))

        return self._ask(
            lambda _: ["scontrol", "show", "config"], parse, _FACTS_PERIOD_S,
            first_s=_OLD_FACTS_S, timeout_s=PATIENCE_S,
        )  # fmt: skip

    def nodes(self, names: Sequence[str]) -> list[nodes.NodeState]:
        """Where these nodes are, and whether Slurm reaches them. Raises SlurmError."""

        def parse(told: Told) -> list[nodes.NodeState]:
            return nodes.parse(_checked("scontrol", told.result))

        argv = nodes.argv(names)
        return self._ask(lambda _: argv, parse, LEAST_PERIOD_S, timeout_s=PATIENCE_S)

    def idle_gpus(self) -> dict[str, int]:
        """How many of each type no job uses. Raises SlurmError."""

        def parse(told: Told) -> dict[str, int]:
            return sinfo.parse(_checked("sinfo", told.result), told.delimiter)

        return self._ask(sinfo.argv, parse, self._controller_period_s)

    def down_nodes(self, nodes: Sequence[str]) -> set[str]:
        """Those of these nodes that are down or do not respond. Raises SlurmError."""

        def parse(told: Told) -> set[str]:
            return sinfo.parse_down(_checked("sinfo", told.result), told.delimiter)

        return self._ask(
            lambda delimiter: sinfo.states_argv(delimiter, nodes), parse, self._controller_period_s
        )

    def batch_script(self, text: str) -> str:
        """The job's script as it was submitted, from the controller or the accounting.

        Foreign text: clean it before it is shown. Raises UsageError, NotFoundError, SlurmError.
        """
        id = ids.parse(text).job

        write = ["scontrol", "write", "batch_script", id, "-"]
        script = self._script(write) or self._script(["sacct", "-B", "-j", id])
        if not script:
            raise NotFoundError(
                f"the script of job {id} is not available: Slurm shows it only to the owner, and "
                "after the job's end only if the site stores scripts"
            )
        return script

    def _script(self, argv: list[str]) -> str:
        """What follows the first `#!`: sacct prints a heading before."""

        def parse(told: Told) -> str:
            text = told.result.out[:_MAX_SCRIPT].decode("utf-8", "replace")
            return "".join(text.partition("#!")[1:])

        return self._ask(lambda _: argv, parse, self._controller_period_s, share=False)

    # -- asking

    def _ask(
        self, argv: Callable[[str], list[str]], parse: Callable[[Told], Answer], period_s: float, *,
        first_s: float = FRESH_S, share: bool = True, timeout_s: float | None = None,
    ) -> Answer:  # fmt: skip
        """What `parse` makes of a command's answer. `argv` gets the delimiter of its rows."""
        patience_s = min(timeout_s or self._timeout_s, self._timeout_s)

        def run() -> Printed:
            delimiter = records.new_delimiter()
            words = argv(delimiter)
            return self._runner.run(words, env=ENVIRONMENT, timeout_s=patience_s), delimiter

        return self._pace.ask(
            tuple(argv("")), period_s, run, parse,
            first_s=first_s, share=share, timeout_s=patience_s,
        )  # fmt: skip

    def _timed(self, jobs: list[Job], told: Told) -> list[Job]:
        """The jobs of an answer, with its time on our clock."""
        told_at = self._told_at(told)
        return [replace(job, told_at=told_at) for job in jobs]

    def _told_at(self, told: Told) -> float:
        """When an answer came, on our clock."""
        return self._now() - (self._clock() - told.at)

    def _fields(self, command: str) -> list[str]:
        """The fields that this release's command has: an unknown one is fatal to it."""

        def parse(told: Told) -> list[str]:
            return _checked(command, told.result).decode("utf-8", "replace").split()

        return self._ask(lambda _: [command, "--helpformat"], parse, _FACTS_PERIOD_S, share=False)

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


def _is_unknown(answer: Result) -> bool:
    return answer.code != 0 and _UNKNOWN_JOB in answer.err.lower()


def _options(values: Mapping[str, str]) -> list[str]:
    return [word for option, value in values.items() if value for word in (option, value)]


def _checked(command: str, answer: Result) -> bytes:
    """What it printed. Raises SlurmError with its own words where it failed, and NoSlurmError where
    the commands are installed but belong to no cluster.
    """
    if _ACCOUNTING_OFF in answer.err.lower():
        raise AccountingOffError(
            "accounting is disabled on this cluster: Slurm keeps no ended jobs"
        )
    if answer.code and _NO_CONFIG in answer.err.lower():
        raise NoSlurmError(
            f"{command} is not set up for a cluster here; run gpumon on a login node, "
            "or use --login HOST"
        )
    if answer.code:
        complaint = _complaint(command, answer)
        raise SlurmError(f"{command} failed: {complaint}; try again, or ask your cluster's staff")
    return answer.out


def _complaint(command: str, answer: Result) -> str:
    """The last line of a failed command's errors, or how it ended.

    `scontrol show job -d` of Slurm 22.05 to 24.05 crashes without a word if the controller does
    not answer its second question, the one about the nodes.
    """
    if answer.code < 0 and -answer.code in set(signal.Signals):
        return f"killed by {signal.Signals(-answer.code).name}"
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    if not lines:
        return f"exit code {answer.code} without a message"
    return clean(lines[-1], 200).removeprefix(f"{command}: ").removeprefix("error: ")


def _combined(now: Job | None, past: Job | None, accounting_error: SlurmError | None) -> Job:
    """The two views of one job; the one that saw its end is believed where they differ."""
    if now is None or past is None:
        only = now or past or Job()
        if past is None and accounting_error:
            return replace(only, missing={**only.missing, "usage": str(accounting_error)})
        if past is None:
            missing = {**only.missing, "usage": "the job is not in the accounting yet"}
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
            f"job {id.whole} is not in the controller (which drops jobs minutes after their "
            f"end), and {accounting_error}"
        )
    return f"Slurm shows you no job {id.whole}; check the job ID with 'squeue --me'"
