"""What a wide screen shows of each node: its GPUs together, now and over time."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from gpumon.chart.bars import spark
from gpumon.model.units import bytes_text, span_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit
from gpumon.tui.moment import Moment
from gpumon.tui.parts.device_rows import spark_runs
from gpumon.tui.parts.plots import period_of

_FIGURES = (("GPU mem", 10), ("power", 10), ("max °C", 8))  # heading, cells
_FIGURE_CELLS = sum(cells for _, cells in _FIGURES)
_REMARK_CELLS = 56  # that are left for what stands out
_LEAST_COURSE, _MOST_COURSE = 16, 80  # cells of the line over time
_GAP = "  "


class Together(NamedTuple):
    """The columns; `cells` are those of the line over time."""

    moment: Moment
    cells: int

    @property
    def heading(self) -> str:
        figures = "".join(fit(heading, cells, right=True) for heading, cells in _FIGURES)
        return f"{figures}{_GAP}{fit(f'busy over {span_text(self.moment.span_s)}', self.cells)}"

    def row(self, node: NodeView) -> Row:
        devices = self.moment.devices_on(node)
        keys = [device.key for device in devices]
        now = self.moment.now

        def known(field: str) -> list[float]:
            return [each for each in node.numbers("device", keys, field, now) if each is not None]

        used, power, heat = map(known, ("mem_used_bytes", "power_w", "temperature_c"))
        texts = (
            bytes_text(sum(used)) if used else "?",
            _power_text(sum(power)) if power else "?",
            f"{max(heat):.0f}" if heat else "?",
        )
        figures = "".join(fit(text, cells, right=True) for text, (_, cells) in zip(texts, _FIGURES))
        return [(figures, ""), (_GAP, ""), *self._course(node, devices)]

    def _course(self, node: NodeView, devices: list[DeviceView]) -> Row:
        """Busy of all together, drawn anew as seldom as plots are."""
        moment, kept = self.moment, self.moment.kept.plots
        end = moment.now - node.clock_offset_s
        period = period_of(end, moment.span_s / self.cells)
        name = ("together", node.name)
        look = (moment.span_s, self.cells, moment.glyphs, period, len(devices))
        before = kept.get(name)
        if before is None or before[0] != look:
            before = kept[name] = look, self._drawn(node, devices, end)
        row: Row = before[1]
        return row

    def _drawn(self, node: NodeView, devices: list[DeviceView], end: float) -> Row:
        windows = [
            node.window("device", device.key, "busy_percent", end, self.moment.span_s, self.cells)
            for device in devices
        ]
        values: list[float | None] = []
        for buckets in zip(*windows):
            means = [bucket.mean for bucket in buckets if bucket is not None]
            values.append(fmean(means) if means else None)
        text = spark(values, self.cells, glyphs=self.moment.glyphs).replace("█", "▇")
        values[:0] = [None] * (self.cells - len(values))
        return spark_runs(text, values)


def together(moment: Moment, room: int) -> Together | None:
    """The columns that fit into so many cells beside what stands out; None: they do not."""
    cells = min(room - _FIGURE_CELLS - len(_GAP) - _REMARK_CELLS, _MOST_COURSE)
    return Together(moment, cells) if cells >= _LEAST_COURSE else None


def _power_text(watts: float) -> str:
    return f"{watts / 1000:.2f} kW" if watts >= 1000 else f"{watts:.0f} W"
