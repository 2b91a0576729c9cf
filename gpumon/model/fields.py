"""Every reading that gpumon takes: one table.

Collectors fill these names, the wire declares them in its header and checks their range, the
store knows from here which of them are series and how old is too old, and the JSON and the
documentation take names and units from here. Sizes are bytes, times seconds, powers watts.

A *group* is a set of fields of one entity that are read together, at one period; only groups
that were read in a tick travel in that tick's sample.
"""

from __future__ import annotations

from typing import NamedTuple

#: upper bounds beyond which a number is a driver's or a file's mistake, never a measurement
_PERCENT = 100.0
_BYTES = 2.0**60
_GPU_BYTES = 2.0**42  # the largest board has 288 GB
_RATE = 1e14
_COUNT = 2.0**63


#: unit -> decimals; finer than that is noise of the instrument or of the moment of reading (power
#: is within 5 W, CPU time is counted in 10 ms), and the wire does not carry it. Others: 2
DECIMALS = {"%": 1, "W": 1, "°C": 1, "ms": 1}
DECIMALS.update(dict.fromkeys(("J", "MHz", "B", "B/s", "bit/s", "µs"), 0))
#: memory that moves with every page: the kernel itself counts it to some MiB on many CPUs
_NOISY = 4


#: `Field.kept`
JUDGED, SHOWN = "judged", "shown"


class Field(NamedTuple):
    """One reading: `entity.name`, its unit, and the closed range of plausible values."""

    name: str
    unit: str
    high: float
    series: bool = False  # kept over time by the store: screens draw it or ask its statistics
    low: float = 0.0
    text: bool = False
    digits: int = 0  # significant ones that the wire carries; 0: all
    kept: str = ""  # in frames: JUDGED where rules ask for it, SHOWN where only screens do
    metric: str = "gauge"  # what it is in Prometheus; "counter" of what only grows, "" of no metric

    @property
    def decimals(self) -> int:
        """Digits behind the point that the wire carries."""
        return DECIMALS.get(self.unit, 2)


class Group(NamedTuple):
    """Fields of one entity that are read together every `period_s` seconds (0: each tick)."""

    entity: str
    name: str
    period_s: float
    fields: tuple[Field, ...]

    @property
    def key(self) -> str:
        return f"{self.entity}.{self.name}"


def _group(entity: str, name: str, period_s: float, *fields: Field) -> Group:
    return Group(entity, name, period_s, fields)


def _rate(name: str, *, series: bool = False, kept: str = "") -> Field:
    """Bytes per second. Three digits: it hangs on the moments of two readings, ms apart."""
    return Field(name, "B/s", _RATE, series=series, digits=3, kept=kept)


def _text(name: str) -> Field:
    return Field(name, "", 0, text=True)


