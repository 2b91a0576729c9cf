"""Samples as lines: the half of the stream that travels to the nodes."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Dict, Iterator, List

from gpumon.model.fields import ENTITIES, GROUPS
from gpumon.model.reading import REASON_OF_LETTER, Missing, Reading
from gpumon.model.sample import Details, Device, Event, Header, Sample
from gpumon.wire import VERSION
from gpumon.wire.details import Place, forget_ended
from gpumon.wire.rows import EntityRows

_DETAILS_A_LINE = 1000


class Encoder:
    """Turns a header and samples into lines. Remembers which details were already sent."""

    def __init__(self) -> None:
        self._said: Dict[Place, str] = {}
        self._rows = {entity: EntityRows(entity) for entity in ENTITIES}

    def header(self, header: Header) -> str:
        """The header's line; details sent before it are sent again after it."""
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
        tables: Dict[str, List[List[Any]]] = defaultdict(list)
        why: List[List[Any]] = []
        for entity, rows in sample.rows.items():
            self._rows[entity].add(rows, tables, self._said, why)
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
            forget_ended(self._said, sample.events)
        return _dump(body)

    def details(self, sample: Sample, details: Details) -> Iterator[str]:
        """Lines that say these again, at the time of the sample."""
        why = [
            [group, list(key) if isinstance(key, tuple) else key, field, missing.detail]
            for (group, key, field), missing in details.items()
        ]
        for at in range(0, len(why), _DETAILS_A_LINE):
            body = {"t": round(sample.time, 3), "m": round(sample.mono, 3)}
            yield _dump({**body, "why": why[at : at + _DETAILS_A_LINE]})


#: made once: `json.dumps` makes one for each call with options
_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


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
