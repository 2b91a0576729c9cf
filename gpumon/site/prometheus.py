"""What a site's Prometheus has: where it is, and the families of metrics that exporters write.

A family is a declaration: which metric is which reading of gpumon, in which unit, and which labels
name the node, the GPU and the job. `families.toml` has those of other exporters that ship; a site's
file adds its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """One metric of an exporter, and the reading that it holds."""

    name: str
    #: entity and field as in `model.fields` ("device.busy_percent"), "fact.mem_total_bytes" of a
    #: device, or "host_fact.mem_total_bytes"
    reading: str
    scale: float = 1.0  # from the metric's unit to the reading's
    where: Mapping[str, str] = field(default_factory=dict)  # labels that it must have
    #: several metrics with this reading make it up together: their sum; 1 or -1, 0: alone
    part: float = 0.0
    rate: bool = False  # a counter whose increase per second is the reading
    whole: bool = False  # of the whole GPU, also in the series of a MIG instance
    beside: str = ""  # only where this metric exists for the same GPU or job
    unless: str = ""  # only where that does not


@dataclass(frozen=True)
class Family:
    """The metrics of one exporter, which have their labels in common."""

    name: str
    about: str
    metrics: tuple[Metric, ...]
    source: str = ""  # where its metrics are described
    node: tuple[str, ...] = ("instance",)  # labels with the host; the first that a series has
    job: str = ""  # label with the job's number
    #: metric whose value is the number of the job on that GPU, where no label has it
    job_metric: str = ""
    uuid: str = ""  # labels of a GPU
    index: str = ""
    gpu_name: str = ""
    mig: str = ""  # label with the GPU instance's number, of MIG
    mig_profile: str = ""

    @property
    def has_devices(self) -> bool:
        """Whether it measures GPUs."""
        return any(each.reading.startswith("device.") for each in self.metrics)


@dataclass(frozen=True)
class Prometheus:
    """The server of a site, as its file says. Files with secrets are named, never their content."""

    url: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # that all series of this cluster have
    interval_s: float | None = None  # between scrapes; None: seen from the data
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    families: tuple[Family, ...] = ()  # of the site's own, then those that ship
