"""One's own jobs in Slurm: which there are, and which of them a name, or no word at all, means."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence

from gpumon.errors import NotFoundError, UsageError, suggestion
from gpumon.model import clock
from gpumon.model.lines import Line, word
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.slurm import ids
from gpumon.slurm.client import Slurm
from gpumon.slurm.groups import JobGroup, groups_of
from gpumon.slurm.job import Job
from gpumon.slurm.runner import Runner, SlurmError

#: as sacct -S takes it: how far back an ended job is looked for by its name, or as the last one
_LOOK_BACK = "now-14days"
_SHOWN = 4

#: asks the user which of these (its title first) to take: its id, None for none
Choose = Callable[[str, Sequence[JobGroup]], "str | None"]


def user_here() -> str:
    """The user whose program this is, by name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # of a container: Slurm takes the number
        return str(os.getuid())


def user_there(runner: Runner) -> str:
    """The user as whom a login host runs Slurm's commands. Raises SlurmError."""
    answer = runner.run(["id", "-un"], env={}, timeout_s=15.0)
    name = answer.out.decode("utf-8", "replace").strip()
    if answer.code or not name:
        raise SlurmError("cannot determine your user name on the login host; give a JOBID")
    return name


class MyJobs:
    """A user's jobs, as Slurm lists them."""

    def __init__(self, slurm: Slurm, user: str) -> None:
        self._slurm = slurm
        self._user = user

    def queued(self) -> list[JobGroup]:
        """What the controller lists: also jobs that ended some minutes ago. Raises SlurmError."""
        return groups_of(_newest(self._slurm.queue(user=self._user, states=["all"])))

    def past(self, since: str) -> list[JobGroup]:
        """What the accounting lists since then, as `sacct -S` takes it. Raises SlurmError."""
        return groups_of(self._slurm.accounted(user=self._user, since=since).jobs)

    # -- which one is meant

    def meant(self, name: str | None, *, last: bool, choose: Choose | None) -> str | None:
        """The id of the job that `name` names: an id, the name of a job of one's own, or None for
        the only one that runs. `last`: of several, the one that started last, also an ended one.

        Several are offered by `choose`; it returns None if the user cancels. Without it they raise
        UsageError. Raises NotFoundError and SlurmError.
        """
        if name is not None and is_job(name):
            if not last:
                return name
            raise UsageError("--last selects the job; do not give a JOBID with it")
        listed = [each for each in self.queued() if name is None or each.name == name]
        running = [each for each in listed if each.is_running]
        running = [each for each in running if each.state != "COMPLETING"] or running
        if last:
            return self._last(running, listed, name).id
        if len(running) == 1:
            return running[0].id
        if running:
            return _chosen("which job?", running, choose)
        pending = [each for each in listed if each.is_pending]
        if name is not None and len(pending) == 1:
            return pending[0].id
        whose = "none of your jobs" + ("" if name is None else f" named {clean(name, 60)!r}")
        if pending and choose is not None:
            return choose(f"{whose} is running: wait for one to start?", pending)
        if pending:
            raise NotFoundError(
                f"{whose} is running; pending: {_listed(pending)}; {_waits(pending)}"
            )
        if name is None:
            raise NotFoundError(
                "none of your jobs is running or pending; run 'gpumon jobs' to list ended ones, "
                "or 'gpumon' to show this node"
            )
        return self._ended(listed, name).id

    def _last(
        self, running: Sequence[JobGroup], listed: Sequence[JobGroup], name: str | None
    ) -> JobGroup:
        found = _latest(running) or _latest([*listed, *self._past(name)])
        if found is None:
            whose = "none of your jobs" + ("" if name is None else f" named {name!r}")
            raise NotFoundError(f"{whose} has started in the last two weeks; give a JOBID")
        return found

    def _ended(self, listed: Sequence[JobGroup], name: str) -> JobGroup:
        """The newest one of this name that has ended."""
        past = self._past(None)
        named = [*listed, *(each for each in past if each.name == name)]
        if named:  # one that was cancelled while it waited has no start
            return max(named, key=lambda each: each.start or each.submit or 0.0)
        near = suggestion(name, {each.name for each in [*self.queued(), *past]})
        more = near or "; 'gpumon jobs' lists your jobs, and a JOBID is 123, 123_4 or 123+1"
        raise NotFoundError(f"none of your jobs is named {clean(name, 60)!r}{more}")

    def _past(self, name: str | None) -> list[JobGroup]:
        """From the accounting, where there is one: the controller's word counts without."""
        try:
            found = self.past(_LOOK_BACK)
        except SlurmError:
            return []
        return [each for each in found if name is None or each.name == name]


def _newest(jobs: Sequence[Job]) -> list[Job]:
    """Jobs by their submission, the newest first; the tasks of an array in their order."""
    return sorted(jobs, key=lambda job: -(job.submit or 0.0))


def is_job(name: str) -> bool:
    """Whether a word is a job's id; then it is no name."""
    try:
        ids.parse(name)
    except UsageError:
        return False
    return True


def _latest(groups: Sequence[JobGroup]) -> JobGroup | None:
    started = [each for each in groups if each.start is not None]
    return max(started, key=lambda each: each.start or 0.0, default=None)


def _chosen(title: str, groups: Sequence[JobGroup], choose: Choose | None) -> str | None:
    if choose is None:
        first = word("job", groups[0].id)
        raise UsageError(
            f"several jobs of yours are running: {_listed(groups)}; name one: "
            f"'{Line('gpumon attach {}', first) or 'gpumon attach JOBID'}'"
        )
    return choose(title, groups)


def _listed(groups: Sequence[JobGroup]) -> str:
    """`4711 (train, 2 nodes, 1 h 10 min), …`, for programs that cannot prompt."""
    more = f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    return ", ".join(map(_in_words, groups[:_SHOWN])) + more


def _in_words(group: JobGroup) -> str:
    parts = [clean(group.name, 30)]
    elapsed_s = group.elapsed_s(clock.now())
    if group.is_running and elapsed_s is not None:
        parts.append(age_text(elapsed_s))
    if group.is_pending and group.jobs[0].reason not in ("", "None"):
        parts.append(clean(group.jobs[0].reason, 40))
    return f"{group.id} ({', '.join(filter(None, parts))})"


def _waits(pending: Sequence[JobGroup]) -> str:
    line = Line("gpumon attach {}", word("job", pending[0].id)) or "gpumon attach JOBID"
    return f"'{line}' in a terminal opens when it starts"
