"""One device over the whole screen: what it is, its plots, its processes."""

from __future__ import annotations

from gpumon.model.fields import throttle_words
from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text, rate_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.facts import reserving_framework
from gpumon.tui.lines import Row, fit, fit_row
from gpumon.tui.state import View, ViewState
from gpumon.tui.values import Format, celsius, percent, shown, value_of, watts
from gpumon.tui.views.grid import memory_line, trouble_run
from gpumon.tui.views.plots import chart_rows
from gpumon.tui.views.request import FRAMEWORK_NAMES, device_name
from gpumon.tui.views.title import short_name

_PERCENT_LABELS = ("  0", " 50", "100")


def device_view(state: ViewState, width: int, height: int) -> View:
    current = state.current
    if current is None:
        return View([[(" No GPU is visible here.", "dim")]])
    node, device = current
    rows = _facts(state, node, device, width)
    processes = _processes(state, node, device, width, most=max(2, height // 6))
    rows += _plots(state, node, device, width, height - len(rows) - len(processes))
    return View([*rows[: height - len(processes)], *processes])


# -- facts --------------------------------------------------------------------------------------


def _facts(state: ViewState, node: NodeView, device: DeviceView, width: int) -> list[Row]:
    body, facts = device.device, device.device.facts
    position = f"{state.selected + 1} of {len(state.devices)}  ←→"
    name = device_name(node, device, several=len(state.nodes) > 1)
    title: Row = [(f" {name}", "title"), (f"  {short_name(body.name)}", "")]
    if body.mig is not None:
        title.append((f"  {body.mig.profile} on {body.mig.parent}", "dim"))
    if body.cuda_index is not None:
        title.append((f"  CUDA {body.cuda_index}", "dim"))
    trouble = trouble_run(device, state.now)
    if trouble is not None:
        title += [("  ", ""), trouble]
    title = [*fit_row(title, max(0, width - len(position) - 1)), (position, "dim")]
    bus = str(facts.get("bus_id", "")).removeprefix("0000")
    identity = [body.uuid, f"bus {bus}" if isinstance(facts.get("bus_id"), str) else ""]
    identity += [_fact(facts.get("compute_capability"), "compute {}")]
    identity += [_fact(facts.get("numa_node"), "NUMA {}")]
    rows: list[Row] = [title, [(" " + " · ".join(part for part in identity if part), "dim")]]
    rows += _wrapped(_numbers(state, node, device), width)
    sentence = reading_sentence(node, device, state.now)
    if sentence:
        rows.append([(f" {sentence}", "attention")])
    return rows


def _fact(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, (str, int, float)) and value != "" else ""


def _numbers(state: ViewState, node: NodeView, device: DeviceView) -> list[Row]:
    """Groups of readings that stay together when the row is wrapped."""
    now = state.now

    def one(label: str, field: str, form: Format, role: str = "") -> Row:
        latest = node.latest("device", device.key, field, now)
        return [(f" {label} ", "dim"), shown(latest, form, role), ("  ", "")]

    star = reserving_framework(node, device.key)
    memory = memory_line(node, device, now)
    reserved = f" reserved by {FRAMEWORK_NAMES[star]}" if star else ""
    groups = [
        one("busy", "busy_percent", percent, "busy"),
        [(" mem ", "dim"), (memory, "mem"), (reserved, "attention"), ("  ", "")],
        [*one("power", "power_w", watts)[:-1], (_limit(node, device, now), "dim"), ("  ", "")],
        one("temp", "temperature_c", celsius),
        one("SM clock", "sm_clock_mhz", lambda v: f"{v:.0f} MHz"),
        one("state", "pstate", lambda v: f"P{v:.0f}"),
        _throttle(node, device, now),
        one("fan", "fan_percent", percent),
        one("PCIe", "pcie_gen", lambda v: f"gen {v:.0f}"),
        one("×", "pcie_width", lambda v: f"{v:.0f}"),
        one("ECC uncorrected", "ecc_uncorrected", lambda v: f"{v:.0f}"),
        one("mem-ctrl", "mem_controller_percent", percent),
        one("encoder", "encoder_percent", percent),
        one("decoder", "decoder_percent", percent),
        one("energy", "energy_j", lambda v: f"{v / 3.6e6:.2f} kWh"),
    ]
    fields = {"fan": "fan_percent", "state": "pstate"}
    return [
        group
        for group in groups
        if group and not _is_unsupported(node, device, fields.get(group[0][0].strip()), now)
    ]


def _is_unsupported(node: NodeView, device: DeviceView, field: str | None, now: float) -> bool:
    if field is None:
        return False
    return isinstance(node.latest("device", device.key, field, now).reading, Missing)


def _limit(node: NodeView, device: DeviceView, now: float) -> str:
    limit = number(node.latest("device", device.key, "power_limit_w", now).reading)
    return f" / {limit:.0f} W" if limit else ""


def _throttle(node: NodeView, device: DeviceView, now: float) -> Row:
    mask = number(node.latest("device", device.key, "throttle_mask", now).reading)
    words = throttle_words(int(mask)) if mask else []
    normal = {"idle", "sw_power_cap", "applications_clocks"}
    if not words:
        return []
    role = "dim" if set(words) <= normal else "attention"
    return [(" clocks held by ", "dim"), (", ".join(words), role), ("  ", "")]


def reading_sentence(node: NodeView, device: DeviceView, now: float) -> str:
    """What SM activity says about busy, where both are known and differ."""

    def value(field: str) -> float | None:
        return value_of(node.latest("device", device.key, field, now))

    busy, sm = value("busy_percent"), value("sm_active_percent")
    if busy is None or sm is None or busy < 80 or sm >= 50:
        return ""
    return (
        f"busy {busy:.0f} %, SM {sm:.0f} %: a kernel is always running, but it fills few of the SMs"
    )


def _wrapped(groups: list[Row], width: int) -> list[Row]:
    rows: list[Row] = []
    line: Row = []
    used = 0
    for group in groups:
        size = sum(len(text) for text, _ in group)
        if line and used + size > width:
            rows.append(line)
            line, used = [], 0
        line = [*line, *group]
        used += size
    return [*rows, line] if line else rows


# -- plots --------------------------------------------------------------------------------------


def _plots(
    state: ViewState, node: NodeView, device: DeviceView, width: int, height: int
) -> list[Row]:
    """As many plots as fit, the most telling first, in one or two columns."""
    plots = _wanted(node, device, state.now)
    if not plots:
        return []
    columns = 2 if width >= 110 else 1
    lines = max(1, min((len(plots) + columns - 1) // columns, height // 7))
    plot_height, spare = divmod(height, lines)
    if plot_height < 4:
        return []
    rows: list[Row] = []
    for line in range(lines):
        cells = []
        here = plot_height + (1 if line < spare else 0)
        beside = plots[line * columns : (line + 1) * columns]
        plot_width = width // len(beside)
        for title, series, high, labels in beside:
            body = chart_rows(
                state, node, "device", device.key, series, plot_width - 1, here - 1, high, labels
            )
            cells.append(
                [fit_row(title, plot_width)]
                + [fit_row(row, plot_width) for row in body]
                + [[(" " * plot_width, "")]] * (here - 1 - len(body))
            )
        rows += [[run for cell in cells for run in cell[y]] for y in range(here)]
    return rows


Plot = tuple[Row, list[tuple[str, float, str]], float, tuple[str, str, str]]


def _wanted(node: NodeView, device: DeviceView, now: float) -> list[Plot]:
    key = device.key
    facts = device.device.facts

    def known(field: str) -> bool:
        return node.first_time("device", key, field) is not None

    def latest(field: str, form: Format, role: str) -> Row:
        return [shown(node.latest("device", key, field, now), form, role)]

    plots: list[Plot] = []
    total = number(facts.get("mem_total_bytes"))
    series = [("busy_percent", 1.0, "busy")] if known("busy_percent") else []
    title: Row = [(" busy ", "busy"), *latest("busy_percent", percent, "busy")]
    if total and known("mem_used_bytes"):
        series.insert(0, ("mem_used_bytes", 100 / total, "mem"))
        title += [("   memory ", "mem"), (memory_line(node, device, now), "mem")]
    if series:
        plots.append((title, series, 100.0, _PERCENT_LABELS))
    gpm = [
        ("sm_active_percent", "SM", "busy"), ("tensor_active_percent", "tensor", "third"),
        ("dram_active_percent", "DRAM", "mem"), ("sm_occupancy_percent", "occupancy", "fourth"),
    ]  # fmt: skip
    active = [entry for entry in gpm if known(entry[0])]
    if active:
        title = []
        for field, label, role in active:
            title += [(f" {label} ", role), *latest(field, percent, role), (" ", "")]
        plots.append(
            (title, [(field, 1.0, role) for field, _, role in active], 100.0, _PERCENT_LABELS)
        )
    if known("power_w"):
        limit = number(node.latest("device", key, "power_limit_w", now).reading)
        limit = limit or number(facts.get("power_limit_default_w")) or 400.0
        title = [(" power ", "fourth"), *latest("power_w", watts, "fourth")]
        title.append((f" of {limit:.0f} W", "dim"))
        plots.append((title, [("power_w", 1.0, "fourth")], limit, _labels(limit)))
    if known("sm_clock_mhz"):
        top = number(facts.get("sm_clock_max_mhz")) or 2000.0
        title = [
            (" SM clock ", "third"),
            *latest("sm_clock_mhz", lambda v: f"{v:.0f} MHz", "third"),
        ]
        plots.append((title, [("sm_clock_mhz", 1.0, "third")], top, _labels(top)))
    if known("temperature_c"):
        slow = number(facts.get("temperature_slowdown_c")) or 100.0
        title = [(" temperature ", "fourth"), *latest("temperature_c", celsius, "fourth")]
        title.append((f"  slows down at {slow:.0f} °C", "dim"))
        plots.append((title, [("temperature_c", 1.0, "fourth")], slow, _labels(slow)))
    plots += _links(node, device, now)
    return plots


def _links(node: NodeView, device: DeviceView, now: float) -> list[Plot]:
    plots: list[Plot] = []
    for label, received, sent in (
        ("PCIe", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
        ("NVLink", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"),
    ):
        peaks = [node.peak("device", device.key, field) for field in (received, sent)]
        known = [peak for peak in peaks if peak is not None]
        if not known:
            continue
        high = max(1e6, *known) * 1.05
        title: Row = [(f" {label} ", "dim"), ("↓ ", "busy")]
        title.append(shown(node.latest("device", device.key, received, now), rate_text, "busy"))
        title.append(("  ↑ ", "mem"))
        title.append(shown(node.latest("device", device.key, sent, now), rate_text, "mem"))
        top = bytes_text(high).replace(" ", "").replace("iB", "")
        half = bytes_text(high / 2).replace(" ", "").replace("iB", "")
        cells = max(len(top), len(half))
        labels = ("0".rjust(cells), half.rjust(cells), top.rjust(cells))
        plots.append((title, [(received, 1.0, "busy"), (sent, 1.0, "mem")], high, labels))
    return plots


def _labels(high: float) -> tuple[str, str, str]:
    top = f"{high:.0f}"
    return "0".rjust(len(top)), f"{high / 2:.0f}".rjust(len(top)), top


# -- processes ----------------------------------------------------------------------------------


def _processes(
    state: ViewState, node: NodeView, device: DeviceView, width: int, most: int
) -> list[Row]:
    here = [p for p in state.processes(node) if device.key in p.usage and p.ended is None]
    if not here:
        return [[(" no process on this device", "dim")]]
    here.sort(key=lambda p: -(number(p.usage[device.key]["mem_bytes"].reading) or 0.0))
    rows: list[Row] = [
        [(f" {'PID':>8} {'user':<10} {'mem':>9} {'SM':>6} {'CPU':>7}  command", "dim")]
    ]
    for process in here[:most]:
        usage = process.usage[device.key]
        cells = [
            _cell(usage.get("mem_bytes"), bytes_text, 9),
            _cell(usage.get("sm_percent"), percent, 6),
            _cell(process.readings.get("cpu_percent"), percent, 7),
        ]
        facts = process.facts
        command = facts.command or facts.note or "?"
        rows.append(
            [(f" {facts.pid:>8} {fit(facts.user or '?', 10)} ", ""), (" ".join(cells), ""),
             (f"  {command}", "dim")]
        )  # fmt: skip
    if len(here) > most:
        rows.append([(f" +{len(here) - most} more: 3 shows all", "dim")])
    return rows


def _cell(latest: object, form: Format, width: int) -> str:
    from gpumon.model.view import Latest
    from gpumon.tui.values import brief

    text = brief(latest.reading, form) if isinstance(latest, Latest) else "…"
    return fit(text, width, right=True)
