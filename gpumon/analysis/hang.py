"""Ranks of one program of which none goes on: busy GPUs that stand still, and what the probe shows.

A hang is a state of all devices of the program. A rank that is alive and computes makes its
spinning peers wait for it; ranks that ended, and nodes on which none is left, excuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median, pstdev
from typing import NamedTuple

from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.once import once
from gpumon.analysis.programs import by_program, of_one_program
from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, ProgramData, RunData, Track
from gpumon.analysis.signals import (
    Span,
    first_active,
    io_tracks,
    is_interactive,
    is_mostly_known,
    is_server,
    job_devices,
    job_processes,
    last_active,
    link_tracks,
    power_at,
    why_missing,
    window_of,
)
from gpumon.analysis.steps import probed, probed_on
from gpumon.analysis.thresholds import Seconds, of_site

#: times as long as a step took (proposed)
_STEPS = 20.0
#: s: a process of which nothing came for so long has ended; and from that to the run's end
_GONE_S, AT_END_S = 60.0, 300.0
#: % of a core from which on a rank computes on the host; B/s of a job that reads or writes
HOST_PERCENT, IO_BYTES_PER_S = 50.0, 0.1 * (1 << 20)
_DRAM_PERCENT, _TENSOR_PERCENT = 5.0, 1.0
_WORKS, _IDLE = 0.5, 0.1  # share of the time in which a GPU works, or rests
_RESTS_PERCENT = 5.0  # of a core


class SuspectedHang(NamedTuple):
    seconds: Seconds = 300


class Stuck(NamedTuple):
    """The ranks of one program, which all stand where they stood at their last step."""

    programs: list[ProgramData]
    devices: list[DeviceData]
    span: Span
    seconds: float  # since the last step of any of them
    works: bool  # one that the others wait for computes, or data move: it may go on


@once
def stuck(run: RunData) -> Stuck | None:
    """Of several ranks none has made a step for 5 min and for 20 times as long as a step took, and
    each was seen at one place ever since. Live until now; of an ended run until its end.

    Guards: all ranks are there, and no GPU computes (by GPM, or one alone beside idle ones). Where
    a rank that the others wait for uses the CPU, or the job reads or writes, it may be an
    evaluation or a checkpoint. A process alone must not use the CPU at all, and stand at a line of
    the user's own; notebooks rest.
    """
    programs = [each for node in run.nodes for each in probed(node) if each.stepped is not None]
    for ranks in by_program(programs):
        found = _stuck(run, ranks)
        if found is not None:
            return found
    return None


def _stuck(run: RunData, ranks: Sequence[ProgramData]) -> Stuck | None:
    end = max(each.last for each in ranks)
    if run.end - end > (_GONE_S if run.live else AT_END_S):
        return None
    if any(end - each.last > _GONE_S for each in ranks):
        return None
    since = max(max(each.stepped or 0.0, each.since) for each in ranks)
    stepped = max(each.stepped or 0.0 for each in ranks)
    usual_s = max((each.track("step_us").average() or 0.0) for each in ranks) / 1e6
    least_s = of_site(run.site, "suspected-hang", SuspectedHang).seconds
    if not usual_s or end - since < least_s or end - stepped < _STEPS * usual_s:
        return None  # or how long a step takes is not known: one may take hours
    span = Span(run.bin_at(since), run.count if run.live else run.bin_at(end) + 1)
    pids = {each.facts.pid for each in ranks}
    devices = [
        each for each in job_devices(run) if pids & {of.facts.pid for of in probed_on(run, each)}
    ]
    recent = Span(max(span.first, span.last - run.bins(least_s)), span.last)
    if any(computes(each, recent) for each in devices) or _one_works(run, ranks, devices, recent):
        return None
    works = _works(run, ranks, recent)
    if len(ranks) < 2 and (works or not _rests(run, ranks[0], devices, recent)):
        return None
    return Stuck(list(ranks), devices, span, end - stepped, works)


def _rests(run: RunData, program: ProgramData, devices: Sequence[DeviceData], span: Span) -> bool:
    """A process alone is known to do nothing, where its user did not choose that."""
    if not program.place.line or is_interactive(run, devices):
        return False
    used = [
        cpu.average(*span)
        for node in run.nodes
        for pid, (facts, cpu) in node.processes.items()
        if program.facts.pid in (pid, facts.ppid) and program in node.programs
    ]
    return bool(used) and all(each is not None and each < _RESTS_PERCENT for each in used)


def _one_works(
    run: RunData, ranks: Sequence[ProgramData], devices: Sequence[DeviceData], recent: Span
) -> bool:
    """The GPU of a rank that others wait for works while theirs rest: an evaluation on one."""
    active: dict[bool, list[float]] = {True: [], False: []}  # by whether its rank waits for others
    for device in devices:
        share = device.active.average(*recent)
        for each in probed_on(run, device):
            if each in ranks and share is not None:
                active[each.place.waits_for == "ranks"].append(share)
    waiting, awaited = active[True], active[False]
    return bool(waiting and awaited) and max(awaited) >= _WORKS > _IDLE > min(waiting)


def lost_bins(run: RunData, device: DeviceData) -> set[int]:
    """Buckets in which the device was off the bus, in reset, or broken otherwise."""
    found: set[int] = set()
    since = None
    for event in sorted((e for e in device.states if e.kind == "state"), key=lambda e: e.time):
        if event.text == "well" and since is not None:
            found |= {*range(since, run.bin_at(event.time))}
            since = None
        elif event.text in ("lost", "hung", "error") and since is None:
            since = run.bin_at(event.time)
    return found if since is None else found | {*range(since, run.count)}


def computes(device: DeviceData, recent: Span) -> bool:
    """By the GPU's own counters of what its kernels do, where it has them."""
    dram = device.track("dram_active_percent").average(*recent) or 0.0
    tensor = device.track("tensor_active_percent").average(*recent) or 0.0
    return dram > _DRAM_PERCENT or tensor > _TENSOR_PERCENT


