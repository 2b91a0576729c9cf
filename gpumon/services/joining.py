"""Recordings of a job, with another source's samples where they have none.

The coarser samples come under the recording's own header, on its devices: what it told of the node
and its job stays known. A seam is bridged at the coarser pace, so it is not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Union

from gpumon.model.batch import ColumnBatch
from gpumon.model.rolled import RolledFrame
from gpumon.model.sample import Device, Header, Sample
from gpumon.services.runs import Stream

if TYPE_CHECKING:
    from gpumon.analysis.aggregate.run import Aggregation
    from gpumon.analysis.rundata import RunData

Item = Union[Header, Sample, ColumnBatch]
#: of the run, and seconds, that may lack on a node before another source is asked
_LACKING_SHARE, _LACKING_S = 0.05, 60.0


def lacks_much(run: RunData) -> bool:
    """Whether the recordings leave out a node, or more of the run than is worth a question."""
    most_s = max(_LACKING_SHARE * run.elapsed_s, _LACKING_S)
    return bool(run.coverage.unrecorded) or any(
        run.elapsed_s - node.covered_s > most_s for node in run.nodes
    )


def joined(recorded: Sequence[Stream], found: Sequence[Stream], count: int) -> Aggregation:
    """The recordings with what was `found` of the same nodes, and the nodes not recorded.

    A node may have another name in Slurm than its host has: where all `count` nodes of the job are
    recorded, none is added.
    """
    from gpumon.analysis.aggregate.run import Aggregation

    aggregation = Aggregation()
    others = {_short(each.node): each for each in found}
    files = [(each.node, each.joined) for each in recorded if each.joined is not None]
    for node, file in files:
        other = others.pop(_short(node), None)
        told = list(other.items) if other is not None else []
        # rollup lines are of whole frames, between which nothing can come
        fine = (item for item in file.rolled(-inf) if not isinstance(item, RolledFrame))
        for item in filled(fine, told) if told else file.rolled():
            aggregation.add(node, item)
    for each in list(others.values())[: max(0, count - len(files))]:
        for item in each.items:
            aggregation.add(each.node, item)
    return aggregation


def _short(node: str) -> str:
    return node.partition(".")[0]


def filled(recorded: Iterable[Item], others: Sequence[Header | Sample]) -> Iterator[Item]:
    """The recorded items; where they are further apart than the other samples are, those."""
    header = next((each for each in others if isinstance(each, Header)), None)
    if header is None:
        yield from recorded
        return
    between = _Between(header, [each for each in others if isinstance(each, Sample)])
    for item in recorded:
        if isinstance(item, Header):
            between.header = item
            yield item
        elif isinstance(item, ColumnBatch):
            yield from between.batch(item)
        else:
            yield from between.sample(item)
    yield from between.until(inf)


class _Between:
    """The other source's samples, in order of time, and up to where the recording was read."""

    def __init__(self, told: Header, samples: Sequence[Sample]) -> None:
        self.header: Header | None = None  # the recording's newest
        self._told, self._samples = told, samples
        self._place = 0
        self._last = -inf  # the newest recorded sample

    def batch(self, batch: ColumnBatch) -> Iterator[Item]:
        times = [self._last, *batch.times]
        apart = max(later - earlier for earlier, later in zip(times, times[1:]))
        if apart <= self._told.interval_s:
            self._last = batch.times[-1]
            yield batch
            return
        for sample in batch.samples():
            yield from self.sample(sample)

    def sample(self, sample: Sample) -> Iterator[Item]:
        if not sample.rows:
            yield sample
            return
        more = list(self.until(sample.time))
        self._last = sample.time
        yield from more
        yield sample  # while the pace is still the other source's: no gap lies before it
        if more and self.header is not None:
            yield self.header._replace(time=sample.time, mono=sample.mono)

    def until(self, end: float) -> Iterator[Item]:
        """A header, and the samples between the newest recorded one and `end`."""
        if self.header is None or end - self._last <= self._told.interval_s:
            return
        found = []
        while self._place < len(self._samples) and self._samples[self._place].time < end:
            sample = self._samples[self._place]
            self._place += 1
            if sample.time > self._last:
                found.append(sample)
        if not found:
            return
        time, pace = found[0].time, self._told.interval_s
        yield self.header._replace(time=time, mono=time, interval_s=pace)
        keys = same_devices(self._told.devices, self.header.devices)
        yield from (_moved(each, keys) for each in found)


def same_devices(others: Sequence[Device], own: Sequence[Device]) -> dict[int, int]:
    """Key of a device in the other header -> its key in the recording. By UUID; where the other
    source has none, by their order, if they are as many: a job may see other indexes than the node.
    """
    if len(others) == len(own) and not any(each.uuid for each in others):
        places = [sorted(each, key=lambda device: device.index) for each in (others, own)]
        return {other.key: device.key for other, device in zip(*places)}
    names = {name: device.key for device in own for name in _names(device)}
    return {each.key: names[each.uuid] for each in others if each.uuid in names}


def _names(device: Device) -> list[str]:
    """Its UUID; of a MIG instance also what it is called where only the whole GPU has one."""
    mig = device.mig
    return [device.uuid, f"{mig.parent}/{mig.gi}"] if mig is not None else [device.uuid]


def _moved(sample: Sample, keys: Mapping[int, int]) -> Sample:
    """The sample with the recording's keys; devices that it does not have are left out."""
    rows = dict(sample.rows)
    devices = rows.pop("device", {})
    rows["device"] = {
        keys[k]: row for k, row in devices.items() if isinstance(k, int) and k in keys
    }
    return sample._replace(rows=rows)
