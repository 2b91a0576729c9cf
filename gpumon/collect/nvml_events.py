"""Xids as the driver reports them: one thread that waits, so that nothing has to be polled."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Tuple

from gpumon.collect.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OK,
    TIMEOUT,
    Library,
)
from gpumon.collect.nvml_structs import EventData

_XID_CRITICAL_ERROR = 0x8
#: how long one wait blocks; new devices are registered and a stop is seen between two waits
_WAIT_MS = 2000
_FAILED_S = 1.0
#: answers that will not change
_FINAL = (OK, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND)
#: a driver that reports events without end, or does not wait, must not keep a core busy
_PAUSE_S = 0.05


class Xid(NamedTuple):
    """An error that the driver reported for the device with NVML's `index`."""

    time: float  # wall clock, when it was received
    device_index: int
    code: int


class XidWatch:
    """Waits for Xids of the devices added to it, from the moment they were added."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._new: Deque[Tuple[int, Any]] = deque()
        self._index: Dict[int, int] = {}  # address of the device's handle -> NVML's index
        self._seen: Deque[Xid] = deque(maxlen=1000)
        self._stopped = False
        self._news = threading.Event()  # devices were added, or it is to stop
        self._thread = threading.Thread(target=self._run, name="gpumon-xid", daemon=True)
        self._thread.start()

    def add(self, devices: List[Tuple[int, Any]]) -> None:
        """Watch (index, handle) of these too; during a wait this takes until its end."""
        self._new.extend(devices)
        self._news.set()

    def drain(self) -> List[Xid]:
        """The Xids since the last time."""
        seen = []
        while self._seen:
            seen.append(self._seen.popleft())
        return seen

    def stop(self) -> None:
        """Ask the thread to end; it does within one wait."""
        self._stopped = True
        self._news.set()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        events = ctypes.c_void_p()
        while self._library.call("nvmlEventSetCreate", ctypes.byref(events)) not in _FINAL:
            if self._stopped:
                return
            time.sleep(_FAILED_S)
        if not events:
            return
        data = EventData()
        wait = "nvmlEventSetWait_v2"
        if self._library.function(wait) is None:
            wait = "nvmlEventSetWait"
        self._news.wait()  # nothing to wait for before the first devices are added
        while not self._stopped:
            self._register(events)
            code = self._library.call(wait, events, ctypes.byref(data), _WAIT_MS)
            if code == OK and data.kind == _XID_CRITICAL_ERROR:
                address = data.device or 0
                index = self._index.get(address)
                if index is not None:
                    self._seen.append(Xid(time.time(), index, int(data.data)))
            elif code not in (OK, TIMEOUT):
                time.sleep(_FAILED_S)  # a failing wait returns at once
            time.sleep(_PAUSE_S)
        self._library.call("nvmlEventSetFree", events)

    def _register(self, events: ctypes.c_void_p) -> None:
        failed = []
        while self._new:
            index, handle = self._new.popleft()
            self._index[handle.value] = index
            kinds = ctypes.c_ulonglong(_XID_CRITICAL_ERROR)
            if self._library.call("nvmlDeviceRegisterEvents", handle, kinds, events) not in _FINAL:
                failed.append((index, handle))
        self._new.extend(failed)  # tried again after the next wait
