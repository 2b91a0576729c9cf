"""Identities of the devices of one stream: their numbers, and the state of those that left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.collect.nvml.answers import Unit
from gpumon.model.sample import Device

#: most absent GPUs that keep a row; a driver that makes up new ones must not fill the header
_MAX_ABSENT = 32
NOT_REPORTED = "no longer reported by the driver"


class News(NamedTuple):
    """What happened to one device, for people."""

    key: int
    text: str


class Roster:
    """Keeps a device's number and row through loss, reset, renumbering and unplugging."""

    def __init__(self) -> None:
        self.absent: set[int] = set()  # GPUs that were there, and that the driver has no more
        self.twins: dict[
            tuple[int, str], int
        ] = {}  # (index, UUID) -> index of the other device that has it
        self._keys = _Keys()
        self._known: dict[int, Device] = {}
        self._present: set[int] = set()

    def key(self, unit: Unit) -> int:
        return self._keys.of(self._own(unit))

    def tell_apart(self, units: Iterable[Unit]) -> None:
        """Find those of these units whose UUID is another GPU's: their place identifies them."""
        first: dict[str, int] = {}
        self.twins = {}
        for unit in units:
            other = first.setdefault(unit.uuid, unit.device_index) if unit.uuid else None
            if other is not None and other != unit.device_index:
                self.twins[unit.device_index, unit.uuid] = other

    def _own(self, unit: Unit) -> Unit:
        is_twin = (unit.device_index, unit.uuid) in self.twins
        return unit._replace(uuid="") if is_twin else unit

    def reported(self, units: Iterable[Unit]) -> list[Device]:
        """The devices as the header lists them: those that are there, then absent GPUs."""
        devices = {self.key(unit): self._device(unit) for unit in units}
        devices.update((key, self._known[key]) for key in sorted(self.absent))
        return list(devices.values())

    def compare(self, units: Iterable[Unit]) -> list[News]:
        """Take these for all that there are; what is new about that."""
        present = {self.key(unit): unit for unit in units}
        first = not self._present
        news = []
        for key in self._present - present.keys():
            news.append(News(key, NOT_REPORTED))
            if key in self._known and self._known[key].mig is None:
                self.absent.add(key)
        for key, unit in present.items():
            if key in self.absent:
                news.append(News(key, "reported by the driver again"))
            elif key not in self._present and not first:
                news.append(News(key, "new"))
            known = self._known.get(key)
            if known is not None and known.index != unit.device_index:
                news.append(News(key, f"GPU {unit.device_index} now, {known.index} before"))
        self.absent -= present.keys()
        for key in sorted(self.absent)[:-_MAX_ABSENT]:
            self.absent.discard(key)
        self._present = set(present)
        return news

    def _device(self, unit: Unit) -> Device:
        """The unit as the header lists it; a lost one keeps what was known of it."""
        unit = self._own(unit)
        key = self._keys.of(unit)
        known = self._known.get(key)
        if known is not None and (unit.missing is not None or not unit.uuid):
            return known
        device = Device(key, unit.device_index, unit.uuid, unit.name, None, unit.mig, unit.facts)
        if unit.uuid and unit.name:
            self._known[key] = device
        return device


class _Keys:
    """Numbers the devices of one stream; by UUID, and by place until the UUID is known."""

    def __init__(self) -> None:
        self._by_uuid: dict[str, int] = {}
        self._by_place: dict[tuple[int, ...], int] = {}
        self._named: dict[int, str] = {}
        self._place: dict[int, tuple[int, ...]] = {}
        self._next = 0

    def of(self, unit: Unit) -> int:
        place: tuple[int, ...] = (unit.device_index,)
        if unit.mig is not None:
            place = (unit.device_index, unit.mig.gi, unit.mig.ci)
        key = self._by_uuid.get(unit.uuid) if unit.uuid else None
        if key is None:
            key = self._by_place.get(place)
            if key is None or (unit.uuid and key in self._named):
                key, self._next = self._next, self._next + 1
        if unit.uuid:
            self._by_uuid[unit.uuid] = key
            self._named[key] = unit.uuid
        before = self._place.get(key, place)
        if before != place and self._by_place.get(before) == key:
            del self._by_place[before]  # the device at this index is another one now
        self._by_place[place], self._place[key] = key, place
        return key
