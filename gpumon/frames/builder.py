"""Frames of one node's stream, made of its samples: the only place where samples are aggregated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import floor
from typing import Any, Union

from gpumon.frames.device import DeviceFrame, Tick, columns_of
from gpumon.frames.frame import MAX_ON_CPU, Frame
from gpumon.frames.process import Row
from gpumon.frames.program import number_among_workers
from gpumon.model.bounded import Known
from gpumon.model.fields import KEPT
from gpumon.model.reading import Missing, number
from gpumon.model.sample import Event, Header, Process, Sample

#: processes of which it is known who they are
MAX_FACTS, FACTS_BYTES = 20_000, 16 << 20
#: samples that wait for the end of their bucket, 20 KB each, and their rows, 1 KB each
MAX_PENDING, MAX_PENDING_ROWS = 10, 10_000
_WORKS_PERCENT = 1.0
#: entities whose rows are kept by their keys
_OF_NODE = ("job", "host", "net", "disk")
#: reading of the node -> the state of /proc/PID/stat that it counts (proc(5))
_STATES = (("runnable", "R"), ("blocked", "D"))

_Rows = dict[Any, list[tuple[float, Row]]]


class FrameBuilder:
    """Of one node's stream. What comes before its header says nothing.

    Samples wait until their bucket is over, or until there are some, because many at once cost
    less. The buckets are 10 s long, twice that and so on where the interval is longer.
    """

    def __init__(self) -> None:
        self._frame = Frame()
        self._of_key: dict[int, DeviceFrame] = {}
        self._facts: Known[int, Process] = Known(MAX_FACTS, FACTS_BYTES)
        self._ended: set[int] = set()  # of these, in this frame
        self._on_cpu: set[int] = set()  # of these, seen to use a core
        self._on_gpu: set[int] = set()
        self._pending: list[Sample] = []
        self._index = self._pending_rows = 0

    @property
    def step_s(self) -> float:
        """Of its buckets."""
        return self._frame.step_s

    # -- taking

    def add(self, item: Union[Header, Sample]) -> None:
        """The next item of the stream, in order of time."""
        if isinstance(item, Header):
            self._add_header(item)
        else:
            self._add_sample(item)

    def _add_header(self, header: Header) -> None:
        self._flush()
        self._frame.add_header(header)
        while self._frame.step_s < header.interval_s:
            self._frame.coarsen(2)
        taken: dict[int, DeviceFrame] = {}
        for device in header.devices:
            found = self._frame.find_device(device, taken.values())
            if found is not None:
                if device.uuid:  # what a lost device can no longer say stays known
                    found.device = device
                taken[device.key] = found
        self._of_key = taken

    def _add_sample(self, sample: Sample) -> None:
        if sample.events:
            self._flush()  # what was read before happened before
            for event in sample.events:
                self._add_event(event)
        header = self._frame.header
        if header is None or not sample.rows:
            return  # an end, or facts that are said again
        self._frame.samples.add(sample.time, header.interval_s)
        if sample.states or any(each.state for each in self._of_key.values()):
            self._flush()
            for key, device in self._of_key.items():
                device.add_state(sample.time, sample.states.get(key))
        index = floor(sample.time / self._frame.step_s)
        is_full = len(self._pending) >= MAX_PENDING or self._pending_rows > MAX_PENDING_ROWS
        if self._pending and (index != self._index or is_full):
            self._flush()
        self._index = index
        self._pending.append(sample)
        self._pending_rows += sum(map(len, sample.rows.values()))

    def _add_event(self, event: Event) -> None:
        pid = event.pid
        if event.kind == "process" and pid is not None:
            facts = Process.of(event)
            self._ended.discard(pid)
            if self._facts.keep(pid, facts):
                for device in self._frame.devices:
                    device.know(facts)
            return
        if event.kind == "process-end" and pid is not None:
            for device in self._frame.devices:
                device.end_process(pid)
            if pid in self._facts:
                self._ended.add(pid)
        elif event.kind == "xid" and event.device in self._of_key:
            self._of_key[event.device].add_xid(event)
        self._frame.add_event(event)

    # -- some samples, all of one bucket

    def _flush(self) -> None:
        samples, self._pending, self._pending_rows = self._pending, [], 0
        if not samples:
            return
        frame, index = self._frame, self._index
        frame.cover(index, index)
        self._put(("node", "", "covered"), index, [1.0])
        self._flush_devices(samples)
        for entity in _OF_NODE:
            self._flush_rows(entity, samples)
        for sample in samples:
            row = sample.rows.get("job", {}).get("")
            if row is not None:
                frame.job.add(sample.time, row)
        self._flush_processes(samples)
        self._flush_programs(samples)

    def _put(self, name: tuple[str, Any, str], index: int, values: Sequence[float]) -> None:
        rollup = self._frame.rollup(name) if values else None
        if rollup is not None:
            rollup.put(index, values)

    def _flush_devices(self, samples: Sequence[Sample]) -> None:
        ticks: dict[int, list[Tick]] = {}
        for sample in samples:
            usage: dict[int, dict[int, Row]] = {}
            for key, line in sample.rows.get("usage", {}).items():
                if isinstance(key, tuple):
                    usage.setdefault(key[0], {})[key[1]] = line
                    if len(self._on_gpu) < MAX_ON_CPU:
                        self._on_gpu.add(key[1])
            for device, row in sample.rows.get("device", {}).items():
                if isinstance(device, int):
                    listed = row.get("processes")
                    known = listed is not None and not isinstance(listed, Missing)
                    lines = usage.get(device, {}) if known else usage.get(device)
                    ticks.setdefault(device, []).append((sample.time, row, lines))
        for key, of_device in ticks.items():
            if key in self._of_key:
                self._of_key[key].add(self._index, of_device, self._facts)
        pools: dict[int, _Rows] = {}
        for (device, pid), rows in _by_key("pool", samples, tuple).items():
            pools.setdefault(device, {})[pid] = rows
        for key, of_pid in pools.items():
            if key in self._of_key:
                self._of_key[key].add_pools(self._index, of_pid)

    def _flush_rows(self, entity: str, samples: Sequence[Sample]) -> None:
        for key, rows in _by_key(entity, samples, (str, int)).items():
            for field, values in columns_of(row for _, row in rows).items():
                if field in KEPT[entity]:
                    self._put((entity, str(key), field), self._index, values)
            path = rows[-1][1].get("path")
            if isinstance(path, str):
                self._frame.add_path(str(key), path)

    def _flush_processes(self, samples: Sequence[Sample]) -> None:
        header = self._frame.header
        in_job = header is not None and header.job is not None
        agent = header.agent_pid if header is not None else 0
        of_pid = _by_key("process", samples, int)
        threads: dict[float, float] = {}
        states: dict[float, list[object]] = {}
        for pid, rows in of_pid.items():
            facts = self._facts.get(pid)
            counts = facts is not None and is_counted(facts, in_job=in_job)
            if counts or pid in self._on_gpu:  # which screens show
                self._put_of_process(pid, "cpu_percent", rows)
            for time, row in rows if counts else ():
                if (own := number(row.get("threads"))) is not None:
                    threads[time] = threads.get(time, 0.0) + own
                if pid != agent and isinstance(row.get("state"), str):
                    states.setdefault(time, []).append(row["state"])
        self._put(("node", "", "threads"), self._index, [*threads.values()])
        for name, letter in _STATES:
            values = [float(each.count(letter)) for each in states.values()]
            self._put(("node", "", name), self._index, values)
        for pid in self._on_gpu & of_pid.keys():
            self._put_of_process(pid, "rss_bytes", of_pid[pid])

    def _put_of_process(self, pid: int, field: str, rows: Sequence[tuple[float, Row]]) -> None:
        known = [v for _, row in rows if (v := number(row.get(field))) is not None]
        if field == "cpu_percent" and pid not in self._on_cpu:
            if not known or max(known) < _WORKS_PERCENT or len(self._on_cpu) >= MAX_ON_CPU:
                return
            self._on_cpu.add(pid)
        self._put(("process", pid, field), self._index, known)

    def _flush_programs(self, samples: Sequence[Sample]) -> None:
        for pid, rows in _by_key("program", samples, int).items():
            facts, worker = self._facts.get(pid), number_among_workers(rows)
            if worker is None:
                program = self._frame.program(pid, rows[0][0])
                if program is not None:
                    program.add(self._index, rows)
            elif facts is not None and facts.ppid in self._frame.programs:
                self._frame.programs[facts.ppid].add_worker(self._index, rows, worker)

    # -- giving

    def cut(self) -> Frame:
        """All that came since the last time; the next frame begins here."""
        self._flush()
        frame = self._frame
        with_facts = {key for entity, key, _ in frame.rollups if entity == "process"}
        for pid in sorted(self._facts.keys() & (with_facts | frame.programs.keys())):
            frame.facts[pid] = self._facts[pid]
        for _, rollup in frame.named():
            rollup.step_s = frame.step_s
        left_out = self._facts.left_out - frame.left_out().get(_COMMAND_LINES, 0)
        frame.leave_out(_COMMAND_LINES, left_out)
        self._frame = frame.successor()
        places = {id(device): place for place, device in enumerate(frame.devices)}
        self._of_key = {
            key: self._frame.devices[places[id(device)]] for key, device in self._of_key.items()
        }
        for pid in self._ended:
            self._facts.pop(pid, None)
            self._on_cpu.discard(pid)
            self._on_gpu.discard(pid)
        self._ended.clear()
        return frame


def is_counted(process: Process, *, in_job: bool) -> bool:
    """Whether it is the job's, or without a job one's own."""
    return process.in_job or (process.own and not in_job)


_COMMAND_LINES = "processes' command lines"


def _by_key(entity: str, samples: Iterable[Sample], kind: Any) -> _Rows:
    """The rows of each key of this kind, with their times."""
    found: _Rows = {}
    for sample in samples:
        for key, row in sample.rows.get(entity, {}).items():
            if isinstance(key, kind):
                found.setdefault(key, []).append((sample.time, row))
    return found


def built(items: Iterable[Union[Header, Sample]], frame_s: float = 600.0) -> Iterator[Frame]:
    """The frames of a stream, cut at the first buckets that begin behind multiples of `frame_s`."""
    builder, place = FrameBuilder(), None
    for item in items:
        if isinstance(item, Sample) and item.rows:
            at = floor(floor(item.time / builder.step_s) * builder.step_s / frame_s)
            if place is not None and at > place:
                yield builder.cut()
            place = at
        builder.add(item)
    yield builder.cut()
