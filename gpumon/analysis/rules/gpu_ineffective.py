"""GPUs that are busy little, or busy and yet do little."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

from gpumon.analysis.finding import Action, Finding, NotEvaluable, to_do, to_write
from gpumon.analysis.ledger import HELD_BACK, IDLE, Row, State, ledger_of, runs_of
from gpumon.analysis.phases import between
from gpumon.analysis.programs import ML_FRAMEWORKS
from gpumon.analysis.rules import jobstats
from gpumon.analysis.rules.advice import more_work
from gpumon.analysis.rules.needs import gpus, gpus_or_means
from gpumon.analysis.rules.phrasing import SHARED, finding, gpus_text, missing, percent, unread
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.unused import joined, not_seen, work_text
from gpumon.analysis.rules.waited_for import waited_for
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    Span,
    busy_track,
    capability,
    io_tracks,
    is_interactive,
    is_server,
    is_shared,
    job_devices,
    job_processes,
    link_tracks,
    mean_of,
    observed,
    phase_bins,
    power_at,
    power_fraction,
    power_limit_w,
    seconds_of,
    sustained,
    warm_up_end,
)
from gpumon.analysis.thresholds import Percent, Seconds, Share
from gpumon.model.lines import Line
from gpumon.model.units import age_text

_MIB = 1 << 20

#: part of the run, from which on SMs that are less than ineffective are told (proposed)
_MILD_SHARE = 0.5
_WHAT_FOR = "Find out what the GPU waits for: data, the host, or too little work per step."
#: idle time that is a part of the work where it is short
_PAUSES = (State.BETWEEN, State.ALONE, State.TURNS)


@dataclass
class Shown:
    """The devices that show the same thing, each with its spans and its numbers."""

    devices: list[DeviceData] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    numbers: list[dict[str, float]] = field(default_factory=list)

    def add(self, device: DeviceData, spans: Sequence[Span], **numbers: float) -> None:
        self.devices.append(device)
        self.spans += spans
        self.numbers.append(numbers)

    def means(self) -> dict[str, float]:
        """Each number's mean over the devices."""
        return {name: fmean(each[name] for each in self.numbers) for name in self.numbers[0]}

    def finding(self, run: RunData, level: str, what: str, says: str = "", **but: Any) -> Finding:
        """That the devices show `what`, and for how long in the mean; `but`: other arguments."""
        seconds = seconds_of(run, self.spans) / len(self.devices)
        values: dict[str, Any] = {
            "head": f"{gpus_text(run, self.devices)} {says}",
            "rest": f" for {age_text(seconds)}",
            "devices": self.devices,
            "spans": self.spans,
            "numbers": self.means(),
        }
        return finding(run, level, what, **(values | but))


class LowBusy(NamedTuple):
    seconds: Seconds = 900
    warning_percent: Percent = 15
    info_percent: Percent = 25
    pause_s: Seconds = 120  # from here on it is idle time
    interactive_s: Seconds = 8 * 3600  # shorter interactive jobs may pause


@rule(
    "low-busy",
    title="busy below {warning_percent} (information: {info_percent}) on average, over {seconds}",
    why="You are charged for the whole GPU but use only part of it.",
    remedy="find out what it waits for",
    needs=(gpus_or_means,),
    wastes=HELD_BACK,
)
def low_busy(run: RunData, t: LowBusy) -> Checked:
    """Mean over the time at work, of each phase by itself; what the ledger calls idle stands apart.

    Guards: what encodes, decodes or copies is used. Interactive jobs only when long, or idle for
    more than 80 % of at least an hour; servers of inference wait for requests: info. Of a MIG
    instance its SM activity counts, else not evaluable.

    Source: jobstats GPU_UTIL_RED 15 and BLACK 25, interactive > 8 h; 15 min are proposed.
    """
    if not job_devices(run):
        return jobstats.low_busy(run, t.seconds, t.warning_percent, t.info_percent)
    ledger = ledger_of(run)
    groups: dict[tuple[str, bool], Shown] = {}
    unknown = []
    for row in ledger.rows:
        if not row.is_known and ledger.in_bins(row.bins(State.UNMEASURED)) >= t.seconds:
            unknown.append(not_seen(run, row.device))
        low = _low_bins(run, row, t) if row.is_known else []
        if ledger.in_bins(low) < t.seconds or _may_pause(run, row, t):
            continue
        used = [100 * row.used[n] for n in low]
        serves = is_server(row.device)
        level = "warning" if fmean(used) < t.warning_percent and not serves else "info"
        numbers = {"busy_mean_percent": fmean(used), "busy_median_percent": median(used)}
        is_low = set(low)
        spans = runs_of([n in is_low for n in range(run.count)])
        groups.setdefault((level, serves), Shown()).add(row.device, spans, **numbers)
    found = (_low_busy(run, level, shown, serves) for (level, serves), shown in groups.items())
    return [*unknown, *found]


