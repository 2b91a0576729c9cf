"""The stream: the only format that both ends share. `docs/wire.md` describes it for readers.

Lines of JSON: a header, then samples. What the agent prints, what crosses ssh, what lies in a
recording and what the demo replays is this, read by this reader. A sample's `rows` holds
one table per group of fields that was read in that tick; a missing value is null, and the letters
behind the row give the reasons in order. Everything read is range-checked and cleaned.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple, Union

from gpumon.errors import WireError
from gpumon.model.fields import GROUP_BY_KEY, GROUPS, Field
from gpumon.model.plausible import narrowed_columns
from gpumon.model.reading import NOT_SAMPLED, REASON_OF_LETTER, REASONS, Missing, Reading
from gpumon.model.sample import Device, Event, Header, Key, Rows, Sample, State
from gpumon.model.text import clean
from gpumon.model.untrusted import (
    MAX_INT,
    device_of,
    dict_of,
    facts_of,
    finite_of,
    int_of,
    job_of,
    key_of,
    list_of,
    name_of,
    optional_int_of,
    reading_of,
    text_of,
    time_of,
)  # fmt: skip

#: major: a reader of another major refuses. minor: fields, groups and event kinds were added.
VERSION = (1, 0)
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 8192  # of one group in one sample
MAX_DEVICES = 1024
#: what a reader keeps of one header, of one sample and of one event; the rest is left out
MAX_FACTS, MAX_NOTES = 64, 64
MAX_EVENTS = 4096
MAX_DATA = 32
#: readings of one stream whose missing values have words of their own
MAX_WHY = 16_384
#: s between samples, as gpumon itself writes it; another claim is taken for the nearest of these
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
_MAX_VALUE = 256  # characters of a value that is a text

#: what a row's key is, by entity; of others a text, or a number in its place
_KEY_OF: Dict[str, Tuple[type, ...]] = {"device": (int,), "process": (int,), "usage": (tuple,)}
#: a header begins with its version, behind `restated` where it repeats another
_HEAD_BYTES = 64

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
            _forget_ended(self._said, sample.events)
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


def _forget_ended(words: Dict[Tuple[str, Key, str], Any], events: List[Event]) -> None:
    """Drop what was said of processes that are no longer read: of a long job, of thousands."""
    ended = {event.pid for event in events if event.kind == "process-end"}
    if not ended:
        return
    for place in [place for place in words if _pid(place) in ended]:
        del words[place]


def _pid(place: Tuple[str, Key, str]) -> Optional[int]:
    group, key, _ = place
    if isinstance(key, tuple):
        return key[1]
    return key if isinstance(key, int) and group.startswith("process.") else None


# -- reading --------------------------------------------------------------------------------


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


class Decoder:
    """Reads lines into headers and samples.

    Raises WireError for a line that cannot be taken: too long, no JSON, of another major version,
    of the wrong shape. The caller decides whether one bad line ends the stream; the decoder goes on
    with the next. Behind a header that cannot be taken no sample can be either, until a good header
    comes: the columns are unknown. Unknown groups, fields, reasons and event kinds are skipped or
    kept as they are.
    """

    def __init__(self) -> None:
        #: group -> the fields of its rows behind the key, as the header declares them
        self.columns: Dict[str, List[Optional[Field]]] = {}
        self.is_lost = False  # a header could not be taken: nothing is known of the columns
        #: what of the stream is beyond a bound and was left out -> how much of it
        self.left_out: Dict[str, int] = {}
        self._narrowed: Dict[Tuple[str, Key], List[Optional[Field]]] = {}
        self._why: Dict[Tuple[str, Key, str], Missing] = {}
        self._plain = {letter: Missing(reason) for letter, reason in REASON_OF_LETTER.items()}
        self.header: Optional[Header] = None

    def line(self, line: Union[str, bytes]) -> Union[Header, Sample, None]:
        """A header, a sample, or None for a blank line or a kind this version does not know."""
        try:
            return self._line(line)
        except WireError:
            if _may_be_header(line):
                self._lose()
            raise

    def _line(self, line: Union[str, bytes]) -> Union[Header, Sample, None]:
        if len(line) > MAX_LINE_BYTES:
            raise WireError(f"a line of {len(line)} bytes; none is longer than {MAX_LINE_BYTES}")
        try:
            text = line.decode("utf-8") if isinstance(line, bytes) else line
            if not text.strip():
                return None
            body = _JSON.decode(text)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a line of a gpumon stream: {clean(str(error), 80)}") from None
        if not isinstance(body, dict):
            raise WireError("not a line of a gpumon stream: no object")
        try:
            if "wire" in body:
                self._lose()  # unless this one can be taken
                return self._header(body)
            if "t" not in body:
                return None
            if self.header is None:
                raise WireError("a sample before the header; the start of this stream is missing")
            if self.is_lost:
                raise WireError("a sample behind a header that could not be read")
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

    def _lose(self) -> None:
        self.is_lost, self.columns = True, {}

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
        columns: Dict[str, List[Optional[Field]]] = {}
        for key, declared in dict_of(body.get("groups", {})).items():
            group = GROUP_BY_KEY.get(key)
            if group is None:
                continue
            known = {field.name: field for field in group.fields}
            columns[key] = [known.get(name_of(entry)) for entry in declared["fields"]]
        agent = dict_of(body.get("agent", {}))
        job = body.get("job")
        interval_s = finite_of(body.get("interval_s", 1))
        notes = self._first(list_of(body.get("notes", [])), MAX_NOTES, "notes")
        header = Header(
            node=text_of(body["node"], 255) or "?",
            boot_id=text_of(body.get("boot_id", ""), 64),
            time=time_of(body["t"]),
            mono=finite_of(body["m"]),
            interval_s=min(max(interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S),
            gpumon=text_of(body.get("gpumon", ""), 40),
            devices=self._devices(list_of(body.get("devices", []))),
            driver=text_of(body.get("driver", ""), 80),
            nvml=text_of(body.get("nvml", ""), 80),
            cuda=text_of(body.get("cuda", ""), 20),
            job=job_of(job) if job is not None else None,
            facts=self._facts(body.get("facts", {})),
            notes=[text_of(note, 500) for note in notes],
            agent_uid=int_of(agent.get("uid", -1)),
            agent_pid=int_of(agent.get("pid", 0)),
        )
        self.header, self.columns, self.is_lost = header, columns, False
        self._narrowed = narrowed_columns(header.devices, columns)
        self._why.clear()
        return header

    def _devices(self, entries: List[Any]) -> List[Device]:
        if len(entries) > MAX_DEVICES:
            raise WireError(f"a header with {len(entries)} devices")
        devices: List[Device] = []
        keys, uuids = set(), set()
        for entry in entries:
            device = device_of(entry, self._facts(dict_of(entry).get("facts", {})))
            if device.key in keys:
                raise WireError(f"a header with two devices of the key {device.key}")
            if device.uuid in uuids:  # it names neither of them
                self._leave_out("duplicate device UUIDs")
                device = device._replace(uuid="")
            keys.add(device.key)
            uuids.update({device.uuid} - {""})
            devices.append(device)
        return devices

    def _facts(self, value: Any) -> Dict[str, Reading]:
        return facts_of(self._first(list(dict_of(value).items()), MAX_FACTS, "facts"))

    def _first(self, entries: List[Any], most: int, what: str) -> List[Any]:
        """As many of them as a reader keeps."""
        if len(entries) <= most:
            return entries
        self._leave_out(what, len(entries) - most)
        return entries[:most]

    def _leave_out(self, what: str, count: int = 1) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + count

    # -- samples

    def _sample(self, body: Dict[str, Any]) -> Sample:
        time, mono = time_of(body["t"]), finite_of(body["m"])
        for group, key, field, detail in list_of(body.get("why", [])):
            place = (text_of(group, 80), key_of(key), text_of(field, 80))
            self._remember(place, text_of(detail, 200))
        rows: Rows = {}
        for group_key, table in dict_of(body.get("rows", {})).items():
            if group_key not in self.columns:
                continue
            if len(list_of(table)) > MAX_ROWS:
                raise WireError(f"{len(table)} rows of {group_key} in one sample")
            entity = GROUP_BY_KEY[group_key].entity
            kind = _KEY_OF.get(entity, (int, str))
            found = rows.setdefault(entity, {})
            for row in table:
                key, readings = self.row(group_key, row)
                if not isinstance(key, kind):
                    raise TypeError(f"a row of {group_key} with a key of another kind")
                if readings:
                    found.setdefault(key, {}).update(readings)
        entries = self._first(list_of(body.get("states", [])), MAX_DEVICES, "device states")
        states = {
            int_of(key): State(text_of(state, 20), time_of(since), text_of(detail, 200))
            for key, state, since, detail in entries
        }
        entries = self._first(list_of(body.get("events", [])), MAX_EVENTS, "events")
        events = [self._event(entry) for entry in entries]
        _forget_ended(self._why, events)
        return Sample(time, mono, rows, states, events)

    def _remember(self, place: Tuple[str, Key, str], detail: str) -> None:
        if len(self._why) < MAX_WHY or place in self._why:
            self._why[place] = Missing("error", detail)
        else:
            self._leave_out("details of missing values")

    def _event(self, value: Any) -> Event:
        body = dict_of(value)
        entries = self._first(
            list(dict_of(body.get("data", {})).items()), MAX_DATA, "entries of event data"
        )
        data = {clean(name, 80): self._plain_data(entry) for name, entry in entries}
        return Event(
            time=time_of(body["t"]),
            kind=text_of(body["kind"], 40),
            device=optional_int_of(body.get("device")),
            pid=optional_int_of(body.get("pid")),
            text=text_of(body.get("text", "")),
            data=data,
        )

    def _plain_data(self, value: Any) -> Any:
        """Text, number, truth value, or one level of text by name; anything else becomes ""."""
        if isinstance(value, str):
            return clean(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return value if abs(value) <= MAX_INT else 0
        if isinstance(value, dict):
            entries = self._first(list(value.items()), MAX_DATA, "entries of event data")
            return {clean(k, 80): clean(v, 200) for k, v in entries if isinstance(v, str)}
        return ""

    def row(self, group: str, row: List[Any]) -> Tuple[Key, Dict[str, Reading]]:
        """One row of a known group. Raises what Python does on a row of the wrong shape."""
        key = key_of(row[0])
        columns = self.columns_of(group, key)
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
                readings[field.name] = text_of(value, _MAX_VALUE)
            else:
                readings[field.name] = reading_of(value, field)
        return key, readings

    def columns_of(self, group: str, key: Key) -> List[Optional[Field]]:
        """The group's columns, with the ranges that this device's facts leave."""
        device = key[0] if isinstance(key, tuple) else key
        return self._narrowed.get((group, device)) or self.columns[group]

    def _missing(self, group: str, key: Key, field: str, letter: str) -> Missing:
        plain = self._plain.get(letter)
        if plain is None:  # a reason of a newer version
            return Missing("error", "unknown reason")
        if self._why:
            said = self._why.get((group, key, field))
            if said is not None and said.detail:
                return Missing(plain.reason, said.detail)
        return plain


def _may_be_header(line: Union[str, bytes]) -> bool:
    """Whether a line that could not be taken may have been meant for one."""
    start = line[:_HEAD_BYTES]
    return b'"wire"' in (start if isinstance(start, bytes) else start.encode("utf-8", "replace"))
