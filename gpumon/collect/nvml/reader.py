"""All readings of one GPU or MIG instance, group by group, each at its own period."""

from __future__ import annotations

import ctypes
import math
import time
from functools import lru_cache

from gpumon.collect.base import Schedule
from gpumon.collect.nvml.answers import DEVICE_FIELDS, Result, Row
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.burst import Burst
from gpumon.collect.nvml.facts import WHOLE_GPU, watts
from gpumon.collect.nvml.fields import SOURCES, Fields
from gpumon.collect.nvml.gpm import Gpm
from gpumon.collect.nvml.library import SESSION_CODES, error_text
from gpumon.collect.nvml.query import Query, passing, plain
from gpumon.collect.nvml.usage import Usage
from gpumon.collect.rates import Growth, Rate
from gpumon.model.fields import FIELDS, GROUP_BY_KEY
from gpumon.model.plausible import ceilings, implausible, narrowed
from gpumon.model.reading import MIG, UNSUPPORTED, Missing, Reading

_DEVICE_GROUPS = [group for group in GROUP_BY_KEY.values() if group.entity == "device"]
_PERIODS_S = {group.name: group.period_s for group in _DEVICE_GROUPS}
#: group -> its fields
_NAMES = {group.name: tuple(field.name for field in group.fields) for group in _DEVICE_GROUPS}
#: counter -> the field of its rate
_RATES = {name: f"{name}_bytes_per_s" for name in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")}
_COUNTERS = ("energy_j", "throttle_power_s", "throttle_thermal_s")
#: those that are a field value as they are
_HEALTH = [name for name in _NAMES["health"] if name in SOURCES]
#: group -> field values that it needs, all fetched in one call
_FIELDS_OF = {
    "fast": ["power_w"],
    "links": [*_RATES, *_COUNTERS],
    "thermal": ["mem_temperature_c"],
    "state": ["pcie_replays"],
    "health": [*_HEALTH, "retired_sbe", "retired_dbe"],
}


@lru_cache(maxsize=64)
def _fields_of(due: tuple[str, ...]) -> tuple[str, ...]:
    """The field values that these groups need."""
    return tuple(name for group in due for name in _FIELDS_OF.get(group, ()))


#: groups that have no readings of an instance's own
_WHOLE_GPU_GROUPS = ("clocks", "links", "thermal", "state", "health")
_REFUSED_S = 60.0
_AGAIN_S = 6.0
_RARE = frozenset(name for name, period_s in _PERIODS_S.items() if period_s > _AGAIN_S)
_CLOCKS = {"sm_clock_mhz": nv.NVML_CLOCK_SM, "mem_clock_mhz": nv.NVML_CLOCK_MEM}
_Memory = plain(nv.c_nvmlMemory_v2_t)
_Utilization = plain(nv.c_nvmlUtilization_t)
#: a second is throttled for a second, whatever its counter's period
_THROTTLED_PER_S = 1.25
#: total against used + free + reserved: the driver rounds to pages
_SUM_TOLERANCE = 0.01


@lru_cache(maxsize=64)
def _ranges(most: tuple[tuple[str, float], ...]) -> dict[str, dict[str, tuple[float, float, str]]]:
    """Entity -> field -> (least, most, unit) on devices with these ceilings."""
    fields = {
        entity: [narrowed(field, dict(most)) for field in FIELDS[entity].values()]
        for entity in ("device", "usage")
    }
    return {
        entity: {field.name: (field.low, field.high, field.unit) for field in ranges}
        for entity, ranges in fields.items()
    }


class Reader:
    """Reads one device; made and used by its worker's thread."""

    def __init__(
        self,
        query: Query,
        *,
        instance: bool = False,
        mig_mode: Reading = MIG,
        gpm: Gpm | None = None,
    ) -> None:
        """`mig_mode`: of a whole GPU, as it was opened."""
        self.query = query
        self.mig_mode = mig_mode
        self.mig_on = mig_on = mig_mode == 1
        self.mig_suspected = False  # what a GPU in MIG mode refuses is refused since the last read
        self.gpm = gpm
        self._instance = instance
        self._no_activity = mig_on or instance
        self._had_activity = False
        self._schedule = Schedule()
        self._fields = Fields(query)
        self._rates = {name: Rate(wraps=True) for name in _RATES}
        self._usage = Usage(query, instances_apart=mig_on)
        self._usage.mig = self._no_activity
        self._burst = Burst(query)
        self._rates_now, self._memory = _Utilization(), _Memory()
        self._rates_pointer = ctypes.byref(self._rates_now)
        self._memory_pointer = ctypes.byref(self._memory)
        self._v2_answered = False
        self._growths = {name: Growth() for name in _COUNTERS}
        self._read_group = {
            "fast": self._read_fast,
            "burst": self._read_burst,
            "gpm": self._read_gpm,
            "clocks": self._read_clocks,
            "links": self._read_links,
            "thermal": self._read_thermal,
            "state": self._read_state,
            "health": self._read_health,
        }
        self.know({})

    def know(self, facts: Row) -> None:
        """Take the device's facts, for what its readings cannot exceed."""
        self._most = ceilings(facts)
        self._ranges = _ranges(tuple(self._most.items()))

    def read(self, mono: float) -> Result:
        """Read what is due at the tick's monotonic time."""
        query = self.query
        was_lost = query.lost is not None
        query.good = 0
        query.failed.clear()
        if was_lost and query.revive():
            self._schedule = Schedule()
        due = self._schedule.all_due(_PERIODS_S, mono)
        row: Row = {}
        usage: dict[int, Row] = {}
        self._read_groups(due, row, usage)
        if query.lost is not None:
            lost = query.lost
            names = [n for g in due for n in _NAMES[g]] if was_lost else DEVICE_FIELDS
            text = error_text(query.lost_code)
            return Result(dict.fromkeys(names, lost), {}, lost=text)
        for line in usage.values():
            self._check("usage", line)
        error, session_error = self._verdict()
        doubtful = self._check("device", row)
        blind = passing(row["mem_used_bytes"]) and passing(row["power_w"])
        if not error and blind and passing(row["busy_percent"]):
            error = str(row["mem_used_bytes"])
        blind = blind or query.regaining
        self._read_again(due, row, mono)
        return Result(row, usage, error, session_error, blind=blind, doubtful=doubtful)

    def read_all(self) -> None:
        """All groups are due in the next read."""
        self._schedule = Schedule()

    def _read_again(self, due: tuple[str, ...], row: Row, mono: float) -> None:
        """Groups that are read rarely are read again soon where a reading failed."""
        for name in _RARE.intersection(due):
            if self.query.regaining or any(_doubtful(row.get(each, 0)) for each in _NAMES[name]):
                self._schedule.again(name, mono + _AGAIN_S)
        self.query.regaining = False

    @property
    def cut(self) -> str:
        """Which list of the driver's was longer than what is read; for people."""
        return self._usage.cut

    def power_kind(self, facts: Row) -> Reading:
        """Whether `power_w` is the mean of one second or of the instant.

        nvml.h: nvmlDeviceGetPowerUsage gives a mean from Ampere on, except GA100 (capability 8.0).
        """
        average = self._fields.read(("power_w",))["power_w"]
        if not _unsupported(average):
            return average if isinstance(average, Missing) else "average"
        capability = facts["compute_capability"]
        if isinstance(capability, Missing):
            return capability
        modern = float(capability) >= 8 and capability != "8.0"
        return "average" if modern else "instant"

    def _read_groups(self, due: tuple[str, ...], row: Row, usage: dict[int, Row]) -> None:
        values: dict[str, Reading] = {}
        names = () if self._instance else _fields_of(due)
        if names:
            values = self._fields.read(names)
        for name in due:
            if self._instance and name in _WHOLE_GPU_GROUPS:
                row.update(dict.fromkeys(_NAMES[name], WHOLE_GPU))
            elif name == "processes":
                row["processes"], lines = self._usage.read()
                usage.update(lines)
            else:
                self._read_group[name](row, values)
        busy = row.get("busy_percent")
        if isinstance(busy, int):
            self._usage.device_busy = busy > 0

    def _check(self, entity: str, row: Row) -> bool:
        """Apply the ranges that this device's readings have to a row, in place; whether any of
        them is implausible.
        """
        ranges, doubtful = self._ranges[entity], False
        for name, value in row.items():
            kind = type(value)
            if kind is int or kind is float:
                low, high, unit = ranges[name]
                if not low <= value <= high:  # type: ignore[operator]
                    row[name], doubtful = implausible(value, unit), True  # type: ignore[arg-type]
            elif isinstance(value, Missing) and value.reason == "implausible":
                doubtful = True
        return doubtful

    def _verdict(self) -> tuple[str, bool]:
        """(text, session) of the error that every call of this read ended with."""
        query = self.query
        if query.good or not query.failed:
            return "", False
        code = max(query.failed, key=lambda code: query.failed[code])
        return error_text(code), set(query.failed) <= SESSION_CODES

    # -- groups: each fills its fields of the table ------------------------------------------

    def _read_fast(self, row: Row, values: Row) -> None:
        query = self.query
        if self._no_activity:
            row["busy_percent"] = row["mem_controller_percent"] = MIG
        else:
            rates = self._rates_now
            missing = query.fill("nvmlDeviceGetUtilizationRates", self._rates_pointer)
            unsupported = query.code == nv.NVML_ERROR_NOT_SUPPORTED
            self.mig_suspected = self._had_activity and unsupported
            self._had_activity = missing is None
            row["busy_percent"] = rates.gpu if missing is None else missing
            row["mem_controller_percent"] = rates.memory if missing is None else missing
        row["mem_used_bytes"], row["mem_reserved_bytes"] = self._memory_now()
        row["power_w"] = WHOLE_GPU if self._instance else self._power_now(values["power_w"])

    def _memory_now(self) -> tuple[Reading, Reading]:
        """(used without the reserve, reserve); older drivers count them together."""
        query, memory = self.query, self._memory
        memory.version = nv.nvmlMemory_v2  # the driver may have written there
        missing = query.fill("nvmlDeviceGetMemoryInfo_v2", self._memory_pointer)
        if missing is None:
            self._v2_answered = True
            total, parts = memory.total, memory.used + memory.free + memory.reserved
            if abs(total - parts) > _SUM_TOLERANCE * total:
                return implausible(memory.used, "B"), implausible(memory.reserved, "B")
            return memory.used, memory.reserved
        if self._v2_answered or not _unsupported(missing):
            return missing, missing  # the older call counts the reserve: used would jump by it
        without_v2 = query.get(nv.nvmlDeviceGetMemoryInfo)
        if isinstance(without_v2, Missing):
            return without_v2, without_v2
        return without_v2.used, missing

    def _power_now(self, average: Reading) -> Reading:
        """The mean of one second where the device reports it, else the driver's plain reading."""
        if not isinstance(average, Missing) or average.reason != "unsupported":
            return average
        return watts(self.query.get(nv.nvmlDeviceGetPowerUsage))

    def _read_burst(self, row: Row, values: Row) -> None:
        if self._no_activity:
            row.update(dict.fromkeys(_NAMES["burst"], MIG))
        else:
            row.update(self._burst.read())

    def _read_gpm(self, row: Row, values: Row) -> None:
        """Activities each tick; where there are none, the reason once a minute is enough."""
        gpm = self.gpm
        readings = {} if gpm is None else gpm.read()
        if gpm is not None and gpm.refused is None:
            row.update(readings)
        elif self._schedule.due("refused", _REFUSED_S, time.monotonic()):
            reason = MIG if gpm is None or gpm.refused is None else gpm.refused
            row.update(dict.fromkeys(_NAMES["gpm"], reason))

    def _read_clocks(self, row: Row, values: Row) -> None:
        query = self.query
        for name, domain in _CLOCKS.items():
            row[name] = query.count("nvmlDeviceGetClockInfo", domain, memo=name)
        mask = query.count("nvmlDeviceGetCurrentClocksEventReasons")
        if query.code == nv.NVML_ERROR_FUNCTION_NOT_FOUND:  # it had another name before 535
            mask = query.count("nvmlDeviceGetCurrentClocksThrottleReasons")
        row["throttle_mask"] = mask

    def _read_links(self, row: Row, values: Row) -> None:
        fields = self._fields
        for name, field in _RATES.items():
            rate = self._rates[name].update(
                values[name],
                fields.moment,
                most=self._most.get(field, math.inf),
                source=fields.sources.get(name),
            )
            if _unsupported(rate) and self.gpm is not None:
                counted = self.gpm.rates.get(field, rate)
                rate = rate if _unsupported(counted) else counted
            row[field] = MIG if self.mig_on and _unsupported(rate) else rate
        if _unsupported(values["energy_j"]):
            energy = self.query.get(nv.nvmlDeviceGetTotalEnergyConsumption)
            values["energy_j"] = energy / 1000 if isinstance(energy, int) else energy
        most_per_s = {"energy_j": self._most.get("power_w", math.inf)}
        for name in _COUNTERS:
            most = most_per_s.get(name, _THROTTLED_PER_S)
            row[name] = self._growths[name].check(values[name], fields.moment.at, most)

    def _read_thermal(self, row: Row, values: Row) -> None:
        query = self.query
        row["temperature_c"] = query.get(nv.nvmlDeviceGetTemperature, nv.NVML_TEMPERATURE_GPU)
        row["mem_temperature_c"] = values["mem_temperature_c"]
        row["fan_percent"] = query.get(nv.nvmlDeviceGetFanSpeed)
        for name, engine in (
            ("encoder_percent", nv.nvmlDeviceGetEncoderUtilization),
            ("decoder_percent", nv.nvmlDeviceGetDecoderUtilization),
        ):
            row[name] = MIG if self.mig_on else query.first(engine)

    def _read_state(self, row: Row, values: Row) -> None:
        query = self.query
        pstate = query.get(nv.nvmlDeviceGetPerformanceState)
        row["pstate"] = UNSUPPORTED if pstate == nv.NVML_PSTATE_UNKNOWN else pstate
        row["power_limit_w"] = watts(query.get(nv.nvmlDeviceGetEnforcedPowerLimit))
        row["pcie_gen"] = query.get(nv.nvmlDeviceGetCurrPcieLinkGeneration)
        row["pcie_width"] = query.get(nv.nvmlDeviceGetCurrPcieLinkWidth)
        row["pcie_replays"] = values["pcie_replays"]
        bar1 = query.get(nv.nvmlDeviceGetBAR1MemoryInfo)
        if not isinstance(bar1, Missing):
            used = bar1.bar1Used
            bar1 = implausible(used, "B") if used > bar1.bar1Total else used
        row["bar1_used_bytes"] = bar1

    def _read_health(self, row: Row, values: Row) -> None:
        query = self.query
        for name in _HEALTH:
            row[name] = values[name]
        single, double = values["retired_sbe"], values["retired_dbe"]
        if isinstance(single, (int, float)) and isinstance(double, (int, float)):
            row["retired_pages"] = single + double
        else:
            row["retired_pages"] = double if isinstance(single, (int, float)) else single
        row["persistence_mode"] = query.get(nv.nvmlDeviceGetPersistenceMode)
        row["compute_mode"] = query.get(nv.nvmlDeviceGetComputeMode)
        row["mig_mode"] = self.mig_mode
        row["accounting_mode"] = accounting = query.get(nv.nvmlDeviceGetAccountingMode)
        if isinstance(accounting, int) or _unsupported(accounting):
            self._usage.accounting = accounting == 1


def _doubtful(reading: Reading) -> bool:
    """Whether the next read may well give a value."""
    return passing(reading) or (isinstance(reading, Missing) and reading.reason == "implausible")


def _unsupported(reading: Reading) -> bool:
    return isinstance(reading, Missing) and reading.reason == "unsupported"
