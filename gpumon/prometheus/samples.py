"""A node's columns as the stream that its recording would be: a header, then samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from gpumon import __version__
from gpumon.model.reading import Reading
from gpumon.model.sample import Device, Header, JobContext, Key, Mig, Rows, Sample
from gpumon.prometheus.client import Server
from gpumon.prometheus.clocks import SLACK_S
from gpumon.prometheus.fetch import Fetch, Wanted
from gpumon.prometheus.gathered import Column, GpuColumns, NodeColumns, rates
from gpumon.site.prometheus import Family

if TYPE_CHECKING:
    from gpumon.slurm.job import Job

#: s between scrapes where there are too few to see
_USUAL_S = 30.0
_LEAST_S, _MOST_S = 1.0, 3600.0


class Scraped(NamedTuple):
    """What a server has of a job: each node's stream, and what is missing of it, and why."""

    streams: Sequence[tuple[str, Iterator[Header | Sample]]]
    missing: Mapping[str, str]
    interval_s: float


def scraped(
    server: Server,
    families: Sequence[Family],
    job: Job,
    start: float,
    end: float,
    interval_s: float | None = None,
    *,
    is_whole: bool = False,
) -> Scraped:
    """The scrapes of a job from `start` to `end`. Raises PrometheusError.

    `is_whole`: it ran from then to then, so that a server's other clock shows.
    """
    shares = {each.node: each.gpus for each in job.allocations}
    if len(job.nodes) == 1:
        shares.setdefault(job.nodes[0], job.gpus)
    ids = tuple(each for each in (job.raw_id, job.sluid) if each)
    slack_s = SLACK_S if is_whole and not job.restarts else 0.0  # before lies its last attempt
    wanted = Wanted(ids, job.nodes, start, end, shares, job.gpus != 0, slack_s)
    fetch = Fetch(server, families, wanted)
    nodes = fetch.run()
    missing = dict(fetch.missing)
    if not nodes:
        missing["Prometheus"] = f"{server.host} has no samples of this job"
    elif job.gpus and not any(node.gpus for node in nodes):
        missing.setdefault("GPUs", f"{server.host} has no GPU samples of this job")
    every_s = interval_s or interval_of(nodes)
    return Scraped([(each.node, stream(each, job, every_s)) for each in nodes], missing, every_s)


def interval_of(nodes: list[NodeColumns]) -> float:
    """Seconds between scrapes: the median of what GPUs were read at, else of all."""
    steps: list[float] = []
    for node in nodes:
        columns = [column for gpu in node.gpus for column in gpu.columns.values()]
        columns = columns or [c for of in node.columns.values() for c in of.values()]
        for column in columns[:1]:
            times = sorted(column)
            steps += [later - earlier for earlier, later in zip(times, times[1:])]
    found = median(steps) if steps else _USUAL_S
    rounded = round(found) if found > 2 else found  # scrapes are a few ms early or late
    return min(max(rounded, _LEAST_S), _MOST_S)


def stream(node: NodeColumns, job: Job | None, interval_s: float) -> Iterator[Header | Sample]:
    """What the server has of the node, in order of time."""
    derive(node)
    slots = _slots(node, interval_s)
    if not slots:
        return
    times = sorted(slots)
    first = min(at for at, _ in slots[times[0]])
    yield _header(node, job, first, interval_s)
    for place in times:
        rows: Rows = {}
        for _, (entity, key, field, value) in slots[place]:
            rows.setdefault(entity, {}).setdefault(key, {})[field] = value
        at = min(at for at, _ in slots[place])
        yield Sample(at, at, rows)


def derive(node: NodeColumns) -> None:
    """Readings that exporters leave to whoever reads them."""
    job = node.columns["job"]
    if "cpu_s" in job and "cpu_cores_used" not in job:
        job["cpu_cores_used"] = rates(job["cpu_s"])
    if "mem_anon_bytes" in job and "mem_used_bytes" not in job:
        # as jobstats: shared memory counts where it is known
        shared = job.get("mem_shmem_bytes", {})
        job["mem_used_bytes"] = {
            at: value + shared.get(at, 0.0)
            for at, value in job["mem_anon_bytes"].items()
            if not shared or at in shared
        }


Told = tuple[str, Key, str, Reading]


def _slots(node: NodeColumns, interval_s: float) -> dict[int, list[tuple[float, Told]]]:
    """All readings by the interval they were made in. Exporters of a node are scraped at different
    moments of each interval; those of its GPUs decide where an interval begins.
    """
    columns: list[tuple[str, Key, str, Column]] = [
        ("device", key, name, column)
        for key, gpu in enumerate(_ordered(node))
        for name, column in gpu.columns.items()
    ]
    for entity, of_entity in node.columns.items():
        columns += [(entity, "", name, column) for name, column in of_entity.items()]
    columns = [each for each in columns if each[3]]
    if not columns:
        return {}
    begin = min(columns[0][3]) % interval_s - interval_s / 2
    slots: dict[int, list[tuple[float, Told]]] = {}
    for entity, key, name, column in columns:
        for at, value in column.items():
            told = (entity, key, name, value)
            slots.setdefault(floor((at - begin) / interval_s), []).append((at, told))
    return slots


def _ordered(node: NodeColumns) -> list[GpuColumns]:
    return sorted(
        node.gpus,
        key=lambda each: (
            each.gpu.index if each.gpu.index is not None else 1 << 20,
            each.gpu.mig.zfill(4),
            each.gpu.uuid,
        ),
    )


def _header(node: NodeColumns, job: Job | None, time: float, interval_s: float) -> Header:
    devices = [_device(key, gpu) for key, gpu in enumerate(_ordered(node))]
    facts: dict[str, Reading] = dict(node.facts)
    return Header(
        node.node, "", time, time, interval_s, __version__, devices,
        job=_context(node, job, len(devices)), facts=facts,
    )  # fmt: skip


def _device(key: int, found: GpuColumns) -> Device:
    gpu = found.gpu
    mig = None
    if gpu.mig:
        parent = "" if gpu.uuid.startswith("MIG-") else gpu.uuid
        mig = Mig(parent, int(gpu.mig) if gpu.mig.isdecimal() else 0, 0, found.mig_profile)
    uuid = f"{gpu.uuid}/{gpu.mig}" if mig is not None and mig.parent else gpu.uuid
    index = gpu.index if gpu.index is not None else key
    facts: dict[str, Reading] = dict(found.facts)
    return Device(key, index, uuid, found.name, None, mig, facts)


def _context(node: NodeColumns, job: Job | None, gpus: int) -> JobContext | None:
    if job is None:
        return None
    share = next((each for each in job.allocations if each.node == node.node), None)
    had = share.gpus if share else job.gpus if len(job.nodes) == 1 else None
    limits = node.columns["job"].get("mem_limit_bytes", {})
    told = int(limits[max(limits)]) if limits else None
    return JobContext(
        job.raw_id, job.name, job.user, job.account, job.partition, job.cluster, job.node_list,
        len(job.nodes), array=job.id if job.array_job_id else "",
        cpus=share.cpus if share else None,
        mem_limit_bytes=share.mem_bytes if share and share.mem_bytes else told,
        gpus=had if had is not None else gpus or None,
        start=job.start, end=job.end, source="prometheus", restarts=job.restarts,
    )  # fmt: skip
