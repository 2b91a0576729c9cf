"""Jobs that look like others: copies without kernels, contexts without work, threads."""

from __future__ import annotations

from random import Random

from tests.simulator import memory
from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import Cores, Gpu, Node
from tests.simulator.machine import A40, A100, GIB, RTX3090
from tests.simulator.programs import cpu
from tests.simulator.programs.parts import HOUR, MIN, alike, duration, quiet, request
from tests.simulator.programs.training import setup, some_gpus

Drawn = tuple[str, Program, Request]


def copies_only(rng: Random) -> Drawn:
    """GPU memory is used as a cache: the copy engines work, kernels never."""
    board = rng.choice((A100, A40))
    host = rng.uniform(30, 90) * GIB
    node = Node((Gpu(0.0, pcie=rng.uniform(4e9, 14e9), power=0.2),), Cores(1.0), read=1e7)
    program = Program(
        "cache", [alike(duration(rng), "copy", 1, node)], [memory.settles(rng, host, 60)],
        [[[memory.direct(rng, rng.uniform(0.4, 0.9) * board.mem_bytes)]]],
        kernels={"latency": 1.0}, command="./kvcache", name="kvcache",
    )  # fmt: skip
    asked = request(rng, program, host, cpus=1, gpus=1, board=board)
    return "copies to and from the GPU, no kernels", program, asked


def context_only(rng: Random) -> Drawn:
    """A process holds a context on its GPU and never computes there."""
    board = rng.choice((A100, RTX3090))
    cores = rng.choice((1, 4, 8))
    host = rng.uniform(2, 12) * GIB
    node = Node((Gpu(pcie=0.0),), Cores(cores * 0.96, threads=cores))
    program = Program(
        "train", [alike(duration(rng, 0.8, 3), "cpu", 1, node)], [memory.settles(rng, host, 60)],
        [[[memory.direct(rng, 430 * 2**20, "torch")]]], framework="torch", needs_gpu=True,
    )  # fmt: skip
    asked = request(rng, program, host, cpus=cores, gpus=1, board=board)
    return "a context on the GPU, and all work on cores", program, asked


def briefly(rng: Random) -> Drawn:
    """A test run of a minute or four."""
    made = setup(rng, nodes=1)
    made.compile_s = made.staging_s = 0.0
    segments = [alike(rng.uniform(10, 40), "import", 1, quiet(made.gpus, 1.0)),
                alike(rng.uniform(30, 240), "train", 1, made.node())]  # fmt: skip
    program = made.program(segments)
    return f"a test of {program.seconds:.0f} s", program, made.request(program)


def at_its_power_limit(rng: Random) -> Drawn:
    """A well-fed GPU runs into its power limit and says so: as it should be."""
    made = setup(rng, nodes=1, board=A100)
    made.kernel = made.kernel._replace(power=0.97)
    made.step = made.step._replace(host=0.002, comm=0.0, items_cpu=made.step.compute)
    segments = [each._replace(nodes=tuple(node._replace(gpus=tuple(
        gpu._replace(throttled=0x4, clock=rng.uniform(0.9, 0.98)) if each.name == "train" else gpu
        for gpu in node.gpus)) for node in each.nodes)) for each in made.segments()]  # fmt: skip
    program = made.program(segments)
    return "at the power limit of its GPUs", program, made.request(program)


def uneven_memory(rng: Random) -> Drawn:
    """The first GPU also holds what is gathered from the others."""
    made = setup(rng, nodes=1, gpus=rng.choice((2, 4)))
    made.framework, made.need_share = "torch", rng.uniform(0.15, 0.3)
    program = made.program()
    more = memory.caching(rng, rng.uniform(0.6, 0.85) * made.board.mem_bytes, made.board)
    program.held = [[[more], *program.held[0][1:]]]
    return "the first GPU needs far more memory than the others", program, made.request(program)


def half_fed(rng: Random) -> Drawn:
    """The first half waits for a cold file system, the second runs well."""
    made = setup(rng, nodes=1)
    fast = made.node()
    slow_step = made.step._replace(items_cpu=4 * made.step.seconds * rng.uniform(1.8, 3), loaders=4)
    made.causes["input"] = slow_step.input_wait * 0.5
    step, made.step = made.step, slow_step
    slow, cores = made.node(), made.cores
    made.step = step
    part = duration(rng, 0.5, 1.5)
    program = made.program([alike(20, "import", 1, quiet(made.gpus, 1.0)),
                            alike(part, "train", 1, slow),
                            alike(part, "train", 1, fast)])  # fmt: skip
    asked = made.request(program)
    asked.cpus = max(asked.cpus, round(cores.demand + 0.5))
    return f"waits {slow_step.input_wait:.0%} in its first half, then not", program, asked


