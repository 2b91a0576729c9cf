"""`gpumon mark`: a line on the time axis of the recording that runs."""

from __future__ import annotations

import argparse
import os
import time

from gpumon.errors import EXIT_OK, GpumonError, NotFoundError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="+", metavar="TEXT", help="what happens now")


def run(args: argparse.Namespace) -> int:
    from gpumon.cli.record import marks_dir
    from gpumon.collect.base import node_name
    from gpumon.collect.marks import Mark, choose, mark_text, running, send

    now = time.time()
    text = mark_text(" ".join(args.text))
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
    if not [spool for spool in chosen if send(spool, Mark(now, text))]:
        raise GpumonError("the recording ended just now; the mark was not taken")
    return EXIT_OK


def _job() -> str:
    """The job around us, "" outside of one: as the recorder's header says it."""
    from gpumon.collect.cgroup import JobCgroup
    from gpumon.collect.jobcontext import job_context
    from gpumon.collect.jobpath import find_job_cgroup
    from gpumon.collect.proc import read_text

    try:
        path = find_job_cgroup(read_text("/proc/self/cgroup"), os.environ)
    except OSError:
        path = None
    job = job_context(os.environ, JobCgroup(path))
    return job.id if job else ""
