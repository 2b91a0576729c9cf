"""What the screen shows right now: the nodes as the store told them, and the user's choices."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.chart import Canvas
from gpumon.model.sample import JobContext
from gpumon.model.units import span_text
from gpumon.model.view import DeviceView, ProcessView
from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.player import Player

#: widths of the plots in seconds; 0 is everything since the first sample
ZOOMS_S = (60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0, 604800.0, 0.0)


class Zone(NamedTuple):
    """A part of the screen that takes clicks: `action` as in the table of keys."""

    x: int
    y: int
    width: int
    height: int
    action: str

    def holds(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


class View(NamedTuple):
    """One screen, drawn: its rows, and where clicks mean something."""

    rows: list[Row]
    zones: list[Zone] = []


class ViewState:
    """Choices of the user and the latest nodes; views read it, the app changes it."""

    def __init__(self, palette: str, glyphs: str, zoom_s: float, *, whole_node: bool) -> None:
        self.palette = palette
        self.glyphs = glyphs  # braille, block or ascii
        self.whole_node = whole_node
        self.now = 0.0
        self.nodes: list[NodeView] = []
        self.devices: list[tuple[NodeView, DeviceView]] = []  # all shown, in NVML's order
        self._processes: dict[str, list[ProcessView]] = {}
        self.view = "job"
        self.selected = 0  # position in `devices`
        self.zoom: int | None = None  # position in ZOOMS_S; None: what there is, up to start_span_s
        self.start_span_s = zoom_s
        self.frozen_at: float | None = None
        self.player: Player | None = None  # while a recording is played
        self.sort = "mem"
        self.reverse = False
        self.tree = False
        self.filter_text = ""
        self.cursor = 0  # position in the process table
        self.cursor_pid: tuple[str, int] | None = None  # the cursor follows the process
        self.top = 0  # first process row on screen
        self.device_top = 0  # first device row on screen
        self.message = ""  # one line above the key bar, until message_until
        self.message_until = 0.0
        self.charts: dict[object, tuple[object, Canvas | None]] = {}

    def update(self, nodes: list[NodeView], now: float) -> None:
        """Take the nodes as they are at `now`; views then see one moment."""
        self.now = now
        self.nodes = nodes
        self.devices = [pair for node in nodes for pair in self._devices_of(node)]
        self.selected = min(max(self.selected, 0), max(0, len(self.devices) - 1))
        self._processes.clear()

    def _devices_of(self, node: NodeView) -> list[tuple[NodeView, DeviceView]]:
        """The node's devices; inside a job those that the job sees, if any is known to be one."""
        devices = node.devices()
        if self.job_of(node) is not None:
            mine = [view for view in devices if view.device.cuda_index is not None]
            devices = mine or devices
        return [(node, view) for view in devices]

    def job_of(self, node: NodeView) -> JobContext | None:
        """The job to show for this node; None when the whole node is wanted."""
        return None if self.whole_node or node.header is None else node.header.job

    def processes(self, node: NodeView) -> list[ProcessView]:
        """The node's processes, asked for once per update."""
        found = self._processes.get(node.name)
        if found is None:
            found = self._processes[node.name] = node.processes(self.now)
        return found

    @property
    def current(self) -> tuple[NodeView, DeviceView] | None:
        return self.devices[self.selected] if self.devices else None

    @property
    def first_time(self) -> float:
        """When the oldest sample was taken."""
        times = [node.first_time("host", "", "cpu_percent") for node in self.nodes]
        return min((time for time in times if time is not None), default=self.now)

    @property
    def span_s(self) -> float:
        """Seconds that the plots show."""
        if self.zoom is not None and ZOOMS_S[self.zoom]:
            return ZOOMS_S[self.zoom]
        age_s = max(60.0, self.now - self.first_time)
        if self.zoom is not None:
            return age_s
        longest = self.start_span_s
        return next((span for span in ZOOMS_S if age_s <= span < longest), longest)

    @property
    def end(self) -> float:
        """The time at the right edge: now; or, until there is a span's worth, its future end.

        So a new plot fills from the left and stands still meanwhile, instead of creeping.
        """
        if self.zoom is not None:
            return self.now
        return max(self.now, self.first_time + self.span_s)

    @property
    def time_labels(self) -> tuple[str, str, str]:
        """Left, middle and right of the time axis."""
        span = self.span_s
        if self.end > self.now:
            return "start", f"+{span_text(span / 2)}", f"+{span_text(span)}"
        return f"-{span_text(span)}", f"-{span_text(span / 2)}", "now"

    @property
    def span_text(self) -> str:
        everything = self.zoom is not None and not ZOOMS_S[self.zoom]
        return "all" if everything else span_text(self.span_s)

    def zoom_by(self, step: int) -> None:
        """A longer (1) or shorter (-1) time than what is shown now."""
        if self.zoom is None:
            self.zoom = min(range(len(ZOOMS_S)), key=lambda i: abs(ZOOMS_S[i] - self.span_s))
        self.zoom = min(max(self.zoom + step, 0), len(ZOOMS_S) - 1)
