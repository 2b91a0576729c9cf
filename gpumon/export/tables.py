"""A run as tidy tables: a row per sample and thing, a column per reading. `docs/export.md`.

A value stands only in the row of the sample in which it was read. Where it was asked for and
missing, the row's `missing` says why; where it is neither, it was not due in that sample.
Rows come as the items do; nothing is kept but the latest header and the facts of live processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import NamedTuple, Union

from gpumon.model.bounded import Known
from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing, Reading
from gpumon.model.sample import Device, Event, Header, Key, Process, Sample

Value = Union[int, float, str, None]


class Column(NamedTuple):
    """`kind`: `time` (epoch s), `number`, `int` or `text`."""

    name: str
    kind: str
    unit: str = ""


class Table(NamedTuple):
    """One kind of thing. The first column is always `time`; `missing` is not among them."""

    name: str
    columns: tuple[Column, ...]


class Row(NamedTuple):
    """Values in the order of the table's columns; reasons of missing readings by column name."""

    table: Table
    values: list[Value]
    missing: dict[str, str]


class Lines(NamedTuple):
    """Rows in the form of their file already, one or several."""

    table: Table
    text: str
    number: int


_WHEN = (
    Column("time", "time"), Column("epoch_s", "number", "s"), Column("node", "text"),
    Column("job_id", "text"),
)  # fmt: skip
_DEVICE = (Column("device_index", "int"), Column("device_uuid", "text"))
_PROCESS = (
    Column("pid", "int"), Column("user", "text"), Column("name", "text"),
    Column("framework", "text"),
)  # fmt: skip
_KEYS: dict[str, tuple[Column, ...]] = {
    "device": (
        *_DEVICE, Column("cuda_index", "int"), Column("device_name", "text"),
        Column("mig_profile", "text"), Column("device_state", "text"),
    ),
    "usage": (*_DEVICE, *_PROCESS),
    "process": _PROCESS,
    "pool": (*_DEVICE, *_PROCESS),
    "program": _PROCESS,
    "host": (),
    "job": (),
    "net": (Column("interface", "text"),),
    "disk": (Column("label", "text"),),
}  # fmt: skip
_EVENT = Table(
    "event",
    (*_WHEN, Column("kind", "text"), *_DEVICE, Column("pid", "int"), Column("text", "text")),
)


#: a file can claim any time; readers of calendars end here
_YEAR_10000_S = 253_402_300_800.0


def _table(entity: str, keys: tuple[Column, ...]) -> Table:
    readings = (
        Column(field.name, "text" if field.text else "number", field.unit)
        for field in FIELDS[entity].values()
    )
    return Table(entity, (*_WHEN, *keys, *readings))


#: name -> table: one per entity of `model.fields` but the agent's own, and the events
TABLES: dict[str, Table] = {
    **{entity: _table(entity, keys) for entity, keys in _KEYS.items()},
    "event": _EVENT,
}


def told(value: Value, kind: str) -> Value:
    """As formats of text have it: a moment in words, and every number of a column as a fraction.

    Readers take the type of a column from its first rows, and polars refuses the file where a
    counter stands at 0 for a hundred rows and then at 2.18.
    """
    if value is None or kind == "int":
        return value
    if kind == "text":
        return str(value)
    return iso(float(value)) if kind == "time" else float(value)


