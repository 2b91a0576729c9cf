"""What is true of a simulated job, and what a verdict must and may say of it.

Labels are made here from what was simulated, never from what gpumon says. Between "must be said"
and "would be wrong to say" lies a zone in which a finding is true but small: it may be said.
Where the recording does not show the evidence (gaps, late, MIG), a truth need not be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from tests.simulator.job import NODE_CORES, NODE_MEM, SimJob, peak
from tests.simulator.loads import Segment
from tests.simulator.machine import BOARDS
from tests.simulator.memory import CONTEXT

MIN, HOUR = 60.0, 3600.0
GIB = 1 << 30


class Must(NamedTuple):
    """One of `ids` must be raised, at this level or worse. `by`: also from accounting alone."""

    level: str
    ids: tuple[str, ...]  # the first names it best
    why: str
    accounting: bool = False


@dataclass
class Truth:
    """`may`: findings that are true of this job, with the worst level that is right."""

    must: list[Must] = field(default_factory=list)
    may: dict[str, str] = field(default_factory=dict)

    def allow(self, level: str, *ids: str) -> None:
        for id in ids:
            if self.may.get(id) != "critical":
                self.may[id] = level

    def demand(self, level: str, why: str, *ids: str, accounting: bool = False) -> None:
        """The first is what it is called; any of them tells the user the same."""
        self.must.append(Must(level, ids, why, accounting))
        self.allow(level, *ids)


#: what tells a user that GPUs did nothing for a while
IDLE = ("idle-time", "idle-tail", "gpus-in-turns", "jupyter-idle", "low-busy")
#: what tells it while they do nothing
NOW = ("gpu-idle-now", "policy-kill-soon")
#: what tells that no GPU did anything, or none of a node
NEVER = ("gpu-never-used", "gpu-allocated-no-process", "nodes-idle", "jupyter-idle")
#: what tells that cores were not used
FEW_CORES = ("cpu-low", "cpu-mostly-idle", "cpu-underused", "serial-many-cores", "cpu-never-used",
             "cores-per-gpu-high", "few-cores-per-node")  # fmt: skip

#: memory that grows for less than this may be a cache that fills
GROWS_S = 55 * MIN


class Facts(NamedTuple):
    """What happened, summed over the run as far as it went."""

    seconds: float
    active_s: dict[tuple[int, int], float]  # by node and GPU: any of its engines at work
    busy_s: dict[tuple[int, int], float]  # kernels resident
    together_idle: list[tuple[float, float, str]]  # stretches with no GPU of the job at work
    core_s: float
    serial_s: float  # time in which at most one core was used


def gpu_needs(job: SimJob) -> dict[tuple[int, int], float]:
    """By node and GPU: what all its programs needed together until the last sample."""
    interval_s, program = job.view.interval_s, job.program

    def age(number: int, key: int) -> float:
        until = min(job.ended.seconds, job.view.until)
        if program.dead is not None and program.dead[1] == number:
            until = min(until, program.dead[0])
        if program.lost is not None and (0, program.lost[1]) == (number, key):
            until = min(until, program.lost[0])
        return (ceil(until / interval_s) - 1) * interval_s - 10

    return {
        (number, key): sum(
            each.live(age(number, key)) + CONTEXT for each in held if each.live is not None
        )
        for number, node in enumerate(job.program.held)
        for key, held in enumerate(node)
        if held and all(each.live is not None for each in held)
    }


def facts(job: SimJob) -> Facts:
    active: dict[tuple[int, int], float] = {
        (node, key): 0.0 for node in range(job.request.nodes) for key in range(job.request.gpus)
    }
    busy = dict(active)
    stretches: list[tuple[float, float, str]] = []
    core_s = serial_s = 0.0
    for begin, end, segment in happened(job):
        seconds, used, works = end - begin, 0.0, False
        for number, node in enumerate(segment.nodes):
            used += node.cores.used(job.request.cpus)
            for key, gpu in enumerate(node.gpus):
                active[number, key] += seconds * gpu.active
                busy[number, key] += seconds * (gpu.active if gpu.requests_per_s else gpu.busy)
                works = works or gpu.active > 0
        core_s += seconds * used
        serial_s += seconds * (used <= 1.05)
        if job.request.gpus and not works:
            if stretches and stretches[-1][1] == begin:
                since, until, name = stretches[-1]
                is_longer = end - begin > until - since
                stretches[-1] = (since, end, segment.name if is_longer else name)
            else:
                stretches.append((begin, end, segment.name))
    return Facts(job.ended.seconds, active, busy, stretches, core_s, serial_s)


def happened(job: SimJob) -> Iterator[tuple[float, float, Segment]]:
    """The segments that ran, with their times."""
    at = 0.0
    for segment in job.program.segments:
        end = min(at + segment.seconds, job.ended.seconds)
        if end <= at:
            return
        yield at, end, segment
        at += segment.seconds


def truth_of(job: SimJob) -> Truth:
    found, known = Truth(), facts(job)
    _gpus(job, known, found)
    _causes(job, known, found)
    _cores(job, known, found)
    _memory(job, found)
    _outcome(job, found)
    _recording(job, found)
    if not job.view.covers(job.ended.seconds):
        found.must = [each for each in found.must if each.accounting]
    return found


# -- GPUs


def _gpus(job: SimJob, known: Facts, found: Truth) -> None:
    if not job.request.gpus:
        return
    hours, board = known.seconds / HOUR, job.request.board
    is_seen = not board.mig
    used = [key for key, active in known.active_s.items() if active > 0]
    unused = [key for key in known.active_s if key not in used]
    if not used:
        _never_used(job, known, found, is_seen)
        return
    if unused:
        _partly_used(job, known, found, unused, is_seen)
    _idle_together(job, known, found, is_seen)
    busy = sum(known.busy_s[key] for key in used) / len(used) / known.seconds
    if busy < 0.3:
        found.allow("warning", "low-busy")
    if max(gpu_needs(job).values(), default=0) > 0.94 * board.mem_bytes:
        found.allow("warning", "gpu-mem-full")
    if _small(job, known, busy):
        found.allow("warning", "smaller-gpu")
    active = sum(known.active_s[key] for key in used) / len(used) / known.seconds
    if active < 0.1 and not _serves(job):  # in stretches between kernels, too
        found.allow("warning", *IDLE)
        if hours > 0.5 and is_seen and "hang" not in job.program.causes:
            is_now = any(end == known.seconds for _, end, _ in known.together_idle)
            found.demand("warning", f"GPUs used {active:.0%} of the time", *IDLE, "input-bound",
                         "host-stall", "cpu-starved", "gpus-partly-idle", "nodes-idle",
                         "suspected-hang", *(NOW if is_now else ()))  # fmt: skip
    shares = [known.busy_s[key] / known.seconds for key in used]
    if max(shares) - min(shares) > 0.2:
        found.allow("warning", "gpu-imbalance", "straggler")
    in_turns = "sequential" in job.program.causes
    if max(shares) - min(shares) > 0.45 and hours > 0.5 and is_seen and not in_turns:
        found.demand("warning", "GPUs work unequally", "gpu-imbalance", "straggler",
                     "gpus-partly-idle", "suspected-hang", *IDLE, *_stops(job))  # fmt: skip


def _stops(job: SimJob) -> tuple[str, ...]:
    """What tells of a part that stopped for good."""
    if job.program.lost is not None:
        return ("gpu-health", "gpu-unreadable")
    return ("nodes-idle",) if job.program.dead is not None else ()


def _small(job: SimJob, known: Facts, busy: float) -> bool:
    """Whether the next smaller GPU would do: it has the memory, and the job's is hardly used."""
    need = max((each.need for node in job.program.held for gpu in node for each in gpu), default=0)
    own = job.request.board.mem_bytes
    smaller = max((each.mem_bytes for each in BOARDS if each.mem_bytes < own), default=0)
    return need < smaller and busy < 0.3


