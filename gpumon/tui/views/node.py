"""One node: how its stream fares, its host, and its devices."""

from __future__ import annotations

from gpumon.model.reading import number
from gpumon.model.units import bytes_text, of_bytes_text, rate_text
from gpumon.model.view import Latest
from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.state import View, ViewState
from gpumon.tui.summaries import status_words
from gpumon.tui.values import percent, shown, value_of
from gpumon.tui.views.grid import device_grid


def node_view(state: ViewState, width: int, height: int) -> View:
    """The node named by `state.node_name`: three rows of its host, then its devices."""
    node = next((node for node in state.nodes if node.name == state.node_name), None)
    if node is None:
        return View([[(" no such node any more", "dim")]])
    rows = [_stream(state, node), _host(state, node), _traffic(state, node), []]
    del rows[height:]
    positions = state.positions_of(node.name)
    if not positions:
        return View([*rows, [(" no GPU has been seen on this node", "dim")]][:height])
    grid = device_grid(state, width, height - len(rows), positions)
    below = len(rows)
    return View([*rows, *grid.rows], [zone._replace(y=zone.y + below) for zone in grid.zones])


def _stream(state: ViewState, node: NodeView) -> Row:
    level, words = status_words(node.status(state.now), state.now)
    row: Row = [(f" {node.name} ", "title"), (f" {words}", level or "good")]
    header = node.header
    if header is not None:
        about = [f"every {node.interval_s:g} s"]
        about += [f"driver {header.driver}"] if header.driver else []
        about += [f"CUDA {header.cuda}"] if header.cuda else []
        row.append(("   " + " · ".join(about), "dim"))
    return row


def _host(state: ViewState, node: NodeView) -> Row:
    def latest(field: str) -> Latest:
        return node.latest("host", "", field, state.now)

    facts = node.header.facts if node.header else {}
    total, cpus = number(facts.get("mem_total_bytes")), number(facts.get("cpus"))
    row: Row = [(" CPU ", "dim"), shown(latest("cpu_percent"), percent, "busy")]
    row.append((f" of {cpus:.0f} cores" if cpus else "", "dim"))
    row += [("  load ", "dim"), shown(latest("load1"), lambda value: f"{value:.1f}")]
    row += [("  I/O wait ", "dim"), shown(latest("iowait_percent"), percent)]
    form = bytes_text if not total else lambda value: of_bytes_text(value, total or 1.0)
    row += [("   memory ", "dim"), shown(latest("mem_used_bytes"), form, "mem")]
    cache = value_of(latest("mem_cache_bytes"))
    row.append((f" (+{bytes_text(cache)} cache)" if cache else "", "dim"))
    return row


def _traffic(state: ViewState, node: NodeView) -> Row:
    """Every network interface, and every file system that a job can fill."""
    row: Row = []
    for key in node.keys("net"):
        rx, tx = (
            node.latest("net", key, field, state.now)
            for field in ("rx_bytes_per_s", "tx_bytes_per_s")
        )
        row += [(f" {key} ↓ " if state.glyphs != "ascii" else f" {key} in ", "dim")]
        row += [shown(rx, rate_text), (" ↑ " if state.glyphs != "ascii" else " out ", "dim")]
        row += [shown(tx, rate_text), (" ", "")]
    for key in node.keys("disk"):
        used = node.latest("disk", key, "used_bytes", state.now)
        total = value_of(node.latest("disk", key, "total_bytes", state.now))
        row += [(f"  {key} ", "dim"), shown(used, bytes_text)]
        value = value_of(used)
        if value is not None and total:
            row.append((f" ({value / total * 100:.0f} % full)", "dim"))
    return row
