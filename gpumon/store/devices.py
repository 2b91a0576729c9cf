"""The devices of one node: which is which, whatever the stream numbers them, and how they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Device, Event, Sample
from gpumon.model.view import DeviceView

#: of one node, twice what 16 GPUs in seven parts are; gone ones keep their row while there is room
DEVICES_KEPT = 256


class Devices:
    """All that were ever seen. A device keeps its key and its place."""

    def __init__(self) -> None:
        #: by key; lost and gone ones keep their row, and a view is the same until something changes
        self.views: dict[int, DeviceView] = {}
        self._keys: dict[int, int] = {}  # the stream's device number -> ours
        self._renumbered = False
        self.forgotten = 0
        self.unlisted = 0  # of the newest header, beyond those that are kept

    def frozen(self) -> Devices:
        """The devices as they are now."""
        devices = copy(self)
        devices.views = dict(self.views)
        return devices

    def keys_of(self, devices: Iterable[Device]) -> dict[int, int]:
        """The place of each device among these -> its key here; others are left out."""
        return {
            place: key
            for place, device in enumerate(devices)
            for key, view in self.views.items()
            if view.device.is_same(device)
        }

    def leave(self) -> None:
        """None of them is the job's any more, until a header lists it again."""
        for key in self.views:
            self._change(key, left=True, gone=False, state=None)
        self._keys.clear()

    def begin(self) -> None:
        """Another stream begins; its numbers say nothing of the one before."""
        self._keys.clear()

    def _change(self, key: int, **changes: Any) -> None:
        changed = self.views[key]._replace(**changes)
        if changed != self.views[key]:
            self.views[key] = changed

    def placed(self, sample: Sample) -> Sample:
        """The sample with our keys in place of the stream's numbers. Notes how each device is, and
        its latest Xid.
        """
        if self._renumbered:
            rows = {
                entity: {self._ours(key): row for key, row in table.items()}
                if entity in ("device", *OF_BOTH)
                else table
                for entity, table in sample.rows.items()
            }
            states = {self._ours(key): state for key, state in sample.states.items()}
            events = [each._replace(device=self._ours(each.device)) for each in sample.events]
            sample = sample._replace(rows=rows, states=states, events=events)
        for key, view in self.views.items():
            if view.state != sample.states.get(key):
                self._change(key, state=sample.states.get(key))
        self.take_xids(sample.events)
        return sample

    def take_xids(self, events: Iterable[Event]) -> None:
        """Note the latest of each device, by our keys."""
        for event in events:
            if event.kind == "xid" and event.device in self.views:
                self._change(event.device, xid=event)

    def _ours(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return self._keys.get(key[0], key[0]), key[1]
        return self._keys.get(key, key)

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
                free = (view for key, view in self.views.items() if key not in placed)
                found = next((view for view in free if is_it(view, device)), None)
                if found is None:
                    waiting.append(device)
                else:
                    placed[found.key] = device
        for device in waiting:
            taken = self.views.keys() | placed.keys()
            placed[max(taken) + 1 if device.key in taken else device.key] = device
        for key, device in placed.items():
            self._keys[device.key] = key
            new = DeviceView(key, device, None, gone=False, left=False, xid=None)
            known = self.views.setdefault(key, new).device
            # what a lost device can no longer say stays known
            uuid, name = device.uuid or known.uuid, device.name or known.name
            device = device._replace(key=key, uuid=uuid, name=name)
            self._change(key, device=device, left=False, gone=False)
        for key in self.views.keys() - placed.keys():
            self._change(key, gone=not self.views[key].left)
        gone = [key for key, view in self.views.items() if view.gone or view.left]
        forgotten = frozenset(gone[: max(len(self.views) - DEVICES_KEPT, 0)])
        for key in forgotten:
            del self.views[key]
        self._keys = {n: key for n, key in self._keys.items() if key in self.views}
        self._renumbered = any(number != key for number, key in self._keys.items())
        self.forgotten += len(forgotten)
        return forgotten
