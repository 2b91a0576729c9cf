"""Training on one GPU, on several, on several nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.simulator import memory
from tests.simulator.job import Program, Request
from tests.simulator.loads import Cores, Node, Segment
from tests.simulator.machine import A40, A100, GIB, H100, RTX3090, V100, Board
from tests.simulator.programs.parts import (
    BF16,
    FP32,
    HOUR,
    MIN,
    TF32,
    Kernel,
    Step,
    alike,
    duration,
    quiet,
    repeat,
    request,
    usual_board,
)


@dataclass
class Setup:
    """A training program before it is laid out in time; mishaps change it."""

    rng: Random
    nodes: int
    gpus: int
    board: Board
    kernel: Kernel
    step: Step
    seconds: float
    framework: str
    need_share: float  # of GPU memory
    host: float  # B of a node
    staging_s: float = 0.0
    compile_s: float = 0.0
    checkpoint_s: float = 20.0
    causes: dict[str, float] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return max(1, round(self.step.loaders)) * self.gpus

    @property
    def cores(self) -> Cores:
        demand = self.gpus * (1.0 + self.step.loader_cores)
        return Cores(demand, threads=4 * self.gpus + self.workers)

    def node(self) -> Node:
        link = 4e9 if self.board.nvlinks and self.gpus > 1 else 0.0
        pcie = 3e9 if self.gpus > 1 and not link else 4e8
        net = 3e9 if self.nodes > 1 else 1e6
        busy = self.step.gpu(self.kernel, pcie, link * 8)
        return Node((busy,) * self.gpus, self.cores, read=3e7 * self.gpus, net=net)

    def evaluation(self) -> Node:
        step = self.step._replace(comm=0.0, compute=self.step.compute * 0.4)
        return Node((step.gpu(self.kernel),) * self.gpus, self.cores, read=3e7)

    def segments(self) -> list[Segment]:
        nodes, gpus = self.nodes, self.gpus
        begin = [alike(20, "import", nodes, quiet(gpus, 1.0 * gpus, read=5e7))]
        if self.staging_s:
            begin.append(alike(self.staging_s, "stage", nodes, quiet(gpus, 0.6, read=4e8,
                                                                     write=4e8)))  # fmt: skip
        if self.compile_s:
            begin.append(alike(self.compile_s, "compile", nodes, quiet(gpus, 1.5 * gpus)))
        train = alike(20 * MIN, "train", nodes, self.node())
        checkpoint = alike(self.checkpoint_s, "checkpoint", nodes, quiet(gpus, 1.0, write=5e8))
        evaluate = alike(60.0, "eval", nodes, self.evaluation())
        main = repeat(self.seconds, [evaluate, checkpoint], train)
        return begin + main

    def hold(self) -> memory.Held:
        need = self.need_share * self.board.mem_bytes
        allocators = {"torch": memory.caching, "tf": memory.tensorflow, "jax": memory.jax}
        return allocators[self.framework](self.rng, need, self.board)

    def program(self, segments: list[Segment] | None = None) -> Program:
        rng = self.rng
        rest = Program(
            "train", segments if segments is not None else self.segments(),
            [memory.settles(rng, self.host * rng.uniform(0.97, 1.0), 90)
             for _ in range(self.nodes)],
            [[[self.hold()] for _ in range(self.gpus)] for _ in range(self.nodes)],
            kernels=self.kernel.limits, framework=self.framework, ranks=self.gpus,
            workers=self.workers, mem_sd=rng.uniform(0.003, 0.03), time_sd=rng.uniform(0.01, 0.06),
            causes=dict(self.causes),
        )  # fmt: skip
        return rest

    def request(self, program: Program) -> Request:
        cpus = max(1, round(self.cores.demand * self.rng.uniform(1.05, 1.35) + 0.4))
        return request(
            self.rng, program, self.host, nodes=self.nodes, cpus=cpus, gpus=self.gpus,
            board=self.board,
        )  # fmt: skip


def setup(
    rng: Random, *, gpus: int | None = None, nodes: int | None = None, board: Board | None = None
) -> Setup:
    """A healthy one."""
    nodes = nodes or rng.choice((1, 1, 1, 1, 1, 2, 2, 4))
    gpus = gpus or (
        rng.choice((1, 1, 1, 1, 1, 2, 2, 4, 4, 8)) if nodes == 1 else rng.choice((1, 2))
    )
    board = board or (usual_board(rng, A100, H100, A40, RTX3090, V100) if nodes == 1 else A100)
    many = nodes * gpus > 1
    kernel = rng.choice((BF16, BF16, TF32)) if float(board.cc) >= 8 else FP32
    compute = rng.uniform(0.08, 0.8)
    step = Step(
        compute,
        comm=compute * rng.uniform(0.02, 0.18) if many else 0.0,
        host=compute * rng.uniform(0.01, 0.1),
        items_cpu=compute * rng.uniform(0.3, 2.6),
        loaders=4,
    )
    framework = rng.choice(("torch", "torch", "torch", "tf", "jax"))
    return Setup(
        rng, nodes, gpus, board, kernel, step, duration(rng), framework,
        need_share=rng.uniform(0.55, 0.88), host=gpus * rng.uniform(4, 18) * GIB,
        compile_s=rng.uniform(20, 120) if framework != "torch" else 0.0,
        staging_s=rng.choice((0, 0, rng.uniform(20, 150))),
        checkpoint_s=rng.uniform(5, 40),
    )  # fmt: skip


Drawn = tuple[str, Program, Request]


def healthy(rng: Random) -> Drawn:
    made = setup(rng)
    program = made.program()
    where = f"{made.nodes} × {made.gpus} {made.board.gres}"
    return f"healthy {made.framework} training on {where}", program, made.request(program)


def input_bound(rng: Random) -> Drawn:
    """Too few loaders for what each batch costs to decode."""
    made = setup(rng, nodes=1)
    wait = rng.uniform(0.55, 0.9)
    full = (made.step.compute + made.step.comm + made.step.host) / (1 - wait)
    loaders = rng.choice((1, 2, 4))
    made.step = made.step._replace(items_cpu=full * loaders, loaders=loaders)
    made.causes["input"] = made.step.input_wait
    program = made.program()
    asked = made.request(program)
    return f"training waits {wait:.0%} of its time for {loaders} loaders", program, asked


def somewhat_input_bound(rng: Random) -> Drawn:
    """A share of waiting that one may or may not speak of."""
    made = setup(rng, nodes=1)
    wait = rng.uniform(0.1, 0.4)
    full = (made.step.compute + made.step.comm + made.step.host) / (1 - wait)
    made.step = made.step._replace(items_cpu=full * 4, loaders=4)
    made.causes["input"] = made.step.input_wait
    program = made.program()
    return f"training waits {wait:.0%} of its time for its loaders", program, made.request(program)


def host_stall(rng: Random) -> Drawn:
    """One Python thread does work between the kernels."""
    made = setup(rng, nodes=1, gpus=1)
    wait = rng.uniform(0.55, 0.9)
    host = made.step.compute * wait / (1 - wait)
    made.step = made.step._replace(host=host, items_cpu=made.step.compute * 0.3, comm=0.0)
    made.causes["host"] = made.step.host_wait
    program = made.program()
    return f"the GPU waits {wait:.0%} of its time for Python", program, made.request(program)


def comm_bound(rng: Random) -> Drawn:
    """Gradients over PCIe take longer than computing them."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4, 8)), board=rng.choice((A40, RTX3090)))
    share = rng.uniform(0.6, 0.85)
    step = made.step
    made.step = step._replace(comm=step.compute * share / (1 - share), host=step.host * 0.2,
                              items_cpu=step.compute * 0.3)  # fmt: skip
    made.causes["comm"] = share
    segments = made.segments()
    link = share * rng.uniform(17e9, 20e9)  # a ring moves as much over each of its links
    segments = [each._replace(nodes=tuple(node._replace(gpus=tuple(
        gpu._replace(pcie=link) if each.name == "train" else gpu
        for gpu in node.gpus)) for node in each.nodes)) for each in segments]  # fmt: skip
    program = made.program(segments)
    return f"{share:.0%} of the time in collectives over PCIe", program, made.request(program)


