"""What is known of a run: the job, and what was measured, on one grid of time.

Findings are pure functions of this. The grid has bins of 10 s, wider ones in runs that are long;
a bin holds the mean, the least and the greatest of what was read in it, NaN where nothing was: a
gap, which is not 0.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import nan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.phases import change_points
from gpumon.frames.places import Looks, Place
from gpumon.model.reading import Reading, number
from gpumon.model.sample import Device, Event, Header, Process

if TYPE_CHECKING:
    from gpumon.analysis.summary import RunSummary
    from gpumon.site import Site
    from gpumon.slurm.job import Job


@dataclass
class Track:
    """One reading over the run; all three have one entry per bin of the grid.

    What was computed over the whole run is kept: the arrays do not change once it was asked.
    """

    mean: array[float] = field(default_factory=lambda: array("f"))
    low: array[float] = field(default_factory=lambda: array("f"))
    high: array[float] = field(default_factory=lambda: array("f"))

    def known(self, first: int = 0, last: int | None = None) -> list[float]:
        """The means of the bins that hold something, from bin `first` to before `last`."""
        values = self.mean[first:last].tolist()
        total = sum(values)  # NaN as soon as one of them is
        return values if total == total else [value for value in values if value == value]

    def total(self, first: int = 0, last: int | None = None) -> tuple[float, int]:
        """Of the bins that hold something: the sum of their means, and how many they are."""
        if not first and (last is None or last == len(self.mean)):
            return self._whole_sum
        return _summed(self.mean[first:last])

    def known_count(self, first: int = 0, last: int | None = None) -> int:
        """How many bins hold something."""
        return self.total(first, last)[1]

    def average(self, first: int = 0, last: int | None = None) -> float | None:
        total, count = self.total(first, last)
        return total / count if count else None

    def peak(self, first: int = 0, last: int | None = None) -> float | None:
        """The greatest single reading."""
        if not first and last is None:
            return self._whole_peak
        return _greatest(self.high[first:last])

    def share(self, first: int = 0, last: int | None = None) -> float:
        """Part of the bins that hold something, 0 to 1."""
        bins = len(range(*slice(first, last).indices(len(self.mean))))
        return self.total(first, last)[1] / bins if bins else 0.0

    def windows(self, width: int, step: int, count: int, least: float) -> list[float]:
        """Means of windows of `width` bins, which end 0, `step`, 2 · `step` … before bin `count`.

        NaN where fewer than `least` of its bins hold something. O(1) a window: a difference of two
        sums from the beginning, which doubles hold exactly enough (a day of bytes to 0.1 B).
        """
        key = (width, step, count, least)
        means = self._windows.get(key)
        if means is None:
            means = self._windows[key] = self._window_means(*key) if count >= width else []
        return means

    def _window_means(self, width: int, step: int, count: int, least: float) -> list[float]:
        sums, counts = self._sums
        if len(sums) <= count:  # beyond its end nothing is known
            beyond = count + 1 - len(sums)
            sums, counts = sums + sums[-1:] * beyond, counts + counts[-1:] * beyond
        begin, end = slice(count - width, None, -step), slice(count, width - 1, -step)
        totals = zip(sums[begin], sums[end])
        if counts[count] == count:
            return [(upto - before) / width for before, upto in totals]
        known = [upto - before for before, upto in zip(counts[begin], counts[end])]
        return [
            (upto - before) / bins if bins >= least else nan
            for (before, upto), bins in zip(totals, known)
        ]

    def cuts(self, least: int) -> list[int]:
        """The bins at which it goes on at another level, each of which lasts `least` bins."""
        if least not in self._cuts:
            self._cuts[least] = change_points(self.mean, least)
        return self._cuts[least]

    @cached_property
    def _cuts(self) -> dict[int, list[int]]:
        return {}

    @cached_property
    def _whole_sum(self) -> tuple[float, int]:
        return _summed(self.mean)

    @cached_property
    def _whole_peak(self) -> float | None:
        return _greatest(self.high)

    @cached_property
    def _windows(self) -> dict[tuple[int, int, int, float], list[float]]:
        return {}

    @cached_property
    def _sums(self) -> tuple[array[float], array[int]]:
        """Before each bin, and behind the last: the sum of what is known so far, and its bins."""
        size = len(self.mean)
        if self._whole_sum[1] == size:
            return array("d", accumulate(self.mean, initial=0.0)), array("l", range(size + 1))
        values = [value if value == value else 0.0 for value in self.mean]
        known = (value == value for value in self.mean)
        return array("d", accumulate(values, initial=0.0)), array("l", accumulate(known, initial=0))


def _summed(values: array[float]) -> tuple[float, int]:
    total = sum(values)
    if total == total:
        return total, len(values)
    known = [value for value in values if value == value]
    return sum(known), len(known)


def _greatest(values: array[float]) -> float | None:
    return max((value for value in values if value == value), default=None)


@dataclass
class PoolData:
    """A framework's pool of memory on a device, as its process's probe tells it: from inside.

    The peaks are the most of what was told, whatever the program reset; None: not told.
    """

    last: float  # epoch s
    used_bytes: Track
    reserved_bytes: Track
    peak_bytes: float | None = None
    reserved_peak_bytes: float | None = None
    limit_bytes: float | None = None
    retries: float | None = None
    ooms: float | None = None


@dataclass
class ProcessData:
    """A process on a device: when it was there, and its memory there."""

    facts: Process
    first: float  # epoch s
    last: float
    ended: bool
    mem_bytes: Track
    sm_percent: Track
    #: epoch s, and bytes then: at full resolution over its first ten minutes on the device
    rise: tuple[Sequence[float], Sequence[float]] = ((), ())
    frameworks: tuple[str, ...] = ()  # all tags seen, the most telling first
    appeared: bool = True  # it came while its device was watched: `rise` begins at its beginning
    others_bytes: float | None = None  # in use beside it when it came, the driver's reserve too
    pool: PoolData | None = None  # None: no probe told of one


@dataclass
class DeviceData:
    """One device of the run. `tracks` has the names of `model.fields` ("busy_percent", …).

    `active` is 1, 0 or between in each bin: the share of it in which the device was known to
    work, by the driver's own samples, a process's use of the SMs, GPM, or `busy_percent`; NaN
    where none of them is to be had: unknown, never idle.
    `polled` tells that some zeros of `active` rest on polling `busy_percent` alone, which misses
    bursts: a verdict "idle" is then of medium confidence at most.
    """

    node: str
    device: Device
    tracks: dict[str, Track]
    active: Track
    polled: bool = False
    throttle: dict[str, Track] = field(default_factory=dict)  # reason -> share of ticks, 0 to 1
    processes: list[ProcessData] = field(default_factory=list)
    mem_before_bytes: float | None = None  # used before the first process of the job came
    process_list_known: bool = True  # it could be read
    xids: list[Event] = field(default_factory=list)
    #: when it fared otherwise: text is lost, hung, error, or well again; data has the detail. Of
    #: kind "ecc", memory errors: text is their number
    states: list[Event] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)  # growth over the run: energy_j, …
    last: dict[str, Reading] = field(default_factory=dict)  # newest reading or reason of each field
    refused: dict[str, str] = field(default_factory=dict)  # counters that cannot be, and why

    @property
    def label(self) -> str:
        """`gpu01:0`, as everywhere."""
        return f"{self.node}:{self.device.label}"

    @property
    def mem_total_bytes(self) -> float | None:
        return number(self.device.facts.get("mem_total_bytes"))

    def track(self, name: str) -> Track:
        """Of one field; empty where it never was read."""
        return self.tracks.get(name) or Track()


@dataclass
class ProgramData:
    """What the probe reports of one process, from inside. Times are epoch s."""

    facts: Process
    first: float  # reported
    last: float
    rank: int | None  # as its launcher numbers the processes
    steps: float | None  # that it was seen to make
    stepped: float | None  # when it was last seen to have made one
    place: Place  # where it was last
    since: float  # ... at every look
    tracks: dict[str, Track] = field(default_factory=dict)  # step_us, step_p95_us, …
    looks: Looks = field(default_factory=Looks)
    worker_looks: Looks = field(default_factory=Looks)  # of all its data loader's workers
    workers: int = 0  # of its data loader, at a time
    grid_first: int = 0  # bucket of the looks' grid at which the tracks begin

    def track(self, name: str) -> Track:
        """Of one field; empty where it never was read."""
        return self.tracks.get(name) or Track()

    def places(self, spans: Iterable[Sequence[int]] | None = None) -> Counter[Place]:
        """How often it was seen where, in these spans of bins or in all."""
        return self.looks.during(self._absolute(spans))

    def worker_places(self, spans: Iterable[Sequence[int]] | None = None) -> Counter[Place]:
        """The same of its data loader's workers."""
        return self.worker_looks.during(self._absolute(spans))

    def _absolute(self, spans: Iterable[Sequence[int]] | None) -> list[list[int]] | None:
        if spans is None:
            return None
        return [[first + self.grid_first, last + self.grid_first] for first, last in spans]


