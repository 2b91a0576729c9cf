"""What holds at this moment, by the newest samples: what rules say before they can be sure.

Most rules wait until their condition has held for minutes. A screen shows at once what the newest
samples say of the same matter, until one of the rules has raised a finding about the device.
Faults are here for jobs of so many nodes that nothing is evaluated while they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.thresholds import NeverUsed, Straggler, of_site
from gpumon.model.fields import THROTTLE_REASONS, throttle_words

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.site import Site

#: s over which the devices of several nodes are compared, and how long they must be known for that
COMPARED_S, COMPARED_LEAST_S = 300.0, 60.0
#: of fewer nodes there is no telling which one is the exception
COMPARED_NODES = 3
_IDLE_S = 60.0  # shorter pauses are no news

#: clock event reasons that cost speed, in words for people; idle and full power are normal
SLOWING = {
    "hw_slowdown": "hardware",
    "sw_thermal": "heat",
    "hw_thermal": "heat",
    "hw_power_brake": "power brake",
    "low_reliability": "voltage",
}
_SLOWING = sum(bit for bit, name in THROTTLE_REASONS if name in SLOWING)
_THERMAL = sum(bit for bit, name in THROTTLE_REASONS if name in ("sw_thermal", "hw_thermal"))


class Kind(NamedTuple):
    """One thing that the newest samples can say.

    level: that of the rules. rules: whose findings about a device say the same, and more.
    """

    level: str
    rules: tuple[str, ...]
    until_evaluated: bool = False  # any evaluation says it better, by finding nothing too


_IDLE = ("gpu-never-used", "gpu-allocated-no-process", "gpus-partly-idle", "gpu-idle-now")
KINDS = {
    "faulty": Kind("critical", ("gpu-health",), until_evaluated=True),
    "own-fault": Kind("warning", ("gpu-health",), until_evaluated=True),  # of the program
    "hot": Kind("warning", ("throttle-thermal",)),
    "slowed": Kind("warning", ("throttle-power",)),
    "slow": Kind("warning", ("straggler", "gpu-imbalance")),
    "idle": Kind("warning", _IDLE),
    "never-worked": Kind("warning", _IDLE),
    "unused": Kind("info", _IDLE),  # the same where no job holds the device
    "reserved": Kind("unknown", (), until_evaluated=True),
}
#: rules whose findings are states of a node or device, which screens show as what they are now
STATES = frozenset(("data-stale", "gpu-unreadable"))


class Remark(NamedTuple):
    """One of KINDS about one device."""

    kind: str
    device: str  # its label: "gpu01:0"
    value: float = 0.0  # s, %, a count or a bit mask, as the kind has it
    detail: str = ""  # the fault in words, or the framework that reserves memory


class Now(NamedTuple):
    """What the newest samples say of one device that answers; None: not known."""

    device: str  # its label
    busy_mean_percent: float | None = None  # over COMPARED_S
    idle_s: float = 0.0  # since it worked
    never_s: float = 0.0  # watched for so long without any work; 0 for one that worked
    throttle_mask: int = 0  # NVML's clock event reasons
    is_held: bool = True  # by a job
    framework: str = ""  # that takes memory ahead of need there
    fault: Fault | None = None


class Fault(NamedTuple):
    """Xids and readings that must be 0, in words. `of_program`: usually the program's own."""

    words: str
    of_program: bool


def instant(devices: Sequence[Now], nodes: int, site: Site | None) -> list[Remark]:
    """What there is to remark on the devices of so many nodes, in their order."""
    never_s = of_site(site, "gpu-never-used", NeverUsed).seconds
    slower = of_site(site, "straggler", Straggler).off_percent / 100
    known = [each.busy_mean_percent for each in devices if each.busy_mean_percent is not None]
    middle = median(known) if nodes >= COMPARED_NODES and known else 0.0
    least = middle * (1 - slower)
    return [remark for each in devices for remark in _of(each, never_s, middle, least)]


def _of(now: Now, never_s: float, middle: float, least: float) -> Iterable[Remark]:
    if now.fault is not None:
        kind = "own-fault" if now.fault.of_program else "faulty"
        yield Remark(kind, now.device, detail=now.fault.words)
    if now.throttle_mask & _SLOWING:
        kind = "hot" if now.throttle_mask & _THERMAL else "slowed"
        yield Remark(kind, now.device, now.throttle_mask)
    mean = now.busy_mean_percent
    if now.never_s >= never_s:
        yield Remark("never-worked" if now.is_held else "unused", now.device, now.never_s)
    if now.idle_s >= _IDLE_S:
        yield Remark("idle", now.device, now.idle_s)
    elif mean is not None and mean < least:
        yield Remark("slow", now.device, (1 - mean / middle) * 100)
    if now.framework:
        yield Remark("reserved", now.device, detail=now.framework)


def is_throttled(mask: float) -> bool:
    """For a reason that costs speed."""
    return bool(int(mask) & _SLOWING)


def throttled_text(mask: int) -> str:
    """`throttled (heat)`: why the clocks are lowered, of the reasons that cost speed; "" where none
    of them holds.
    """
    words = dict.fromkeys(SLOWING[word] for word in throttle_words(mask) if word in SLOWING)
    return f"throttled ({', '.join(words)})" if words else ""


def use_or_return(gpus: int) -> str:
    """What to do about a GPU that idles beside others: live and in the report in the same words."""
    return f"Use {'both' if gpus == 2 else f'all {gpus}'} GPUs or request fewer"


def unsaid(remarks: Iterable[Remark], findings: Iterable[Finding] | None) -> list[Remark]:
    """Those that no finding says, and as urgently; None: nothing was evaluated yet."""
    if findings is None:
        return list(remarks)
    said = {
        (each.id, device) for each in findings if each.level != "info" for device in each.devices
    }
    return [
        each
        for each in remarks
        if not KINDS[each.kind].until_evaluated
        and not any((id, each.device) in said for id in KINDS[each.kind].rules)
    ]
