"""The streams that a word on the command line names: a file, a folder or a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import GpumonError, NotFoundError, UsageError, WireError
from gpumon.model.sample import Header, Sample

if TYPE_CHECKING:
    from gpumon.analysis.evidence import Evidence
    from gpumon.model.ticks import Digest, Ticks
    from gpumon.recording import Recording
    from gpumon.site import Site


class Stream(NamedTuple):
    """One node's part of a run, from one or several files. To be read once.

    `lacks`: what is missing of a plain file. Files that cannot be read are a stream of nothing that
    lacks them; its `node` counts them.
    """

    node: str
    items: Iterator[Header | Sample]
    recordings: list[Recording]
    lacks: Sequence[str] = ()

    @property
    def gathered(self) -> Iterator[Header | Sample | Ticks | Digest]:
        """The same in place of `items` for who gathers evidence: what was gathered when it was
        written, else in columns. A node-day takes a second.
        """
        if not self.recordings:
            return iter(self.items)
        return _gathered(self.recordings)

    @property
    def problems(self) -> list[str]:
        """What the files lack, in sentences; complete when they were read."""
        return [*self.lacks, *(said for each in self.recordings for said in each.problems)]


def is_plain(run: str) -> bool:
    """Whether it names a plain file of lines."""
    from gpumon.recording import SUFFIX, is_job, is_recording

    if not os.path.isfile(run) or run.endswith(SUFFIX) or is_job(run):
        return False
    return not is_recording(run)


def spare_recordings(output: str | None, inputs: Iterable[str | None]) -> None:
    """Raise UsageError where -o names a recording or a file that is read: it would be replaced."""
    from gpumon.recording import is_recording

    if output is None or not os.path.isfile(output):
        return
    if is_recording(output):
        raise UsageError(f"{output} is a recording; name another file with -o")
    if any(each and os.path.exists(each) and os.path.samefile(each, output) for each in inputs):
        raise UsageError(f"{output} is the input; name another file with -o")


def open_run(run: str) -> list[Stream]:
    """One stream per node, in order of their names. Raises NotFoundError, WireError, GpumonError.

    `run` is a recording, a folder of recordings or a job id; also a plain file of lines, gzip or
    not, as `gpumon collect` prints them.
    """
    from gpumon.recording import Recording, resolve

    if is_plain(run):
        return [_plain(run)]
    found = resolve(run)
    recordings, unread = [], list(found.unread)
    for path in found.paths:
        try:
            recordings.append(Recording(path))
        except GpumonError as error:
            if len(found.paths) == 1:
                raise
            unread.append(str(error))
    if not recordings:
        raise NotFoundError(f"{run} holds no recording")
    by_node: dict[str, list[Recording]] = {}
    for recording in sorted(recordings, key=lambda each: each.start):
        by_node.setdefault(recording.header.node, []).append(recording)
    streams = [Stream(node, _items(parts), parts) for node, parts in sorted(by_node.items())]
    if unread:
        count = f"{len(unread)} of {len(recordings) + len(unread)} recordings not read"
        streams.append(Stream(count, iter(()), [], unread))
    return streams


def evidence_of(streams: Iterable[Stream], site: Site | None = None) -> Evidence:
    """What the recordings alone tell; reads all of them."""
    from gpumon.analysis.gather import gather
    from gpumon.analysis.gather_run import RunGathering

    each_gathered = ((each.node, each.gathered) for each in streams)
    return gather(each_gathered, None, site, gathering=RunGathering())


def finding_moments(run: str) -> list[float]:
    """When what a report of this run finds begins, epoch s in order; reads the whole run."""
    from gpumon.analysis.catalogue import evaluate
    from gpumon.site.read import load_site

    evidence = evidence_of(open_run(run), load_site())
    found = {each.start for each in evaluate(evidence).raised if each.start is not None}
    return sorted(start for start in found if start > evidence.grid_start)


def _items(recordings: list[Recording]) -> Iterator[Header | Sample]:
    for recording in recordings:
        with recording:
            yield from recording.items()


def _gathered(recordings: list[Recording]) -> Iterator[Header | Sample | Ticks | Digest]:
    for at, recording in enumerate(recordings):
        with recording:  # the digests of another stream go on from nothing
            yield from recording.ticks() if at else recording.digested()


def _plain(path: str) -> Stream:
    from gpumon.sources.lines import read_stream

    problems: list[str] = []
    items = read_stream(path, problems)
    first = next(items, None)
    if not isinstance(first, Header):
        raise WireError(f"{path} holds no recorded stream")
    return Stream(first.node, chain([first], items), [], problems)
