"""Opens the dashboard on this node or on a job's nodes, recording what it shows."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon import heap
from gpumon.collect.base import node_name
from gpumon.errors import require_memory
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.pipeline import JobSource, Pipeline
from gpumon.pipeline.recorder import RecorderStage
from gpumon.pipeline.stacks import Stacks
from gpumon.recording.runs import marks_dir
from gpumon.services.around import is_in_job
from gpumon.services.library import RecordedRuns
from gpumon.services.retention import start_retention
from gpumon.services.this_site import site_of_screen
from gpumon.sources.attach import AttachSource
from gpumon.sources.files import Past
from gpumon.sources.jobfiles import JobFiles

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.services.prompting import Prompting
    from gpumon.site import Site
    from gpumon.slurm.job import Job
    from gpumon.slurm.runner import Runner
    from gpumon.sources.watched import WatchedJob

#: address space that must be free for the threads that start before the screen
_ROOM_BYTES = 24 << 20


def show_node(settings: Settings, *, whole_node: bool) -> int:
    """The dashboard of this node; with the job around this shell, unless `whole_node`.

    Returns the exit code.
    """
    heap.keep_little()
    if not whole_node and is_in_job(os.environ):
        from gpumon.services.own_job import job_here

        if (job := job_here(os.environ)) is not None:
            return _show_own(job, settings)
    source = AttachSource.of_this_node(node_name(os.environ), settings.interval_s)
    return _show_early(_recorded(source, settings), settings, whole_node=whole_node)


def _show_own(job: Job, settings: Settings) -> int:
    """The dashboard of this node with the job around this shell."""
    from gpumon.services.own_job import OwnJob, watch_here
    from gpumon.services.prompting import Prompting
    from gpumon.tui.app import run_app

    prompting = Prompting()
    watched = watch_here(job, settings, prompting)
    own = OwnJob(watched)
    prompting.to_screen()
    try:
        pipeline = _recorded(watched, settings, own)
        return run_app(
            pipeline, settings, prompts=prompting, output=JobFiles(own.job),
            library=RecordedRuns(is_ascii=settings.ascii),
        )  # fmt: skip
    finally:
        prompting.close()


def _show_early(pipeline: Pipeline, settings: Settings, *, whole_node: bool) -> int:
    """As `run_app`, but the agent starts while the screen is imported, which takes as long."""
    require_memory(_ROOM_BYTES)
    pipeline.start()
    try:
        from gpumon.tui.app import run_app

        library = RecordedRuns(is_ascii=settings.ascii)
        return run_app(pipeline, settings, whole_node=whole_node, library=library)
    finally:
        pipeline.stop()


def show_job(
    watched: WatchedJob, settings: Settings, prompting: Prompting, login: Runner | None = None,
    on_end: Callable[[Job], None] | None = None,
) -> int:  # fmt: skip
    """The dashboard of a job on all its nodes; returns the exit code.

    The job's output files are read here, or by `login` where the user sits elsewhere. `on_end` is
    called when the job has ended.
    """
    from gpumon.tui.app import run_app

    pipeline = _recorded(watched, settings, watched)
    files = JobFiles(watched.job, login)
    prompting.to_screen()
    heap.keep_little()
    try:
        return run_app(
            pipeline, settings, prompts=prompting, output=files, on_end=on_end,
            library=RecordedRuns(is_ascii=settings.ascii),
        )  # fmt: skip
    finally:
        prompting.close()
        gc.freeze()  # to look through what a thousand nodes left would hold up the exit by seconds


def _recorded(source: AttachSource, settings: Settings, job: JobSource | None = None) -> Pipeline:
    site = site_of_screen()
    if settings.record:
        start_retention(settings)
    return recorded(source, settings, site, job)


def _scraped_before(header: Header, end: float) -> list[Header | Sample]:
    from gpumon.services.prometheus import scraped_before  # most screens never zoom out so far

    return scraped_before(header, end)


def recorded(
    source: AttachSource,
    settings: Settings,
    site: Callable[[], Site],
    job: JobSource | None,
    others: int = 0,
) -> Pipeline:
    """What shows a source and records it, if it is to be; `others` as in Pipeline."""
    stage = RecorderStage(source, marks_dir(), record=settings.record)
    past = Past(scraped=_scraped_before)
    return Pipeline(
        stage, job=job, recorder=stage, site=site, others=others, past=past, stacks=Stacks(source)
    )
