"""What the exporters of other projects would have written of a run that gpumon recorded.

Labels, units and shapes are theirs (their sources are named in gpumon/site/families.toml); they
are written here by hand, not from gpumon's own table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpumon.model.reading import number
from gpumon.model.sample import Device, Header, Sample

_MIB = 1 << 20


class Point(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


Scrape = Callable[[Header, Sample, str], Iterator[Point]]


def openmetrics(points: Iterable[tuple[float, Point]]) -> str:
    """As promtool reads it: all points of a metric together."""
    of_name: dict[str, list[str]] = {}
    for at, (name, labels, value) in points:
        listed = ",".join(f'{key}="{text}"' for key, text in labels.items())
        of_name.setdefault(name, []).append(f"{name}{{{listed}}} {value!r} {at:.3f}")
    blocks = [f"# TYPE {name} unknown\n" + "\n".join(lines) for name, lines in of_name.items()]
    return "\n".join([*blocks, "# EOF\n"])


def scraped(
    items: Iterable[Header | Sample], exporter: Scrape, job: str, every_s: float = 30.0
) -> Iterator[tuple[float, Point]]:
    """What a server got that scrapes so often: the newest readings at each moment."""
    header: Header | None = None
    latest: dict[str, dict[object, dict[str, object]]] = {}
    due = 0.0
    for item in items:
        if isinstance(item, Header):
            header = item
            continue
        for entity, rows in item.rows.items():
            for key, row in rows.items():
                latest.setdefault(entity, {}).setdefault(key, {}).update(row)
        if header is None or item.time < due:
            continue
        due = item.time + every_s - 0.5
        for point in exporter(header, Sample(item.time, item.mono, latest), job):
            yield item.time, point


def _values(sample: Sample, entity: str, key: object) -> dict[str, float]:
    row = sample.rows.get(entity, {}).get(key, {})  # type: ignore[call-overload]
    return {name: value for name, read in row.items() if (value := number(read)) is not None}


def princeton(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """nvidia_gpu_prometheus_exporter since September 2025, and cgroup_exporter."""
    yield from _princeton_gpus(header, sample, {"jobid": job, "userid": "1000"})
    yield from _cgroup(header, sample, job)


def princeton_before(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """The same before it had the label: the job is the value of a metric."""
    yield from _princeton_gpus(header, sample, {})
    for device in header.devices:
        yield Point("nvidia_gpu_jobId", _princeton_labels(header, device), float(job))
    yield from _cgroup(header, sample, job)


def _princeton_labels(header: Header, device: Device) -> dict[str, str]:
    return {
        "instance": f"{header.node}:9445",
        "ordinal": str(device.index),
        "minor_number": str(7 - device.index),  # it disagrees
        "uuid": device.uuid,
        "name": device.name,
    }


def _princeton_gpus(header: Header, sample: Sample, more: Mapping[str, str]) -> Iterator[Point]:
    for device in header.devices:
        labels = {**_princeton_labels(header, device), **more}
        row = _values(sample, "device", device.key)
        total = number(device.facts.get("mem_total_bytes"))
        found = {
            "duty_cycle": row.get("busy_percent"),
            "memory_used_bytes": row.get("mem_used_bytes"),
            "memory_total_bytes": total,
            "power_usage_milliwatts": _times(row.get("power_w"), 1000),
            "temperature_celsius": row.get("temperature_c"),
            "clock_event_reason": row.get("throttle_mask"),
            "sm_util_percent": _times(row.get("sm_active_percent"), 0.01),
            "any_tensor_util_percent": _times(row.get("tensor_active_percent"), 0.01),
            "dram_bw_util_percent": _times(row.get("dram_active_percent"), 0.01),
        }
        for name, value in found.items():
            if value is not None:
                yield Point(f"nvidia_gpu_{name}", labels, value)


def _cgroup(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    row = _values(sample, "job", "")
    anon, shmem = row.get("mem_anon_bytes"), row.get("mem_shmem_bytes", 0.0)
    found = {
        "cpu_total_seconds": row.get("cpu_s"),
        "memory_rss_bytes": anon if anon is not None else row.get("mem_used_bytes"),
        "memory_shmem_bytes": shmem,
        "memory_cache_bytes": _sum(row.get("mem_cache_bytes"), shmem),
        "memory_total_bytes": row.get("mem_limit_bytes"),
    }
    for name, value in found.items():
        if value is None:
            continue
        labels = {"instance": f"{header.node}:9306", "jobid": job}
        yield Point(f"cgroup_{name}", {**labels, "step": "", "task": ""}, value)
        # its steps and tasks are series of their own, which must not be counted again
        yield Point(f"cgroup_{name}", {**labels, "step": "0", "task": ""}, value * 0.9)
        yield Point(f"cgroup_{name}", {**labels, "step": "0", "task": "0"}, value * 0.9)


def dcgm(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """dcgm-exporter with --hpc-job-mapping-dir."""
    yield from _dcgm(header, sample, {"hpc_job": job})
    yield from _cgroup(header, sample, job)


def dcgm_bare(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """dcgm-exporter as it is installed: nothing names the job."""
    yield from _dcgm(header, sample, {})
    yield from _cgroup(header, sample, job)


def dcgm_newer(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """The same of a newer release, which writes the host's name otherwise."""
    for name, labels, value in dcgm_bare(header, sample, job):
        yield Point(
            name, {key.replace("Hostname", "hostname"): labels[key] for key in labels}, value
        )


