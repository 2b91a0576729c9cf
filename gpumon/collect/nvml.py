"""NVIDIA's management library (NVML): loading it, calling it, and what its errors mean.

By ctypes and not by pynvml: its import costs as much time and memory as the rest of the agent, its
wrappers allocate at every call, and another package of that name shadows it on many systems. The
tests compare our structs and constants with the official binding's.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, Optional, Set, Tuple

from gpumon.collect.nvml_load import libraries
from gpumon.model.reading import Missing, Reading
from gpumon.model.text import clean

OK = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25  # of a versioned struct: this driver knows older ones only
UNKNOWN = 999

#: codes that say that the whole session with the driver is gone, when every device gives them
SESSION_CODES = frozenset((UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH, UNKNOWN))
#: NVML_VALUE_NOT_AVAILABLE of 64-bit values
NOT_AVAILABLE = 2**64 - 1
#: what a device or driver does not support is asked again after this time
REPROBE_S = 600.0
#: ... and what it did support a moment ago, after this
_REGAIN_S = 6.0

_REASONS = {
    NOT_SUPPORTED: "unsupported",
    FUNCTION_NOT_FOUND: "unsupported",
    ARGUMENT_VERSION_MISMATCH: "unsupported",
    NO_PERMISSION: "no-permission",
    TIMEOUT: "timeout",
    GPU_IS_LOST: "lost",
    RESET_REQUIRED: "lost",
    DRIVER_NOT_LOADED: "no-driver",
}
#: codes that will not change from one second to the next
_LASTING = frozenset((NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, NO_PERMISSION))
#: reasons that may be gone the next time
_PASSING = frozenset(("error", "timeout", "lost", "no-driver"))
_MAX_TEXT = 256


def text_of(raw: bytes) -> str:
    """A driver's text, safe to show."""
    return clean(raw.decode("utf-8", "replace"), _MAX_TEXT).strip()


def passing(reading: Reading) -> bool:
    """Whether it is missing for the moment only."""
    return isinstance(reading, Missing) and reading.reason in _PASSING


class NvmlError(Exception):
    """The library could not be loaded or initialised: NVML's code and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Library:
    """The loaded and initialised library; NVML is safe to call from several threads."""

    def __init__(self) -> None:
        """Load and initialise it; raises NvmlError. May take seconds, or hang for good."""
        self.closed = False  # nothing is called any more; read by all threads
        code = LIBRARY_NOT_FOUND
        try:
            for self._dll in libraries():
                self._functions: Dict[str, Optional[Callable[..., int]]] = {}
                code = self.call("nvmlInit_v2")
                if code != VERSION_MISMATCH:
                    break
        except OSError as error:
            if code == LIBRARY_NOT_FOUND:
                raise NvmlError(LIBRARY_NOT_FOUND, str(error)) from error
        if code != OK:
            raise NvmlError(code, self.error_text(code))
        self.driver = self._text("nvmlSystemGetDriverVersion")
        self.version = self._text("nvmlSystemGetNVMLVersion")

    def function(self, name: str) -> Optional[Callable[..., int]]:
        """The library's function, None where this driver has none."""
        try:
            return self._functions[name]
        except KeyError:
            found: Optional[Callable[..., int]] = getattr(self._dll, name, None)
            self._functions[name] = found
            return found

    def call(self, name: str, *args: Any) -> int:
        """NVML's code of one call that names no device."""
        if self.closed:
            return UNINITIALIZED
        function = self.function(name)
        return FUNCTION_NOT_FOUND if function is None else function(*args)

    def error_text(self, code: int) -> str:
        """NVML's own words for a code."""
        function = getattr(self._dll, "nvmlErrorString", None)
        if function is None:
            return f"NVML error {code}"
        function.restype = ctypes.c_char_p
        return text_of(function(code) or b"")

    def missing(self, code: int) -> Missing:
        """Why there is no value, from NVML's code."""
        if code in (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH):
            return Missing("unsupported", f"driver {self.driver}")
        reason = _REASONS.get(code, "error")
        return Missing(reason, self.error_text(code) if reason == "error" else "")

    def cuda(self) -> str:
        """The newest CUDA version that the driver supports ("13.0"); "" if it does not say."""
        value = ctypes.c_int()
        if self.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(value)) != OK:
            return ""
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def device_count(self) -> int:
        count = ctypes.c_uint()
        code = self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if code != OK:
            raise NvmlError(code, self.error_text(code))
        return count.value

    def close(self) -> None:
        """End the session: threads that are late find it closed, and use no handle of it."""
        shutdown = self.function("nvmlShutdown")
        self.closed = True
        if shutdown is not None:
            shutdown()

    def same_file(self, other: Library) -> bool:
        """Whether memory that one of them gave out may be given back to the other."""
        return bool(self._dll._handle == other._dll._handle)

    def _text(self, name: str) -> str:
        buffer = ctypes.create_string_buffer(96)
        return text_of(buffer.value) if self.call(name, buffer, len(buffer)) == OK else ""


