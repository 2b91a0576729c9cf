"""Other users' processes on the GPUs of a job, where a site lets them in."""

from __future__ import annotations

from random import Random

from tests.simulator.job import Program, Request
from tests.simulator.loads import Gpu, Segment
from tests.simulator.machine import GIB
from tests.simulator.programs.training import Setup, setup, some_gpus

Drawn = tuple[str, Program, Request]


def _on(program: Program, keys: set[int], **load: float) -> None:
    """What somebody else does on these GPUs of each node, all the time."""

    def changed(key: int, gpu: Gpu) -> Gpu:
        return gpu._replace(**load) if key in keys else gpu

    program.segments = [
        Segment(each.seconds, each.name, tuple(
            node._replace(gpus=tuple(changed(key, gpu) for key, gpu in enumerate(node.gpus)))
            for node in each.nodes))
        for each in program.segments
    ]  # fmt: skip


def _several(rng: Random) -> Setup:
    return setup(rng, nodes=1, gpus=rng.choice((2, 4)))


def on_some(rng: Random) -> Drawn:
    """Somebody else's kernels run on some of the GPUs on which the job trains."""
    made = _several(rng)
    share, count = rng.uniform(0.1, 0.9), rng.randint(1, made.gpus)
    program = made.program()
    _on(program, set(rng.sample(range(made.gpus), count)), foreign=share)
    program.causes["foreign"] = share
    return (f"another user on {count} of its {made.gpus} GPUs ({share:.0%})", program,
            made.request(program))  # fmt: skip


def on_unused(rng: Random) -> Drawn:
    """Somebody else works on a GPU that the job holds and never uses."""
    story, program, asked = some_gpus(rng)
    share = rng.uniform(0.2, 1.0)
    _on(program, {asked.gpus - 1}, foreign=share)
    program.causes["foreign"] = share
    return f"{story}; another user works on an unused one ({share:.0%})", program, asked


def asleep(rng: Random) -> Drawn:
    """Somebody else's process only holds memory."""
    made = _several(rng)
    made.need_share = min(made.need_share, 0.6)
    made.framework = "torch"
    size = rng.uniform(0.3, 6.0) * GIB
    program = made.program()
    _on(program, {rng.randrange(made.gpus)}, guest=size)
    program.causes["guest"] = 1.0
    return f"another user holds {size / GIB:.1f} GiB of a GPU", program, made.request(program)
