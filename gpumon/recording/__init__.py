"""Recording files: the lines of the wire in zstd frames, one file per node and run.

`docs/recording.md` describes the format and defends it by numbers. Written by one `Recorder`,
read by `Recording` in whatever state a crash, a full disk or a copy left them, found by
`runs.find_runs` and `runs.resolve`, thrown away by `runs.prune`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from gpumon.recording.reader import Recording
from gpumon.recording.writer import Recorder

__all__ = ["Recorder", "Recording"]


class _Callable(ModuleType):
    """`gpumon.recording` is also the function of this name that programs use."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from importlib import import_module  # what it calls lies above

        return import_module("gpumon.api.recorder").recording(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
