"""The streams that a word on the command line names: a file, a folder or a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import NotFoundError, UsageError
from gpumon.model.sample import Header, Sample

if TYPE_CHECKING:
    from gpumon.analysis.run import Run
    from gpumon.analysis.rundata import RunData
    from gpumon.frames.frame import Frame
    from gpumon.recording import Recording
    from gpumon.recording.join import Joined


class Stream(NamedTuple):
    """One node's part of a run, from one or several files. To be read once.

    Files that cannot be read are a stream of nothing that `lacks` them; its `node` counts them.
    """

    node: str
    items: Iterator[Header | Sample]
    joined: Joined | None = None
    lacks: Sequence[str] = ()

    @property
    def recordings(self) -> Sequence[Recording]:
        return self.joined.recordings if self.joined is not None else ()

    def frames(self) -> Iterator[Frame]:
        """The same in place of `items`, aggregated; a node-day takes half a second where that was
        done when it was recorded.
        """
        from gpumon.frames.builder import built

        return self.joined.frames() if self.joined is not None else built(self.items)

    @property
    def problems(self) -> list[str]:
        """What the files lack, in sentences; complete when they were read."""
        return [*self.lacks, *(self.joined.problems if self.joined is not None else ())]


def note(text: str) -> None:
    """A line for the user, beside the output."""
    print(f"gpumon: {text}", file=sys.stderr)


def progress(text: str) -> None:
    """What takes a while, for somebody who waits for it."""
    if sys.stderr.isatty():
        note(text)


def spare_recordings(output: str | None, inputs: Iterable[str | None]) -> None:
    """Raise UsageError where -o names a recording or a file that is read: it would be replaced."""
    from gpumon.recording.reader import is_recording

    if output is None or not os.path.isfile(output):
        return
    if is_recording(output):
        raise UsageError(f"{output} is a recording; name another file with -o")
    if any(each and os.path.exists(each) and os.path.samefile(each, output) for each in inputs):
        raise UsageError(f"{output} is the input; name another file with -o")


def open_run(run: str) -> list[Stream]:
    """One stream per node, in order of their names. Raises NotFoundError, WireError, GpumonError.

    `run` is a recording, a folder of recordings or a job id. All attempts of a job that was
    requeued are in it.
    """
    return _streams(*_recordings(run))


def open_attempts(run: str, starts: Mapping[int, float] | None = None) -> dict[int, list[Stream]]:
    """The same of each attempt of a job by itself, by the number of restarts before it; the last
    one is the last. `starts` as of `by_attempt`.
    """
    from gpumon.recording.runs import by_attempt

    recordings, unread = _recordings(run)
    apart = by_attempt(recordings, starts)
    last = max(apart)
    return {n: _streams(parts, unread if n == last else []) for n, parts in apart.items()}


def open_last(run: str) -> list[Stream]:
    """The streams of the last attempt that was recorded."""
    return list(open_attempts(run).values())[-1]


def _recordings(run: str) -> tuple[list[Recording], list[str]]:
    """Those that can be read, and why others cannot."""
    from gpumon.recording.runs import opened, resolve

    found = resolve(run, progress)
    recordings, unread = opened(found.paths)
    if not recordings:
        raise NotFoundError(f"{run} contains no recording")
    return recordings, [*found.unread, *unread]


def _streams(recordings: Sequence[Recording], unread: Sequence[str]) -> list[Stream]:
    from gpumon.recording.join import Joined, by_node

    streams = []
    for node, parts in by_node(recordings):
        joined = Joined(parts)
        streams.append(Stream(node, joined.items(), joined))
    if unread:
        count = f"{len(unread)} of {len(recordings) + len(unread)} recordings not read"
        streams.append(Stream(count, iter(()), lacks=unread))
    return streams


def run_of(streams: Iterable[Stream]) -> Run:
    """What the streams hold, on one grid; reads all of them."""
    from gpumon.analysis.run import Run

    run = Run()
    for stream in streams:
        for frame in stream.frames():
            run.add(stream.node, frame)
    return run


def read_run(run: str) -> RunData:
    """What one run's recordings alone tell; what they lack is printed to standard error."""
    streams = open_last(run)
    data = run_of(streams).data(shared=True)
    for stream in streams:
        for problem in stream.problems:
            note(f"{run}: {stream.node}: {problem}")
    return data


def finding_moments(run: str) -> list[float]:
    """When what a report of this run finds begins, epoch s in order; reads the whole run."""
    from gpumon.analysis.rules.catalogue import evaluate
    from gpumon.services.this_site import this_site

    found: set[float] = set()
    for streams in open_attempts(run).values():
        data = run_of(streams).data(None, this_site(), shared=True)
        starts = {each.start for each in evaluate(data).raised if each.start is not None}
        found.update(start for start in starts if start > data.grid_start)
    return sorted(found)
