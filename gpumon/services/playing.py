"""A recorded run as a source of samples, and as what the dashboard shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.errors import GpumonError, NotFoundError
from gpumon.recording.runs import resolve
from gpumon.services.runs import finding_moments, progress
from gpumon.sources.files import Past, Track, tracks_of
from gpumon.sources.replay import ReplaySource

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline


def open_replay(
    run: str, speed: float = 1.0, say: Callable[[str], None] = lambda _: None
) -> ReplaySource:
    """The source of a run; `say` gets why files that belong to it cannot be read.

    Raises GpumonError where none can.
    """
    try:
        found = resolve(run, progress)
    except NotFoundError as error:
        return ReplaySource(_scraped(run, error), speed=speed)
    unread = list(found.unread)
    source = ReplaySource(tracks_of(found.paths, unread), speed=speed, unread=unread)
    for why in unread:
        say(why)
    return source


def _scraped(run: str, error: NotFoundError) -> list[Track]:
    """Of a job that was not recorded: what the site's Prometheus has. Raises `error` where that is
    nothing.
    """
    from gpumon.services.asking import shared_slurm
    from gpumon.services.prometheus import known_server, replayed
    from gpumon.slurm import ids
    from gpumon.slurm.runner import LocalRunner

    if known_server() is None:
        raise error
    try:
        job = shared_slurm(LocalRunner(), None).job(ids.parse(run).whole)
    except GpumonError:
        raise error from None
    progress(f"reading the scrapes of job {run} ...")
    try:
        return replayed(job)
    except GpumonError as why:
        raise NotFoundError(f"{error}; {why}") from None


def playing(source: ReplaySource, run: str = "") -> Pipeline:
    """What shows this source; "next" also goes to the findings of `run`, once it was read."""
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.services.this_site import site_of_screen

    if run:
        threading.Thread(target=_find_moments, args=(source, run), daemon=True).start()
    paths = [path for track in source.tracks for path in track.paths]
    past = Past(paths) if paths and run else None
    return Pipeline(source, player=source, site=site_of_screen(), past=past)


def _find_moments(source: ReplaySource, run: str) -> None:
    try:
        source.moments = finding_moments(run)
    except GpumonError:  # the replay itself reports what cannot be read
        return
