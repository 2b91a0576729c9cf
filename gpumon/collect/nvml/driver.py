"""Begins a session with the driver and counts its devices; why there is none, for people."""

from __future__ import annotations

import os
import re

from gpumon.collect.nvml.answers import Counted, NoSession, Opened
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.events import XidWatch
from gpumon.collect.nvml.library import SONAME, Library, error_text, text_of
from gpumon.model.sample import NO_DRIVER, NO_MODULE

_MAX_GPUS_LISTED = 256


def open_session(old: Opened | None, proc: str, patience_s: float) -> Opened:
    """A new one instead of the old one, whose Xid thread may take so long to end.

    Raises NoSession.
    """
    if old is not None:
        old.watch.join(patience_s)
        old.library.close()
    try:
        library = Library()
    except nv.NVMLError as error:
        raise NoSession(_note(error.value, proc)) from None
    try:
        return Opened(library, XidWatch(library), library.cuda(), count(proc))
    except BaseException:
        library.close()  # sessions nest: one that is left open would keep its fault for ever
        raise


def count(proc: str) -> Counted:
    """The devices of the session that is open; raises NoSession."""
    try:
        listed = os.listdir(f"{proc}/driver/nvidia/gpus")
    except OSError:
        listed = []
    try:
        devices = nv.nvmlDeviceGetCount()
    except nv.NVMLError as error:
        raise NoSession(_note(error.value, proc)) from None
    return Counted(devices, tuple(sorted(listed)[:_MAX_GPUS_LISTED]))


def _note(code: int, proc: str) -> str:
    if code == nv.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NO_DRIVER
    if code == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        library, module = library_version(proc), module_version(proc)
        versions = f" (library {library}, kernel module {module})" if library and module else ""
        return (
            f"The driver was updated without a reboot{versions}: ask the site's staff to "
            "reboot the node."
        )
    if code == nv.NVML_ERROR_DRIVER_NOT_LOADED:
        return NO_MODULE
    return f"The NVIDIA driver cannot be used ({error_text(code)}); retrying."


def library_version(proc: str) -> str:
    """The version in the file name of the library that this process has mapped; "" if none."""
    pattern = rf"{re.escape(SONAME[:-2])}\.(\d+\.[\d.]+)$"
    return _search(f"{proc}/self/maps", pattern)


def module_version(proc: str) -> str:
    """The version of the kernel module that runs; "" if unknown."""
    return _search(f"{proc}/driver/nvidia/version", r"Kernel Module[^\n]*?\s(\d+\.[\d.]+)\s")


def _search(path: str, pattern: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        found = None
    return text_of(found.group(1).encode()) if found else ""