def _serves(job: SimJob) -> bool:
    """Whether it waits for requests: a server is there for them, used or not."""
    return any(gpu.requests_per_s for segment in job.program.segments
               for gpu in segment.nodes[0].gpus)  # fmt: skip


def _never_used(job: SimJob, known: Facts, found: Truth, is_seen: bool) -> None:
    found.allow("critical", *NEVER, "suspected-hang")
    found.allow("warning", *IDLE)
    runs = job.ended.state == "RUNNING"  # they may be used yet
    if known.seconds > 30 * MIN and is_seen and not job.view.polled and not runs:
        found.demand("critical", "no GPU was ever used", *NEVER)
    elif known.seconds > 30 * MIN:
        found.demand("warning", "no GPU was ever used", *NEVER)
    if not is_seen and job.program.held:
        found.must.clear()  # a slice shows memory alone


def _partly_used(
    job: SimJob, known: Facts, found: Truth, unused: list[tuple[int, int]], is_seen: bool
) -> None:
    ids: tuple[str, ...] = ("gpus-partly-idle", "gpu-allocated-no-process", "nodes-idle")
    is_taken = "foreign" in job.program.causes  # by another user: it is in use, not by the job
    if is_taken:
        ids += ("foreign-proc",)
    runs = job.ended.state == "RUNNING"  # their turn may come
    found.allow("warning" if runs else "critical", *ids)
    found.allow("warning", "gpu-imbalance", *IDLE)
    if known.seconds > 30 * MIN and is_seen:
        level = "warning" if job.view.polled or runs or is_taken else "critical"
        found.demand(level, f"{len(unused)} GPUs were never used", *ids)


