"""Recorded streams that ship with the package; `screenshots` and tests use them too."""

from __future__ import annotations

import os

from gpumon.errors import NotFoundError

_SUFFIX = ".jsonl.gz"


def names() -> list[str]:
    """The names that `gpumon demo NAME` takes; the first is played when none is given."""
    files = os.listdir(os.path.dirname(__file__))
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def path(name: str) -> str:
    """The file of a demo. Raises NotFoundError."""
    known = names()
    if name not in known:
        raise NotFoundError(f"unknown demo {name!r}; choose from: {', '.join(known)}")
    return os.path.join(os.path.dirname(__file__), name + _SUFFIX)
