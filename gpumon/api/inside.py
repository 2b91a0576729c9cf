"""What a program reports of itself: marks, its steps, and what the probe reads in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from gpumon.errors import GpumonError, UsageError


def watch() -> None:
    """Run the probe in this process, as `gpumon record --probe` does from outside.

    From then on dashboards and recordings of this node show the true memory need, steps and waits
    of this process. Does nothing where the probe already runs. Raises GpumonError if it cannot
    write.
    """
    if _Steps.count is None:
        probe = _probe_from_outside() or _probe_from_here()
        probe.begin()
        _Steps.count, _Steps.is_asked = probe.step, True


def step() -> None:
    """Count one step of this program: for frameworks other than PyTorch, or if your step is not its
    optimizer's.

    Does nothing, at no cost, unless the probe runs in this process.
    """
    if not _Steps.is_asked:
        probe = _probe_from_outside()
        _Steps.is_asked = True
        _Steps.count = None if probe is None else probe.step
    if _Steps.count is not None:
        _Steps.count()


def mark(text: object) -> None:
    """Put a line with this text, or number, on the time axis of this job's or node's recordings.

    Does nothing if nothing records, so that it may stay in the program. Raises UsageError if the
    text is empty.
    """
    from gpumon.services.mark import mark as send

    try:
        send(str(text))
    except UsageError:
        raise
    except GpumonError:  # there is no recording, or it has just ended
        pass


class _Steps:
    """Where steps are counted; None as long as the probe does not run in this process."""

    is_asked = False
    count: Callable[[], None] | None = None


def _probe_from_outside() -> Any:
    """The probe that `gpumon record --probe` brought into this process; None without one."""
    for finder in sys.meta_path:
        probe = getattr(finder, "gpumon_probe", None)
        if probe is not None:
            return probe()
    return None


def _probe_from_here() -> Any:
    from gpumon.collect.proc.probed import VARIABLE
    from gpumon.services.probing import INSIDE, probe_of, sweep

    found = probe_of(os.environ)
    if found.why_not:
        raise GpumonError(f"{found.why_not}; set TMPDIR to a folder of your own")
    sweep(os.environ)
    os.environ[VARIABLE] = found.variables[VARIABLE]
    sys.path.insert(0, INSIDE)
    try:
        return import_module("gpumon_probe")
    finally:
        sys.path.remove(INSIDE)
        for name in ("gpumon_probe", "gpumon_steps"):
            sys.modules.pop(name, None)
