"""The same recording with the probe inside its training processes.

Their steps follow the segments; where their main threads stand follows from what they wait for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from random import Random

from gpumon.model.reading import Reading
from gpumon.model.sample import Header, Key, Sample
from tests.simulator.job import SimJob
from tests.simulator.loads import IDLE, Gpu
from tests.simulator.observe import stream

STEP, LOOP = "train.py:131", "train.py:88 _BaseDataLoaderIter.__next__"
REDUCE, SAVE, EVALUATE = "train.py:120 all_reduce", "train.py:140 save", "eval.py:12 forward"
LOOPS = "evaluate.py:88 collect"
LOCK, PREPARE, TOKENIZE = "data.py:9 acquire", "prepare.py:5 load", "train.py:57 tokenize"
_STRANGERS = 99000
Look = tuple[str, str]  # place, and what it waits for


def probed(job: SimJob, node: int) -> Iterator[Header | Sample]:
    """One node's items, in order."""
    inside = _Inside(job, node)
    for item in stream(job, node):
        if isinstance(item, Sample):
            inside.add(item)
        yield item


class _Inside:
    def __init__(self, job: SimJob, node: int) -> None:
        self.job, self.node = job, node
        self.rng = Random(f"{job.name} {node} probed")
        segments = job.program.segments
        self.starts = list(accumulate((each.seconds for each in segments[:-1]), initial=0.0))
        self.steps: dict[int, float] = defaultdict(float)
        self.last = 0.0

    def add(self, sample: Sample) -> None:
        """The rows of the processes that are on GPUs in this sample."""
        dt, self.last = sample.mono - self.last, sample.mono
        segment = self.job.program.segments[bisect_right(self.starts, sample.mono) - 1]
        gpus = segment.nodes[self.node].gpus
        rows: dict[Key, dict[str, Reading]] = {}
        for both in sample.rows.get("usage", {}):
            assert isinstance(both, tuple)
            key, pid = both
            if pid >= _STRANGERS:
                continue
            load = gpus[key] if key < len(gpus) else IDLE
            waits = self._data_wait(load) if segment.name == "train" else 0.0
            row: dict[str, Reading] = {"rank": self.node * self.job.request.gpus + key}
            if segment.name == "train" and load.busy > 0.02:
                self.steps[pid] += dt / load.cycle_s
                row |= {"step_us": 1e6 * load.cycle_s, "step_p95_us": 1.2e6 * load.cycle_s}
            where, row["waits_for"] = self._look(segment.name, load, key, waits)
            rows[pid] = {**row, "place": where, "steps": int(self.steps[pid]),
                         "data_wait_percent": 100 * waits}  # fmt: skip
        if rows:
            sample.rows["program"] = rows

    def _data_wait(self, load: Gpu) -> float:
        return 1 - load.busy if "input" in self.job.program.causes else 0.02

    def _look(self, segment: str, load: Gpu, key: int, waits: float) -> Look:
        works = load.busy > 0.02
        if segment == "train":
            if self.rng.random() < waits:
                return LOOP, "data"
            is_host = "host-stall" in self.job.program.causes or "host" in self.job.program.causes
            return (TOKENIZE if is_host and self.rng.random() > load.busy else STEP), ""
        if segment == "hang":
            if load.waiting > 0.5:
                return REDUCE, "ranks"
            stands = LOOPS if "stuck" in self.job.program.causes else LOCK
            return (STEP if works else stands), ""
        if segment in ("eval", "checkpoint"):
            own = EVALUATE if segment == "eval" else SAVE
            return (own, "") if works or key == 0 else (REDUCE, "ranks")
        return PREPARE, ""
