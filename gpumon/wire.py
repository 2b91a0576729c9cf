"""The stream: the only format that both ends share. `docs/wire.md` describes it for readers.

Lines of JSON: a header, then samples. What the agent prints, what crosses ssh, what lies in a
recording and what the demo replays is this, read by this reader. A sample's `rows` holds
one table per group of fields that was read in that tick; a missing value is null, and the letters
behind the row give the reasons in order. Everything read is range-checked and cleaned.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Optional, Tuple, Union

from gpumon.errors import WireError
from gpumon.model.fields import GROUP_BY_KEY, GROUPS, Field
from gpumon.model.reading import (
    IMPLAUSIBLE,
    NOT_SAMPLED,
    REASON_OF_LETTER,
    REASONS,
    Missing,
    Reading,
)
from gpumon.model.sample import Device, Event, Header, JobContext, Key, Mig, Rows, Sample, State
from gpumon.model.text import clean

#: major: a reader of another major refuses. minor: fields, groups and event kinds were added.
VERSION = (1, 0)
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 8192  # of one group in one sample
MAX_DEVICES = 1024
_MAX_NOTES = 64
_MAX_INT = 1 << 63

#: what the encoder asks of each group: the names of its fields, and of each field its name, its
#: decimals, whether digits are cut off, and the rest
_PLANS = [
    (
        group,
        frozenset(each.name for each in group.fields),
        [(each.name, each.decimals, each.digits > 0, each) for each in group.fields],
    )
    for group in GROUPS
]


# -- writing --------------------------------------------------------------------------------


class Encoder:
    """Turns a header and samples into lines. Keeps which details were already said."""

    def __init__(self) -> None:
        self._said: Dict[Tuple[str, Key, str], str] = {}

    def header(self, header: Header) -> str:
        """The header's line; what was said before it is said again after it."""
        self._said.clear()
        body: Dict[str, Any] = {
            "wire": f"{VERSION[0]}.{VERSION[1]}",
            "gpumon": header.gpumon,
            "node": header.node,
            "boot_id": header.boot_id,
            "t": round(header.time, 3),
            "m": round(header.mono, 3),
            "interval_s": header.interval_s,
            "driver": header.driver,
            "nvml": header.nvml,
            "cuda": header.cuda,
            "devices": [_device_body(device) for device in header.devices],
            "facts": _facts_body(header.facts),
            "job": header.job._asdict() if header.job else None,
            "notes": header.notes,
            "agent": {"uid": header.agent_uid, "pid": header.agent_pid},
            "reasons": REASON_OF_LETTER,
            "groups": {
                group.key: {
                    "period_s": group.period_s,
                    "fields": [[field.name, field.unit] for field in group.fields],
                }
                for group in GROUPS
            },
        }
        return _dump(body)

    def sample(self, sample: Sample) -> str:
        """One sample's line."""
        tables: Dict[str, List[List[Any]]] = {}
        why: List[List[Any]] = []
        for group, names, plan in _PLANS:
            rows = sample.rows.get(group.entity)
            if not rows:
                continue
            table = [
                self._row(group.key, plan, key, readings, why)
                for key, readings in rows.items()
                if not names.isdisjoint(readings)
            ]
            if table:
                tables[group.key] = table
        body: Dict[str, Any] = {"t": round(sample.time, 3), "m": round(sample.mono, 3)}
        if tables:
            body["rows"] = tables
        if why:
            body["why"] = why
        if sample.states:
            body["states"] = [
                [key, state.state, round(state.since, 3), state.detail]
                for key, state in sample.states.items()
            ]
        if sample.events:
            body["events"] = [_event_body(event) for event in sample.events]
        return _dump(body)

    def _row(
        self,
        group: str,
        plan: List[Tuple[str, int, bool, Field]],
        key: Key,
        readings: Dict[str, Reading],
        why: List[List[Any]],
    ) -> List[Any]:
        row: List[Any] = [list(key) if isinstance(key, tuple) else key]
        letters = ""
        for name, decimals, is_cut, field in plan:
            value = readings.get(name, NOT_SAMPLED)
            if isinstance(value, Missing):
                row.append(None)
                letters += REASONS[value.reason]
                said = (group, key, name)
                if value.detail != self._said.get(said, ""):
                    self._said[said] = value.detail
                    why.append([group, row[0], name, value.detail])
            elif is_cut and not isinstance(value, str) and value >= 1000:
                row.append(_significant(value, field))
            elif isinstance(value, float):
                value = round(value, decimals)
                row.append(int(value) if value.is_integer() else value)
            else:
                row.append(value)
        if letters:
            row.append(letters)
        return row


