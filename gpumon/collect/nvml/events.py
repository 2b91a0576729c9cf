"""Xids as the driver reports them: one thread that waits, so that nothing has to be polled."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.library import Library

#: how long one wait blocks; new devices are registered and a stop is seen between two waits
_WAIT_MS = 3000
_FAILED_S = 1.0
#: answers that will not change
_FINAL = (
    nv.NVML_ERROR_INVALID_ARGUMENT,
    nv.NVML_ERROR_NOT_SUPPORTED,
    nv.NVML_ERROR_NO_PERMISSION,
    nv.NVML_ERROR_FUNCTION_NOT_FOUND,
)
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
        self._new: deque[tuple[int, Any]] = deque()
        self._index: dict[int, int] = {}  # address of the device's handle -> NVML's index
        self._seen: deque[Xid] = deque(maxlen=1000)
        self._stopped = False
        self._news = threading.Event()  # devices were added, or it is to stop
        self._thread = threading.Thread(target=self._run, name="gpumon-xid", daemon=True)
        self._thread.start()

    def add(self, devices: list[tuple[int, Any]]) -> None:
        """Watch (index, handle) of these too; during a wait this takes until its end."""
        self._new.extend(devices)
        self._news.set()

    def drain(self) -> list[Xid]:
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
        events, code = self._call(nv.nvmlEventSetCreate)
        while code and code not in _FINAL:
            if self._stopped:
                return
            time.sleep(_FAILED_S)
            events, code = self._call(nv.nvmlEventSetCreate)
        if not events:
            return
        wait = nv.nvmlEventSetWait_v2 if self._library.has("nvmlEventSetWait_v2") else _wait_v1
        self._news.wait()  # nothing to wait for before the first devices are added
        while not self._stopped:
            self._register(events)
            began = time.monotonic()
            data, code = self._call(wait, events, _WAIT_MS)
            if data is not None and data.eventType == nv.nvmlEventTypeXidCriticalError:
                index = self._index.get(_address(data.device))
                if index is not None:
                    self._seen.append(Xid(time.time(), index, data.eventData))
            elif code not in (nv.NVML_SUCCESS, nv.NVML_ERROR_TIMEOUT):
                time.sleep(_FAILED_S)  # a failing wait returns at once
            if time.monotonic() < began + _PAUSE_S:
                time.sleep(_PAUSE_S)
        self._call(nv.nvmlEventSetFree, events)

    def _register(self, events: Any) -> None:
        failed = []
        while self._new:
            index, handle = self._new.popleft()
            self._index[_address(handle)] = index
            kinds = nv.nvmlEventTypeXidCriticalError
            _, code = self._call(nv.nvmlDeviceRegisterEvents, handle, kinds, events)
            if code and code not in _FINAL:
                failed.append((index, handle))
        self._new.extend(failed)  # tried again after the next wait

    def _call(self, function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
        """What it gives, and NVML's code."""
        if self._library.closed:
            return None, nv.NVML_ERROR_UNINITIALIZED
        try:
            return function(*args), nv.NVML_SUCCESS
        except nv.NVMLError as error:
            return None, error.value


def _wait_v1(events: Any, timeout_ms: int) -> Any:
    """Of drivers before 450: the binding has only the second version, with a longer struct."""
    data = nv.c_nvmlEventData_t()
    wait = nv._nvmlGetFunctionPointer("nvmlEventSetWait")
    nv._nvmlCheckReturn(wait(events, ctypes.byref(data), ctypes.c_uint(timeout_ms)))
    return data


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
