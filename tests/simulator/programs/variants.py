"""Shapes of healthy and of middling programs: pipelines, long phases, bursts, spikes, threads."""

from __future__ import annotations

from random import Random

from tests.simulator import memory
from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import IDLE, Cores, Node, Segment
from tests.simulator.machine import A40, A100, GIB, H100, RTX3090
from tests.simulator.programs import cpu
from tests.simulator.programs.parts import (
    BF16,
    DECODE,
    FP32,
    MIN,
    alike,
    duration,
    load,
    quiet,
    repeat,
    request,
)
from tests.simulator.programs.training import setup

Drawn = tuple[str, Program, Request]


# -- training


def pipeline(rng: Random) -> Drawn:
    """Stages on several GPUs wait for each other in turn: bubbles, alike on all."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4, 8)), board=rng.choice((A100, H100)))
    bubble = (made.gpus - 1) / (made.gpus - 1 + rng.choice((8, 16, 32)))
    step = made.step.compute
    made.step = made.step._replace(comm=0.0, host=step * bubble / (1 - bubble), items_cpu=0.2)
    program = made.program()
    program.causes["bubbles"] = bubble
    return f"pipeline over {made.gpus} GPUs, bubbles {bubble:.0%}", program, made.request(program)


def long_compile(rng: Random) -> Drawn:
    """XLA compiles for a quarter of an hour before hours of work."""
    made = setup(rng, nodes=1)
    made.framework, made.compile_s = "jax", rng.uniform(8, 20) * MIN
    made.seconds = duration(rng, 2.5, 4)
    program = made.program()
    return (
        f"compiles for {made.compile_s / MIN:.0f} min, then trains",
        program,
        made.request(program),
    )


def long_checkpoints(rng: Random) -> Drawn:
    """Minutes of writing every 20 minutes."""
    made = setup(rng, nodes=1)
    made.checkpoint_s = rng.uniform(60, 240)
    program = made.program()
    return f"checkpoints of {made.checkpoint_s:.0f} s", program, made.request(program)


def eval_on_one(rng: Random) -> Drawn:
    """Each epoch ends with an evaluation on the first GPU alone."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4)))
    alone = made.node()
    alone = alone._replace(gpus=(alone.gpus[0], *(IDLE,) * (made.gpus - 1)))
    body = [Segment(rng.uniform(2, 5) * MIN, "eval", (alone,))]
    segments = [alike(20, "import", 1, quiet(made.gpus, 1.0)),
                *repeat(made.seconds, body, alike(20 * MIN, "train", 1, made.node()))]  # fmt: skip
    program = made.program(segments)
    return f"evaluates on one of {made.gpus} GPUs", program, made.request(program)


def small_model(rng: Random) -> Drawn:
    """Busy, but hardly any memory used."""
    made = setup(rng, nodes=1, gpus=1)
    made.need_share, made.framework = rng.uniform(0.03, 0.12), "torch"
    made.step = made.step._replace(items_cpu=made.step.compute * 0.5)
    program = made.program()
    return f"busy, with {made.need_share:.0%} of the GPU memory", program, made.request(program)


def shared_memory(rng: Random) -> Drawn:
    """The data set lives in /dev/shm."""
    made = setup(rng, nodes=1)
    size = made.host * rng.uniform(0.5, 3)
    program = made.program()
    program.shmem = [memory.settles(rng, size, 300)]
    made.host += size
    return f"{size / GIB:.0f} GiB in shared memory", program, made.request(program)


def rank_zero(rng: Random) -> Drawn:
    """The first node holds what is gathered from the others."""
    made = setup(rng, nodes=rng.choice((2, 4)))
    program = made.program()
    more = made.host * rng.uniform(0.5, 1.5)
    program.host = [memory.settles(rng, made.host + more, 200), *program.host[1:]]
    made.host += more
    return "the first node needs more memory than the others", program, made.request(program)


def processes_share(rng: Random) -> Drawn:
    """Several own processes on one GPU."""
    count = rng.choice((2, 3, 4))
    board = rng.choice((A100, H100))
    host = count * rng.uniform(3, 8) * GIB
    held = [memory.caching(rng, 0.8 / count * board.mem_bytes, board) for _ in range(count)]
    cores = count * 1.3
    node = Node((load(BF16, 0.92),), Cores(cores, threads=4 * count), read=2e7)
    program = Program(
        "sweep", [alike(duration(rng), "train", 1, node)], [memory.settles(rng, host, 60)],
        [[held]], kernels=BF16.limits, framework="torch", mem_sd=0.02, time_sd=0.04,
    )  # fmt: skip
    asked = request(rng, program, host, cpus=round(cores + 0.5), gpus=1, board=board)
    return f"{count} own processes on one GPU", program, asked