def _works(run: RunData, ranks: Sequence[ProgramData], span: Span) -> bool:
    """The CPU use of ranks that wait for others, or stand at one place, is not work: they spin."""
    places = {each.place for each in ranks}
    awaited = [each for each in ranks if each.place.waits_for != "ranks" and len(places) > 1]
    pids = {each.facts.pid for each in awaited}
    for node in run.nodes:
        for pid, (facts, cpu) in node.processes.items():
            if {pid, facts.ppid} & pids and (cpu.average(*span) or 0.0) >= HOST_PERCENT:
                return True
        if any((each.average(*span) or 0.0) > IO_BYTES_PER_S for each in io_tracks(run, node.node)):
            return True
    return False


_MIB = 1 << 20
_NEEDED = ("busy_percent", "mem_used_bytes")
#: a kernel that waits keeps its GPU busy without a pause: % and its deviation, of all GPUs of a
#: program; few readings of one of many may show less, and twice the deviation
_BUSY_PERCENT, _LEAST_BUSY_PERCENT, _BUSY_DEVIATION = 98.0, 96.0, 1.5
#: power that does not move: W, or part of its mean
_POWER_W, _POWER_SHARE = 3.0, 0.04
#: a bin differs from those of a standstill: %, part of their power; so many in a row end it
_NEARLY_BUSY_PERCENT, _OTHER_POWER_SHARE, _DIFFERING_BINS = 90.0, 0.15, 3
_DROPPED = 0.6  # of the power while it worked
_EARLIER_S, _HEALTHY_S = 1800.0, 180.0
#: what moves although nothing goes on: parts of an earlier rate, B/s, % of the cycles
_LINK_SHARE, _LINK_BYTES_PER_S = 0.02, 5 * _MIB
_STILL_BYTES = 8 * _MIB
#: where power is not known: B/s that ranks exchanged while they worked; times the duration, also
#: where memory moved
_EXCHANGED_BYTES_PER_S, _LONGER = 50 * _MIB, 2
#: B/s of I/O for each rank of a node, for which it must stand still once more as long; of the node,
#: from which on it is work
_SLOW_IO_BYTES_PER_S, _IO_BYTES_PER_S = 1.6e6, 50e6
#: cores that a waiting rank takes, for its own thread and the one of its transport
_CORES_A_RANK = 2.2
_TOGETHER_S = 180.0  # between the end of a rank and the standstill of the others


