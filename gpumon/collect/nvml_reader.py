"""All readings of one GPU or MIG instance, group by group, each at its own period."""

from __future__ import annotations

import ctypes
import math
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from gpumon.collect.base import Schedule
from gpumon.collect.gpm import Gpm
from gpumon.collect.nvml import NOT_SUPPORTED, SESSION_CODES, Query, passing
from gpumon.collect.nvml_burst import Burst
from gpumon.collect.nvml_facts import WHOLE_GPU
from gpumon.collect.nvml_fields import Fields
from gpumon.collect.nvml_structs import Bar1Memory, Memory, MemoryV2, Utilization
from gpumon.collect.nvml_usage import Row, Usage
from gpumon.collect.rates import Growth, Moment, Rate
from gpumon.model.fields import FIELDS, GROUP_BY_KEY
from gpumon.model.plausible import ceilings, check, implausible, narrowed
from gpumon.model.reading import MIG, UNSUPPORTED, Missing, Reading

_GROUPS = {
    name: (GROUP_BY_KEY[f"device.{name}"].period_s,
           tuple(field.name for field in GROUP_BY_KEY[f"device.{name}"].fields))
    for name in ("fast", "burst", "gpm", "clocks", "links", "thermal", "state", "health",
                 "processes")
}  # fmt: skip
DEVICE_FIELDS = tuple(FIELDS["device"])
#: group -> field values that it needs, all fetched in one call
_FIELDS_OF = {
    "fast": ("power_w",),
    "links": ("energy_j", "pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx", "throttle_power_s",
              "throttle_thermal_s"),
    "thermal": ("mem_temperature_c",),
    "state": ("pcie_replays",),
    "health": ("ecc_corrected", "ecc_uncorrected", "retired_sbe", "retired_dbe",
               "retired_pending", "remapped_corrected", "remapped_uncorrected", "remap_pending",
               "remap_failed", "recovery_action"),
}  # fmt: skip
_RATES = ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")
_COUNTERS = ("energy_j", "throttle_power_s", "throttle_thermal_s")
#: groups of which an instance tells nothing of its own
_WHOLE_GPU_GROUPS = ("clocks", "links", "thermal", "state", "health")
#: without these there is no telling how a device fares
_CORE = ("busy_percent", "mem_used_bytes", "power_w")
_REFUSED_S = 60.0
_AGAIN_S = 6.0
_CLOCK_SM, _CLOCK_MEM = 1, 2
_PSTATE_UNKNOWN = 32
_NEVER = Moment(0.0)
#: a second is throttled for a second, whatever its counter's period
_THROTTLED_PER_S = 1.25
#: total against used + free + reserved: the driver rounds to pages
_SUM_TOLERANCE = 0.01


class Result(NamedTuple):
    """One read of one device: its row, its processes, and how the device fares."""

    row: Row
    usage: Dict[int, Row]
    error: str = ""  # every call failed, for a reason other than the device's absence
    session_error: bool = False  # … and so that the session itself may be gone
    lost: str = ""  # NVML's words for the absence of the device
    blind: bool = False  # all that is read in each tick failed, though other calls work
    doubtful: bool = False  # readings do not fit the device's facts

    @property
    def well(self) -> bool:
        return not (self.error or self.lost or self.blind)


