"""Run data from frames: all nodes of a run on one grid of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.coverage import coverage_of, holes_of, span_of, without_suspension
from gpumon.analysis.rundata import (
    DeviceData,
    NodeData,
    PoolData,
    ProcessData,
    ProgramData,
    RunData,
    Track,
)
from gpumon.frames.builder import is_counted
from gpumon.frames.device import DeviceFrame
from gpumon.frames.frame import Frame
from gpumon.frames.process import ProcessFrame, pool_peak
from gpumon.frames.program import ProgramFrame
from gpumon.model.bounded import left_out_text
from gpumon.model.plausible import implausible_growth
from gpumon.model.reading import Missing, number
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Event, Process

if TYPE_CHECKING:
    from gpumon.site import Site
    from gpumon.slurm.job import Job

MAX_EVENTS = 10_000
_AT_DEVICES = 8
_ROLLUPS_A_DEVICE = 80  # with its processes
#: of frames on a finer grid, so many wait to be coarsened at once
_MOST_WAITING = 2160
_UNITS = {"energy_j": ("J", "the device's power limit")}


class Limits(NamedTuple):
    """How much a run may hold. A bucket takes 6 to 14 bytes for each of about 30 readings."""

    least: int  # buckets, however many devices there are
    total: int  # buckets of all devices together, as if there were at least 8
    is_lean: bool = False  # few of the processes that ended


#: a day of buckets of 10 s for eight devices
WHOLE = Limits(720, 8640 * 8)
#: beside a screen, where it lasts: 512 devices take 20 MiB. (Beyond 512 bytes an array moves from
#: one allocator to another, and the space that thousands leave behind is given back by neither.)
LIVE = Limits(112, 112 * 512, is_lean=True)


class Window(NamedTuple):
    """The buckets of the run's grid."""

    first: int
    size: int  # how many
    #: tracks may hold the arrays themselves, where they can: good until more is added
    shared: bool

    def of(self, rollup: Rollup | None) -> Track:
        """Those buckets, NaN where nothing was read; a copy unless `shared`."""
        rollup = rollup or Rollup()
        if self.shared and rollup.pad(self.first, self.size):
            return Track(rollup.mean, rollup.low, rollup.high)
        return Track(*rollup.padded(self.first, self.size))


