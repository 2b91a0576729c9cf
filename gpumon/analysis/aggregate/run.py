"""Run data from samples: of a recording's streams, or fed live beside the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, floor
from threading import Lock
from typing import TYPE_CHECKING, Any, Union

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.limits import WHOLE, Limits
from gpumon.analysis.aggregate.node import NodeAggregate
from gpumon.analysis.aggregate.suspended import holes_of, without_suspension
from gpumon.analysis.rundata import Coverage, RunData
from gpumon.errors import WireError
from gpumon.model.batch import ColumnBatch
from gpumon.model.bounded import left_out_text
from gpumon.model.rolled import Piles, Rolled, RolledFrame, check
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Event, Header, Sample

if TYPE_CHECKING:
    from gpumon.site import Site
    from gpumon.slurm.job import Job

#: samples that begin within a minute of the job's start cover it from the start
_NEAR_S = 60.0
MAX_EVENTS = 10_000

Item = Union[Header, Sample, ColumnBatch]
Items = Callable[[], Iterator[Item]]
_AT_DEVICES = 8
_SERIES_A_DEVICE = 80  # with its processes
#: what rollups raise that nobody made for us
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    WireError,
)


class _Chain:
    """Of a node of which only rollup lines were taken: how they go on."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.state: Callable[[], Mapping[str, Any]] | None = None  # of the newest
        self.items: list[Items] = []  # what each was made of
        self.piles: Piles | None = None