def _idle_together(job: SimJob, known: Facts, found: Truth, is_seen: bool) -> None:
    for begin, end, name in known.together_idle:
        length = end - begin
        if length >= 8 * MIN:
            found.allow("warning", *IDLE, "gpus-partly-idle")
        if length >= 30 * MIN and length >= 0.2 * known.seconds and is_seen:
            found.demand("warning", f"idle for {length / MIN:.0f} min ({name})", *IDLE,
                         "suspected-hang", "input-bound", "host-stall",
                         *(NOW if end == known.seconds else ()))  # fmt: skip
    total = sum(end - begin for begin, end, _ in known.together_idle)
    if total >= 0.1 * known.seconds:
        found.allow("warning", *IDLE)
    if "sequential" in job.program.causes:
        found.allow("warning", "gpus-partly-idle")
        found.demand("warning", "GPUs used one after another", "gpus-in-turns", "gpus-partly-idle",
                     "gpu-imbalance",
                     *IDLE)  # fmt: skip


#: cause -> finding that names it, others that tell the same, and from which share it is true and
#: from which it must be said
_SLOW: dict[str, tuple[tuple[str, ...], float, float]] = {
    "input": (("input-bound", "low-busy", "cpu-starved"), 0.2, 0.5),
    "host": (("host-stall", "low-busy", "serial-many-cores"), 0.2, 0.5),
    "comm": (("comm-bound", "low-power-high-busy", "low-sm"), 0.25, 0.55),
    "bubbles": (("host-stall", "low-busy"), 0.2, 2.0),
    "tiny": (("low-sm", "low-power-high-busy", "host-stall", "low-busy"), 0.3, 0.6),
    "simulator": (("low-busy", "host-stall", "cpu-starved", "cpu-environments"), 0.3, 0.92),
    "slow-gpu": (("straggler", "throttle-thermal", "throttle-power"), 0.1, 0.25),
    "heat": (("throttle-thermal", "straggler"), 0.05, 0.25),
    "unequal": (("gpu-imbalance", "straggler"), 0.15, 0.4),
    "host-leak": (("host-leak", "oom-killed", "mem-near-limit"), 0.05, 0.25),
    "grows": (("host-leak",), 0.0, 2.0),
    "gpu-leak": (("gpu-leak", "gpu-oom-suspect", "gpu-mem-full", "ended-badly"), 0.05, 0.3),
    "foreign": (("foreign-proc",), 0.01, 0.2),
    "guest": (("foreign-proc",), 0.01, 2.0),
    "low-power": (("low-sm", "low-power-high-busy", "host-stall"), 0.2, 2.0),
    "barrier": ((*IDLE, "input-bound", "comm-bound", "low-power-high-busy", "low-sm",
                 "gpu-imbalance", "straggler", "gpus-partly-idle"), 0.05, 2.0),
    "starved": (("cpu-starved", "cpu-oversubscribed", "input-bound"), 0.1, 0.5),
    "confined": (("cpu-binding", "cpu-oversubscribed", "cpu-starved"),
                 0.3, 0.6),
    "storage": (("swap-io", "input-bound"), 0.2, 0.6),
}  # fmt: skip


def _causes(job: SimJob, known: Facts, found: Truth) -> None:
    for cause, share in job.program.causes.items():
        if cause == "hang":
            _hang(job, known, found, share)
        lasts = False
        if cause == "host-leak":  # B/s, of the limit
            rate, room = share, job.request.mem - peak(job, known.seconds)
            share *= known.seconds / job.request.mem
            lasts = room > rate * (job.request.limit_s - known.seconds)  # for the time limit
        if cause not in _SLOW:
            continue
        ids, may, must = _SLOW[cause]
        if share >= may:
            found.allow("warning", *ids)
        long_s = GROWS_S if cause in ("host-leak", "gpu-leak") else 30 * MIN
        if share >= must and known.seconds > long_s and _shows(job, cause) and not lasts:
            found.demand("warning", f"{cause}: {share:.0%}", *ids)


