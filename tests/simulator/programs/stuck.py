"""What does not go on, or only seems so: dead nodes, stuck ranks, lost GPUs, slow checkpoints."""

from __future__ import annotations

from random import Random

from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import IDLE, Cores, Gpu, Node, Segment
from tests.simulator.machine import A40, A100, H100
from tests.simulator.memory import Curve
from tests.simulator.programs.parts import MIN, alike, duration, load, quiet
from tests.simulator.programs.training import Setup, setup

Drawn = tuple[str, Program, Request]
#: kernels of a collective that waits for a rank
SPINNING = Gpu(1.0, 1.0, pcie=0.0, cycle_s=0.1, for_peer=1.0)
#: B/s of a job whose ranks hang: nothing, a heartbeat, a log, a monitor, another reader
_IO = (0.0, 0.0, 1e4, 1e5, 3e5, 1e6, 2e6, 5e6, 10e6)


def _begun(made: Setup) -> tuple[list[Segment], float]:
    """The segments up to some moment of the run, and that moment."""
    whole = made.segments()
    at = sum(each.seconds for each in whole) * made.rng.uniform(0.15, 0.95)
    segments, left = [], at
    for each in whole:
        segments.append(each._replace(seconds=min(each.seconds, left)))
        left -= segments[-1].seconds
        if left <= 0:
            break
    return segments, at


def _io(rng: Random) -> tuple[float, str]:
    rate = rng.choice(_IO) * rng.uniform(0.5, 1.0)
    return rate, f"{rate / 1e6:.2g} MB/s of I/O"