def tensor_parallel_server(rng: Random) -> tuple:
    count, board = rng.choice((2, 4)), rng.choice((A100, H100))
    gpu = load(DECODE, rng.uniform(0.6, 0.95), waiting=rng.uniform(0.05, 0.2), nvlink=5e9,
               cycle_s=0.03)  # fmt: skip
    host = rng.uniform(20, 60) * GIB
    held = [[memory.vllm(rng, 0.5 * board.mem_bytes, board)] for _ in range(count)]
    node = Node((gpu,) * count, Cores(count * 1.02, threads=60))
    segments = [alike(150, "load", 1, quiet(count, 1.2, read=3e8)),
                alike(duration(rng), "serve", 1, node)]  # fmt: skip
    program = Program(
        "serve", segments, [memory.settles(rng, host, 120)], [held], kernels=DECODE.limits,
        framework="vllm", command="vllm serve big", name="vllm", ranks=count, mem_sd=0.01,
        time_sd=0.02,
    )  # fmt: skip
    asked = request(rng, program, host, cpus=count + 1, gpus=count, board=board)
    end = program.seconds - 1
    return f"LLM server on {count} GPUs", program, asked, Fate(end, "CANCELLED", 0, 15)


def ends_on_cores(rng: Random) -> Drawn:
    """A few minutes of writing results after the last kernel."""
    made = setup(rng, nodes=1)
    made.seconds = duration(rng, 1.5, 4)
    tail = alike(rng.uniform(60, 400), "write", 1, quiet(made.gpus, 1.0, write=2e8))
    program = made.program([*made.segments(), tail])
    return f"{tail.seconds:.0f} s of writing at the end", program, made.request(program)


def late_spike(rng: Random) -> Drawn:
    """Results are gathered in host memory in the last minute."""
    made = setup(rng, nodes=1)
    program = made.program()
    height, begins = made.host * rng.uniform(0.5, 1.5), program.seconds - rng.uniform(25, 90)
    base = program.host[0]
    program.host = [lambda second: base(second) + (height if second >= begins else 0.0)]
    made.host += height
    return f"{height / GIB:.0f} GiB more in the last minute", program, made.request(program)


def brief_spike(rng: Random) -> Drawn:
    """A spike of host memory that polls may miss; without page cache the kernel's peak shows it."""
    made = setup(rng, nodes=1)
    program = made.program()
    program.segments = [each._replace(nodes=tuple(node._replace(read=0.0, write=0.0)
                        for node in each.nodes)) for each in program.segments]  # fmt: skip
    height = made.host * rng.uniform(0.2, 0.7)
    at = round(program.seconds * rng.uniform(0.2, 0.8) / 30) * 30.0
    program.spike = (at, height)
    made.host += height
    return f"{height / GIB:.0f} GiB more for a second", program, made.request(program)


def light_server(rng: Random) -> tuple:
    """An embedding service: a little work all the time."""
    board = rng.choice((A100, A40, RTX3090))
    busy = rng.uniform(0.12, 0.3)
    host = rng.uniform(4, 12) * GIB
    node = Node((load(FP32, busy, cycle_s=0.05),), Cores(rng.uniform(0.2, 0.6), threads=20))
    program = Program(
        "embed", [alike(duration(rng, 1, 4), "serve", 1, node)], [memory.settles(rng, host, 60)],
        [[[memory.caching(rng, 3 * GIB, board)]]], kernels=FP32.limits, framework="torch",
        command="python serve.py", mem_sd=0.01,
    )  # fmt: skip
    asked = request(rng, program, host, cpus=2, gpus=1, board=board)
    end = program.seconds - 1
    return f"a service, busy {busy:.0%}", program, asked, Fate(end, "CANCELLED", 0, 15)


# -- cores


def hybrid(rng: Random) -> Drawn:
    """MPI ranks with threads."""
    tasks, threads, nodes = rng.choice((2, 4, 8)), rng.choice((2, 4, 8)), rng.choice((1, 1, 2))
    cores = tasks * threads
    node = Node(cores=Cores(cores * rng.uniform(0.93, 0.99), threads=cores), net=5e8 * (nodes > 1))
    made = cpu.drawn(rng, "hybrid", [(duration(rng), node)], cores * rng.uniform(0.5, 2) * GIB,
                     nodes=nodes, cpus=cores, tasks=tasks, ranks=tasks,
                     needs_ranks=True)  # fmt: skip
    return f"{tasks} ranks of {threads} threads on each of {nodes} nodes", *made