def _shows(job: SimJob, cause: str) -> bool:
    """Whether the recording has the counters that tell this cause."""
    view, board = job.view, job.request.board
    if board is not None and board.mig:
        return cause in ("host-leak", "gpu-leak")
    if view.no_power and cause in ("comm", "tiny"):
        return False
    return not (view.no_pressure and cause in ("starved", "confined", "storage"))


def _hang(job: SimJob, known: Facts, found: Truth, at: float) -> None:
    lasted = known.seconds - at
    if lasted <= 0:
        return
    found.allow("critical", "suspected-hang")
    if job.program.dead is not None:
        found.allow("critical", "nodes-idle")
    found.allow("warning", "low-power-high-busy", "low-sm", *IDLE, "gpus-partly-idle",
                "gpu-imbalance", "comm-bound", "host-stall")  # fmt: skip
    if lasted > 30 * MIN and lasted > 0.1 * known.seconds and not job.request.board.mig:
        # processes that sleep with idle GPUs may as well wait for something
        spins = max(known.busy_s.values()) > at + 0.5 * lasted
        level = "critical" if spins and not job.view.no_power else "warning"
        now: tuple[str, ...] = NOW if job.ended.state == "RUNNING" else ()
        if job.program.lost is not None:
            now += _stops(job)  # the cause; that the others wait for it follows
        if "stuck" in job.program.causes:  # a rank that computes may come to an end
            level = "warning"
            now += ("gpus-partly-idle", "gpu-imbalance", "straggler")
        found.demand(level, f"hangs for {lasted / MIN:.0f} min", "suspected-hang", *IDLE, *now)


# -- cores


def _cores(job: SimJob, known: Facts, found: Truth) -> None:
    request, causes = job.request, job.program.causes
    cpus = request.cpus * request.nodes
    mean = known.core_s / known.seconds
    waits_s = sum(
        end - begin
        for begin, end, segment in happened(job)
        if max(node.cores.used(request.cpus) for node in segment.nodes) < 0.1
    )
    if not request.gpus and waits_s >= 30 * MIN:
        found.allow("warning", "cpu-idle-time")
    share = mean / (request.usable * request.nodes)
    if cpus >= 2 and share < (0.5 if request.gpus else 0.75):
        found.allow("warning", *FEW_CORES)
    if mean < 0.02 * request.nodes and not request.gpus:
        found.allow("critical", "cpu-never-used", "nodes-idle")
    wasted = cpus - mean
    ended = job.ended.state in ("COMPLETED", "FAILED")
    if (not request.gpus and share < 0.4 and wasted >= 3 and known.seconds > 30 * MIN and ended
            and not request.whole and not {"confined", "storage"} & causes.keys()):  # fmt: skip
        found.demand("warning", f"{mean:.1f} of {cpus} cores used", *FEW_CORES, "nodes-idle",
                     "cpu-idle-time", accounting=True)  # fmt: skip
    used = [_node_core_s(job, number) for number in range(request.nodes)]
    if request.nodes > 1 and min(used) < 0.02 * known.seconds < max(used):
        found.allow("critical", "nodes-idle")


def _node_core_s(job: SimJob, number: int) -> float:
    return sum(
        (end - begin) * segment.nodes[number].cores.used(job.request.cpus)
        for begin, end, segment in happened(job)
    )


# -- host memory


def _memory(job: SimJob, found: Truth) -> None:
    request, seconds = job.request, job.ended.seconds
    need = peak(job, job.program.seconds)  # also of a job that ended before
    if request.whole:
        return
    if need < 0.66 * request.mem:
        found.allow("warning", "mem-over", "mem-per-gpu-high")
    need += job.program.reread  # in page cache, of which accounting knows nothing
    waste = (request.mem - need) * request.nodes
    completes = job.ended.state == "COMPLETED" and not job.program.failed_step
    is_long = completes and seconds > 15 * MIN
    if is_long and need < 0.25 * request.mem and waste > 100 * GIB and _keeps_others_out(job):
        found.demand("warning", f"{need / GIB:.0f} of {request.mem / GIB:.0f} GiB used",
                     "mem-over", "mem-per-gpu-high", accounting=_rss_is_need(job))  # fmt: skip
    if peak(job, seconds) > 0.88 * request.mem:
        found.allow("warning", "mem-near-limit")


