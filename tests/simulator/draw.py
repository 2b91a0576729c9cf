"""Jobs by seed and number: which kind, what goes wrong, how it is seen. The same every time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulator import array
from tests.simulator.array import SimArray
from tests.simulator.job import Fate, Program, Request, SimJob, View
from tests.simulator.programs import (
    cpu,
    hosts,
    mishaps,
    others,
    strangers,
    stuck,
    training,
    traps,
    variants,
)
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


def sampled_anyhow(rng: Random) -> tuple:
    """Any of the kinds above, recorded at an interval of 1 to 60 s."""
    drawn = _kind(rng, KINDS)
    story, *rest = drawn(rng)
    return f"{name_of(drawn)}: {story}", *rest


#: kinds of the jobs numbered from `ANEW` on, so that the jobs before stay what they are; all are
#: recorded at an interval of 1 to 60 s
ANEW = 1_000_000
# fmt: off
NEW: tuple[tuple[Kind, float], ...] = (
    (stuck.node_dead, 2), (stuck.hang_with_io, 2), (stuck.rank_stuck, 2),
    (stuck.gpu_lost_early, 2), (stuck.barrier_checkpoint, 2), (stuck.low_even_power, 1.5),
    (hosts.slow_tokenizer, 2.5), (hosts.host_first, 1.5), (hosts.host_between, 1.5),
    (hosts.minutes, 3), (strangers.on_some, 1), (strangers.on_unused, 1), (strangers.asleep, 1),
    (sampled_anyhow, 8),
)
# fmt: on
#: s between two samples of these
_INTERVALS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
#: kinds on which gpumon is wrong today, and in what; tests of fresh seeds leave them out
NOT_YET: dict[str, str] = {
    "hosts.slow_tokenizer": "of 16 ranks that few samples show, the work is told as unequal",
}
#: part of the jobs of a run that are of the new kinds: of those it is right on; of all of them
_NEW_SHARE, _NEW_SHARE_OF_ALL = 0.2, 0.5

#: share of arrays, and of jobs that are looked at while they run
_ARRAYS, _RUNNING = 0.05, 0.05


def make(seed: int, number: int, kind: str = "") -> SimJob | SimArray:
    """One job. `kind`: not drawn, but this one (`training.never`, `array`)."""
    rng = Random(f"{seed} {number}")
    is_new = number >= ANEW
    is_array = rng.random() < _ARRAYS and not is_new
    if kind == "array" or (is_array and not kind):
        return array.draw(seed, number, rng)
    drawn = _kind(rng, NEW if is_new else KINDS)
    if kind:
        drawn = next(each for each, _ in (*KINDS, *NEW) if name_of(each) == kind)
    story, program, request, *fates = drawn(rng)
    story = f"{name_of(drawn)}: {story}"
    story += _ask_for_more(rng, program, request)
    fate = fates[0] if fates else Fate()
    if rng.random() < _RUNNING:
        fate = Fate(program.seconds * rng.uniform(0.1, 0.9), "RUNNING")
        story += f"; still running after {fate.at / 60:.0f} min"
    view = _view(rng, program.seconds, request)
    _probe(Random(f"{seed} {number} probe"), view, request)
    if is_new:
        _sample_anyhow(Random(f"{seed} {number} view"), view, program.seconds, request)
    if view.note:
        story += f"; {view.note}"
    return SimJob(seed, number, story, program, request, fate, view.made, *fates[1:])


def numbers(seed: int, count: int, every: bool = False) -> list[int]:
    """Numbers of `count` jobs, some of them of the new kinds. `every`: also of those in NOT_YET."""
    new = round(count * (_NEW_SHARE_OF_ALL if every else _NEW_SHARE))
    found = list(range(count - new))
    number = ANEW
    while len(found) < count:
        if every or name_of(_kind_at(seed, number)) not in NOT_YET:
            found.append(number)
        number += 1
    return found


def _kind(rng: Random, kinds: tuple[tuple[Kind, float], ...]) -> Kind:
    return rng.choices([each for each, _ in kinds], [weight for _, weight in kinds])[0]


def _kind_at(seed: int, number: int) -> Kind:
    """The kind of a job, without drawing all of it."""
    rng = Random(f"{seed} {number}")
    rng.random()
    return _kind(rng, NEW)


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
        longer_s = min(round(request.limit_s * factor / 3600 + 1) * 3600.0, 7 * 24 * HOUR)
        if program.segments[-1].name != "hang":  # which its limit ends
            request.limit_s = longer_s
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


#: samples of all GPUs of a job, at most: more take long, and show nothing else
_MOST_SAMPLES = 30_000


def _sample_anyhow(rng: Random, view: _Seen, seconds: float, request: Request) -> None:
    """At any interval; where a site hides nothing, with other users' GPUs of the node."""
    rows = min(seconds, request.limit_s) * request.nodes * (1 + request.gpus)
    fitting = [each for each in _INTERVALS if rows / each <= _MOST_SAMPLES]
    view.made.interval_s = rng.choice(fitting or _INTERVALS[-1:])
    view.note = f"{view.note}, " * bool(view.note) + f"sampled every {view.made.interval_s:.0f} s"
    board = request.board
    if board is not None and not board.mig and request.gpus <= 6 and rng.random() < 0.12:
        view.made.node_gpus = rng.randint(1, 8 - request.gpus)
        view.note += f", with {view.made.node_gpus} GPUs of others"


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
