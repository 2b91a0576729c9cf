"""A job in Slurm: one typed object, whichever of Slurm's commands supplied the fields.

Sizes are bytes, times epoch seconds, durations seconds. A figure that is not known is None (or
empty), and then `missing` may say why; `sources` says for each field which command told it. A
figure of 0 is a figure that Slurm gave as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from typing import Any, NamedTuple, TypeVar

from gpumon.plain import dataclass
from gpumon.slurm.js1 import Summary
from gpumon.slurm.states import ENDED_STATES, HELD_STATES, PENDING_STATES, RUNNING_STATES

#: s; clocks that differ by less agree: Slurm counts whole seconds, and its answer takes a while
_NEAR_S = 5.0
#: what gpumon names the steps that it starts. Slurm names any other step after its program's file,
#: whose name holds no slash
OWN_STEP = "gpumon/agent"
_CUT_SHORT = ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


class ExitCode(NamedTuple):
    """Slurm's `code:signal`. Signal 125 is Slurm's own mark for out of memory."""

    code: int
    signal: int = 0

    def __str__(self) -> str:
        return f"{self.code}:{self.signal}"


@dataclass(frozen=True)
class Resources:
    """A set of TRES: requested, allocated, or of one node. `tres` holds all of it by name."""

    cpus: int | None = None
    mem_bytes: int | None = None  # in all
    gpus: int | None = None  # gres/gpu and gres/gpu:TYPE name the same GPUs: never added
    gpu_types: Mapping[str, int] = field(default_factory=dict)  # "a100" -> 2
    nodes: int | None = None
    tres: Mapping[str, int] = field(default_factory=dict)  # "cpu" -> 4, "mem" -> bytes, …


@dataclass(frozen=True)
class Request:
    """The user's request, in the form it was made, as far as known."""

    resources: Resources = field(default_factory=Resources)
    mem_form: str = ""  # node, cpu, gpu: --mem, --mem-per-cpu, --mem-per-gpu; "" not known
    mem_form_bytes: int | None = None  # the figure in that form; 0: all that the node has
    tasks: int | None = None
    cpus_per_task: int | None = None
    tasks_per_node: int | None = None
    constraint: str = ""  # features
    gres: str = ""  # "gpu:a100:2", as requested per node, task or job
    gres_form: str = ""  # node, task, socket, job: --gres/--gpus-per-node, …; "" not known


@dataclass(frozen=True)
class NodeAllocation:
    """The job's share of one node."""

    node: str
    cpus: int | None = None
    mem_bytes: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Usage:
    """TRESUsageIn*: by TRES name (`mem` in bytes, `cpu` in seconds, `gres/gpuutil` percent)."""

    total: Mapping[str, float] = field(default_factory=dict)
    maximum: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step. Usage from sacct is None while it runs: not yet known, never 0."""

    id: str  # batch, extern, interactive, 0, 1, … ("0+1" of a het step)
    name: str = ""
    state: str = ""
    state_by: str = ""  # who cancelled it: a uid, as sacct prints it
    exit_code: ExitCode | None = None
    start: float | None = None
    end: float | None = None
    elapsed_s: float | None = None
    node_list: str = ""
    node_count: int | None = None
    cpus: int | None = None
    tasks: int | None = None
    cpu_s: float | None = None  # max(TotalCPU, TRESUsageInTot[cpu])
    max_rss_bytes: int | None = None  # of the largest task; four meanings by version and plug-in
    usage: Usage = field(default_factory=Usage)
    allocated: Resources = field(default_factory=Resources)
    source: str = ""  # sacct, sstat
    recorded_own: bool = False  # a recording states that gpumon was all that it ran

    @property
    def is_cut_short(self) -> bool:
        """Whether its work was not done."""
        return self.state in _CUT_SHORT

    @property
    def is_own(self) -> bool:
        """Whether gpumon is all that it runs; False where that is not known: it is the user's."""
        return self.recorded_own or self.name == OWN_STEP


@dataclass(frozen=True)
class Past:
    """How the attempt before this one ended."""

    state: str  # NODE_FAIL, PREEMPTED, REQUEUED, …
    failed_nodes: tuple[str, ...] = ()  # as far as they are known


