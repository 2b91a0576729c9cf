"""The report: everything that any of its forms shows, as plain data.

Numbers are raw (bytes, seconds, percent 0 to 100, epoch seconds), None where nobody knows; the
texts beside them say why. One job is one Report; an array has one for all its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gpumon.analysis.finding import Finding, NotEvaluable, Recommendation
from gpumon.analysis.rundata import Coverage
from gpumon.analysis.steps import Rank
from gpumon.analysis.summary import DeviceRow
from gpumon.plain import dataclass
from gpumon.report.usage import Figures
from gpumon.slurm.job import Job


@dataclass(frozen=True)
class SeffFigures:
    """What the cluster's `seff` prints, by its version's rule, and why ours differ."""

    cpu_percent: float | None = None
    mem_percent: float | None = None
    rule: str = ""
    differs_because: tuple[str, ...] = ()
    cpu_because: str = ""
    mem_because: str = ""


@dataclass(frozen=True)
class Attempt:
    """One run of a job that was requeued, or one step of time between marks."""

    name: str
    start: float | None
    end: float | None
    state: str = ""
    note: str = ""
    cpu_cores_peak: float | None = None
    mem_peak_bytes: float | None = None
    gpu_mem_peak_bytes: float | None = None
    gpu_busy_percent: float | None = None


@dataclass(frozen=True)
class Spread:
    """The distribution of one figure over the tasks of an array."""

    name: str
    unit: str  # B, s, %, cores
    low: float
    p50: float
    p95: float
    high: float
    asked: float | None = None
    outliers: tuple[str, ...] = ()  # ids of tasks far from the rest
    count: int = 0  # tasks of which it is known


@dataclass(frozen=True)
class Tasks:
    """Of an array's report: how many tasks ended how, and how figures are spread over them."""

    states: Mapping[str, int]
    measured: int  # tasks that entered the distributions
    spreads: tuple[Spread, ...] = ()


@dataclass(frozen=True)
class Happening:
    """Something that a GPU did, or that the user marked, at one moment."""

    time: float | None  # epoch s; None: some time during the run
    label: str  # of the GPU, gpu01:0; "": of all
    text: str
    level: str  # critical, warning, info
    kind: str  # mark, xid, state, ecc, throttle
    count: int = 1  # the same, one after another, from `time` on
    duration_s: float | None = None  # of all of them together; None: it has none


@dataclass(frozen=True)
class Report:
    """One job's report. `findings` are ranked, `suppressed` are folded into one of them."""

    job: Job
    start: float | None
    end: float | None
    running: bool
    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    not_evaluable: Mapping[str, NotEvaluable]  # by id of the rule
    recommendations: tuple[Recommendation, ...]
    coverage: Coverage
    elapsed_s: float | None = None
    used: Figures = Figures()
    seff: SeffFigures = SeffFigures()
    devices: tuple[DeviceRow, ...] = ()
    #: cpu_percent, mem_percent, time_percent, gpu_…
    efficiency: Mapping[str, float | None] = field(default_factory=dict)
    efficiency_missing: Mapping[str, str] = field(default_factory=dict)
    gpu_hours: float | None = None  # allocated
    waste_gpu_hours: float = 0.0
    unattributed_gpu_hours: float = 0.0  # of it: what no finding explains
    known_gpu_hours: float = 0.0  # of which it is known what the GPUs did
    others_gpu_hours: float = 0.0  # beside it: in which only others' programs worked on its GPUs
    attempts: tuple[Attempt, ...] = ()
    segments: tuple[Attempt, ...] = ()  # between the user's marks
    happenings: tuple[Happening, ...] = ()  # marks, Xids, lost and throttled GPUs, by time
    ranks: tuple[Rank, ...] = ()  # processes that the probe reports on
    tasks: Tasks | None = None
    preliminary: str = ""  # why not all that is found is sure
    notes: tuple[str, ...] = ()
    version: str = ""  # gpumon's

    @property
    def observed_gpu_hours(self) -> float:
        """Of those allocated."""
        part = 100.0 if self.coverage.interval_s is None else self.coverage.covered_percent
        return part / 100 * (self.gpu_hours or 0.0)

    @property
    def has_job(self) -> bool:
        """Whether it is of a job; else of a node."""
        return bool(self.job.id or self.job.raw_id)

    @property
    def gpus(self) -> int | None:
        """Of the job: those that were recorded, where all were."""
        told = self.job.gpus
        return told if self.coverage.unrecorded and told else len(self.devices) or told
