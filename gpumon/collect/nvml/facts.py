"""What does not change about a device: asked once, when its handle is opened."""

from __future__ import annotations

from gpumon.collect.nvml.answers import Row
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.fields import Fields
from gpumon.collect.nvml.library import text_of
from gpumon.collect.nvml.query import Query
from gpumon.model.reading import IMPLAUSIBLE, Missing, Reading, then
from gpumon.model.sample import FACTS

#: nvmlDeviceArchitecture_t -> "Hopper"
_ARCHITECTURES = {
    getattr(nv, name): name.rpartition("_")[2].capitalize()
    for name in dir(nv)
    if name.startswith("NVML_DEVICE_ARCH_") and not name.endswith("_UNKNOWN")
}
#: compute capability -> CUDA cores per multiprocessor (CUDA programming guide)
_CORES_PER_SM = {"6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_CORES_PER_SM_DEFAULT = 128
#: what has no value of an instance's own
WHOLE_GPU = Missing("mig", "whole GPU")
_THRESHOLDS = {
    "temperature_slowdown_c": nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "temperature_shutdown_c": nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "temperature_mem_max_c": nv.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
}
_CLOCKS = {"sm_clock_max_mhz": nv.NVML_CLOCK_SM, "mem_clock_max_mhz": nv.NVML_CLOCK_MEM}


def device_facts(query: Query, sysfs: str) -> Row:
    """Facts of a whole GPU by the names of `model.sample.FACTS`; every one behind its guard."""
    facts = _identity(query)
    facts["cores"] = query.get(nv.nvmlDeviceGetNumGpuCores)
    facts["multiprocessors"] = _multiprocessors(facts)
    facts.update(_power(query))
    for name, domain in _CLOCKS.items():
        facts[name] = query.get(nv.nvmlDeviceGetMaxClockInfo, domain, memo=name)
    for name, threshold in _THRESHOLDS.items():
        facts[name] = query.get(nv.nvmlDeviceGetTemperatureThreshold, threshold, memo=name)
    facts["pcie_gen_max"] = query.get(nv.nvmlDeviceGetMaxPcieLinkGeneration)
    facts["pcie_width_max"] = query.get(nv.nvmlDeviceGetMaxPcieLinkWidth)
    facts.update(Fields(query).read(("nvlink_links",)))
    facts["display_active"] = query.get(nv.nvmlDeviceGetDisplayActive)
    facts["ecc_mode"] = query.first(nv.nvmlDeviceGetEccMode)
    facts.update(_place(facts["bus_id"], sysfs))
    return facts


def instance_facts(query: Query, parent: Row) -> Row:
    """Facts of a MIG instance: its own slice, and where its GPU sits."""
    facts: Row = dict.fromkeys(FACTS, WHOLE_GPU)
    for name in ("bus_id", "numa_node", "cpu_affinity", "architecture", "compute_capability"):
        facts[name] = parent.get(name, WHOLE_GPU)
    facts["mem_total_bytes"] = _mem_total(query)
    attributes = query.get(nv.nvmlDeviceGetAttributes_v2)
    facts["multiprocessors"] = then(attributes, lambda known: int(known.multiprocessorCount))
    return facts


def _identity(query: Query) -> Row:
    pci = query.get(nv.nvmlDeviceGetPciInfo_v3)
    if not isinstance(pci, Missing):
        pci = text_of(object.__getattribute__(pci, "busId"))  # bytes; the struct's own may raise
    architecture = query.get(nv.nvmlDeviceGetArchitecture)
    if isinstance(architecture, int):
        architecture = _ARCHITECTURES.get(architecture, f"architecture {architecture}")
    return {
        "mem_total_bytes": _mem_total(query),
        "bus_id": pci,
        "serial": query.text(nv.nvmlDeviceGetSerial),
        "minor": query.get(nv.nvmlDeviceGetMinorNumber),
        "vbios": query.text(nv.nvmlDeviceGetVbiosVersion),
        "architecture": architecture,
        "compute_capability": _compute_capability(query),
    }


def _mem_total(query: Query) -> Reading:
    return then(query.get(nv.nvmlDeviceGetMemoryInfo), lambda memory: int(memory.total))


def _compute_capability(query: Query) -> Reading:
    capability = query.get(nv.nvmlDeviceGetCudaComputeCapability)
    if isinstance(capability, Missing):
        return capability
    major, minor = capability
    return f"{major}.{minor}" if 0 < major < 100 and 0 <= minor < 10 else IMPLAUSIBLE


def _multiprocessors(facts: Row) -> Reading:
    """NVML counts the cores only; the cores of one multiprocessor follow from its generation."""
    cores, capability = facts["cores"], facts["compute_capability"]
    if isinstance(cores, Missing) or isinstance(capability, Missing):
        return cores if isinstance(cores, Missing) else capability
    return int(cores) // _CORES_PER_SM.get(str(capability), _CORES_PER_SM_DEFAULT)


def _power(query: Query) -> Row:
    limits = query.get(nv.nvmlDeviceGetPowerManagementLimitConstraints)
    low, high = (limits, limits) if isinstance(limits, Missing) else limits
    return {
        "power_limit_default_w": watts(query.get(nv.nvmlDeviceGetPowerManagementDefaultLimit)),
        "power_limit_min_w": watts(low),
        "power_limit_max_w": watts(high),
    }


def watts(milliwatts: Reading) -> Reading:
    return milliwatts / 1000 if isinstance(milliwatts, int) else milliwatts


def _place(bus_id: Reading, sysfs: str) -> Row:
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


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return text_of(file.read(4096))
    except OSError:
        return None
