"""The same readings by the names that dashboards of other exporters expect (`--names`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from gpumon.exporter.metrics import Families, job_of
from gpumon.exporter.sampling import Snapshot
from gpumon.model.reading import number
from gpumon.model.sample import Device
from gpumon.site.prometheus import Family
from gpumon.site.read import shipped_families

_MIB = 1 << 20
_HELP = "As {}, from gpumon's readings."


def alias_metrics(snapshot: Snapshot, names: str) -> Iterator[Metric]:
    """`names`: dcgm or jobstats."""
    families = {each.name: each for each in shipped_families()}
    found = Families()
    labels_of = _DCGM if names == "dcgm" else _JOBSTATS
    for device in snapshot.header.devices:
        labels = labels_of(snapshot, device)
        _device(found, families[names], snapshot, device, labels)
        if names == "dcgm":
            _framebuffer(found, snapshot, device, labels)
        elif (job := job_of(snapshot, device)).isdecimal():
            about = _HELP.format(families[names].about)
            found.add("nvidia_gpu_jobId", about, labels, float(job))
    if names == "jobstats":
        _jobs(found, families["cgroup"], snapshot)
    return iter(found)


def _device(
    found: Families, family: Family, snapshot: Snapshot, device: Device, labels: Mapping[str, str]
) -> None:
    row = snapshot.rows.get(("device", device.key), {})
    for metric in family.metrics:
        entity, _, field = metric.reading.partition(".")
        if metric.part or metric.rate or metric.beside or entity not in ("device", "fact"):
            continue
        if metric.name == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS":  # the older name of another
            continue
        value = number(row.get(field) if entity == "device" else device.facts.get(field))
        if value is not None:
            about = _HELP.format(family.about)
            found.add(metric.name, about, {**labels, **metric.where}, value / metric.scale)


def _framebuffer(
    found: Families, snapshot: Snapshot, device: Device, labels: Mapping[str, str]
) -> None:
    """Used, free and reserved make up the whole."""
    row = snapshot.rows.get(("device", device.key), {})
    used, reserved = number(row.get("mem_used_bytes")), number(row.get("mem_reserved_bytes"))
    total = number(device.facts.get("mem_total_bytes"))
    about = _HELP.format("dcgm-exporter")
    if used is not None and total is not None:
        free = max(0.0, total - used - (reserved or 0.0))
        found.add("DCGM_FI_DEV_FB_FREE", about, labels, free / _MIB)


def _jobs(found: Families, family: Family, snapshot: Snapshot) -> None:
    about = _HELP.format(family.about)
    for job, row in snapshot.jobs.items():
        labels = {"jobid": job, "step": "", "task": ""}
        for metric in family.metrics:
            value = number(row.get(metric.reading.partition(".")[2]))
            if value is not None:
                found.add(metric.name, about, labels, value / metric.scale)
        if (cpus := number(row.get("cpus"))) is not None:
            found.add("cgroup_cpus", about, labels, cpus)


def _dcgm_labels(snapshot: Snapshot, device: Device) -> dict[str, str]:
    labels = {
        "gpu": str(device.index), "UUID": device.uuid, "device": f"nvidia{device.index}",
        "modelName": device.name, "Hostname": snapshot.header.node,
        "hpc_job": job_of(snapshot, device),
    }  # fmt: skip
    if device.mig is not None:
        labels |= {"UUID": device.mig.parent, "GPU_I_ID": str(device.mig.gi),
                   "GPU_I_PROFILE": device.mig.profile}  # fmt: skip
    else:
        labels |= {"GPU_I_ID": "", "GPU_I_PROFILE": ""}
    return labels


def _jobstats_labels(snapshot: Snapshot, device: Device) -> dict[str, str]:
    minor = device.facts.get("minor")
    return {
        "ordinal": str(device.index),
        "minor_number": str(minor) if isinstance(minor, int) else "",
        "uuid": device.uuid, "name": device.name,
        "GPU_I_ID": str(device.mig.gi) if device.mig else "",
        "jobid": job_of(snapshot, device), "userid": "",
    }  # fmt: skip


_Labels = Callable[[Snapshot, Device], dict[str, str]]
_DCGM: _Labels = _dcgm_labels
_JOBSTATS: _Labels = _jobstats_labels
