"""Evidence from samples: of a recording's streams, or fed as they come beside the live store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor
from threading import Lock
from typing import Any, Union

from gpumon.analysis.bins import STEP_S, Window
from gpumon.analysis.evidence import Coverage, Evidence
from gpumon.analysis.gather_node import NodeGathering
from gpumon.analysis.room import WHOLE, Room
from gpumon.model.bounded import left_out_text
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.ticks import Digest, Ticks
from gpumon.site import Site
from gpumon.slurm.job import Job

#: samples that begin within a minute of the job's start cover it from the start
_NEAR_S = 60.0
MAX_EVENTS = 10_000

Item = Union[Header, Sample, Ticks]
Items = Callable[[], Iterator[Item]]
_AT_DEVICES = 8
_SERIES_A_DEVICE = 80  # with its processes


class Gathering:
    """Takes the samples of all nodes of a run and gives its evidence at any time. Thread-safe.

    The grid has bins of 10 s, of twice that and so on where the interval is longer or where there
    would be more than 8,640 of them (a day), fewer with more than eight devices: the product of
    bins and devices stays below 69,120, about 25 MB in all, unless `room` says otherwise.
    Costs about 0.2 ms a sample of 8 devices and 16 processes.
    """

    def __init__(self, room: Room = WHOLE) -> None:
        self._room = room
        self._lock = Lock()
        self._nodes: dict[str, NodeGathering] = {}
        self._step_s = STEP_S

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    @property
    def step_s(self) -> float:
        """Seconds of a bin."""
        return self._step_s

    def add(self, node: str, item: Item | Digest) -> None:
        """The next item of one node's stream. What comes before its header says nothing.

        Of a digest it takes what that was made of.
        """
        if isinstance(item, Digest):
            with self._lock:
                found = self._instead(node, item)
            self._add_all(node, found)
            return
        self._settle(node)
        if isinstance(item, Ticks):
            with self._lock:
                taken = self._take_ticks(node, item)
            for sample in () if taken else item.samples():
                self.add(node, sample)
            return
        with self._lock:
            gathered = self._of(node)
            if isinstance(item, Header):
                self._take_header(gathered, item)
                return
            if item.rows:
                self._make_room(item.time, item.time)
            gathered.take_sample(item, self._step_s)

    def _of(self, node: str) -> NodeGathering:
        gathered = self._nodes.get(node)
        if gathered is None:
            gathered = self._nodes[node] = NodeGathering(node, self._room)
        return gathered

    def _take_header(self, gathered: NodeGathering, header: Header) -> None:
        gathered.take_header(header, self._step_s)
        while self._step_s < header.interval_s:
            self._double()

    def _take_ticks(self, node: str, ticks: Ticks) -> bool:
        """Whether they could be taken as they are, in columns."""
        gathered = self._nodes.get(node)
        if gathered is None or not gathered.can_take(ticks, self._step_s):
            return False
        if self._is_long(ticks.times[0], ticks.times[-1]):
            return False
        gathered.take_ticks(ticks, self._step_s)
        return True

    # -- digests, which `gather_run` can take

    def _instead(self, node: str, digest: Digest) -> list[Items]:
        """What is to be read in place of a digest."""
        return [digest.items]

    def _before(self, node: str) -> list[Items]:
        """What is to be read before anything else of a node is taken."""
        return []

    def _settle(self, node: str) -> None:
        with self._lock:
            found = self._before(node)
        self._add_all(node, found)

    def _add_all(self, node: str, found: list[Items]) -> None:
        for items in found:
            for item in items():
                self.add(node, item)

    def flushed(self, node: str) -> NodeGathering | None:
        """What was gathered of a node, all of it on the grid."""
        with self._lock:
            gathered = self._nodes.get(node)
            if gathered is not None:
                gathered.flush(self._step_s)
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
    ) -> Evidence:
        """All that was gathered so far; a copy, which later samples do not change.

        `job` is what Slurm tells about it, `live` that it runs. Where `shared`, no copy: it is
        good until more is added.
        """
        for name in list(self._nodes):
            self._settle(name)
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.header is not None]
            for node in nodes:
                node.flush(self._step_s)
            window = Window(*self._extent(), shared)
            seen = [node for node in nodes if node.seen]
            start, end = _span(job, seen, live)
            return Evidence(
                job=job,
                start=start,
                end=end,
                live=live,
                bin_s=self._step_s,
                devices=[each for node in nodes for each in node.device_evidence(window)],
                nodes=[node.evidence(window) for node in nodes],
                events=_events(nodes),
                coverage=_coverage(nodes, start, end, live),
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
    streams: Iterable[tuple[str, Iterable[Item | Digest]]],
    job: Job | None = None,
    site: Site | None = None,
    *,
    log_tail: str = "",
    siblings: Sequence[Job] = (),
    gathering: Gathering | None = None,
) -> Evidence:
    """The evidence of recorded streams, each with the name of its node.

    `gathering` is what takes them, by default a plain one; nothing more is added to it.
    """
    gathering = gathering or Gathering()
    for node, items in streams:
        for item in items:
            gathering.add(node, item)
    return gathering.evidence(job, site, log_tail=log_tail, siblings=siblings, shared=True)


def _span(job: Job | None, nodes: list[NodeGathering], live: bool) -> tuple[float, float]:
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


def _coverage(nodes: list[NodeGathering], start: float, end: float, live: bool) -> Coverage:
    seen = [node for node in nodes if node.seen and node.header is not None]
    intervals = [node.header.interval_s for node in seen if node.header is not None]
    interval_s = max(intervals, default=None)
    missing = {node.name: "no sample came from this node" for node in nodes if not node.seen}
    if interval_s is None:
        return Coverage("live" if live else "recording", 0.0, None, missing=missing)
    # each of n samples stands for one interval, also the last
    run_s = max(end - start, max(node.last - node.first for node in seen) + interval_s)
    covered_s = [min(node.ticks.result().covered_s, run_s) if node.seen else 0.0 for node in nodes]
    return Coverage(
        source="live" if live else "recording",
        covered_percent=100 * sum(covered_s) / len(nodes) / run_s,
        interval_s=interval_s,
        gaps=sum(node.gaps for node in seen),
        longest_gap_s=max(node.longest_gap_s for node in seen),
        from_start=all(node.first <= start + _NEAR_S for node in seen) and not missing,
        to_end=live or (all(node.last >= end - _NEAR_S for node in seen) and not missing),
        missing=missing,
    )


def _events(nodes: list[NodeGathering]) -> list[tuple[str, Event]]:
    found = [(node.name, event) for node in nodes for event in node.events]
    return sorted(found, key=lambda each: each[1].time)[-MAX_EVENTS:]