def burst_of_cores(rng: Random) -> Drawn:
    """Serial, with a short parallel part that would take long on few cores."""
    cores = rng.choice((8, 16, 32))
    share = rng.uniform(0.06, 0.25)
    busy = Node(cores=Cores(cores * 0.97, threads=cores))
    seconds = duration(rng)
    parts = [(seconds * (1 - share), Node(cores=Cores(0.99))), (seconds * share, busy)]
    made = cpu.drawn(rng, "mixed", parts, rng.uniform(2, 16) * GIB, cpus=cores)
    return f"{cores} threads for {share:.0%} of the time, serial before", *made


def sleeping_threads(rng: Random) -> Drawn:
    """Many threads exist; as many as there are cores run."""
    cores = rng.choice((4, 8, 16))
    node = Node(cores=Cores(cores * 0.95, threads=cores * rng.choice((4, 8, 16))))
    made = cpu.drawn(rng, "java", [(duration(rng), node)], rng.uniform(4, 30) * GIB, cpus=cores)
    return f"{node.cores.threads} threads, of which {cores} run", *made


def waits_forever(rng: Random) -> tuple:
    """Waits for a licence; nothing runs until somebody cancels it."""
    cores = rng.choice((4, 8))
    node = Node(cores=Cores(0.001, threads=2))
    program, asked = cpu.drawn(rng, "wait", [(duration(rng, 1, 3), node)], 0.3 * GIB, cpus=cores)
    end = program.seconds - 1
    return "waits for a licence", program, asked, Fate(end, "CANCELLED", 0, 15)


def half_of_the_cores(rng: Random) -> Drawn:
    """A pool with half as many workers as there are cores."""
    cores = rng.choice((8, 16, 32))
    node = Node(cores=Cores(cores / 2 * 0.98, threads=cores // 2))
    made = cpu.drawn(rng, "pool", [(duration(rng), node)], rng.uniform(4, 30) * GIB, cpus=cores,
                     workers=cores // 2)  # fmt: skip
    return f"{cores // 2} workers on {cores} cores", *made


def cpu_ends_badly(rng: Random) -> tuple:
    """Killed by a signal, failed, preempted, out of time."""
    cores = rng.choice((2, 8, 16))
    node = Node(cores=Cores(cores * 0.97, threads=cores))
    program, asked = cpu.drawn(rng, "omp", [(duration(rng), node)], rng.uniform(2, 30) * GIB,
                               cpus=cores)  # fmt: skip
    state, code, signal = rng.choice((("FAILED", 1, 0), ("FAILED", 137, 0), ("FAILED", 0, 11),
                                      ("PREEMPTED", 0, 15), ("NODE_FAIL", 0, 0),
                                      ("CANCELLED", 0, 15)))  # fmt: skip
    at = program.seconds * rng.uniform(0.1, 0.95)
    return (f"ends as {state} {code}:{signal}", program, asked,
            Fate(at, state, code, signal))  # fmt: skip


def cpu_out_of_memory(rng: Random) -> Drawn:
    """More memory needed than asked for."""
    cores = rng.choice((2, 8))
    node = Node(cores=Cores(cores * 0.97, threads=cores))
    host = rng.uniform(4, 60) * GIB
    program, asked = cpu.drawn(rng, "fit", [(duration(rng), node)], host, cpus=cores)
    program.host = [memory.grows(program.host[0], host / program.seconds)]
    asked.mem_form, asked.mem = "node", round(host * rng.uniform(0.7, 1.6) / GIB) * GIB
    program.causes["grows"] = 1.0  # it looks like a leak
    return "needs more memory the longer it computes", program, asked


def cpu_too_long(rng: Random) -> Drawn:
    cores = rng.choice((1, 4, 16))
    node = Node(cores=Cores(cores * 0.97, threads=cores))
    program, asked = cpu.drawn(rng, "omp", [(duration(rng), node)], rng.uniform(1, 30) * GIB,
                               cpus=cores)  # fmt: skip
    asked.limit_s = max(1800.0, round(program.seconds * rng.uniform(0.3, 0.95) / 60) * 60.0)
    return "healthy, but the limit is too short", program, asked