@dataclass
class NodeData:
    """One node of the run: the job's cgroup there, and the host. Names as in `model.fields`."""

    node: str
    header: Header
    job: dict[str, Track]
    host: dict[str, Track]
    net: dict[str, dict[str, Track]] = field(default_factory=dict)  # interface -> field -> track
    disks: dict[str, dict[str, Track]] = field(default_factory=dict)  # label -> field -> track
    disk_paths: dict[str, str] = field(default_factory=dict)  # label -> path
    #: own or job processes that were seen using CPU: pid -> (facts, cpu_percent)
    processes: dict[int, tuple[Process, Track]] = field(default_factory=dict)
    threads: Track = field(default_factory=Track)  # of the job's processes together
    runnable: Track = field(default_factory=Track)  # of them, that run or wait for a core
    blocked: Track = field(default_factory=Track)  # of them, in uninterruptible sleep: mostly I/O
    covered: Track = field(default_factory=Track)  # 1 where a sample came
    oom_kills: int | None = None  # during the run
    cpu_core_s: float | None = None  # growth of the kernel's counter; across gaps too
    mem_limit_bytes: float | None = None
    last: dict[str, Reading] = field(default_factory=dict)  # newest reading or reason of job.*
    peak60_cores: float | None = None  # largest mean of a minute
    mem_peak_bytes: float | None = None  # greatest single reading, without page cache
    mem_charged_peak_bytes: float | None = None  # the kernel's own peak, page cache included
    oom_kills_told: int | None = None  # the newest reading: also from before the samples
    span: tuple[float, float] | None = None  # epoch s of the first and the last sample
    covered_s: float = 0.0  # of it
    gaps: int = 0  # how often samples failed to come
    cpu_refused: str = ""  # why `cpu_core_s` cannot be
    programs: list[ProgramData] = field(default_factory=list)  # that the probe reports on

    @property
    def cpus(self) -> int | None:
        """Allocated on this node."""
        return self.header.job.cpus if self.header.job else None