def _keeps_others_out(job: SimJob) -> bool:
    """Whether its memory is more than what comes with its cores or GPUs on a whole node."""
    request = job.request
    share = max(request.cpus / NODE_CORES, request.gpus / 8)
    return request.mem / NODE_MEM > share


def _rss_is_need(job: SimJob) -> bool:
    """Whether MaxRSS leaves out the page cache in this release."""
    release = tuple(int(part) for part in job.view.slurm.split(".")[:2])
    if job.view.gather.endswith("linux"):
        return True
    return release < (23, 11) or (release < (24, 11) and job.view.gather.endswith("v1"))


# -- outcome


def _outcome(job: SimJob, found: Truth) -> None:
    ended, request = job.ended, job.request
    if ended.state == "RUNNING":
        _running(job, found)
    elif ended.state == "OUT_OF_MEMORY":
        found.allow("warning", "ended-badly")
        found.demand("critical", "out of memory", "oom-killed", accounting=True)
    elif ended.state == "TIMEOUT":
        hang = ("suspected-hang",) if "hang" in job.program.causes else ()
        found.demand("warning", "ended by the limit", "timed-out", *hang, accounting=True)
    elif ended.state in ("NODE_FAIL", "PREEMPTED"):  # nothing that the user can change
        found.allow("warning", "ended-badly", "gpu-health")
    elif ended.state == "FAILED":
        found.allow("warning", "gpu-oom-suspect", "gpu-health")
        found.demand("warning", f"ended {ended.state}", "ended-badly", "gpu-oom-suspect",
                     "gpu-health", accounting=True)  # fmt: skip
    elif ended.state == "CANCELLED":
        found.allow("warning", "ended-badly")
    if job.ended.log:
        found.allow("warning", "gpu-oom-suspect", "gpu-mem-full")
    for at, _, text in job.xids:
        is_of_node = int(text) in (48, 63, 64, 74, 79, 94, 95, 119)
        found.allow("critical" if is_of_node else "warning", "gpu-health")
        if is_of_node and at <= ended.seconds - 3 * job.view.interval_s:  # else it may go unseen
            found.demand("critical", f"Xid {text}", "gpu-health")
    if ended.state == "COMPLETED" and job.program.failed_step:
        found.allow("critical", "oom-killed")
        found.demand("warning", "a step ran out of memory", "oom-killed", "ended-badly",
                     accounting=True)  # fmt: skip
    if ended.state == "COMPLETED" and not request.limit_words:
        share = ended.seconds / request.limit_s
        if share < 0.33:
            found.allow("warning", "time-over")
        if share < 0.07 and ended.seconds > 30 * MIN and not job.program.failed_step:
            found.demand("warning", f"{share:.0%} of the limit used", "time-over", accounting=True)
    if job.program.interactive:
        found.may.pop("time-over", None)
        found.must = [each for each in found.must if "time-over" not in each.ids]


def _running(job: SimJob, found: Truth) -> None:
    """What is true only now: the limit is near, the GPUs wait, the site's rule will end it."""
    known, seconds = facts(job), job.ended.seconds
    if job.request.limit_s - seconds < max(0.15 * job.request.limit_s, 45 * MIN):
        found.allow("critical", "time-short")
    for begin, end, _ in known.together_idle:
        if end == seconds and end - begin >= 5 * MIN:
            found.allow("critical", *NOW)


def _recording(job: SimJob, found: Truth) -> None:
    board = job.request.board
    lost = job.program.lost
    if lost is not None and lost[0] < job.ended.seconds:
        found.allow("critical", "gpu-unreadable", "data-stale", "gpu-health")
        if not job.xids and lost[0] <= job.ended.seconds - 3 * job.view.interval_s:
            found.demand("critical", "a GPU fell off the bus", "gpu-health", "gpu-unreadable")
        found.allow("warning", *IDLE, "gpus-partly-idle", "gpu-imbalance", "suspected-hang")
    if board is not None and (board.mig or job.view.polled or job.view.no_power):
        found.allow("warning", "gpu-unreadable")
    if not job.view.covers(job.ended.seconds):
        found.allow("warning", "low-coverage", "data-stale")
    if job.view.since > 0 and not all(_works_since(job, job.view.since)):
        found.allow("warning", *NEVER, "gpus-partly-idle")


def _works_since(job: SimJob, since: float) -> Iterator[bool]:
    """Of each GPU, whether any of its engines works after that."""
    late = [segment for _, end, segment in happened(job) if end > since]
    for node in range(job.request.nodes):
        for key in range(job.request.gpus):
            yield any(segment.nodes[node].gpus[key].active > 0 for segment in late)