# fmt: off
GROUPS: tuple[Group, ...] = (
    # -- devices (key: the device's number in the stream, `Device.key`) ---------------------
    _group(
        "device", "fast", 0,
        Field("busy_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("mem_controller_percent", "%", _PERCENT, kept=JUDGED),
        # without the driver's own reserve
        Field("mem_used_bytes", "B", _GPU_BYTES, series=True, kept=JUDGED),
        Field("mem_reserved_bytes", "B", _GPU_BYTES),
        Field("power_w", "W", 20_000, series=True, kept=JUDGED),
    ),
    # the driver's own samples (about 6 a second) since the last read: bursts between ticks
    _group(
        "device", "burst", 2,
        Field("busy_mean_percent", "%", _PERCENT),
        Field("busy_min_percent", "%", _PERCENT, kept=SHOWN),
        Field("busy_max_percent", "%", _PERCENT, kept=SHOWN),
        Field("busy_gap_s", "s", 1e9),  # part of the time that the driver's buffer no longer held
    ),
    _group(
        "device", "gpm", 0,
        Field("sm_active_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("sm_occupancy_percent", "%", _PERCENT, series=True, kept=SHOWN),
        Field("tensor_active_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("dram_active_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("fp64_active_percent", "%", _PERCENT, kept=JUDGED),
        Field("fp32_active_percent", "%", _PERCENT, kept=JUDGED),
        Field("fp16_active_percent", "%", _PERCENT, kept=SHOWN),
        Field("int_active_percent", "%", _PERCENT, kept=SHOWN),
    ),
    _group(
        "device", "clocks", 2,
        Field("sm_clock_mhz", "MHz", 20_000, series=True, kept=JUDGED),
        Field("mem_clock_mhz", "MHz", 50_000),
        # NVML's clock event reasons, bits
        Field("throttle_mask", "", _COUNT, series=True, kept=JUDGED, metric=""),
    ),
    _group(
        "device", "links", 2,
        _rate("pcie_tx_bytes_per_s", series=True, kept=JUDGED),  # device to host
        _rate("pcie_rx_bytes_per_s", series=True, kept=JUDGED),
        _rate("nvlink_tx_bytes_per_s", series=True, kept=JUDGED),  # all links together
        _rate("nvlink_rx_bytes_per_s", series=True, kept=JUDGED),
        Field("energy_j", "J", 1e15, metric="counter"),  # since the driver was loaded
        # counters since the driver was loaded
        Field("throttle_power_s", "s", 1e12, metric="counter"),
        Field("throttle_thermal_s", "s", 1e12, metric="counter"),
    ),
    _group(
        "device", "thermal", 5,
        Field("temperature_c", "°C", 250, series=True, low=-60, kept=JUDGED),
        Field("mem_temperature_c", "°C", 250, low=-60, kept=SHOWN),
        Field("fan_percent", "%", 200),
        Field("encoder_percent", "%", _PERCENT, kept=JUDGED),
        Field("decoder_percent", "%", _PERCENT, kept=JUDGED),
    ),
    _group(
        "device", "state", 10,
        Field("pstate", "", 32),
        Field("power_limit_w", "W", 20_000, kept=JUDGED),
        Field("pcie_gen", "", 16, kept=JUDGED),
        Field("pcie_width", "", 64, kept=JUDGED),
        Field("pcie_replays", "", _COUNT, metric="counter"),
        Field("bar1_used_bytes", "B", _GPU_BYTES),
    ),
    _group(
        "device", "health", 60,
        Field("ecc_corrected", "", _COUNT, metric="counter"),  # since the driver was loaded
        Field("ecc_uncorrected", "", _COUNT, metric="counter"),
        Field("retired_pages", "", _COUNT),  # by single and double bit errors together
        Field("retired_pending", "", 1),
        Field("remapped_corrected", "", _COUNT),
        Field("remapped_uncorrected", "", _COUNT),
        Field("remap_pending", "", 1),
        Field("remap_failed", "", 1),
        Field("recovery_action", "", 16),  # 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset
        Field("persistence_mode", "", 1),
        Field("compute_mode", "", 8),
        Field("mig_mode", "", 1),
        Field("accounting_mode", "", 1),
    ),
    _group(
        "device", "processes", 2,
        Field("processes", "", 1e7),  # how many; none of them in `usage` where this is missing
    ),
    # -- what a process does on a device (key: [device key, pid]) ---------------------------
    _group(
        "usage", "usage", 2,
        _text("type"),  # C compute, G graphics, M compute through MPS; joined when several
        Field("mem_bytes", "B", _GPU_BYTES, series=True, kept=JUDGED),
        # over the driver's last period
        Field("sm_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("mem_percent", "%", _PERCENT),
        Field("encoder_percent", "%", _PERCENT),
        Field("decoder_percent", "%", _PERCENT),
        Field("mem_peak_bytes", "B", _GPU_BYTES),  # accounting mode only
    ),
    # -- a process on the node (key: pid) ---------------------------------------------------
    _group(
        "process", "process", 2,
        # of one core; above 100 with several threads
        Field("cpu_percent", "%", 1e6, series=True, kept=JUDGED),
        Field("rss_bytes", "B", _BYTES, digits=_NOISY, series=True, kept=SHOWN),
        Field("threads", "", 1e7),
        _text("state"),  # R S D T Z …, as /proc says
        Field("cpu_s", "s", 1e12, metric="counter"),
        _rate("read_bytes_per_s"),  # own processes only
        _rate("write_bytes_per_s"),
    ),
    # -- what the probe knows of a process, from inside ---------------------------------------
    # of a framework's own pool of device memory, of which the driver sees the size alone (key:
    # [device key, pid])
    _group(
        "pool", "pool", 2,
        Field("used_bytes", "B", _GPU_BYTES, series=True, kept=JUDGED),  # by tensors
        Field("peak_bytes", "B", _GPU_BYTES),  # ... at most so far
        Field("reserved_bytes", "B", _GPU_BYTES, kept=JUDGED),
        Field("reserved_peak_bytes", "B", _GPU_BYTES),
        Field("limit_bytes", "B", _BYTES),
        Field("retries", "", _COUNT),  # allocations that first had to free what was held
        Field("ooms", "", _COUNT),
    ),
    # of its steps, over the last ten seconds (key: pid)
    _group(
        "program", "program", 2,
        Field("steps", "", _COUNT),  # of its optimizer, so far
        Field("step_us", "µs", 1e13, kept=JUDGED),  # mean
        Field("step_p95_us", "µs", 1e13, kept=JUDGED),
        # of its main thread's time, in the data loader
        Field("data_wait_percent", "%", _PERCENT, kept=JUDGED),
        _text("place"),  # where that stands: the user's own line, and the deepest call
        _text("waits_for"),  # there: data, ranks (in a collective), or a loader's worker for work
        Field("rank", "", 1e9),  # as the launcher numbers the processes
        Field("worker", "", 1e6),  # of a data loader; these have no steps of their own
    ),
    # -- the node (key: "") ------------------------------------------------------------------
    _group(
        "host", "host", 0,
        Field("cpu_percent", "%", _PERCENT, series=True, kept=JUDGED),
        Field("iowait_percent", "%", _PERCENT, kept=JUDGED),
        # total − available
        Field("mem_used_bytes", "B", _BYTES, series=True, digits=_NOISY, kept=JUDGED),
        Field("mem_cache_bytes", "B", _BYTES, series=True, digits=_NOISY, kept=JUDGED),
        Field("swap_used_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        Field("load1", "", 1e7, kept=JUDGED),
        Field("load5", "", 1e7, kept=SHOWN),
        Field("load15", "", 1e7, kept=SHOWN),
    ),
    _group(
        "host", "cores", 2,
        # a character for each CPU by its number: 0 to 9 for tenths of its time, "-" for one that is
        # offline, "?" where that is not known
        _text("core_levels"),
    ),
    _group(
        "host", "disks", 5,
        _rate("disk_read_bytes_per_s", series=True, kept=JUDGED),  # all local disks together
        _rate("disk_write_bytes_per_s", series=True, kept=JUDGED),
    ),
    _group(
        "host", "pressure", 5,
        Field("cpu_pressure_percent", "%", _PERCENT, kept=JUDGED),  # "some", mean of 10 s
        Field("mem_pressure_percent", "%", _PERCENT, kept=SHOWN),
        Field("io_pressure_percent", "%", _PERCENT, kept=JUDGED),
    ),
    # -- the job's cgroup (key: "") ----------------------------------------------------------
    _group(
        "job", "cgroup", 0,
        Field("cpu_cores_used", "", 1e6, series=True, kept=JUDGED),
        Field("cpu_s", "s", 1e12, metric="counter"),
        # share of periods that hit the quota
        Field("cpu_throttled_percent", "%", _PERCENT, kept=JUDGED),
        # what cannot be given back: anonymous + shared + unreclaimable kernel memory
        Field("mem_used_bytes", "B", _BYTES, series=True, digits=_NOISY, kept=JUDGED),
        Field("mem_anon_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        Field("mem_shmem_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        # without shmem
        Field("mem_cache_bytes", "B", _BYTES, series=True, digits=_NOISY, kept=JUDGED),
        # of it, what was read more than once
        Field("mem_active_cache_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        # all that counts against the limit
        Field("mem_charged_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        # the kernel's own peak so far, cache included
        Field("mem_peak_bytes", "B", _BYTES, kept=JUDGED),
        Field("mem_limit_bytes", "B", _BYTES),
        # gpumon's, in none of the above
        Field("mem_gpumon_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        Field("swap_used_bytes", "B", _BYTES, digits=_NOISY, kept=JUDGED),
        Field("oom_events", "", _COUNT, metric="counter"),
        Field("oom_kills", "", _COUNT, metric="counter"),
        Field("processes", "", 1e7, kept=JUDGED),
    ),
    _group(
        "job", "io", 5,
        _rate("read_bytes_per_s", series=True, kept=JUDGED),
        _rate("write_bytes_per_s", series=True, kept=JUDGED),
        Field("cpu_pressure_percent", "%", _PERCENT, kept=JUDGED),
        Field("mem_pressure_percent", "%", _PERCENT, kept=SHOWN),
        Field("io_pressure_percent", "%", _PERCENT, kept=JUDGED),
    ),
    # -- network interfaces of the node (key: name) -------------------------------------------
    _group(
        "net", "net", 5,
        _rate("rx_bytes_per_s", series=True, kept=SHOWN),
        _rate("tx_bytes_per_s", series=True, kept=SHOWN),
        Field("link_bits_per_s", "bit/s", _RATE, kept=SHOWN),
    ),
    # -- file systems that a job can fill (key: label) ----------------------------------------
    _group(
        "disk", "disk", 30,
        _text("path"),
        Field("total_bytes", "B", _BYTES, kept=JUDGED),
        Field("used_bytes", "B", _BYTES, kept=JUDGED),
        Field("free_bytes", "B", _BYTES, kept=JUDGED),
    ),
    # -- the agent itself (key: "") and each of its collectors (key: name) --------------------
    _group(
        "agent", "agent", 5,
        Field("cpu_s", "s", 1e12),
        Field("rss_bytes", "B", _BYTES, digits=_NOISY),
        Field("late_s", "s", 1e9),  # how late the tick began, at most, since the last row
    ),
    _group(
        "collector", "collector", 5,
        Field("ok", "", 1),
        Field("ms", "ms", 1e9),
        _text("detail"),
    ),
)

# fmt: on

#: whose keys are a device and a process on it
OF_BOTH = ("usage", "pool")
GROUP_BY_KEY = {group.key: group for group in GROUPS}
ENTITIES = tuple(dict.fromkeys(group.entity for group in GROUPS))
FIELDS: dict[str, dict[str, Field]] = {
    entity: {
        field.name: field for group in GROUPS if group.entity == entity for field in group.fields
    }
    for entity in ENTITIES
}
#: entity -> the fields that are kept over time
SERIES: dict[str, frozenset[str]] = {
    entity: frozenset(name for name, field in fields.items() if field.series)
    for entity, fields in FIELDS.items()
}
#: whose series are those of processes on GPUs, and are kept of some on few nodes
COURSES = (*OF_BOTH, "process")
#: entity -> the fields that frames keep -> JUDGED or SHOWN
KEPT: dict[str, dict[str, str]] = {
    entity: {name: field.kept for name, field in fields.items() if field.kept}
    for entity, fields in FIELDS.items()
}
#: (entity, field) -> how often it is read
PERIODS_S: dict[tuple[str, str], float] = {
    (group.entity, field.name): group.period_s for group in GROUPS for field in group.fields
}

#: a device or process that is busier than this works, in %
ACTIVE_PERCENT = 1.0

#: NVML's clock event reasons from the lowest bit on, in the words used on screens and in JSON
_REASONS = (
    "idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal",
    "hw_thermal", "hw_power_brake", "display_clocks", "board_limit", "low_reliability",
)  # fmt: skip
THROTTLE_REASONS = tuple((1 << bit, word) for bit, word in enumerate(_REASONS))
_THROTTLE_WORDS = (*_REASONS, *(f"bit_{bit}" for bit in range(len(_REASONS), 64)))


def throttle_words(mask: int) -> list[str]:
    """The reasons in a clock event mask, in bit order; unknown bits as `bit_N`."""
    return [word for bit, word in enumerate(_THROTTLE_WORDS) if mask >> bit & 1]


#: readings that only frames have, made where samples are aggregated
DERIVED: dict[str, dict[str, Field]] = {
    entity: {field.name: field for field in fields}
    for entity, fields in {
        # the share of a bucket in which a device worked
        "device": (Field("active", "", 1.0, kept=JUDGED),),
        # ... of its ticks in which a reason slowed it
        "throttle": tuple(Field(word, "", 1.0, kept=JUDGED) for word in _THROTTLE_WORDS),
        # whether a sample came, and the job's processes: their threads, those that run or wait for
        # a core, those in uninterruptible sleep
        "node": (
            Field("covered", "", 1.0, kept=JUDGED),
            Field("threads", "", 1e12, kept=JUDGED),
            Field("runnable", "", 1e7, kept=JUDGED),
            Field("blocked", "", 1e7, kept=JUDGED),
        ),
    }.items()
}


def kept_field(entity: str, name: str) -> Field:
    """Of a rollup of a frame. Raises KeyError where frames keep no such reading."""
    field = DERIVED.get(entity, {}).get(name) or FIELDS[entity][name]
    if not field.kept:
        raise KeyError(name)
    return field
