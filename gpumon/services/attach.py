"""Follows a running job on all its nodes: on the screen, or as one sample of each node."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.errors import EXIT_INTERRUPTED, EXIT_OK, GpumonError, UsageError
from gpumon.pipeline.array import whole
from gpumon.services import jobs as find
from gpumon.services.asking import shared_answers, shared_slurm
from gpumon.services.cost import Costs
from gpumon.services.ended import show_ended
from gpumon.services.my_jobs import MyJobs, is_job, user_here, user_there
from gpumon.services.own_job import known_better, named_around
from gpumon.services.prompting import Prompting
from gpumon.services.restarts import Restarts
from gpumon.slurm import ids
from gpumon.slurm.client import Slurm
from gpumon.slurm.groups import JobGroup
from gpumon.slurm.job import Job
from gpumon.slurm.runner import SlurmError
from gpumon.sources.watched import WatchedJob
from gpumon.transport.available import AvailableTransports, here

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.services.on_end import OnEnd
    from gpumon.transport.stream import Transport

_NODES_A_SECOND = 128
_INTERVALS_S = (1.0, 2.0, 5.0, 10.0, 20.0)


class Attachment:
    """The way to a job's nodes: Slurm's commands, transports, and their prompts."""

    def __init__(
        self, via: str | None = None, login: str | None = None, on_end: OnEnd | None = None
    ) -> None:
        """`via`: the only transport to use. `login`: the host that runs Slurm's commands."""
        self._on_end = on_end.run if on_end is not None else None
        self._prompting = Prompting()
        self._available = AvailableTransports(
            self._prompting, here(os.environ), via=via, login=login, answers=shared_answers(login),
            site=_scraped,
        )  # fmt: skip
        self._login = login
        self._slurm = shared_slurm(self._available.runner, login)

    def attach(
        self, name: str | None, settings: Settings, *, last: bool, nodes: str | None,
        own_pace: bool, as_json: bool, on_screen: bool,
    ) -> int:  # fmt: skip
        """Follow the job that `name` and `last` mean, see MyJobs.meant; returns the exit code.

        `nodes`: a host list, None for all. `own_pace`: the interval may grow with the nodes.
        Raises GpumonError, UsageError, NotFoundError.
        """
        text = self._meant(name, settings, last=last, on_screen=on_screen)
        if text is None:
            return EXIT_INTERRUPTED
        id = ids.parse(text)
        jobs = self._found(id)
        find.check_step(self._slurm, id, jobs)
        if find.is_array(jobs) and not id.task:
            if all(job.has_ended for job in jobs):
                array = whole(jobs[0].array_job_id, jobs)
                return show_ended(array, settings, on_screen=on_screen)
            return self._attach_array(jobs, settings, nodes, as_json=as_json, on_screen=on_screen)
        if all(job.has_ended for job in jobs):
            return show_ended(jobs[0], settings, on_screen=on_screen)
        find.check(jobs, remote=bool(self._login))
        jobs = find.with_cluster(self._slurm, jobs)
        chosen = find.chosen_nodes(nodes, jobs)
        if not on_screen and not any(job.is_running for job in jobs):
            text = find.waiting_text(jobs[0])
            if as_json:
                raise GpumonError(text)
            print(text)
            return EXIT_OK
        return self._show(jobs, chosen, settings, own_pace, as_json=as_json, on_screen=on_screen)

    def running(
        self, name: str | None, settings: Settings, nodes: str | None
    ) -> tuple[WatchedJob, list[str]]:
        """A source of the running job that `name` means, and the nodes that `nodes` names of it.

        Raises GpumonError, UsageError, NotFoundError.
        """
        text = self._meant(name, settings, last=False, on_screen=False)
        id = ids.parse(text or "")
        jobs = self._found(id)
        find.check_step(self._slurm, id, jobs)
        if find.is_array(jobs) and not id.task and len(jobs) > 1:
            raise UsageError(f"name one task of the array, e.g. {jobs[0].array_job_id}_1")
        if all(job.has_ended for job in jobs):
            show_ended(jobs[0], settings, on_screen=False)
        find.check(jobs, remote=bool(self._login))
        chosen = find.chosen_nodes(nodes, jobs)
        if not any(job.is_running for job in jobs):
            raise GpumonError(find.waiting_text(jobs[0]))
        return watch(jobs, self._slurm, self._available, chosen, settings), chosen

    def around(self, jobs: Sequence[Job], settings: Settings) -> WatchedJob:
        """A source of the allocation around this shell."""
        return watch(known_better(jobs), self._slurm, self._available, (), settings)

    def _found(self, id: ids.JobId) -> list[Job]:
        """The job from Slurm; without an answer, from the environment of a shell in it."""
        try:
            return find.find_jobs(self._slurm, id)
        except SlurmError as error:
            around = [] if self._login else named_around(os.environ, id, str(error))
            if not around:
                raise
            return around

    def _meant(
        self, name: str | None, settings: Settings, *, last: bool, on_screen: bool
    ) -> str | None:
        """The id of the job to follow; None where the user chose none."""
        if name is not None and is_job(name) and not last:
            return name

        def choose(title: str, groups: Sequence[JobGroup]) -> str | None:
            from gpumon.tui.dialogs.jobs import choose_job

            return choose_job(title, groups, settings.theme)

        user = user_there(self._available.on_login) if self._login else user_here()
        mine = MyJobs(self._slurm, user)
        return mine.meant(name, last=last, choose=choose if on_screen else None)

    def attach_own(
        self, jobs: Sequence[Job], settings: Settings, *, own_pace: bool, on_screen: bool
    ) -> int:
        """Follow the allocation around this shell, of whose nodes this may be one."""
        return self._show(
            known_better(jobs), (), settings, own_pace, as_json=False, on_screen=on_screen
        )

    def _attach_array(
        self, jobs: Sequence[Job], settings: Settings, nodes: str | None, *, as_json: bool,
        on_screen: bool,
    ) -> int:  # fmt: skip
        if nodes is not None:
            raise UsageError(f"--nodes needs one task of the array, e.g. {jobs[0].array_job_id}_1")
        find.check(jobs, remote=bool(self._login))
        if not on_screen:
            from gpumon.services.samples import print_tasks

            return print_tasks(jobs, self._available, settings, as_json=as_json)
        from gpumon.services.dashboard import show_array

        login = self._available.on_login if self._login else None
        return show_array(
            jobs, self._slurm, self._available, settings, self._prompting, login, self._on_end
        )

    def _show(
        self, jobs: Sequence[Job], nodes: Sequence[str], settings: Settings, own_pace: bool, *,
        as_json: bool, on_screen: bool,
    ) -> int:  # fmt: skip
        if own_pace:
            settings = paced(settings, len(nodes) or sum(len(job.nodes) for job in jobs))
        watched = watch(jobs, self._slurm, self._available, nodes, settings)
        costs = Costs()
        watched.seen = costs.add
        if on_screen:
            from gpumon.services.dashboard import show_job

            login = self._available.on_login if self._login else None
            code = show_job(watched, settings, self._prompting, login, self._on_end)
        else:
            from gpumon.services.samples import print_samples

            code = print_samples(watched, nodes, as_json=as_json)
        steps = sum(way.steps for way in watched.ways)
        if sys.stderr.isatty() and not as_json and (cost := costs.line(steps)):
            print(cost, file=sys.stderr)
        return code


def _scraped(job: Job) -> Transport | None:
    """What the site's Prometheus has of a job."""
    from gpumon.services.prometheus import transport_for

    return transport_for(job)


def paced(settings: Settings, nodes: int) -> Settings:
    """A longer interval for so many nodes that one a second would be too much for this side.

    About a hundred samples a second; `benchmarks/README.md` has what they cost.
    """
    least_s = next((each for each in _INTERVALS_S if nodes <= each * _NODES_A_SECOND), 60.0)
    return settings._replace(interval_s=max(settings.interval_s, least_s if least_s > 1 else 0.1))


def watch(
    jobs: Sequence[Job],
    slurm: Slurm,
    available: AvailableTransports,
    nodes: Sequence[str],
    settings: Settings,
) -> WatchedJob:
    """The source that follows these jobs on these nodes (none named: on all)."""

    def look(soon: bool) -> Sequence[Job]:
        return find.look_again(slurm, jobs, soon=soon)

    ways, explained = available.for_jobs, Restarts(slurm).explained
    return WatchedJob(jobs, look, ways, settings.interval_s, explained, only=nodes)
