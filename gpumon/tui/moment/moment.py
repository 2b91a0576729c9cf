"""What there is to show now, for all screens: the nodes, the job, the newest evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from gpumon.model.reading import number
from gpumon.model.sample import JobContext
from gpumon.model.view import DeviceView, NotRecorded, ProcessView, Silence, Status
from gpumon.store import NodeView
from gpumon.tui.moment.cache import Current, Turns
from gpumon.tui.moment.facts import DeviceLoad, Facts, device_load, facts_of, without_parents
from gpumon.tui.moment.remarks import Remarks, Standing, label
from gpumon.tui.moment.states import is_silent, is_well
from gpumon.tui.moment.summaries import Summaries, Summary, in_order
from gpumon.tui.moment.zoom import Zoom

if TYPE_CHECKING:
    from gpumon.pipeline.evaluator import LiveEvaluation
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.slurm.job import Job
    from gpumon.sources.replay import ReplaySource

#: more devices than this, on several nodes, are a heat map on the Job screen
FOLD_ABOVE = 64

#: of more nodes, what is seldom new is asked in turn, each node in so many seconds
FEW_NODES, FACTS_ROUND_S = 8, 5


class Kept:
    """Answers of nodes that stand for longer than one moment, and the plots made of them."""

    def __init__(self) -> None:
        self.devices: dict[bool, Current[list[DeviceView]]] = {True: Current(), False: Current()}
        self.loads: Current[DeviceLoad] = Current()
        self.processes: Current[list[ProcessView]] = Current()
        self.facts: Turns[Facts] = Turns(FACTS_ROUND_S, FEW_NODES)
        self.remarks = Remarks()
        self.summaries = Summaries()
        self.plots: dict[object, Any] = {}  # by what they show; see `parts.plots`


@dataclass(frozen=True, eq=False)
class Moment:
    """What every screen draws from; immutable, a new one for each drawing.

    now: epoch s by the source's clock.
    left: former nodes of a job that is still running; `nodes` are its current ones.
    past_of: a node of which GPUs are shown, too, that are the job's no more.
    glyphs: braille, block or ascii.
    whole_node: show all devices, also those that are not the job's.
    not_recorded: by node, those that should be recorded.
    """

    zoom: Zoom
    glyphs: str
    nodes: list[NodeView] = field(default_factory=list)
    left: list[NodeView] = field(default_factory=list)
    now: float = 0.0
    whole_node: bool = False
    is_frozen: bool = False
    plots: bool = True  # of devices, where there is room; else a row each
    job: Job | None = None  # as Slurm knows it
    evaluation: LiveEvaluation | None = None  # the newest
    player: ReplaySource | None = None  # while a recording is played
    not_recorded: Mapping[str, NotRecorded] = field(default_factory=dict)
    past_of: NodeView | None = None
    silence: Silence | None = None  # of Slurm
    kept: Kept = field(default_factory=Kept)

    def looking_at(self, pipeline: Pipeline) -> Moment:
        """What the pipeline has to show now, with the same time in its plots."""
        nodes, job = pipeline.nodes(), pipeline.job()
        if job is not None:  # those that came later stand where the job has them
            places = {name: place for place, name in enumerate(job.nodes)}
            nodes.sort(key=lambda node: places.get(node.name, len(places)))
        return replace(
            self,
            nodes=[node for node in nodes if not node.is_left],
            left=[node for node in nodes if node.is_left],
            now=pipeline.now(),
            job=job,
            silence=pipeline.silence,
            evaluation=pipeline.evaluation,
            not_recorded=pipeline.not_recorded,
        )

    @cached_property
    def devices(self) -> list[tuple[NodeView, DeviceView]]:
        """All that are shown, in the order of their numbers; those of the past come last."""
        shown = [(node, device) for node in self.nodes for device in self._devices_on(node)]
        node = self.past_of
        past = [] if node is None else [each for each in node.devices() if each.left]
        return shown + [(node, device) for device in past if node is not None]

    def with_past(self, node: NodeView) -> Moment:
        """The same moment, in which what this node had for the job before is shown, too."""
        return replace(self, past_of=node)

    def _devices_on(self, node: NodeView) -> list[DeviceView]:
        return self.kept.devices[self.whole_node].of(node, self.now, self._devices_of)

    def _devices_of(self, node: NodeView) -> list[DeviceView]:
        """The node's devices; inside a job those that the job sees, if any is known to be one."""
        devices = [view for view in node.devices() if not view.left]
        if self.job_of(node) is not None:
            mine = [view for view in devices if view.device.cuda_index is not None]
            devices = mine or devices
        return devices

    @cached_property
    def _own(self) -> dict[NodeView, list[DeviceView]]:
        """Of each node, MIG instances in the place of their device."""
        return {node: without_parents(self._devices_on(node)) for node in self.nodes}

    def devices_on(self, node: NodeView) -> list[DeviceView]:
        """Those of one node; none of one that is the job's no more."""
        return self._own.get(node, [])

    def job_of(self, node: NodeView) -> JobContext | None:
        """The job to show for this node; None when the whole node is wanted."""
        return None if self.whole_node or node.header is None else node.header.job

    @cached_property
    def _statuses(self) -> dict[NodeView, Status]:
        return {node: node.status(self.now) for node in (*self.nodes, *self.left)}

    def status(self, node: NodeView) -> Status:
        """Of a node's stream; the same in the whole drawing, which asks often."""
        return self._statuses[node]

    def mem_limit(self, node: NodeView) -> float | None:
        """Of the job's cgroup on this node, in bytes."""
        limit = number(node.latest("job", "", "mem_limit_bytes", self.now).reading)
        job = self.job_of(node)
        return limit or (float(job.mem_limit_bytes) if job and job.mem_limit_bytes else None)

    def processes(self, node: NodeView) -> list[ProcessView]:
        return self.kept.processes.of(node, self.now, lambda node: node.processes(self.now))

    def positions_of(self, name: str) -> list[int]:
        """Where the devices of a node stand in `devices`."""
        return [place for place, (node, _) in enumerate(self.devices) if node.name == name]

    @cached_property
    def _facts(self) -> dict[NodeView, Facts]:
        def ask(node: NodeView) -> Facts:
            is_evaluated = self.evaluation is not None
            return facts_of(node, self._devices_on(node), self.now, is_evaluated=is_evaluated)

        return self.kept.facts.of(self.nodes, self.now, ask)

    def facts(self) -> dict[NodeView, Facts]:
        """Each node's facts for notes; of many nodes those of their last turn."""
        return self._facts

    @cached_property
    def standing(self) -> Standing:
        in_job = bool(self.nodes) and self.job_of(self.nodes[0]) is not None
        unwell = (each for each in self.devices if not is_well(each[1]))
        silent = {label(*each) for each in unwell if is_silent(each[1])}
        return self.kept.remarks.at(
            self._own, self.facts(), self.evaluation, self.now, silent=silent, in_job=in_job
        )

    def device_loads(self) -> list[DeviceLoad]:
        """What the devices shown do together, for each node."""

        def ask(node: NodeView) -> DeviceLoad:
            return device_load(node, self._own[node], self.now)

        return [self.kept.loads.of(node, self.now, ask) for node in self.nodes]

    @cached_property
    def _summaries(self) -> dict[str, list[Summary]]:
        return {}  # by metric

    def summaries(self, metric: str = "busy") -> list[Summary]:
        """A row for each node, the worst first; computed once for each metric that is asked for."""
        if metric not in self._summaries:
            found = self.kept.summaries.all(self._own, metric, self.now, self.standing, self.status)
            self._summaries[metric] = in_order(found, "worst", reverse=False)
        return self._summaries[metric]

    def left_summaries(self, metric: str) -> list[Summary]:
        """A row for each node that is the job's no more, the one that was left last first."""
        left = sorted(self.left, key=lambda node: -node.since)
        nothing: dict[NodeView, list[DeviceView]] = {node: [] for node in left}
        return self.kept.summaries.all(nothing, metric, self.now, self.standing, self.status)

    @property
    def has_ended(self) -> bool:
        """Whether the job ended while it was watched; a recording of it shows it running."""
        return self.job is not None and self.job.has_ended and self.player is None

    @property
    def is_folded(self) -> bool:
        """Whether the Job screen shows nodes instead of devices."""
        return len(self.devices) > FOLD_ABOVE and len(self.nodes) > 1

    # -- the time that plots show

    @cached_property
    def first_time(self) -> float:
        """When the oldest sample was taken."""
        times = [node.first_time("host", "", "cpu_percent") for node in self.nodes]
        return min((time for time in times if time is not None), default=self.now)

    @cached_property
    def span_s(self) -> float:
        times = [node.first_time("host", "", "cpu_percent", past=True) for node in self.nodes]
        oldest = min((time for time in times if time is not None), default=self.now)
        return self.zoom.span_s(self.now - oldest)

    @property
    def shown_from(self) -> float:
        """Where the time axis begins; -inf: with whatever there is."""
        return -inf if self.zoom.is_all else self.now - self.span_s

    @property
    def span_text(self) -> str:
        return self.zoom.text(self.span_s)

    def zoomed(self, step: int) -> Moment:
        """The same moment with a longer (1) or shorter (-1) time in its plots."""
        return replace(self, zoom=self.zoom.by(step, self.span_s))

    def frozen(self) -> Moment:
        """The same moment, to be shown while samples continue."""
        nodes, left = ([node.frozen() for node in each] for each in (self.nodes, self.left))
        return replace(self, nodes=nodes, left=left, is_frozen=True)
