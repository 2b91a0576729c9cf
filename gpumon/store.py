"""The latest readings and the series of every node, for the screens to read at their own tick.

Threads of streams write, one timer of the screen reads, one lock is between them. Times are
passed in, so that a replay is live with another clock.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from functools import lru_cache
from math import ceil, inf
from threading import Lock
from typing import Dict, List, Optional, Set, Tuple

from gpumon.model.fields import FIELDS, GROUP_OF
from gpumon.model.reading import NOT_SAMPLED, Missing, Reading, number
from gpumon.model.sample import Device, Event, Header, Key, Process, Rows, Sample, State
from gpumon.model.series import Bucket, Gap, Series, Stats
from gpumon.model.view import (
    DeviceView,
    Latest,
    ProcessView,
    Status,
    process_of,
)

#: a reading is fresh for so many of its periods, and a second for the way here
FRESH_PERIODS = 3
FRESH_SLACK_S = 1.0
#: how long an ended process is still listed
ENDED_KEPT_S = 60.0

_EVENTS_KEPT = 1000
#: per node and entity; beyond that new keys are ignored, so that a broken stream fills no memory
_KEYS_KEPT = 4096
_DELAYS_KEPT = 64
_PURGE_EVERY_S = 10.0
#: fields whose extremes within a tick the driver's own samples tell
_EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}

_SERIES = {
    entity: frozenset(name for name, field in fields.items() if field.series)
    for entity, fields in FIELDS.items()
}


class _Row:
    """One entity with one key: its readings, the time of each, maxima, and series."""

    __slots__ = ("peaks", "readings", "series", "times")

    def __init__(self) -> None:
        self.readings: Dict[str, Reading] = {}
        self.times: Dict[str, float] = {}
        self.peaks: Dict[str, float] = {}  # since attached; of fields that are no series
        self.series: Dict[str, Series] = {}

    def frozen(self) -> _Row:
        """The readings as they are now; the series go on, but are read up to a given end."""
        row = _Row()
        row.readings, row.times, row.peaks = dict(self.readings), dict(self.times), dict(self.peaks)
        row.series = dict(self.series)
        return row


class _DeviceRecord:
    __slots__ = ("device", "generation", "gone", "state", "xid")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.state: Optional[State] = None
        self.gone = False
        self.xid: Optional[Event] = None
        self.generation = 0

    def view(self) -> DeviceView:
        return DeviceView(
            self.device.key, self.device, self.state, self.gone, self.xid, self.generation
        )


class NodeView:
    """One node: written by its stream through the store, read by the screens. Thread-safe."""

    def __init__(self, name: str, lock: Lock) -> None:
        self.name = name
        self.generation = 0  # grows with every change of anything below
        self.header: Optional[Header] = None
        self.last_time: Optional[float] = None  # of the newest sample, by the node's clock
        self._lock = lock
        self._status = Status("connecting", 0.0)
        self._rows: Dict[str, Dict[Key, _Row]] = {}
        self._devices: Dict[int, _DeviceRecord] = {}
        self._keys: Dict[int, int] = {}  # the stream's device number -> ours, where they differ
        self._processes: Dict[int, Process] = {}
        self._ended: Dict[int, float] = {}
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._delays: deque[float] = deque(maxlen=_DELAYS_KEPT)
        self._offset_s = 0.0
        self._fresh_s = _fresh_limits(self.interval_s)
        self._renumbered = False
        self._purged = -inf
        self._until = inf  # of a frozen node: what came later is not shown

    # -- reading -----------------------------------------------------------------------------------

    def frozen(self) -> NodeView:
        """The node as it is now, for a screen that is held still while samples go on coming."""
        with self._lock:
            node = copy(self)
            node._rows = {
                entity: {key: row.frozen() for key, row in rows.items()}
                for entity, rows in self._rows.items()
            }
            node._devices = {key: copy(record) for key, record in self._devices.items()}
            node._processes, node._ended = dict(self._processes), dict(self._ended)
            node._events = self._events.copy()
            node._until = inf if self.last_time is None else self.last_time
            return node

    @property
    def interval_s(self) -> float:
        """How often this node samples."""
        return self.header.interval_s if self.header and self.header.interval_s > 0 else 1.0

    @property
    def clock_offset_s(self) -> float:
        """How far the reader's clock is ahead of the node's: the least delay of recent samples.

        Series and events are on the node's clock: `node.window(…, end=now - clock_offset_s)`.
        """
        return self._offset_s

    def status(self, now: float) -> Status:
        """Of the stream; a live one without samples for three intervals is `stale`."""
        with self._lock:
            status = self._status
            if status.state != "live" or self.last_time is None:
                return status
            age_s = now - self._offset_s - self.last_time
            if age_s <= _fresh_for_s(0.0, self.interval_s):
                return status
            return Status("stale", self.last_time, f"no sample for {age_s:.0f} s", status.source)

    def devices(self) -> List[DeviceView]:
        """All devices ever seen, in the order of their keys; lost and gone ones keep their row."""
        with self._lock:
            return [self._devices[key].view() for key in sorted(self._devices)]

    def keys(self, entity: str) -> List[Key]:
        """The keys of `entity` that readings came for, in order of first appearance."""
        with self._lock:
            return list(self._rows.get(entity, ()))

    def latest(self, entity: str, key: Key, field: str, now: float) -> Latest:
        """The newest reading of a field with its age. Of a lost device none is ever a number."""
        with self._lock:
            return self._latest(entity, key, field, now - self._offset_s)

    def row(self, entity: str, key: Key, now: float) -> Dict[str, Latest]:
        """All fields of one entity that readings came for."""
        with self._lock:
            return self._all_latest(entity, key, now - self._offset_s)

    def window(
        self, entity: str, key: Key, field: str, end: float, span_s: float, n: int
    ) -> List[Optional[Bucket]]:
        """`n` aligned buckets of a series (`Series.window`); gaps where there is no series."""
        with self._lock:
            series = self._series(entity, key, field)
            return series.window(end, span_s, n, self._until) if series else [None] * max(n, 0)

    def stats(self, entity: str, key: Key, field: str, start: float, end: float) -> Stats:
        """Time-weighted mean, extremes and coverage of a series over [start, end)."""
        with self._lock:
            series = self._series(entity, key, field)
            return series.stats(start, end) if series else Stats(None, None, None, 0.0)

    def gaps(self, entity: str, key: Key, field: str) -> List[Gap]:
        """The latest stretches of a series that have a reason for having no value."""
        with self._lock:
            series = self._series(entity, key, field)
            return series.gaps if series else []

    def first_time(self, entity: str, key: Key, field: str) -> Optional[float]:
        """Time of the oldest sample of a series."""
        with self._lock:
            series = self._series(entity, key, field)
            return series.first_time if series else None

    def peak(self, entity: str, key: Key, field: str) -> Optional[float]:
        """The largest value of a numeric field since attached."""
        with self._lock:
            row = self._rows.get(entity, {}).get(key)
            if row is None:
                return None
            series = row.series.get(field)
            return series.high if series else row.peaks.get(field)

    def peak60(self, entity: str, key: Key, field: str) -> Optional[float]:
        """The largest mean of a minute of a series; None before the first minute is over."""
        with self._lock:
            series = self._series(entity, key, field)
            return series.peak60 if series else None

    def processes(self, now: float) -> List[ProcessView]:
        """By pid; those that ended are listed for a minute more, with the time they ended."""
        with self._lock:
            at = now - self._offset_s
            usage: Dict[int, Dict[int, Dict[str, Latest]]] = {}
            for key in self._rows.get("usage", ()):
                if isinstance(key, tuple):
                    device, pid = key
                    usage.setdefault(pid, {})[device] = self._all_latest("usage", key, at)
            pids = {key for key in self._rows.get("process", ()) if isinstance(key, int)}
            return [
                ProcessView(
                    self._processes.get(pid) or Process(pid, "", "", ""),
                    self._ended.get(pid),
                    self._all_latest("process", pid, at),
                    usage.get(pid, {}),
                )
                for pid in sorted(pids | usage.keys() | self._processes.keys())
            ]

    def processes_on(self, device: int) -> List[Process]:
        """What does not change of the processes on one device: `processes`, for little."""
        with self._lock:
            return [
                self._processes[key[1]]
                for key in self._rows.get("usage", ())
                if isinstance(key, tuple) and key[0] == device and key[1] in self._processes
            ]

    def events(self, since: float = -inf) -> List[Event]:
        """What happened after `since`, oldest first; the coming and going of processes apart."""
        with self._lock:
            return [event for event in self._events if event.time > since]

    # -- the parts that hold the lock --------------------------------------------------------------

    def _series(self, entity: str, key: Key, field: str) -> Optional[Series]:
        row = self._rows.get(entity, {}).get(key)
        return row.series.get(field) if row else None

    def _latest(self, entity: str, key: Key, field: str, at: float) -> Latest:
        row = self._rows.get(entity, {}).get(key)
        return self._aged(entity, row, field, at, self._record(entity, key))

    def _all_latest(self, entity: str, key: Key, at: float) -> Dict[str, Latest]:
        row = self._rows.get(entity, {}).get(key)
        if row is None:
            return {}
        record = self._record(entity, key)
        return {field: self._aged(entity, row, field, at, record) for field in row.readings}

    def _record(self, entity: str, key: Key) -> Optional[_DeviceRecord]:
        """The device that a row is about, if it is about one."""
        device = key if entity == "device" else key[0] if isinstance(key, tuple) else None
        return self._devices.get(device) if isinstance(device, int) else None

    def _aged(
        self,
        entity: str,
        row: Optional[_Row],
        field: str,
        at: float,
        record: Optional[_DeviceRecord],
    ) -> Latest:
        reading: Reading = NOT_SAMPLED
        time, age_s, fresh = 0.0, inf, False
        if row is not None and field in row.readings:
            reading, time = row.readings[field], row.times[field]
            age_s = at - time if at > time else 0.0
            limit_s = self._fresh_s.get((entity, field))
            if limit_s is None:  # a field that the table does not have
                limit_s = _fresh_for_s(0.0, self.interval_s)
            fresh = age_s <= limit_s
        if record is not None:
            if record.gone:
                return Latest(Missing("lost", "no longer listed"), time, age_s, False)
            if record.state is not None and record.state.state == "lost":
                return Latest(Missing("lost", record.state.detail), time, age_s, False)
            fresh = fresh and (record.state is None or record.state.state != "hung")
        return Latest(reading, time, age_s, fresh)

    # -- writing: called by Store under the lock ---------------------------------------------------

    def take_header(self, header: Header) -> None:
        before = self.header
        self.header = header
        self._fresh_s = _fresh_limits(self.interval_s)
        self.generation += 1
        if before is None or _stream(before) != _stream(header):
            self._keys.clear()
            self._delays.clear()
            self._offset_s = 0.0
            # the new stream names every process that is still there
            for pid in self._pids():
                self._ended.setdefault(pid, header.time)
        self._place(header.devices)
        for entity, rows in self._rows.items():
            for row in rows.values():
                for field, series in row.series.items():
                    series.period_s = self._period_s(entity, field)

    def take_sample(self, sample: Sample, received: Optional[float]) -> None:
        self.generation += 1
        self.last_time = sample.time
        if received is not None:
            self._delays.append(received - sample.time)
            self._offset_s = min(self._delays)
        for entity, rows in self._in_our_keys(sample.rows).items():
            known = self._rows.setdefault(entity, {})
            for key, readings in rows.items():
                row = known.get(key)
                if row is None:
                    if len(known) >= _KEYS_KEPT:
                        continue
                    row = known[key] = _Row()
                self._update(entity, row, readings, sample.time)
        self._update_states(sample)
        for event in sample.events:
            self._take_event(event)
        if not self._purged <= sample.time < self._purged + _PURGE_EVERY_S:
            self._purged = sample.time
            self._purge(sample.time)

    def take_status(self, status: Status) -> None:
        self.generation += 1
        self._status = status

    def _period_s(self, entity: str, field: str) -> float:
        """How often the field is really read: a whole number of the node's intervals."""
        group = GROUP_OF.get((entity, field))
        ticks = ceil(group.period_s / self.interval_s - 0.1) if group else 1
        return max(ticks, 1) * self.interval_s

    def _update(self, entity: str, row: _Row, readings: Dict[str, Reading], time: float) -> None:
        row.readings.update(readings)
        row.times.update(dict.fromkeys(readings, time))
        kept = _SERIES.get(entity, frozenset())
        for field, reading in readings.items():
            if field not in kept:
                if isinstance(reading, (int, float)) and reading > row.peaks.get(field, -inf):
                    row.peaks[field] = reading
                continue
            series = row.series.get(field)
            if series is None:
                series = row.series[field] = Series(self._period_s(entity, field))
            if isinstance(reading, Missing):
                series.miss(time, reading)
            elif isinstance(reading, (int, float)):
                if field in _EXTREMES:
                    low, high = (number(readings.get(name)) for name in _EXTREMES[field])
                    series.add(time, reading, low, high)
                else:
                    series.add(time, reading)

    def _update_states(self, sample: Sample) -> None:
        states = {self._keys.get(key, key): state for key, state in sample.states.items()}
        read = sample.rows.get("device", {})
        ours = {self._keys.get(key, key) for key in read if isinstance(key, int)}
        for key, record in self._devices.items():
            state = states.get(key)
            if key in ours or state != record.state:
                record.state = state
                record.generation += 1

    def _take_event(self, event: Event) -> None:
        if event.device is not None:
            event = event._replace(device=self._keys.get(event.device, event.device))
        if event.kind == "process":
            self._take_process(event)
        elif event.kind == "process-end":
            if event.pid is None or event.pid not in self._pids():
                return
            if event.text in ("", "ended"):
                self._ended[event.pid] = event.time
            else:  # it lives, but is watched no more
                self._forget(event.pid)
        else:
            self._events.append(event)
            if event.kind == "xid" and event.device in self._devices:
                self._devices[event.device].xid = event

    def _take_process(self, event: Event) -> None:
        if event.pid is None:
            return
        facts = process_of(event)
        before = self._processes.get(event.pid)
        if before is not None and before.start != facts.start:
            self._forget(event.pid)  # the number was used again
        if before is not None or len(self._processes) < _KEYS_KEPT:
            self._processes[event.pid] = facts
        self._ended.pop(event.pid, None)

    def _pids(self) -> Set[int]:
        return {key for key in self._rows.get("process", ()) if isinstance(key, int)}.union(
            (key[1] for key in self._rows.get("usage", ()) if isinstance(key, tuple)),
            self._processes,
        )

    def _forget(self, pid: int) -> None:
        self._processes.pop(pid, None)
        self._ended.pop(pid, None)
        self._rows.get("process", {}).pop(pid, None)
        usage = self._rows.get("usage", {})
        for key in [key for key in usage if isinstance(key, tuple) and key[1] == pid]:
            del usage[key]

    def _purge(self, time: float) -> None:
        """Drop processes that ended, and usage of devices that a process has left."""
        for pid in [pid for pid, end in self._ended.items() if time - end > ENDED_KEPT_S]:
            self._forget(pid)
        usage = self._rows.get("usage", {})
        for key in [
            key for key, row in usage.items() if time - max(row.times.values()) > ENDED_KEPT_S
        ]:
            del usage[key]

    # -- which device is which ---------------------------------------------------------------------

    def _place(self, devices: List[Device]) -> None:
        """Give every device of a header its row: the one it had, by what identifies it."""
        placed: Dict[int, Device] = {}
        for rule in (self._same_number, self._same_uuid, self._same_place, self._new_key):
            for device in devices:
                if device in placed.values():
                    continue
                key = rule(device, placed)
                if key is not None:
                    placed[key] = device
        for key, device in placed.items():
            self._keys[device.key] = key
            record = self._devices.get(key)
            if record is None:
                record = self._devices[key] = _DeviceRecord(device._replace(key=key))
            known = record.device  # what a lost device can no longer say stays known
            record.device = device._replace(
                key=key, uuid=device.uuid or known.uuid, name=device.name or known.name
            )
        for key, record in self._devices.items():
            record.gone = key not in placed
            record.generation += 1
        self._renumbered = any(number != key for number, key in self._keys.items())

    def _same_number(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        """Within one stream a number stands for one device for ever."""
        return self._keys.get(device.key)

    def _same_uuid(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        for key, record in self._devices.items():
            if device.uuid and record.device.uuid == device.uuid and key not in placed:
                return key
        return None

    def _same_place(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        """A device that was lost before it could be asked for its UUID, by its NVML index."""
        for key, record in self._devices.items():
            known = record.device
            unsure = not device.uuid or not known.uuid
            if unsure and key not in placed and (known.index, known.mig) == (
                device.index, device.mig
            ):  # fmt: skip
                return key
        return None

    def _new_key(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        used = self._devices.keys() | placed.keys()
        return device.key if device.key not in used else max(used) + 1

    def _in_our_keys(self, rows: Rows) -> Rows:
        if not self._renumbered:
            return rows
        keys = self._keys
        ours = dict(rows)
        if "device" in rows:
            ours["device"] = {
                keys.get(key, key) if isinstance(key, int) else key: row
                for key, row in rows["device"].items()
            }
        if "usage" in rows:
            ours["usage"] = {
                (keys.get(key[0], key[0]), key[1]) if isinstance(key, tuple) else key: row
                for key, row in rows["usage"].items()
            }
        return ours


class Store:
    """All nodes. Writers are the threads of the streams, the reader is the screen's timer."""

    def __init__(self) -> None:
        self.generation = 0  # grows with every change of anything
        self._lock = Lock()
        self._nodes: Dict[str, NodeView] = {}

    def header(self, node: str, header: Header) -> None:
        """The static facts of a node; devices keep the rows they have."""
        with self._lock:
            self._node(node).take_header(header)

    def add(self, node: str, sample: Sample, received: Optional[float] = None) -> None:
        """One sample. `received`: the reader's clock on arrival, None when both are one clock."""
        with self._lock:
            self._node(node).take_sample(sample, received)

    def status(self, node: str, status: Status) -> None:
        """How the stream of a node fares."""
        with self._lock:
            self._node(node).take_status(status)

    def reset(self) -> None:
        """Forget all nodes: a replay begins again."""
        with self._lock:
            self._nodes.clear()
            self.generation += 1

    def nodes(self) -> List[NodeView]:
        """In the order in which they were first heard of."""
        with self._lock:
            return list(self._nodes.values())

    def node(self, name: str) -> Optional[NodeView]:
        """The node of this name, when it was heard of."""
        with self._lock:
            return self._nodes.get(name)

    def _node(self, name: str) -> NodeView:
        self.generation += 1
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeView(name, self._lock)
        return node


def _fresh_for_s(period_s: float, interval_s: float) -> float:
    return FRESH_PERIODS * max(period_s, interval_s) + FRESH_SLACK_S


@lru_cache(maxsize=16)
def _fresh_limits(interval_s: float) -> Dict[Tuple[str, str], float]:
    """(entity, field) -> the age up to which a reading is fresh, in seconds."""
    return {name: _fresh_for_s(group.period_s, interval_s) for name, group in GROUP_OF.items()}


def _stream(header: Header) -> Tuple[str, int]:
    """What tells one run of the agent from another."""
    return header.boot_id, header.agent_pid
