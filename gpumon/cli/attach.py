"""`gpumon attach`: the dashboard on all nodes of a running job."""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.cli.arguments import host, interval
from gpumon.cli.live import add_screen_arguments
from gpumon.errors import EXIT_INTERRUPTED, EXIT_OK, GpumonError, UsageError

if TYPE_CHECKING:
    from gpumon.cli.prompting import Prompting
    from gpumon.config import Settings
    from gpumon.slurm.client import Slurm
    from gpumon.slurm.job import Job
    from gpumon.slurm.runner import Runner
    from gpumon.sources.supervisor import AttachSource
    from gpumon.sources.watched import WatchedJob
    from gpumon.sources.ways import Ways

#: those of gpumon.sources.ways, which `--help` must not load
_VIAS = ("ssh", "openssh", "srun")


_NODES_A_SECOND = 128
_INTERVALS_S = (1.0, 2.0, 5.0, 10.0, 20.0)
_M_TRIM_THRESHOLD = -1  # of mallopt, malloc.h
_M_ARENA_MAX = -8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOBID", help="as Slurm prints it: 123, 123_4, 123+1")
    parser.add_argument("--via", choices=_VIAS, help="only this way to the nodes")
    parser.add_argument(
        "--login",
        type=host,
        metavar="[USER@]HOST",
        help="run Slurm's commands there, reach nodes through it",
    )
    parser.add_argument("--nodes", metavar="LIST", help="only these: gpu[01-02],gpu07")
    parser.add_argument(
        "--interval", type=interval, metavar="S", help="seconds between samples (1)"
    )
    parser.add_argument(
        "--no-record", dest="record", action="store_false", default=None, help="only show"
    )
    parser.add_argument(
        "--json", action="store_true", help="one sample of each node, for programs; docs/json.md"
    )
    add_screen_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon.cli import finding
    from gpumon.cli.prompting import Prompting
    from gpumon.config import load_settings
    from gpumon.slurm import ids
    from gpumon.slurm.client import Slurm
    from gpumon.sources.ways import Ways, here
    from gpumon.terminal import can_show_screen

    settings = load_settings(
        interval_s=args.interval, theme=args.theme, ascii=args.ascii, record=args.record
    )
    id = ids.parse(args.job)
    prompting = Prompting()
    ways = Ways(prompting, here(os.environ), via=args.via, login=args.login)
    slurm = Slurm(ways.runner)
    on_screen = not args.json and not can_show_screen()
    jobs = finding.find_jobs(slurm, id)
    if finding.is_array(jobs):
        if not on_screen:
            raise UsageError(finding.choice_text(jobs))
        jobs = _chosen_task(jobs, settings)
        if not jobs:
            return EXIT_INTERRUPTED
    finding.check(jobs, remote=bool(args.login))
    jobs = finding.with_cluster(slurm, jobs)
    nodes = finding.chosen_nodes(args.nodes, jobs)
    if not on_screen and not any(job.is_running for job in jobs):
        text = finding.waiting_text(jobs[0])
        if args.json:
            raise GpumonError(text)
        print(text)
        return EXIT_OK
    if args.interval is None:
        settings = paced(settings, len(nodes) or sum(len(job.nodes) for job in jobs))
    watched = watch(jobs, slurm, ways, nodes, settings)
    if on_screen:
        return open_screen(watched, settings, prompting, ways.on_login if args.login else None)
    from gpumon.cli.attach_text import print_samples

    return print_samples(watched, nodes, as_json=args.json)


def paced(settings: Settings, nodes: int) -> Settings:
    """A longer interval for so many nodes that one a second would be too much for this side.

    About a hundred samples a second; `benchmarks/README.md` has what they cost.
    """
    least_s = next((each for each in _INTERVALS_S if nodes <= each * _NODES_A_SECOND), 60.0)
    return settings._replace(interval_s=max(settings.interval_s, least_s if least_s > 1 else 0.1))


def watch(
    jobs: Sequence[Job],
    slurm: Slurm,
    ways: Ways,
    nodes: Sequence[str],
    settings: Settings,
) -> WatchedJob:
    """The source that follows these jobs on these nodes (none named: on all)."""
    from gpumon.cli.finding import look_again
    from gpumon.sources.supervisor import AttachSource
    from gpumon.sources.watched import WatchedJob, tasks_of

    def look(soon: bool) -> Sequence[Job]:
        return look_again(slurm, jobs, soon=soon)

    def attach(running: Sequence[Job]) -> AttachSource:
        return AttachSource(tasks_of(running, nodes), ways.ladders(running), settings.interval_s)

    return WatchedJob(jobs, look, attach)


def open_screen(
    watched: WatchedJob, settings: Settings, prompting: Prompting, login: Runner | None = None
) -> int:
    """The dashboard, recording what it shows; returns the exit code.

    The job's output files are read here, or by `login` where the user sits elsewhere.
    """
    from gpumon.cli.record import marks_dir, start_retention
    from gpumon.sources.jobfiles import REMOTE_PERIOD_S, JobFiles, read_by
    from gpumon.sources.tee import Tee
    from gpumon.tui.app import run_app

    if settings.record:
        start_retention(settings)
    tee = Tee(watched, marks_dir(), record=settings.record)
    files = JobFiles(watched.job)
    if login is not None:
        files = JobFiles(watched.job, read_by(login), REMOTE_PERIOD_S)
    prompting.to_screen()
    return_what_is_freed()
    try:
        return run_app(tee, settings, job=watched, prompts=prompting, output=files)
    finally:
        prompting.close()
        gc.freeze()  # to look through what a thousand nodes left would hold up the exit by seconds


def return_what_is_freed() -> None:
    """Where glibc is, have freed memory go back to the system at once.

    Else each recorder's thread keeps what a digest took for a moment: 1.2 MiB a node.
    """
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 16)
        libc.mallopt(_M_ARENA_MAX, 2)  # pools, of which threads else have some each
    except (AttributeError, OSError):
        pass  # another C library


def _chosen_task(jobs: Sequence[Job], settings: Settings) -> list[Job]:
    """Of an array's tasks the one that the user picks from a list."""
    from gpumon.tui.tasks import Task, choose_task

    tasks = [Task(job.id, job.state, job.node_list) for job in jobs]
    chosen = choose_task(f"array {jobs[0].array_job_id}", tasks, settings.theme)
    return [job for job in jobs if job.id == chosen]
