"""One sample as text: a line per device and per process, for eyes and for logs."""

from __future__ import annotations

from gpumon.analysis.rules.instant import throttled_text
from gpumon.export.sample_json import processes_of
from gpumon.model.reading import NOT_SAMPLED, Missing, Reading, number
from gpumon.model.sample import Device, Header, Sample
from gpumon.model.units import bytes_text, of_bytes_text


def sample_text(header: Header, sample: Sample) -> str:
    """What `gpumon once` prints."""
    about = [header.node]
    if header.driver:
        about.append(f"driver {header.driver}")
    if header.cuda:
        about.append(f"CUDA {header.cuda}")
    lines = ["  ".join(about), *_job(header, sample), *_host(header, sample)]
    lines += [f"note: {note}" for note in header.notes]
    heads = [(f"[{device.label}]", _short(device.name)) for device in header.devices]
    widths = [max(map(len, column)) for column in zip(*heads)]
    for device, head in zip(header.devices, heads):
        padded = (part.ljust(width) for part, width in zip(head, widths))
        lines.append(_device(device, sample, " ".join(padded)))
    lines += _processes(header, sample)
    return "\n".join(lines)


def _short(name: str) -> str:
    return name.removeprefix("NVIDIA ") or "unknown"


def _device(device: Device, sample: Sample, head: str) -> str:
    row = sample.rows.get("device", {}).get(device.key, {})
    state = sample.states.get(device.key)
    if state is not None and state.state in ("lost", "hung"):
        return f"{head} | {state.state} {state.detail}".rstrip()

    def shown(field: str, unit: str) -> str:
        return _text(row.get(field, NOT_SAMPLED), unit)

    used, total = number(row.get("mem_used_bytes")), number(device.facts.get("mem_total_bytes"))
    if used is None:
        memory = shown("mem_used_bytes", "B")
    elif total:
        memory = f"{of_bytes_text(used, total)} ({used / total * 100:.0f} %)"
    else:
        memory = bytes_text(used)
    parts = [f"busy {shown('busy_percent', '%')}"]
    if isinstance(row.get("sm_active_percent"), (int, float)):
        parts.append(f"SM {shown('sm_active_percent', '%')}")
    parts += [f"mem {memory}", f"{shown('power_w', 'W')}", f"{shown('temperature_c', '°C')}"]
    if throttled := throttled_text(int(number(row.get("throttle_mask")) or 0)):
        parts.append(throttled)
    return f"{head} | " + " | ".join(parts)


def _text(reading: Reading, unit: str) -> str:
    if isinstance(reading, Missing):
        return str(reading)
    value = number(reading)
    return str(reading) if value is None else f"{value:.0f} {unit}"


def _job(header: Header, sample: Sample) -> list[str]:
    job = header.job
    if job is None:
        return []
    row = sample.rows.get("job", {}).get("", {})
    cores, memory = row.get("cpu_cores_used", NOT_SAMPLED), number(row.get("mem_used_bytes"))
    limit = number(row.get("mem_limit_bytes")) or job.mem_limit_bytes
    parts = [f"job {job.id} {job.name}".rstrip()]
    used = number(cores)
    cpu = f"{used:.1f}" if used is not None else str(cores)
    parts.append(f"CPU {cpu} of {job.cpus or '?'} cores")
    if memory is not None:
        whole = f"{of_bytes_text(memory, limit)}" if limit else bytes_text(memory)
        cache = number(row.get("mem_cache_bytes"))
        parts.append(f"memory {whole}" + (f" (+{bytes_text(cache)} cache)" if cache else ""))
    return [" | ".join(parts)]


def _host(header: Header, sample: Sample) -> list[str]:
    row = sample.rows.get("host", {}).get("", {})
    cpus = number(header.facts.get("cpus"))
    parts = [f"host CPU {_text(row.get('cpu_percent', Missing('not-sampled')), '%')}"]
    if cpus:
        parts[0] += f" of {cpus:.0f} cores"
    used, total = number(row.get("mem_used_bytes")), number(header.facts.get("mem_total_bytes"))
    if used is not None and total:
        parts.append(f"memory {of_bytes_text(used, total)}")
    load = number(row.get("load1"))
    if load is not None:
        parts.append(f"load {load:.1f}")
    return [" | ".join(parts)]


def _processes(header: Header, sample: Sample) -> list[str]:
    facts = processes_of(sample)
    labels = {device.key: device.label for device in header.devices}
    lines = []
    for key, usage in sorted(
        (key, usage)
        for key, usage in sample.rows.get("usage", {}).items()
        if isinstance(key, tuple)
    ):
        device, pid = key
        process = facts.get(pid)
        memory = number(usage.get("mem_bytes"))
        shown = bytes_text(memory) if memory is not None else str(usage.get("mem_bytes", "n/a"))
        cpu = sample.rows.get("process", {}).get(pid, {}).get("cpu_percent", NOT_SAMPLED)
        user = process.user if process else "?"
        command = (process.command or process.name or process.note) if process else "?"
        lines.append(
            f"[{labels.get(device, device)}] {pid:>8} {user:<10} {shown:>9}"
            f"  SM {_text(usage.get('sm_percent', Missing('not-sampled')), '%'):>5}"
            f"  CPU {_text(cpu, '%'):>6}  {command[:120]}"
        )
    return lines