def some_gpus(rng: Random) -> Drawn:
    """A script for one device with several GPUs allocated."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4, 8)))
    works = rng.randint(1, made.gpus - 1)
    many, made.gpus = made.gpus, works
    if works == 1:
        made.step = made.step._replace(comm=0.0)
    program = made.program()
    asked = made.request(program)
    asked.gpus = many
    idle = tuple(quiet(many - works).gpus)
    program.segments = [each._replace(nodes=tuple(
        node._replace(gpus=(*node.gpus, *idle)) for node in each.nodes))
        for each in program.segments]  # fmt: skip
    program.held = [[*gpus, *[[] for _ in range(many - works)]] for gpus in program.held]
    return f"{works} of {many} GPUs are used", program, asked


def never(rng: Random) -> Drawn:
    """PyTorch without CUDA: everything runs on the cores."""
    made = setup(rng, nodes=1, gpus=rng.choice((1, 1, 2, 4)))
    seconds = duration(rng, 0.6, 5)
    cores = rng.choice((4, 8, 16))
    node = Node(quiet(made.gpus).gpus, Cores(cores * 0.95, threads=cores), read=2e7)
    program = made.program([alike(20, "import", 1, quiet(made.gpus, 1.0)),
                            alike(seconds, "train", 1, node)])  # fmt: skip
    program.held, program.needs_gpu, program.framework = (), False, ""
    program.ranks, program.workers = 1, 0
    asked = request(rng, program, made.host, cpus=cores, gpus=made.gpus, board=made.board)
    return "training fell back to the cores: no GPU was ever used", program, asked


def sequential(rng: Random) -> Drawn:
    """Models are trained one after another, each on its own GPU of the job."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4)))
    made.step = made.step._replace(comm=0.0)
    part = duration(rng, 0.5, 1.2)
    one, none = made.node(), quiet(made.gpus)
    segments = [
        Segment(part, "train", (one._replace(
            gpus=tuple(one.gpus[0] if each == k else none.gpus[0] for each in range(made.gpus)),
            cores=one.cores._replace(demand=one.cores.demand / made.gpus)),))
        for k in range(made.gpus)
    ]  # fmt: skip
    made.framework = "torch"
    program = made.program(segments)
    program.causes["sequential"] = 1 - 1 / made.gpus
    return f"{made.gpus} GPUs used one after another", program, made.request(program)


