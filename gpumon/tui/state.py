"""What the screen shows right now: the nodes as the store told them, and the user's choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.chart import Canvas
from gpumon.model.sample import JobContext
from gpumon.model.units import span_text
from gpumon.model.view import DeviceView, ProcessView
from gpumon.store import NodeView
from gpumon.tui.asking import Current, Turns
from gpumon.tui.facts import DeviceLoad, Facts, device_load, facts_of
from gpumon.tui.lines import Row
from gpumon.tui.player import Player
from gpumon.tui.summaries import METRICS, Metric, Summaries, Summary, in_order

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.slurm.job import Job
    from gpumon.tui.judging import Verdict
    from gpumon.tui.views.processes import Listing

#: more devices than this, on several nodes, are a heat map on the Job screen
FOLD_ABOVE = 64

#: of more nodes, what is seldom new is asked in turn, each node in so many seconds
FEW_NODES, FACTS_ROUND_S = 8, 5

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


class Pane:
    """What the output screen shows of the job's files, and where it stands in them."""

    def __init__(self) -> None:
        self.stream = "out"  # or "err"
        self.read = ""  # the stream that `lines` come from
        self.path = ""
        self.trouble = ""  # why there are no lines
        self.lines: list[str] = []
        self.back = 0  # lines between what is shown and the end; 0 follows the file


