"""What an ideal monitor shows of a scenario at a time: the tests' second opinion.

The values come from the emulator's `dump` program: past NVML, past any binding and past
gpumon's collectors. Only the names, the plausible ranges and the type `Missing` are gpumon's.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing, Reading
from tests.nvml.library import library_dir
from tests.nvml.scenario import scenario_path

Dumped = dict[str, Any]  # one device as dump.c prints it

HUNG = -1  # dump's code for a call that never comes back
_REASON_OF_CODE = {
    3: "unsupported",
    4: "no-permission",
    10: "timeout",
    13: "unsupported",
    15: "lost",
    HUNG: "timeout",
}
_HANDLE = "nvmlDeviceGetHandleByIndex_v2"


def dump(scenario: str | Path, t: float | None = None, env: Mapping[str, str] | None = None) -> Any:
    """Everything the scenario says at `t` seconds (or now), as dump.c prints it.

    `env` is needed where values hang on it: the pids of stand-ins, overrides, the epoch.
    """
    variables = dict(os.environ if env is None else env)
    name = str(scenario)
    preset = name.startswith("preset:")
    variables["FAKE_NVML_SCENARIO"] = name if preset else str(scenario_path(scenario))
    command = [str(library_dir() / "dump")] + ([] if t is None else [repr(float(t))])
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def expected(
    scenario: str | Path, t: float | None = None, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """One dict per device, in NVML's order, each followed by its MIG instances.

    Devices: `index`, `uuid`, `name`, `bus_id`, `mem_total_bytes`, ..., `mig`, `readings`
    ({field of gpumon.model.fields: value or Missing}) and `processes` (a list, or Missing).
    An instance has only the readings of its own (memory, GPM); what the board measures for all
    of its instances together is left out. Rates are those of the moment. The readings of the
    group `burst` depend on the reader's own clock and are left out.
    """
    devices = []
    for device in dump(scenario, t, env)["devices"]:
        devices.append(_board(device))
        devices += [_slice(device, number) for number in range(len(device["slices"]))]
    return devices


# -- readings ----------------------------------------------------------------------------------
class _Source(NamedTuple):
    """Where a reading comes from: the function that rules may break, and its value."""

    function: str
    value: Callable[[Dumped], float | None]  # None: not supported
    mig: bool = True  # there while MIG is on


def _metric(
    function: str, name: str, scale: float = 1, step: float = 1, feature: str = "", mig: bool = True
) -> _Source:
    """A metric of the scenario times `scale`, cut to whole `step`s as the driver does."""

    def value(device: Dumped) -> float | None:
        metric = device["metrics"][name]
        if metric is None or (feature and not device["features"][feature]):
            return None
        scaled: float = metric * scale
        return math.floor(scaled / step) * step if step else scaled

    return _Source(function, value, mig)


def _rounded(function: str, name: str, feature: str = "", mig: bool = True) -> _Source:
    """A metric in whole numbers, rounded half up."""

    def value(device: Dumped) -> float | None:
        metric = device["metrics"][name]
        if metric is None or (feature and not device["features"][feature]):
            return None
        half_up: float = metric + 0.5
        return math.floor(half_up)

    return _Source(function, value, mig)


def _plain(function: str, key: str, feature: str = "", mig: bool = True) -> _Source:
    """A setting or counter of the device."""
    return _Source(
        function,
        lambda device: None if feature and not device["features"][feature] else device[key],
        mig,
    )


def _ecc(name: str) -> _Source:
    def value(device: Dumped) -> float | None:
        count = device["metrics"][name]
        on = device["ecc"] and device["features"]["ecc"]
        return int(count) if on and count is not None else None

    return _Source("nvmlDeviceGetTotalEccErrors", value)


def _pcie_rate(name: str) -> _Source:
    return _Source(
        "nvmlDeviceGetFieldValues",
        lambda device: device["metrics"][name] * 1024 if device["pcie_counters"] else None,
    )


def _nvlink_rate(name: str) -> _Source:
    return _Source(
        "nvmlDeviceGetFieldValues",
        lambda device: device["metrics"][name] * 1024 if device["links"] else None,
        mig=False,
    )


def _mem_clock(device: Dumped) -> float | None:
    return int(device["metrics"]["memclk"]) if device["mem_clock_max_mhz"] else None


def _retired(device: Dumped) -> float | None:
    if not device["features"]["retired_pages"]:
        return None
    return int(device["metrics"]["retired_sbe"]) + int(device["metrics"]["retired_dbe"])


_GPM = {
    "sm_active_percent": "gpm_sm",
    "sm_occupancy_percent": "gpm_occ",
    "tensor_active_percent": "gpm_tensor",
    "dram_active_percent": "gpm_dram",
    "fp64_active_percent": "gpm_fp64",
    "fp32_active_percent": "gpm_fp32",
    "fp16_active_percent": "gpm_fp16",
    "int_active_percent": "gpm_int",
}
_RATES = "nvmlDeviceGetUtilizationRates"
_ROWS = "nvmlDeviceGetRemappedRows"
_FIELD_VALUES = "nvmlDeviceGetFieldValues"
_SOURCES: dict[str, _Source] = {
    "busy_percent": _rounded(_RATES, "util", mig=False),
    "mem_controller_percent": _rounded(_RATES, "memutil", mig=False),
    "power_w": _metric("nvmlDeviceGetPowerUsage", "power", step=0.001),
    "sm_clock_mhz": _metric("nvmlDeviceGetClockInfo", "smclk"),
    "mem_clock_mhz": _Source("nvmlDeviceGetClockInfo", _mem_clock),
    "throttle_mask": _metric("nvmlDeviceGetCurrentClocksEventReasons", "throttle"),
    "pcie_tx_bytes_per_s": _pcie_rate("pcie_tx"),
    "pcie_rx_bytes_per_s": _pcie_rate("pcie_rx"),
    "nvlink_tx_bytes_per_s": _nvlink_rate("nvlink_tx"),
    "nvlink_rx_bytes_per_s": _nvlink_rate("nvlink_rx"),
    "energy_j": _plain("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
    "throttle_power_s": _plain(_FIELD_VALUES, "throttle_power_s"),
    "throttle_thermal_s": _plain(_FIELD_VALUES, "throttle_thermal_s"),
    "temperature_c": _rounded("nvmlDeviceGetTemperature", "temp"),
    "mem_temperature_c": _rounded(_FIELD_VALUES, "mtemp", feature="mem_temp"),
    "fan_percent": _metric("nvmlDeviceGetFanSpeed", "fan", feature="fan"),
    "encoder_percent": _rounded("nvmlDeviceGetEncoderUtilization", "enc", mig=False),
    "decoder_percent": _rounded("nvmlDeviceGetDecoderUtilization", "dec", mig=False),
    "pstate": _metric("nvmlDeviceGetPerformanceState", "pstate"),
    "power_limit_w": _plain("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
    "pcie_gen": _plain("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_gen"),
    "pcie_width": _plain("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width"),
    "pcie_replays": _metric("nvmlDeviceGetPcieReplayCounter", "pcie_replay"),
    "bar1_used_bytes": _metric("nvmlDeviceGetBAR1MemoryInfo", "bar1", scale=2**20),
    "ecc_corrected": _ecc("ecc_corr"),
    "ecc_uncorrected": _ecc("ecc_unc"),
    "retired_pages": _Source("nvmlDeviceGetRetiredPages", _retired),
    "retired_pending": _plain(
        "nvmlDeviceGetRetiredPagesPendingStatus", "remap_pending", feature="retired_pages"
    ),
    "remapped_corrected": _metric(_ROWS, "remap_corr", feature="remap", mig=False),
    "remapped_uncorrected": _metric(_ROWS, "remap_unc", feature="remap", mig=False),
    "remap_pending": _plain(_ROWS, "remap_pending", feature="remap", mig=False),
    "remap_failed": _plain(_ROWS, "remap_failed", feature="remap", mig=False),
    "recovery_action": _plain(_FIELD_VALUES, "recovery_action"),
    "persistence_mode": _plain("nvmlDeviceGetPersistenceMode", "persistence_mode"),
    "compute_mode": _plain("nvmlDeviceGetComputeMode", "compute_mode"),
    "mig_mode": _plain("nvmlDeviceGetMigMode", "mig_mode", feature="mig"),
    "accounting_mode": _plain("nvmlDeviceGetAccountingMode", "accounting_mode"),
    **{
        field: _metric("nvmlGpmMetricsGet", name, step=0, feature="gpm")
        for field, name in _GPM.items()
    },
}


def _missing(codes: dict[str, int], function: str) -> Missing | None:
    """Why a function gives nothing, if a rule says so; without a handle, nothing works."""
    code = codes.get(_HANDLE) or codes.get(function)
    return Missing(_REASON_OF_CODE.get(code, "error")) if code else None


def _plausible(entity: str, name: str, value: float) -> Reading:
    limits = FIELDS[entity][name]
    return value if limits.low <= value <= limits.high else Missing("implausible")


def _reading(device: Dumped, codes: dict[str, int], name: str) -> Reading:
    source = _SOURCES[name]
    missing = _missing(codes, source.function)
    if missing is not None:
        return missing
    if device["mig_mode"] and not source.mig:
        return Missing("mig")
    value = source.value(device)
    return Missing("unsupported") if value is None else _plausible("device", name, value)


def _memory(owner: Dumped, codes: dict[str, int], reserved: int) -> dict[str, Reading]:
    """Version 2 tells the driver's own reserve apart; where only version 1 answers, it cannot."""
    second = _missing(codes, "nvmlDeviceGetMemoryInfo_v2")
    first = _missing(codes, "nvmlDeviceGetMemoryInfo")
    if owner["mem_total_bytes"] == 0:
        none = Missing("unsupported") if second is None else second
        return {"mem_used_bytes": none, "mem_reserved_bytes": none}
    used = owner["mem_used_bytes"]
    if second is None:
        value = _plausible("device", "mem_used_bytes", used)
        if used > owner["mem_total_bytes"]:
            value = Missing("implausible")
        return {"mem_used_bytes": value, "mem_reserved_bytes": reserved}
    return {
        "mem_used_bytes": used + reserved if first is None else first,
        "mem_reserved_bytes": second,
    }


