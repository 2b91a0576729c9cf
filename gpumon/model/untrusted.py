"""Untrusted values of parsed JSON: what their place takes, else an exception.

All raise what Python does on a value of the wrong kind: TypeError, ValueError, KeyError,
OverflowError.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from gpumon.model.fields import Field
from gpumon.model.plausible import checked_facts
from gpumon.model.reading import IMPLAUSIBLE, REASONS, Missing, Reading
from gpumon.model.sample import Device, JobContext, Key, Mig
from gpumon.model.text import clean

#: epoch s; the year 5138
MAX_TIME = 1e11
MAX_INT = 1 << 63


def reading_of(value: object, field: Field) -> Reading:
    """A number inside the field's range, else the reason; booleans are 0 and 1."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{field.name} is not a number")
    if field.low <= value <= field.high:
        return int(value) if isinstance(value, bool) else value
    return IMPLAUSIBLE


def dict_of(value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return value


def list_of(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return value


def text_of(value: Any, limit: int = 4096) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return clean(value, limit)


def name_of(entry: Any) -> str:
    return entry[0] if isinstance(entry, list) and entry and isinstance(entry[0], str) else ""


def finite_of(value: Any, most: float = 1e15) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("expected a number")
    if not abs(value) <= most:  # NaN is not
        raise ValueError("a number out of range")
    return float(value)


def time_of(value: Any) -> float:
    """Epoch seconds."""
    found = finite_of(value)
    if abs(found) > MAX_TIME:
        raise ValueError("a time out of range")
    return found


def int_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT:
        raise TypeError("expected a whole number")
    return value


def key_of(value: Any) -> Key:
    if isinstance(value, str):
        return clean(value, 255)
    if isinstance(value, list):
        first, second = value
        return (int_of(first), int_of(second))
    return int_of(value)


def optional_int_of(value: Any) -> Optional[int]:
    return None if value is None else int_of(value)


def facts_of(entries: List[Tuple[str, Any]]) -> Dict[str, Reading]:
    facts: Dict[str, Reading] = {}
    for name, entry in entries:
        if isinstance(entry, str):
            facts[clean(name, 80)] = clean(entry)
        elif isinstance(entry, dict):
            reason = entry.get("missing")
            known = reason if isinstance(reason, str) and reason in REASONS else "error"
            facts[clean(name, 80)] = Missing(known, text_of(entry.get("detail", ""), 200))
        elif isinstance(entry, (int, float)):
            facts[clean(name, 80)] = entry if abs(entry) <= MAX_INT else IMPLAUSIBLE
    return facts


def device_of(body: Dict[str, Any], facts: Dict[str, Reading]) -> Device:
    mig = body.get("mig")
    name = text_of(body.get("name", ""), 120)
    return Device(
        key=int_of(body["key"]),
        index=int_of(body["index"]),
        uuid=text_of(body.get("uuid", ""), 120),
        name=name,
        cuda_index=optional_int_of(body.get("cuda_index")),
        mig=None if mig is None else _mig(mig),
        facts=checked_facts(name, facts),
    )


def _mig(body: Dict[str, Any]) -> Mig:
    parent, profile = text_of(body["parent"], 120), text_of(body["profile"], 40)
    return Mig(parent, int_of(body["gi"]), int_of(body["ci"]), profile)


def job_of(value: Any) -> JobContext:
    body = dict_of(value)
    values: Dict[str, Any] = {}
    for name in JobContext._fields:
        entry = body.get(name)
        if name in ("start", "end"):
            values[name] = None if entry is None else time_of(entry)
        elif name in ("cpus", "mem_limit_bytes", "gpus", "restarts"):
            values[name] = optional_int_of(entry)
        elif name == "own_step":
            values[name] = entry is True
        elif name == "node_count":
            values[name] = int_of(body.get(name, 0))
        else:
            values[name] = text_of(body.get(name, ""), 500)
    return JobContext(**values)
