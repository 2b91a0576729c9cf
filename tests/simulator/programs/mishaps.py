"""What goes wrong with training: hangs, leaks, memory that runs out, slow parts, ends too early."""

from __future__ import annotations

from random import Random

from tests.simulator import memory
from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import Gpu, Segment
from tests.simulator.machine import A100, GIB, H100
from tests.simulator.programs.parts import (
    MIN,
    TINY,
    alike,
    duration,
    fitting_limit,
    quiet,
    round_mem,
)
from tests.simulator.programs.training import Setup, setup

Drawn = tuple[str, Program, Request]


def _with_gpus(segments: list[Segment], change) -> list[Segment]:
    """`change(segment, node, gpu, load)` gives each GPU's load anew."""
    return [
        each._replace(nodes=tuple(
            node._replace(gpus=tuple(change(each, n, k, gpu) for k, gpu in enumerate(node.gpus)))
            for n, node in enumerate(each.nodes)
        ))
        for each in segments
    ]  # fmt: skip


def _hung(made: Setup, how: str) -> tuple[Program, Request, float]:
    rng = made.rng
    segments = made.segments()
    at = sum(each.seconds for each in segments)
    lasts = max(40 * MIN, at * rng.uniform(0.25, 1.0))
    if how == "spin":  # a collective waits for a rank that is stuck
        gpu, cores = Gpu(1.0, 1.0, pcie=0.0, cycle_s=0.1), float(made.gpus)
    else:  # all ranks wait for a lock
        gpu, cores = Gpu(pcie=0.0), 0.03
    node = quiet(made.gpus, cores)._replace(gpus=(gpu,) * made.gpus)
    if how == "rank":  # one rank died; its GPU is empty, the others spin
        spinning = Gpu(1.0, 1.0, pcie=0.0, cycle_s=0.1)
        node = node._replace(gpus=(*(spinning,) * (made.gpus - 1), Gpu(pcie=0.0)))
    segments.append(alike(lasts, "hang", made.nodes, node))
    made.causes["hang"] = at
    program = made.program(segments)
    asked = made.request(program)
    return program, asked, at


def hang_spinning(rng: Random) -> tuple:
    """All GPUs spin in a collective until the limit ends the job, or its user much later."""
    made = setup(rng, gpus=rng.choice((2, 4)), nodes=rng.choice((1, 1, 2)))
    program, asked, at = _hung(made, rng.choice(("spin", "spin", "rank")))
    asked.limit_s = round(program.seconds / 900) * 900.0
    program.segments.append(program.segments[-1])
    return (f"hangs in a collective after {at / 60:.0f} min, until it is ended", program, asked,
            Fate(program.seconds, "CANCELLED", 0, 15))  # fmt: skip


def hang_waiting(rng: Random) -> tuple:
    """All processes sleep; the user cancels it hours later."""
    made = setup(rng, nodes=1)
    program, asked, at = _hung(made, "lock")
    end = program.seconds
    program.segments.append(program.segments[-1])
    asked.limit_s = fitting_limit(rng, end * 1.2)
    return (f"deadlocked after {at / 60:.0f} min, cancelled later", program, asked,
            Fate(end, "CANCELLED", 0, 15))  # fmt: skip


def straggler(rng: Random) -> Drawn:
    """One GPU has a low clock; the others wait for it in every step."""
    made = setup(rng, gpus=rng.choice((4, 8)), nodes=1, board=rng.choice((A100, H100)))
    made.step = made.step._replace(items_cpu=made.step.compute * 0.3)
    slow = rng.uniform(0.4, 0.7)
    which = rng.randrange(made.gpus)

    def change(segment: Segment, node: int, key: int, gpu: Gpu) -> Gpu:
        if segment.name != "train":
            return gpu
        if key == which:
            return gpu._replace(clock=slow, throttled=0x20, busy=min(1.0, gpu.busy * 1.05))
        return gpu._replace(waiting=max(gpu.waiting, 1 - slow), busy=min(1.0, gpu.busy * 1.05),
                            for_peer=max(0.0, 1 - slow - gpu.waiting))  # fmt: skip

    made.causes |= {"slow-gpu": 1 - slow, "heat": 1.0}
    program = made.program(_with_gpus(made.segments(), change))
    return f"GPU {which} runs at {slow:.0%} of its clock", program, made.request(program)