class _Node:
    """The frames of one node, joined."""

    def __init__(self, limits: Limits) -> None:
        self.frame = Frame(is_lean=limits.is_lean, with_shown=False)
        self._waiting: Frame | None = None  # those on a finer grid

    def add(self, frame: Frame, step_s: float) -> None:
        """The next one; `step_s` of the run's grid."""
        waiting = self._waiting
        if waiting is not None and (
            waiting.step_s != frame.step_s or waiting.would_span(frame, _MOST_WAITING)
        ):
            self.settle()
        if frame.step_s == step_s:
            self.frame.extend(frame)
            return
        if self._waiting is None:
            self._waiting = Frame(with_shown=False)
            self._waiting.step_s = frame.step_s
        self._waiting.extend(frame)

    def settle(self) -> None:
        """Have all on the run's grid."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.frame.extend(waiting)


class Run:
    """Takes the frames of all nodes of a run and gives its data at any time. Thread-safe.

    The grid has buckets of 10 s, of twice that and so on where the frames' are longer or where
    there would be more than 8,640 of them (a day), fewer with more than eight devices: the product
    of buckets and devices stays below 69,120, about 25 MB in all, unless `limits` say otherwise.
    """

    def __init__(self, limits: Limits = WHOLE) -> None:
        self._limits = limits
        self._lock = Lock()
        self._nodes: dict[str, _Node] = {}
        self._step_s = STEP_S

    @property
    def step_s(self) -> float:
        """Seconds of a bucket."""
        return self._step_s

    @property
    def has_samples(self) -> bool:
        """Of any node."""
        return bool(self._nodes)

    def add(self, node: str, frame: Frame) -> None:
        """The next frame of one node."""
        with self._lock:
            own = self._nodes.get(node)
            if own is None:
                own = self._nodes[node] = _Node(self._limits)
                own.frame.step_s = self._step_s
            while self._step_s < frame.step_s:
                self._double()
            if frame.extent is not None:  # no gap shall fill the memory
                begin, end = (index * frame.step_s for index in frame.extent)
                while self._is_long(begin, end):
                    self._double()
            own.add(frame, self._step_s)

    def forget(self, node: str) -> None:
        """All that came of this node."""
        with self._lock:
            self._nodes.pop(node, None)

    def left_out(self) -> list[str]:
        """What of the nodes' streams there was no room for, in sentences."""
        with self._lock:
            texts = [
                (name, left_out_text(node.frame.left_out())) for name, node in self._nodes.items()
            ]
        return [f"{name}: {text}" if name else text for name, text in texts if text]

    # -- the grid

    def _extent(self) -> tuple[int, int]:
        """The first bucket of all nodes, and how many there are up to the last."""
        frames = (node.frame for node in self._nodes.values())
        known = [frame.extent for frame in frames if frame.extent is not None]
        if not known:
            return 0, 0
        first = min(index for index, _ in known)
        return first, max(index for _, index in known) - first + 1

    def _is_long(self, begin: float, end: float) -> bool:
        """Whether the grid would have too many buckets if it held these times too."""
        first, count = self._extent()
        low, high = floor(begin / self._step_s), floor(end / self._step_s)
        if count:
            low, high = min(low, first), max(high, first + count - 1)
        return high - low + 1 > self._most_buckets()

    def _most_buckets(self) -> int:
        """How many the grid may have. Where there are far more processes, interfaces and so on than
        a device usually has, they count as devices.
        """
        limits, nodes = self._limits, self._nodes.values()
        devices = max(sum(len(node.frame.devices) for node in nodes), _AT_DEVICES)
        count = sum(node.frame.rollup_count for node in nodes)
        load = max(devices, count // _ROLLUPS_A_DEVICE)
        return max(limits.total // load, limits.least * devices // load)

    def _double(self) -> None:
        self._step_s *= 2
        for node in self._nodes.values():
            node.settle()
            node.frame.coarsen(round(self._step_s / node.frame.step_s))

    # -- results

    def data(
        self,
        job: Job | None = None,
        site: Site | None = None,
        *,
        live: bool = False,
        log_tail: str = "",
        siblings: Sequence[Job] = (),
        shared: bool = False,
    ) -> RunData:
        """All that was joined so far; a copy, which later frames do not change.

        `job` is what Slurm tells about it, `live` that it runs. Where `shared`, no copy: it is
        good until more is added.
        """
        from gpumon.site import Site

        with self._lock:
            for node in self._nodes.values():
                node.settle()
            nodes = {
                name: node.frame for name, node in self._nodes.items()
                if node.frame.header is not None
            }  # fmt: skip
            window = Window(*self._extent(), shared)
            start, end = span_of(job, [each for each in nodes.values() if each.samples.seen], live)
            suspended_s = min((job.suspended_s if job else None) or 0.0, end - start)
            found = [_node_data(name, frame, window) for name, frame in nodes.items()]
            coverage = coverage_of(nodes, job, start, end, live, suspended_s)
            if suspended_s:
                holes = [holes_of(node.covered, self._step_s) for node in found]
                coverage = without_suspension(coverage, holes, suspended_s)
            devices = [
                _device_data(name, device, window)
                for name, frame in nodes.items()
                for device in frame.devices
            ]
            return RunData(
                job, start, end, live, self._step_s, devices, found, _events(nodes.items()),
                coverage, site or Site(), log_tail, siblings,
                grid_start=window.first * self._step_s, count=window.size,
            )  # fmt: skip


def run_of(streams: Iterable[tuple[str, Iterable[Frame]]]) -> Run:
    """The frames of recorded streams, each with the name of its node."""
    run = Run()
    for node, frames in streams:
        for frame in frames:
            run.add(node, frame)
    return run


def _events(nodes: Iterable[tuple[str, Frame]]) -> list[tuple[str, Event]]:
    found = [(name, event) for name, frame in nodes for event in frame.events]
    return sorted(found, key=lambda each: each[1].time)[-MAX_EVENTS:]


def _node_data(name: str, frame: Frame, window: Window) -> NodeData:
    header, job, rollups = frame.header, frame.job, frame.rollups
    assert header is not None
    tracks: dict[tuple[str, object], dict[str, Track]] = {}
    for (entity, key, field), rollup in rollups.items():
        tracks.setdefault((entity, key), {})[field] = window.of(rollup)
    of_node = tracks.get(("node", ""), {})
    refused, kills, told = job.cpu_s.refused, job.oom_kills.result(), job.oom_kills.newest
    limit = job.mem_limit_bytes
    if limit is None and header.job is not None:
        limit = number(header.job.mem_limit_bytes)

    def by_key(entity: str) -> dict[str, dict[str, Track]]:
        return {str(key): own for (of, key), own in tracks.items() if of == entity}

    return NodeData(
        name,
        header,
        tracks.get(("job", ""), {}),
        tracks.get(("host", ""), {}),
        by_key("net"),
        by_key("disk"),
        dict(frame.paths),
        {
            key: (frame.facts[key], own["cpu_percent"])
            for (entity, key), own in tracks.items()
            if entity == "process" and isinstance(key, int) and "cpu_percent" in own
            and key in frame.facts
            and is_counted(frame.facts[key], in_job=header.job is not None)
        },
        of_node.get("threads") or window.of(None),
        of_node.get("runnable") or window.of(None),
        of_node.get("blocked") or window.of(None),
        of_node.get("covered") or window.of(None),
        oom_kills=None if kills is None else int(kills),
        cpu_core_s=job.cpu_s.result(),
        mem_limit_bytes=limit,
        last=dict(job.last),
        peak60_cores=job.cores.peak60(),
        mem_peak_bytes=job.mem_peak_bytes,
        mem_charged_peak_bytes=job.mem_charged_peak_bytes,
        oom_kills_told=None if told is None else int(told),
        span=(frame.samples.first, frame.samples.last) if frame.samples.seen else None,
        covered_s=frame.samples.total_s,
        gaps=frame.samples.gaps,
        cpu_refused=implausible_growth(refused, "CPU s", "the node's cores") if refused else "",
        programs=[
            _program_data(pid, program, frame.facts.get(pid), window)
            for pid, program in sorted(frame.programs.items())
        ],
    )  # fmt: skip


def _device_data(node: str, device: DeviceFrame, window: Window) -> DeviceData:
    # those that are gone first, in the order in which they left
    processes = sorted(device.processes, key=lambda p: (not p.ended, p.last if p.ended else 0.0))
    listed = device.last.get("processes")
    tracks = {name: window.of(rollup) for name, rollup in device.rollups.items()}
    tracks.pop("throttle_mask", None)
    active = tracks.pop("active", window.of(None))
    return DeviceData(
        node,
        device.device,
        tracks,
        active,
        device.polled,
        {word: window.of(rollup) for word, rollup in device.throttle.items()},
        [_process_data(each, window) for each in processes],
        device.mem_before_bytes,
        bool(processes) or (listed is not None and not isinstance(listed, Missing)),
        list(device.xids),
        list(device.states),
        {
            name: grown
            for name, growth in device.counters.items()
            if (grown := growth.result()) is not None
        },
        dict(device.last),
        {
            name: implausible_growth(growth.refused, *_UNITS[name])
            for name, growth in device.counters.items()
            if name in _UNITS and growth.refused is not None
        },
    )


def _process_data(process: ProcessFrame, window: Window) -> ProcessData:
    times, values = process.rise
    tags = (process.facts.framework, *process.facts.hints.get("also", "").split())
    return ProcessData(
        process.facts,
        process.first,
        process.last,
        process.ended,
        window.of(process.rollups.get(("usage", "mem_bytes"))),
        window.of(process.rollups.get(("usage", "sm_percent"))),
        (times, values) if window.shared else (times[:], values[:]),
        tuple(tag for tag in tags if tag),
        process.appeared,
        process.others_bytes,
        _pool_data(process, window) if process.pool else None,
    )


def _pool_data(process: ProcessFrame, window: Window) -> PoolData:
    return PoolData(
        process.pool_last,
        window.of(process.rollups.get(("pool", "used_bytes"))),
        window.of(process.rollups.get(("pool", "reserved_bytes"))),
        pool_peak(process, "used_bytes", "peak_bytes"),
        pool_peak(process, "reserved_bytes", "reserved_peak_bytes"),
        process.pool.get("limit_bytes"),
        process.pool.get("retries"),
        process.pool.get("ooms"),
    )


def _program_data(
    pid: int, program: ProgramFrame, facts: Process | None, window: Window
) -> ProgramData:
    return ProgramData(
        facts or Process(pid, "", "", ""),
        program.first,
        program.last,
        None if program.rank is None else int(program.rank),
        program.steps.result(),
        program.stepped,
        program.place,
        program.since,
        {name: window.of(rollup) for name, rollup in program.rollups.items()},
        program.looks if window.shared else program.looks.copy(),
        program.worker_looks if window.shared else program.worker_looks.copy(),
        program.workers,
        window.first,
    )