class Part(NamedTuple):
    """What one of several sources covers of a run."""

    source: str
    interval_s: float
    percent: float  # of the run; of a second source, what the first lacks


@dataclass
class Coverage:
    """Which part of the run was measured, and how."""

    source: str  # recording, live, jobstats, sacct
    covered_percent: float
    interval_s: float | None  # the longest, where there are several
    gaps: int = 0
    longest_gap_s: float = 0.0
    from_start: bool = False  # the samples begin with the job
    to_end: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)  # what is not known -> why
    #: nodes of the job of which no sample came; the rest is of the others
    unrecorded: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()  # where there are several sources


@dataclass(frozen=True)
class Queue:
    """What waits and what is idle, by the site's name of a GPU ("gpu:a100"), at one moment."""

    time: float  # epoch s
    waiting: Mapping[str, int] = field(default_factory=dict)  # jobs that wait for it
    idle: Mapping[str, int] = field(default_factory=dict)  # GPUs that nobody holds


@dataclass
class RunData:
    """All that is known of one run. `devices` and `nodes` are empty without samples."""

    job: Job | None
    start: float  # epoch s: of the job where that is known, else of the first sample
    end: float  # of the job, or the newest sample
    live: bool  # it runs; `end` is now
    bin_s: float
    devices: list[DeviceData]
    nodes: list[NodeData]
    events: list[tuple[str, Event]]  # (node, event): marks, process ends, notes
    coverage: Coverage
    site: Site
    log_tail: str = ""  # end of the job's stderr, where readable; control characters stripped
    siblings: Sequence[Job] = ()  # tasks of the same array, attempts of the same job
    queue: Queue | None = None  # None: it was not asked

    @property
    def elapsed_s(self) -> float:
        """How long it ran, without the time it was suspended."""
        suspended_s = self.job.suspended_s if self.job is not None else None
        return max(0.0, self.end - self.start - (suspended_s or 0.0))

    @property
    def has_samples(self) -> bool:
        return bool(self.nodes)

    def bins(self, seconds: float) -> int:
        """So many bins span `seconds`, at least one."""
        return max(1, round(seconds / self.bin_s))

    def bin_at(self, time: float) -> int:
        return max(0, int((time - self.grid_start) // self.bin_s))

    #: epoch s of the first bin's start
    grid_start: float = nan
    #: bins in the grid
    count: int = 0
    #: recordings of the siblings, where there are any: raw id -> summary
    sibling_runs: Mapping[str, RunSummary] = field(default_factory=dict)

    def by_node(self) -> Iterator[tuple[NodeData, list[DeviceData]]]:
        for node in self.nodes:
            yield node, [device for device in self.devices if device.node == node.node]
