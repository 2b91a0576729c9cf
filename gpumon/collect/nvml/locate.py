"""Where NVIDIA's own binding to NVML is: the module `pynvml` of the distribution nvidia-ml-py.

Other distributions install a package of the same name, which hides the module, and there are old
versions of it. So what an import finds comes first, then each file of that name on `sys.path`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec

#: the newest name that gpumon needs, and what brought it
NEWEST, VERSION = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "nvidia-ml-py 12.570"


def candidates() -> Iterator[ModuleSpec]:
    """What may be the binding, or another package, or too old."""
    found = find_spec("pynvml")
    if found is not None:
        yield found
    for folder in sys.path:
        path = os.path.join(folder, "pynvml.py")
        if os.path.isfile(path):
            yield ModuleSpec("pynvml", SourceFileLoader("pynvml", path), origin=path)


def source() -> str:
    """The text of the installed binding, "" if there is none; imports nothing."""
    for spec in candidates():
        if spec.submodule_search_locations is None and spec.origin:
            with open(spec.origin, encoding="utf-8") as file:
                text = file.read()
            if NEWEST in text:
                return text
    return ""
