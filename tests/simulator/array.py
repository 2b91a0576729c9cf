"""Arrays: tasks with one request and different inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from gpumon.slurm.job import Job
from tests.simulator import memory
from tests.simulator.accounts import slurm_job
from tests.simulator.job import Fate, Program, SimJob, View, peak
from tests.simulator.loads import IDLE, Cores, Node
from tests.simulator.machine import A40, A100, GIB, RTX3090
from tests.simulator.programs.parts import (
    BF16,
    MIN,
    alike,
    duration,
    fitting_limit,
    load,
    request,
    round_mem,
)
from tests.simulator.truth import HOUR, Truth, facts


@dataclass
class SimArray:
    seed: int
    number: int
    story: str
    tasks: list[SimJob]
    recorded: int  # so many tasks have a recording


def slurm_jobs(array: SimArray) -> list[Job]:
    """As `sacct` lists its tasks; they ran one after another."""
    found = []
    for n, task in enumerate(array.tasks):
        made, later = slurm_job(task), n * 36 * HOUR
        found.append(replace(
            made, raw_id=str(4711 + n), id=f"4711_{n}", array_job_id="4711", array_task=str(n),
            start=made.start + later, end=made.end + later,
        ))  # fmt: skip
    return found


def draw(seed: int, number: int, rng: Random) -> SimArray:
    """8 to 24 tasks, whose inputs differ in size."""
    count, gpus = rng.randint(8, 24), int(rng.random() < 0.4)
    board = rng.choice((A100, A40, RTX3090)) if gpus else None
    cores = rng.choice((1, 2, 4, 8))
    works = cores if rng.random() < 0.75 else max(1, cores // 4)
    spread, host, seconds = rng.uniform(0.05, 0.5), rng.uniform(1, 20) * GIB, duration(rng, 0.2, 2)
    idle = rng.choice((0.0, 0.0, 0.3, 0.6)) if gpus else 0.0
    fails = rng.choice((0.0, 0.0, 0.0, 0.15, 0.3))
    programs = []
    for _ in range(count):
        size = rng.lognormvariate(0, spread)
        on_gpu = load(BF16, 0.9) if gpus and rng.random() >= idle else IDLE
        node = Node((on_gpu,) * gpus, Cores(works * 0.97, threads=works), read=1e6)
        held = [[[memory.caching(rng, 0.6 * board.mem_bytes, board)]]] if on_gpu.busy else ()
        programs.append(Program(
            "task", [alike(max(200.0, seconds * size), "run", 1, node)],
            [memory.settles(rng, host * size, 60)], held, kernels=BF16.limits,
            framework="torch" if held else "", mem_sd=0.01, time_sd=0.03, needs_gpu=bool(held),
        ))  # fmt: skip
    longest = max(programs, key=lambda each: each.seconds)
    need = max(each.host[0](each.seconds) for each in programs)
    asked = request(rng, longest, need, cpus=cores, gpus=gpus, board=board)
    story = f"array: {count} tasks, sizes differ by {spread:.0%}"
    if rng.random() < 0.3:
        factor = rng.uniform(2, 10)
        asked.mem, asked.mem_form = round_mem(asked.mem * factor), "node"
        story += f"; {factor:.0f} times the memory"
    if rng.random() < 0.3:
        factor = rng.uniform(2, 10)
        asked.limit_s = fitting_limit(rng, longest.seconds * factor)
        story += f"; {factor:.0f} times the limit"
    if idle:
        story += f"; {idle:.0%} of them never use their GPU"
    view = View(10.0, slurm=rng.choice(("23.02.1", "24.11.7")))
    tasks = [
        SimJob(seed, number, story, each, replace(asked), _fate(rng, each, fails), view)
        for each in programs
    ]
    return SimArray(seed, number, story, tasks, count if rng.random() < 0.3 else 0)


def _fate(rng: Random, program: Program, fails: float) -> Fate:
    if rng.random() >= fails:
        return Fate()
    return Fate(program.seconds * rng.uniform(0.1, 0.9), "FAILED", 1, 0)


def truth_of_array(array: SimArray) -> Truth:
    found, asked = Truth(), array.tasks[0].request
    need = max(peak(each, each.program.seconds) for each in array.tasks)
    longest = max(each.program.seconds for each in array.tasks)
    if need < 0.66 * asked.mem:
        found.allow("warning", "array-mem-over")
    if longest < 0.33 * asked.limit_s:
        found.allow("warning", "array-time-over")
    known = [facts(each) for each in array.tasks]
    share = max(each.core_s / each.seconds for each in known) / asked.cpus
    if share < 0.6:
        found.allow("warning", "array-cpu-over", "cpu-low")
    idle = [each for each in known if asked.gpus and not any(each.active_s.values())]
    long = [each for each in idle if each.seconds > 15 * MIN]
    if idle:
        found.allow("critical", "array-gpu-idle")
    if array.recorded and len(long) > 0.25 * len(known):
        found.demand("warning", f"{len(long)} tasks never used their GPU", "array-gpu-idle")
    states = [each.ended.state for each in array.tasks]
    if any(each != "COMPLETED" for each in states):
        found.demand("warning", "some tasks failed", "array-mixed-outcome", accounting=True)
    return found
