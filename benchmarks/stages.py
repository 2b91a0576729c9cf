"""Where the CPU of a running dashboard goes: by stage of a sample, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from threading import local
from typing import Any

from gpumon.analysis.aggregate.run import Aggregation
from gpumon.pipeline.backlog import Backlog
from gpumon.pipeline.evaluator import Evaluator
from gpumon.recording import writer
from gpumon.recording.rollups import Rolling
from gpumon.store import Store
from gpumon.transport.intake import Intake
from gpumon.tui.app import GpumonApp

REST = "rest (reading, threads, Textual)"
#: stage -> the methods in which it happens. One within another counts there alone
_STAGES: dict[str, list[tuple[type, str]]] = {
    "decode": [(Intake, "line")],
    "record": [(writer.Recorder, "add")],
    "roll": [(Rolling, "_take"), (Rolling, "lines")],
    "pack": [(writer._Writer, "_write")],
    "queue": [(Backlog, "put")],
    "store": [(Store, "add")],
    "aggregate": [(Aggregation, "add")],
    "evaluate": [(Evaluator, "_evaluation")],
    "draw": [(GpumonApp, "draw")],
    "look": [(GpumonApp, "_look")],
}


#: epoch s, then CPU s and calls of each stage so far
Snapshot = tuple[float, dict[str, tuple[float, int]]]


class Stages:
    """Patches the methods of all stages, and adds up what they take in all threads."""

    def __init__(self) -> None:
        self._own = local()
        self._spent: list[dict[str, list[float]]] = []  # of each thread: seconds, calls
        for stage, methods in _STAGES.items():
            for owner, name in methods:
                setattr(owner, name, self._timed(stage, getattr(owner, name)))

    def _timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        own, clock = self._own, time.thread_time

        @wraps(call)
        def timed(*args: Any, **named: Any) -> Any:
            if not hasattr(own, "spent"):
                own.spent, own.within = {}, 0.0
                self._spent.append(own.spent)
            before, own.within = own.within, 0.0
            began = clock()
            try:
                return call(*args, **named)
            finally:
                took = clock() - began
                spent = own.spent.setdefault(stage, [0.0, 0])
                spent[0] += took - own.within
                spent[1] += 1
                own.within = before + took

        return timed

    def now(self) -> Snapshot:
        """What the stages took so far, and as `REST` what else the process took."""
        found = {stage: (0.0, 0) for stage in _STAGES}
        for spent in list(self._spent):
            for stage, (took, calls) in list(spent.items()):
                found[stage] = found[stage][0] + took, int(found[stage][1] + calls)
        found[REST] = time.process_time() - sum(took for took, _ in found.values()), 0
        return time.time(), found


def stage_rows(snapshots: list[Snapshot], began: float, ended: float) -> list[list[str]]:
    """Of a window: percent of a core, calls a second, and CPU of one call in ms."""
    (first, before), *_, (last, after) = [each for each in snapshots if began <= each[0] < ended]
    rows = []
    for stage, (took, calls) in after.items():
        cpu_s, count = took - before[stage][0], calls - before[stage][1]
        each = f"{cpu_s / count * 1e3:.3f}" if count else ""
        share = 100 * cpu_s / (last - first)
        rows.append([stage, f"{share:.2f}", f"{count / (last - first):.1f}", each])
    return rows
