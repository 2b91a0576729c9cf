"""What a replay plays: one track for each node, of its recordings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from gpumon.recording.join import Joined, by_node
from gpumon.recording.reader import Stretch
from gpumon.recording.runs import opened


class Track(NamedTuple):
    """One node's stream: its name for messages, and its items from a moment on (None: all)."""

    name: str
    items: Callable[[float | None], Iterator[Header | Sample]]
    stretches: Callable[[], Iterator[Stretch]]  # with the readings that only screens show
    span_s: float = 0.0
    #: what is missing or damaged, as far as it was read
    problems: Callable[[], Sequence[str]] = tuple
    paths: Sequence[str] = ()  # of its recordings


def tracks_of(paths: Sequence[str], unread: list[str] | None = None) -> list[Track]:
    """Recordings, those of one node as one. Raises NotFoundError, GpumonError or WireError.

    With `unread` files that cannot be read are left out, and the reasons appended to it; it raises
    only where none can.
    """
    recordings, refused = opened(paths) if unread is not None else ([], [])
    if not recordings:
        recordings = [Recording(path) for path in paths]
    if unread is not None:
        unread += refused
    return [_track_of(Joined(parts)) for _, parts in by_node(recordings)]


def _track_of(joined: Joined) -> Track:
    return Track(
        os.path.basename(joined.recordings[0].path),
        joined.items,
        partial(joined.stretches, shown=True),
        joined.end - joined.start,
        lambda: joined.problems,
        [recording.path for recording in joined.recordings],
    )
