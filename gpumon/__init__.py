"""gpumon: a terminal dashboard for GPUs and jobs on Slurm clusters.

In a program or a notebook: `gpumon.watch()`, `step()`, `mark()`, `snapshot()` and `recording()`
(docs/python.md), which are loaded where they are used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from gpumon.api.inside import mark as mark
    from gpumon.api.inside import step as step
    from gpumon.api.inside import watch as watch
    from gpumon.api.recorder import recording as recording
    from gpumon.api.sampling import snapshot as snapshot
    from gpumon.errors import GpumonError as GpumonError

#: name -> module; `recording` is a folder of this package too, which can be called
_LOADED_LATER = {
    "GpumonError": "gpumon.errors",
    "mark": "gpumon.api.inside",
    "recording": "gpumon.recording",
    "snapshot": "gpumon.api.sampling",
    "step": "gpumon.api.inside",
    "watch": "gpumon.api.inside",
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'gpumon' has no attribute {name!r}")
    try:
        from importlib import import_module

        module = import_module(_LOADED_LATER[name])
    except Exception:  # no descriptor is left, or gpumon was removed meanwhile
        if name not in ("mark", "step", "watch"):  # which never fail a program
            raise
        globals()[name] = _nothing
        return _nothing
    if name != "recording":  # which import_module has set
        globals()[name] = getattr(module, name)
    return globals()[name]


def _nothing(*_: object) -> None:
    """In the place of what could not be loaded."""


def __dir__() -> "list[str]":
    return sorted({*globals(), *_LOADED_LATER})