class Reader:
    """Reads one device; made and used by its worker's thread."""

    def __init__(
        self,
        query: Query,
        *,
        instance: bool = False,
        mig_mode: Reading = MIG,
        gpm: Optional[Gpm] = None,
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
        self._rates = {name: Rate() for name in _RATES}
        self._usage = Usage(query, instances_apart=mig_on)
        self._usage.mig = self._no_activity
        self._burst = Burst(query)
        self._utilization = Utilization()
        self._memory = Memory()
        self._memory_v2 = MemoryV2()
        self._v2_answered = False
        self._growths = {name: Growth() for name in _COUNTERS}
        self._bar1 = Bar1Memory()
        self._value = ctypes.c_uint()
        self._other = ctypes.c_uint()
        self.know({})

    def know(self, facts: Row) -> None:
        """Take the device's facts, for what its readings cannot exceed."""
        self._most = ceilings(facts)
        self._ranges = {
            entity: {name: narrowed(field, self._most) for name, field in FIELDS[entity].items()}
            for entity in ("device", "usage")
        }

    def read(self, mono: float) -> Result:
        """Read what is due at the tick's monotonic time."""
        query = self.query
        was_lost = query.lost is not None
        query.good, query.failed = 0, {}
        if was_lost and query.revive():
            self._schedule = Schedule()
        due = [
            name for name, (period, _) in _GROUPS.items()
            if self._schedule.due(name, period, mono)
        ]  # fmt: skip
        row: Row = {}
        usage: Dict[int, Row] = {}
        self._read_groups(due, row, usage)
        if query.lost is not None:
            lost = query.lost
            names = [n for g in due for n in _GROUPS[g][1]] if was_lost else DEVICE_FIELDS
            text = query.library.error_text(query.lost_code)
            return Result(dict.fromkeys(names, lost), {}, lost=text)
        for line in usage.values():
            self._check("usage", line)
        error, session_error = self._verdict()
        doubtful = self._check("device", row)
        if not error and all(passing(row[name]) for name in _CORE):
            error = str(row["mem_used_bytes"])
        blind = query.regaining or all(passing(row[name]) for name in _CORE[1:])
        self._read_again(due, row, mono)
        return Result(row, usage, error, session_error, blind=blind, doubtful=doubtful)

    def read_all(self) -> None:
        """All groups are due in the next read."""
        self._schedule = Schedule()

    def _read_again(self, due: List[str], row: Row, mono: float) -> None:
        """Groups that are read rarely are read again soon where a reading failed."""
        for name in due:
            period_s, names = _GROUPS[name]
            if period_s > _AGAIN_S and (
                self.query.regaining or any(_doubtful(row.get(each, 0)) for each in names)
            ):
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

    def _read_groups(self, due: List[str], row: Row, usage: Dict[int, Row]) -> None:
        values: Dict[str, Reading] = {}
        names = [] if self._instance else [n for g in due for n in _FIELDS_OF.get(g, ())]
        if names:
            values = self._fields.read(names)
        for name in due:
            if self._instance and name in _WHOLE_GPU_GROUPS:
                row.update(dict.fromkeys(_GROUPS[name][1], WHOLE_GPU))
            elif name == "processes":
                row["processes"], lines = self._usage.read()
                usage.update(lines)
            else:
                getattr(self, f"_read_{name}")(row, values)
        busy = row.get("busy_percent")
        if isinstance(busy, int):
            self._usage.device_busy = busy > 0

    def _check(self, entity: str, row: Row) -> bool:
        """Apply the ranges that this device's readings have to a row, in place; whether any of
        them is implausible.
        """
        fields, doubtful = self._ranges[entity], False
        for name, value in row.items():
            if isinstance(value, Missing):
                doubtful = doubtful or value.reason == "implausible"
            elif not isinstance(value, str):
                field = fields[name]
                if not field.low <= value <= field.high:
                    row[name], doubtful = check(field, value), True
        return doubtful

    def _verdict(self) -> Tuple[str, bool]:
        """(text, session) of the error that every call of this read ended with."""
        query = self.query
        if query.good or not query.failed:
            return "", False
        code = max(query.failed, key=lambda code: query.failed[code])
        return query.library.error_text(code), set(query.failed) <= SESSION_CODES

    # -- groups: each fills its fields of the table ------------------------------------------

    def _read_fast(self, row: Row, values: Row) -> None:
        query = self.query
        if self._no_activity:
            row["busy_percent"] = row["mem_controller_percent"] = MIG
        else:
            missing = query.call("nvmlDeviceGetUtilizationRates", ctypes.byref(self._utilization))
            known = missing is None
            self.mig_suspected = self._had_activity and query.code == NOT_SUPPORTED
            self._had_activity = known
            row["busy_percent"] = self._utilization.gpu if known else missing  # type: ignore[assignment]
            row["mem_controller_percent"] = (
                self._utilization.memory if known else missing  # type: ignore[assignment]
            )
        row["mem_used_bytes"], row["mem_reserved_bytes"] = self._memory_now()
        row["power_w"] = WHOLE_GPU if self._instance else self._power_now(values["power_w"])

    def _memory_now(self) -> Tuple[Reading, Reading]:
        """(used without the reserve, reserve); older drivers count them together."""
        query, memory = self.query, self._memory_v2
        memory.version = ctypes.sizeof(memory) | 2 << 24  # the driver may have written there
        missing = query.call("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory))
        if missing is None:
            self._v2_answered = True
            total, parts = memory.total, memory.used + memory.free + memory.reserved
            if abs(total - parts) > _SUM_TOLERANCE * total:
                return implausible(memory.used, "B"), implausible(memory.reserved, "B")
            return memory.used, memory.reserved
        if self._v2_answered or not _unsupported(missing):
            return missing, missing  # the older call counts the reserve: used would jump by it
        without_v2 = query.call("nvmlDeviceGetMemoryInfo", ctypes.byref(self._memory))
        if without_v2 is not None:
            return without_v2, without_v2
        return self._memory.used, missing

    def _power_now(self, average: Reading) -> Reading:
        """The mean of one second where the device tells it, else the driver's plain reading."""
        if not isinstance(average, Missing) or average.reason != "unsupported":
            return average
        power = self.query.u32("nvmlDeviceGetPowerUsage")
        return power / 1000 if isinstance(power, int) else power

    def _read_burst(self, row: Row, values: Row) -> None:
        if self._no_activity:
            row.update(dict.fromkeys(_GROUPS["burst"][1], MIG))
        else:
            row.update(self._burst.read())

    def _read_gpm(self, row: Row, values: Row) -> None:
        """Activities each tick; where there are none, the reason once a minute is enough."""
        readings = dict.fromkeys(_GROUPS["gpm"][1], MIG) if self.gpm is None else self.gpm.read()
        refused = self.gpm is None or self.gpm.refused
        if not refused or self._schedule.due("refused", _REFUSED_S, time.monotonic()):
            row.update(readings)

    def _read_clocks(self, row: Row, values: Row) -> None:
        query = self.query
        for name, domain in (("sm_clock_mhz", _CLOCK_SM), ("mem_clock_mhz", _CLOCK_MEM)):
            row[name] = query.u32("nvmlDeviceGetClockInfo", domain, memo=name)
        mask = query.u64("nvmlDeviceGetCurrentClocksEventReasons")
        if query.library.function("nvmlDeviceGetCurrentClocksEventReasons") is None:
            mask = query.u64("nvmlDeviceGetCurrentClocksThrottleReasons")  # its name before 535
        row["throttle_mask"] = mask

    def _read_links(self, row: Row, values: Row) -> None:
        fields = self._fields
        for name in _RATES:
            field = f"{name}_bytes_per_s"
            rate = self._rates[name].update(
                values[name],
                *fields.moments.get(name, _NEVER),
                most=self._most.get(field, math.inf),
                source=fields.sources.get(name),
            )
            if _unsupported(rate) and self.gpm is not None:
                counted = self.gpm.rates.get(field, rate)
                rate = rate if _unsupported(counted) else counted
            row[field] = MIG if self.mig_on and _unsupported(rate) else rate
        if _unsupported(values["energy_j"]):
            energy = self.query.u64("nvmlDeviceGetTotalEnergyConsumption")
            values["energy_j"] = energy / 1000 if isinstance(energy, int) else energy
        most_per_s = {"energy_j": self._most.get("power_w", math.inf)}
        for name in _COUNTERS:
            most = most_per_s.get(name, _THROTTLED_PER_S)
            at = fields.moments.get(name, Moment(time.monotonic())).at
            row[name] = self._growths[name].check(values[name], at, most)

    def _read_thermal(self, row: Row, values: Row) -> None:
        query = self.query
        row["temperature_c"] = query.u32("nvmlDeviceGetTemperature", 0)
        row["mem_temperature_c"] = values["mem_temperature_c"]
        row["fan_percent"] = query.u32("nvmlDeviceGetFanSpeed")
        for engine in ("Encoder", "Decoder"):
            row[f"{engine.lower()}_percent"] = (
                MIG if self.mig_on else self._pair(f"nvmlDeviceGet{engine}Utilization")
            )

    def _read_state(self, row: Row, values: Row) -> None:
        query = self.query
        pstate = query.u32("nvmlDeviceGetPerformanceState")
        row["pstate"] = UNSUPPORTED if pstate == _PSTATE_UNKNOWN else pstate
        limit = query.u32("nvmlDeviceGetEnforcedPowerLimit")
        row["power_limit_w"] = limit / 1000 if isinstance(limit, int) else limit
        row["pcie_gen"] = query.u32("nvmlDeviceGetCurrPcieLinkGeneration")
        row["pcie_width"] = query.u32("nvmlDeviceGetCurrPcieLinkWidth")
        row["pcie_replays"] = values["pcie_replays"]
        missing = query.call("nvmlDeviceGetBAR1MemoryInfo", ctypes.byref(self._bar1))
        bar1: Reading = self._bar1.used if missing is None else missing
        is_more = missing is None and self._bar1.used > self._bar1.total
        row["bar1_used_bytes"] = implausible(self._bar1.used, "B") if is_more else bar1

    def _read_health(self, row: Row, values: Row) -> None:
        query = self.query
        for name in _FIELDS_OF["health"]:
            if not name.startswith("retired_") or name == "retired_pending":
                row[name] = values[name]
        single, double = values["retired_sbe"], values["retired_dbe"]
        if isinstance(single, (int, float)) and isinstance(double, (int, float)):
            row["retired_pages"] = single + double
        else:
            row["retired_pages"] = double if isinstance(single, (int, float)) else single
        row["persistence_mode"] = query.u32("nvmlDeviceGetPersistenceMode")
        row["compute_mode"] = query.u32("nvmlDeviceGetComputeMode")
        row["mig_mode"] = self.mig_mode
        row["accounting_mode"] = accounting = query.u32("nvmlDeviceGetAccountingMode")
        if isinstance(accounting, int) or _unsupported(accounting):
            self._usage.accounting = accounting == 1

    def _pair(self, name: str) -> Reading:
        """The first of the two unsigned ints that a function fills."""
        missing = self.query.call(name, ctypes.byref(self._value), ctypes.byref(self._other))
        return self._value.value if missing is None else missing


def _doubtful(reading: Reading) -> bool:
    """Whether the next read may well give a value."""
    return passing(reading) or (isinstance(reading, Missing) and reading.reason == "implausible")


def _unsupported(reading: Reading) -> bool:
    return isinstance(reading, Missing) and reading.reason == "unsupported"
