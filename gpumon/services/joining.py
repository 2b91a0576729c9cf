"""Recordings of a job, with another source's samples where they have none.

The coarser samples come under the recording's own header, on its devices: what it told of the node
and its job stays known. A seam is bridged at the coarser pace, so it is not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from gpumon.frames.builder import FrameBuilder
from gpumon.frames.frame import Frame
from gpumon.model.sample import Device, Header, Sample
from gpumon.recording.reader import Stretch
from gpumon.services.runs import Stream

if TYPE_CHECKING:
    from gpumon.analysis.run import Run
    from gpumon.analysis.rundata import RunData

#: of the run, and seconds, that may lack on a node before another source is asked
_LACKING_SHARE, _LACKING_S = 0.05, 60.0


def lacks_much(run: RunData) -> bool:
    """Whether the recordings leave out a node, or more of the run than is worth a question."""
    most_s = max(_LACKING_SHARE * run.elapsed_s, _LACKING_S)
    return bool(run.coverage.unrecorded) or any(
        run.elapsed_s - node.covered_s > most_s for node in run.nodes
    )


def joined(recorded: Sequence[Stream], found: Sequence[Stream], count: int) -> Run:
    """The recordings with what was `found` of the same nodes, and the nodes not recorded.

    A node may have another name in Slurm than its host has: where all `count` nodes of the job are
    recorded, none is added.
    """
    from gpumon.analysis.run import Run

    run = Run()
    others = {_short(each.node): each for each in found}
    files = [(each.node, each.joined) for each in recorded if each.joined is not None]
    for node, file in files:
        other = others.pop(_short(node), None)
        told = list(other.items) if other is not None else []
        for frame in filled(file.stretches(), told):
            run.add(node, frame)
    for each in list(others.values())[: max(0, count - len(files))]:
        for frame in each.frames():
            run.add(each.node, frame)
    return run


def _short(node: str) -> str:
    return node.partition(".")[0]


def filled(recorded: Iterable[Stretch], others: Sequence[Header | Sample]) -> Iterator[Frame]:
    """The recorded frames; where samples are further apart than the other samples are, those."""
    header = next((each for each in others if isinstance(each, Header)), None)
    between = _Between(header, [each for each in others if isinstance(each, Sample)])
    builder: FrameBuilder | None = None  # of samples that are not in a frame yet
    for stretch in recorded:
        frame = stretch.opened()
        if frame is None or between.could_fill(frame):
            items: Iterable[Header | Sample] = between.within(stretch.items())
        else:
            items = between.before(frame)
        for item in items:
            builder = builder or FrameBuilder()
            builder.add(item)
        if frame is not None and not between.could_fill(frame):
            if builder is not None:
                yield builder.cut()
                builder = None
            between.go_on(frame)
            yield frame
    builder = builder or FrameBuilder()
    for item in between.until(inf):
        builder.add(item)
    yield builder.cut()


class _Between:
    """The other source's samples, in order of time, and up to where the recording was read."""

    def __init__(self, told: Header | None, samples: Sequence[Sample]) -> None:
        self._told, self._samples = told, samples
        self._header: Header | None = None  # the recording's newest
        self._place = 0
        self._last = -inf  # the newest recorded sample

    def could_fill(self, frame: Frame) -> bool:
        """Whether samples of it are further apart than the others are."""
        told, samples = self._told, frame.samples
        if told is None or not samples.gaps:
            return False
        return samples.longest_gap_s + samples.interval_s > told.interval_s

    def before(self, frame: Frame) -> Iterator[Header | Sample]:
        """What fits before it."""
        self._header = self._header or frame.header
        if frame.samples.seen:
            yield from self.until(frame.samples.first)

    def go_on(self, frame: Frame) -> None:
        """The recording was read up to the end of it."""
        self._header = frame.header or self._header
        if frame.samples.seen:
            self._last = frame.samples.last

    def within(self, items: Iterable[Header | Sample]) -> Iterator[Header | Sample]:
        """Recorded items with those that fit between."""
        for item in items:
            if isinstance(item, Header):
                self._header = item
                yield item
            elif not item.rows:
                yield item
            else:
                more = list(self.until(item.time))
                self._last = item.time
                yield from more
                yield item  # while the pace is still the other source's: no gap lies before it
                if more and self._header is not None:
                    yield self._header._replace(time=item.time, mono=item.mono)

    def until(self, end: float) -> Iterator[Header | Sample]:
        """A header, and the samples between the newest recorded one and `end`."""
        told, header = self._told, self._header
        if told is None or header is None or end - self._last <= told.interval_s:
            return
        found = []
        while self._place < len(self._samples) and self._samples[self._place].time < end:
            sample = self._samples[self._place]
            self._place += 1
            if sample.time > self._last:
                found.append(sample)
        if not found:
            return
        time, pace = found[0].time, told.interval_s
        yield header._replace(time=time, mono=time, interval_s=pace)
        keys = same_devices(told.devices, header.devices)
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