def _low_bins(run: RunData, row: Row, t: LowBusy) -> list[int]:
    """Buckets of phases in which the device did little in the time at work, short pauses in it too:
    long ones are idle time. People pause as they like.
    """
    is_for_people = is_interactive(run, job_devices(run))
    most = run.count if is_for_people else run.bins(t.pause_s) - 1
    rests = runs_of([state in _PAUSES for state in row.states])
    short = {n for span in rests if span.last - span.first <= most for n in range(*span)}
    works = (n for n, s in enumerate(row.states) if s is State.WORKING or n in short)
    at_work = [n for n in works if n not in row.waits]
    cuts = [] if run.live or is_for_people else busy_track(row.device).cuts(phase_bins(run))
    found: list[int] = []
    for first, last in between(cuts, 0, run.count):
        bins = at_work[bisect_left(at_work, first) : bisect_left(at_work, last)]
        if bins and 100 * fmean(row.used[n] for n in bins) < t.info_percent:
            found += bins
    return found


def _may_pause(run: RunData, row: Row, t: LowBusy) -> bool:
    """Interactive jobs may: not long enough, and not idle enough, to be called low."""
    if not is_interactive(run, job_devices(run)) or run.elapsed_s > t.interactive_s:
        return False
    return row.count(*IDLE) <= 0.8 * run.count or run.elapsed_s < 3600


def _low_busy(run: RunData, level: str, shown: Shown, serves: bool) -> Finding:
    numbers = shown.means()
    seconds = seconds_of(run, shown.spans) / len(shown.devices)
    mean, middle = numbers["busy_mean_percent"], numbers["busy_median_percent"]
    what = f"busy {percent(mean)} mean, {percent(middle)} median over {age_text(seconds)}"
    devices = job_devices(run)
    worth = work_text(run) if len(devices) > 1 else ""
    return shown.finding(
        run,
        level,
        what,
        rest=joined("it is a server, waiting for requests" if serves else "", worth),
        confidence="high" if run.coverage.from_start else "medium",
        actions=more_work(run, shown.devices) if serves else (to_write(_WHAT_FOR),),
    )


# -- held over windows -----------------------------------------------------------------------------


def _each_device(
    run: RunData,
    seconds: float,
    names: Sequence[str],
    holds: Callable[[DeviceData, Sequence[float]], bool],
) -> tuple[list[tuple[DeviceData, list[Span]]], dict[str, NotEvaluable]]:
    """Devices on which `holds` was true of the means of these fields; what is unknown of others,
    as of those that another user's process worked on too.
    """
    found, unknown = [], {}
    for device in job_devices(run):
        if is_shared(device):
            unknown[device.label] = missing(device, SHARED)
            continue
        tracks = [device.track(name) for name in names]
        first = warm_up_end(run, device)
        held = sustained(run, seconds, lambda means: holds(device, means), tracks, first)  # noqa: B023
        if held.spans:
            found.append((device, held.spans))
        elif not held.known:
            unknown[device.label] = unread(device, *names)
    return found, unknown


class LowSm(NamedTuple):
    seconds: Seconds = 300
    busy_percent: Percent = 80
    warning_percent: Percent = 50  # of SM activity
    info_percent: Percent = 80
    dram_percent: Percent = 50  # from which on the code is bound by memory


