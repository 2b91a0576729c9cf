"""What becomes of the next, identical job if the recommended lines are followed.

It runs the same program on the same inputs; its memory and its duration differ a little, as the
program says (`mem_sd`, `time_sd`). A line is unsafe if the next job would be killed or time out
in more than one of a hundred runs, would not start, or would be starved: take over a tenth longer
because it has fewer cores or GPUs than the program truly used, or no room for the page cache that
it reads from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpumon.analysis.finding import Change, Gpus
from tests.simulator.job import Request, SimJob, peak, peaks
from tests.simulator.loads import Cores
from tests.simulator.machine import BY_CONSTRAINT, BY_GRES, GIB, Board
from tests.simulator.truth import facts

#: standard deviations above which one run of a hundred lies
_ONE_IN_100 = 2.33
#: longer by more than this is starved
SLOWER = 1.1


@dataclass
class Next:
    """The request of the next job."""

    mem: float  # B of a node
    cpus: int  # of a node
    gpus: int  # of a node
    nodes: int
    tasks: int
    limit_s: float
    board: Board | None
    threads: int = 0  # OMP_NUM_THREADS; 0: not set
    strange: str = ""  # a line that is not understood here


def as_requested(request: Request) -> Next:
    """The next job, with nothing changed."""
    return Next(request.mem, request.cpus, request.gpus, request.nodes, request.tasks,
                request.limit_s, request.board)  # fmt: skip


def after(request: Request, changes: Iterable[Change]) -> Next:
    """The request with these lines. Options are taken in the order in which sbatch applies them."""
    known = list(changes)
    made = as_requested(request)
    order = ("--nodes", "--ntasks", "--ntasks-per-node", "--gres", "--gpus", "--gpus-per-node",
             "--cpus-per-task", "--cpus-per-gpu")  # fmt: skip
    for change in sorted(known, key=lambda each: order.index(each.option)
                         if each.option in order else 9):  # fmt: skip
        _apply(made, request, change)
    options = {change.option for change in known}
    if request.cpus_per_gpu and not options & {"--cpus-per-gpu", "--cpus-per-task"}:
        made.cpus = request.cpus // max(1, request.gpus) * made.gpus or made.cpus
    sizes = {change.option: float(change.after) for change in known
             if isinstance(change.after, int)}  # fmt: skip
    if request.mem_form == "cpu" and not sizes.keys() & {"--mem", "--mem-per-gpu"}:
        each = sizes.get("--mem-per-cpu", request.mem / request.cpus)
        made.mem = each * made.cpus
    if request.mem_form == "gpu" and not sizes.keys() & {"--mem", "--mem-per-cpu"}:
        each = sizes.get("--mem-per-gpu", request.mem / max(1, request.gpus))
        made.mem = each * made.gpus if made.gpus else request.mem
    if request.mem_form == "node" and "--mem-per-cpu" in sizes:
        made.mem = sizes["--mem-per-cpu"] * made.cpus
    if request.mem_form == "node" and "--mem-per-gpu" in sizes:
        made.mem = sizes["--mem-per-gpu"] * made.gpus
    return made


def _apply(made: Next, request: Request, change: Change) -> None:
    option, value = change.option, change.after
    if option == "--mem":
        made.mem = float(value)
    elif option == "--time":
        made.limit_s = float(value)
    elif option == "--nodes":
        if request.tasks_form == "job":  # as many tasks as before, on fewer nodes
            per_node = -(-request.tasks * request.nodes // int(value))
            made.cpus, made.tasks = made.cpus * per_node // made.tasks, per_node
        made.nodes = int(value)
    elif option == "--ntasks":
        per_node = -(-int(value) // made.nodes)
        made.cpus = max(1, round(made.cpus * per_node / made.tasks))
        made.tasks = per_node
    elif option == "--ntasks-per-node":
        made.cpus = max(1, round(made.cpus * int(value) / made.tasks))
        made.tasks = int(value)
    elif option == "--cpus-per-task":
        made.cpus = int(value) * made.tasks
    elif option == "--cpus-per-gpu":
        made.cpus = int(value) * max(1, made.gpus)
    elif option in ("--gres", "--gpus", "--gpus-per-node"):
        _apply_gpus(made, value, option)
    elif option == "--constraint":
        made.board = BY_CONSTRAINT.get(str(value), made.board)
    elif option == "":
        _apply_script(made, str(change.after_line))
    elif option not in ("--mem-per-cpu", "--mem-per-gpu", "--partition", "--exclude",
                        "--gpu-bind", "--signal", "--requeue", "--array"):  # fmt: skip
        made.strange = option


def _apply_gpus(made: Next, value: object, option: str) -> None:
    if value is None:
        made.gpus, made.board = 0, None
        return
    kind = value.kind.rstrip(":") if isinstance(value, Gpus) else str(value)
    count = (value.count if isinstance(value, Gpus) else None) or 1
    made.gpus = count if option != "--gpus" else -(-count // made.nodes)
    if kind not in ("gpu", ""):
        name = kind if kind.startswith("gpu:") else f"gpu:{kind}"
        made.board = BY_GRES.get(name, made.board)
        if name not in BY_GRES:
            made.strange = name


def _apply_script(made: Next, line: str) -> None:
    found = re.fullmatch(r"export OMP_NUM_THREADS=(\d+)", line)
    if found:
        made.threads = int(found[1])
    if "CUDA_LAUNCH_BLOCKING=1" in line or "NCCL_P2P_DISABLE=1" in line:
        made.strange = line


def harm(job: SimJob, changes: Iterable[Change], accounting: bool = False) -> str:
    """Why the next job would fare worse with these lines; "" where it would not. `accounting`: of
    lines by accounting alone, which cannot know what of the page cache is read again.
    """
    changes = list(changes)
    if not changes:
        return ""
    made = after(job.request, changes)
    if made.strange:
        return f"a line that harms or that Slurm does not know: {made.strange}"
    found = _memory(job, made) or _start(job, made) or _gpu_memory(job, made)
    starved = "" if accounting else _page_cache(job, made)
    return found or starved or _slower(job, made)


def _memory(job: SimJob, made: Next) -> str:
    most = most_memory(job)
    high = max(most)
    if made.nodes < job.request.nodes:
        high = max(high, sum(most) / made.nodes)
    if made.mem >= min(high, job.request.mem):
        return ""
    return f"killed: may need {high / GIB:.1f} GiB, gets {made.mem / GIB:.1f}"


def most_memory(job: SimJob) -> list[float]:
    """What each node may use in the next run, or in one of a hundred more."""
    more = 1 + _ONE_IN_100 * job.program.mem_sd
    return [each * more for each in peaks(job, job.program.seconds)]


def _page_cache(job: SimJob, made: Next) -> str:
    room = [mem - peak(job, job.program.seconds) for mem in (job.request.mem, made.mem)]
    kept = min(job.program.reread, room[0])
    if room[1] >= kept:
        return ""
    return f"starved: reads {kept / GIB:.0f} GiB over and over, {room[1] / GIB:.0f} GiB fit"


def _start(job: SimJob, made: Next) -> str:
    if job.program.needs_gpu and job.request.gpus and not made.gpus:
        return "would not start without a GPU"
    if job.program.needs_ranks and made.nodes * made.tasks < job.request.nodes * job.request.tasks:
        return "its number of ranks is fixed"
    multi = job.program.needs_gpu and made.gpus * made.nodes > 1
    if made.board is not None and made.board.mig and multi:
        return "several slices cannot talk to each other"
    return ""


def _gpu_memory(job: SimJob, made: Next) -> str:
    held = [sum(each.need for each in gpu) for node in job.program.held for gpu in node if gpu]
    if not held or made.board is None or made.board is job.request.board:
        return ""
    need = max(held) * (1 + _ONE_IN_100 * job.program.mem_sd)
    if need <= made.board.mem_bytes - made.board.reserved_bytes:
        return ""
    return f"GPU out of memory: needs {need / GIB:.1f} GiB, {made.board.gres} has less"


def _slower(job: SimJob, made: Next) -> str:
    program, request = job.program, job.request
    cores = core_slowdown(job, made)
    used = sum(active > 0.02 * job.ended.seconds for active in facts(job).active_s.values())
    have = made.gpus * made.nodes
    fewer = used / have if have and used > have else 1.0
    other = 1.0
    if made.board is not None and request.board is not None and made.board is not request.board:
        busy = _busy_share(job)
        other = 1 - busy + busy * request.board.slowdown(made.board, program.kernels)
    if cores > SLOWER:
        return f"starved: {made.cpus} of {request.cpus} cores make it {cores:.2f} times as long"
    if fewer > SLOWER:
        return f"starved: {used} GPUs worked, {have} are left"
    seconds = longest(job) * cores * fewer * other
    if (seconds > made.limit_s and made.limit_s < request.limit_s) or (
        seconds > made.limit_s and cores * fewer * other > 1.01
    ):
        return f"times out: needs {seconds / 60:.0f} min, gets {made.limit_s / 60:.0f}"
    return ""


def longest(job: SimJob) -> float:
    """Seconds until the last work of the next run is done, or in one of a hundred longer."""
    return _useful_s(job) * (1 + _ONE_IN_100 * job.program.time_sd)


def _useful_s(job: SimJob) -> float:
    """Until its last work is done: a job that is ended while it only waits loses nothing."""
    at = useful = 0.0
    for segment in job.program.segments:
        at += segment.seconds
        if any(node.cores.demand >= 0.1 or any(gpu.active for gpu in node.gpus)
               for node in segment.nodes):  # fmt: skip
            useful = at
    return useful


def _busy_share(job: SimJob) -> float:
    known = facts(job)
    used = [busy for busy in known.busy_s.values() if busy]
    return sum(used) / len(used) / known.seconds if used else 0.0


def core_slowdown(job: SimJob, made: Next) -> float:
    """How much longer it takes than it did with the cores it had."""
    before = later = 0.0
    cpus = made.cpus
    if made.threads:
        cpus = min(cpus, made.threads * max(1, job.program.ranks))
    for segment in job.program.segments:
        nodes = [node.cores for node in segment.nodes]
        moved = _merged(nodes, made.nodes) if made.nodes < len(nodes) else nodes
        before += segment.seconds * max(each.slowdown(job.request.cpus) for each in nodes)
        later += segment.seconds * max(each.slowdown(cpus) for each in moved)
    return later / before


def _merged(nodes: Sequence[Cores], count: int) -> list[Cores]:
    """What fewer nodes have to do, in equal parts."""
    first = max(nodes, key=lambda each: each.demand)
    demand = sum(each.demand for each in nodes) / count
    base = sum(each.base for each in nodes) / count
    return [first._replace(demand=demand, base=base)]
