"""The devices of one node: which is which, whatever the stream numbers them, and how they are."""

from __future__ import annotations

from copy import copy
from typing import Callable, Dict, Iterable, List, Optional, Tuple, TypeVar

from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Device, Event, Key, Mig, Sample, State
from gpumon.model.view import DeviceView

_Fields = TypeVar("_Fields")
_Place = Tuple[int, Optional[Mig]]
_Rule = Callable[[Device], Optional[int]]

#: of one node, twice what 16 GPUs in seven parts are; gone ones keep their row while there is room
DEVICES_KEPT = 256


class DeviceRecord:
    """One device, as the latest header and sample tell it."""

    __slots__ = ("_view", "device", "gone", "left", "state", "xid")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.state: Optional[State] = None
        self.gone = False
        self.left = False
        self.xid: Optional[Event] = None
        self._view: Optional[DeviceView] = None

    @property
    def is_well(self) -> bool:
        """Its readings are what they were read as."""
        return self.state is None and not self.gone and not self.left

    def view(self) -> DeviceView:
        """As the screens get it; the same until something changes."""
        now = self.device.key, self.device, self.state, self.gone, self.left, self.xid
        if self._view != now:
            self._view = DeviceView(*now)
        return self._view


class Devices:
    """All that were ever seen. A device keeps its key and its place."""

    def __init__(self) -> None:
        self._records: Dict[int, DeviceRecord] = {}
        self._keys: Dict[int, int] = {}  # the stream's device number -> ours, where they differ
        self._renumbered = False
        self.forgotten = 0
        self.unlisted = 0  # of the newest header, beyond those that are kept

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

    def keys_of(self, devices: Iterable[Device]) -> Dict[int, int]:
        """The place of each device among these -> its key here; others are left out."""
        return {
            place: key
            for place, device in enumerate(devices)
            for key, record in self._records.items()
            if record.device.is_same(device)
        }

    def leave(self) -> None:
        """None of them is the job's any more, until a header lists it again."""
        for record in self._records.values():
            record.left, record.gone, record.state = True, False, None
        self._keys.clear()

    def begin(self) -> None:
        """Another stream begins; its numbers say nothing of the one before."""
        self._keys.clear()

    def key_of(self, number: int) -> int:
        """Our key for the stream's number."""
        return self._keys.get(number, number)

    def take_states(self, sample: Sample) -> None:
        """Note who is not well, and that the others are."""
        states = {self.key_of(key): state for key, state in sample.states.items()}
        for key, record in self._records.items():
            record.state = states.get(key)

    def take_xid(self, event: Event) -> None:
        """Note a device's latest Xid; the event's device is our key."""
        record = None if event.device is None else self._records.get(event.device)
        if record is not None:
            record.xid = event

    def place(self, devices: List[Device]) -> List[int]:
        """Give every device of a header its row: the one it had, by what identifies it.

        Returns the keys of those that are forgotten: beyond `DEVICES_KEPT` the ones that are gone.
        """
        placed: Dict[int, Device] = {}
        left = devices[:DEVICES_KEPT]
        self.unlisted = len(devices) - len(left)
        for rules in (self._same_number, self._same_uuid, self._same_place):
            rule, waiting = rules(placed), []
            for device in left:
                key = rule(device)
                if key is None:
                    waiting.append(device)
                else:
                    placed[key] = device
            left = waiting
        last = max(self._records.keys() | placed.keys(), default=-1)
        for device in left:
            is_free = device.key not in self._records and device.key not in placed
            key = device.key if is_free else last + 1
            last = max(last, key)
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
            record.left = record.left and key not in placed
            record.gone = key not in placed and not record.left
        forgotten = self._forget()
        self._renumbered = any(number != key for number, key in self._keys.items())
        return forgotten

    def _forget(self) -> List[int]:
        gone = [key for key, record in self._records.items() if record.gone or record.left]
        forgotten = gone[: max(len(self._records) - DEVICES_KEPT, 0)]
        for key in forgotten:
            del self._records[key]
        if forgotten:
            self._keys = {n: key for n, key in self._keys.items() if key in self._records}
            self.forgotten += len(forgotten)
        return forgotten

    def _same_number(self, placed: Dict[int, Device]) -> _Rule:
        """Within one stream a number stands for one device for ever."""
        return lambda device: self._keys.get(device.key)

    def _same_uuid(self, placed: Dict[int, Device]) -> _Rule:
        of_uuid = {
            record.device.uuid: key
            for key, record in reversed(self._records.items())
            if record.device.uuid and key not in placed
        }
        return lambda device: of_uuid.pop(device.uuid, None)

    def _same_place(self, placed: Dict[int, Device]) -> _Rule:
        """A device that was lost before it could be asked for its UUID, by its NVML index."""
        of_place: Dict[_Place, List[int]] = {}
        for key, record in self._records.items():
            if key not in placed and not record.left:
                of_place.setdefault((record.device.index, record.device.mig), []).append(key)

        def rule(device: Device) -> Optional[int]:
            keys = of_place.get((device.index, device.mig), [])
            for key in keys:
                if not device.uuid or not self._records[key].device.uuid:
                    keys.remove(key)
                    return key
            return None

        return rule

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
        for entity in OF_BOTH:
            if entity in rows:
                ours[entity] = {
                    (keys.get(key[0], key[0]), key[1]) if isinstance(key, tuple) else key: row
                    for key, row in rows[entity].items()
                }
        return ours
