"""The measurements: a program that runs on, and a command that ends by itself."""

from __future__ import annotations

import os
import subprocess
import time
from statistics import median
from typing import NamedTuple

from benchmarks.bed import Bed
from benchmarks.processes import cpu_s, memory, tree
from benchmarks.running import EndedEarly, Running


class LiveFigures(NamedTuple):
    """What a running program costs. `child_` is the part of its descendants, in the sum already."""

    cpu_percent: float
    child_cpu_percent: float
    pss_bytes: float
    child_pss_bytes: float
    rss_bytes: float
    nvml_calls_per_s: float
    nvml_failing_per_s: float
    output_bytes_per_s: float
    updates_per_s: float
    first_byte_s: float
    first_screen_s: float
    first_screen_cpu_s: float


class ShotFigures(NamedTuple):
    wall_s: float
    cpu_s: float


class Failed(NamedTuple):
    """Why there are no figures."""

    reason: str


def measure_live(
    bed: Bed,
    argv: list[str],
    size: tuple[int, int] | None,
    marker: str,
    seconds: float,
    settle_s: float,
) -> LiveFigures | Failed:
    """Start a program, let it settle for so long, watch it for a window of `seconds`, end it.

    With 0 seconds the program is only started; its figures mean nothing.
    """
    env = bed.program_env()
    running = Running(argv, env, size, marker)
    try:
        running.start()
        start_cpu_s = cpu_s(tree(running.pid))
        running.pump(settle_s if seconds else 0.5)
        calls, wrote, updates = bed.calls(env), running.bytes, running.updates
        own, whole = cpu_s([running.pid]), cpu_s(tree(running.pid))
        took_s = running.pump(seconds or 0.1)
        calls_end, pids = bed.calls(env), tree(running.pid)
        own_end, whole_end = cpu_s([running.pid]), cpu_s(pids)
        used, by_children = memory(pids), memory(pids[1:])
    except EndedEarly as ended:
        return Failed(str(ended))
    finally:
        running.stop()
    return LiveFigures(
        cpu_percent=100 * (whole_end - whole) / took_s,
        child_cpu_percent=100 * (whole_end - whole - own_end + own) / took_s,
        pss_bytes=used.pss_bytes,
        child_pss_bytes=by_children.pss_bytes,
        rss_bytes=used.rss_bytes,
        nvml_calls_per_s=(calls_end.total - calls.total) / took_s,
        nvml_failing_per_s=(calls_end.failing - calls.failing) / took_s,
        output_bytes_per_s=(running.bytes - wrote) / took_s,
        updates_per_s=(running.updates - updates) / took_s,
        first_byte_s=running.first_byte_s or 0,
        first_screen_s=running.first_screen_s or 0,
        first_screen_cpu_s=start_cpu_s,
    )


def measure_shot(bed: Bed, argv: list[str]) -> ShotFigures | Failed:
    """Run a command to its end; CPU is that of it and of the children it waited for."""
    env = bed.program_env()
    began = time.monotonic()
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return Failed(f"status {process.returncode}: {said.splitlines()[-1][:150] if said else ''}")
    return ShotFigures(wall_s, usage.ru_utime + usage.ru_stime)


def middle(results: list) -> LiveFigures | ShotFigures | Failed:
    """Median of each figure over the runs; a run that failed is named, never averaged over."""
    for result in results:
        if isinstance(result, Failed):
            return result
    return type(results[0])(*(median(column) for column in zip(*results)))
