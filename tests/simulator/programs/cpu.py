"""Programs without GPUs: serial, threads, MPI, bound to a core, waiting for storage."""

from __future__ import annotations

from random import Random

from tests.simulator import memory
from tests.simulator.job import Program, Request
from tests.simulator.loads import Cores, Node
from tests.simulator.machine import GIB
from tests.simulator.programs.parts import alike, duration, request

Drawn = tuple[str, Program, Request]


def drawn(
    rng: Random, kind: str, parts: list[tuple[float, Node]], host: float, *, nodes: int = 1,
    cpus: int = 1, tasks: int = 1, **rest: object,
) -> tuple[Program, Request]:  # fmt: skip
    segments = [alike(seconds, kind, nodes, node) for seconds, node in parts]
    program = Program(
        kind, segments, [memory.settles(rng, host * rng.uniform(0.97, 1), 120)
                         for _ in range(nodes)],
        command=f"./{kind}", name=kind, mem_sd=rng.uniform(0.003, 0.03), needs_gpu=False,
        time_sd=rng.uniform(0.01, 0.06), **rest,
    )  # fmt: skip
    asked = request(rng, program, host, nodes=nodes, cpus=cpus, tasks=tasks)
    return program, asked


def serial(rng: Random) -> Drawn:
    """One thread, one core."""
    node = Node(cores=Cores(0.98), read=2e6)
    made = drawn(rng, "fit", [(duration(rng), node)], rng.uniform(0.5, 8) * GIB, cpus=1)
    return "serial, on one core", *made


def serial_on_many(rng: Random) -> Drawn:
    cores = rng.choice((4, 8, 16, 32))
    node = Node(cores=Cores(0.99), read=2e6)
    made = drawn(rng, "fit", [(duration(rng), node)], rng.uniform(0.5, 8) * GIB, cpus=cores)
    return f"serial, on {cores} cores", *made


def openmp(rng: Random) -> Drawn:
    cores = rng.choice((4, 8, 16, 32, 64))
    node = Node(cores=Cores(cores * rng.uniform(0.93, 0.99), threads=cores))
    made = drawn(rng, "omp", [(duration(rng), node)], rng.uniform(2, 40) * GIB, cpus=cores)
    return f"{cores} threads on as many cores", *made


def openmp_phases(rng: Random) -> Drawn:
    """Threads work most of the time; a serial part before and after."""
    cores = rng.choice((8, 16, 32))
    seconds, share = duration(rng), rng.uniform(0.05, 0.12)
    busy, alone = Node(cores=Cores(cores * 0.97, threads=cores)), Node(cores=Cores(0.99))
    parts = [(seconds * share, alone), (seconds, busy), (seconds * share, alone)]
    made = drawn(rng, "omp", parts, rng.uniform(2, 40) * GIB, cpus=cores)
    return f"{cores} threads, serial for {2 * share / (1 + 2 * share):.0%}", *made


