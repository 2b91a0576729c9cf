"""What does not change about a device: asked once, when its handle is opened."""

from __future__ import annotations

import ctypes
from typing import Dict, Optional

from gpumon.collect.nvml import Query, text_of
from gpumon.collect.nvml_fields import Fields
from gpumon.collect.nvml_structs import DeviceAttributes, Memory, PciInfo
from gpumon.model.reading import IMPLAUSIBLE, Missing, Reading

Facts = Dict[str, Reading]

#: nvmlDeviceArchitecture_t
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere",
    8: "Ada", 9: "Hopper", 10: "Blackwell",
}  # fmt: skip
#: compute capability -> CUDA cores per multiprocessor (CUDA programming guide)
_CORES_PER_SM = {"6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_CORES_PER_SM_DEFAULT = 128
#: what an instance cannot say of itself
WHOLE_GPU = Missing("mig", "whole GPU")
_OF_THE_WHOLE = (
    "serial", "minor", "vbios", "cores", "power_limit_default_w", "power_limit_min_w",
    "power_limit_max_w", "sm_clock_max_mhz", "mem_clock_max_mhz", "temperature_slowdown_c",
    "temperature_shutdown_c", "temperature_mem_max_c", "pcie_gen_max", "pcie_width_max",
    "nvlink_links", "ecc_mode", "display_active", "power_kind",
)  # fmt: skip
_CLOCK_SM, _CLOCK_MEM = 1, 2
_SHUTDOWN, _SLOWDOWN, _MEM_MAX = 0, 1, 2


def device_facts(query: Query, sysfs: str) -> Facts:
    """Facts of a whole GPU by the names of `model.sample.FACTS`; every one behind its guard."""
    facts = _identity(query)
    facts["cores"] = query.u32("nvmlDeviceGetNumGpuCores")
    facts["multiprocessors"] = _multiprocessors(facts)
    facts.update(_power(query))
    facts["sm_clock_max_mhz"] = query.u32("nvmlDeviceGetMaxClockInfo", _CLOCK_SM, memo="max SM")
    facts["mem_clock_max_mhz"] = query.u32("nvmlDeviceGetMaxClockInfo", _CLOCK_MEM, memo="max mem")
    for name, threshold in (
        ("temperature_slowdown_c", _SLOWDOWN),
        ("temperature_shutdown_c", _SHUTDOWN),
        ("temperature_mem_max_c", _MEM_MAX),
    ):
        facts[name] = query.u32(
            "nvmlDeviceGetTemperatureThreshold", threshold, memo=("threshold", threshold)
        )
    facts["pcie_gen_max"] = query.u32("nvmlDeviceGetMaxPcieLinkGeneration")
    facts["pcie_width_max"] = query.u32("nvmlDeviceGetMaxPcieLinkWidth")
    facts.update(Fields(query).read(("nvlink_links",)))
    facts["display_active"] = query.u32("nvmlDeviceGetDisplayActive")
    facts["ecc_mode"] = _first_of_two(query, "nvmlDeviceGetEccMode")
    facts.update(_place(facts["bus_id"], sysfs))
    return facts


def instance_facts(query: Query, parent: Facts) -> Facts:
    """Facts of a MIG instance: its own slice, and where its GPU sits."""
    facts: Facts = dict.fromkeys(_OF_THE_WHOLE, WHOLE_GPU)
    for name in ("bus_id", "numa_node", "cpu_affinity", "architecture", "compute_capability"):
        facts[name] = parent.get(name, WHOLE_GPU)
    facts["mem_total_bytes"] = _mem_total(query)
    attributes = DeviceAttributes()
    missing = query.call("nvmlDeviceGetAttributes_v2", ctypes.byref(attributes))
    facts["multiprocessors"] = attributes.multiprocessors if missing is None else missing
    return facts


def _identity(query: Query) -> Facts:
    pci = PciInfo()
    no_pci = query.call("nvmlDeviceGetPciInfo_v3", ctypes.byref(pci))
    architecture = query.u32("nvmlDeviceGetArchitecture")
    if isinstance(architecture, int):
        architecture = _ARCHITECTURES.get(architecture, f"architecture {architecture}")
    return {
        "mem_total_bytes": _mem_total(query),
        "bus_id": text_of(pci.bus_id) if no_pci is None else no_pci,
        "serial": query.text("nvmlDeviceGetSerial"),
        "minor": query.u32("nvmlDeviceGetMinorNumber"),
        "vbios": query.text("nvmlDeviceGetVbiosVersion"),
        "architecture": architecture,
        "compute_capability": _compute_capability(query),
    }


def _mem_total(query: Query) -> Reading:
    memory = Memory()
    missing = query.call("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
    return int(memory.total) if missing is None else missing


def _compute_capability(query: Query) -> Reading:
    major, minor = ctypes.c_int(), ctypes.c_int()
    missing = query.call(
        "nvmlDeviceGetCudaComputeCapability", ctypes.byref(major), ctypes.byref(minor)
    )
    if missing is not None:
        return missing
    possible = 0 < major.value < 100 and 0 <= minor.value < 10
    return f"{major.value}.{minor.value}" if possible else IMPLAUSIBLE


def _multiprocessors(facts: Facts) -> Reading:
    """NVML counts the cores only; the cores of one multiprocessor follow from its generation."""
    cores, capability = facts["cores"], facts["compute_capability"]
    if isinstance(cores, Missing) or isinstance(capability, Missing):
        return cores if isinstance(cores, Missing) else capability
    return int(cores) // _CORES_PER_SM.get(str(capability), _CORES_PER_SM_DEFAULT)


def _power(query: Query) -> Facts:
    low, high = ctypes.c_uint(), ctypes.c_uint()
    missing = query.call(
        "nvmlDeviceGetPowerManagementLimitConstraints", ctypes.byref(low), ctypes.byref(high)
    )
    default = query.u32("nvmlDeviceGetPowerManagementDefaultLimit")
    return {
        "power_limit_default_w": default / 1000 if isinstance(default, int) else default,
        "power_limit_min_w": low.value / 1000 if missing is None else missing,
        "power_limit_max_w": high.value / 1000 if missing is None else missing,
    }


def _first_of_two(query: Query, name: str) -> Reading:
    """The current one of (current, pending)."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    missing = query.call(name, ctypes.byref(current), ctypes.byref(pending))
    return current.value if missing is None else missing


def _place(bus_id: Reading, sysfs: str) -> Facts:
    """NUMA node and near CPUs, as the kernel has them under the device's bus address."""
    if isinstance(bus_id, Missing):
        return {"numa_node": bus_id, "cpu_affinity": bus_id}
    domain, _, rest = str(bus_id).lower().partition(":")
    folder = f"{sysfs}/bus/pci/devices/{domain[-4:]}:{rest}"
    node = _read(f"{folder}/numa_node")
    cpus = _read(f"{folder}/local_cpulist")
    known = node is not None and node.lstrip("-").isdigit() and int(node) >= 0
    return {
        "numa_node": int(node or 0) if known else Missing("unsupported"),
        "cpu_affinity": cpus if cpus else Missing("unsupported"),
    }


def _read(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return text_of(file.read(4096))
    except OSError:
        return None
