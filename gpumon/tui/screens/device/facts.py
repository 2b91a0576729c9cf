"""What a device is, and what of its readings has no course, in aligned columns."""

from __future__ import annotations

from gpumon.analysis.rules.instant import SLOWING
from gpumon.model.fields import throttle_words
from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.moment import Moment, states
from gpumon.tui.moment.facts import reserving_framework
from gpumon.tui.parts.aligned import Fact, aligned
from gpumon.tui.parts.heading import mem_words
from gpumon.tui.parts.phrasing import FRAMEWORK_NAMES, device_name
from gpumon.tui.parts.title import short_name
from gpumon.tui.screens.device.courses import absent
from gpumon.tui.values import Format, percent, shown, value_of

#: clock event reasons that are no trouble, in words for people
_NORMAL = {
    "idle": "idle",
    "applications_clocks": "clocks set by the user",
    "sw_power_cap": "power limit",
    "sync_boost": "synchronised GPUs",
    "display_clocks": "display",
    "board_limit": "board limit",
}


def fact_rows(
    moment: Moment, node: NodeView, device: DeviceView, width: int, position: str, most: int
) -> list[Row]:
    """Title, identity, facts, and the sentence that reads busy and SM activity together.

    In at most so many rows, but with one of facts: the most telling ones come first.
    """
    rows = [_title(moment, node, device, width, position), _identity(device)]
    sentence = reading_sentence(node, device, moment.now)
    read: list[Row] = [[(f" {sentence}", "attention")]] if sentence else []
    if states.is_well(device) and (lacking := absent(node, device, moment.now)):
        read.append(fit_row([(f" {lacking}", "unknown")], width))
    room = max(1, most - len(rows) - len(read))
    return [*rows, *aligned(_facts(moment, node, device), width)[:room], *read]


def _title(moment: Moment, node: NodeView, device: DeviceView, width: int, position: str) -> Row:
    body = device.device
    name = device_name(node, device, several=len(moment.nodes) > 1)
    title: Row = [(f" {name}", "title"), (f"  {short_name(body.name)}", "")]
    if body.mig is not None:
        title.append((f"  {body.mig.profile} on {body.mig.parent}", "dim"))
    if body.cuda_index is not None:
        title.append((f"  CUDA {body.cuda_index}", "dim"))
    trouble = states.title(device, moment.now)
    if trouble is not None:
        title += [("  ", ""), trouble]
    return [*fit_row(title, max(0, width - len(position) - 1)), (position, "dim")]


def _identity(device: DeviceView) -> Row:
    facts = device.device.facts
    bus = str(facts.get("bus_id", "")).removeprefix("0000")
    identity = [device.device.uuid, f"bus {bus}" if isinstance(facts.get("bus_id"), str) else ""]
    identity += [_fact(facts.get("compute_capability"), "compute {}")]
    identity += [_fact(facts.get("numa_node"), "NUMA {}")]
    return [(" " + " · ".join(part for part in identity if part), "dim")]


def _fact(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, (str, int, float)) and value != "" else ""


def _facts(moment: Moment, node: NodeView, device: DeviceView) -> list[Fact]:
    """Readings that are no course: those are beside their plots."""
    now = moment.now

    def one(label: str, field: str, form: Format) -> list[Fact]:
        latest = node.latest("device", device.key, field, now)
        if isinstance(latest.reading, Missing):
            return []
        return [(label, shown(latest, form))]

    return [
        *_limited(node, device, now),
        *_memory(node, device, now),
        *one("driver memory", "mem_reserved_bytes", bytes_text),
        *one("ECC errors", "ecc_uncorrected", lambda v: f"{v:.0f} uncorrected"),
        *one("memory controller", "mem_controller_percent", percent),
        *_pcie(node, device, now),
        *one("energy", "energy_j", lambda v: f"{v / 3.6e6:.2f} kWh"),
        *one("encoder", "encoder_percent", percent),
        *one("decoder", "decoder_percent", percent),
        *one("state", "pstate", lambda v: f"P{v:.0f}"),
        *one("fan", "fan_percent", percent),
    ]


def _memory(node: NodeView, device: DeviceView, now: float) -> list[Fact]:
    """Where not all that is used is in use; amber where nobody knows how much is."""
    used, reserved = mem_words(node, device, now)
    if used:
        return [("memory", (f"{used}, {reserved}", "mem"))]
    star = reserving_framework(node, device.key)
    return [("memory preallocated by", (FRAMEWORK_NAMES[star], "attention"))] if star else []


def _pcie(node: NodeView, device: DeviceView, now: float) -> list[Fact]:
    gen, lanes = (
        node.latest("device", device.key, field, now) for field in ("pcie_gen", "pcie_width")
    )
    if isinstance(gen.reading, Missing):
        return []
    text, role = shown(gen, lambda v: f"gen {v:.0f}")
    width = value_of(lanes)
    return [("PCIe", (text + (f" × {width:.0f}" if width is not None else ""), role))]


def _limited(node: NodeView, device: DeviceView, now: float) -> list[Fact]:
    """Why the clocks are not at their highest; amber where that costs speed unexpectedly."""
    mask = number(node.latest("device", device.key, "throttle_mask", now).reading)
    reasons = throttle_words(int(mask)) if mask else []
    if not reasons:
        return []
    words = [SLOWING.get(word) or _NORMAL.get(word, word) for word in reasons]
    role = "attention" if any(word not in _NORMAL for word in reasons) else ""
    return [("clocks limited by", (", ".join(words), role))]


def reading_sentence(node: NodeView, device: DeviceView, now: float) -> str:
    """What SM activity says about busy, where both are known and differ."""

    def value(field: str) -> float | None:
        return value_of(node.latest("device", device.key, field, now))

    busy, sm = value("busy_percent"), value("sm_active_percent")
    if busy is None or sm is None or busy < 80 or sm >= 50:
        return ""
    return f"busy {busy:.0f} %, SM {sm:.0f} %: a kernel is always running but uses few of the SMs"