@dataclass(frozen=True)
class Job:
    """One job: of an array one task, of a het job one component, of a requeue one attempt."""

    raw_id: str = ""  # the number that cgroups, the environment and JobIDRaw have
    id: str = ""  # as people say it: 4711, 4711_3, 4711+1, or 4711_[4-9%2] while pending
    array_job_id: str = ""
    array_task: str = ""  # "3", or "4-9%2" for the pending rest
    het_job_id: str = ""
    het_offset: int | None = None
    sluid: str = ""
    cluster: str = ""
    name: str = ""
    user: str = ""
    uid: int | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: str = ""  # PENDING, RUNNING, …; an unknown word stays as it is
    state_flags: tuple[str, ...] = ()  # what else Slurm joined to it
    state_by: str = ""  # CANCELLED by this uid
    reason: str = ""  # why it waits, or ended
    exit_code: ExitCode | None = None
    derived_exit_code: ExitCode | None = None  # the highest of its steps
    submit: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None  # when it ended; while it runs, when its limit ends it
    expected_start: float | None = None  # of a pending job, if the scheduler has an estimate
    elapsed_s: float | None = None  # without the time it was suspended
    told_at: float | None = field(default=None, compare=False)  # our clock as of `elapsed_s`
    #: since and until when it was suspended (epoch s; None: still), as far as that was watched
    suspensions: tuple[tuple[float, float | None], ...] = field(default=(), compare=False)
    time_limit_s: float | None = None
    time_limit_words: str = ""  # UNLIMITED, Partition_Limit: no number
    restarts: int | None = None
    past: Past | None = field(default=None, compare=False)  # of a job that was started again
    node_list: str = ""  # gpu[01-02]
    nodes: tuple[str, ...] = ()
    batch_node: str = ""
    failed_node: str = ""
    expected_nodes: str = ""  # SchedNodeList of a pending job
    requested: Request = field(default_factory=Request)
    allocated: Resources = field(default_factory=Resources)
    allocations: tuple[NodeAllocation, ...] = ()
    steps: tuple[Step, ...] = ()
    cpu_s: float | None = None  # TotalCPU of the job row: ended steps only
    submit_line: str = ""
    work_dir: str = ""
    std_out: str = ""
    std_err: str = ""
    comment: str = ""
    admin_comment: str = ""
    summary: Summary | None = None  # of its samples, where it was asked for; not Slurm's
    slurm_version: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)  # field -> command that supplied it
    missing: Mapping[str, str] = field(default_factory=dict)  # field -> why it is unknown
    #: what measures its steps (JobAcctGatherType): cgroup/v1, cgroup/v2, cgroup, linux
    acct_gather: str = ""
    acct_params: str = ""  # JobAcctGatherParams: no_file_cache, UsePss, …

    @property
    def is_pending(self) -> bool:
        return self.state in PENDING_STATES

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING_STATES

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    def is_same_attempt(self, before: Job) -> bool:
        """Whether it has not started anew since an earlier answer, as far as both show it."""
        return not (
            _differ(self.restarts, before.restarts)
            or _differ(self.start, before.start)
            or (self.is_pending and not before.is_pending)
            or (before.has_ended and not self.has_ended)
        )

    @property
    def gpus(self) -> int | None:
        """Allocated, else requested."""
        known = self.allocated.gpus
        return known if known is not None else self.requested.resources.gpus

    @property
    def lists_no_gpus(self) -> bool:
        """Whether Slurm lists what it gave, and neither that nor the request names any GPU."""
        named = f"{self.requested.gres} {self.submit_line}".lower()
        return bool(self.gpus is None and self.allocated.tres and "gpu" not in named)

    def elapsed_at(self, now: float) -> float | None:
        """How long it has run by `now` of our clock: as Slurm counted, and what passed since then.

        None where Slurm did not count. No wall clock is compared with another one.
        """
        if self.elapsed_s is None or self.told_at is None:
            return None
        goes_on = self.is_running and self.state not in HELD_STATES
        return self.elapsed_s + (max(0.0, now - self.told_at) if goes_on else 0.0)

    def as_of(self, now: float) -> Job:
        """The same job with the time it has run counted up to `now` of our clock."""
        elapsed_s = self.elapsed_at(now)
        if elapsed_s is None or self.told_at is None:
            return self
        return replace(self, elapsed_s=elapsed_s, told_at=max(now, self.told_at))

    @property
    def user_steps(self) -> list[Step]:
        """What the user started, the batch script included: neither Slurm's own nor gpumon's."""
        return [each for each in self.steps if each.id != "extern" and not each.is_own]

    def with_own_steps(self, ids: Collection[str]) -> Job:
        """The same job; of these steps recordings state that gpumon is all that they run."""
        steps = [
            replace(each, recorded_own=True) if each.id in ids else each for each in self.steps
        ]
        return replace(self, steps=tuple(steps)) if ids else self

    @property
    def suspended_s(self) -> float | None:
        """How long it was suspended in all by now, or by its end; None where that is not known."""
        if self.start is None or self.elapsed_s is None:
            return None
        if self.state == "RUNNING" and self.end is not None and self.time_limit_s:
            return max(0.0, self.end - self.time_limit_s - self.start)  # Slurm moves its end
        until = self.end if self.has_ended else self.told_at
        if until is None:
            return None
        suspended_s = max(0.0, until - self.start - self.elapsed_s)
        return suspended_s if self.has_ended or suspended_s >= _NEAR_S else 0.0

    @property
    def ahead_s(self) -> float | None:
        """By how much our clock is ahead of Slurm's; None where this answer does not show it."""
        if self.state != "RUNNING" or self.elapsed_s is None or self.told_at is None:
            return None
        starts = [] if self.start is None else [self.start]
        if self.end is not None and self.time_limit_s:
            starts.append(self.end - self.time_limit_s)  # later by the time it was suspended
        return self.told_at - self.elapsed_s - max(starts) if starts else None

    def on_our_clock(self, ahead_s: float | None) -> Job:
        """The same with its times on a clock that is so much ahead of Slurm's (None: not known)."""
        if ahead_s is None or abs(ahead_s) < _NEAR_S:
            return self
        moved = {
            name: at + ahead_s
            for name in ("submit", "eligible", "start", "end", "expected_start")
            if (at := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    def with_source(self, command: str) -> Job:
        """The same job, every field that it knows marked as told by `command`."""
        return replace(self, sources={name: command for name in _known(self)})

    def merged(self, other: Job) -> Job:
        """This job, completed by `other`; where both have a value, this one's is used.

        Steps of the two are joined by id, ours first; what was requested and allocated, figure
        by figure.
        """
        ours = set(_known(self))
        taken = {
            name: getattr(other, name)
            for name in _known(other)
            if name not in ours and name not in ("sources", "missing", "steps")
        }
        both = {
            "requested": _filled(self.requested, other.requested),
            "allocated": _filled(self.allocated, other.allocated),
        }
        known_steps = {step.id for step in self.steps}
        steps = self.steps + tuple(step for step in other.steps if step.id not in known_steps)
        told = {*taken, "steps"}
        sources = {**{n: other.sources[n] for n in told if n in other.sources}, **self.sources}
        missing = {
            name: why
            for name, why in {**other.missing, **self.missing}.items()
            if name not in ours and name not in taken
        }
        told_at = other.told_at if "elapsed_s" in taken else self.told_at
        return replace(
            self, **{**taken, **both}, told_at=told_at, steps=steps, sources=sources,
            missing=missing,
        )  # fmt: skip


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one != other


_Figures = TypeVar("_Figures", Request, Resources)


def _filled(ours: _Figures, other: _Figures) -> _Figures:
    """`ours`, completed by `other`."""
    taken: dict[str, Any] = {
        each.name: getattr(other, each.name)
        for each in fields(ours)
        if getattr(ours, each.name) in (None, "", {})
    }
    if isinstance(ours, Request) and isinstance(other, Request):
        taken["resources"] = _filled(ours.resources, other.resources)
    return replace(ours, **taken)


_NOTHING = {"requested": Request(), "allocated": Resources()}
_NAMES = tuple(each.name for each in fields(Job) if each.compare)


def known_names(values: Mapping[str, Any]) -> list[str]:
    """Names of a job's fields that hold something else than "not known"; 0 is known."""
    given = values.get
    known = [name for name in _NAMES if (value := given(name)) or value == 0]
    for name, nothing in _NOTHING.items():
        if given(name) == nothing:
            known.remove(name)
    return known


def _known(job: Job) -> list[str]:
    return known_names(vars(job))
