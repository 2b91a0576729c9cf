"""One node: what its stream has told, as the screens read it."""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import islice
from math import inf
from threading import Lock
from typing import (
    TYPE_CHECKING,
    Any,
    Collection,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from gpumon.model.axis import Axis
from gpumon.model.bounded import Recent, left_out_text
from gpumon.model.fields import COURSES, OF_BOTH, SERIES
from gpumon.model.reading import Missing, number
from gpumon.model.retention import COURSES_KEPT, RETENTIONS, Retention
from gpumon.model.rollup import Bucket, Rollup
from gpumon.model.sample import Event, Header, Key, Process, Sample
from gpumon.model.series import Series, Stats
from gpumon.model.spacing import Spacing
from gpumon.model.view import LEFT, DeviceView, Latest, ProcessView, Status
from gpumon.store.aging import LeastDelay, aged, fresh_for_s, fresh_limits, period_s
from gpumon.store.courses import Courses
from gpumon.store.devices import DeviceRecord, Devices
from gpumon.store.processes import Processes
from gpumon.store.row import Kept, Row, Table

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

EVENTS_KEPT, EVENTS_BYTES = 1000, 1 << 20
#: per node and entity; beyond that new keys are ignored, so that a broken stream fills no memory
KEYS_KEPT = 4096
#: rows of devices that no header lists
UNLISTED_KEPT = 16
_PURGE_EVERY_S = 10.0
_NUMBERS = frozenset((int, float))


class NodeView:
    """One node: written by its stream through the store, read by the screens. Thread-safe."""

    def __init__(self, name: str, lock: Lock, retention: Retention) -> None:
        self.name = name
        self.generation = 0  # grows with every change of anything below
        self.header: Optional[Header] = None
        self.last_time: Optional[float] = None  # of the newest sample, on the node's axis
        self.since = -inf  # on the node's axis; what came before was of an earlier attempt
        self._lock = lock
        self._retention = retention
        self._status = Status("connecting", 0.0)
        self._tables: Dict[str, Table] = {}
        self._devices = Devices()
        self._processes = Processes(self._tables, KEYS_KEPT)
        self._events: Recent[Event] = Recent(EVENTS_KEPT, EVENTS_BYTES)
        self._spacing = Spacing()
        #: how often this node samples: what it claims, unless samples come far more often
        self.interval_s = 1.0
        self._limits_s = fresh_limits(1.0)
        self._left_out = 0  # rows that there was no room for
        self._unlisted_rows = self._unlisted = 0  # of devices that no header lists
        self.series_count = 0
        self._axis = Axis()
        self._delay = LeastDelay()
        self._offset_s = 0.0
        self._purged = -inf
        self._courses = Courses()
        self._until = inf  # of a frozen node: what came later is not shown

    # -- reading -----------------------------------------------------------------------------------

    def frozen(self) -> NodeView:
        """The node as it is now, for a screen that is held still while samples continue coming."""
        with self._lock:
            node = copy(self)
            node._tables = {
                entity: {key: row.frozen() for key, row in table.items()}
                for entity, table in self._tables.items()
            }
            node._devices = self._devices.frozen()
            node._processes = self._processes.frozen(node._tables)
            node._events = self._events.copy()
            node._until = inf if self.last_time is None else self.last_time
            return node

    @property
    def clock_offset_s(self) -> float:
        """How far the reader's clock is ahead of the node's: the least delay of late.

        Series and events are on the node's axis, which is its clock without the jumps
        (`model/axis.py`): `node.window(…, end=now - clock_offset_s)`.
        """
        return self._offset_s

    def status(self, now: float) -> Status:
        """Of the stream; a live one without samples for three intervals is `stale`."""
        with self._lock:
            status = self._status
            if status.state != "live" or self.last_time is None:
                return status
            age_s = now - self._offset_s - self.last_time
            if age_s <= fresh_for_s(0.0, self.interval_s):
                return status
            return Status("stale", self.last_time, f"no sample for {age_s:.0f} s", status.source)

    @property
    def is_left(self) -> bool:
        """Whether it is the job's no more."""
        return self._status.state == LEFT

    def left_out(self) -> str:
        """What of this node's stream is not kept, as a sentence; "" where all is."""
        with self._lock:
            return left_out_text({
                "rows of devices that it does not list": self._unlisted,
                "rows of new names": self._left_out,
                "processes' command lines": self._processes.left_out,
                "devices that are gone": self._devices.forgotten,
                "devices": self._devices.unlisted,
            })  # fmt: skip

    def devices(self) -> List[DeviceView]:
        """All devices ever seen, in the order of their keys; lost and gone ones keep their row."""
        with self._lock:
            return self._devices.views()

    def keys(self, entity: str) -> List[Key]:
        """The keys of `entity` that readings came for, in order of first appearance."""
        with self._lock:
            return list(self._tables.get(entity, ()))

    def latest(self, entity: str, key: Key, field: str, now: float) -> Latest:
        """The newest reading of a field with its age. Of a lost device none is ever a number."""
        with self._lock:
            row = self._tables.get(entity, {}).get(key)
            return self._latest(entity, row, field, now - self._offset_s, self._device(entity, key))

    def numbers(
        self, entity: str, keys: Sequence[Key], field: str, now: float
    ) -> List[Optional[float]]:
        """The numbers of one field that are true now; None for the others. `latest` for many."""
        with self._lock:
            at, table = now - self._offset_s, self._tables.get(entity, {})
            oldest = at - self._limit_s(entity, field)
            found: List[Optional[float]] = []
            for key in keys:
                row = table.get(key)
                value: Any = None if row is None else row.readings.get(field)
                if row is None or type(value) not in _NUMBERS or row.times[field] < oldest:
                    found.append(None)
                    continue
                device = self._device(entity, key)
                if device is not None and not device.is_well:
                    latest = self._latest(entity, row, field, at, device)
                    value = number(latest.reading) if latest.fresh else None
                found.append(value)
            return found

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

    def first_time(
        self, entity: str, key: Key, field: str, *, past: bool = False
    ) -> Optional[float]:
        """Time of the oldest sample of a series; `past`: also of what was recorded before."""
        with self._lock:
            series = self._series(entity, key, field)
            if series is None:
                return None
            return series.oldest_time if past else series.first_time

    def peak(self, entity: str, key: Key, field: str) -> Optional[float]:
        """The largest value since attached: of series, and of fields in `store.row.PEAKS`."""
        with self._lock:
            row = self._tables.get(entity, {}).get(key)
            return row.peak(field) if row is not None else None

    def highest(self, entity: str, key: Key, field: str) -> Optional[float]:
        """The largest value that a plot can show: `peak`, or of what was recorded before."""
        with self._lock:
            row = self._tables.get(entity, {}).get(key)
            return row.highest(field) if row is not None else None

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
            for key in self._tables.get("usage", ()):
                if isinstance(key, tuple):
                    device, pid = key
                    usage.setdefault(pid, {})[device] = self._all_latest("usage", key, at)
            return [
                ProcessView(
                    self._processes.facts(pid),
                    self._processes.ended(pid),
                    self._all_latest("process", pid, at),
                    usage.get(pid, {}),
                )
                for pid in sorted(self._processes.pids())
            ]

    def listed(self) -> List[ProcessView]:
        """`processes` without their readings, for little: `usage` names the devices alone."""
        with self._lock:
            usage: Dict[int, Dict[int, Dict[str, Latest]]] = {}
            for key in self._tables.get("usage", ()):
                if isinstance(key, tuple):
                    usage.setdefault(key[1], {})[key[0]] = {}
            processes = self._processes
            return [
                ProcessView(processes.facts(pid), processes.ended(pid), {}, usage.get(pid, {}))
                for pid in sorted(processes.pids())
            ]

    def processes_on(self, device: int) -> List[Process]:
        """What does not change of the processes on one device: `processes`, for little."""
        with self._lock:
            return self._processes.on(device)

    def events(self, since: float = -inf) -> List[Event]:
        """What happened after `since`, oldest first; the coming and going of processes apart."""
        with self._lock:
            return [event for event in self._events if event.time > since]

    # -- the parts that hold the lock --------------------------------------------------------------

    def _series(self, entity: str, key: Key, field: str) -> Optional[Series]:
        row = self._tables.get(entity, {}).get(key)
        return row.series.get(field) if row is not None else None

    def _all_latest(self, entity: str, key: Key, at: float) -> Dict[str, Latest]:
        row = self._tables.get(entity, {}).get(key)
        if row is None:
            return {}
        device = self._device(entity, key)
        return {field: self._latest(entity, row, field, at, device) for field in row.readings}

    def _device(self, entity: str, key: Key) -> Optional[DeviceRecord]:
        """The device that a row is about, if it is about one."""
        device = key if entity == "device" else key[0] if isinstance(key, tuple) else None
        return self._devices.get(device) if isinstance(device, int) else None

    def _latest(
        self, entity: str, row: Optional[Row], field: str, at: float, device: Optional[DeviceRecord]
    ) -> Latest:
        latest = aged(row, field, at, self._limit_s(entity, field))
        if device is None:
            return latest
        if device.left:
            return latest._replace(reading=Missing("not-sampled", LEFT), fresh=False)
        if device.gone:
            return latest._replace(reading=Missing("lost", "no longer listed"), fresh=False)
        if device.state is None:
            return latest
        if device.state.state == "lost":
            return latest._replace(reading=Missing("lost", device.state.detail), fresh=False)
        return latest._replace(fresh=latest.fresh and device.state.state != "hung")

    def _limit_s(self, entity: str, field: str) -> float:
        """The age up to which a reading is fresh."""
        limit_s = self._limits_s.get((entity, field))
        # else a field that the table does not have
        return fresh_for_s(0.0, self.interval_s) if limit_s is None else limit_s

    # -- writing: called by Store under the lock ---------------------------------------------------

    def take_header(self, header: Header) -> None:
        before = self.header
        header = self.header = self._axis.header(header)
        self.generation += 1
        if before is None or _stream(before) != _stream(header):
            self._devices.begin()
            self._processes.begin(header.time)
            self._spacing.clear()
            self._delay = LeastDelay()  # the offset stands until the first sample tells a new one
        self._forget(self._devices.place(header.devices))
        self._expect()

    @property
    def _claimed_s(self) -> float:
        """How often the stream says that it samples."""
        return self.header.interval_s if self.header and self.header.interval_s > 0 else 1.0

    def _expect(self) -> None:
        """Tell all series how often a sample is due, where that is new."""
        interval_s = self._spacing.interval_s(self._claimed_s)
        if interval_s == self.interval_s:
            return
        self.interval_s, self._limits_s = interval_s, fresh_limits(interval_s)
        for entity, table in self._tables.items():
            for row in table.values():
                for field, series in row.series.items():
                    series.expect(period_s(entity, field, interval_s))

    def _forget(self, devices: Sequence[int]) -> None:
        """What was read of devices that there is no room for any more."""
        if not devices:
            return
        gone = frozenset(devices)
        readings = self._tables.get("device", {})
        for key in gone & readings.keys():
            self.series_count -= len(readings.pop(key).series)
        for table in (self._tables.get(entity, {}) for entity in OF_BOTH):
            for place in [key for key in table if isinstance(key, tuple) and key[0] in gone]:
                del table[place]

    def take_sample(self, sample: Sample, received: Optional[float]) -> None:
        self.generation += 1
        sample = self._axis.sample(sample, received)
        self.last_time = sample.time
        if sample.rows:
            self._courses.purge(sample.time)
            self._spacing.note(sample.time if received is None else received)
            self._expect()
        if received is not None:
            self._offset_s = self._delay.take(sample.time, received)
        for entity, rows in self._devices.in_our_keys(sample.rows).items():
            for key, row, fields, new in self._rows_for(entity, rows):
                row.take(rows[key], sample.time, fields, new)
        self._devices.take_states(sample)
        self._take_events(sample.events)
        self._purge(sample.time)

    def _rows_for(self, entity: str, keys: Collection[Key]) -> Iterator[Kept]:
        """The row of each key, the fields that are series of it, and what makes one; where there
        is no room for a new row, none.
        """
        table = self._tables.setdefault(entity, {})
        new_usual = partial(self._new_series, entity)
        usual = SERIES.get(entity, frozenset()), new_usual
        watched = self._watched(entity, keys)
        for key in keys:
            row = table.get(key)
            if row is None:
                if not self._has_room(entity, key, table):
                    continue
                row = table[key] = Row()
            if key in watched:
                new = partial(self._courses.new, entity, key, interval_s=self.interval_s)
                yield key, row, SERIES[entity], new
            elif entity in COURSES:
                yield key, row, frozenset(), new_usual
            else:
                yield (key, row, *usual)

    def _purge(self, time: float) -> None:
        """Of processes that ended, and of what they left, now and then."""
        if not self._purged <= time < self._purged + _PURGE_EVERY_S:
            self._purged = time
            self._processes.purge(time)

    def _watched(self, entity: str, rows: Collection[Key]) -> Collection[Key]:
        """Of these rows, those of processes on GPUs whose course is kept."""
        if entity not in COURSES or self._retention != RETENTIONS[0]:
            return ()
        table = self._tables.get(entity, {})
        found = {key for key in rows if key in table and table[key].series}
        room = COURSES_KEPT - sum(1 for row in table.values() if row.series)
        if room > 0:
            on_gpus = {key[1] for key in self._tables.get("usage", ()) if isinstance(key, tuple)}
            new = (key for key in rows if isinstance(key, tuple) or key in on_gpus)
            found.update(islice((key for key in new if key not in found), room))
        return found

    def _has_room(self, entity: str, key: Key, table: Table) -> bool:
        """For a new row."""
        if entity == "device" and self._device(entity, key) is None:
            if self._unlisted_rows < UNLISTED_KEPT:
                self._unlisted_rows += 1
                return True
            self._unlisted += 1
            return False
        if len(table) >= KEYS_KEPT:
            self._left_out += 1
            return False
        return True

    def take_frame(self, past: Frame) -> None:
        """What was before the next sample."""
        from gpumon.store.past import is_recent, parts_of

        items: List[Union[Header, Event]] = [*past.headers, *past.events]
        for item in sorted(items, key=lambda each: each.time):
            if isinstance(item, Header):
                self.take_header(item)
            elif item.kind != "process-end":
                self._take_events([item])
        for part in parts_of(past, self._devices.keys_of(each.device for each in past.devices)):
            if part.entity not in COURSES:
                row = self._tables.setdefault(part.entity, {}).setdefault(part.key, Row())
                new = partial(self._new_series, part.entity)
                kept = SERIES.get(part.entity, frozenset())
                row.load(part.field, part.rollup, part.first_time, kept, new)
                if not is_recent(past, part.rollup):  # of what is hung, the last readings stay
                    end = (part.rollup.last + 1) * part.rollup.step_s
                    row.remember({part.field: part.rollup.mean[-1]}, end)
            elif is_recent(past, part.rollup):
                self._courses.load(part[:3], part.rollup, part.first_time, self.interval_s)
        self.last_time = max(past.samples.first, self.last_time or -inf)

    def series_of_past(self, past: Frame) -> Iterator[Tuple[Series, Rollup, float]]:
        """Series of this node, each with what its own earlier recordings have of it, and since
        when. What only these have gets a series, whose first sample is still to come.
        """
        from gpumon.store.past import parts_of, processes_of

        devices = self._devices.keys_of(each.device for each in past.devices)
        same = self._processes.same_in(processes_of(past))
        for part in parts_of(past, devices):
            entity, key, field = part[:3]
            if entity in COURSES and (key[1] if isinstance(key, tuple) else key) not in same:
                continue
            row = self._tables.get(entity, {}).get(key)
            is_course = entity in COURSES
            if row is None or not (row.series if is_course else field in SERIES[entity]):
                continue
            if field not in row.series:
                new = partial(self._courses.new, entity, key, interval_s=self.interval_s)
                row.series[field] = new(field) if is_course else self._new_series(entity, field)
            yield row.series[field], part.rollup, part.first_time

    def take_past_events(self, past: Frame) -> None:
        """Those of its own earlier recordings; devices by the keys that they have here."""
        self.generation += 1
        ours = self._devices.keys_of(each.device for each in past.devices)
        newer, self._events = list(self._events), Recent(EVENTS_KEPT, EVENTS_BYTES)
        for event in past.events:
            place = past.place_of(event)
            if event.kind != "process-end" and (place is None or place in ours):
                device = None if place is None else ours[place]
                self._events.append(event._replace(device=device))
        for event in newer:
            self._events.append(event)

    def take_status(self, status: Status) -> None:
        self.generation += 1
        self._status = status
        if status.state == LEFT:
            self._leave(status.since - self._offset_s)

    def _leave(self, time: float) -> None:
        """The node is the job's no more: its series stay, but what comes next is another part."""
        self.since = time
        self._devices.leave()
        self._processes.begin(time)
        for table in self._tables.values():
            for row in table.values():
                row.begin_peaks()

    def downsample(self, retention: Retention) -> None:
        """Keep less from now on: there are more nodes, or more series."""
        self._retention = retention
        for table in self._tables.values():
            for row in table.values():
                for series in row.series.values():
                    series.downsample(retention.tiers)

    def _new_series(self, entity: str, field: str) -> Series:
        self.series_count += 1
        return Series(period_s(entity, field, self.interval_s), self._retention.tiers)

    def _take_events(self, events: Sequence[Event]) -> None:
        of_processes = []
        for event in events:
            if event.device is not None:
                event = event._replace(device=self._devices.key_of(event.device))
            if event.kind in ("process", "process-end"):
                of_processes.append(event)
                continue
            self._events.append(event)
            if event.kind == "xid":
                self._devices.take_xid(event)
        if of_processes:
            self._processes.take(of_processes)


def _stream(header: Header) -> Tuple[str, int]:
    """What tells one run of the agent from another."""
    return header.boot_id, header.agent_pid