def _dcgm(header: Header, sample: Sample, more: Mapping[str, str]) -> Iterator[Point]:
    for device in header.devices:
        labels = {
            "gpu": str(device.index),
            "UUID": device.uuid,
            "device": f"nvidia{device.index}",
            "modelName": device.name,
            "Hostname": header.node,
            "instance": "10.0.0.7:9400",
            **more,
        }
        row = _values(sample, "device", device.key)
        total = number(device.facts.get("mem_total_bytes"))
        used, reserved = row.get("mem_used_bytes"), 500.0 * _MIB
        free = total - used - reserved if total is not None and used is not None else None
        found = {
            "DEV_GPU_UTIL": row.get("busy_percent"),
            "DEV_FB_USED": _times(used, 1 / _MIB),
            "DEV_FB_FREE": _times(free, 1 / _MIB),
            "DEV_FB_RESERVED": reserved / _MIB,
            "DEV_POWER_USAGE": row.get("power_w"),
            "DEV_TOTAL_ENERGY_CONSUMPTION": _times(row.get("energy_j"), 1000),
            "DEV_GPU_TEMP": row.get("temperature_c"),
            "DEV_SM_CLOCK": row.get("sm_clock_mhz"),
            "PROF_PIPE_TENSOR_ACTIVE": _times(row.get("tensor_active_percent"), 0.01),
            "PROF_DRAM_ACTIVE": _times(row.get("dram_active_percent"), 0.01),
        }
        for name, value in found.items():
            if value is not None:
                yield Point(f"DCGM_FI_{name}", labels, value)


def slurm_job(header: Header, sample: Sample, job: str) -> Iterator[Point]:
    """slurm-job-exporter with NVML."""
    owner = {"instance": f"{header.node}.cluster.example:9798", "slurmjobid": job, "user": "ann"}
    for device in header.devices:
        labels = {**owner, "gpu": str(device.index), "gpu_type": device.name}
        row = _values(sample, "device", device.key)
        found = {
            "utilization_gpu": row.get("busy_percent"),
            "utilization_gpu_memory": row.get("mem_controller_percent"),
            "memory_usage_gpu": row.get("mem_used_bytes"),
            "memory_total_gpu": number(device.facts.get("mem_total_bytes")),
            "power_gpu": _times(row.get("power_w"), 1000),
        }
        for name, value in found.items():
            if value is not None:
                yield Point(f"slurm_job_{name}", labels, value)
    row = _values(sample, "job", "")
    anon = row.get("mem_anon_bytes", row.get("mem_used_bytes"))
    job_found = {
        "memory_limit": row.get("mem_limit_bytes"),
        "memory_rss": anon,
        "memory_cache": row.get("mem_cache_bytes"),
        "memory_max": row.get("mem_peak_bytes"),
    }
    for name, value in job_found.items():
        if value is not None:
            yield Point(f"slurm_job_{name}", owner, value)
    for core in range(4):
        cpu_s = row.get("cpu_s")
        if cpu_s is not None:
            share = cpu_s / 4 * 1e9
            yield Point("slurm_job_core_usage_total", {**owner, "core": str(core)}, share)


def _times(value: float | None, factor: float) -> float | None:
    return value * factor if value is not None else None


def _sum(value: float | None, other: float) -> float | None:
    return value + other if value is not None else None
