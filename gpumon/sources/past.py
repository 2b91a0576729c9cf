"""The past of a recording in buckets: a replay shows hours without feeding them again.

What was within a quarter of an hour is fed sample by sample. Of what was before, series are all
that screens show, and of these only buckets of 10 s and more. They are read once, from the
beginning on, and then serve every way back. About 16 MB for a node and day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor, inf, nan

from gpumon.model.fields import FIELDS
from gpumon.model.past import Past, PastRows, PastSeries
from gpumon.model.reading import number
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.ticks import ColumnOf, Cut, Ticks, cut
from gpumon.model.tier import Tier
from gpumon.store.row import EXTREMES

Items = Iterator["Header | Sample | Ticks"]

#: a past ends at a multiple of this; every step divides it
GRID_S = 600
#: seconds per bucket: those of a series' coarser tiers (`model/depth.py`)
_STEPS_S = (10, 60, 600)
_KEPT = 400_000  # buckets: 46 days of the finest
#: these are repeated at the beginning of the frame that holds the end
PROCESS_EVENTS = ("process", "process-end")
_SERIES = {
    entity: frozenset(name for name, field in fields.items() if field.series)
    for entity, fields in FIELDS.items()
}


class FilePast:
    """Of one file, as far as it has been read."""

    def __init__(self, open_items: Callable[[], Items]) -> None:
        self._open = open_items
        self._runs: list[_Run] = []
        self.reached = -inf  # time of the newest item, epoch s; inf when all is read

    def read(self) -> Iterator[None]:
        """Read all of it, a step at a time."""
        for item in self._open():
            if isinstance(item, Header):
                self._take_header(item)
            elif isinstance(item, Ticks):
                self._runs[-1].take_ticks(item)
            else:
                self._runs[-1].take_sample(item)
            self.reached = item.times[-1] if isinstance(item, Ticks) else item.time
            yield
        self.reached = inf

    def before(self, end: float) -> list[Past]:
        """What was before `end`, a multiple of `GRID_S`."""
        return [run.before(end) for run in self._runs if run.header.time < end]

    def items_before(self, end: float) -> Items:
        """The same in full, read once more."""
        for item in self._open():
            if isinstance(item, Ticks) and item.times[-1] >= end:
                yield from (sample for sample in item.samples() if sample.time < end)
                return
            if not isinstance(item, Ticks) and item.time >= end:
                return
            yield item

    def _take_header(self, header: Header) -> None:
        if self._runs and _run_of(self._runs[-1].header) == _run_of(header):
            self._runs[-1].rest.append(header)
        else:
            self._runs.append(_Run(header))


class _Run:
    """One run of the agent: in it a number stands for one device."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.rest: list[Header | Sample] = []
        self._series: dict[tuple[str, Key, str], _Buckets] = {}

    def take_sample(self, sample: Sample) -> None:
        events = [event for event in sample.events if event.kind not in PROCESS_EVENTS]
        if events:
            self.rest.append(sample._replace(rows={}, events=events))
        for entity, rows in sample.rows.items():
            for key, readings in rows.items():
                known = {name: number(reading) for name, reading in readings.items()}
                for field in _SERIES.get(entity, frozenset()) & known.keys():
                    value = known[field]
                    if value is not None:
                        inner = (known.get(name) for name in EXTREMES.get(field, ()))
                        values = [value, *(each for each in inner if each is not None)]
                        low, high = min(values), max(values)
                        self._buckets(entity, key, field).add(sample.time, value, low, high)

    def take_ticks(self, ticks: Ticks) -> None:
        cuts = _Cuts()
        for group, keys in ticks.groups.items():
            entity = group.partition(".")[0]
            for key, columns in keys.items():
                for field in _SERIES.get(entity, frozenset()) & columns.places.keys():
                    inner = [
                        (more.times, more.column(name) or [])
                        for name in EXTREMES.get(field, ())
                        for each, others in ticks.groups.items()
                        if each.startswith(f"{entity}.")
                        and key in others
                        and name in others[key].places
                        for more in (others[key],)
                    ]
                    values = columns.column(field) or []
                    self._buckets(entity, key, field).take(columns.times, values, inner, cuts)

    def before(self, end: float) -> Past:
        rows: PastRows = {}
        for (entity, key, field), buckets in list(self._series.items()):
            past = buckets.before(end)
            if past is not None:
                rows.setdefault(entity, {}).setdefault(key, {})[field] = past
        return Past(self.header, rows, [item for item in self.rest if item.time < end])

    def _buckets(self, entity: str, key: Key, field: str) -> _Buckets:
        found = self._series.get((entity, key, field))
        if found is None:
            found = self._series[entity, key, field] = _Buckets()
        return found


class _Buckets:
    """One series in buckets of every step."""

    def __init__(self) -> None:
        self._first_time = inf
        self._tiers = {step_s: Tier(step_s, _KEPT) for step_s in _STEPS_S}

    def add(self, time: float, value: float, low: float, high: float) -> None:
        self._first_time = min(self._first_time, time)
        for tier in self._tiers.values():
            tier.add(time, value, 1, low, high, nan)

    def take(
        self, times: list[float], values: ColumnOf, inner: list[tuple[list[float], ColumnOf]],
        cuts: _Cuts,
    ) -> None:  # fmt: skip
        """A column; `inner` holds extremes known from within its ticks."""
        for step_s, tier in self._tiers.items():
            extremes: dict[int, list[float]] = {}
            for when, column in inner:
                for index, first, last in cuts.of(when, step_s):
                    extremes.setdefault(index, []).extend(_known(column[first:last]))
            for index, first, last in cuts.of(times, step_s):
                known = _known(values[first:last])
                if known:
                    all_known = known + extremes.get(index, [])
                    low, high = min(all_known), max(all_known)
                    tier.add(times[first], sum(known), len(known), low, high, nan)
        first_known = next((at for at, value in zip(times, values) if value is not None), inf)
        self._first_time = min(self._first_time, first_known)

    def before(self, end: float) -> PastSeries | None:
        """None where there was no sample yet."""
        if self._first_time >= end:
            return None
        rows = {
            step_s: tier.rows(tier.oldest, floor(end / step_s))
            for step_s, tier in self._tiers.items()
        }
        return PastSeries(self._first_time, rows)


class _Cuts:
    """Where buckets begin and end in lists of times; many columns share one list."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Cut]] = {}

    def of(self, times: list[float], step_s: int) -> list[Cut]:
        """`times` must live as long as this does."""
        found = self._known.get((id(times), step_s))
        if found is None:
            found = self._known[id(times), step_s] = cut(times, step_s)
        return found


def _known(values: ColumnOf) -> list[float]:
    return [value for value in values if value is not None]


def _run_of(header: Header) -> tuple[str, int]:
    return header.boot_id, header.agent_pid