class Aggregation:
    """Takes the samples of all nodes of a run and gives its evidence at any time. Thread-safe.

    The grid has bins of 10 s, of twice that and so on where the interval is longer or where there
    would be more than 8,640 of them (a day), fewer with more than eight devices: the product of
    bins and devices stays below 69,120, about 25 MB in all, unless `room` says otherwise.
    Costs about 0.2 ms a sample of 8 devices and 16 processes.
    """

    def __init__(self, room: Limits = WHOLE) -> None:
        self._room = room
        self._lock = Lock()
        self._nodes: dict[str, NodeAggregate] = {}
        self._step_s = STEP_S
        self._with_room = (0, 0)  # the bin that was looked at last, and of how many nodes
        self._chains: dict[str, _Chain] = {}

    @property
    def step_s(self) -> float:
        """Seconds of a bin."""
        return self._step_s

    def add(self, node: str, item: Item | RolledFrame) -> None:
        """The next item of one node's stream. What comes before its header says nothing.

        Rollup lines must go on where those before ended, with nothing else of the node before or
        between; in place of others it takes the samples that they were made of. So it does of all
        that came of a node when some of its lines are malformed.
        """
        if isinstance(item, RolledFrame):
            with self._lock:
                found = self._take_rolled(node, item)
            self._add_all(node, found)
            return
        self._settle(node)
        if isinstance(item, ColumnBatch):
            with self._lock:
                taken = self._take_batch(node, item)
            for sample in () if taken else item.samples():
                self.add(node, sample)
            return
        with self._lock:
            gathered = self._of(node)
            if isinstance(item, Header):
                self._take_header(gathered, item)
                return
            if item.rows:
                self._make_room_once(item.time)
            gathered.take_sample(item, self._step_s)

    def _of(self, node: str) -> NodeAggregate:
        gathered = self._nodes.get(node)
        if gathered is None:
            gathered = self._nodes[node] = NodeAggregate(node, self._room)
        return gathered

    def _take_header(self, gathered: NodeAggregate, header: Header) -> None:
        gathered.take_header(header, self._step_s)
        while self._step_s < header.interval_s:
            self._double()

    def _take_batch(self, node: str, batch: ColumnBatch) -> bool:
        """Whether they could be taken as they are, in columns."""
        gathered = self._nodes.get(node)
        if gathered is None or not gathered.can_take(batch, self._step_s):
            return False
        if self._is_long(batch.times[0], batch.times[-1]):
            return False
        gathered.take_batch(batch, self._step_s)
        return True

    def forget(self, node: str) -> None:
        """All that came of this node."""
        with self._lock:
            self._nodes.pop(node, None)
            self._chains.pop(node, None)

    @property
    def has_samples(self) -> bool:
        """Of any node."""
        return bool(self._nodes)

    # -- rollup lines

    def _take_rolled(self, node: str, frame: RolledFrame) -> list[Items]:
        """Gives what is to be read in place of them."""
        chain = self._chains.get(node)
        if chain is None and node not in self._nodes and frame.number == 0:
            chain = self._chains[node] = _Chain(frame.stream)
        if chain is None or (chain.stream, len(chain.items)) != (frame.stream, frame.number):
            return [*self._before(node), frame.items]
        chain.items.append(frame.items)
        try:
            self._append(self._of(node), chain, frame.opened())
        except _MALFORMED:
            return self._undone(node)
        # while its items can still be read
        return self._before(node) if frame.is_last else []

    def _append(self, aggregate: NodeAggregate, chain: _Chain, found: Rolled) -> None:
        check(found)
        for header in found.headers:
            self._take_header(aggregate, header)
        aggregate.take_news(found.events, found.devices)
        while self._step_s < found.step_s:
            self._double()
        if found.columns:
            begin, end = found.first * found.step_s, (found.last + 1) * found.step_s
            self._make_room(begin, end - found.step_s)
            aggregate.take_extent(floor(begin / self._step_s), ceil(end / self._step_s) - 1)
            ratio = round(self._step_s / found.step_s)
            aggregate.take_looks(found.looks, ratio, found.first, found.last)
        chain.piles = chain.piles or Piles(aggregate.series_of)
        chain.piles.take(found, self._step_s)
        chain.state = found.state

    def _before(self, node: str) -> list[Items]:
        """What is to be read before anything else of a node is taken: it goes on by other items."""
        chain = self._chains.get(node)
        if chain is None or chain.state is None:
            return []
        try:
            self._join(node)
            self._nodes[node].restore(chain.state())
        except _MALFORMED:
            return self._undone(node)
        del self._chains[node]
        return []

    def _join(self, node: str) -> None:
        """Put series that wait on the grid."""
        chain = self._chains.get(node)
        if chain is not None and chain.piles is not None:
            chain.piles.join(self._step_s)

    def _undone(self, node: str) -> list[Items]:
        """Forget what came of a node; gives what it came from."""
        self._nodes[node] = NodeAggregate(node, self._room)
        return self._chains.pop(node).items

    def _settle(self, node: str) -> None:
        with self._lock:
            found = self._before(node)
        self._add_all(node, found)

    def _add_all(self, node: str, found: list[Items]) -> None:
        for items in found:
            for item in items():
                self.add(node, item)

    def flushed(self, node: str) -> NodeAggregate | None:
        """What was gathered of a node, all of it on the grid."""
        with self._lock:
            gathered = self._nodes.get(node)
            if gathered is not None:
                gathered.flush(self._step_s)
                self._join(node)
            return gathered

    # -- results

    def left_out(self) -> list[str]:
        """What of the nodes' streams there was no room for, in sentences."""
        with self._lock:
            texts = [(node.name, left_out_text(node.left_out())) for node in self._nodes.values()]
        return [f"{name}: {text}" if name else text for name, text in texts if text]

    def evidence(
        self,
        job: Job | None = None,
        site: Site | None = None,
        *,
        live: bool = False,
        log_tail: str = "",
        siblings: Sequence[Job] = (),
        shared: bool = False,
    ) -> RunData:
        """All that was gathered so far; a copy, which later samples do not change.

        `job` is what Slurm tells about it, `live` that it runs. Where `shared`, no copy: it is
        good until more is added.
        """
        from gpumon.site import Site

        for name in list(self._nodes):
            self._settle(name)
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.header is not None]
            for node in nodes:
                node.flush(self._step_s)
            window = Window(*self._extent(), shared)
            seen = [node for node in nodes if node.seen]
            start, end = _span(job, seen, live)
            suspended_s = min((job.suspended_s if job else None) or 0.0, end - start)
            found = [node.evidence(window) for node in nodes]
            coverage = _coverage(nodes, job, start, end, live, suspended_s)
            if suspended_s:
                holes = [holes_of(node.covered, self._step_s) for node in found]
                coverage = without_suspension(coverage, holes, suspended_s)
            return RunData(
                job=job,
                start=start,
                end=end,
                live=live,
                bin_s=self._step_s,
                devices=[each for node in nodes for each in node.device_evidence(window)],
                nodes=found,
                events=_events(nodes),
                coverage=coverage,
                site=site or Site(),
                log_tail=log_tail,
                siblings=siblings,
                grid_start=window.first * self._step_s,
                count=window.size,
            )

    # -- the grid

    def _extent(self) -> tuple[int, int]:
        """The first bin of all nodes, and how many there are up to the last."""
        known = [node.extent for node in self._nodes.values() if node.extent is not None]
        if not known:
            return 0, 0
        first = min(index for index, _ in known)
        return first, max(index for _, index in known) - first + 1

    def _make_room_once(self, time: float) -> None:
        """For the samples of all nodes in one bin: to look takes as long as to take a sample."""
        if (floor(time / self._step_s), len(self._nodes)) != self._with_room:
            self._make_room(time, time)
            self._with_room = floor(time / self._step_s), len(self._nodes)

    def _make_room(self, begin: float, end: float) -> None:
        """Before anything of these times is put on the grid: no gap shall fill the memory."""
        while self._is_long(begin, end):
            self._double()

    def _is_long(self, begin: float, end: float) -> bool:
        """Whether the grid would have too many bins if it held these times too."""
        first, count = self._extent()
        low, high = floor(begin / self._step_s), floor(end / self._step_s)
        if count:
            low, high = min(low, first), max(high, first + count - 1)
        return high - low + 1 > self._most_bins()

    def _most_bins(self) -> int:
        """How many the grid may have. Where there are far more processes, interfaces and so on than
        a device usually has, they count as devices.
        """
        room, nodes = self._room, self._nodes.values()
        devices = max(sum(len(node.devices) for node in nodes), _AT_DEVICES)
        load = max(devices, sum(node.series_count for node in nodes) // _SERIES_A_DEVICE)
        return max(room.total // load, room.least * devices // load)

    def _double(self) -> None:
        for node in self._nodes.values():
            node.flush(self._step_s)
        self._step_s *= 2
        for node in self._nodes.values():
            node.double()


def gather(
    streams: Iterable[tuple[str, Iterable[Item | RolledFrame]]],
    job: Job | None = None,
    site: Site | None = None,
    *,
    log_tail: str = "",
    siblings: Sequence[Job] = (),
    limits: Limits = WHOLE,
) -> RunData:
    """The run data of recorded streams, each with the name of its node."""
    gathering = Aggregation(limits)
    for node, items in streams:
        for item in items:
            gathering.add(node, item)
    return gathering.evidence(job, site, log_tail=log_tail, siblings=siblings, shared=True)


def _span(job: Job | None, nodes: list[NodeAggregate], live: bool) -> tuple[float, float]:
    """When the run began and ended: by Slurm, else by the job's environment, else by samples."""
    first = min((node.first for node in nodes), default=None)
    last = max((node.last for node in nodes), default=None)
    told = [job.start if job is not None else None]
    told += [node.header.job.start for node in nodes if node.header and node.header.job]
    start = next((time for time in told if time is not None), first)
    ended = job.end if job is not None and job.has_ended and not live else None
    end = last if ended is None else ended
    if start is None:
        start = end if end is not None else 0.0
    return start, max(start, end if end is not None else start)


def _coverage(
    nodes: list[NodeAggregate],
    job: Job | None,
    start: float,
    end: float,
    live: bool,
    suspended_s: float,
) -> Coverage:
    seen = [node for node in nodes if node.seen and node.header is not None]
    intervals = [node.header.interval_s for node in seen if node.header is not None]
    interval_s = max(intervals, default=None)
    silent = [node.name for node in nodes if not node.seen]
    absent = _absent(nodes, job)
    missing = dict.fromkeys(silent, "no sample came from this node")
    missing |= dict.fromkeys(absent, "this node was not recorded")
    unrecorded = (*silent, *absent)
    if interval_s is None:
        source = "live" if live else "recording"
        return Coverage(source, 0.0, None, missing=missing, unrecorded=unrecorded)
    # each of n samples stands for one interval, also the last
    run_s = max(end - start, max(node.last - node.first for node in seen) + interval_s)
    run_s = max(run_s - suspended_s, interval_s)
    covered_s = [min(node.ticks.result().covered_s, run_s) if node.seen else 0.0 for node in nodes]
    return Coverage(
        source="live" if live else "recording",
        covered_percent=100 * sum(covered_s) / (len(nodes) + len(absent)) / run_s,
        interval_s=interval_s,
        gaps=sum(node.gaps for node in seen),
        longest_gap_s=max(node.longest_gap_s for node in seen),
        from_start=all(node.first <= start + _NEAR_S for node in seen),
        to_end=live or all(node.last >= end - _NEAR_S for node in seen),
        missing=missing,
        unrecorded=unrecorded,
    )


def _absent(nodes: list[NodeAggregate], job: Job | None) -> list[str]:
    """The job's nodes that are not among these. No more than these are too few: a node may have
    another name in Slurm than its host has.
    """
    here = {node.name.partition(".")[0] for node in nodes}
    listed = job.nodes if job is not None else ()
    absent = [name for name in listed if name.partition(".")[0] not in here]
    return absent[: max(0, len(listed) - len(nodes))]


def _events(nodes: list[NodeAggregate]) -> list[tuple[str, Event]]:
    found = [(node.name, event) for node in nodes for event in node.events]
    return sorted(found, key=lambda each: each[1].time)[-MAX_EVENTS:]
