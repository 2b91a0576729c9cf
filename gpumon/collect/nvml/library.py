"""NVIDIA's management library (NVML): loaded, initialised, ended, and what its errors mean."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from gpumon.collect.nvml.binding import nv
from gpumon.model.reading import Missing
from gpumon.model.text import clean

SONAME = "libnvidia-ml.so.1"
#: the whole session with the driver is gone when every device fails with one of these
SESSION_CODES = frozenset(
    (
        nv.NVML_ERROR_UNINITIALIZED,
        nv.NVML_ERROR_DRIVER_NOT_LOADED,
        nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        nv.NVML_ERROR_UNKNOWN,
    )
)
_REASONS = {
    nv.NVML_ERROR_NOT_SUPPORTED: "unsupported",
    nv.NVML_ERROR_NO_PERMISSION: "no-permission",
    nv.NVML_ERROR_TIMEOUT: "timeout",
    nv.NVML_ERROR_GPU_IS_LOST: "lost",
    nv.NVML_ERROR_RESET_REQUIRED: "lost",
    nv.NVML_ERROR_DRIVER_NOT_LOADED: "no-driver",
}
#: this driver is too old for a function, or for a version of its struct
_TOO_NEW = (nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
_MAX_TEXT = 256

#: (device, inode) -> the copies of the library that this process has loaded
_copies: dict[tuple[int, int], ctypes.CDLL] = {}


def text_of(raw: bytes) -> str:
    """A driver's text, safe to show."""
    return clean(raw.decode("utf-8", "replace"), _MAX_TEXT).strip()


def error_text(code: int) -> str:
    """NVML's own words for a code."""
    try:
        return text_of(nv.nvmlErrorString.__wrapped__(code) or b"")
    except nv.NVMLError:
        return f"NVML error {code}"


class Library:
    """The loaded and initialised library; NVML is safe to call from several threads."""

    def __init__(self) -> None:
        """Load and initialise it; raises NVMLError. May take seconds, or hang for good."""
        self.closed = False  # nothing is called any more; read by all threads
        _initialise()
        self._dll = nv.nvmlLib
        self.driver = self._text(nv.nvmlSystemGetDriverVersion)
        self.version = self._text(nv.nvmlSystemGetNVMLVersion)

    def has(self, name: str) -> bool:
        """Whether this driver has a function."""
        try:
            nv._nvmlGetFunctionPointer(name)
        except nv.NVMLError:
            return False
        return True

    def missing(self, code: int) -> Missing:
        """Why there is no value, from NVML's code."""
        if code in _TOO_NEW:
            return Missing("unsupported", f"driver {self.driver}")
        reason = _REASONS.get(code, "error")
        return Missing(reason, error_text(code) if reason == "error" else "")

    def cuda(self) -> str:
        """The newest CUDA version that the driver supports ("13.0"), "" if unknown."""
        try:
            version = nv.nvmlSystemGetCudaDriverVersion_v2()
        except nv.NVMLError:
            return ""
        return f"{version // 1000}.{version % 1000 // 10}"

    def close(self) -> None:
        """End the session: threads that are late find it closed, and use no handle of it."""
        self.closed = True
        try:
            nv.nvmlShutdown()
        except nv.NVMLError:
            pass  # it is gone already

    def same_file(self, other: Library) -> bool:
        """Whether memory that one of them gave out may be given back to the other."""
        return bool(self._dll._handle == other._dll._handle)

    def _text(self, function: Any) -> str:
        try:
            return text_of(function.__wrapped__())
        except nv.NVMLError:
            return ""


def _initialise() -> None:
    """Of the mapped library, or of the one that has replaced it on disk."""
    _use(None)
    try:
        nv.nvmlInit()
    except nv.NVMLError_LibRmVersionMismatch:
        replaced = _replacement()
        if replaced is None:
            raise
        _use(replaced)
        nv.nvmlInit()


def _use(library: ctypes.CDLL | None) -> None:
    """Have the binding call this library, or load one by its name: it keeps its first for ever."""
    nv.nvmlLib = library
    nv._nvmlGetFunctionPointer_cache.clear()


def _replacement() -> ctypes.CDLL | None:
    """The library on disk, if another file than the mapped one has its name by now.

    The loader gives the mapped file again for the name, so another spelling of its path is
    loaded. Old copies stay mapped, since threads may hang in them: nothing calls them any more.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            found = re.search(rf" (/.*/){re.escape(SONAME[:-2])}[^/]*$", file.read(), re.M)
        folder = found.group(1) if found else ""
        status = os.stat(f"{folder}{SONAME}")
        place = (status.st_dev, status.st_ino)
        if place not in _copies:
            _copies[place] = ctypes.CDLL(f"{folder}{'./' * (len(_copies) + 1)}{SONAME}")
    except OSError:
        return None
    return None if _copies[place]._handle == nv.nvmlLib._handle else _copies[place]
