"""The gate to NVIDIA's own binding, `pynvml`: imported once, as an agent starts to read devices.

Only this folder uses it. Raises ImportError where no usable one is installed, nor was shipped.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType

from gpumon.collect.nvml.locate import NEWEST, VERSION, candidates


def _load() -> None:
    unusable = ""
    for spec in candidates():
        if spec.submodule_search_locations is not None:
            folder = os.path.dirname(spec.origin or "")
            unusable = unusable or f"{folder} belongs to another package"
            continue
        try:
            if hasattr(_execute(spec), NEWEST):
                return
            why = "is older"
        except (Exception, SystemExit) as error:  # written for Python 2, damaged, or another thing
            why = f"cannot be imported: {type(error).__name__}"
        del sys.modules["pynvml"]
        unusable = unusable or f"{spec.origin} {why}"
    found = f" ({unusable})" if unusable else ""
    raise ImportError(f"{VERSION} or later is not installed{found}")


def _execute(spec: ModuleSpec) -> ModuleType:
    """Import it without `ctypes.util`: the binding imports one function from there and never calls
    it, but with it come `subprocess`, `tempfile` and `shutil` (1.3 MiB, half of the time).
    """
    stand_in = ModuleType("ctypes.util")
    stand_in.find_library = None  # type: ignore[attr-defined]
    module = sys.modules["pynvml"] = module_from_spec(spec)
    used = sys.modules.setdefault("ctypes.util", stand_in)
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
    finally:
        if used is stand_in:
            del sys.modules["ctypes.util"]
    return module


_load()
import pynvml as nv  # noqa: E402  (what was just loaded)

__all__ = ["nv"]
