"""The job around the agent, from its environment and its cgroup alone, without querying Slurm.

And the numbers that CUDA gives the devices inside that job. Every value comes from a batch
script's world and is hostile: text is cleaned, numbers are range-checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import SLUID
from gpumon.collect.procfs import Users, parse_count
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, JobContext
from gpumon.model.text import clean

_MIB = 1 << 20
_MAX_JOB = 1 << 32
_MAX_COUNT = 1 << 20
_MAX_MEM_MIB = 1 << 40
_EPOCH_RANGE = (1e9, 1e11)
#: steps that have a name instead of a number; releases before 23.02 print them as unsigned
_STEP_NAMES = {-4: "extern", -5: "batch", -6: "interactive"}
_CPUS_PER_NODE = re.compile(r"(\d{1,7})(?:\(x\d{1,7}\))?")


def job_context(environ: Mapping[str, str], cgroup: JobCgroup | None = None) -> JobContext | None:
    """The job, or None. `source` says how it is known:

    `environment` and `cgroup`; `salloc` when only the environment of a shell on another host,
    which is not one of the job's nodes, tells of it, and so nothing here is known per node.
    Where the environment tells of another job than the cgroup (a shell that ssh brought here),
    the cgroup is believed and the environment is not.
    """
    path = cgroup.job if cgroup is not None else None
    told = _id(environ)
    if path is not None and cgroup is not None and not _is_same(path.job, path.name, environ):
        return JobContext(
            id=path.job or path.name,
            user=Users().name(path.uid) if path.uid is not None else "",
            step=path.step,
            cpus=_cpus_of(cgroup),
            mem_limit_bytes=_limit_of(cgroup),
            source="cgroup",
        )
    if not told:
        return None
    here = path is not None or bool(environ.get("SLURMD_NODENAME"))
    cpus = (_cpus_of(cgroup) if cgroup else None) or _cpus(environ) if here else None
    limit = (_limit_of(cgroup) if cgroup else None) or _mem_limit(environ, cpus) if here else None
    return JobContext(
        id=told,
        name=_name(environ),
        user=_text(environ, "SLURM_JOB_USER"),
        account=_text(environ, "SLURM_JOB_ACCOUNT"),
        partition=_text(environ, "SLURM_JOB_PARTITION"),
        cluster=_text(environ, "SLURM_CLUSTER_NAME"),
        nodes=_text(environ, "SLURM_JOB_NODELIST") or _text(environ, "SLURM_NODELIST"),
        node_count=_number(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES") or 0,
        step=(path.step if path is not None else "") or _step(environ),
        array=_array(environ),
        cpus=cpus,
        mem_limit_bytes=limit,
        gpus=_gpus(environ) if here else None,
        start=_epoch(environ, "SLURM_JOB_START_TIME"),
        end=_epoch(environ, "SLURM_JOB_END_TIME"),
        source="environment" if here else "salloc",
        restarts=_restarts(environ),
        own_step=is_own_step(environ),
    )


def is_own_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this very process: then its step ends as gpumon does.

    A process beside a recorded command, or below a shell, is another one than Slurm started.
    """
    return _step(environ).isdecimal() and environ.get("SLURM_TASK_PID") == str(os.getpid())


def _id(environ: Mapping[str, str]) -> str:
    number = _number(environ, "SLURM_JOB_ID", "SLURM_JOBID", high=_MAX_JOB)
    return str(number) if number else ""


