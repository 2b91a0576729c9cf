"""What stands over a device's plot, or in its row: its name, its readings, and its state."""

from __future__ import annotations

from gpumon.analysis.rules.instant import KINDS, Remark, throttled_text
from gpumon.model.reading import Missing, number
from gpumon.model.units import age_text, bytes_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit_row, row_width
from gpumon.tui.moment import Moment, states
from gpumon.tui.moment.facts import reserving_framework
from gpumon.tui.moment.pools import in_use
from gpumon.tui.moment.remarks import LEVELS, label
from gpumon.tui.parts.phrasing import cursor, signs
from gpumon.tui.values import brief, celsius, percent, shown, value_of, watts

#: colour of what is in use of reserved memory
IN_USE = "fourth"
#: kinds of remarks that a heading has room for, the most urgent first
_STATES = ("faulty", "own-fault", "hot", "slowed", "never-worked", "unused", "idle")


def device_title(
    moment: Moment, node: NodeView, device: DeviceView, width: int, *, selected: bool
) -> Row:
    """`GPU 0  ▲ hot ▌busy 94 % ▌SM 81 % ━mem 98 %*  312 W  61 °C`, or why there are no numbers.

    The signs before the names are the plot's legend.
    """
    head: Row = [
        (cursor(moment.glyphs) if selected else " ", "key"),
        (name_of(moment, node, device), "title+selected" if selected else "title"),
        (" ", ""),
    ]
    trouble = states.title(device, moment.now)
    if trouble is not None:
        words, level = trouble
        sign = signs(moment.glyphs).get(level, "")
        return fit_row([*head, (f" {sign} {words}", level)], width)
    state = state_of(moment, node, device)
    said: Row = [(" ", ""), state, (" ", "")] if state else []
    row = [*head, *said]
    readings = _readings(moment, node, device, is_long=True)
    if row_width(row) + sum(map(row_width, readings)) > width:
        readings = _readings(moment, node, device, is_long=False)
    for reading in readings:  # whole or not at all
        if row_width(row) + row_width(reading) > width:
            break
        row += reading
    return fit_row(row, width)


def name_of(moment: Moment, node: NodeView, device: DeviceView) -> str:
    text = device.device.label
    if len(moment.nodes) > 1:
        return f"{node.name}:{text}"
    text = f"GPU {text}"
    cuda = device.device.cuda_index
    if cuda is not None and device.device.mig is None and cuda != device.device.index:
        text += f" (CUDA {cuda})"
    if device.device.mig is not None:
        text += f" {device.device.mig.profile}"
    return text


def mem_percent(node: NodeView, device: DeviceView, now: float) -> float | None:
    """Device memory in use, of its total; None when either is not known now."""
    used = value_of(node.latest("device", device.key, "mem_used_bytes", now))
    total = number(device.device.facts.get("mem_total_bytes"))
    return used / total * 100 if used is not None and total else None


def mem_text(moment: Moment, node: NodeView, device: DeviceView) -> str:
    """`98 %`; `75/98 %` where it is known how much of it is in use; a star where a framework has
    reserved it, and that is not known.
    """
    share = mem_percent(node, device, moment.now)
    if share is None:
        reading = node.latest("device", device.key, "mem_used_bytes", moment.now).reading
        return brief(reading, bytes_text)
    needed = in_use_percent(node, device, moment.now)
    if needed is not None:
        return f"{needed:.0f}/{share:.0f} %"
    star = "*" if reserving_framework(node, device.key) else ""
    return f"{share:.0f} %{star}"


def in_use_percent(node: NodeView, device: DeviceView, now: float) -> float | None:
    """What is in use of the memory that frameworks reserve, of the device's total."""
    found, total = in_use(node, device.key, now), number(device.device.facts.get("mem_total_bytes"))
    return 100 * found.used_bytes / total if found is not None and total else None


def mem_words(node: NodeView, device: DeviceView, now: float) -> tuple[str, str]:
    """`60.4 GiB in use`, `77.4 reserved`; ("", "") where that is not known."""
    found = in_use(node, device.key, now)
    reserved = value_of(node.latest("device", device.key, "mem_used_bytes", now))
    if found is None or reserved is None:
        return "", ""
    used, all_of_it = bytes_text(found.used_bytes), bytes_text(reserved)
    return f"{used} in use", f"{all_of_it.removesuffix(f' {used.split()[-1]}')} reserved"


def state_of(moment: Moment, node: NodeView, device: DeviceView) -> tuple[str, str] | None:
    """(`▲ idle 12 min`, its level) of a device with numbers; None where all is well."""
    remarks = moment.standing.of_device.get(label(node, device), {})
    kind = next((kind for kind in _STATES if kind in remarks), "")
    if not kind:
        return None
    level = _level(moment, remarks[kind])
    sign = signs(moment.glyphs)[level]
    return f"{sign} {_words(remarks[kind])}", "dim" if level == "note" else level


def _level(moment: Moment, remark: Remark) -> str:
    """That of the finding about the same matter, if there is one."""
    rules = KINDS[remark.kind].rules
    for each in moment.standing.findings:  # the worst first
        if each.id in rules and remark.device in each.devices:
            return LEVELS[each.level]
    return LEVELS[KINDS[remark.kind].level]


def _words(remark: Remark) -> str:
    if remark.kind in ("hot", "slowed"):
        return throttled_text(int(remark.value))
    return remark.detail or f"idle {age_text(remark.value)}"


def _readings(moment: Moment, node: NodeView, device: DeviceView, *, is_long: bool) -> list[Row]:
    key, now = device.key, moment.now
    busy = shown(node.latest("device", key, "busy_percent", now), percent, "busy")
    area, line = (" ", " ") if moment.glyphs == "ascii" else ("▌", "━")
    sm = node.latest("device", key, "sm_active_percent", now)
    has_sm = not isinstance(sm.reading, Missing)
    readings: list[Row] = [[(area, "hollow" if has_sm else "busy"), ("busy ", "dim"), busy]]
    if has_sm:
        readings.append([(" ", ""), (area, "busy"), ("SM ", "dim"), shown(sm, percent, "busy")])
    readings.append(_memory(moment, node, device, line, is_long=is_long))
    if device.device.mig is None:
        for field, form in (("power_w", watts), ("temperature_c", celsius)):
            latest = node.latest("device", key, field, now)
            if not isinstance(latest.reading, Missing):
                readings.append([("  ", ""), shown(latest, form)])
    return readings


def _memory(moment: Moment, node: NodeView, device: DeviceView, line: str, *, is_long: bool) -> Row:
    """With the sign of each of its lines; what is in use of it comes first."""
    used, reserved = mem_words(node, device, moment.now)
    if used and is_long:
        head: Row = [(" ", ""), (line, IN_USE), (used, IN_USE)]
        return [*head, (" ", ""), (line, "mem"), (reserved, "mem")]
    text = mem_text(moment, node, device)
    if not used:
        return [(" ", ""), (line, "mem"), ("mem ", "dim"), (text, "mem")]
    signs_: Row = [(" ", ""), (line, IN_USE), (line, "mem"), ("mem ", "dim")]
    part, _, share = text.partition("/")
    return [*signs_, (part, IN_USE), (f"/{share}", "mem")]