class ViewState:
    """Choices of the user and the latest nodes; views read it, the app changes it."""

    def __init__(self, palette: str, glyphs: str, zoom_s: float, *, whole_node: bool) -> None:
        self.palette = palette
        self.glyphs = glyphs  # braille, block or ascii
        self.whole_node = whole_node
        self.now = 0.0
        self.nodes: list[NodeView] = []
        self.devices: list[tuple[NodeView, DeviceView]] = []  # all shown, in NVML's order
        self._shown: dict[bool, Current[list[DeviceView]]] = {True: Current(), False: Current()}
        self._loads: Current[DeviceLoad] = Current()
        self._processes: Current[list[ProcessView]] = Current()
        self.listings: Current[Listing] = Current()
        self.view = "job"
        self.opened_from = "job"  # the screen on which the device was opened
        self.selected = 0  # position in `devices`
        self.zoom: int | None = None  # position in ZOOMS_S; None: what there is, up to start_span_s
        self.start_span_s = zoom_s
        self.frozen_at: float | None = None
        self.not_recorded: dict[str, str] = {}  # by node: why it should be, and is not
        self.player: Player | None = None  # while a recording is played
        self._sort = ""  # until the user chooses
        self.reverse = False
        self.tree = False
        self.filter_text = ""
        self.cursor = 0  # position in the process table
        self.cursor_pid: tuple[str, int] | None = None  # the cursor follows the process
        self.top = 0  # first process row on screen
        self.device_top = 0  # first device row on screen
        self.message = ""  # one line above the key bar, until message_until
        self.message_until = 0.0
        self.metric_place = 0  # position in METRICS: what the cells of the nodes show
        self.node_name = ""  # the selected node
        self.node_sort = "worst"
        self.node_reverse = False
        self.node_top = 0  # first node on screen
        self.job: Job | None = None  # as Slurm knows it
        self.has_output = False  # whether what the job writes can be followed
        self.output = Pane()
        self.verdict: Verdict | None = None  # the newest findings
        self.verdict_trouble = ""
        self.report_cursor = 0  # the selected finding
        self.report_count = 0  # findings in the report that was drawn last
        self.report_scroll = 0  # rows below where the cursor alone would put the page
        self.opened_finding: Finding | None = None
        self._summaries = Summaries()
        self._summed: list[Summary] | None = None  # of this update
        self._all_facts: Turns[Facts] = Turns(FACTS_ROUND_S, FEW_NODES)
        self._facts: dict[NodeView, Facts] | None = None  # of this update
        self._first_time: float | None = None
        self.charts: dict[object, tuple[object, Canvas | None]] = {}

    def update(self, nodes: list[NodeView], now: float) -> None:
        """Take the nodes as they are at `now`; views then see one moment."""
        self.now = now
        self.nodes = nodes
        self.devices = [(node, device) for node in nodes for device in self._devices_on(node)]
        self.selected = min(max(self.selected, 0), max(0, len(self.devices) - 1))
        self._summed = None
        self._facts = None
        self._first_time = None

    def _devices_on(self, node: NodeView) -> list[DeviceView]:
        return self._shown[self.whole_node].of(node, self.now, self._devices_of)

    def _devices_of(self, node: NodeView) -> list[DeviceView]:
        """The node's devices; inside a job those that the job sees, if any is known to be one."""
        devices = node.devices()
        if self.job_of(node) is not None:
            mine = [view for view in devices if view.device.cuda_index is not None]
            devices = mine or devices
        return devices

    def job_of(self, node: NodeView) -> JobContext | None:
        """The job to show for this node; None when the whole node is wanted."""
        return None if self.whole_node or node.header is None else node.header.job

    def processes(self, node: NodeView) -> list[ProcessView]:
        """The node's processes."""
        return self._processes.of(node, self.now, lambda node: node.processes(self.now))

    def facts(self) -> dict[NodeView, Facts]:
        """What notes say of each node; of many nodes as it was at its turn."""
        if self._facts is None:
            self._facts = self._all_facts.of(self.nodes, self.now, self._facts_of)
        return self._facts

    def _facts_of(self, node: NodeView) -> Facts:
        return facts_of(node, self._devices_on(node), self.now)

    def device_loads(self) -> list[DeviceLoad]:
        """What the devices shown do together, for each node."""
        return [self._loads.of(node, self.now, self._load_of) for node in self.nodes]

    def _load_of(self, node: NodeView) -> DeviceLoad:
        return device_load(node, self._devices_on(node), self.now)

    @property
    def sort(self) -> str:
        """What orders processes, until one is chosen: GPU memory, or CPU where none is on a GPU."""
        return self._sort or ("mem" if any(node.keys("usage") for node in self.nodes) else "cpu")

    @sort.setter
    def sort(self, name: str) -> None:
        self._sort = name

    @property
    def metric(self) -> Metric:
        return METRICS[self.metric_place]

    @property
    def has_ended(self) -> bool:
        """Whether the job ended while it was watched; a recording of it shows it running."""
        return self.job is not None and self.job.has_ended and self.player is None

    @property
    def is_folded(self) -> bool:
        """Whether the Job screen shows nodes instead of devices."""
        return len(self.devices) > FOLD_ABOVE and len(self.nodes) > 1

    @property
    def selects_nodes(self) -> bool:
        """Whether the cursor of what is shown stands on a node."""
        return self.view == "nodes" or (self.view == "job" and self.is_folded)

    def summaries(self) -> list[Summary]:
        """A row for each node, in the order chosen; computed once per update."""
        if self._summed is None:
            self._summed = self._summaries.all(self.nodes, self.devices, self.metric.name, self.now)
        return in_order(self._summed, self.node_sort, reverse=self.node_reverse)

    def next_metric(self, step: int) -> None:
        self.metric_place = (self.metric_place + step) % len(METRICS)
        self._summed = None

    def positions_of(self, name: str) -> list[int]:
        """Where the devices of a node stand in `devices`."""
        return [place for place, (node, _) in enumerate(self.devices) if node.name == name]

    def select_node(self, name: str) -> None:
        """Put the cursor on a node, and on its first device unless it is on one of its own."""
        self.node_name = name
        positions = self.positions_of(name)
        if positions and self.selected not in positions:
            self.selected = positions[0]

    @property
    def current(self) -> tuple[NodeView, DeviceView] | None:
        return self.devices[self.selected] if self.devices else None

    @property
    def first_time(self) -> float:
        """When the oldest sample was taken; looked up once per update."""
        if self._first_time is None:
            times = [node.first_time("host", "", "cpu_percent") for node in self.nodes]
            self._first_time = min((time for time in times if time is not None), default=self.now)
        return self._first_time

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