def one_thread_per_core(rng: Random) -> Drawn:
    """Whole cores are allocated, two hardware threads each; one rank runs on each core."""
    ranks = rng.choice((8, 16, 32))
    node = Node(cores=Cores(ranks * 0.98, threads=ranks))
    host = ranks * rng.uniform(0.3, 1) * GIB
    program, asked = cpu.drawn(rng, "mpi", [(duration(rng), node)], host,
                               cpus=2 * ranks, tasks=ranks, ranks=ranks,
                               needs_ranks=True)  # fmt: skip
    asked.submit_line = f"sbatch --hint=nomultithread -n {ranks} job.sh"
    asked.threads_per_core = 2
    asked.mem_form = "node"
    return f"{ranks} ranks, one for each core of two threads", program, asked


def whole_node(rng: Random) -> Drawn:
    """--exclusive with --mem=0: a whole node, for threads that must not be disturbed."""
    cores = rng.choice((32, 64, 128))
    node = Node(cores=Cores(cores * 0.97, threads=cores), net=1e6)
    program, asked = cpu.drawn(rng, "hpl", [(duration(rng), node)], rng.uniform(40, 400) * GIB,
                               cpus=128)  # fmt: skip
    asked.mem, asked.mem_form, asked.whole = 2000 * GIB, "node", True
    asked.submit_line = "sbatch --exclusive --mem=0 job.sh"
    return f"a whole node, {cores} of 128 cores in use", program, asked


def short_bursts(rng: Random) -> Drawn:
    """Parallel regions shorter than a sample, with a serial part after each."""
    cores = rng.choice((8, 16, 32))
    share = rng.uniform(0.05, 0.5)
    work = Cores(cores * 0.97, share, 1.0, threads=cores, period_s=rng.choice((0.2, 1.0, 2.0)))
    made = cpu.drawn(rng, "omp", [(duration(rng), Node(cores=work))], rng.uniform(2, 30) * GIB,
                     cpus=cores)  # fmt: skip
    return f"{cores} cores in short bursts, {share:.0%} of the time", *made


def shares_of_gpus(rng: Random) -> Drawn:
    """Some GPUs are used; memory, cores or both are requested for each of them."""
    story, program, asked = some_gpus(rng)
    asked.mem_form = rng.choice(("gpu", "gpu", "node"))
    each = -(-asked.cpus // asked.gpus)
    if asked.mem_form == "node" or rng.random() < 0.5:
        asked.cpus = each * asked.gpus
        asked.submit_line = f"sbatch --cpus-per-gpu={each} job.sh"
    return f"{story}, requested for each", program, asked


def no_limit(rng: Random) -> Drawn:
    """A partition without a time limit."""
    cores = rng.choice((1, 8, 16))
    node = Node(cores=Cores(cores * 0.97, threads=cores))
    program, asked = cpu.drawn(rng, "omp", [(duration(rng), node)], rng.uniform(2, 30) * GIB,
                               cpus=cores)  # fmt: skip
    asked.limit_s, asked.limit_words = 365 * 24 * HOUR, rng.choice(("UNLIMITED", "Partition_Limit"))
    return f"its limit is {asked.limit_words}", program, asked


def step_out_of_memory(rng: Random) -> tuple:
    """The script goes on after the kernel killed one of its steps."""
    cores = rng.choice((2, 8))
    node = Node(cores=Cores(cores * 0.9, threads=cores))
    program, asked = cpu.drawn(rng, "steps", [(duration(rng), node)], rng.uniform(4, 16) * GIB,
                               cpus=cores)  # fmt: skip
    program.failed_step = True
    return "COMPLETED, but a step of it ran out of memory", program, asked


def gpu_lost(rng: Random) -> tuple:
    """A GPU falls off the bus; the program crashes or hangs until it is cancelled."""
    made = setup(rng, nodes=1)
    program = made.program()
    at = rng.uniform(10 * MIN, program.seconds * 0.8)
    program.lost = (at, 0)
    later = rng.choice((20.0, rng.uniform(600, 2400)))
    state = "FAILED" if later < 60 else "CANCELLED"
    code = (1, 0) if state == "FAILED" else (0, 15)
    return ("a GPU falls off the bus", program, made.request(program),
            Fate(at + later, state, *code), ((at, 0, "79"),))  # fmt: skip
