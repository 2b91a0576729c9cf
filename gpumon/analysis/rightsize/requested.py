"""What the job asked for, per node, in the words of its own request.

From Slurm's job where it is known, else from the limits that the recording found on the node.
"""

from __future__ import annotations

import re
from math import ceil

from gpumon.analysis.finding import Gpus
from gpumon.analysis.known import highest
from gpumon.analysis.once import once
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import job_devices
from gpumon.model.lines import value
from gpumon.model.reading import number
from gpumon.plain import dataclass
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job
from gpumon.slurm.options import GPUS_PER, options_of_submit_line
from gpumon.slurm.values import count

#: cgroups write "no limit" as a number that is no memory's size
_NO_LIMIT = float(1 << 60)
_MEM_OPTIONS = {"mem": "node", "mem-per-cpu": "cpu", "mem-per-gpu": "gpu"}


@dataclass(frozen=True)
class Requested:
    """Figures per node (of the largest share); None: not known. `options`: the submit line's."""

    nodes: int
    cpus: int | None = None
    mem_bytes: float | None = None
    gpus: int | None = None  # None: not known; 0: none
    tasks: int | None = None  # in all
    tasks_per_node: int | None = None  # asked for as such
    cpus_per_task: int | None = None
    mem_form: str = "node"  # node, cpu, gpu
    gpu_option: str = "--gres"
    gpu_form: str = "node"  # node, job, task: what the count in it is per
    gpus_named: Gpus | None = None  # in its words: ("gpu:a100:", 4); None: not, or not known
    time_limit_s: float | None = None
    cpus_per_gpu: bool = False  # asked for by --cpus-per-gpu
    is_exclusive: bool = False  # whole nodes, whatever else it asks for
    is_whole_memory: bool = False  # by --mem=0: all that the node has

    @property
    def is_alone(self) -> bool:
        """On its nodes, whatever else it requests."""
        return self.is_exclusive or self.is_whole_memory

    @property
    def gpus_in_all(self) -> int | None:
        return None if self.gpus is None else self.gpus * self.nodes


@once
def requested(run: RunData) -> Requested:
    """What is known of the request."""
    job = run.job or Job()
    options = options_of_submit_line(job.submit_line)
    asked = job.requested
    nodes = _nodes(run, job)
    gpu_option, gpu_form, gpu_text = _gpus_asked(job, options)
    gpus_named = _named(gpu_option, gpu_text)
    return Requested(
        nodes=nodes,
        cpus=_whole(
            highest(each.cpus for each in job.allocations),
            highest(each.cpus for each in run.nodes),
            _share(job.allocated.cpus or asked.resources.cpus, nodes),
        ),
        mem_bytes=_memory(run, job, nodes),
        gpus=_gpus(run, job, nodes, bool(gpu_text)),
        tasks=_told(asked.tasks, options, "ntasks"),
        tasks_per_node=_told(asked.tasks_per_node, options, "ntasks-per-node"),
        cpus_per_task=_told(asked.cpus_per_task, options, "cpus-per-task"),
        mem_form=asked.mem_form or _form(options, _MEM_OPTIONS) or "node",
        gpu_option=gpu_option,
        gpu_form=gpu_form,
        gpus_named=gpus_named,
        time_limit_s=job.time_limit_s,
        cpus_per_gpu="cpus-per-gpu" in options,
        is_exclusive=options.get("exclusive") == "",
        is_whole_memory=asked.mem_form_bytes == 0 or options.get("mem", "").rstrip("KMGT") == "0",
    )


def mem_limit_bytes(node: NodeData) -> float | None:
    """What the node's cgroup lets the job use; None where it does not say or sets none."""
    limit = node.mem_limit_bytes
    if limit is None:
        limit = node.job.get("mem_limit_bytes", Track()).peak()
    return limit if limit and limit < _NO_LIMIT else None


