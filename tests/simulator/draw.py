"""Jobs by seed and number: which kind, what goes wrong, how it is seen. The same every time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulator import array
from tests.simulator.array import SimArray
from tests.simulator.job import Fate, Program, Request, SimJob, View
from tests.simulator.programs import cpu, mishaps, others, training, traps, variants
from tests.simulator.programs.parts import HOUR, round_mem

Kind = Callable[[Random], tuple]
#: each kind and how often it is drawn
# fmt: off
KINDS: tuple[tuple[Kind, float], ...] = (
    (training.healthy, 8), (training.staging, 2), (training.input_bound, 2),
    (training.somewhat_input_bound, 1), (training.host_stall, 1.5), (training.comm_bound, 1),
    (training.some_gpus, 2), (training.never, 2), (training.sequential, 1),
    (training.idle_start, 1), (training.idle_middle, 1), (training.idle_end, 1),
    (mishaps.hang_spinning, 1.5), (mishaps.hang_waiting, 1), (mishaps.straggler, 1),
    (mishaps.hot, 0.7), (mishaps.tiny_kernels, 1), (mishaps.host_leak, 1.5),
    (mishaps.host_saturates, 1.5), (mishaps.checkpoint_spikes, 1.5), (mishaps.out_of_memory, 1),
    (mishaps.gpu_out_of_memory, 1), (mishaps.gpu_leak, 1), (mishaps.failed, 1.5),
    (mishaps.taken_away, 1.5), (mishaps.too_long, 1.5), (mishaps.xid, 1), (mishaps.foreign, 0.7),
    (mishaps.unequal, 1), (mishaps.starved, 1),
    (others.server_steady, 2), (others.server_bursty, 1.5), (others.server_idle, 1),
    (others.batch_inference, 3), (others.molecular_dynamics, 3), (others.solver, 2),
    (others.reinforcement, 1.5), (others.notebook, 1), (others.video, 1.5), (others.copying, 1),
    (others.rare_kernels, 1), (others.on_slice, 1.5),
    (cpu.serial, 2), (cpu.serial_on_many, 1.5), (cpu.openmp, 2), (cpu.openmp_phases, 1.5),
    (cpu.oversubscribed, 1), (cpu.mpi, 3), (cpu.bound, 1), (cpu.storage_bound, 1), (cpu.pool, 2),
    (cpu.large_memory, 1), (cpu.mapped_database, 1), (cpu.one_node_of_several, 1),
    (variants.pipeline, 2), (variants.long_compile, 1), (variants.long_checkpoints, 1.5),
    (variants.eval_on_one, 1), (variants.small_model, 1.5), (variants.shared_memory, 1),
    (variants.rank_zero, 1), (variants.processes_share, 1.5),
    (variants.tensor_parallel_server, 1), (variants.ends_on_cores, 1.5), (variants.late_spike, 1),
    (variants.brief_spike, 0.5), (variants.light_server, 1), (variants.hybrid, 2),
    (variants.burst_of_cores, 1), (variants.sleeping_threads, 1.5), (variants.waits_forever, 0.7),
    (variants.half_of_the_cores, 1), (variants.cpu_ends_badly, 1.5),
    (variants.cpu_out_of_memory, 1), (variants.cpu_too_long, 1),
    (traps.copies_only, 1), (traps.context_only, 1), (traps.briefly, 1.5),
    (traps.at_its_power_limit, 1), (traps.uneven_memory, 1), (traps.half_fed, 1),
    (traps.one_thread_per_core, 1), (traps.whole_node, 1), (traps.no_limit, 0.7),
    (traps.step_out_of_memory, 0.7), (traps.gpu_lost, 1), (traps.short_bursts, 1.5),
    (traps.shares_of_gpus, 1),
)
# fmt: on


#: share of arrays, and of jobs that are looked at while they run
_ARRAYS, _RUNNING = 0.05, 0.05


def make(seed: int, number: int, kind: str = "") -> SimJob | SimArray:
    """One job. `kind`: not drawn, but this one (`training.never`, `array`)."""
    rng = Random(f"{seed} {number}")
    is_array = rng.random() < _ARRAYS
    if kind == "array" or (is_array and not kind):
        return array.draw(seed, number, rng)
    drawn = rng.choices([each for each, _ in KINDS], [weight for _, weight in KINDS])[0]
    if kind:
        drawn = next(each for each, _ in KINDS if name_of(each) == kind)
    story, program, request, *fates = drawn(rng)
    story = f"{name_of(drawn)}: {story}"
    story += _ask_for_more(rng, program, request)
    fate = fates[0] if fates else Fate()
    if rng.random() < _RUNNING:
        fate = Fate(program.seconds * rng.uniform(0.1, 0.9), "RUNNING")
        story += f"; still running after {fate.at / 60:.0f} min"
    view = _view(rng, program.seconds, request)
    _probe(Random(f"{seed} {number} probe"), view, request)
    if view.note:
        story += f"; {view.note}"
    return SimJob(seed, number, story, program, request, fate, view.made, *fates[1:])


def name_of(kind: Kind) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def _ask_for_more(rng: Random, program: Program, request: Request) -> str:
    """Some people ask for far more than they need, of one thing or another."""
    said = ""
    if rng.random() < 0.12 and not request.whole:
        factor = rng.uniform(2, 12)
        request.mem = round_mem(min(request.mem * factor, 1900 * (1 << 30)))
        said += f"; {factor:.0f} times the memory"
    if rng.random() < 0.1:
        factor = rng.uniform(2, 20)
        request.limit_s = min(round(request.limit_s * factor / 3600 + 1) * 3600.0, 7 * 24 * HOUR)
        said += f"; {factor:.0f} times the limit"
    few = program.needs_ranks or "starved" in program.causes
    if rng.random() < 0.08 and not few and request.tasks == 1 and not request.whole:
        factor = rng.choice((2, 3, 4))
        request.cpus = min(128, request.cpus * factor)
        said += f"; {factor} times the cores"
    return said


def _probe(rng: Random, view: _Seen, request: Request) -> None:
    """Some run with the probe inside."""
    if request.gpus and rng.random() < 0.35:
        view.made.probe = rng.choice(("told", "told", "told", "gaps", "silent"))
        view.note = ", ".join(filter(None, (view.note, f"probe: {view.made.probe}")))


class _Seen:
    def __init__(self, made: View, note: str) -> None:
        self.made, self.note = made, note


def _view(rng: Random, seconds: float, request: Request) -> _Seen:
    """Mostly the whole run every few seconds; now and then less."""
    interval = 2.0 if seconds < 0.6 * HOUR else 5.0
    slurm, gather = rng.choice((
        ("22.05.8", "cgroup/v2"), ("23.02.1", "cgroup/v2"), ("23.11.11", "cgroup/v2"),
        ("23.11.11", "cgroup/v1"), ("24.05.4", "linux"), ("24.11.7", "cgroup/v2"),
        ("24.11.7", "cgroup/v1"), ("25.11.1", "cgroup/v2"),
    ))  # fmt: skip
    made = View(interval, slurm=slurm, gather=gather, neighbours=rng.choice((0, 0, 20, 60)))
    made.jobstats = rng.random() < 0.12
    draw, note = rng.random(), ""
    if rng.random() < 0.05:
        made.old_errors = rng.randint(1, 40)
    if draw < 0.04:
        made.since, note = seconds * rng.uniform(0.1, 0.9), "recorded late"
    elif draw < 0.07:
        made.until, note = seconds * rng.uniform(0.2, 0.9), "recorded only in part"
    elif draw < 0.11:
        begin = seconds * rng.uniform(0.1, 0.7)
        made.gaps, note = ((begin, begin + seconds * rng.uniform(0.02, 0.25)),), "with a gap"
    elif draw < 0.16 and request.gpus:
        made.polled, note = True, "polled"
    elif draw < 0.19:
        made.no_pressure, note = True, "without PSI"
    elif draw < 0.21 and request.gpus:
        made.no_power, note = True, "without power"
    elif draw < 0.23:
        made.interval_s, note = 15.0, "sampled every 15 s"
    return _Seen(made, note)
