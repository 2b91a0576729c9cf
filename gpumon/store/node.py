"""One node: what its stream has told, as the screens read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from itertools import islice
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any

from gpumon.model.axis import Axis
from gpumon.model.bounded import Recent, left_out_text
from gpumon.model.fields import COURSES, OF_BOTH, SERIES
from gpumon.model.reading import NOT_SAMPLED, Missing, Reading, number
from gpumon.model.rollup import Bucket, Rollup
from gpumon.model.sample import Event, Header, Key, Process, Sample
from gpumon.model.series import COURSE_TIERS, COURSES_KEPT, RETENTIONS, Retention, Series, Stats
from gpumon.model.spacing import Spacing
from gpumon.model.view import LEFT, DeviceView, Latest, ProcessView, Status
from gpumon.store.devices import Devices
from gpumon.store.processes import Processes, pid_of
from gpumon.store.row import EXTREMES, Row, Tables, fresh_for_s, is_recent, parts_of, period_s

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

EVENTS_KEPT, EVENTS_BYTES = 1000, 1 << 20
#: per node and entity; beyond that new keys are ignored, so that a broken stream fills no memory
KEYS_KEPT = 4096
#: rows of devices that no header lists
UNLISTED_KEPT = 16
_PURGE_EVERY_S = 10.0
#: who was not read for so long after what was loaded; its number may come back as another's
_WAITS_S = 60.0
_NUMBERS = frozenset((int, float))
_NOTHING = Series()


class NodeView:
    """One node: written by its stream through the store, read by the screens. Thread-safe."""

    def __init__(self, name: str, lock: Lock, retention: Retention) -> None:
        self.name = name
        self.generation = 0  # grows with every change of anything below
        self.header: Header | None = None
        self.last_time: float | None = None  # of the newest sample, on the node's axis
        self.since = -inf  # on the node's axis; what came before was of an earlier attempt
        self._lock = lock
        self._retention = retention
        self._status = Status("connecting", 0.0)
        self._tables = Tables()
        self._devices = Devices()
        self._processes = Processes(self._tables, KEYS_KEPT)
        self._events: Recent[Event] = Recent(EVENTS_KEPT, EVENTS_BYTES)
        self._spacing = Spacing()
        #: how often this node samples: what it claims, unless samples come far more often
        self.interval_s = 1.0
        self._left_out = 0  # rows that there was no room for
        self._unlisted_rows = 0  # of devices that no header lists
        self.series_count = 0
        self._axis = Axis()
        self._purged = -inf
        #: courses that were loaded, until their processes are read again: it is not known before
        #: that they still run
        self._loaded = Tables()
        self._loaded_until = inf
        self._until = inf  # of a frozen node: what came later is not shown

    # -- reading -----------------------------------------------------------------------------------

    def frozen(self) -> NodeView:
        """The node as it is now, for a screen that is held still while samples continue coming."""
        with self._lock:
            node = copy(self)
            node._tables = self._tables.frozen()
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
        return self._spacing.delay_s

    def status(self, now: float) -> Status:
        """Of the stream; a live one without samples for three intervals is `stale`."""
        with self._lock:
            status = self._status
            if status.state != "live" or self.last_time is None:
                return status
            age_s = now - self._spacing.delay_s - self.last_time
            if age_s <= fresh_for_s("", "", self.interval_s):
                return status
            return Status("stale", self.last_time, f"no sample for {age_s:.0f} s", status.source)

    @property
    def is_left(self) -> bool:
        """Whether it is the job's no more."""
        return self._status.state == LEFT

    def left_out(self) -> str:
        """What of this node's stream is not kept, as a sentence; "" where all is."""
        with self._lock:
            unlisted_rows = max(self._unlisted_rows - UNLISTED_KEPT, 0)
            return left_out_text({
                "rows of devices that it does not list": unlisted_rows,
                "rows of new names": self._left_out,
                "processes' command lines": self._processes.known.left_out,
                "devices that are gone": self._devices.forgotten,
                "devices": self._devices.unlisted,
            })  # fmt: skip

    def devices(self) -> list[DeviceView]:
        """All devices ever seen, in the order of their keys; lost and gone ones keep their row."""
        with self._lock:
            return [self._devices.views[key] for key in sorted(self._devices.views)]

    def keys(self, entity: str) -> list[Key]:
        """The keys of `entity` that readings came for, in order of first appearance."""
        with self._lock:
            return list(self._tables.get(entity, ()))

    def latest(self, entity: str, key: Key, field: str, now: float) -> Latest:
        """The newest reading of a field with its age. Of a lost device none is ever a number."""
        with self._lock:
            row, device = self._tables.row(entity, key), self._device(entity, key)
            return self._latest(entity, row, field, now - self._spacing.delay_s, device)

    def numbers(
        self, entity: str, keys: Sequence[Key], field: str, now: float
    ) -> list[float | None]:
        """The numbers of one field that are true now; None for the others. `latest` for many."""
        with self._lock:
            at, table = now - self._spacing.delay_s, self._tables.get(entity, {})
            oldest = at - fresh_for_s(entity, field, self.interval_s)
            found: list[float | None] = []
            for key in keys:
                row, device = table.get(key), self._device(entity, key)
                is_old = row is None or row.times.get(field, -inf) < oldest
                value: Any = None if row is None or is_old else row.readings[field]
                is_true = type(value) in _NUMBERS and not (device and device.is_silent)
                found.append(value if is_true else None)
            return found

    def row(self, entity: str, key: Key, now: float) -> dict[str, Latest]:
        """All fields of one entity that readings came for."""
        with self._lock:
            return self._all_latest(entity, key, now - self._spacing.delay_s)

    def window(
        self, entity: str, key: Key, field: str, end: float, span_s: float, n: int
    ) -> list[Bucket | None]:
        """`n` aligned buckets of a series (`Series.window`); gaps where there is no series."""
        with self._lock:
            return self._series(entity, key, field).window(end, span_s, n, self._until)

    def stats(self, entity: str, key: Key, field: str, start: float, end: float) -> Stats:
        """Time-weighted mean, extremes and coverage of a series over [start, end)."""
        with self._lock:
            return self._series(entity, key, field).stats(start, end)

    def first_time(self, entity: str, key: Key, field: str, *, past: bool = False) -> float | None:
        """Time of the oldest sample of a series; `past`: also of what was recorded before."""
        with self._lock:
            return self._series(entity, key, field).first_time(past=past)

    def peak(self, entity: str, key: Key, field: str, *, past: bool = False) -> float | None:
        """The largest value of a series since attached; `past`: also of what was recorded before,
        as a plot may show it.
        """
        with self._lock:
            return self._series(entity, key, field).high(past=past)

    def peak60(self, entity: str, key: Key, field: str) -> float | None:
        """The largest mean of a minute of a series; None before the first minute is over."""
        with self._lock:
            return self._series(entity, key, field).peak60

    def processes(self, now: float | None) -> list[ProcessView]:
        """By pid; those that ended are listed for a minute more, with the time they ended. For
        None without readings and for little: `usage` names the devices alone.
        """
        with self._lock:
            at = None if now is None else now - self._spacing.delay_s
            usage: dict[int, dict[int, dict[str, Latest]]] = {}
            for key in self._tables.usages():
                usage.setdefault(key[1], {})[key[0]] = self._all_latest("usage", key, at)
            known = self._processes
            views = ((pid, self._all_latest("process", pid, at)) for pid in sorted(known.pids()))
            return [
                ProcessView(known.facts(pid), known.ended.get(pid), readings, usage.get(pid, {}))
                for pid, readings in views
            ]

    def processes_on(self, device: int) -> list[Process]:
        """What does not change of the processes on one device: `processes`, for little."""
        with self._lock:
            return self._processes.on(device)

    def events(self, since: float = -inf) -> list[Event]:
        """What happened after `since`, oldest first; the coming and going of processes apart."""
        with self._lock:
            return [event for event in self._events if event.time > since]

    # -- the parts that hold the lock --------------------------------------------------------------

    def _series(self, entity: str, key: Key, field: str) -> Series:
        """One without samples where there is none."""
        row = self._tables.row(entity, key)
        return row.series.get(field, _NOTHING) if row is not None else _NOTHING

    def _all_latest(self, entity: str, key: Key, at: float | None) -> dict[str, Latest]:
        row = self._tables.row(entity, key)
        if row is None or at is None:
            return {}
        device = self._device(entity, key)
        return {field: self._latest(entity, row, field, at, device) for field in row.readings}

    def _device(self, entity: str, key: Key) -> DeviceView | None:
        """The device that a row is about, if it is about one."""
        device = key if entity == "device" else key[0] if isinstance(key, tuple) else None
        return self._devices.views.get(device) if isinstance(device, int) else None

    def _latest(
        self, entity: str, row: Row | None, field: str, at: float, device: DeviceView | None
    ) -> Latest:
        """The newest reading of a field with its age at `at`, by the node's clock."""
        found = Latest(NOT_SAMPLED, 0.0, inf, False)
        if row is not None and field in row.readings:
            time = row.times[field]
            age_s = at - time if at > time else 0.0
            is_fresh = age_s <= fresh_for_s(entity, field, self.interval_s)
            found = Latest(row.readings[field], time, age_s, is_fresh)
        if device is None or not device.is_silent:
            return found
        if device.left:
            return found._replace(reading=Missing("not-sampled", LEFT), fresh=False)
        if device.gone:
            return found._replace(reading=Missing("lost", "no longer listed"), fresh=False)
        if device.state is not None and device.state.state == "lost":
            return found._replace(reading=Missing("lost", device.state.detail), fresh=False)
        return found._replace(fresh=False)

    # -- writing: called by Store under the lock ---------------------------------------------------

    def take_header(self, header: Header) -> None:
        before, self.header = self.header, self._axis.header(header)
        stream = header.boot_id, header.agent_pid  # one run of the agent
        if before is None or (before.boot_id, before.agent_pid) != stream:
            self._devices.begin()
            self._processes.begin(self.header.time)
            self._spacing.clear()
        gone = self._devices.place(header.devices)
        if gone:  # what was read of devices that there is no room for any more
            removed = self._tables.remove(("device",), lambda key, _: key in gone)
            self.series_count -= sum(len(row.series) for row in removed)
            self._tables.remove(OF_BOTH, lambda key, _: isinstance(key, tuple) and key[0] in gone)
        self._expect()

    def _expect(self) -> None:
        """Tell all series how often a sample is due, where that is new."""
        claimed_s = self.header.interval_s if self.header else 1.0
        interval_s = self._spacing.interval_s(claimed_s)
        if interval_s != self.interval_s:
            self.interval_s = interval_s
            for entity, field, series in self._tables.series():
                series.expect(period_s(entity, field, interval_s))

    def take_sample(self, sample: Sample, received: float | None) -> None:
        sample = self._devices.placed(self._axis.sample(sample, received))
        self.last_time = sample.time
        if sample.rows:
            self._spacing.note(sample.time, received)
            self._expect()
        for entity, rows in sample.rows.items():
            self._take_rows(entity, rows, sample.time)
        self._take_events(sample.events)
        if not self._purged <= sample.time < self._purged + _PURGE_EVERY_S:
            self._purged = sample.time  # now and then
            self._processes.purge(sample.time)
        if sample.rows and self._loaded:
            self._loaded_until = min(self._loaded_until, sample.time + _WAITS_S)
            if sample.time >= self._loaded_until:
                self._loaded.clear()

    def _take_rows(self, entity: str, rows: dict[Key, dict[str, Reading]], time: float) -> None:
        table = self._tables.setdefault(entity, {})
        fields = SERIES.get(entity, frozenset())
        with_series = self._watched(entity, rows) if entity in COURSES else rows if fields else ()
        value: Any
        for key, readings in rows.items():
            row = table.get(key)
            if row is None:
                if not self._has_room(entity, key, table):
                    continue
                row = self._tables.make(entity, key)
            row.remember(readings, time)
            if key not in with_series:
                continue
            for field, value in readings.items():
                if field not in fields:
                    continue
                series = row.series.get(field) or self._new_series(row, entity, key, field)
                if type(value) not in _NUMBERS:
                    series.miss()
                elif field in EXTREMES:
                    low, high = (number(readings.get(name)) for name in EXTREMES[field])
                    series.add(time, value, low, high)
                else:
                    series.add(time, value)

    def _new_series(self, row: Row, entity: str, key: Key, field: str) -> Series:
        is_course = entity in COURSES
        loaded = self._loaded.row(entity, key) if is_course else None
        found = loaded.series.pop(field, None) if loaded is not None else None
        self.series_count += not is_course
        if found is None:
            tiers = COURSE_TIERS if is_course else self._retention.tiers
            found = Series(period_s(entity, field, self.interval_s), tiers)
        row.series[field] = found
        return found

    def _watched(self, entity: str, rows: Collection[Key]) -> Collection[Key]:
        """Of these rows, those of processes on GPUs whose course is kept."""
        if self._retention != RETENTIONS[0]:
            return ()
        table = self._tables.get(entity, {})
        found = {key for key in rows if key in table and table[key].series}
        room = COURSES_KEPT - sum(1 for row in table.values() if row.series)
        if room > 0:
            on_gpus = {pid for _, pid in self._tables.usages()}
            new = (key for key in rows if isinstance(key, tuple) or key in on_gpus)
            found.update(islice((key for key in new if key not in found), room))
        return found

    def _has_room(self, entity: str, key: Key, table: Collection[Key]) -> bool:
        """For a new row."""
        if entity == "device" and self._device(entity, key) is None:
            self._unlisted_rows += 1
            return self._unlisted_rows <= UNLISTED_KEPT
        is_full = len(table) >= KEYS_KEPT
        self._left_out += is_full
        return not is_full

    def take_frame(self, past: Frame) -> None:
        """What was before the next sample."""
        for header in past.headers:
            self.take_header(header)
        self.take_past_events(past)
        self._devices.take_xids(self._events)
        for series, rollup, first_time in self.series_of(past, is_past=False):
            series.load(rollup, first_time)
        self._loaded_until = inf
        self.last_time = max(past.samples.first, self.last_time or -inf)

    def series_of(self, past: Frame, *, is_past: bool) -> Iterator[tuple[Series, Rollup, float]]:
        """Series of this node, each with what a frame has of it, and since when. `is_past`: it is
        from earlier recordings of its own. What only these have of a row gets a series, whose first
        sample is still to come.
        """
        devices = self._devices.keys_of(each.device for each in past.devices)
        same = self._processes.same_in(past)
        for entity, key, field, rollup, first_time in parts_of(past, devices):
            row, is_course = self._tables.row(entity, key), entity in COURSES
            is_recorded = is_recent(past, rollup)
            if is_past:
                if row is None or (is_course and not (row.series and pid_of(key) in same)):
                    continue
            elif is_course:
                if not is_recorded:
                    continue
                row = self._loaded.make(entity, key)
            else:
                row = self._tables.make(entity, key)
                if not is_recorded:  # of what is hung, the last readings stay
                    row.remember({field: rollup.mean[-1]}, (rollup.last + 1) * rollup.step_s)
            series = row.series.get(field) or self._new_series(row, entity, key, field)
            yield series, rollup, first_time

    def take_past_events(self, past: Frame) -> None:
        """Those of its own earlier recordings; devices by the keys that they have here."""
        ours = self._devices.keys_of(each.device for each in past.devices)
        newer, self._events = self._events, Recent(EVENTS_KEPT, EVENTS_BYTES)
        for event in past.events:
            place = past.place_of(event)
            if event.kind != "process-end" and (place is None or place in ours):
                device = None if place is None else ours[place]
                self._events.append(event._replace(device=device))
        for event in newer:
            self._events.append(event)

    def take_status(self, status: Status) -> None:
        self._status = status
        if status.state == LEFT:  # its series stay, but what comes next is another part
            self.since = status.since - self._spacing.delay_s
            self._devices.leave()
            self._processes.begin(self.since)
            for _, _, series in self._tables.series():
                series.begin_peaks()

    def downsample(self, retention: Retention) -> None:
        """Keep less from now on: there are more nodes, or more series."""
        self._retention = retention
        for _, _, series in self._tables.series():
            series.downsample(retention.tiers)

    def _take_events(self, events: Sequence[Event]) -> None:
        if events:
            self._processes.take(events)
        for event in events:
            if event.kind not in ("process", "process-end"):
                self._events.append(event)
