"""gpumon's report of a simulated job: from its recording, or from accounting alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Union

import gpumon.site
from gpumon.analysis.rundata import RunData
from gpumon.analysis.summary import run_summary
from gpumon.model.sample import Header, Sample
from gpumon.report.arrays import build_array
from gpumon.report.build import build, from_accounting
from gpumon.report.model import Report
from gpumon.site import Site
from gpumon.site.read import load_site
from gpumon.slurm.job import Job
from tests.frames.framing import gather
from tests.simulator.accounts import slurm_job
from tests.simulator.array import SimArray, slurm_jobs
from tests.simulator.job import SimJob
from tests.simulator.observe import START, node_name, stream

Recorded = Callable[[SimJob, int], Iterator[Union[Header, Sample]]]


@cache
def site() -> Site:
    return load_site(str(Path(gpumon.site.__file__).parent / "examples" / "uva.toml"))


def report_of(
    job: SimJob | SimArray, accounting: bool = False, stream: Recorded = stream
) -> Report:
    """`stream`: what was recorded of each node."""
    if isinstance(job, SimArray):
        return _of_array(job, accounting)
    known = slurm_job(job)
    if accounting:
        return build(from_accounting(known, site(), now=START + job.ended.seconds))
    return build(_recorded(job, known, stream))


def _recorded(job: SimJob, known: Job, stream: Recorded = stream) -> RunData:
    streams = ((node_name(job, node), stream(job, node)) for node in range(job.request.nodes))
    run = gather(streams, known, site(), live=known.is_running, log_tail=job.ended.log)
    run.coverage.source = "recording"
    return run


def _of_array(array: SimArray, accounting: bool) -> Report:
    jobs = slurm_jobs(array)
    count = 0 if accounting else array.recorded
    runs = {job.raw_id: run_summary(_recorded(task, slurm_job(task)))
            for job, task in zip(jobs[:count], array.tasks)}  # fmt: skip
    return build_array(jobs, site(), runs)
