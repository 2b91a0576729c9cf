"""Puts a mark on the time axis of the recordings that run."""

from __future__ import annotations

import os
import time

from gpumon.collect.base import node_name
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import own_job
from gpumon.collect.job.context import job_context
from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.recording.runs import marks_dir
from gpumon.recording.sharing import Mark, choose, mark_text, running, send


def mark(text: str) -> None:
    """Send it to the recorders of the job around this shell, or of this node.

    Raises UsageError, NotFoundError, GpumonError.
    """
    now = time.time()
    text = mark_text(text)
    if not text:
        raise UsageError("the mark is empty; give it a text")
    job = _job()
    folder = marks_dir()
    try:
        spools = running(folder)
    except OSError as error:
        what_to_do = "make it private (chmod 700), or set GPUMON_STATE to another folder"
        raise GpumonError(f"cannot use {folder}: {error.strerror}; {what_to_do}") from None
    chosen = choose(spools, job, node_name(os.environ))
    if not chosen:
        here = f"job {job}" if job else "this node"
        others = ", ".join(sorted({spool.job or spool.node for spool in spools}))
        raise NotFoundError(
            f"nothing records {here}"
            + (f" (recorded are {others})" if others else "")
            + "; start 'gpumon' or 'gpumon record' there first"
        )
    if not any([send(spool, Mark(now, text)) for spool in chosen]):
        # ended, or its file has just got another name
        chosen = choose(running(folder), job, node_name(os.environ))
        if not any([send(spool, Mark(now, text)) for spool in chosen]):
            raise GpumonError("the recording ended just now; the mark was not taken")


def _job() -> str:
    """The job around us, "" outside of one: as the recorder's header says it."""
    job = job_context(os.environ, JobCgroup(own_job(os.environ)))
    return job.id if job else ""
