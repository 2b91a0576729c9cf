"""One stream of recordings that each saw other GPUs of a node at the same time."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Event, Header, Key, Rows, Sample, State
from gpumon.recording.legs import NODE, OF_PROCESSES, Lanes, lane

#: of rows whose key names a device, alone or with a process
_OF_DEVICES = ("device", *OF_BOTH)


class Mixed:
    """Renumbers devices and leaves out what another recording covers. Each lane has one source."""

    def __init__(self, lanes: Mapping[int, Lanes]) -> None:
        """`lanes` of each recording, by its number."""
        self._lanes = lanes
        self._headers: Dict[int, Header] = {}
        self._keys: Dict[str, int] = {}  # lane -> device number in this stream
        self._of: Dict[Tuple[int, Key], int] = {}  # a recording's device number -> ours
        self._states: Dict[int, Dict[int, State]] = {}

    def take_header(self, number: int, header: Header) -> None:
        self._headers[number] = header
        self._of = {place: key for place, key in self._of.items() if place[0] != number}
        for device in header.devices:
            name = lane(device)
            if name in self._lanes[number]:
                self._of[number, device.key] = self._keys.setdefault(name, len(self._keys))

    def header(self) -> List[Header]:
        """Of all together; none as long as the node itself is not known."""
        base = next((h for n, h in self._headers.items() if NODE in self._lanes[n]), None)
        if base is None:
            return []
        devices = [
            device._replace(key=self._of[number, device.key])
            for number, header in self._headers.items()
            for device in header.devices
            if (number, device.key) in self._of
        ]
        return [base._replace(devices=sorted(devices, key=lambda device: device.index))]

    def sample(self, number: int, sample: Sample) -> List[Sample]:
        """The sample of one recording without what others cover; none if nothing is left."""
        is_of_node = NODE in self._lanes[number]
        rows: Rows = {}
        for entity, table in sample.rows.items():
            if entity in _OF_DEVICES:
                ours = {self._ours(number, key): row for key, row in table.items()}
                rows[entity] = {key: row for key, row in ours.items() if key is not None}
            elif is_of_node:
                rows[entity] = table
        rows = {entity: table for entity, table in rows.items() if table}
        states = {self._of.get((number, key)): each for key, each in sample.states.items()}
        self._states[number] = {key: each for key, each in states.items() if key is not None}
        events = [
            event._replace(device=self._of.get((number, event.device or 0)))
            if event.device is not None
            else event
            for event in sample.events
            if self._is_told(number, event)
        ]
        if not rows and not events:
            return []
        together = {key: each for own in self._states.values() for key, each in own.items()}
        return [sample._replace(rows=rows, states=together, events=events)]

    def _ours(self, number: int, key: Key) -> Optional[Key]:
        """A key of a recording's row in this stream; None: another one covers it."""
        if isinstance(key, tuple):
            device = self._of.get((number, key[0]))
            return None if device is None else (device, key[1])
        return self._of.get((number, key))

    def _is_told(self, number: int, event: Event) -> bool:
        if event.kind in OF_PROCESSES:
            return True
        if event.device is not None:
            return (number, event.device) in self._of
        return NODE in self._lanes[number]