def _significant(value: float, field: Field) -> int:
    """A number with the digits that the field has. Sizes are cut off and not rounded, so that no
    part outgrows its whole (a job's memory its limit).
    """
    cut = field.unit == "B"
    whole = int(value) if cut else round(value)
    step: int = 10 ** max(len(str(whole)) - field.digits, 0)
    return (whole if cut else whole + step // 2) // step * step


def _dump(body: Dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _facts_body(facts: Dict[str, Reading]) -> Dict[str, Any]:
    """Facts as they are; a missing one as `{"missing": reason, "detail": …}`."""
    return {
        name: {"missing": value.reason, "detail": value.detail}
        if isinstance(value, Missing)
        else value
        for name, value in facts.items()
    }


def _device_body(device: Device) -> Dict[str, Any]:
    body = device._asdict()
    body["mig"] = device.mig._asdict() if device.mig else None
    body["facts"] = _facts_body(device.facts)
    return body


def _event_body(event: Event) -> Dict[str, Any]:
    body: Dict[str, Any] = {"t": round(event.time, 3), "kind": event.kind}
    if event.device is not None:
        body["device"] = event.device
    if event.pid is not None:
        body["pid"] = event.pid
    if event.text:
        body["text"] = event.text
    if event.data:
        body["data"] = event.data
    return body


# -- reading --------------------------------------------------------------------------------


class Decoder:
    """Reads lines into headers and samples.

    Raises WireError for a line that cannot be taken: too long, no JSON, of another major version,
    of the wrong shape. The caller decides whether one bad line ends the stream; the decoder goes on
    with the next. Unknown groups, fields, reasons and event kinds are skipped or kept as they are.
    """

    def __init__(self) -> None:
        #: group -> the fields of its rows behind the key, as the header declares them
        self.columns: Dict[str, List[Optional[Field]]] = {}
        self._why: Dict[Tuple[str, Key, str], Missing] = {}
        self._plain = {letter: Missing(reason) for letter, reason in REASON_OF_LETTER.items()}
        self.header: Optional[Header] = None

    def line(self, line: Union[str, bytes]) -> Union[Header, Sample, None]:
        """A header, a sample, or None for a blank line or a kind this version does not know."""
        if len(line) > MAX_LINE_BYTES:
            raise WireError(f"a line of {len(line)} bytes; none is longer than {MAX_LINE_BYTES}")
        try:
            text = line.decode("utf-8") if isinstance(line, bytes) else line
            if not text.strip():
                return None
            body = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a line of a gpumon stream: {clean(str(error), 80)}") from None
        if not isinstance(body, dict):
            raise WireError("not a line of a gpumon stream: no object")
        try:
            if "wire" in body:
                return self._header(body)
            if "t" not in body:
                return None
            if self.header is None:
                raise WireError("a sample before the header; the start of this stream is missing")
            return self._sample(body)
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise WireError(f"a malformed line: {clean(str(error), 80)}") from None

    # -- header

    def _header(self, body: Dict[str, Any]) -> Header:
        version = clean(str(body["wire"]), 20)
        major = version.split(".")[0]
        if not major.isdecimal():
            raise WireError(f"no gpumon stream: version {version!r}")
        if int(major) != VERSION[0]:
            raise WireError(
                f"this stream has format {version}, this gpumon reads {VERSION[0]}.x: "
                "use the gpumon version that wrote it"
            )
        self._why.clear()
        self.columns = {}
        for key, declared in _dict(body.get("groups", {})).items():
            group = GROUP_BY_KEY.get(key)
            if group is None:
                continue
            known = {field.name: field for field in group.fields}
            self.columns[key] = [known.get(_name(entry)) for entry in declared["fields"]]
        devices = _list(body.get("devices", []))
        if len(devices) > MAX_DEVICES:
            raise WireError(f"a header with {len(devices)} devices")
        agent = _dict(body.get("agent", {}))
        job = body.get("job")
        self.header = Header(
            node=_text(body["node"], 255) or "?",
            boot_id=_text(body.get("boot_id", ""), 64),
            time=_finite(body["t"]),
            mono=_finite(body["m"]),
            interval_s=min(max(_finite(body.get("interval_s", 1)), 0.01), 86400.0),
            gpumon=_text(body.get("gpumon", ""), 40),
            devices=[_device(entry) for entry in devices],
            driver=_text(body.get("driver", ""), 80),
            nvml=_text(body.get("nvml", ""), 80),
            cuda=_text(body.get("cuda", ""), 20),
            job=_job(job) if job is not None else None,
            facts=_facts(body.get("facts", {})),
            notes=[_text(note, 500) for note in _list(body.get("notes", []))[:_MAX_NOTES]],
            agent_uid=_int(agent.get("uid", -1)),
            agent_pid=_int(agent.get("pid", 0)),
        )
        return self.header

    # -- samples

    def _sample(self, body: Dict[str, Any]) -> Sample:
        for group, key, field, detail in _list(body.get("why", [])):
            self._remember(_text(group, 80), _key(key), _text(field, 80), _text(detail, 200))
        rows: Rows = {}
        for group_key, table in _dict(body.get("rows", {})).items():
            columns = self.columns.get(group_key)
            if columns is None:
                continue
            if len(_list(table)) > MAX_ROWS:
                raise WireError(f"{len(table)} rows of {clean(group_key, 40)} in one sample")
            entity = rows.setdefault(group_key.split(".", 1)[0], {})
            for row in table:
                key, readings = self.row(group_key, row)
                entity.setdefault(key, {}).update(readings)
        states = {
            _int(key): State(_text(state, 20), _finite(since), _text(detail, 200))
            for key, state, since, detail in _list(body.get("states", []))
        }
        events = [_event(entry) for entry in _list(body.get("events", []))]
        return Sample(_finite(body["t"]), _finite(body["m"]), rows, states, events)

    def _remember(self, group: str, key: Key, field: str, detail: str) -> None:
        if len(self._why) < 100_000:  # bounded, however long the stream
            self._why[group, key, field] = Missing("error", detail)

    def row(self, group: str, row: List[Any]) -> Tuple[Key, Dict[str, Reading]]:
        """One row of a known group. Raises what Python does on a row of the wrong shape."""
        key = _key(row[0])
        return key, self._readings(group, key, self.columns[group], row)

    def _readings(
        self, group: str, key: Key, columns: List[Optional[Field]], row: List[Any]
    ) -> Dict[str, Reading]:
        count = len(columns)
        if len(row) not in (count + 1, count + 2):
            raise ValueError(f"a row of {len(row)} values where {count} were declared")
        letters = iter(row[count + 1] if len(row) == count + 2 else "")
        readings: Dict[str, Reading] = {}
        for position, field in enumerate(columns, 1):
            value = row[position]
            if value is None:
                letter = next(letters, "e")
                if field is not None:
                    readings[field.name] = self._missing(group, key, field.name, letter)
            elif field is None:
                continue
            elif field.text:
                readings[field.name] = _text(value)
            else:
                readings[field.name] = _checked(value, field)
        return readings

    def _missing(self, group: str, key: Key, field: str, letter: str) -> Missing:
        plain = self._plain.get(letter)
        if plain is None:  # a reason of a newer version
            return Missing("error", "unknown reason")
        if self._why:
            said = self._why.get((group, key, field))
            if said is not None and said.detail:
                return Missing(plain.reason, said.detail)
        return plain


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _checked(value: object, field: Field) -> Reading:
    """A number inside the field's range, else the reason; booleans are 0 and 1."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{field.name} is no number")
    if field.low <= value <= field.high:
        return int(value) if isinstance(value, bool) else value
    return IMPLAUSIBLE


def _dict(value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value


def _list(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return value


def _text(value: Any, limit: int = 4096) -> str:
    if not isinstance(value, str):
        raise TypeError("text was expected")
    return clean(value, limit)


def _name(entry: Any) -> str:
    return entry[0] if isinstance(entry, list) and entry and isinstance(entry[0], str) else ""


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("a number was expected")
    if not math.isfinite(value) or abs(value) > 1e15:
        raise ValueError("a time out of range")
    return float(value)


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_INT:
        raise TypeError("a whole number was expected")
    return value


def _key(value: Any) -> Key:
    if isinstance(value, str):
        return clean(value, 255)
    if isinstance(value, list):
        first, second = value
        return (_int(first), _int(second))
    return _int(value)


def _optional_int(value: Any) -> Optional[int]:
    return None if value is None else _int(value)


def _facts(value: Any) -> Dict[str, Reading]:
    facts: Dict[str, Reading] = {}
    for name, entry in _dict(value).items():
        if isinstance(entry, str):
            facts[clean(name, 80)] = clean(entry)
        elif isinstance(entry, dict):
            reason = entry.get("missing")
            known = reason if isinstance(reason, str) and reason in REASONS else "error"
            facts[clean(name, 80)] = Missing(known, _text(entry.get("detail", ""), 200))
        elif isinstance(entry, (int, float)):
            facts[clean(name, 80)] = entry if abs(entry) <= _MAX_INT else IMPLAUSIBLE
    return facts


def _device(value: Any) -> Device:
    body = _dict(value)
    mig = body.get("mig")
    return Device(
        key=_int(body["key"]),
        index=_int(body["index"]),
        uuid=_text(body.get("uuid", ""), 120),
        name=_text(body.get("name", ""), 120),
        cuda_index=_optional_int(body.get("cuda_index")),
        mig=None
        if mig is None
        else Mig(
            _text(mig["parent"], 120), _int(mig["gi"]), _int(mig["ci"]), _text(mig["profile"], 40)
        ),
        facts=_facts(body.get("facts", {})),
    )


def _job(value: Any) -> JobContext:
    body = _dict(value)
    values: Dict[str, Any] = {}
    for name in JobContext._fields:
        entry = body.get(name)
        if name in ("start", "end"):
            values[name] = None if entry is None else _finite(entry)
        elif name in ("cpus", "mem_limit_bytes", "gpus"):
            values[name] = _optional_int(entry)
        elif name == "node_count":
            values[name] = _int(body.get(name, 0))
        else:
            values[name] = _text(body.get(name, ""), 500)
    return JobContext(**values)


def _event(value: Any) -> Event:
    body = _dict(value)
    data = {clean(name, 80): _plain(entry) for name, entry in _dict(body.get("data", {})).items()}
    return Event(
        time=_finite(body["t"]),
        kind=_text(body["kind"], 40),
        device=_optional_int(body.get("device")),
        pid=_optional_int(body.get("pid")),
        text=_text(body.get("text", "")),
        data=data,
    )


def _plain(value: Any) -> Any:
    """Text, number, truth value, or one level of text by name; anything else is dropped to ""."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if abs(value) <= _MAX_INT else 0
    if isinstance(value, dict):
        return {clean(k, 80): clean(v, 200) for k, v in value.items() if isinstance(v, str)}
    return ""