class Still(NamedTuple):
    """A device that is busy and stands still."""

    device: DeviceData
    since: int
    power_w: float | None
    power_before_w: float | None  # while it worked; None where power is not known
    links_known: bool
    busy_percent: float
    deviation: float  # of it
    moved: bool  # its memory changed once, as where another process on it ends


class Hang(NamedTuple):
    """`span`: in which none of the ranks goes on, to the end of the run."""

    devices: list[DeviceData]
    span: Span
    still: list[Still]  # empty where the probe alone shows it
    stopped: list[DeviceData]  # whose rank ended, or waits without using its GPU
    lost: list[DeviceData]  # of its ranks, when it began
    ended: tuple[ProcessData, DeviceData] | None  # the first rank that ended, as the cause
    is_alone: bool  # no other program of the job uses a GPU, for which these ranks may wait
    stuck: Stuck | None  # what the probe shows, where the GPUs do not

    @property
    def may_go_on(self) -> bool:
        """A rank that the others wait for computes, or data move."""
        return self.stuck is not None and self.stuck.works


@once
def hang_of(run: RunData) -> Hang | None:
    found = standstill(run)
    if isinstance(found, Hang):
        return found
    ranks = stuck(run) if _may_hang(run) else None
    return None if ranks is None else Hang(ranks.devices, ranks.span, [], [], [], None, True, ranks)


def _may_hang(run: RunData) -> bool:
    return run.live or run.job is None or run.job.state != "COMPLETED"


@once
def standstill(run: RunData) -> Hang | list[NotEvaluable]:
    """Busy ≥ 98 % without a pause at an even power that is below 60 % of that at work; PCIe and
    NVLink below 2 % of before, memory constant, and no rank that computes on the host. Where power
    is not known, for twice as long, and after traffic that stands out. I/O of the job lengthens the
    proof: a hang leaves loggers and heartbeats running.

    Guards: several GPUs of one program, and none of them works, as one that was lost; servers wait
    for requests so; DRAM or tensor activity is work, whatever the power; where rank 0 computes on
    the host, or more cores are busy than waiting ranks take, the others wait for it and nothing
    hangs. MIG: power unknown.
    """
    if not _may_hang(run):
        return []
    unknown: list[NotEvaluable] = []
    for devices in of_one_program(job_devices(run)):
        found = _standstill(run, devices)
        if isinstance(found, Hang):
            return found
        unknown += found
    return unknown


def _standstill(run: RunData, devices: Sequence[DeviceData]) -> Hang | list[NotEvaluable]:
    last = run.count if run.live else _end_of_work(run, devices)
    least_s = of_site(run.site, "suspected-hang", SuspectedHang).seconds
    recent = Span(last - run.bins(least_s), last)
    active = [each for each in devices if first_active(each) is not None]
    lost = [each for each in active if recent.last - 1 in lost_bins(run, each)]
    ranks = [each for each in active if each not in lost]
    if len(active) < 2 or recent.first < 0 or any(map(is_server, ranks)):
        return _unread(devices, recent) if recent.first >= 0 and len(devices) > 1 else []
    if unknown := _unread(ranks, recent):
        return unknown
    spinning = [each for each in ranks if (each.track("busy_percent").average(*recent) or 0) >= 1]
    still = [one for each in spinning if (one := _still(run, each, recent)) is not None]
    if not still or len(still) < len(spinning):
        return []
    if fmean(each.busy_percent for each in still) < _BUSY_PERCENT:
        return []
    if fmean(each.deviation for each in still) >= _BUSY_DEVIATION:
        return []
    since = max(each.since for each in still)
    stood_s = (recent.last - since) * run.bin_s
    if stood_s < least_s * _patience(run, still, recent):
        return []
    stopped = [each for each in ranks if each not in spinning]
    if any(_host_works(node, still, stopped, recent) for node in run.nodes):
        return []
    span = Span(since, run.count)
    others = [each for each in job_devices(run) if each not in devices]
    is_alone = not any((each.active.average(*recent) or 0.0) > 0 for each in others)
    ended = _first_ended(run, active, span)
    near = range(since - run.bins(_TOGETHER_S), since + run.bins(_TOGETHER_S))
    lost = [each for each in lost if _is_lost_in(near, lost_bins(run, each))]
    together = [*(each.device for each in still), *stopped]
    return Hang(together, span, still, stopped, lost, ended, is_alone, None)