def phase(rng: Random, where: str) -> Drawn:
    """A long stretch without GPU work, at the start, in the middle or at the end."""
    made = setup(rng, nodes=1)
    made.seconds = duration(rng, 0.75, 2.5)
    share = rng.uniform(0.3, 0.6)
    gap = max(40 * MIN, made.seconds * share / (1 - share))
    what = rng.choice(("stage", "cpu", "nothing"))
    node = {
        "stage": quiet(made.gpus, 0.5, read=3e8, write=3e8),
        "cpu": quiet(made.gpus, made.cores.demand * 0.9),
        "nothing": quiet(made.gpus, 0.02),
    }[what]
    idle = alike(gap, f"idle: {what}", 1, node)
    segments = made.segments()
    at = {"start": 1, "middle": len(segments) // 2, "end": len(segments)}[where]
    if where == "start":
        segments = [segments[0], idle, *segments[1:]]
    else:
        segments = [*segments[:at], idle, *segments[at:]]
    program = made.program(segments)
    about = f"all GPUs idle for {gap / HOUR:.1f} h at the {where} ({what})"
    return about, program, made.request(program)


def idle_start(rng: Random) -> Drawn:
    return phase(rng, "start")


def idle_middle(rng: Random) -> Drawn:
    return phase(rng, "middle")


def idle_end(rng: Random) -> Drawn:
    return phase(rng, "end")


def staging(rng: Random) -> Drawn:
    """A few minutes of copying before hours of training: nothing to speak of."""
    made = setup(rng, nodes=1)
    made.seconds = duration(rng, 1.5, 3)
    made.staging_s = rng.uniform(100, 300)
    program = made.program()
    return (
        f"{made.staging_s / 60:.0f} min of staging, then training",
        program,
        made.request(program),
    )