class Query:
    """Guarded calls on one device handle, made by one thread.

    Each call gives None, or the Missing that stands for its error; what the device does not
    support is remembered and not asked again for `REPROBE_S`. Once the device is lost, nothing
    is asked until `revive`.
    """

    def __init__(self, library: Library, handle: Any, worked: Optional[Set[Any]] = None) -> None:
        """`worked`: what the same device has answered before."""
        self.library = library
        self.handle = handle
        self.calling = ""  # the call that has not come back; read by other threads
        self.code = OK  # of the last call
        self.lost: Optional[Missing] = None
        self.lost_code = OK
        self.good = 0  # calls that succeeded or were refused for a reason that will last
        self.failed: Dict[int, int] = {}  # code -> calls, for all other codes
        self.regaining = False  # something was refused that worked before
        self.worked: Set[Any] = set() if worked is None else worked
        self._refused: Dict[Any, Tuple[Missing, float]] = {}
        self._u32 = ctypes.c_uint()
        self._u64 = ctypes.c_ulonglong()
        self._u32_ref = ctypes.byref(self._u32)
        self._u64_ref = ctypes.byref(self._u64)

    def call(self, name: str, *args: Any, memo: Any = None) -> Optional[Missing]:
        """Call `name(handle, *args)`; `memo` names what is refused, where `name` is too wide."""
        return self.plain(name, self.handle, *args, memo=memo)

    def plain(self, name: str, *args: Any, memo: Any = None) -> Optional[Missing]:
        """As `call`, for functions that do not take the device's handle first."""
        if self.lost is not None:
            return self.lost
        if self.library.closed:
            return self.refuse(UNINITIALIZED, name)
        memo = name if memo is None else memo
        refused = self.refused(memo)
        if refused is not None:
            self.code = NOT_SUPPORTED
            if memo in self.worked:
                self.failed[NOT_SUPPORTED] = self.failed.get(NOT_SUPPORTED, 0) + 1
            return refused
        function = self.library.function(name)
        if function is None:
            return self.refuse(FUNCTION_NOT_FOUND, memo)
        self.calling = name
        code = function(*args)
        self.calling = ""
        if code == OK:
            self.code = OK
            self.good += 1
            self.worked.add(memo)
            return None
        return self.refuse(code, memo)

    def refused(self, memo: Any) -> Optional[Missing]:
        """Why `memo` is not asked at the moment."""
        entry = self._refused.get(memo)
        if entry is None:
            return None
        if time.monotonic() < entry[1]:
            return entry[0]
        del self._refused[memo]
        return None

    def refuse(self, code: int, memo: Any) -> Missing:
        """Take note of an error; the Missing that stands for it."""
        self.code = code
        missing = self.library.missing(code)
        if code in _LASTING and memo in self.worked:
            self.regaining = True
            self.failed[code] = self.failed.get(code, 0) + 1
            self._refused[memo] = (missing, time.monotonic() + _REGAIN_S)
        elif code in _LASTING:
            self.good += 1
            self._refused[memo] = (missing, time.monotonic() + REPROBE_S)
        elif code in (NOT_FOUND, INSUFFICIENT_SIZE):
            self.good += 1  # an answer: nothing there, or more than the buffer holds
        else:
            self.failed[code] = self.failed.get(code, 0) + 1
            if missing.reason == "lost":
                self.lost, self.lost_code = missing, code
        return missing

    def revive(self) -> bool:
        """Whether a lost device answers again (one call)."""
        self.lost = None
        self.call("nvmlDeviceGetMemoryInfo", ctypes.create_string_buffer(24), memo="revive")
        return self.lost is None

    def u32(self, name: str, *args: Any, memo: Any = None) -> Reading:
        """A function whose last argument is a pointer to an unsigned int."""
        missing = self.plain(name, self.handle, *args, self._u32_ref, memo=memo)
        return self._u32.value if missing is None else missing

    def u64(self, name: str, *args: Any, memo: Any = None) -> Reading:
        missing = self.plain(name, self.handle, *args, self._u64_ref, memo=memo)
        return self._u64.value if missing is None else missing

    def text(self, name: str, size: int = 96) -> Reading:
        """A function that fills (buffer, size)."""
        buffer = ctypes.create_string_buffer(size)
        missing = self.call(name, buffer, size)
        return text_of(buffer.value) if missing is None else missing