@rule(
    "low-sm",
    title="busy ≥ {busy_percent}, but SM activity below {warning_percent} ({info_percent})",
    why="Busy only means that some kernel was running; much of the chip was idle meanwhile.",
    remedy="more work at a time; or a smaller GPU",
    needs=(gpus,),
    folds=("low-power-high-busy",),
)
def low_sm(run: RunData, t: LowSm) -> Checked:
    """Guard: where DRAM activity is high the code is bound by memory, as the decode of a language
    model: info, and said so. Above 50 % only what held for most of the run. Of GPUs
    that wait for another all the time, another finding tells the cause. Needs GPM (Hopper and
    later), else not evaluable.

    Source: DCGM's guide (SM activity ≥ 0.8 is necessary, < 0.5 likely ineffective).
    """
    names = ("busy_percent", "sm_active_percent")

    def below(limit: float) -> Callable[[DeviceData, Sequence[float]], bool]:
        return lambda _, means: means[0] >= t.busy_percent and means[1] < limit

    worse, unknown = _each_device(run, t.seconds, names, below(t.warning_percent))
    milder, _ = _each_device(run, t.seconds, names, below(t.info_percent))
    groups: dict[tuple[str, bool], Shown] = {}
    taken = {device.label for device, _ in worse}
    least_s = 0.0 if run.live else _MILD_SHARE * seconds_of(run, [observed(run)])
    milder = [
        (device, spans)
        for device, spans in milder
        if device.label not in taken and seconds_of(run, spans) >= least_s
    ]
    for level, found in (("warning", worse), ("info", milder)):
        for device, spans in found:
            dram = mean_of(device.track("dram_active_percent"), spans)
            bound = dram is not None and dram >= t.dram_percent
            numbers = {name: mean_of(device.track(name), spans) or 0.0 for name in names}
            if bound and dram is not None:
                numbers["dram_active_percent"] = dram
            key = ("info" if bound else level, bound)
            groups.setdefault(key, Shown()).add(device, spans, **numbers)
    return [*unknown.values(), *(_low_sm(run, *key, shown) for key, shown in groups.items())]


def _low_sm(run: RunData, level: str, bound: bool, shown: Shown) -> Finding:
    numbers = shown.means()
    active = percent(numbers["sm_active_percent"])
    busy = percent(numbers["busy_percent"])
    what = f"busy {busy}, but only {active} of the multiprocessors (SMs) active"
    if bound:
        what += f"; bound by memory (DRAM {percent(numbers['dram_active_percent'])} active)"
    others = waited_for(run, shown.devices, shown.spans, "sm_active_percent")
    if others.devices and not others.in_phases:
        level = "info"  # a consequence of what keeps those
    actions = () if bound else more_work(run, shown.devices, others)
    return shown.finding(run, level, what, others.says(run), actions=actions)


#: times the low power: a GPU that drew so much before may not do what it did then (proposed)
_FELL = 2.0


class LowPower(NamedTuple):
    seconds: Seconds = 300
    busy_percent: Percent = 90
    power_fraction: Share = 0.25


@rule(
    "low-power-high-busy",
    title="busy ≥ {busy_percent} at under {power_fraction} of the power",
    why="A busy GPU that draws little power mostly waits inside its kernels.",
    remedy="more work at a time; or a smaller GPU (where it has no SM counters)",
    needs=(gpus,),
)
def low_power(run: RunData, t: LowPower) -> Answers:
    """And counters move. Only where GPM cannot say more (`low-sm`). Counters: device memory, PCIe,
    NVLink, the job's I/O; where all known ones stand still it may hang (`suspected-hang`), where
    none is known it is not evaluable. A run that COMPLETED did not hang. Guards: the default limit
    counts on a capped GPU; means over the whole window, since an A100 reports instantaneous power.

    Source: published readings of hangs (nccl#968, horovod#3611); the thresholds are proposed.
    """
    low_w = {
        each.label: power_at(each, t.power_fraction)
        for each in job_devices(run)
        if not each.track("sm_active_percent").known()
    }

    def holds(device: DeviceData, means: Sequence[float]) -> bool:
        limit_w = low_w.get(device.label)
        return limit_w is not None and means[0] >= t.busy_percent and means[1] < limit_w

    found, unknown = _each_device(run, t.seconds, ("busy_percent", "power_w"), holds)
    for device in job_devices(run):
        if power_at(device, t.power_fraction) is None and device.track("power_w").known():
            shared = "power is of the whole GPU" if device.device.mig else "power limit not known"
            unknown[device.label] = missing(device, shared)
    shown, before_w = Shown(), 0.0
    completed = not run.live and run.job is not None and run.job.state == "COMPLETED"
    for device, spans in found:
        moving = completed or is_moving(run, device, spans[-1])
        if moving is None:
            unknown[device.label] = missing(device, "no counter shows whether it makes progress")
        elif moving:
            power = mean_of(device.track("power_w"), spans) or 0.0
            numbers = {
                "busy_percent": mean_of(device.track("busy_percent"), spans) or 0.0,
                "power_w": power,
                "power_limit_w": power_limit_w(device) or 0.0,
                "power_fraction": power_fraction(device, power) or 0.0,
            }
            shown.add(device, spans, **numbers)
            before = Span(observed(run).first, spans[-1].first)
            before_w = max(before_w, mean_of(device.track("power_w"), [before]) or 0.0)
    yield from unknown.values()
    if shown.devices:
        numbers = shown.means()
        what = (
            f"busy {percent(numbers['busy_percent'])}, but drew only {numbers['power_w']:.0f} of "
            f"{numbers['power_limit_w']:.0f} W"
        )
        others = waited_for(run, shown.devices, shown.spans, "power_w")
        actions = more_work(run, shown.devices, others)
        if run.live and before_w >= _FELL * numbers["power_w"]:
            first = f"Check that its output still grows: until then they drew {before_w:.0f} W."
            actions = (to_do(first), *actions)
        yield shown.finding(
            run,
            "warning",
            what,
            others.says(run),
            confidence="medium",
            actions=actions,
        )


