"""Follows an array of jobs: a row for each task on the screen, or one sample of each."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpumon import heap
from gpumon.pipeline.array import MAX_STREAMS, Followed, WatchedArray
from gpumon.services.jobs import with_cluster
from gpumon.services.library import RecordedRuns
from gpumon.services.retention import start_retention
from gpumon.services.this_site import site_of_screen
from gpumon.sources.jobfiles import JobFiles
from gpumon.sources.watched import WatchedJob

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.services.prompting import Prompting
    from gpumon.slurm.client import Slurm
    from gpumon.slurm.job import Job
    from gpumon.slurm.runner import Runner
    from gpumon.transport.available import AvailableTransports


def show_array(
    jobs: Sequence[Job],
    slurm: Slurm,
    available: AvailableTransports,
    settings: Settings,
    prompting: Prompting,
    login: Runner | None,
    on_end: Callable[[Job], None] | None,
) -> int:
    """The screen of an array of which these are tasks; returns the exit code.

    `on_end` gets the whole array as one job when all tasks have ended.
    """
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.services.dashboard import recorded
    from gpumon.tui.app import run_app

    site = site_of_screen()
    if settings.record:
        start_retention(settings)

    def follow(job: Job) -> Followed:
        look, ways = partial(array.look, job.id), available.for_jobs
        source = WatchedJob([job], look, ways, settings.interval_s)
        pipeline = recorded(source, settings, site, source, others=MAX_STREAMS)
        return Followed(pipeline, JobFiles(source.job, login))

    array = watched_array(jobs, slurm, follow)
    available.is_shared = True
    prompting.to_screen()
    heap.keep_little()
    try:
        pipeline = Pipeline(array, job=array)
        return run_app(
            pipeline, settings, prompts=prompting, array=array, on_end=on_end,
            library=RecordedRuns(is_ascii=settings.ascii),
        )  # fmt: skip
    finally:
        prompting.close()
        available.close()
        gc.freeze()  # to look through what many nodes left would hold up the exit


def watched_array(
    jobs: Sequence[Job], slurm: Slurm, follow: Callable[[Job], Followed]
) -> WatchedArray:
    """The array of which these are tasks. Raises SlurmError."""
    id = jobs[0].array_job_id

    def look(soon: bool) -> list[Job]:
        return with_cluster(slurm, slurm.live(id, soon=soon))

    def past() -> list[Job]:
        return slurm.jobs([id])

    return WatchedArray(id, look(False), look, past, follow)