def _is_same(job: str, name: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment tells of the job whose cgroup has this id and directory."""
    if job:
        return job == _id(environ)
    return bool(SLUID.fullmatch(name)) and environ.get("SLURM_JOB_SLUID") == name


def _text(environ: Mapping[str, str], name: str) -> str:
    return clean(environ.get(name, ""), 256).strip()


def _name(environ: Mapping[str, str]) -> str:
    """The job's, or "" in a step that `srun --jobid` brought from outside: there it is srun's.

    Such a step alone lacks SLURM_JOB_NUM_NODES (seen on Slurm 22.05 and 26.05).
    """
    return "" if _is_brought(environ) else _text(environ, "SLURM_JOB_NAME")


def _is_brought(environ: Mapping[str, str]) -> bool:
    return _step(environ).isdecimal() and "SLURM_JOB_NUM_NODES" not in environ


def _restarts(environ: Mapping[str, str]) -> int | None:
    """Slurm sets the variable from the first restart on, and not in a step from outside."""
    told = _number(environ, "SLURM_RESTART_COUNT")
    return told if told is not None or _is_brought(environ) else 0


def _number(environ: Mapping[str, str], *names: str, high: int = _MAX_COUNT) -> int | None:
    """The first of these variables that is a number in range."""
    for name in names:
        value = parse_count(environ.get(name, ""))
        if value is not None and value < high:
            return value
    return None


def _epoch(environ: Mapping[str, str], name: str) -> float | None:
    value = parse_count(environ.get(name, ""))
    low, high = _EPOCH_RANGE
    return float(value) if value is not None and low <= value <= high else None


def _step(environ: Mapping[str, str]) -> str:
    text = environ.get("SLURM_STEP_ID", "") or environ.get("SLURM_STEPID", "")
    number = parse_count(text.removeprefix("-"))
    if number is None or number >= _MAX_JOB:
        return ""
    signed = -number if text.startswith("-") else number
    return _STEP_NAMES.get(signed if signed < 1 << 31 else signed - (1 << 32), str(signed))


def _array(environ: Mapping[str, str]) -> str:
    job = _number(environ, "SLURM_ARRAY_JOB_ID", high=_MAX_JOB)
    task = _number(environ, "SLURM_ARRAY_TASK_ID", high=_MAX_JOB)
    return "" if job is None or task is None else f"{job}_{task}"


def _cpus_of(cgroup: JobCgroup) -> int | None:
    cpus = cgroup.cpus()
    return None if isinstance(cpus, Missing) else len(cpus)


def _limit_of(cgroup: JobCgroup) -> int | None:
    limit = cgroup.mem_limit_bytes()
    return None if isinstance(limit, Missing) else limit


def _cpus(environ: Mapping[str, str]) -> int | None:
    """The job's on this node where that is the same on all its nodes, else this step's."""
    text = environ.get("SLURM_JOB_CPUS_PER_NODE", "")
    uniform = _CPUS_PER_NODE.fullmatch(text)
    return (int(uniform.group(1)) if uniform else 0) or _number(environ, "SLURM_CPUS_ON_NODE")


def _mem_limit(environ: Mapping[str, str], cpus: int | None) -> int | None:
    """Bytes on this node; a request of 0 means all there is, which is not known from here."""
    per_node = _number(environ, "SLURM_MEM_PER_NODE", high=_MAX_MEM_MIB)
    if per_node:
        return per_node * _MIB
    per_cpu = _number(environ, "SLURM_MEM_PER_CPU", high=_MAX_MEM_MIB)
    return per_cpu * cpus * _MIB if per_cpu and cpus else None


def _gpus(environ: Mapping[str, str]) -> int | None:
    """How many on this node. SLURM_JOB_GPUS is the batch node's, wherever it is read."""
    count = _number(environ, "SLURM_GPUS_ON_NODE")
    if count is not None:
        return count
    if environ.get("SLURM_NODEID", "0") != "0" and "SLURM_STEP_GPUS" not in environ:
        return None
    listed = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS")
    return len([part for part in listed.split(",") if part.strip()]) if listed else None


# -- the numbers that CUDA gives devices ---------------------------------------------------------

_NO_DEVICES = ("NoDevFiles", "")
_OLD_MIG = re.compile(r"MIG-(?P<parent>GPU-[0-9A-Fa-f-]+)/(?P<gi>\d{1,3})/(?P<ci>\d{1,3})")


def cuda_order(
    visible: str | None,
    devices: list[Device],
    device_order: str | None = None,
    minors: Collection[int] | None = None,
) -> dict[int, int]:
    """Device key -> CUDA's number, for the devices that CUDA shows.

    `visible` is CUDA_VISIBLE_DEVICES (None: not set), `device_order` CUDA_DEVICE_ORDER,
    `minors` the GPUs that the job's device cgroup allows (None: all that are listed): indices
    count among those. An entry that names no device ends the list. A device that is absent from
    the answer is not shown, or its number is not known: `cuda_order_note` says which.
    """
    usable = sorted(allowed(devices, minors), key=lambda device: device.index)
    ordinals = _ordinals(usable)
    if visible is None:
        if _is_ambiguous(usable, device_order):
            return {}
        # with an instance in sight, CUDA shows one of them and no whole GPU
        return _numbered([device for device in ordinals if device.mig][:1] or ordinals)
    names = [name.strip() for name in visible.split(",")]
    if names[0] in _NO_DEVICES:
        return {}
    if names[0].isdigit() and _is_ambiguous(usable, device_order):
        return {}
    shown: list[Device] = []
    for name in names:
        device = _named(name, usable, ordinals)
        if device is None:
            break
        if device in shown:  # CUDA then shows nothing at all
            return {}
        shown.append(device)
    return _numbered(shown)


def cuda_order_note(
    visible: str | None,
    devices: list[Device],
    device_order: str | None = None,
    minors: Collection[int] | None = None,
) -> str:
    """A note if CUDA's numbers cannot be determined, else ""."""
    by_index = visible is None or visible.split(",")[0].strip().isdigit()
    if by_index and _is_ambiguous(allowed(devices, minors), device_order):
        return (
            "The GPUs' CUDA numbers are unknown: CUDA sorts different models by speed. Set"
            " CUDA_DEVICE_ORDER=PCI_BUS_ID to number them as nvidia-smi does."
        )
    return ""


def allowed(devices: list[Device], minors: Collection[int] | None) -> list[Device]:
    if minors is None:
        return list(devices)
    parents = {d.uuid for d in devices if d.mig is None and d.facts.get("minor") in minors}
    return [d for d in devices if (d.mig.parent if d.mig else d.uuid) in parents]


def _is_ambiguous(devices: list[Device], device_order: str | None) -> bool:
    """CUDA's default order, FASTEST_FIRST, is the bus order only among GPUs of one model."""
    if device_order == "PCI_BUS_ID":
        return False
    return len({device.name for device in devices if device.mig is None}) > 1


def _ordinals(devices: list[Device]) -> list[Device]:
    """What an index counts: GPUs, each that is divided by its first MIG instance."""
    of_gpu: dict[str, Device] = {}
    for device in devices:
        gpu = device.mig.parent if device.mig else device.uuid or f"key {device.key}"
        if gpu not in of_gpu or (device.mig and not of_gpu[gpu].mig):
            of_gpu[gpu] = device
    return list(of_gpu.values())


def _named(name: str, devices: list[Device], ordinals: list[Device]) -> Device | None:
    """The device that one entry of CUDA_VISIBLE_DEVICES names, or None."""
    if name.isascii() and name.isdigit():
        number = parse_count(name)
        return ordinals[number] if number is not None and number < len(ordinals) else None
    old = _OLD_MIG.fullmatch(name)
    if old:
        place = (old.group("parent"), int(old.group("gi")), int(old.group("ci")))
        matches = [d for d in devices if d.mig and (d.mig.parent, d.mig.gi, d.mig.ci) == place]
    elif name.startswith(("GPU-", "MIG-")):
        matches = [device for device in devices if device.uuid.startswith(name)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None


def _numbered(devices: list[Device]) -> dict[int, int]:
    return {device.key: number for number, device in enumerate(devices)}
