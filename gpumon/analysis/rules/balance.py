"""GPUs of one job that do unequal work: by the program, or by the hardware."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from statistics import fmean, median
from typing import NamedTuple

from gpumon.analysis.finding import Finding, Lack, NotEvaluable, to_write
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.once import once
from gpumon.analysis.programs import ML_FRAMEWORKS, programs_on, shared_time
from gpumon.analysis.rules.instant import SLOWING, use_or_return
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import finding, gpus_text, percent, staff_actions, unread
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.slow_rank import slow_rank_finding, slow_ranks
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import (
    MOST,
    Span,
    active_share,
    busy_track,
    is_allocated,
    is_server,
    job_devices,
    job_processes,
    mean_of,
    observed,
    seconds_of,
    sustained,
    sustained_each,
    under_load,
    warm_up_end,
)
from gpumon.analysis.thresholds import Percent, Seconds, Straggler, of_site
from gpumon.model.units import age_text, bytes_text

#: of what the busiest GPU does: less is no share of the work (proposed)
_NEXT_TO_NOTHING = 0.1

_GIB = 1 << 30
_COMPARED = ("busy_percent", "power_w")
_UNLIKE = 0.5  # memory that differs by so much of its mean: other work
#: idle beside others for so long, a GPU is not compared
_APART, _APART_S = (State.ALONE, State.TURNS, State.NODE), 300.0
#: % by which GPUs that are equally busy may differ (proposed)
_ALIKE_PERCENT = 10.0


@once
def _comparable(run: RunData) -> tuple[list[DeviceData], list[NotEvaluable]]:
    """The working devices of the most frequent model and program; and what is unknown of others."""
    devices, unknown = [], []
    span = observed(run)
    for device in job_devices(run):
        if busy_track(device).share(*span) < MOST:
            unknown.append(unread(device, "busy_percent"))
        elif (active_share(device) or 0.0) >= 0.01:
            devices.append(device)
    if not is_allocated(run):  # who shares a node without a job is known by its programs alone
        devices = [each for each in devices if programs_on(each)]
    kinds = [(each.device.name, programs_on(each)) for each in devices]
    most = max(kinds, key=kinds.count, default=None)
    return [each for each, kind in zip(devices, kinds) if kind == most], unknown


def _begin(run: RunData, devices: Sequence[DeviceData]) -> int:
    return max(warm_up_end(run, each) for each in devices)


def _while_all_run(run: RunData, devices: Sequence[DeviceData], name: str) -> list[Track]:
    """A field of each device, in the bins in which every one of them has a process of the job, and
    none is idle beside others: that is `gpus-partly-idle`.
    """
    first, last = shared_time(run, devices)
    tracks = [busy_track(each) if name == "busy_percent" else each.track(name) for each in devices]
    ledger = ledger_of(run)
    rows = [row for row in ledger.rows if row.device in devices]
    idle = [span for row in rows for span in ledger.stretches(row, _APART_S, *_APART)]
    if (first, last) == (0, run.count) and not idle:
        return tracks
    apart = {n for span in (*idle, Span(0, first), Span(last, run.count)) for n in range(*span)}
    return [
        Track(array("f", [nan if n in apart else value for n, value in enumerate(each.mean)]))
        for each in tracks
    ]


class Imbalance(NamedTuple):
    seconds: Seconds = 600
    spread_percent: Percent = 30  # (max − min) / mean, of busy or power
    memory_percent: Percent = 20  # of memory, and more than 1 GiB: information


@rule(
    "gpu-imbalance",
    title="GPUs that run the same program differ by {spread_percent} for {seconds}",
    why="In each step, GPUs with less work wait for those with more.",
    remedy="check sharding and the batch of each rank",
    needs=(gpus,),
)
def imbalance(run: RunData, t: Imbalance) -> Checked:
    """All of several GPUs work, and the same device is the lowest throughout (in 80 % of the bins).
    Memory that differs, where GPUs are busy unlike too, is information.

    Guards: only GPUs of one model are compared that run the same program at the same time; what
    hardware holds back is `straggler`; rank 0 has 1 GiB more by nature. Information where the
    program may divide its work so by design: one process drives several GPUs, their memory differs
    by half (stages of a pipeline, roles), or no framework that trains synchronously is known.

    Source: no peer; the thresholds are proposed.
    """
    devices, unknown = _comparable(run)
    slow = {each.device.label for each in slow_devices(run)}
    devices = [each for each in devices if each.label not in slow]
    if len(devices) < 2:
        return unknown if len(devices) + len(unknown) >= 2 else None
    first = _begin(run, devices)
    if seconds_of(run, [shared_time(run, devices)]) < t.seconds:
        return unknown
    spread = t.spread_percent / 100

    def uneven(means: Sequence[float]) -> bool:
        middle = fmean(means)
        return middle > 0 and (max(means) - min(means)) / middle >= spread

    known = False
    names = ("busy_percent",) if any(each.device.mig for each in devices) else _COMPARED
    for name in names:
        tracks = _while_all_run(run, devices, name)
        held = sustained(run, t.seconds, uneven, tracks, first)
        known = known or held.known
        if held.spans and _is_persistent(tracks, held.spans, spread):
            return _imbalance(run, devices, tracks, held.spans, name)
    by_memory = _memory_imbalance(run, devices, t, first)
    if by_memory is not None:
        return by_memory
    if not known:
        return NotEvaluable(Lack.READINGS, "too few readings of busy and power at the same time")
    return unknown


def _is_persistent(tracks: Sequence[Track], spans: Sequence[Span], spread: float) -> bool:
    """One device is below the mean of all in 80 % of the bins, by a quarter of the spread: by
    noise alone the lowest would be in half of them.
    """
    means = [mean_of(track, spans) or 0.0 for track in tracks]
    lowest = tracks[means.index(min(means))]
    below = total = 0
    for first, last in spans:
        for n in range(first, last):
            values = [track.mean[n] for track in tracks if track.mean[n] == track.mean[n]]
            if lowest.mean[n] == lowest.mean[n]:
                total += 1
                below += lowest.mean[n] < (1 - spread / 4) * fmean(values)
    return total > 0 and below >= MOST * total


def _imbalance(
    run: RunData,
    devices: Sequence[DeviceData],
    tracks: Sequence[Track],
    spans: Sequence[Span],
    name: str,
) -> Finding:
    means = [mean_of(track, spans) or 0.0 for track in tracks]
    what, unit = {"busy_percent": ("busy", "%"), "power_w": ("power", "W")}[name]
    values = _values_text(means)
    low, high = (gpus_text(run, [devices[means.index(f(means))]]) for f in (min, max))
    by_design = _may_be_by_design(run, devices, spans)
    text = "Check how the program divides its work among the GPUs."
    if by_design:
        text = "If it is one program, check how it divides its work; separate runs may differ."
    elif kind_of(run, devices) is Kind.LEARNING:
        text = "Check each rank's shard and batch size; profile a busy rank and one that is not."
    uses_more = name == "busy_percent" and min(means) < _NEXT_TO_NOTHING * max(means)
    if uses_more:
        text = f"{use_or_return(len(devices))}: {low} does next to nothing."
    if any(map(is_server, devices)):
        text = "Check how the server shares its requests out among the GPUs."
    return finding(
        run,
        "info" if by_design else "warning",
        f"{what} {values} {unit} for {age_text(seconds_of(run, spans))}",
        head="GPUs share the work unequally: ",
        rest=f"; least on {low}, most on {high}" + (f"; {by_design}" if by_design else ""),
        devices=devices,
        spans=spans,
        confidence="medium",
        numbers={
            f"{name}_low": min(means),
            f"{name}_high": max(means),
            f"{name}_mean": fmean(means),
        },
        actions=[to_write(text)],
        uses_more=uses_more,
    )


def _values_text(means: Sequence[float]) -> str:
    return "/".join(f"{value:.0f}" for value in means[:8]) + ("/…" if len(means) > 8 else "")


def _may_be_by_design(run: RunData, devices: Sequence[DeviceData], spans: Sequence[Span]) -> str:
    """Why the program may divide its work so; "" where nothing speaks for that."""
    pids = [(each.node, p.facts.pid) for each in devices for p in job_processes(each)]
    if len(devices) > len(set(pids)) > 0:
        return "one process drives several of them"
    sizes = [mean_of(each.track("mem_used_bytes"), spans) or 0.0 for each in devices]
    if max(sizes) - min(sizes) > _UNLIKE * fmean(sizes):
        return "their memory differs too, as in pipeline stages"
    known = {p.facts.framework for each in devices for p in job_processes(each)} - {""}
    is_simulation = kind_of(run, devices) in (Kind.DYNAMICS, Kind.SOLVER)
    if is_simulation or (known and not known & ML_FRAMEWORKS):
        return "the program may divide its work unevenly"
    return ""


def _memory_imbalance(
    run: RunData, devices: Sequence[DeviceData], t: Imbalance, first: int
) -> Finding | None:
    tracks = _while_all_run(run, devices, "mem_used_bytes")
    spread = t.memory_percent / 100

    def uneven(means: Sequence[float]) -> bool:
        return max(means) - min(means) > max(_GIB, spread * fmean(means))

    held = sustained(run, t.seconds, uneven, tracks, first)
    if not held.spans:
        return None
    means = [mean_of(each, held.spans) or 0.0 for each in tracks]
    busy = [mean_of(busy_track(each), held.spans) or 0.0 for each in devices]
    if max(busy) - min(busy) <= _ALIKE_PERCENT:
        return None  # what allocators keep differs by chance
    return finding(
        run,
        "info",
        f"{bytes_text(min(means))} to {bytes_text(max(means))}",
        head="GPUs use unequal memory: ",
        rest=f" for {age_text(seconds_of(run, held.spans))}; busy {_values_text(busy)} %",
        devices=devices,
        spans=held.spans,
        confidence="low",
        numbers={"mem_used_bytes_low": min(means), "mem_used_bytes_high": max(means)},
        actions=[to_write("Check how the model is split over the ranks.")],
    )


class Slow(NamedTuple):
    """A device that the hardware holds back."""

    device: DeviceData
    spans: list[Span]
    busy_percent: float
    clock_mhz: float | None
    others_mhz: float | None
    causes: list[str]


@rule(
    "straggler",
    title="one GPU is slower than the others, by its clock or link, or one rank by its steps",
    why="In each step, all GPUs wait for the slowest one.",
    remedy="report the node, exclude it; compare what the slow rank does",
    needs=(gpus,),
    folds=("throttle-thermal", "throttle-power", "low-power-high-busy"),
)
def straggler(run: RunData, t: Straggler) -> Answers:
    """`slow_devices`: one of ≥ 3, by hardware: its SM clock is below the median, it shows a
    throttle reason, or its PCIe link is narrower. Guards: without such a cause it is
    `gpu-imbalance`. Only devices of one model are compared, over all nodes. With the probe also
    `slow_ranks`: of ranks that take their steps together, one that waits least for others, or most
    for its data.

    Source: no peer; the thresholds are proposed.
    """
    devices, unknown = _comparable(run)
    if len(devices) + len(unknown) >= 3:
        yield from unknown
    for slow in slow_devices(run):
        name = gpus_text(run, [slow.device])
        causes = ", ".join(slow.causes)
        what = f"{name}: {causes}"
        waiting = f"the other {len(devices) - 1} GPUs wait for it"
        busy = f"busy {percent(slow.busy_percent)} for {age_text(seconds_of(run, slow.spans))}"
        yield finding(
            run,
            "warning",
            f"{what}; {waiting}",
            f"{what}; {busy}; {waiting}",
            adds=busy,
            devices=[slow.device],
            spans=slow.spans,
            confidence="medium",
            numbers={
                "busy_percent": slow.busy_percent,
                "sm_clock_mhz": slow.clock_mhz,
                "others_sm_clock_mhz": slow.others_mhz,
            },
            actions=staff_actions(run, slow.device.node, f"{name}: {causes}"),
        )
    known = {each.device.label for each in slow_devices(run)}
    for rank in slow_ranks(run, t.seconds, t.off_percent):
        found = slow_rank_finding(run, rank)
        if not known & set(found.devices):
            yield found


@once
def slow_devices(run: RunData) -> list[Slow]:
    """The stragglers; none where fewer than three can be compared."""
    devices, _ = _comparable(run)
    if len(devices) < 3:
        return []
    t = of_site(run.site, "straggler", Straggler)
    off = t.off_percent / 100
    first = _begin(run, devices)
    by_busy = _while_all_run(run, devices, "busy_percent")
    by_clock = [under_load(each, each.track("sm_clock_mhz"), t.busy_percent) for each in devices]

    def is_off(means: Sequence[float]) -> list[bool]:
        middle = median(means)
        return [middle > 0 and abs(mean - middle) > off * middle for mean in means]

    def is_slow(means: Sequence[float]) -> list[bool]:
        middle = median(means)
        return [mean < (1 - off) * middle for mean in means]

    count = len(devices)
    off_busy = sustained_each(run, t.seconds, is_off, by_busy, count, first)
    off_clock = sustained_each(run, t.seconds, is_slow, by_clock, count, first)
    found = []
    for n, device in enumerate(devices):
        spans = off_busy[n].spans or off_clock[n].spans
        busy = mean_of(by_busy[n], spans) or 0.0
        if not spans or busy < t.busy_percent:
            continue
        clock = mean_of(by_clock[n], spans)
        clocks = [mhz for each in by_clock if (mhz := mean_of(each, spans)) is not None]
        others = median(clocks) if clocks else None
        causes = _causes(device, devices, spans)
        if clock is not None and clock <= (1 - t.clock_percent / 100) * (others or 0.0):
            causes.insert(0, f"{clock:.0f} MHz (others {others:.0f})")
        if causes:
            found.append(Slow(device, spans, busy, clock, others, causes))
    return found


def _causes(device: DeviceData, devices: Sequence[DeviceData], spans: Sequence[Span]) -> list[str]:
    shares: dict[str, float] = {}
    for reason, words in SLOWING.items():
        share = mean_of(device.throttle[reason], spans) if reason in device.throttle else None
        shares[words] = max(shares.get(words, 0.0), share or 0.0)
    causes = [
        f"throttled ({words}) {percent(share * 100)} of the time"
        for words, share in shares.items()
        if share >= 0.01
    ]
    width, others = _narrower(device, devices, spans)
    if width < others:
        causes.append(f"PCIe x{width:.0f} (others x{others:.0f})")
    return causes


def _narrower(
    device: DeviceData, devices: Sequence[DeviceData], spans: Sequence[Span]
) -> tuple[float, float]:
    """The width of its PCIe link, and the median of all where that can be more; else zeros."""
    tracks = [each.track("pcie_width") for each in devices]
    width = mean_of(device.track("pcie_width"), spans)
    if width is None or width >= max(track.peak() or 0.0 for track in tracks):
        return 0.0, 0.0  # which spares hundreds of devices a look at hundreds of others
    widths = [mean_of(track, spans) for track in tracks]
    return width, median(each for each in widths if each is not None)
