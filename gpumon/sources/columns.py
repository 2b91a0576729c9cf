"""What a seek feeds: a stretch of a recorded stream in columns, or less of each sample."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile
from math import floor
from typing import Union

from gpumon.model.batch import CELL_S, ColumnBatch
from gpumon.model.sample import Header, Key, Sample
from gpumon.sources.tracks import Track

Item = Union[Header, Sample, ColumnBatch]


def cell_of(time: float) -> float:
    """Where the cell begins that holds a moment: columns lie between two of these."""
    return floor(time / CELL_S) * CELL_S


def stretch(track: Track, begin: float, until: float) -> Iterator[Item]:
    """All from `begin` to before `until`; where that cuts columns, their samples one by one."""
    assert track.batches is not None
    for item in dropwhile(lambda item: last_time(item) < begin, track.batches(begin, until)):
        if first_time(item) >= until:
            return
        if isinstance(item, ColumnBatch) and (item.times[0] < begin or item.times[-1] >= until):
            yield from (each for each in item.samples() if begin <= each.time < until)
            if item.times[-1] >= until:
                return
        else:
            yield item


def rest(track: Track, since: float) -> Iterator[Header | Sample]:
    """All from a moment on, one by one."""
    return dropwhile(lambda item: item.time < since, track.items(since))


def first_time(item: Item) -> float:
    return item.times[0] if isinstance(item, ColumnBatch) else item.time


def last_time(item: Item) -> float:
    return item.times[-1] if isinstance(item, ColumnBatch) else item.time


def with_courses(sample: Sample, on_gpus: set[Key]) -> Sample:
    """Without processes on no GPU; `on_gpus`: those that were on one, which gets the new ones."""
    on_gpus.update(key[1] for key in sample.rows.get("usage", ()) if isinstance(key, tuple))
    processes = sample.rows.get("process", {})
    kept = {pid: row for pid, row in processes.items() if pid in on_gpus}
    return sample._replace(rows={**sample.rows, "process": kept})