def _is_lost_in(near: range, lost: set[int]) -> bool:
    """Whether a loss begins there."""
    return any(n in lost and n - 1 not in lost for n in near)


def _patience(run: RunData, still: Sequence[Still], recent: Span) -> float:
    """Times the least duration that proves a standstill, by the I/O of the node with most of it for
    a rank; infinite where that is work.
    """
    most = 0.0
    for node in run.nodes:
        io = sum(each.average(*recent) or 0.0 for each in io_tracks(run, node.node))
        if io >= _IO_BYTES_PER_S:
            return float("inf")
        ranks = sum(each.device.node == node.node for each in still)
        most = max(most, io / max(1, ranks))
    longer = _LONGER if any(each.power_w is None or each.moved for each in still) else 1
    return longer * (1 + most / _SLOW_IO_BYTES_PER_S)


def _unread(devices: Sequence[DeviceData], recent: Span) -> list[NotEvaluable]:
    return [NotEvaluable(Lack.READINGS, why, (each.label,))
            for each in devices if (why := _lacking(each, recent))]  # fmt: skip


def _lacking(device: DeviceData, recent: Span) -> str:
    """What of the device's readings is missing; "" where it can be judged."""
    absent = [name for name in _NEEDED if not is_mostly_known(device.track(name), recent)]
    if absent or _has_power(device, recent) or link_tracks(device):
        return why_missing(device, *absent) if absent else ""
    is_known = is_mostly_known(device.track("power_w"), recent)
    return "no power limit" if is_known else why_missing(device, "power_w")


def _has_power(device: DeviceData, recent: Span) -> bool:
    has_limit = power_at(device, 1.0) is not None
    return has_limit and is_mostly_known(device.track("power_w"), recent)


def _end_of_work(run: RunData, devices: Sequence[DeviceData]) -> int:
    """The last bin in which one of them was busy, which may not be full, where that is the run's
    end: the processes of a hang may be killed some time before the script ends.
    """
    last = max((n for n in map(last_active, devices) if n is not None), default=-1)
    return last if last >= run.count - run.bins(AT_END_S) else -1


def _still(run: RunData, device: DeviceData, recent: Span) -> Still | None:
    memory = device.track("mem_used_bytes").known(*recent)
    load = device.track("busy_percent").known(*recent)
    watts = device.track("power_w").known(*recent) if _has_power(device, recent) else ()
    mean_w = fmean(watts) if watts else None
    busy = fmean(load), pstdev(load)
    if busy[0] < _LEAST_BUSY_PERCENT or busy[1] >= 2 * _BUSY_DEVIATION:
        return None
    if mean_w is not None and pstdev(watts) >= max(_POWER_W, _POWER_SHARE * mean_w):
        return None
    steps = [abs(b - a) for a, b in zip(memory, memory[1:])] or [0.0]
    if sum(steps) - max(steps) > _STILL_BYTES or computes(device, recent):
        return None
    moved = max(steps) > _STILL_BYTES
    since = _still_since(device, recent.first, mean_w)
    before = Span(max(0, since - run.bins(_EARLIER_S)), since)
    links = link_tracks(device)
    if not all(_is_quiet(track, recent, before) for track in links):
        return None
    if mean_w is None:
        is_known = _exchanged(run, device, before)
        return Still(device, since, None, None, True, *busy, moved) if is_known else None
    before_w = _healthy_w(run, device, before)
    if before_w is None or mean_w >= _DROPPED * before_w:
        return None  # what never drew more may be a kernel that needs no more
    return Still(device, since, mean_w, before_w, bool(links), *busy, moved)


