"""Guarded calls of the binding on one device: an error becomes the reason why there is no value."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.library import Library, text_of
from gpumon.model.reading import Missing, Reading, then

#: what a device or driver does not support is asked again after this time
REPROBE_S = 600.0
#: ... and what it did support a moment ago, after this
_REGAIN_S = 6.0
#: codes that will not change from one second to the next
_LASTING = frozenset(
    (
        nv.NVML_ERROR_NOT_SUPPORTED,
        nv.NVML_ERROR_FUNCTION_NOT_FOUND,
        nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nv.NVML_ERROR_NO_PERMISSION,
    )
)
#: answers: there is nothing, or more than the buffer holds
_ANSWERS = frozenset((nv.NVML_ERROR_NOT_FOUND, nv.NVML_ERROR_INSUFFICIENT_SIZE))
#: reasons that may be gone the next time
_PASSING = frozenset(("error", "timeout", "lost", "no-driver"))


def passing(reading: Reading) -> bool:
    """Whether it is missing for the moment only."""
    return isinstance(reading, Missing) and reading.reason in _PASSING


def plain(struct: Any) -> Any:
    """The layout of a struct of the binding, for what is read over and over.

    The binding's structs run a function of Python at each access to a member, ten times as dear.
    """
    return type(struct)(struct.__name__, (ctypes.Structure,), {"_fields_": struct._fields_})


class Query:
    """Guarded calls on one device handle, made by one thread.

    Each gives the binding's answer, or the Missing that stands for its error. What the device does
    not support is remembered and not asked again for `REPROBE_S`. Once the device is lost, nothing
    is asked until `revive`.
    """

    def __init__(self, library: Library, handle: Any, worked: set[Any] | None = None) -> None:
        """`worked`: what the same device has answered before."""
        self.library = library
        self.handle = handle
        self.calling = ""  # the call that has not come back; read by other threads
        self.code: int = nv.NVML_SUCCESS  # of the last call
        self.lost: Missing | None = None
        self.lost_code: int = nv.NVML_SUCCESS
        self.good = 0  # calls that succeeded or were refused for a reason that will last
        self.failed: dict[int, int] = {}  # code -> calls, for all other codes
        self.regaining = False  # something was refused that worked before
        self.worked: set[Any] = set() if worked is None else worked
        self._refused: dict[Any, tuple[Missing, int, float]] = {}
        self._count = ctypes.c_ulonglong()
        self._count_pointer = ctypes.byref(self._count)

    def get(self, function: Callable[..., Any], *args: Any, memo: Any = None) -> Any:
        """`function(handle, *args)` of the binding; `memo` names what is refused, where the
        function's name is too wide.
        """
        return self.ask(function, self.handle, *args, memo=memo)

    def first(self, function: Callable[..., Any]) -> Reading:
        """The first value of a function that gives several, such as a mode and the one to come."""
        first: Reading = then(self.get(function), lambda values: values[0])
        return first

    def fill(self, name: str, *args: Any, memo: Any = None) -> Missing | None:
        """The driver's own `name(handle, *args)`, which fills buffers among its arguments.

        The binding's functions make a buffer for each call; those for lists ask twice, and
        allocate whatever the driver names.
        """
        memo = name if memo is None else memo
        if self.lost is not None or self.library.closed or memo in self._refused:
            withheld = self._withheld(memo)
            if withheld is not None:
                return withheld
        self.calling = name
        try:
            code = nv._nvmlGetFunctionPointer(name)(self.handle, *args)
        except nv.NVMLError as error:  # the driver has no such function
            code = error.value
        finally:
            self.calling = ""
        if code:
            return self.refuse(code, memo)
        self._succeed(memo)
        return None

    def count(self, name: str, *args: Any, memo: Any = None) -> Any:
        """The number of 32 or 64 bits that the driver's `name(handle, *args, pointer)` writes."""
        self._count.value = 0  # of 32 bits the upper half stays
        missing = self.fill(name, *args, self._count_pointer, memo=memo)
        return self._count.value if missing is None else missing

    def text(self, function: Any) -> Reading:
        """A text of the device, whatever bytes are in it: the binding's own decoding may raise."""
        return then(self.get(function.__wrapped__), text_of)

    def ask(self, function: Callable[..., Any], *args: Any, memo: Any = None) -> Any:
        """As `get`, for functions that do not take the device's handle first."""
        memo = function.__name__ if memo is None else memo
        withheld = self._withheld(memo)
        if withheld is not None:
            return withheld
        self.calling = function.__name__
        try:
            answer = function(*args)
        except nv.NVMLError as error:
            return self.refuse(error.value, memo)
        finally:
            self.calling = ""
        self._succeed(memo)
        return answer

    def _withheld(self, memo: Any) -> Missing | None:
        """Why nothing is asked: the device is lost, the session closed, or `memo` refused."""
        if self.lost is not None:
            return self.lost
        if self.library.closed:
            return self.refuse(nv.NVML_ERROR_UNINITIALIZED, memo)
        refused = self.refused(memo) if memo in self._refused else None
        if refused is not None:
            self.code = self._refused[memo][1]
            if memo in self.worked:
                self.failed[self.code] = self.failed.get(self.code, 0) + 1
        return refused

    def _succeed(self, memo: Any) -> None:
        self.code = nv.NVML_SUCCESS
        self.good += 1
        self.worked.add(memo)

    def refused(self, memo: Any) -> Missing | None:
        """Why `memo` is not asked at the moment."""
        entry = self._refused.get(memo)
        if entry is None:
            return None
        if time.monotonic() < entry[2]:
            return entry[0]
        del self._refused[memo]
        return None

    def refused_until(self, memo: Any) -> float:
        """The monotonic time at which a refused `memo` is asked again."""
        return self._refused[memo][2]

    def refuse(self, code: int, memo: Any) -> Missing:
        """Take note of an error; the Missing that stands for it."""
        self.code = code
        missing = self.library.missing(code)
        regain = code in _LASTING and memo in self.worked
        if code in _LASTING:
            lasts_s = _REGAIN_S if regain else REPROBE_S
            self._refused[memo] = (missing, code, time.monotonic() + lasts_s)
        if regain or code not in _LASTING | _ANSWERS:
            self.failed[code] = self.failed.get(code, 0) + 1
        else:
            self.good += 1
        self.regaining = self.regaining or regain
        if missing.reason == "lost":
            self.lost, self.lost_code = missing, code
        return missing

    def revive(self) -> bool:
        """Whether a lost device answers again (one call)."""
        self.lost = None
        self.get(nv.nvmlDeviceGetMemoryInfo, memo="revive")
        return self.lost is None
