"""A job: a program, what was requested for it, how it ends, and how a recording sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulator.loads import Kernels, Segment
from tests.simulator.machine import GIB, Board
from tests.simulator.memory import Curve, Held

#: s between two looks at host memory when it is decided whether the kernel ends the job
LOOK_S = 5.0
NODE_CORES = 128
NODE_MEM = 2000 * GIB


@dataclass
class Program:
    """What runs, as it would run undisturbed on what was requested."""

    kind: str
    segments: list[Segment]
    host: Sequence[Curve]  # memory that cannot be given back, by node
    held: Sequence[Sequence[Sequence[Held]]] = ()  # by node, GPU, process
    shmem: Sequence[Curve] = ()
    kernels: Kernels = field(default_factory=dict)
    command: str = "python train.py"
    name: str = "python"
    framework: str = ""
    ranks: int = 1  # main processes on each node
    workers: int = 0  # helpers of all main processes on a node
    rank_cores: float = 1.0  # cores that each main process uses itself
    needs_gpu: bool = True  # it would not start without one
    needs_ranks: bool = False  # the number of its processes follows the cores requested
    mem_sd: float = 0.01  # how much the next, identical run differs, relative
    time_sd: float = 0.03
    causes: dict[str, float] = field(default_factory=dict)  # what is wrong with it, and how much
    interactive: bool = False
    failed_step: bool = False  # a step runs out of memory; the script goes on
    lost: tuple[float, int] | None = None  # s, GPU of the first node: it falls off the bus
    dead: tuple[float, int] | None = None  # s, node: all of its processes end
    spike: tuple[float, float] | None = None  # s, B: of a second, on the first node
    reread: float = 0.0  # B of files, by node, that it reads again and again, from page cache

    @property
    def seconds(self) -> float:
        return sum(segment.seconds for segment in self.segments)


@dataclass
class Request:
    """What was asked for, by node."""

    nodes: int
    cpus: int
    mem: float
    limit_s: float
    gpus: int = 0
    board: Board | None = None
    mem_form: str = "node"  # node, cpu, gpu
    tasks: int = 1  # on each node
    tasks_form: str = "job"  # --ntasks, or node: --ntasks-per-node
    partition: str = "standard"
    submit_line: str = ""
    threads_per_core: int = 1  # hardware threads of a core of which the job uses one
    whole: bool = False  # --exclusive --mem=0
    limit_words: str = ""  # UNLIMITED, in place of a limit

    @property
    def cpus_per_gpu(self) -> bool:
        return "--cpus-per-gpu" in self.submit_line

    @property
    def usable(self) -> int:
        """CPUs of a node that its processes can use."""
        return self.cpus // self.threads_per_core


@dataclass(frozen=True)
class Fate:
    """What happens to it from outside or by its own fault, unless something ends it before."""

    at: float = 1e12  # s
    state: str = "COMPLETED"
    code: int = 0
    signal: int = 0
    log: str = ""


@dataclass
class View:
    """How it is seen."""

    interval_s: float = 5.0
    since: float = 0.0
    until: float = 1e12
    gaps: Sequence[tuple[float, float]] = ()
    polled: bool = False  # the driver keeps no samples and tells no use by process
    no_pressure: bool = False  # the kernel has no PSI
    no_power: bool = False
    old_errors: int = 0  # corrected memory errors from before the job
    neighbours: float = 0.0  # cores that other jobs use on its nodes
    slurm: str = "24.11.7"
    gather: str = "cgroup/v2"
    jobstats: bool = False  # the site stores its summary with the job
    noise: int = 0  # another one: the same job, its readings anew
    node_gpus: int = 0  # further GPUs of its nodes, on which other users' jobs run
    probe: str = ""  # told: inside its programs; silent: later no more; gaps: not in the middle

    def covers(self, seconds: float) -> bool:
        """Whether nearly all of the run was recorded, without a hole."""
        return self.since <= 30 and self.until >= seconds - 30 and not self.gaps

    def is_told(self, second: float, seconds: float) -> bool:
        """Whether the probe tells anything then, of a run of so many seconds."""
        share = second / seconds
        silent = self.probe == "silent" and share > 0.5
        return bool(self.probe) and not silent and not (self.probe == "gaps" and 0.3 < share < 0.5)


@dataclass
class SimJob:
    seed: int
    number: int
    story: str
    program: Program
    request: Request
    fate: Fate = Fate()
    view: View = field(default_factory=View)
    xids: Sequence[tuple[float, int, str]] = ()  # s, GPU of the first node, text
    ended: Ended = field(init=False)

    def __post_init__(self) -> None:
        self.ended = _end(self)

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.number}"


@dataclass(frozen=True)
class Ended:
    """How and when it truly ended."""

    seconds: float
    state: str
    code: int = 0
    signal: int = 0
    log: str = ""
    oom_node: int | None = None


def used(job: SimJob, node: int, second: float) -> float:
    """Host memory that cannot be given back."""
    program = job.program
    shmem = program.shmem[node](second) if program.shmem else 0.0
    return program.host[node](second) + shmem


def peak(job: SimJob, until: float) -> float:
    """The most that any node used up to then."""
    return max(peaks(job, until))


def peaks(job: SimJob, until: float) -> list[float]:
    """The most that each node used up to then."""
    steps = range(int(until / LOOK_S) + 1)
    found = [max(used(job, node, n * LOOK_S) for n in steps) for node in range(job.request.nodes)]
    spike = job.program.spike
    if spike is not None and spike[0] < until:
        found[0] = max(found[0], used(job, 0, spike[0]) + spike[1])
    return found


def _end(job: SimJob) -> Ended:
    program, request, fate = job.program, job.request, job.fate
    last = min(program.seconds, request.limit_s, fate.at)
    for n in range(int(last / LOOK_S) + 1):
        for node in range(request.nodes):
            if used(job, node, n * LOOK_S) > request.mem:
                return Ended(max(20.0, n * LOOK_S), "OUT_OF_MEMORY", 0, 125, "", node)
    if last == fate.at:
        return Ended(last, fate.state, fate.code, fate.signal, fate.log)
    if last == request.limit_s:
        return Ended(last + 15, "TIMEOUT")
    return Ended(last, "COMPLETED")
