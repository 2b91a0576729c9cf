"""The devices of one node: which is which, whatever the stream numbers them, and how they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Device, Event, Rows, State
from gpumon.model.view import DeviceView

#: of one node, twice what 16 GPUs in seven parts are; gone ones keep their row while there is room
DEVICES_KEPT = 256


class Devices:
    """All that were ever seen. A device keeps its key and its place."""

    def __init__(self) -> None:
        self._views: dict[int, DeviceView] = {}
        self._keys: dict[int, int] = {}  # the stream's device number -> ours
        self._renumbered = False
        self.forgotten = 0
        self.unlisted = 0  # of the newest header, beyond those that are kept

    def frozen(self) -> Devices:
        """The devices as they are now."""
        devices = copy(self)
        devices._views = dict(self._views)
        return devices

    def views(self) -> list[DeviceView]:
        """In the order of their keys; lost and gone ones keep their row."""
        return [self._views[key] for key in sorted(self._views)]

    def get(self, key: int) -> DeviceView | None:
        """The device of this key; the same object until something changes."""
        return self._views.get(key)

    def keys_of(self, devices: Iterable[Device]) -> dict[int, int]:
        """The place of each device among these -> its key here; others are left out."""
        return {
            place: key
            for place, device in enumerate(devices)
            for key, view in self._views.items()
            if view.device.is_same(device)
        }

    def leave(self) -> None:
        """None of them is the job's any more, until a header lists it again."""
        for key in self._views:
            self._change(key, left=True, gone=False, state=None)
        self._keys.clear()

    def begin(self) -> None:
        """Another stream begins; its numbers say nothing of the one before."""
        self._keys.clear()

    def _change(self, key: int, **changes: Any) -> None:
        changed = self._views[key]._replace(**changes)
        if changed != self._views[key]:
            self._views[key] = changed

    def take_states(self, states: Mapping[int, State]) -> None:
        """Note who is not well, and that the others are; by the stream's numbers."""
        ours = {self._keys.get(number, number): state for number, state in states.items()}
        for key, view in self._views.items():
            if view.state != ours.get(key):
                self._change(key, state=ours.get(key))

    def placed(self, event: Event) -> Event:
        """The event with our key for the stream's number; notes a device's latest Xid."""
        if event.device is None:
            return event
        key = self._keys.get(event.device, event.device)
        event = event._replace(device=key)
        if event.kind == "xid" and key in self._views:
            self._change(key, xid=event)
        return event

    def place(self, devices: list[Device]) -> frozenset[int]:
        """Give every device of a header its row: the one it had, by what identifies it.

        Returns the keys of those that are forgotten: beyond `DEVICES_KEPT` the ones that are gone.
        """
        placed: dict[int, Device] = {}
        waiting = devices[:DEVICES_KEPT]
        self.unlisted = len(devices) - len(waiting)
        rules: tuple[Callable[[DeviceView, Device], object], ...] = (
            # within one stream a number stands for one device for ever
            lambda view, device: self._keys.get(device.key) == view.key,
            lambda view, device: device.uuid and device.uuid == view.device.uuid,
            lambda view, device: not view.left and view.device.is_same(device),
        )
        for is_it in rules:
            left, waiting = waiting, []
            for device in left:
                free = (view for key, view in self._views.items() if key not in placed)
                found = next((view for view in free if is_it(view, device)), None)
                if found is None:
                    waiting.append(device)
                else:
                    placed[found.key] = device
        for device in waiting:
            taken = self._views.keys() | placed.keys()
            placed[max(taken) + 1 if device.key in taken else device.key] = device
        for key, device in placed.items():
            self._keys[device.key] = key
            new = DeviceView(key, device, None, gone=False, left=False, xid=None)
            known = self._views.setdefault(key, new).device
            # what a lost device can no longer say stays known
            uuid, name = device.uuid or known.uuid, device.name or known.name
            self._change(key, device=device._replace(key=key, uuid=uuid, name=name))
        for key, view in self._views.items():
            is_left = view.left and key not in placed
            self._change(key, left=is_left, gone=key not in placed and not is_left)
        self._renumbered = any(number != key for number, key in self._keys.items())
        return self._forget()

    def _forget(self) -> frozenset[int]:
        gone = [key for key, view in self._views.items() if view.gone or view.left]
        forgotten = frozenset(gone[: max(len(self._views) - DEVICES_KEPT, 0)])
        for key in forgotten:
            del self._views[key]
        self._keys = {n: key for n, key in self._keys.items() if key in self._views}
        self.forgotten += len(forgotten)
        return forgotten

    def in_our_keys(self, rows: Rows) -> Rows:
        """A sample's rows with our keys in place of the stream's numbers."""
        if not self._renumbered:
            return rows

        def ours(key: Any) -> Any:
            if isinstance(key, tuple):
                return self._keys.get(key[0], key[0]), key[1]
            return self._keys.get(key, key)

        return {
            entity: {ours(key): row for key, row in table.items()}
            if entity in ("device", *OF_BOTH)
            else table
            for entity, table in rows.items()
        }
