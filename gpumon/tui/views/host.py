"""The host, for nodes without a GPU: CPU and memory over time, and who uses them."""

from __future__ import annotations

from gpumon.model.reading import number
from gpumon.model.units import rate_text
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.state import ViewState
from gpumon.tui.values import percent, shown, value_of
from gpumon.tui.views.grid import MIN_PLOT_HEIGHT
from gpumon.tui.views.plots import chart_rows
from gpumon.tui.views.processes import process_rows

_LABELS = ("  0", " 50", "100")


def host_rows(state: ViewState, width: int, height: int) -> list[Row]:
    """Two plots, side by side where there is room, and below them the busiest processes."""
    if not state.nodes or state.nodes[0].header is None or height < MIN_PLOT_HEIGHT:
        return []
    node = state.nodes[0]
    total = number(node.header.facts.get("mem_total_bytes")) if node.header else None
    columns = 2 if width >= 100 else 1
    plot_width = width // columns
    plot_height = max(MIN_PLOT_HEIGHT, min(height // 2, 16) // (1 if columns == 2 else 2))
    plots = [
        _plot(state, node, _cpu_title(state, node), "cpu_percent", 1.0, plot_width, plot_height),
        _plot(
            state, node, _memory_title(state, node, total), "mem_used_bytes",
            100 / total if total else 0.0, plot_width, plot_height,
        ),
    ]  # fmt: skip
    if columns == 2:
        rows = [[*left, *right] for left, right in zip(*plots)]
    else:
        rows = [row for plot in plots for row in plot]
    return [*rows, [], *process_rows(state, width, max(0, height - len(rows) - 1), "cpu")][:height]


def _plot(
    state: ViewState, node: NodeView, title: Row, field: str, factor: float, width: int, height: int
) -> list[Row]:
    role = "busy" if field == "cpu_percent" else "mem"
    series = [(field, factor, role)]
    body = chart_rows(state, node, "host", "", series, width - 1, height - 1, 100.0, _LABELS)
    rows = [fit_row(title, width), *(fit_row(row, width) for row in body)]
    return rows + [[(" " * width, "")]] * (height - len(rows))


def _cpu_title(state: ViewState, node: NodeView) -> Row:
    title: Row = [(" CPU ", "title")]
    title.append(shown(node.latest("host", "", "cpu_percent", state.now), percent, "busy"))
    wait = node.latest("host", "", "iowait_percent", state.now)
    title += [("   waiting for I/O ", "dim"), shown(wait, percent)]
    return title


def _memory_title(state: ViewState, node: NodeView, total: float | None) -> Row:
    used = value_of(node.latest("host", "", "mem_used_bytes", state.now))
    title: Row = [(" memory ", "title")]
    if used is not None and total:
        title.append((percent(used / total * 100), "mem"))
    for key in node.keys("net")[:1]:
        title.append((f"   {key} ↓ ", "dim"))
        title.append(shown(node.latest("net", key, "rx_bytes_per_s", state.now), rate_text))
        title.append((" ↑ ", "dim"))
        title.append(shown(node.latest("net", key, "tx_bytes_per_s", state.now), rate_text))
    return title
