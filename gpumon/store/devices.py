"""The devices of one node: which is which, whatever the stream numbers them, and how they are."""

from __future__ import annotations

from copy import copy
from typing import Dict, List, Optional, TypeVar

from gpumon.model.sample import Device, Event, Key, Sample, State
from gpumon.model.view import DeviceView

_Fields = TypeVar("_Fields")


class DeviceRecord:
    """One device, as the latest header and sample tell it."""

    __slots__ = ("device", "generation", "gone", "state", "xid")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.state: Optional[State] = None
        self.gone = False
        self.xid: Optional[Event] = None
        self.generation = 0

    def view(self) -> DeviceView:
        """As the screens get it."""
        return DeviceView(
            self.device.key, self.device, self.state, self.gone, self.xid, self.generation
        )


class Devices:
    """All that were ever seen. A device keeps its key and its place."""

    def __init__(self) -> None:
        self._records: Dict[int, DeviceRecord] = {}
        self._keys: Dict[int, int] = {}  # the stream's device number -> ours, where they differ
        self._renumbered = False

    def frozen(self) -> Devices:
        """The devices as they are now."""
        devices = copy(self)
        devices._records = {key: copy(record) for key, record in self._records.items()}
        return devices

    def views(self) -> List[DeviceView]:
        """In the order of their keys; lost and gone ones keep their row."""
        return [self._records[key].view() for key in sorted(self._records)]

    def get(self, key: int) -> Optional[DeviceRecord]:
        """The device of this key."""
        return self._records.get(key)

    def begin(self) -> None:
        """Another stream begins; its numbers say nothing of the one before."""
        self._keys.clear()

    def key_of(self, number: int) -> int:
        """Our key for the stream's number."""
        return self._keys.get(number, number)

    def take_states(self, sample: Sample) -> None:
        """Note who is not well, and that the others are."""
        states = {self.key_of(key): state for key, state in sample.states.items()}
        read = sample.rows.get("device", {})
        ours = {self.key_of(key) for key in read if isinstance(key, int)}
        for key, record in self._records.items():
            state = states.get(key)
            if key in ours or state != record.state:
                record.state = state
                record.generation += 1

    def take_xid(self, event: Event) -> None:
        """Note a device's latest Xid; the event's device is our key."""
        record = None if event.device is None else self._records.get(event.device)
        if record is not None:
            record.xid = event

    def place(self, devices: List[Device]) -> None:
        """Give every device of a header its row: the one it had, by what identifies it."""
        placed: Dict[int, Device] = {}
        for rule in (self._same_number, self._same_uuid, self._same_place, self._new_key):
            for device in devices:
                if device in placed.values():
                    continue
                key = rule(device, placed)
                if key is not None:
                    placed[key] = device
        for key, device in placed.items():
            self._keys[device.key] = key
            record = self._records.get(key)
            if record is None:
                record = self._records[key] = DeviceRecord(device._replace(key=key))
            known = record.device  # what a lost device can no longer say stays known
            record.device = device._replace(
                key=key, uuid=device.uuid or known.uuid, name=device.name or known.name
            )
        for key, record in self._records.items():
            record.gone = key not in placed
            record.generation += 1
        self._renumbered = any(number != key for number, key in self._keys.items())

    def _same_number(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        """Within one stream a number stands for one device for ever."""
        return self._keys.get(device.key)

    def _same_uuid(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        for key, record in self._records.items():
            if device.uuid and record.device.uuid == device.uuid and key not in placed:
                return key
        return None

    def _same_place(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        """A device that was lost before it could be asked for its UUID, by its NVML index."""
        for key, record in self._records.items():
            known = record.device
            unsure = not device.uuid or not known.uuid
            if unsure and key not in placed and (known.index, known.mig) == (
                device.index, device.mig
            ):  # fmt: skip
                return key
        return None

    def _new_key(self, device: Device, placed: Dict[int, Device]) -> Optional[int]:
        used = self._records.keys() | placed.keys()
        return device.key if device.key not in used else max(used) + 1

    def in_our_keys(self, rows: Dict[str, Dict[Key, _Fields]]) -> Dict[str, Dict[Key, _Fields]]:
        """A sample's rows with our keys in place of the stream's numbers."""
        if not self._renumbered:
            return rows
        keys = self._keys
        ours = dict(rows)
        if "device" in rows:
            ours["device"] = {
                keys.get(key, key) if isinstance(key, int) else key: row
                for key, row in rows["device"].items()
            }
        if "usage" in rows:
            ours["usage"] = {
                (keys.get(key[0], key[0]), key[1]) if isinstance(key, tuple) else key: row
                for key, row in rows["usage"].items()
            }
        return ours
