"""The number of a GPU on its node: the same for every process there.

NVML numbers the GPUs that a process may open, so inside a job's device cgroup the node's GPU 3 may
be its 0. The driver's list in /proc names all of them to everybody, by their places on the bus, in
the order in which NVML numbers them for a process that may open them all. Where there is no such
list, the minor number of /dev/nvidia3 is as good.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from gpumon.model.sample import Device

GPUS = "/proc/driver/nvidia/gpus"

Place = Tuple[int, int, int]  # domain, bus, device


def node_numbers(devices: List[Device], folder: str = GPUS) -> Dict[int, int]:
    """Device key -> number on the node; a MIG instance has that of its GPU.

    A GPU that could not be asked where it is keeps NVML's index, or gets a free number.
    """
    whole = {device.uuid: device for device in devices if device.mig is None and device.uuid}
    of = {device.key: whole.get(device.mig.parent, device) if device.mig else device
          for device in devices}  # fmt: skip
    gpus = {gpu.key: gpu for gpu in of.values()}
    numbers = _by_place(gpus, _listed(folder)) or _by_minor(gpus)
    for key, gpu in gpus.items():
        if key not in numbers:
            taken = set(numbers.values())
            numbers[key] = next(n for n in range(gpu.index, gpu.index + len(taken) + 1)
                                if n not in taken)  # fmt: skip
    return {key: numbers[gpu.key] for key, gpu in of.items()}


def _by_place(gpus: Dict[int, Device], listed: List[Place]) -> Dict[int, int]:
    """Empty where the list lacks one of them."""
    places = {key: _place(gpu.facts.get("bus_id")) for key, gpu in gpus.items()}
    known = {key: place for key, place in places.items() if place is not None}
    if len(set(known.values())) < len(known) or not set(known.values()) <= set(listed):
        return {}
    return {key: listed.index(place) for key, place in known.items()}


def _by_minor(gpus: Dict[int, Device]) -> Dict[int, int]:
    """Empty where two have the same."""
    minors = {key: gpu.facts.get("minor") for key, gpu in gpus.items()}
    known = {key: minor for key, minor in minors.items() if isinstance(minor, int)}
    return known if len(set(known.values())) == len(known) else {}


def _listed(folder: str) -> List[Place]:
    """All GPUs of the node, in the order of the bus; empty where the driver lists none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(place for name in names if (place := _place(name)) is not None)


def _place(text: object) -> Optional[Place]:
    """Of `00000000:07:00.0`, as NVML writes it, or `0000:07:00.0`, as the kernel does."""
    parts = str(text).replace(".", ":").split(":")
    try:
        domain, bus, device, _ = (int(part, 16) for part in parts)
    except ValueError:
        return None
    return domain, bus, device