def is_moving(run: RunData, device: DeviceData, span: Span) -> bool | None:
    """Whether device memory, links or the job's I/O changed; None where none of them is known."""
    memory = device.track("mem_used_bytes").known(*span)
    signs = [max(memory) - min(memory) > _MIB] if memory else []
    tracks = [*link_tracks(device), *io_tracks(run, device.node)]
    means = [track.average(*span) for track in tracks]
    signs += [mean > _MIB for mean in means if mean is not None]
    return any(signs) if signs else None


class NoTensor(NamedTuple):
    seconds: Seconds = 600
    tensor_percent: Percent = 2
    fp32_percent: Percent = 20
    fp64_percent: Percent = 5  # from which on it is no candidate for mixed precision


@rule(
    "no-tensor",
    title="PyTorch, TensorFlow or JAX in FP32, tensor cores unused",
    why="The tensor cores are several times as fast as the pipes that were used.",
    remedy="mixed precision (bf16)",
    when="report",
    needs=(gpus,),
)
def no_tensor(run: RunData, t: NoTensor) -> Answers:
    """Guards: not for other programs, and not where FP64 is used. Needs GPM, else not evaluable.

    Source: courses that teach mixed precision (UMD, ECE459); the thresholds are proposed.
    """
    names = ("tensor_active_percent", "fp32_active_percent", "fp64_active_percent")

    def holds(device: DeviceData, means: Sequence[float]) -> bool:
        processes = job_processes(device)
        tags = (tag for each in processes for tag in (*each.frameworks, each.facts.framework))
        tensor, fp32, fp64 = means
        unused = tensor < t.tensor_percent and fp32 >= t.fp32_percent and fp64 < t.fp64_percent
        return unused and not ML_FRAMEWORKS.isdisjoint(tags)

    found, unknown = _each_device(run, t.seconds, names, holds)
    yield from unknown.values()
    shown = Shown()
    for device, spans in found:
        values = {name: mean_of(device.track(name), spans) or 0.0 for name in names[:2]}
        shown.add(device, spans, **values)
    if not shown.devices:
        return
    numbers = shown.means()
    has_bf16 = all((capability(each) or 0.0) >= 8 for each in shown.devices)
    dtype = Line("torch.bfloat16") if has_bf16 else Line("torch.float16")
    what = (
        f"tensor {percent(numbers['tensor_active_percent'])}, "
        f"FP32 {percent(numbers['fp32_active_percent'])}"
    )
    autocast = Line('with torch.autocast("cuda", dtype={}):', dtype)
    yield shown.finding(
        run,
        "info",
        what,
        f"did not use {'its' if len(shown.devices) == 1 else 'their'} tensor cores: ",
        actions=(
            Action("code", autocast, text="Use mixed precision."),
            Action("code", Line('torch.set_float32_matmul_precision("high")')),
        ),
    )
