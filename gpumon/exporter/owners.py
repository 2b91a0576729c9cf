"""Which of the node's GPUs a job was given, so that one without a process is its own, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.job.devices import given, named
from gpumon.collect.proc.frameworks import parse_environ
from gpumon.collect.procfs import ProcFs
from gpumon.model.reading import Missing
from gpumon.model.sample import Device

#: of a job, that are read for what Slurm wrote into them
_MAX_ENVIRONMENTS = 64


def gpus_of(cgroup: JobCgroup, devices: list[Device], proc: ProcFs) -> set[int]:
    """Device keys: by its device cgroup, by UUID, and by Slurm's own numbers."""
    pids = sorted(cgroup.pids())[:_MAX_ENVIRONMENTS]
    return given(cgroup, devices) | named(proc, pids, devices) | _numbered(proc, pids, devices)


def _numbered(proc: ProcFs, pids: Iterable[int], devices: list[Device]) -> set[int]:
    """By SLURM_STEP_GPUS and SLURM_JOB_GPUS, which count device files. They are believed only where
    the files and NVML count alike, and no GPU is divided.
    """
    if any(each.mig or each.facts.get("minor") != each.index for each in devices):
        return set()
    numbers: set[str] = set()
    for pid in pids:
        content = proc.content(pid, "environ")
        if not isinstance(content, Missing):
            numbers.update(_listed(parse_environ(content) or {}))
    return {each.key for each in devices if str(each.index) in numbers}


def _listed(environ: Mapping[str, str]) -> list[str]:
    """SLURM_JOB_GPUS is the batch node's, wherever it is read."""
    if step := environ.get("SLURM_STEP_GPUS"):
        return step.split(",")
    is_first = environ.get("SLURM_NODEID", "0") == "0"
    return environ.get("SLURM_JOB_GPUS", "").split(",") if is_first else []
