"""GPUs that wait for the cores: slow tokenizers of one to many ranks, long host parts, minutes."""

from __future__ import annotations

from random import Random

from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import Cores, Node
from tests.simulator.machine import A100, GIB
from tests.simulator.programs import cpu
from tests.simulator.programs.parts import MIN, alike, duration, quiet
from tests.simulator.programs.training import setup, some_gpus

Drawn = tuple[str, Program, Request]


def slow_tokenizer(rng: Random) -> Drawn:
    """Each of 1 to 16 ranks prepares its own text between two steps, in one Python thread."""
    ranks = rng.choice((1, 2, 4, 8, 16))
    nodes = 2 if ranks == 16 else 1
    made = setup(rng, nodes=nodes, gpus=ranks // nodes, board=A100)
    wait = rng.uniform(0.4, 0.9)
    compute = made.step.compute
    host = compute * wait / (1 - wait)
    made.step = made.step._replace(
        host=host, items_cpu=0.2 * compute, comm=0.03 * compute * (ranks > 1), loaders=1,
    )  # fmt: skip
    made.causes["host"] = made.step.host_wait
    program = made.program()
    return (
        f"{ranks} ranks wait {wait:.0%} of their time for a tokenizer",
        program,
        made.request(program),
    )


def host_first(rng: Random) -> Drawn:
    """Features are computed on the cores, for as long as the training takes, or longer."""
    made = setup(rng, nodes=1)
    made.seconds = duration(rng, 0.4, 1.5)
    lasts = made.seconds * rng.uniform(0.5, 2.0)
    cores = rng.choice((1.0, 0.95 * made.cores.demand, 0.5 * made.cores.demand))
    first, *rest = made.segments()
    segments = [first, alike(lasts, "host", 1, quiet(made.gpus, cores, read=1e7)), *rest]
    program = made.program(segments)
    return (f"computes on {cores:.1f} cores for {lasts / 60:.0f} min before its GPUs work", program,
            made.request(program))  # fmt: skip


def host_between(rng: Random) -> Drawn:
    """Rounds of minutes on the cores and of minutes on the GPUs."""
    made = setup(rng, nodes=1)
    works, thinks = rng.uniform(2, 30) * MIN, rng.uniform(2, 30) * MIN
    cores = rng.choice((1.0, 0.95 * made.cores.demand))
    host = alike(thinks, "host", 1, quiet(made.gpus, cores, read=1e7))
    train = alike(works, "train", 1, made.node())
    rounds = max(2, round(1.5 * made.seconds / (works + thinks)))
    program = made.program([alike(20, "import", 1, quiet(made.gpus, 1.0)), *[host, train] * rounds])
    return (f"{thinks / 60:.0f} min on cores, {works / 60:.0f} min on GPUs, {rounds} times",
            program, made.request(program))  # fmt: skip


def minutes(rng: Random) -> tuple:
    """One to five minutes of anything."""
    seconds = rng.uniform(60, 300)
    what = rng.choice(("trains", "trains", "waits for its loaders", "uses some GPUs",
                       "uses no GPU", "half clock", "threads", "one thread", "fails",
                       "runs into its limit"))  # fmt: skip
    if what in ("threads", "one thread"):
        cores = rng.choice((4, 8, 16))
        node = Node(cores=Cores(0.97 * cores if what == "threads" else 0.98, threads=cores))
        made_here = cpu.drawn(rng, "omp", [(seconds, node)], rng.uniform(1, 8) * GIB, cpus=cores)
        return f"{seconds:.0f} s: {what} on {cores} cores", *made_here
    if what == "uses some GPUs":
        story, program, asked = some_gpus(rng)
        first, second, *_ = program.segments
        program.segments = [first, second._replace(seconds=seconds - 20)]
        return f"{seconds:.0f} s: {story}", program, asked
    made = setup(rng, nodes=1)
    made.compile_s = made.staging_s = 0.0
    fate = Fate()
    if what == "waits for its loaders":
        full = made.step.seconds / (1 - rng.uniform(0.5, 0.9))
        made.step = made.step._replace(items_cpu=full * 4, loaders=4)
        made.causes["input"] = made.step.input_wait
    node = made.node()
    if what == "uses no GPU":
        node = quiet(made.gpus, made.gpus * 1.0)
    if what == "half clock":
        slow = tuple(gpu._replace(clock=0.5, throttled=0x40) for gpu in node.gpus)
        node = node._replace(gpus=slow)
        made.causes["heat"] = 1.0
    begin = rng.uniform(5, 30)
    program = made.program([alike(begin, "import", 1, quiet(made.gpus, 1.0)),
                            alike(seconds - begin, "train", 1, node)])  # fmt: skip
    if what == "uses no GPU":
        program.held, program.needs_gpu = (), False
    asked = made.request(program)
    if what == "fails":
        fate = Fate(seconds * rng.uniform(0.3, 0.95), "FAILED", 1, 0)
    if what == "runs into its limit":
        asked.limit_s = 60.0 * max(1, seconds // 60 - 1)
    return f"{seconds:.0f} s: {what}", program, asked, fate
