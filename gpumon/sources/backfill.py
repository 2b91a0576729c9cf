"""The backfill of a replay: what was before, in buckets, without feeding hours again.

What was within a quarter of an hour is fed in columns and samples. Of what was before, series are
all that screens show, and of these only buckets of 10 s and more. They are gathered once, as for a
report: of a recording with rollup lines that takes a second a node-day, of one without half a
minute. They then serve every way back. About 12 MB for a node and day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Union

from gpumon.model.backfill import BACKFILL_S, Backfill, BackfillSeries
from gpumon.model.batch import ColumnBatch
from gpumon.model.fields import SERIES
from gpumon.model.rolled import RolledFrame
from gpumon.model.sample import Device, Header, Key, Sample
from gpumon.store.aging import period_s
from gpumon.store.devices import is_same
from gpumon.store.row import EXTREMES

if TYPE_CHECKING:
    from gpumon.analysis.aggregate.node import NodeAggregate
    from gpumon.model.rollup import Rollup
    from gpumon.sources.buckets import Buckets

Item = Union[Header, Sample, ColumnBatch, RolledFrame]
#: items from the frame that holds a moment on (None: all)
ItemsSince = Callable[["float | None"], Iterator["Header | Sample"]]

#: these are repeated at the beginning of the frame that holds the end
PROCESS_EVENTS = ("process", "process-end")
#: what still shows its last reading when it is not read any more
_AGING = ("device", "host", "job")
#: what was not read for so long may not be read again soon
_RECENT_S = 60.0
#: in so long every group is read once (`model.fields`)
_ROUND_S = 70.0
_NODE = ""


class FileBackfill:
    """Of one file, as far as it has been read."""

    def __init__(self, rolled: Callable[[float], Iterator[Item]], items: ItemsSince) -> None:
        """As of a `Recording`: `rolled(until)` and `items(since)`."""
        self._rolled = rolled
        self._items = items
        self._lock = Lock()  # one reads, others ask
        self._whole: _Gathered | None = None  # when all is read
        self._so_far: Callable[[], _Gathered | None] = lambda: None
        #: time of the newest item, epoch s; -inf in rollups, which take no time; inf: all is read
        self.reached = -inf

    def read(self) -> Iterator[None]:
        """Read all of it, a step at a time."""
        from gpumon.analysis.aggregate.limits import BACKFILL
        from gpumon.analysis.aggregate.run import Aggregation

        gathering = Aggregation(BACKFILL)

        def so_far() -> _Gathered | None:
            node = gathering.flushed(_NODE)
            return None if node is None else _Gathered(node, gathering.step_s, self._items)

        self._so_far = so_far
        for item in self._rolled(inf):
            with self._lock:
                gathering.add(_NODE, item)
            if not isinstance(item, RolledFrame):
                self.reached = item.times[-1] if isinstance(item, ColumnBatch) else item.time
            yield
        with self._lock:
            self._whole = so_far()
        self._so_far = lambda: None
        self.reached = inf

    def before(self, end: float, until: float = -inf) -> list[Backfill]:
        """What was before `end`, a multiple of `END_S`; one backfill for each run of the agent.

        Buckets reach to before `until`, also a multiple, where that is later and they are as fine
        as series keep them: what comes from `end` on then only adds what is finer.
        """
        with self._lock:
            gathered = self._whole or self._so_far()
        return [] if gathered is None else gathered.before(end, until)

    def items_before(self, end: float) -> Iterator[Item]:
        """The same for who gathers evidence, read once more."""
        for item in self._rolled(end):
            if isinstance(item, RolledFrame):
                yield item
            elif isinstance(item, ColumnBatch) and item.times[-1] >= end:
                yield from (sample for sample in item.samples() if sample.time < end)
                return
            elif not isinstance(item, ColumnBatch) and item.time >= end:
                return
            else:
                yield item


class _Gathered:
    """What was gathered of a file, ready to be cut anywhere."""

    def __init__(self, node: NodeAggregate, step_s: float, items: ItemsSince) -> None:
        from gpumon.sources.buckets import Buckets, widened

        self._items = items
        self._step_s = step_s
        self._headers = list(node.headers)
        self._events = [event for event in node.events if event.kind not in PROCESS_EVENTS]
        self._devices = [each.device for each in node.devices]
        #: (entity, key or a device's place) -> field -> buckets
        self._buckets: dict[tuple[str, Key], dict[str, Buckets]] = {}
        #: of processes, (entity, key, field) -> bins
        self._courses = {
            (entity, key, field): own
            for entity, key, field, bins in node.courses()
            if (own := widened(bins, []))
        }
        first, newest = self._headers[0], self._headers[-1]
        for (entity, key), fields in _bins_of(node).items():
            buckets = self._buckets[entity, key] = {}
            for field, bins in fields.items():
                inner = [fields[name] for name in EXTREMES.get(field, ()) if name in fields]
                columns = widened(bins, inner)
                if columns is not None:
                    buckets[field] = Buckets(
                        columns, step_s, period_s(entity, field, newest.interval_s), first.time,
                        is_series=field in SERIES[entity],
                    )  # fmt: skip

    def before(self, end: float, until: float) -> list[Backfill]:
        backfills = self._runs(end)
        if not backfills:
            return []
        until = max(until, end) if self._step_s == BACKFILL_S else end
        for (entity, key), fields in self._buckets.items():
            found = {name: row for name in fields if (row := fields[name].before(until))}
            backfill: Backfill | None = backfills[-1]
            if isinstance(key, int):
                backfill, key = _place(self._devices[key], backfills)
            if found and backfill is not None:
                backfill.rows.setdefault(entity, {})[key] = found
        for entity, key, field, row in self._courses_before(end, until):
            backfill = backfills[-1]
            if isinstance(key, tuple):
                backfill, device = _place(self._devices[key[0]], backfills)
                key = (device, key[1])
            if backfill is not None:
                backfill.courses.setdefault(entity, {}).setdefault(key, {})[field] = row
        for sample in self._last(end):
            _of_time(backfills, sample.time).last.append(sample)
        return backfills

    def _courses_before(
        self, end: float, until: float
    ) -> Iterator[tuple[str, Key, str, BackfillSeries]]:
        """Of the processes that were read shortly before `end`, up to before `until`."""
        from gpumon.sources.buckets import Buckets

        step_s, first, newest = self._step_s, self._headers[0], self._headers[-1]
        for (entity, key, field), bins in self._courses.items():
            if bins.first * step_s < end <= (bins.first + len(bins)) * step_s + _RECENT_S:
                every_s = period_s(entity, field, newest.interval_s)
                buckets = Buckets(bins, step_s, every_s, first.time, is_series=True)
                last, row = buckets.last_time(end), buckets.before(until)
                if row is not None and last is not None and last >= end - _RECENT_S:
                    yield entity, key, field, row

    def _runs(self, end: float) -> list[Backfill]:
        """Headers and events; in each run of the agent a number stands for one device."""
        backfills: list[Backfill] = []
        for header in self._headers:
            if header.time >= end:
                break
            if backfills and _run_of(backfills[-1].header) == _run_of(header):
                backfills[-1].rest.append(header)
            else:
                backfills.append(Backfill(header, {}, [], [], {}))
        for event in self._events:
            if event.time < end:
                told = Sample(event.time, 0.0, {}, {}, [event])
                _of_time(backfills, event.time).rest.append(told)
        for backfill in backfills:
            backfill.rest.sort(key=lambda item: item.time)
        return backfills

    def _last(self, end: float) -> list[Sample]:
        """The newest samples of what was not read in the last minute: hung, lost, ended."""
        ends = set()
        for (entity, _), fields in self._buckets.items():
            times = [time for each in fields.values() if (time := each.last_time(end))]
            if entity in _AGING and times and max(times) < end - _RECENT_S:
                ends.add(max(times))
        found: list[Sample] = []
        for until in sorted(ends):
            begin = until - self._step_s - _ROUND_S
            for item in self._items(begin):
                if item.time >= until:
                    break
                if isinstance(item, Sample) and item.time >= begin:
                    rows = {entity: item.rows[entity] for entity in _AGING if entity in item.rows}
                    found.append(item._replace(rows=rows, events=[]))
        return found


def opening(items: Iterator[Header | Sample], begin: float) -> list[Backfill]:
    """What the frame that holds `begin` repeats and says of processes before it."""
    header: Header | None = None
    rest: list[Header | Sample] = []
    for item in items:
        if item.time >= begin:
            break
        if isinstance(item, Sample):
            events = [event for event in item.events if event.kind in PROCESS_EVENTS]
            rest.append(item._replace(rows={}, events=events))
        elif header is None:
            header = item
        else:
            rest.append(item)
    return [] if header is None else [Backfill(header, {}, rest)]


def _bins_of(node: NodeAggregate) -> dict[tuple[str, Key], dict[str, Rollup]]:
    """What the store may keep: (entity, key or a device's place) -> field -> bins."""
    found: dict[tuple[str, Key], dict[str, Rollup]] = {}
    for (entity, field, key), bins in node.series():
        if entity in SERIES:
            of = (entity, key[0] if entity == "device" else key)
            found.setdefault(of, {})[field] = bins
    return found


def _run_of(header: Header) -> tuple[str, int]:
    return header.boot_id, header.agent_pid


def _of_time(backfills: list[Backfill], time: float) -> Backfill:
    """The run of a moment."""
    begun = [backfill for backfill in backfills if backfill.header.time <= time]
    return begun[-1] if begun else backfills[0]


def _place(device: Device, backfills: list[Backfill]) -> tuple[Backfill | None, int]:
    """The newest run that lists the device, and its number there; None: none of them does."""
    for backfill in reversed(backfills):
        headers = [backfill.header, *(item for item in backfill.rest if isinstance(item, Header))]
        for header in reversed(headers):
            for each in header.devices:
                if is_same(each, device):
                    return backfill, each.key
    return None, 0
