"""What a replay plays: one track for each node, of recordings or of files of plain lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gpumon.errors import GpumonError
from gpumon.model.batch import ColumnBatch
from gpumon.model.sample import Header, Sample
from gpumon.recording import SUFFIX, Recording, is_recording
from gpumon.recording.joined import Joined, by_node
from gpumon.sources.backfill import Item
from gpumon.sources.lines import read_stream


class Track(NamedTuple):
    """One node's stream: its name for messages, and its items from a moment on (None: all).

    `rolled` gives all items faster than one by one, where the file can (`Recording.rolled`).
    """

    name: str
    items: Callable[[float | None], Iterator[Header | Sample]]
    rolled: Callable[[float], Iterator[Item]] | None = None
    #: all from the frame that holds a moment to another moment, most of it in columns
    batches: Callable[[float, float], Iterator[Header | Sample | ColumnBatch]] | None = None
    span_s: float = 0.0
    #: what is missing or damaged, as far as it was read
    problems: Callable[[], Sequence[str]] = tuple
    paths: Sequence[str] = ()  # of its recordings


def tracks_of(paths: Sequence[str], unread: list[str] | None = None) -> list[Track]:
    """Recordings, those of one node as one, or files of plain lines. Raises NotFoundError,
    GpumonError or WireError.

    With `unread` files that cannot be read are left out, and the reasons appended to it; it raises
    only where none can.
    """
    found: list[Track] = []
    recordings: list[Recording] = []
    refused: GpumonError | None = None
    for path in paths:
        try:
            if path.endswith(SUFFIX) or is_recording(path):
                recordings.append(Recording(path))
            else:
                found.append(_plain_track(path))
        except GpumonError as error:
            if unread is None:
                raise
            refused = error
            unread.append(str(error))
    found += [_track_of(Joined(parts)) for _, parts in by_node(recordings)]
    if refused is not None and not found:
        raise refused
    return found


def _track_of(joined: Joined) -> Track:
    return Track(
        os.path.basename(joined.recordings[0].path),
        joined.items,
        partial(joined.rolled, shown=True),
        joined.batches,
        joined.end - joined.start,
        lambda: joined.problems,
        [recording.path for recording in joined.recordings],
    )


def _plain_track(path: str) -> Track:
    problems: list[str] = []
    return Track(
        os.path.basename(path), partial(_all_of, path, problems), problems=lambda: problems
    )


def _all_of(path: str, problems: list[str], _since: float | None) -> Iterator[Header | Sample]:
    return read_stream(path, problems)
