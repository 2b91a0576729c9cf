"""One sample as JSON (design: numbers are numbers, units in the names, null with its reason)."""

from __future__ import annotations

from typing import Any

from gpumon.model.fields import FIELDS, throttle_words
from gpumon.model.reading import NOT_SAMPLED, Missing, Reading
from gpumon.model.sample import FACTS, Device, Header, Process, Sample

VERSION = 1
NO_START = "not-sampled: the job's start is unknown or too recent"

Json = dict[str, Any]


def sample_json(header: Header, sample: Sample, window_s: float | None = None) -> Json:
    """The object that `gpumon once --json` prints. `window_s`: what the job's rates cover."""
    processes = processes_of(sample)
    return {
        "version": VERSION,
        "gpumon": header.gpumon,
        "node": header.node,
        "time": round(sample.time, 3),
        "driver": header.driver or None,
        "nvml": header.nvml or None,
        "cuda": header.cuda or None,
        "notes": header.notes,
        "devices": [_device(device, sample, processes) for device in header.devices],
        "host": _host(header, sample),
        "net": _table(sample, "net", "interface"),
        "disk": _table(sample, "disk", "label"),
        "job": _job(header, sample, window_s),
        "agent": _agent(sample),
    }


def processes_of(sample: Sample) -> dict[int, Process]:
    """Processes by pid, as described by its events."""
    told = (event for event in sample.events if event.kind == "process")
    return {event.pid: Process.of(event) for event in told if event.pid is not None}


def _values(readings: dict[str, Reading], names: list[str]) -> tuple[Json, dict[str, str]]:
    """Values by name, null where missing, and the reasons of those."""
    values: Json = {}
    missing: dict[str, str] = {}
    for name in names:
        reading = readings.get(name, NOT_SAMPLED)
        if isinstance(reading, Missing):
            values[name] = None
            missing[name] = (
                f"{reading.reason}: {reading.detail}" if reading.detail else reading.reason
            )
        else:
            values[name] = round(reading, 3) if isinstance(reading, float) else reading
    return values, missing


def _device(device: Device, sample: Sample, processes: dict[int, Process]) -> Json:
    state = sample.states.get(device.key)
    rows = sample.rows.get("device", {}).get(device.key, {})
    facts = device.facts
    if state is not None and state.state in ("lost", "hung"):
        gone = Missing("lost" if state.state == "lost" else "timeout", state.detail)
        rows = dict.fromkeys(FIELDS["device"], gone)
        facts = {**dict.fromkeys(FACTS, gone), **facts}
    values, missing = _values(rows, list(FIELDS["device"]))
    facts_values, missing_facts = _values(facts, list(dict.fromkeys((*FACTS, *facts))))
    count, mask = values.pop("processes"), values.pop("throttle_mask")
    if "throttle_mask" in missing:
        missing["throttle"] = missing.pop("throttle_mask")
    xids = [event for event in sample.events if event.kind == "xid" and event.device == device.key]
    return {
        "index": device.index,
        "cuda_index": device.cuda_index,
        "uuid": device.uuid or None,
        "name": device.name or None,
        "mig": device.mig._asdict() if device.mig else None,
        "state": state._asdict() if state else None,
        **values,
        "throttle": None if mask is None else throttle_words(int(mask)),
        "xid": int(xids[-1].text) if xids and xids[-1].text.isdecimal() else None,
        **facts_values,
        "processes": None if count is None else _processes(device, sample, processes),
        "missing": {**missing, **missing_facts},
    }


def _processes(device: Device, sample: Sample, facts: dict[int, Process]) -> list[Json]:
    return [
        _process(key[1], usage, sample, facts.get(key[1]))
        for key, usage in sample.rows.get("usage", {}).items()
        if isinstance(key, tuple) and key[0] == device.key
    ]


def _process(pid: int, usage: dict[str, Reading], sample: Sample, facts: Process | None) -> Json:
    facts = facts or Process(pid, "", "", "")
    on_device, missing = _values(usage, list(FIELDS["usage"]))
    readings = sample.rows.get("process", {}).get(pid, {})
    on_node, missing_node = _values(readings, list(FIELDS["process"]))
    return {
        "pid": pid,
        "user": facts.user or None,
        **on_device,
        **on_node,
        "framework": facts.framework or None,
        "job": facts.job or None,
        "command": facts.command or facts.name or None,
        "note": facts.note or None,
        "missing": {**missing, **missing_node},
    }


def _host(header: Header, sample: Sample) -> Json:
    facts, missing = _values(header.facts, list(header.facts))
    readings = sample.rows.get("host", {}).get("", {})
    values, missing_values = _values(readings, list(FIELDS["host"]))
    return {**facts, **values, "missing": {**missing, **missing_values}}


def _job(header: Header, sample: Sample, window_s: float | None) -> Json | None:
    if header.job is None:
        return None
    readings = sample.rows.get("job", {}).get("", {})
    values, missing = _values(readings, list(FIELDS["job"]))
    limit = header.job.mem_limit_bytes
    if "mem_limit_bytes" in missing and limit is not None:  # from Slurm's environment
        values["mem_limit_bytes"] = limit
        del missing["mem_limit_bytes"]
    cores = {
        "cpu_window_s": None if window_s is None else round(window_s, 3),
        "cpu_cores_mean": _mean(values["cpu_s"], header.job.start, sample.time),
    }
    if cores["cpu_cores_mean"] is None:
        missing["cpu_cores_mean"] = missing.get("cpu_s", NO_START)
    return {**header.job._asdict(), **values, **cores, "missing": missing}


def _mean(cpu_s: float | None, start: float | None, now: float) -> float | None:
    """Cores used since the job's start; None where that is not known, or was just now."""
    if cpu_s is None or start is None or now - start < 1.0:
        return None
    return round(cpu_s / (now - start), 3)


def _table(sample: Sample, entity: str, name: str) -> list[Json]:
    rows = []
    for key, readings in sample.rows.get(entity, {}).items():
        values, missing = _values(readings, list(FIELDS[entity]))
        rows.append({name: key, **values, "missing": missing})
    return rows


def _agent(sample: Sample) -> Json:
    values, _ = _values(sample.rows.get("agent", {}).get("", {}), list(FIELDS["agent"]))
    collectors = {}
    for name, row in sample.rows.get("collector", {}).items():
        told, _ = _values(row, ["ms", "detail"])
        collectors[str(name)] = {"ok": row.get("ok") == 1, **told, "detail": told["detail"] or None}
    return {**values, "collectors": collectors}