def _processes(owner: Dumped, codes: dict[str, int], mig: bool) -> list[dict[str, Any]] | Missing:
    missing = _missing(codes, "nvmlDeviceGetComputeRunningProcesses_v3")
    if missing is not None:
        return missing
    utilization = _missing(codes, "nvmlDeviceGetProcessUtilization")
    processes = []
    for process in owner["processes"]:
        row: dict[str, Any] = {"pid": process["pid"], "type": process["type"]}
        mem = process["mem_bytes"]
        row["mem_bytes"] = (
            Missing("unsupported") if mem is None else _plausible("usage", "mem_bytes", mem)
        )
        for name in ("sm_percent", "mem_percent", "encoder_percent", "decoder_percent"):
            if utilization is not None:
                row[name] = utilization
            elif mig:
                row[name] = Missing("mig")
            else:
                row[name] = _plausible("usage", name, math.floor(process[name] + 0.5))
        processes.append(row)
    return processes


def _board(device: Dumped) -> dict[str, Any]:
    codes = device["codes"]
    told = ("index", "uuid", "name", "serial", "bus_id", "minor", "mem_total_bytes")
    limits = ("power_default_w", "sm_clock_max_mhz", "mem_clock_max_mhz", "pcie_gen_max")
    readings = {name: _reading(device, codes, name) for name in _SOURCES}
    readings.update(_memory(device, codes, device["mem_reserved_bytes"]))
    return {
        **{name: device[name] for name in (*told, *limits)},
        "mig": None,
        "readings": readings,
        "processes": _processes(device, codes, mig=bool(device["mig_mode"])),
    }


def _slice(device: Dumped, number: int) -> dict[str, Any]:
    part = device["slices"][number]
    codes = part["codes"]
    readings = {name: _reading(device, codes, name) for name in ("busy_percent", *_GPM)}
    readings.update(_memory(part, codes, 0))
    return {
        "index": device["index"],
        "uuid": part["uuid"],
        "name": f"{device['name']} MIG {part['profile']}",
        "mem_total_bytes": part["mem_total_bytes"],
        "mig": {
            "parent": device["uuid"],
            "gi": part["gi"],
            "ci": part["ci"],
            "profile": part["profile"],
        },
        "readings": readings,
        "processes": _processes(part, codes, mig=True),
    }