def iso(epoch_s: float) -> str:
    """`2026-11-21T20:12:02.123Z`, as pandas, polars, DuckDB and people read it."""
    moment = datetime.fromtimestamp(epoch_s, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


#: live processes whose identity is known
MAX_PROCESSES, PROCESSES_BYTES = 20_000, 16 << 20


def rows(
    items: Iterable[Header | Sample],
    problems: list[str] | None = None,
    tables: Tables | None = None,
) -> Iterator[Row | Lines]:
    """All rows of one node's stream, in the order of its samples.

    What could not be kept is added to `problems` at the end, in a sentence.
    """
    tables = tables or Tables()
    for item in items:
        if isinstance(item, Header):
            tables.take_header(item)
        else:
            yield from tables.of(item)
    if problems is not None and tables.left_out:
        count = f"{tables.left_out:,}"
        problems.append(f"too many processes at once: the names of {count} are left out")


class Tables:
    """Maps device keys and PIDs to devices and processes."""

    def __init__(self) -> None:
        self._node = ""
        self._job: str | None = None
        self._devices: dict[int, Device] = {}
        self._processes: Known[int, Process] = Known(MAX_PROCESSES, PROCESSES_BYTES)
        self.identify: dict[str, Callable[[Key, Sample], list[Value]]] = {
            "device": self._device_key,
            "usage": self._usage_key,
            "process": self._process_key,
            "pool": self._usage_key,
            "program": self._process_key,
            "host": lambda key, sample: [],
            "job": lambda key, sample: [],
            "net": lambda key, sample: [str(key)],
            "disk": lambda key, sample: [str(key)],
        }

    @property
    def left_out(self) -> int:
        return self._processes.left_out

    def take_header(self, header: Header) -> None:
        self._node = header.node
        self._job = header.job.id if header.job else None
        self._devices = {device.key: device for device in header.devices}

    def of(self, sample: Sample) -> Iterator[Row | Lines]:
        for event in sample.events:
            if event.kind == "process" and event.pid is not None:
                self._processes.keep(event.pid, Process.of(event))
        for entity, identify in self.identify.items():
            known = sample.rows.get(entity, {})
            for key, readings in known.items():
                yield self._row(entity, identify(key, sample), readings, sample.time)
        read = sample.rows.get("device", {})
        for key in sample.states:  # one that does not answer has no readings, but it is there
            if sample.rows and key not in read:
                yield self._row("device", self._device_key(key, sample), {}, sample.time)
        for event in sample.events:
            yield self._event(event)
            if event.kind == "process-end" and event.pid is not None:
                self._processes.pop(event.pid, None)

    def when(self, time: float) -> list[Value]:
        return [time if 0 <= time < _YEAR_10000_S else None, time, self._node, self._job]

    def _row(
        self, entity: str, identity: list[Value], readings: dict[str, Reading], time: float
    ) -> Row:
        values = [*self.when(time), *identity]
        missing: dict[str, str] = {}
        for name in FIELDS[entity]:
            reading = readings.get(name)
            if isinstance(reading, Missing):
                missing[name] = reading.reason
                values.append(None)
            else:
                values.append(reading)
        return Row(TABLES[entity], values, missing)

    def _device_key(self, key: Key, sample: Sample) -> list[Value]:
        number = key if isinstance(key, int) else -1
        device, state = self._devices.get(number), sample.states.get(number)
        how = state.state if state else None
        if device is None:
            return [None, None, None, None, None, how]
        profile = device.mig.profile if device.mig else None
        name = device.name or None
        return [device.index, device.uuid or None, device.cuda_index, name, profile, how]

    def _usage_key(self, key: Key, sample: Sample) -> list[Value]:
        device, pid = key if isinstance(key, tuple) else (-1, -1)
        return [*self._device_key(device, sample)[:2], *self._process_key(pid, sample)]

    def _process_key(self, key: Key, sample: Sample) -> list[Value]:
        pid = key if isinstance(key, int) else -1
        facts = self._processes.get(pid)
        if facts is None:
            return [pid, None, None, None]
        return [pid, facts.user or None, facts.name or None, facts.framework or None]

    def _event(self, event: Event) -> Row:
        device = self._devices.get(event.device) if event.device is not None else None
        text = Process.of(event).command if event.kind == "process" else event.text
        identity: list[Value] = [device.index, device.uuid or None] if device else [None, None]
        values = [*self.when(event.time), event.kind, *identity, event.pid, text or None]
        return Row(_EVENT, values, {})
