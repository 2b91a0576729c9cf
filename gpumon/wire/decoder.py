"""Lines as samples: checked, cleaned, and within their ranges."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple, Union

from gpumon.errors import ForeignLineError, WireError
from gpumon.model.fields import GROUP_BY_KEY, GROUPS, OF_BOTH, Field
from gpumon.model.reading import IMPLAUSIBLE, REASON_OF_LETTER, Missing, Reading
from gpumon.model.sample import Device, Event, Header, Key, Received, Rows, Sample, State
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
from gpumon.model.usual_rows import MAX_TEXT, Layout, UsualRows, layout
from gpumon.wire import (
    MAX_DATA,
    MAX_DEVICES,
    MAX_EVENTS,
    MAX_FACTS,
    MAX_INTERVAL_S,
    MAX_LINE_BYTES,
    MAX_NOTES,
    MAX_ROWS,
    MAX_WHY,
    MIN_INTERVAL_S,
    VERSION,
)
from gpumon.wire.details import Place, forget_ended

#: what a row's key is, by entity; of others a text, or a number in its place
_KEY_OF: Dict[str, Tuple[type, ...]] = {
    **dict.fromkeys(("device", "process", "program"), (int,)),
    **dict.fromkeys(OF_BOTH, (tuple,)),
}
#: a header begins with its version, behind `restated` where it repeats another
_HEAD_BYTES = 64

#: how the line of a sample begins and what it holds, where it may stand in a recording as it came
_SAMPLE = re.compile(rb'\{"t":[0-9]{1,11}(?:\.[0-9]{1,3})?,"m":[0-9]{1,11}(?:\.[0-9]{1,3})?[,}]')
_PRINTABLE = bytes(range(0x20, 0x7F))
_SAMPLE_KEYS = frozenset(("t", "m", "rows", "why", "states", "events"))
_KEPT_BYTES = MAX_LINE_BYTES // 2  # a recording adds a check

_PLAIN = {letter: Missing(reason) for letter, reason in REASON_OF_LETTER.items()}
_OUR_COLUMNS = {group.key: list(group.fields) for group in GROUPS}


def refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_JSON = json.JSONDecoder(parse_constant=refuse_constant)


class Decoder:
    """Reads lines into headers and samples.

    Raises WireError for a line that cannot be taken: too long, no JSON, of another major version,
    of the wrong shape. The caller decides if one bad line ends the stream; the decoder continues
    with the next. Behind a header that cannot be taken no sample can be either, until a good header
    comes: the columns are unknown. Unknown groups, fields, reasons and event kinds are skipped or
    kept as they are.
    """

    def __init__(self, *, keep_lines: bool = False) -> None:
        """`keep_lines`: samples keep their line where a recording may hold it as it is."""
        self._keep_lines = keep_lines
        self._is_ours = False  # the columns are those that we write
        self._is_whole = True  # nothing of the line was left out or replaced
        self.columns: Layout = {}  # as the header declares them
        self.is_lost = False  # a header could not be taken: nothing is known of the columns
        #: what of the stream is beyond a bound and was left out -> how much of it
        self.left_out: Dict[str, int] = {}
        self._lay_out({})
        self._has_truths = False  # the line may hold truth values, which compare as numbers
        self._why: Dict[Place, Missing] = {}
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
            raise WireError(f"a line of {len(line)} bytes; the limit is {MAX_LINE_BYTES}")
        try:
            text = line.decode("utf-8") if isinstance(line, bytes) else line
            if not text.strip():
                return None
            body = _JSON.decode(text)
        except (json.JSONDecodeError, RecursionError):
            raise ForeignLineError("not a line of a gpumon stream") from None
        except ValueError as error:  # no UTF-8, or a number that JSON has not: NaN, Infinity
            why = clean(str(error), 80)
            raise ForeignLineError(f"not a line of a gpumon stream: {why}") from None
        if not isinstance(body, dict):
            raise ForeignLineError("not a line of a gpumon stream")
        try:
            if "wire" in body:
                self._lose()  # unless this one can be taken
                return self._header(body)
            if "t" not in body:
                return None
            if self.header is None:
                raise WireError("a sample before the header; the start of this stream is missing")
            if self.is_lost:
                raise WireError("a sample after an unreadable header")
            self._is_whole = True
            self._has_truths = "true" in text or "false" in text
            sample = self._sample(body)
            return self._with_line(sample, line, body) if self._keep_lines else sample
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise WireError(f"a malformed line: {clean(str(error), 80)}") from None

    def _with_line(self, sample: Sample, line: Union[str, bytes], body: Dict[str, Any]) -> Sample:
        """With its line, if a recorder that writes our header can keep that: every reader then
        finds this sample in it.
        """
        is_kept = (
            self._is_ours
            and self._is_whole
            and isinstance(line, bytes)
            and len(line) <= _KEPT_BYTES
            and _SAMPLE.match(line)
            and not line.translate(None, _PRINTABLE)
            and body.keys() <= _SAMPLE_KEYS
        )
        if not is_kept or not isinstance(line, bytes):
            return sample
        received = Received(*sample)
        received.line, received.details = line, self._why
        return received

    # -- header

    def _lose(self) -> None:
        self.is_lost, self.columns = True, {}

    def _header(self, body: Dict[str, Any]) -> Header:
        version = clean(str(body["wire"]), 20)
        major = version.split(".")[0]
        if not major.isdecimal():
            raise WireError(f"not a gpumon stream: version {version!r}")
        if int(major) != VERSION[0]:
            raise WireError(
                f"this stream has format {version}, this gpumon reads {VERSION[0]}.x: "
                "use the gpumon version that wrote it"
            )
        columns: Dict[str, List[Optional[Field]]] = {}
        groups = dict_of(body.get("groups", {}))
        for key, declared in groups.items():
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
        self.header, self.is_lost = header, False
        self._is_ours = columns == _OUR_COLUMNS and len(groups) == len(columns)
        self._lay_out(layout(columns, header.devices))
        self._why.clear()
        return header

    def _lay_out(self, found: Layout) -> None:
        self.columns = found
        self._usual = UsualRows(found, self._missing)

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
        self._is_whole = False
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
                own: Key = row[0]
                if type(own) is not int or abs(own) > MAX_INT:
                    own = key_of(own)
                readings = None if self._has_truths else self._usual.read(group_key, own, row)
                if readings is None:
                    own, readings = self.row(group_key, row)
                if not isinstance(own, kind):
                    raise TypeError(f"a row of {group_key} with a key of another kind")
                if own in found:
                    found[own].update(readings)
                elif readings:
                    found[own] = readings
        entries = self._first(list_of(body.get("states", [])), MAX_DEVICES, "device states")
        states = {
            int_of(key): State(text_of(state, 20), time_of(since), text_of(detail, 200))
            for key, state, since, detail in entries
        }
        entries = self._first(list_of(body.get("events", [])), MAX_EVENTS, "events")
        events = [self._event(entry) for entry in entries]
        forget_ended(self._why, events)
        return Sample(time, mono, rows, states, events)

    def _remember(self, place: Place, detail: str) -> None:
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
        columns = self._usual.columns_of(group, key)
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
                readings[field.name] = text_of(value, MAX_TEXT)
            else:
                reading = readings[field.name] = reading_of(value, field)
                self._is_whole = self._is_whole and reading is not IMPLAUSIBLE
        return key, readings

    def _missing(self, group: str, key: Key, field: str, letter: str) -> Missing:
        plain = _PLAIN.get(letter)
        if plain is None:  # a reason of a newer version
            self._is_whole = False
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