def _still_since(device: DeviceData, first: int, power_w: float | None) -> int:
    """Back from `first` until it differs for several bins; those without a reading do not."""
    busy, power = device.track("busy_percent").mean, device.track("power_w").mean
    links = [each.mean for each in link_tracks(device)] if power_w is None else []
    since, differing = first, 0
    for n in range(first - 1, -1, -1):
        is_off = power_w is not None and abs(power[n] - power_w) >= _OTHER_POWER_SHARE * power_w
        moves = any(each[n] > _LINK_BYTES_PER_S for each in links)
        if busy[n] < _NEARLY_BUSY_PERCENT or is_off or moves:
            differing += 1
            if differing == _DIFFERING_BINS:
                break
        elif busy[n] == busy[n]:
            since, differing = n, 0
    return since


def _healthy_w(run: RunData, device: DeviceData, before: Span) -> float | None:
    """Median power at work before, where at least 3 min of that are known."""
    power, active = device.track("power_w").mean, device.active.mean
    worked = [power[n] for n in range(*before) if active[n] > 0 and power[n] == power[n]]
    each_s = max(run.bin_s, run.coverage.interval_s or 0.0)
    return median(worked) if len(worked) * each_s >= _HEALTHY_S else None


def _exchanged(run: RunData, device: DeviceData, before: Span) -> bool:
    """At least 3 min of work with traffic that stands out."""
    worked = sum(share > 0 for share in device.active.mean[before.first : before.last])
    each_s = max(run.bin_s, run.coverage.interval_s or 0.0)
    rates = [each.average(*before) or 0.0 for each in link_tracks(device)]
    return worked * each_s >= _HEALTHY_S and max(rates) >= _EXCHANGED_BYTES_PER_S


def _is_quiet(track: Track, recent: Span, before: Span) -> bool:
    now, earlier = track.average(*recent), track.average(*before)
    return now is None or now <= max(_LINK_SHARE * (earlier or 0.0), _LINK_BYTES_PER_S)


def _host_works(
    node: NodeData, still: Sequence[Still], stopped: Sequence[DeviceData], recent: Span
) -> bool:
    """A rank that is there computes on the host, or more cores do than waiting ranks take. On a
    node where no rank is left nothing is waited for.
    """
    waiting = sum(each.device.node == node.node for each in still)
    here = [each for each in stopped if each.node == node.node]
    pids = {p.facts.pid for each in here for p in job_processes(each) if not p.ended}
    for pid, (facts, cpu) in node.processes.items():
        if {pid, facts.ppid} & pids and (cpu.average(*recent) or 0.0) >= HOST_PERCENT:
            return True
    if not waiting and pids <= node.processes.keys():
        return False  # none is left, or what each does is known
    cores = node.job.get("cpu_cores_used", Track()).average(*recent)
    return cores is not None and cores > _CORES_A_RANK * waiting + 1


def _first_ended(
    run: RunData, devices: Iterable[DeviceData], span: Span
) -> tuple[ProcessData, DeviceData] | None:
    """The rank whose end the others' standstill followed."""
    since, _ = window_of(run, span)
    ended = [
        (process, device)
        for device in devices
        for process in job_processes(device)
        if process.ended and abs(process.last - since) <= _TOGETHER_S
    ]
    return min(ended, key=lambda each: each[0].last, default=None)
