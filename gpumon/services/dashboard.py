"""Opens the dashboard on this node, a job's nodes or an array's tasks, recording what it shows."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpumon import heap
from gpumon.collect.base import node_name
from gpumon.errors import require_memory
from gpumon.model.sample import Header
from gpumon.pipeline.pipeline import JobSource, Pipeline
from gpumon.pipeline.recorder import RecorderStage
from gpumon.pipeline.stacks import Stacks
from gpumon.recording.runs import marks_dir
from gpumon.services.around import is_in_job
from gpumon.services.library import RecordedRuns
from gpumon.services.retention import start_retention
from gpumon.services.this_site import site_of_screen
from gpumon.sources.attach import AttachSource
from gpumon.sources.files import Past, Track
from gpumon.sources.jobfiles import JobFiles

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.services.prompting import Prompting
    from gpumon.site import Site
    from gpumon.slurm.client import Slurm
    from gpumon.slurm.job import Job
    from gpumon.slurm.runner import Runner
    from gpumon.sources.watched import WatchedJob
    from gpumon.transport.available import AvailableTransports

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
    pipeline = _recorded(source, settings, _begin(settings))
    return _show_early(pipeline, settings, whole_node=whole_node)


def _show_own(job: Job, settings: Settings) -> int:
    """The dashboard of this node with the job around this shell."""
    from gpumon.services.own_job import OwnJob, watch_here
    from gpumon.services.prompting import Prompting

    prompting = Prompting()
    watched = watch_here(job, settings, prompting)
    own = OwnJob(watched)
    pipeline = _recorded(watched, settings, _begin(settings), own)
    return _show(pipeline, settings, prompting)


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

    `login` as of `_recorded`; `on_end` is called when the job has ended.
    """
    pipeline = _recorded(watched, settings, _begin(settings), watched, login)
    return _show(pipeline, settings, prompting, on_end=on_end)


def show_array(
    jobs: Sequence[Job], slurm: Slurm, available: AvailableTransports, settings: Settings,
    prompting: Prompting, login: Runner | None, on_end: Callable[[Job], None] | None,
) -> int:  # fmt: skip
    """The screen of an array of which these are tasks; returns the exit code.

    `on_end` gets the whole array as one job when all tasks have ended. Raises SlurmError.
    """
    from gpumon.pipeline.array import MAX_STREAMS, WatchedArray
    from gpumon.services.jobs import with_cluster
    from gpumon.sources.watched import WatchedJob

    site, id = _begin(settings), jobs[0].array_job_id

    def look(soon: bool) -> list[Job]:
        return with_cluster(slurm, slurm.live(id, soon=soon))

    def follow(job: Job) -> Pipeline:
        of_task, ways = partial(array.look, job.id), available.for_jobs
        source = WatchedJob([job], of_task, ways, settings.interval_s)
        return _recorded(source, settings, site, source, login, others=MAX_STREAMS)

    array = WatchedArray(id, look(False), look, lambda: slurm.jobs([id]), follow)
    available.is_shared = True
    try:
        pipeline = Pipeline(array, job=array)
        return _show(pipeline, settings, prompting, array=array, on_end=on_end)
    finally:
        available.close()


def _show(pipeline: Pipeline, settings: Settings, prompting: Prompting, **shown: Any) -> int:
    """The screen, on which `prompting` asks the user from now on; `shown` as of `run_app`."""
    from gpumon.tui.app import run_app

    prompting.to_screen()
    heap.keep_little()
    try:
        library = RecordedRuns(is_ascii=settings.ascii)
        return run_app(pipeline, settings, prompts=prompting, library=library, **shown)
    finally:
        prompting.close()
        gc.freeze()  # to look through what a thousand nodes left would hold up the exit by seconds


def _begin(settings: Settings) -> Callable[[], Site]:
    """Have old recordings removed meanwhile; returns the site. Raises UsageError."""
    site = site_of_screen()
    if settings.record:
        start_retention(settings)
    return site


def _scraped_before(header: Header, end: float) -> Track | None:
    from gpumon.services.prometheus import scraped_before  # most screens never zoom out so far

    return scraped_before(header, end)


def _recorded(
    source: AttachSource,
    settings: Settings,
    site: Callable[[], Site],
    job: JobSource | None = None,
    login: Runner | None = None,
    others: int = 0,
) -> Pipeline:
    """What shows a source and records it, if it is to be; `others` as in Pipeline.

    The job's output files are read here, or by `login` where the user sits elsewhere.
    """
    output = JobFiles(job.job, login) if job is not None else None
    stage = RecorderStage(source, marks_dir(), record=settings.record)
    past = Past(scraped=_scraped_before)
    return Pipeline(
        stage, job=job, recorder=stage, site=site, others=others, past=past,
        stacks=Stacks(source), output=output,
    )  # fmt: skip
