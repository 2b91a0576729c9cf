"""A site's GPUs, nodes, policies and defaults: plain data; `site.read` reads the files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpumon.site.prometheus import Prometheus


@dataclass(frozen=True)
class GpuType:
    """One model of GPU, or a MIG profile of it. Peaks are TFLOPS (TOPS for integers), dense."""

    name: str  # A100-80, 1g.10gb
    match: str  # regular expression on NVML's name
    cc: str  # compute capability, "8.0"
    mem_bytes: int  # as NVML's total
    peak: Mapping[str, float] = field(default_factory=dict)  # fp64 fp32 tf32 fp16 bf16 int8 …
    bandwidth_gb_per_s: float | None = None
    year: int | None = None
    nvlink: bool = False
    gres: str = ""  # the site's name: "gpu:a100"; "" where the site has not said
    constraint: str = ""
    partition: str = ""
    infiniband: bool | None = None  # of its nodes
    mig_of: str = ""  # name of the whole GPU, for a MIG profile
    price: float | None = None  # relative
    source: str = ""  # where the figures are from

    @property
    def key(self) -> str:
        """A name of its own: two GPUs have a 1g.10gb."""
        return f"{self.mig_of}/{self.name}" if self.mig_of else self.name


@dataclass(frozen=True)
class NodeType:
    """A kind of node, for fair shares."""

    gpu: str  # GpuType.name; "" CPU node
    gpus: int
    cores: int
    mem_bytes: int
    nvlink: bool = False
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """When the site ends idle GPU jobs. Hours; None: no such rule."""

    zero_start_h: float | None = None  # no GPU use in the first so many hours
    zero_run_h: float | None = None  # so many idle hours in a row
    warn_min: tuple[float, ...] = ()
    exempt_partitions: tuple[str, ...] = ()
    exempt_walltime_below_h: float | None = None


@dataclass(frozen=True)
class Site:
    """All of it. Without a site file: the GPU table that ships, no policy, no defaults."""

    name: str = ""
    gpus: tuple[GpuType, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    policy: Policy = Policy()
    thresholds: Mapping[str, float] = field(default_factory=dict)  # "low-busy.warning_percent"
    mem_default_per_core_bytes: Mapping[str, int] = field(default_factory=dict)  # by partition
    links: Mapping[str, str] = field(default_factory=dict)
    prometheus: Prometheus = field(default_factory=Prometheus)

    def gpu_type(
        self, name: str, profile: str = "", mem_bytes: float | None = None
    ) -> GpuType | None:
        """The GPU that NVML calls `name`, or its MIG `profile`; None if unknown.

        `mem_bytes` decides between boards whose names do not tell how large they are.
        """
        found = [gpu for gpu in self.gpus if not gpu.mig_of and re.search(gpu.match, name)]
        if mem_bytes and len(found) > 1:
            found.sort(key=lambda gpu: abs(gpu.mem_bytes - mem_bytes))
        whole = found[0] if found else None
        if not profile:
            return whole
        slices = [gpu for gpu in self.gpus if whole and gpu.key == f"{whole.name}/{profile}"]
        return slices[0] if slices else None

    @property
    def offered(self) -> tuple[GpuType, ...]:
        """What one can ask for here: the GPUs that the site names, or, where it names none, all."""
        named = tuple(gpu for gpu in self.gpus if gpu.gres)
        return named or self.gpus