def _end(rng: Random, program: Program, asked: Request) -> Fate:
    """What hangs is ended by its limit, or by its user much later."""
    end = program.seconds
    program.segments.append(program.segments[-1])
    if rng.random() < 0.6:
        asked.limit_s = max(900.0, end // 60 * 60)
        return Fate()
    asked.limit_s = max(asked.limit_s, (end * 1.2 // 900 + 1) * 900)
    return Fate(end, "CANCELLED", 0, 15)


def _stands_for(rng: Random, at: float) -> float:
    return max(40 * MIN, at * rng.uniform(0.25, 2.5))


def node_dead(rng: Random) -> tuple:
    """All ranks of one node end; those of the others spin in a collective."""
    made = setup(rng, nodes=rng.choice((2, 2, 4)), gpus=rng.choice((1, 2, 4)))
    segments, at = _begun(made)
    which, (io, words) = rng.randrange(made.nodes), _io(rng)
    gone = Node((IDLE,) * made.gpus, Cores(0.01))
    spins = Node((SPINNING,) * made.gpus, Cores(float(made.gpus)), read=io / 2, write=io / 2)
    nodes = tuple(gone if n == which else spins for n in range(made.nodes))
    segments.append(Segment(_stands_for(rng, at), "hang", nodes))
    made.causes["hang"] = at
    program = made.program(segments)
    program.dead = (at, which)
    program.host = [_until(host, at) if n == which else host
                    for n, host in enumerate(program.host)]  # fmt: skip
    asked = made.request(program)
    fate = _end(rng, program, asked)
    return f"all ranks of node {which} end after {at / 60:.0f} min, {words}", program, asked, fate


def _until(curve: Curve, at: float) -> Curve:
    return lambda second: curve(second) if second < at else curve(at) * 0.01


def hang_with_io(rng: Random) -> tuple:
    """All ranks spin in a collective, and something of the job still reads or writes."""
    made = setup(rng, nodes=rng.choice((1, 1, 2)), gpus=rng.choice((2, 4, 8)))
    segments, at = _begun(made)
    io, words = _io(rng)
    node = Node((SPINNING,) * made.gpus, Cores(made.gpus * 1.0), read=io / 2, write=io / 2)
    segments.append(alike(_stands_for(rng, at), "hang", made.nodes, node))
    made.causes["hang"] = at
    program = made.program(segments)
    asked = made.request(program)
    fate = _end(rng, program, asked)
    return f"hangs after {at / 60:.0f} min, {words}", program, asked, fate


def rank_stuck(rng: Random) -> tuple:
    """One rank loops in its evaluation, or sleeps; the others wait for it in a collective."""
    made = setup(rng, nodes=rng.choice((1, 1, 1, 2)), gpus=rng.choice((2, 4, 8)))
    segments, at = _begun(made)
    which, how = rng.randrange(made.gpus), rng.choice(("loops on a core", "sleeps"))
    cores = made.gpus - (0.0 if how == "loops on a core" else 1.0)
    io, words = _io(rng)
    gpus = tuple(IDLE if k == which else SPINNING for k in range(made.gpus))
    asleep = () if how == "loops on a core" else (which,)
    first = Node(gpus, Cores(cores, threads=4 * made.gpus), io / 2, io / 2, asleep=asleep)
    rest = Node((SPINNING,) * made.gpus, Cores(made.gpus * 1.0))
    nodes = (first, *(rest,) * (made.nodes - 1))
    segments.append(Segment(_stands_for(rng, at), "hang", nodes))
    made.causes["hang"] = at
    if how == "loops on a core":
        made.causes["stuck"] = 1.0
    program = made.program(segments)
    asked = made.request(program)
    fate = _end(rng, program, asked)
    about = f"rank {which} {how} after {at / 60:.0f} min, the others wait, {words}"
    return about, program, asked, fate


def gpu_lost_early(rng: Random) -> tuple:
    """A GPU falls off the bus; the other ranks spin, or are independent and go on."""
    made = setup(rng, nodes=rng.choice((1, 1, 1, 2)), gpus=rng.choice((2, 4, 8)))
    segments, at = _begun(made)
    which, alone = rng.randrange(made.gpus), rng.random() < 0.4
    if alone:
        made.step = made.step._replace(comm=0.0)
        segments = made.segments()
        program = made.program(segments)
        made.causes.pop("hang", None)
        asked = made.request(program)
        fate = Fate(program.seconds, "FAILED", 1, 0) if rng.random() < 0.5 else Fate()
    else:
        first = (*(SPINNING,) * which, IDLE, *(SPINNING,) * (made.gpus - which - 1))
        rest = Node((SPINNING,) * made.gpus, Cores(made.gpus * 1.0))
        nodes = (Node(first, rest.cores), *(rest,) * (made.nodes - 1))
        segments.append(Segment(_stands_for(rng, at), "hang", nodes))
        made.causes["hang"] = at
        program = made.program(segments)
        asked = made.request(program)
        fate = _end(rng, program, asked)
    program.lost = (at, which)
    xids = ((at, which, "79"),) if rng.random() < 0.7 else ()
    others = "work on" if alone else "spin"
    return (f"GPU {which} falls off the bus after {at / 60:.0f} min, the others {others}",
            program, asked, fate, xids)  # fmt: skip


def barrier_checkpoint(rng: Random) -> tuple:
    """One rank writes for minutes, again and again; the others wait in a barrier, and spin."""
    made = setup(rng, nodes=rng.choice((1, 1, 2)), gpus=rng.choice((2, 4, 8)))
    lasts, every = rng.uniform(1, 6) * MIN, rng.uniform(8, 20) * MIN
    train = alike(every, "train", made.nodes, made.node())
    spins = rng.random() < 0.6
    waits = SPINNING if spins else IDLE
    rest = Node((waits,) * made.gpus, Cores(made.gpus * 1.0 if spins else 0.1))
    writer = rest._replace(gpus=(IDLE, *(waits,) * (made.gpus - 1)), write=rng.uniform(5e7, 8e8),
                           cores=rest.cores._replace(demand=1.0 + rest.cores.demand))  # fmt: skip
    save = Segment(lasts, "checkpoint", (writer, *(rest,) * (made.nodes - 1)))
    begin = alike(20, "import", made.nodes, quiet(made.gpus, 1.0 * made.gpus, read=5e7))
    rounds = max(2, round(made.seconds / (every + lasts)))
    made.causes["barrier"] = lasts / (every + lasts)
    program = made.program([begin, *[train, save] * rounds])
    how = "spin in a barrier" if spins else "sleep"
    return (f"checkpoints of {lasts / 60:.1f} min every {every / 60:.0f} min, the others {how}",
            program, made.request(program))  # fmt: skip


def low_even_power(rng: Random) -> tuple:
    """Kernels that draw little power, always as much, until the limit: no hang."""
    made = setup(rng, nodes=1, gpus=rng.choice((1, 1, 2, 4)), board=rng.choice((A100, H100, A40)))
    sm = rng.uniform(0.2, 0.7)
    made.kernel = made.kernel._replace(
        sm=sm, tensor=0.0, fp32=0.2 * sm, dram=0.15, power=rng.uniform(0.1, 0.25),
        limits={"latency": 0.8, "fp32": 0.2},
    )  # fmt: skip
    gpu = load(made.kernel, rng.uniform(0.985, 1.0), cycle_s=0.02, pcie=rng.choice((0.0, 1e6)))
    node = Node((gpu,) * made.gpus, Cores(made.gpus * 1.0), write=rng.choice((0.0, 1e4, 1e6)))
    made.causes["low-power"] = 1 - sm
    program = made.program([alike(20, "import", 1, quiet(made.gpus, 1.0)),
                            alike(duration(rng, 0.8, 3), "train", 1, node)])  # fmt: skip
    program.workers = 0
    asked = made.request(program)
    asked.limit_s = max(1800.0, program.seconds * rng.uniform(0.5, 0.95) // 60 * 60)
    return f"even low power ({made.kernel.power:.0%}) until its limit", program, asked