@once
def node_types(run: RunData) -> list[NodeType]:
    """The site's kinds of node on which the job may have run, by GPU and partition."""
    site, job = run.site, run.job or Job()
    if not site.nodes:
        return []
    partition = job.partition
    if not partition:
        partition = next((n.header.job.partition for n in run.nodes if n.header.job), "")
    types = [each for each in site.nodes if not each.partitions or partition in each.partitions]
    gpus = requested(run).gpus
    if gpus == 0 and not run.devices:
        return [each for each in types if not each.gpus]
    names = _gpu_names(run, site)
    return [each for each in types if each.gpus and (not names or each.gpu in names)]


def cores_of(node: NodeData) -> float | None:
    """Processors of the whole node."""
    return number(node.header.facts.get("cpus_online"))


def _gpu_names(run: RunData, site: Site) -> set[str]:
    """The site's names of the job's GPUs; empty where they are not known."""
    devices = {each.device.name for each in run.devices}
    job = run.job or Job()
    types = set(job.allocated.gpu_types) | set(job.requested.resources.gpu_types)
    return {
        each.mig_of or each.name
        for each in site.gpus
        if any(re.search(each.match, name) for name in devices)
        or (not devices and each.gres.rpartition(":")[2] in types)
    }


def _told(asked: int | None, options: dict[str, str], name: str) -> int | None:
    """By Slurm, else by the submit line."""
    return count(options.get(name, "")) if asked is None else asked


def _nodes(run: RunData, job: Job) -> int:
    told = max((n.header.job.node_count for n in run.nodes if n.header.job), default=0)
    return max(
        len(job.nodes) or job.allocated.nodes or job.requested.resources.nodes or told,
        len(run.nodes),
        1,
    )


def _memory(run: RunData, job: Job, nodes: int) -> float | None:
    """Per node. 0 asks for all that the node has: then only the node's own limit tells."""
    in_all = job.allocated.mem_bytes or job.requested.resources.mem_bytes
    asked = job.requested.mem_form_bytes if job.requested.mem_form == "node" else None
    return _first(
        highest(each.mem_bytes or None for each in job.allocations),
        asked or None,
        _share(in_all or None, nodes),
        highest(mem_limit_bytes(each) for each in run.nodes),
    )


def _gpus(run: RunData, job: Job, nodes: int, asked: bool) -> int | None:
    """Of the node with most. 0 only where Slurm lists what it gave, and nobody asked for any."""
    held = [each.node for each in job_devices(run)]
    none = bool(job.allocated.tres) and not asked
    return _whole(
        highest(each.gpus for each in job.allocations),
        _share(job.gpus, nodes),
        highest(map(held.count, held)),
        0 if none else None,
    )


def _gpus_asked(job: Job, options: dict[str, str]) -> tuple[str, str, str]:
    """Option, what its count is per, and its value; the option is --gres where nobody knows."""
    for name, text in options.items():
        if name in GPUS_PER and (name != "gres" or "gpu" in text):
            part = next((part for part in text.split(",") if "gpu" in part), text)
            return f"--{name}", GPUS_PER[name], part if name == "gres" else text
    form = job.requested.gres_form or "node"
    text = next((part for part in job.requested.gres.split(",") if "gpu" in part), "")
    text = text.removeprefix("gres/")
    if form == "node":
        return "--gres", form, text
    option = {"job": "--gpus", "task": "--gpus-per-task", "socket": "--gpus-per-socket"}[form]
    return option, form, text.removeprefix("gpu:").removeprefix("gpu=")


def _named(option: str, text: str) -> Gpus | None:
    """All before the count, and the count; None where that is no value of the option."""
    if not value(option, text):
        return None
    match = re.fullmatch(r"(.*[:=])?(\d+)", text)
    return Gpus(match.group(1) or "", int(match.group(2))) if match else Gpus(text)


def _form(options: dict[str, str], names: dict[str, str]) -> str:
    return next((names[name] for name in options if name in names), "")


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _whole(*values: float | None) -> int | None:
    value = _first(*values)
    return None if value is None else ceil(value)


def _share(amount: float | None, parts: int) -> float | None:
    return None if amount is None else amount / parts