def hot(rng: Random) -> Drawn:
    """A single GPU that is too hot for its clock."""
    made = setup(rng, gpus=1, nodes=1)
    slow = rng.uniform(0.5, 0.8)
    program = made.program(_with_gpus(
        made.segments(),
        lambda segment, n, k, gpu: gpu._replace(clock=slow, throttled=0x40)
        if segment.name == "train" else gpu,
    ))  # fmt: skip
    program.causes["heat"] = 1.0
    return f"slowed to {slow:.0%} by heat", program, made.request(program)


def tiny_kernels(rng: Random) -> Drawn:
    """Kernels too small for the GPU: always one resident, hardly any SM at work."""
    made = setup(rng, gpus=1, nodes=1, board=rng.choice((A100, H100)))
    made.kernel = TINY
    made.step = made.step._replace(compute=0.3, host=0.003, items_cpu=0.1)
    made.causes["tiny"] = 0.9
    program = made.program()
    return "kernels too small for the GPU", program, made.request(program)


def host_leak(rng: Random) -> tuple:
    """Losses are kept with their graphs on the host; ends before or after memory runs out."""
    made = setup(rng, nodes=1)
    made.seconds = duration(rng, 1.2, 3)
    program = made.program()
    asked = made.request(program)
    asked.mem_form = "node"
    asked.mem = round_mem(max(24 * GIB, made.host * rng.uniform(1.5, 3)))
    free = asked.mem - made.host
    share = rng.choice((rng.uniform(0.4, 0.85), rng.uniform(1.3, 2.5)))
    rate = share * free / program.seconds
    program.host = [memory.grows(program.host[0], rate)]
    program.causes["host-leak"] = rate
    end = "runs out of memory" if share > 1 else "ends before"
    return f"host memory leaks {rate * 3600 / GIB:.1f} GiB/h, {end}", program, asked


def host_saturates(rng: Random) -> Drawn:
    """A cache of the program that fills up within the run: no leak."""
    made = setup(rng, nodes=1)
    program = made.program()
    by = made.host * rng.uniform(0.3, 1.0)
    time_s = program.seconds * rng.uniform(0.05, 0.15)
    program.host = [memory.saturates(program.host[0], by, time_s)]
    made.host += by
    return "a cache in host memory fills up", program, made.request(program)


def checkpoint_spikes(rng: Random) -> Drawn:
    """A copy of the model in host memory for some seconds at each checkpoint."""
    made = setup(rng, nodes=1)
    program = made.program()
    height = made.host * rng.uniform(0.4, 1.2)
    program.host = [memory.spikes(program.host[0], height, 20 * MIN, rng.uniform(12, 40))]
    made.host += height
    return f"checkpoints need {height / GIB:.0f} GiB for seconds", program, made.request(program)


def out_of_memory(rng: Random) -> Drawn:
    """A request below the need; the kernel ends it while data is loaded, or at a checkpoint."""
    made = setup(rng, nodes=1)
    program = made.program()
    asked = made.request(program)
    asked.mem = round_mem(made.host * rng.uniform(0.5, 0.9))
    return "less host memory than it needs", program, asked


def gpu_out_of_memory(rng: Random) -> tuple:
    """A batch too large for the GPU: CUDA out of memory after some time."""
    made = setup(rng, nodes=1)
    made.framework, made.need_share = "torch", 0.99
    program = made.program()
    at = rng.choice((rng.uniform(40, 120), rng.uniform(600, program.seconds * 0.7)))
    log = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
           "total capacity of 79.15 GiB of which 1.1 GiB is free.")  # fmt: skip
    return ("GPU memory runs out", program, made.request(program),
            Fate(at, "FAILED", 1, 0, log))  # fmt: skip


def gpu_leak(rng: Random) -> tuple:
    """Tensors kept by mistake fill the GPU until it is full."""
    made = setup(rng, gpus=1, nodes=1)
    made.framework, made.need_share = "torch", rng.uniform(0.2, 0.4)
    made.seconds = duration(rng, 1.2, 3)
    program = made.program()
    board = made.board
    rate = rng.uniform(0.5, 1.4) * board.mem_bytes / program.seconds
    held = memory.leaking(program.held[0][0][0], rate, 60.0)
    program.held = [[[held]]]
    room = board.mem_bytes - board.reserved_bytes
    full = next((t for t in range(60, int(program.seconds), 10) if held.shown(t) > room), None)
    program.causes["gpu-leak"] = min(1.0, rate * program.seconds / board.mem_bytes)
    fate = Fate()
    if full is not None:
        fate = Fate(full + 10.0, "FAILED", 1, 0, "torch.OutOfMemoryError: CUDA out of memory.")
    return "tensors pile up in GPU memory", program, made.request(program), fate


