"""What many tests look at and takes long to make is made once in a run, by the first that asks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")
#: the folder of this run, which its workers inherit
FOLDER = "GPUMON_TESTS_SHARED"


def shared(name: str, make: Callable[[], Made]) -> Made:
    """What `make` returns, from the worker that made it first. Each caller gets one of its own."""
    folder = os.environ.get(FOLDER)
    if folder is None:  # no test runs
        return make()
    path = Path(folder, name)
    try:
        with path.open("rb") as kept:
            found: Made = pickle.load(kept)  # written below
        return found
    except FileNotFoundError:
        made = make()
    part = path.with_name(f"{name}.{os.getpid()}")
    part.write_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
    part.replace(path)
    return made