def oversubscribed(rng: Random) -> Drawn:
    """Several processes, each with as many threads as there are cores."""
    cores = rng.choice((8, 16))
    many = cores * rng.choice((3, 4, 8))
    node = Node(cores=Cores(float(many), threads=many))
    program, asked = drawn(rng, "omp", [(duration(rng), node)], rng.uniform(2, 20) * GIB,
                          cpus=cores, ranks=many // cores)  # fmt: skip
    program.causes["starved"] = 1 - cores / many
    return f"{many} threads on {cores} cores", program, asked


def mpi(rng: Random) -> Drawn:
    nodes = rng.choice((1, 1, 2, 4))
    ranks = rng.choice((8, 16, 32))
    node = Node(cores=Cores(ranks * rng.uniform(0.96, 1.0), threads=ranks), net=1e9 * (nodes > 1))
    made = drawn(rng, "mpi", [(duration(rng), node)], ranks * rng.uniform(0.2, 2) * GIB,
                nodes=nodes, cpus=ranks, tasks=ranks, ranks=ranks, needs_ranks=True)  # fmt: skip
    return f"MPI, {ranks} ranks on each of {nodes} nodes", *made


def bound(rng: Random) -> Drawn:
    """All ranks are bound to one core by mistake."""
    ranks = rng.choice((8, 16, 32))
    node = Node(cores=Cores(float(ranks), confined=1, threads=ranks))
    program, asked = drawn(rng, "mpi", [(duration(rng), node)], ranks * rng.uniform(0.2, 1) * GIB,
                          cpus=ranks, tasks=ranks, ranks=ranks, needs_ranks=True)  # fmt: skip
    program.causes["confined"] = 1 - 1 / ranks
    return f"{ranks} ranks bound to one core", program, asked


def storage_bound(rng: Random) -> Drawn:
    """Threads wait for a slow file system."""
    cores = rng.choice((4, 8, 16))
    blocked = rng.uniform(0.7, 0.95)
    node = Node(cores=Cores(cores * (1 - blocked), blocked=blocked, threads=cores),
                read=rng.uniform(5e6, 1e8))  # fmt: skip
    program, asked = drawn(rng, "scan", [(duration(rng), node)], rng.uniform(2, 10) * GIB,
                          cpus=cores, ranks=cores)  # fmt: skip
    program.causes["storage"] = blocked
    return f"waits for storage {blocked:.0%} of the time", program, asked


def pool(rng: Random) -> Drawn:
    """A pool of workers whose tasks are uneven: all cores at times, few at others."""
    cores = rng.choice((8, 16, 32))
    share = rng.uniform(0.8, 0.97)
    node = Node(cores=Cores(cores * 0.98, share, rng.uniform(1, cores / 2), threads=cores,
                            period_s=rng.uniform(20, 600)))  # fmt: skip
    made = drawn(rng, "pool", [(duration(rng), node)], cores * rng.uniform(0.3, 2) * GIB,
                cpus=cores, workers=cores)  # fmt: skip
    return f"a pool of {cores} workers, full {share:.0%} of the time", *made


def large_memory(rng: Random) -> Drawn:
    """A genome in memory; few cores."""
    cores = rng.choice((2, 4))
    host = rng.uniform(150, 900) * GIB
    node = Node(cores=Cores(cores * 0.97, threads=cores), read=5e7)
    made = drawn(rng, "align", [(600, Node(cores=Cores(1.0), read=4e8)), (duration(rng), node)],
                host, cpus=cores)  # fmt: skip
    return f"{host / GIB:.0f} GiB in memory", *made


def mapped_database(rng: Random) -> Drawn:
    """A search in a file that is mapped to memory: it lives in page cache."""
    cores = rng.choice((4, 8, 16))
    file = rng.uniform(20, 150) * GIB
    node = Node(cores=Cores(cores * 0.95, threads=cores))
    made = drawn(rng, "search", [(file / 5e8, Node(cores=Cores(1.0), read=5e8)),
                                 (duration(rng), node)], rng.uniform(2, 6) * GIB + file,
                 cpus=cores)  # fmt: skip
    program, asked = made
    program.reread = file
    program.host = [memory.settles(rng, rng.uniform(1, 4) * GIB, 120)]
    return f"searches a file of {file / GIB:.0f} GiB in page cache", program, asked


def one_node_of_several(rng: Random) -> Drawn:
    """Several nodes; the program runs on the first without srun."""
    nodes, cores = rng.choice((2, 4)), rng.choice((8, 16))
    busy, idle = Node(cores=Cores(cores * 0.97, threads=cores)), Node(cores=Cores(0.0))
    program, asked = drawn(rng, "omp", [(duration(rng), busy)], rng.uniform(2, 20) * GIB,
                          nodes=nodes, cpus=cores)  # fmt: skip
    program.segments = [each._replace(nodes=(busy, *(idle,) * (nodes - 1)))
                        for each in program.segments]  # fmt: skip
    program.host = [program.host[0], *(lambda second: 2e7,) * (nodes - 1)]
    return f"{nodes} nodes, and only the first works", program, asked
