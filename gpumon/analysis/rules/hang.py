"""Busy GPUs that stand still: ranks that wait for one that does not come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean, median, pstdev
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, NotEvaluable
from gpumon.analysis.once import once
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import finding, gpus_text, least, missing, unread
from gpumon.analysis.rules.programs import ML_FRAMEWORKS, of_one_program
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rules.stands import probed_of
from gpumon.analysis.rules.stuck import (
    AT_END_S,
    HOST_PERCENT,
    IO_BYTES_PER_S,
    Stuck,
    SuspectedHang,
    computes,
    says,
    stuck,
)
from gpumon.analysis.rundata import DeviceData, ProcessData, RunData, Track
from gpumon.analysis.signals import (
    Span,
    first_active,
    io_tracks,
    is_mostly_known,
    is_server,
    job_devices,
    job_processes,
    last_active,
    link_tracks,
    mean_of,
    power_at,
    seconds_of,
    window_of,
)
from gpumon.analysis.thresholds import of_site
from gpumon.model.lines import EMPTY, Line, word
from gpumon.model.units import age_text

_MIB = 1 << 20
_NEEDED = ("busy_percent", "mem_used_bytes")
#: a kernel that waits keeps its GPU busy without a pause; % and its deviation
_BUSY_PERCENT, _BUSY_DEVIATION = 98.0, 1.5
#: power that does not move: W, or part of its mean
_POWER_W, _POWER_SHARE = 3.0, 0.04
#: a bin differs from those of a standstill: %, part of their power; so many in a row end it
_NEARLY_BUSY_PERCENT, _OTHER_POWER_SHARE, _DIFFERING_BINS = 90.0, 0.15, 3
_LOW_POWER = 0.35  # power fraction
_DROPPED = 0.6  # of the power while it worked
_EARLIER_S, _HEALTHY_S = 1800.0, 300.0
#: what moves although nothing goes on: parts of an earlier rate, B/s, % of the cycles
_LINK_SHARE, _LINK_BYTES_PER_S = 0.02, 5 * _MIB
_STILL_BYTES = 8 * _MIB
#: where power is not known: B/s that ranks exchanged while they worked; times the duration
_EXCHANGED_BYTES_PER_S, _LONGER = 50 * _MIB, 2
#: cores that a waiting rank takes, for its own thread and the one of its transport
_CORES_A_RANK = 2.2
_TOGETHER_S = 180.0  # between the end of a rank and the standstill of the others
_WATCHDOG = re.compile(r"watchdog caught collective operation timeout", re.IGNORECASE)
_CONSEQUENCES = (
    "low-power-high-busy", "low-sm", "comm-bound", "gpu-imbalance", "low-busy", "no-tensor",
    "gpu-mem-headroom", "smaller-gpu", "idle-tail", "gpus-partly-idle", "straggler",
    "input-bound", "host-stall", "time-short",
)  # fmt: skip


class _Still(NamedTuple):
    """A device that is busy and stands still."""

    device: DeviceData
    span: Span
    power_w: float | None
    power_before_w: float | None  # while it worked; None where it never did for long
    links_known: bool


class Standstill(NamedTuple):
    """Ranks of one program of which none goes on."""

    still: list[_Still]
    stopped: list[DeviceData]  # whose rank ended, or waits without using its GPU
    span: Span  # in which all of them stand still
    ended: tuple[ProcessData, DeviceData] | None  # the first rank that ended, as the cause
    is_alone: bool  # no other program of the job uses a GPU, for which these ranks may wait

    @property
    def devices(self) -> list[DeviceData]:
        return [*(each.device for each in self.still), *self.stopped]


@rule(
    "suspected-hang",
    title="GPUs at 100 % busy, low power and no traffic for {seconds}; in a report, to its end",
    why="A job that hangs holds its GPUs without computing.",
    remedy="find where each rank stands; set a timeout for collectives",
    needs=(gpus,),
    folds=_CONSEQUENCES,
    is_event=True,
)
def suspected_hang(run: RunData, t: SuspectedHang) -> Checked:
    """`standstill` of the ranks of a program: live until now; of an ended run until its end, unless
    it COMPLETED. Other ranks at 0 % fit the pattern (nccl#1033).

    Confidence: medium where neither link counters nor a rank that ended back it; low, hence no more
    than a warning, where the GPUs never worked otherwise, where power is not known, or another
    program of the job still works.

    With the probe also `stuck`: ranks that make no more steps, whatever their GPUs show; a warning
    where one that the others wait for may go on.

    Source: nccl#968 (70 W), horovod#3611 (40 to 47 W of 250 W); the numbers are proposed.
    """
    found = standstill(run)
    if isinstance(found, Standstill):
        return _finding(run, found)
    if _may_hang(run) and (ranks := stuck(run)) is not None:
        return _of_ranks(run, ranks)
    return found


def hung_s(run: RunData) -> float:
    """How long the ranks stood still when the run ended: more time would not have helped."""
    found = standstill(run)
    if isinstance(found, Standstill):
        return seconds_of(run, [found.span])
    ranks = stuck(run) if _may_hang(run) else None
    return 0.0 if ranks is None or ranks.works else seconds_of(run, [ranks.span])


def _may_hang(run: RunData) -> bool:
    return run.live or run.job is None or run.job.state != "COMPLETED"


@once
def standstill(run: RunData) -> Standstill | list[NotEvaluable]:
    """Busy ≥ 98 % without a pause at an even power that is below 60 % of that at work (or a power
    fraction below 0.35 where training never was seen to work); PCIe and NVLink below 2 % of before,
    memory constant, next to no I/O of the job, and no rank that computes on the host. Where power
    is not known, for twice as long, and after traffic that stands out.

    Guards: several GPUs of one program, and none of them works; servers wait for requests so; DRAM
    or tensor activity is work, whatever the power; where rank 0 computes on the host, or more cores
    are busy than waiting ranks take, the others wait for it and nothing hangs. MIG: power unknown.
    """
    if not _may_hang(run):
        return []
    unknown: list[NotEvaluable] = []
    for devices in of_one_program(job_devices(run)):
        found = _standstill(run, devices)
        if isinstance(found, Standstill):
            return found
        unknown += found
    return unknown


def _standstill(run: RunData, devices: Sequence[DeviceData]) -> Standstill | list[NotEvaluable]:
    last = run.count if run.live else _end_of_work(run, devices)
    recent = Span(last - run.bins(of_site(run.site, "suspected-hang", SuspectedHang).seconds), last)
    ranks = [each for each in devices if first_active(each) is not None]
    if len(ranks) < 2 or recent.first < 0 or any(map(is_server, ranks)):
        return _unread(devices, recent) if recent.first >= 0 and len(devices) > 1 else []
    if unknown := _unread(ranks, recent):
        return unknown
    spinning = [each for each in ranks if (each.track("busy_percent").average(*recent) or 0) >= 1]
    still = [one for each in spinning if (one := _still(run, each, recent)) is not None]
    if not still or len(still) < len(spinning):
        return []
    end = run.count if run.live else recent.last + 1
    span = Span(max(each.span.first for each in still), end)
    stopped = [each for each in ranks if each not in spinning]
    if _host_works(run, still, stopped, recent):
        return []
    if any(each.power_w is None for each in still) and (
        span.last - span.first < _LONGER * (recent.last - recent.first)
    ):
        return []
    if any(each.power_before_w is None for each in still) and not _waits_for_others(still):
        return []
    others = [each for each in job_devices(run) if each not in devices]
    is_alone = not any((each.active.average(*recent) or 0.0) > 0 for each in others)
    return Standstill(still, stopped, span, _first_ended(run, ranks, span), is_alone)


def _unread(devices: Sequence[DeviceData], recent: Span) -> list[NotEvaluable]:
    unknown = []
    for device in devices:
        absent = [name for name in _NEEDED if not is_mostly_known(device.track(name), recent)]
        if absent:
            unknown.append(unread(device, *absent))
        elif not _has_power(device, recent) and not link_tracks(device):
            has_readings = is_mostly_known(device.track("power_w"), recent)
            unknown.append(
                missing(device, "no power limit") if has_readings else unread(device, "power_w")
            )
    return unknown


def _has_power(device: DeviceData, recent: Span) -> bool:
    return (
        is_mostly_known(device.track("power_w"), recent)
        and power_at(device, _LOW_POWER) is not None
    )


def _end_of_work(run: RunData, devices: Sequence[DeviceData]) -> int:
    """The last bin in which one of them was busy, which may not be full, where that is the run's
    end: the processes of a hang may be killed some time before the script ends.
    """
    last = max((n for n in map(last_active, devices) if n is not None), default=-1)
    return last if last >= run.count - run.bins(AT_END_S) else -1


def _still(run: RunData, device: DeviceData, recent: Span) -> _Still | None:
    memory = device.track("mem_used_bytes").known(*recent)
    load = device.track("busy_percent").known(*recent)
    watts = device.track("power_w").known(*recent) if _has_power(device, recent) else ()
    mean_w = fmean(watts) if watts else None
    if fmean(load) < _BUSY_PERCENT or pstdev(load) >= _BUSY_DEVIATION:
        return None
    if mean_w is not None and pstdev(watts) >= max(_POWER_W, _POWER_SHARE * mean_w):
        return None
    if max(memory) - min(memory) > _STILL_BYTES:
        return None
    span = Span(_still_since(device, recent.first, mean_w), recent.last)
    before = Span(max(0, span.first - run.bins(_EARLIER_S)), span.first)
    links = link_tracks(device)
    if not all(_is_quiet(track, recent, before) for track in links):
        return None
    if computes(device, recent):
        return None
    if any((each.average(*recent) or 0.0) > IO_BYTES_PER_S for each in io_tracks(run, device.node)):
        return None
    if mean_w is None:
        return _Still(device, span, None, None, True) if _exchanged(run, device, before) else None
    before_w = _healthy_w(run, device, before)
    most_w = power_at(device, _LOW_POWER) if before_w is None else _DROPPED * before_w
    if mean_w >= (most_w or 0.0):
        return None
    return _Still(device, span, mean_w, before_w, bool(links))


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
    """Median power at work before, where at least 5 min of that are known."""
    power, active = device.track("power_w").mean, device.active.mean
    worked = [power[n] for n in range(*before) if active[n] > 0 and power[n] == power[n]]
    return median(worked) if len(worked) * run.bin_s >= _HEALTHY_S else None


def _exchanged(run: RunData, device: DeviceData, before: Span) -> bool:
    """At least 5 min of work with traffic that stands out."""
    worked = sum(share > 0 for share in device.active.mean[before.first : before.last])
    rates = [each.average(*before) or 0.0 for each in link_tracks(device)]
    return worked * run.bin_s >= _HEALTHY_S and max(rates) >= _EXCHANGED_BYTES_PER_S


def _is_quiet(track: Track, recent: Span, before: Span) -> bool:
    now, earlier = track.average(*recent), track.average(*before)
    return now is None or now <= max(_LINK_SHARE * (earlier or 0.0), _LINK_BYTES_PER_S)


def _host_works(
    run: RunData, still: Sequence[_Still], stopped: Sequence[DeviceData], recent: Span
) -> bool:
    """A rank computes on the host, or more cores do than waiting ranks take."""
    for node in run.nodes:
        pids = {p.facts.pid for each in stopped if each.node == node.node
                for p in job_processes(each) if not p.ended}  # fmt: skip
        for pid, (facts, cpu) in node.processes.items():
            if {pid, facts.ppid} & pids and (cpu.average(*recent) or 0.0) >= HOST_PERCENT:
                return True
        waiting = [each for each in still if each.device.node == node.node]
        cores = mean_of(node.job.get("cpu_cores_used", Track()), [recent])
        if cores is not None and cores > _CORES_A_RANK * len(waiting) + 1:
            return True
    return False


def _waits_for_others(still: Sequence[_Still]) -> bool:
    """Of GPUs that never were seen at work: programs that talk to each other, and links that show
    that they do not; a kernel that needs neither may run so for hours.
    """
    frameworks = {p.facts.framework for each in still for p in job_processes(each.device)}
    return bool(frameworks & ML_FRAMEWORKS) and all(each.links_known for each in still)


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


# -- in words --------------------------------------------------------------------------------------


def _finding(run: RunData, found: Standstill) -> Finding:
    devices = found.devices
    watts = [each.power_w for each in found.still if each.power_w is not None]
    now_w = fmean(watts) if watts else None
    befores = [each.power_before_w for each in found.still if each.power_before_w is not None]
    before_w = fmean(befores) if befores else None
    seconds = seconds_of(run, [found.span])
    lost_s = len(devices) * seconds
    links_known = all(each.links_known for each in found.still)
    spinning = gpus_text(run, [each.device for each in found.still])
    was = f" ({before_w:.0f} W before)" if before_w is not None else ""
    power = f" at {now_w:.0f} W{was}" if now_w is not None else ""
    quiet = ", no PCIe or NVLink traffic" if links_known else ""
    what = f"{spinning} busy 100 %{power}{quiet} for {age_text(seconds)}"
    if probed := probed_of(run, devices):
        what = f"{what}; {says(probed, found.span)}"
    backed = links_known or found.ended is not None
    return finding(
        run,
        "critical",
        f"Suspected hang: {what}",
        f"{_began(run, found)}; {lost_s / 3600:.1f} GPU-h lost{_until(run)}",
        devices=devices,
        spans=[found.span],
        subject="job",
        confidence=least(
            "high" if before_w and found.is_alone else "low", "high" if backed else "medium"
        ),
        numbers={
            "power_w": now_w,
            "power_before_w": before_w,
            "seconds": seconds,
            "began_s": window_of(run, found.span)[0] - run.start,
            "ended_pid": found.ended[0].facts.pid if found.ended else None,
        },
        actions=_actions(run, devices),
        wasted_s=lost_s,
    )


def _of_ranks(run: RunData, found: Stuck) -> Finding:
    """What the probe alone shows."""
    lost_s = len(found.devices) * found.seconds
    at = age_text(window_of(run, found.span)[0] - run.start)
    head = "No step for" if found.works else "Suspected hang: no step for"
    return finding(
        run,
        "warning" if found.works or len(found.programs) < 2 else "critical",
        f"{head} {age_text(found.seconds)}; {found.says()}",
        f"it began {at} after the job's start; {lost_s / 3600:.1f} GPU-h lost{_until(run)}",
        devices=found.devices,
        spans=[found.span],
        subject="job",
        confidence="medium" if found.works else "high",
        numbers={
            "seconds": found.seconds,
            "began_s": window_of(run, found.span)[0] - run.start,
        },
        actions=_actions(run, found.devices),
        wasted_s=lost_s,
    )


def _began(run: RunData, found: Standstill) -> str:
    """Since when, and with whom it began."""
    at = age_text(window_of(run, found.span)[0] - run.start)
    if found.ended is not None:
        process, device = found.ended
        name = gpus_text(run, [device])
        return f"process {process.facts.pid} on {name} ended first, {at} after the job's start"
    began = f"it began {at} after the job's start"
    if found.stopped:
        return f"{began}, when {gpus_text(run, found.stopped)} stopped working"
    return began


def _until(run: RunData) -> str:
    state = run.job.state if run.job is not None else ""
    if _timed_out(run):
        return " until a timeout of the program ended it"
    if state == "TIMEOUT":
        return " until the time limit"
    return " until the job was cancelled" if state == "CANCELLED" else ""


def _timed_out(run: RunData) -> bool:
    """By the end of its output: PyTorch's watchdog of collectives ended it."""
    return not run.live and bool(_WATCHDOG.search(run.log_tail))


def _actions(run: RunData, devices: Sequence[DeviceData]) -> tuple[Action, ...]:
    if _timed_out(run):
        text = "Find out from the job's output which rank did not come to the collective, and why."
        return (Action("code", EMPTY, text=text),)
    tags = {p.facts.framework for each in devices for p in job_processes(each)}
    timeout = Line("dist.init_process_group(timeout=timedelta(minutes=10))")
    next_time = Action(
        "code",
        timeout if "torch" in tags else EMPTY,
        text="Let a hang end the job: set a timeout for collectives.",
    )
    if not run.live:
        return (next_time,)
    job = word("job", run.job.id) if run.job is not None else None
    where = Action("shell", Line("gpumon stack {}", job), text="Show where each rank stands.")
    cancel = Action("shell", Line("scancel {}", job), text="Then end the job.")
    return (where, cancel, next_time)
