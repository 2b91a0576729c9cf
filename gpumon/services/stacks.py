"""Where each rank of a job stands: asks the agents of its nodes, and prints what they answer."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.collect.base import node_name
from gpumon.errors import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, GpumonError, NotFoundError
from gpumon.export.stacks import stacks_json, stacks_text
from gpumon.model.sample import Header, Sample
from gpumon.model.stack import Stack, Told
from gpumon.model.view import Status
from gpumon.services.around import is_in_job
from gpumon.sources.attach import AttachSource

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.slurm.job import Job

#: a node that has not answered by then is reported as such; py-spy has 3 s for each rank
_WAIT_S = 60.0
_INTERVAL_S = 5.0  # of samples, of which none but the first is of interest
_MAX_ANSWERS = 256  # of one node


class Wanted(NamedTuple):
    """Of which process, 0: of each rank; and how, as `model.stack` has it."""

    pid: int
    how: str


class Gathered:
    """A sink that asks each node once, when its first sample has come, and keeps the answers."""

    def __init__(
        self, nodes: Sequence[str], wanted: Wanted, ask: Callable[[str, int, str], bool]
    ) -> None:
        self.stacks: list[tuple[str, Stack]] = []
        self.why: dict[str, str] = {}  # node -> why it did not answer
        self._wanted = wanted
        self._ask = ask
        self._open = set(nodes)
        self._asked: set[str] = set()
        self._news = threading.Condition()

    def header(self, node: str, header: Header) -> None:
        """Of no interest."""

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._news:
            is_first = node in self._open and node not in self._asked
            self._asked.add(node)
        if is_first and not self._ask(node, *self._wanted):
            self._close(node, "no agent there that could look at its processes")

    def told(self, node: str, told: Told) -> None:
        """An answer of a node."""
        with self._news:
            if told.stack is not None and len(self.stacks) < _MAX_ANSWERS * len(self._asked):
                self.stacks.append((node, told.stack))
        if told.more == 0:
            self._close(node)

    def status(self, node: str, status: Status) -> None:
        if status.state in ("lost", "ended"):
            self._close(node, status.detail)

    def reset(self) -> None:
        """Nothing is played here."""

    def wait(self, timeout_s: float) -> None:
        """Until every node has answered or was lost."""
        until = time.monotonic() + timeout_s
        with self._news:
            while self._open and time.monotonic() < until:
                self._news.wait(min(1.0, until - time.monotonic()))  # so that Ctrl-C comes through
            self.why |= dict.fromkeys(self._open, "no answer")

    def _close(self, node: str, why: str = "") -> None:
        with self._news:
            if node in self._open and why:
                self.why[node] = why
            self._open.discard(node)
            self._news.notify_all()


def print_stacks(
    target: str | None, how: str, settings: Settings, *, via: str | None, login: str | None,
    nodes: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Print where the ranks of a job, or a process of this node, stand; returns the exit code.

    Raises GpumonError, UsageError, NotFoundError.
    """
    settings = settings._replace(interval_s=_INTERVAL_S)
    remote = bool(via or login or nodes)
    pid = 0 if remote or target is None else _process_here(target)
    here = node_name(os.environ)
    source: AttachSource
    if pid or (target is None and not remote and not _jobs_around()):
        source, names = AttachSource.of_this_node(here, settings.interval_s), [here]
    else:
        from gpumon.services.attach import Attachment
        from gpumon.slurm.runner import SlurmError

        attachment = Attachment(via, login)
        if target is None and not remote:
            watched = attachment.around(_jobs_around(), settings)
            chosen: list[str] = []
        else:
            try:
                watched, chosen = attachment.running(target, settings, nodes)
            except (SlurmError, NotFoundError) as error:
                raise _not_here(error, None if remote else target) from None
        from gpumon.slurm.parts import parts_of

        source, names = watched, [part.name for part in parts_of(watched.jobs(), chosen)]
    gathered = _gather(source, names, Wanted(pid, how))
    return _print(gathered, pid, as_json=as_json)


def _not_here(error: GpumonError, target: str | None) -> GpumonError:
    """An error about a job, where a number was taken for one as no process has it."""
    if target is not None and target.isdecimal():
        error.args = (f"no process {target} of yours on this node; as a job: {error}",)
    return error


def _process_here(target: str) -> int:
    """The process of this node that a number names, 0 for a job: of this user, or of another one
    where Slurm knows no such job.
    """
    if not (target.isascii() and target.isdigit() and len(target) <= 10):
        return 0
    try:
        owner = os.stat(f"/proc/{target}").st_uid
    except OSError:
        if _has_slurm():
            return 0
        raise NotFoundError(
            f"no process {target} on this node, and no Slurm commands to find a job; for a job of "
            "another cluster, use --login HOST"
        ) from None
    return int(target) if os.getuid() in (owner, 0) or not _has_slurm() else 0


def _has_slurm() -> bool:
    from shutil import which

    return which("squeue") is not None


def _jobs_around() -> list[Job]:
    """Those of the allocation around this shell, if it has other nodes than this one."""
    if not is_in_job(os.environ):
        return []
    from gpumon.services.own_job import jobs_around

    return jobs_around(os.environ)


def _gather(source: AttachSource, names: Sequence[str], wanted: Wanted) -> Gathered:
    gathered = Gathered(names, wanted, source.ask_stacks)
    source.tell = gathered.told
    source.start(gathered)
    try:
        gathered.wait(_WAIT_S)
    finally:
        source.stop()
    return gathered


def _print(gathered: Gathered, pid: int, *, as_json: bool) -> int:
    found = sorted(gathered.stacks, key=_order)
    if as_json:
        print(json.dumps(stacks_json(found, gathered.why)))
    elif found:
        print(stacks_text(found))
    for node, why in sorted(gathered.why.items()):
        print(f"gpumon: {node}: {why}", file=sys.stderr)
    if found:
        is_gone = bool(pid) and found[0][1].why == "ended"
        none = all(stack.why and not stack.threads for _, stack in found)
        return EXIT_NOT_FOUND if is_gone else EXIT_FAILED if none or gathered.why else EXIT_OK
    if not gathered.why and not as_json:
        raise GpumonError(_NOTHING)
    return EXIT_FAILED


_NOTHING = (
    "no Python program found among the job's ranks, or of yours on a GPU of this node; name a "
    "process with 'gpumon stack PID' or a job with 'gpumon stack JOBID'"
)


def _order(found: tuple[str, Stack]) -> tuple[bool, int, str, int]:
    node, stack = found
    return stack.rank is None, stack.rank or 0, node, stack.pid