def failed(rng: Random) -> tuple:
    """A bug, a segmentation fault, or somebody's kill -9."""
    made = setup(rng)
    program = made.program()
    at = rng.uniform(120, program.seconds * 0.95)
    code, signal, what = rng.choice(((1, 0, "an exception"), (0, 11, "a segmentation fault"),
                                     (137, 0, "kill -9"), (2, 0, "wrong arguments")))  # fmt: skip
    return (f"ended by {what}", program, made.request(program),
            Fate(at, "FAILED", code, signal))  # fmt: skip


def taken_away(rng: Random) -> tuple:
    """Preempted, the node failed, or cancelled by its user."""
    made = setup(rng)
    program = made.program()
    at = rng.uniform(300, program.seconds * 0.95)
    state = rng.choice(("PREEMPTED", "NODE_FAIL", "CANCELLED"))
    signal = 15 if state != "NODE_FAIL" else 0
    return f"ends as {state}", program, made.request(program), Fate(at, state, 0, signal)


def too_long(rng: Random) -> Drawn:
    """Healthy, but the limit is shorter than it takes."""
    made = setup(rng)
    program = made.program()
    asked = made.request(program)
    asked.limit_s = max(1800.0, round(program.seconds * rng.uniform(0.4, 0.9) / 60) * 60.0)
    return "healthy, but the limit is too short", program, asked


def xid(rng: Random) -> tuple:
    """The driver reports an error: the program's own, or the hardware's."""
    made = setup(rng, nodes=1)
    program = made.program()
    number = rng.choice((13, 31, 43, 45, 48, 79, 94))
    at = rng.uniform(600, program.seconds * 0.9)
    return (f"Xid {number} ends it", program, made.request(program), Fate(at + 5, "FAILED", 1, 0),
            ((at, 0, str(number)),))  # fmt: skip


def foreign(rng: Random) -> Drawn:
    """Somebody else's process works on the job's GPU."""
    made = setup(rng, nodes=1, gpus=1)
    share = rng.uniform(0.3, 0.6)
    program = made.program(_with_gpus(
        made.segments(), lambda segment, n, k, gpu: gpu._replace(foreign=share)
    ))  # fmt: skip
    program.causes["foreign"] = share
    return f"another user's process on its GPU ({share:.0%})", program, made.request(program)


def unequal(rng: Random) -> Drawn:
    """Badly sharded: some GPUs have far less to do."""
    made = setup(rng, gpus=rng.choice((2, 4)), nodes=1)
    made.step = made.step._replace(items_cpu=made.step.compute * 0.3, comm=0.0, host=0.0)
    low = rng.uniform(0.1, 0.4)
    few = made.gpus // 2

    def change(segment: Segment, node: int, key: int, gpu: Gpu) -> Gpu:
        return gpu._replace(busy=gpu.busy * low) if key < few else gpu

    made.causes["unequal"] = (1 - low) * 0.9
    program = made.program(_with_gpus(made.segments(), change))
    return f"half of the GPUs have {low:.0%} of the work", program, made.request(program)


def starved(rng: Random) -> Drawn:
    """Far fewer cores than the loaders could use."""
    made = setup(rng, nodes=1, gpus=rng.choice((1, 2)))
    program = made.program()
    asked = made.request(program)
    wait = rng.uniform(0.6, 0.85)
    full = (made.step.compute + made.step.comm + made.step.host) / (1 - wait)
    cores = rng.choice((1, 2))
    made.step = made.step._replace(items_cpu=full * cores, loaders=cores)
    made.causes |= {"input": made.step.input_wait, "starved": wait}
    segments = [each._replace(nodes=tuple(node._replace(cores=node.cores._replace(
        demand=made.gpus * 8.0 if each.name == "train" else node.cores.demand))
        for node in each.nodes)) for each in made.segments()]  # fmt: skip
    program = made.program(segments)
    program.workers = 8 * made.gpus
    asked.cpus = made.gpus * (cores + 1)
    asked.limit_s = fitting_limit(rng, program.seconds)
    return f"8 loaders of each GPU share {cores + 1} cores", program, asked
