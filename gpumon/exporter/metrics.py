"""A snapshot of the node as metrics. A missing reading is an absent series, never 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpumon import __version__
from gpumon.exporter.sampling import Snapshot
from gpumon.model.fields import THROTTLE_REASONS
from gpumon.model.reading import Reading, number
from gpumon.model.sample import Device, leaves
from gpumon.site.own import PREFIX, name_of

GPU_LABELS = ("gpu", "uuid", "name", "mig_instance", "mig_profile", "jobid")
#: of all devices together, those with most memory
MAX_PROCESSES = 200


class Families:
    """Metrics by name, in the order in which they were first used."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def add(
        self,
        name: str,
        help: str,
        labels: Mapping[str, str],
        value: float,
        *,
        counter: bool = False,
    ) -> None:
        family = self._found.get(name)
        if family is None:
            kind = CounterMetricFamily if counter else GaugeMetricFamily
            family = self._found[name] = kind(name, help, labels=list(labels))
        family.add_metric(list(labels.values()), value)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._found.values())


def metrics(snapshot: Snapshot, *, processes: bool = False) -> Iterator[Metric]:
    """All of one moment."""
    found = Families()
    _about(found, snapshot)
    for device in snapshot.header.devices:
        _gpu(found, snapshot, device)
    for job, row in snapshot.jobs.items():
        _readings(found, "job", row, {"jobid": job})
        if (cpus := number(row.get("cpus"))) is not None:
            found.add(f"{PREFIX}_job_cpus", "CPUs that the job may use.", {"jobid": job}, cpus)
    _node(found, snapshot)
    if processes:
        _processes(found, snapshot)
    return iter(found)


def job_of(snapshot: Snapshot, device: Device) -> str:
    """The job that has the device; "" where there is none, or several."""
    jobs = snapshot.held.get(device.key, frozenset())
    return next(iter(jobs)) if len(jobs) == 1 else ""


def _about(found: Families, snapshot: Snapshot) -> None:
    header = snapshot.header
    labels = {"version": __version__, "driver": header.driver, "cuda": header.cuda}
    found.add(f"{PREFIX}_exporter_info", "Versions of gpumon and the driver.", labels, 1)
    help = "When the readings were made, seconds since 1970."
    found.add(f"{PREFIX}_sample_timestamp_seconds", help, {}, snapshot.time)
    help = "How long it took to make them."
    found.add(f"{PREFIX}_sample_duration_seconds", help, {}, snapshot.cost_s)
    for (entity, key), row in snapshot.rows.items():
        if entity == "collector":
            labels = {"collector": str(key)}
            took_ms, ok = number(row.get("ms")), number(row.get("ok"))
            if ok is not None:
                help = "Whether the collector succeeded."
                found.add(f"{PREFIX}_collector_success", help, labels, ok)
            if took_ms is not None:
                help = "How long the collector took."
                found.add(f"{PREFIX}_collector_duration_seconds", help, labels, took_ms / 1000)


def gpu_labels(snapshot: Snapshot, device: Device) -> dict[str, str]:
    mig = device.mig
    values = (
        str(device.index), device.uuid, device.name, str(mig.gi) if mig else "",
        mig.profile if mig else "", job_of(snapshot, device),
    )  # fmt: skip
    return dict(zip(GPU_LABELS, values))


def _gpu(found: Families, snapshot: Snapshot, device: Device) -> None:
    labels = gpu_labels(snapshot, device)
    row = snapshot.rows.get(("device", device.key), {})
    _readings(found, "device", row, labels)
    state = snapshot.states.get(device.key)
    help = "1 if the GPU answers; 0 if it is lost or hung."
    found.add(f"{PREFIX}_gpu_up", help, labels, 0.0 if state is not None else 1.0)
    facts = {name: number(device.facts.get(name)) for name in ("mem_total_bytes",)}
    if (total := facts["mem_total_bytes"]) is not None:
        found.add(f"{PREFIX}_gpu_memory_total_bytes", "Memory of the GPU.", labels, total)
    told = {
        "gpu": labels["gpu"], "uuid": device.uuid, "name": device.name,
        "bus_id": _text(device.facts.get("bus_id")),
        "parent": device.mig.parent if device.mig else "",
    }  # fmt: skip
    found.add(f"{PREFIX}_gpu_info", "What identifies the GPU.", told, 1)
    for job in sorted(snapshot.held.get(device.key, ())):
        help = "A job that was given the GPU, or has a process on it."
        found.add(
            f"{PREFIX}_gpu_job_info",
            help,
            {"gpu": labels["gpu"], "uuid": device.uuid, "jobid": job},
            1,
        )
    mask = number(row.get("throttle_mask"))
    if mask is not None:
        for bit, word in THROTTLE_REASONS:
            help = "1 while the reason limits the clocks."
            labels_of = {**labels, "reason": word}
            found.add(f"{PREFIX}_gpu_throttled", help, labels_of, float(bool(int(mask) & bit)))


def _readings(
    found: Families, entity: str, row: Mapping[str, Reading], labels: Mapping[str, str]
) -> None:
    for field, reading in row.items():
        value, name = number(reading), name_of(entity, field)
        if value is not None and name is not None:
            found.add(name.name, name.help, labels, value * name.factor, counter=name.counter)


def _node(found: Families, snapshot: Snapshot) -> None:
    _readings(found, "host", snapshot.rows.get(("host", ""), {}), {})
    total = number(snapshot.header.facts.get("mem_total_bytes"))
    if total is not None:
        found.add(f"{PREFIX}_node_memory_total_bytes", "Memory of the node.", {}, total)
    for (entity, key), row in snapshot.rows.items():
        if entity in ("net", "disk"):
            label = "interface" if entity == "net" else "filesystem"
            _readings(found, entity, row, {label: str(key)})


def _processes(found: Families, snapshot: Snapshot) -> None:
    """Those on GPUs, with most memory first, up to a bound: each is several series."""
    devices = {device.key: device for device in leaves(snapshot.header.devices)}
    rows = [
        (key, row)
        for (entity, key), row in snapshot.rows.items()
        if entity == "usage" and isinstance(key, tuple) and key[0] in devices
    ]
    rows.sort(key=lambda each: -(number(each[1].get("mem_bytes")) or 0.0))
    for (key, pid), row in rows[:MAX_PROCESSES]:
        process = snapshot.processes.get(pid)
        labels = {
            "gpu": str(devices[key].index), "uuid": devices[key].uuid, "pid": str(pid),
            "user": process.user if process else "", "command": process.name if process else "",
            "jobid": process.job if process else "",
        }  # fmt: skip
        _readings(found, "usage", row, labels)
    if len(rows) > MAX_PROCESSES:
        help = "Processes on GPUs that are left out: there are too many."
        found.add(f"{PREFIX}_processes_left_out", help, {}, len(rows) - MAX_PROCESSES)


def _text(reading: Reading | None) -> str:
    return reading if isinstance(reading, str) else ""
