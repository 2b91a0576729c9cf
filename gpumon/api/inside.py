"""What a program reports of itself: marks, its steps, and what the probe reads in this process.

They never raise: whatever goes wrong here, the program goes on without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from gpumon.errors import UsageError

_LONGEST_MARK_S = 2.0
_FILES = ("gpumon_steps", "gpumon_thread", "gpumon_looks", "gpumon_file", "gpumon_probe")


def watch() -> None:
    """Run the probe in this process, as `gpumon record --probe` does from outside.

    From then on dashboards and recordings of this node show the true memory need, steps and waits
    of this process. Does nothing where the probe already runs, or has no folder to write into.
    """
    try:
        _watch()
    except Exception:
        pass


def step() -> None:
    """Count one step of this program: for frameworks other than PyTorch, or if your step is not its
    optimizer's.

    Does nothing, at no cost, unless the probe runs in this process.
    """
    try:
        if not _Steps.is_asked:
            _Steps.is_asked = True
            probe = _probe_from_outside()
            _Steps.count = None if probe is None else probe.step
        if _Steps.count is not None:
            _Steps.count()
    except Exception:
        _Steps.count = None


def mark(text: object) -> None:
    """Put a line with this text, or number, on the time axis of this job's or node's recordings.

    Does nothing if nothing records, so that it may stay in the program. Raises UsageError if the
    text is empty, and nothing else.
    """
    said = str(text)
    if not said.strip():
        raise UsageError("the mark is empty; give it a text")
    try:
        _mark(said)
    except Exception:
        pass


class _Steps:
    """Where steps are counted; None as long as the probe does not run in this process."""

    is_asked = is_watched = False
    count: Callable[[], None] | None = None


class _Marks:
    """Whether a file system hung."""

    hang = False
    probe: Any = None


def _watch() -> None:
    from gpumon.services.probing import folder_of, sweep

    def find() -> str:
        sweep(os.environ)
        return folder_of(os.environ)

    if not _Steps.is_watched:
        _Steps.is_watched = True
        probe = _probe_from_outside() or _probe_from_here()
        probe.watch(find)
        _Steps.count, _Steps.is_asked = probe.step, True


def _mark(text: str) -> None:
    """On a thread, as the files of a hung file system are waited for without end."""
    from gpumon.services.mark import mark as send

    if _Marks.hang:
        return
    _Marks.probe = _Marks.probe or _probe_from_here()
    if _Marks.probe.is_patched():
        send(text)
    else:
        _Marks.hang = not _Marks.probe.Thread(lambda _: send(text)).end(_LONGEST_MARK_S)


def _probe_from_outside() -> Any:
    """The probe that `gpumon record --probe` brought into this process; None without one."""
    for finder in sys.meta_path:
        probe = getattr(finder, "gpumon_probe", None)
        if probe is not None:
            return probe()
    return None


def _probe_from_here() -> Any:
    """Not by way of `sys.path`, which other threads may be going over."""
    from gpumon.services.probing import INSIDE

    module = None
    try:
        for name in _FILES:
            module = sys.modules[name] = ModuleType(name)
            code = SourceFileLoader(name, os.path.join(INSIDE, f"{name}.py")).get_code(name)
            exec(code, vars(module))  # type: ignore[arg-type]
    finally:
        for name in _FILES:
            sys.modules.pop(name, None)
    return module
