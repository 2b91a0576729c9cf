"""A list of jobs as `gpumon jobs` has it, made by hand."""

from __future__ import annotations

from gpumon.errors import GpumonError
from gpumon.report.jobs import NOT_RECORDED, JobLine, Listing, Verdict
from gpumon.report.usage import Figures, Use, unknown
from gpumon.slurm.groups import groups_of
from gpumon.slurm.job import ExitCode, Job, Resources

GIB = 1 << 30
NOW = 1_795_200_000.0
NOTHING = unknown(NOT_RECORDED)


def job(id, name, state, **more):
    """An hour old, of a limit of twelve."""
    start = None if state == "PENDING" else NOW - 3600
    return Job(
        raw_id=id, id=id, name=name, state=state, user="ada", partition="gpu-a100", start=start,
        submit=NOW - 4000, elapsed_s=3600.0, time_limit_s=43200.0, told_at=NOW, **more,
    )  # fmt: skip


def gpus(nodes, count):
    names = tuple(f"gpu{n + 1:02d}" for n in range(nodes))
    types = {"a100": count}
    resources = Resources(16 * nodes, 256 * GIB, count, types, nodes)
    return {"allocated": resources, "nodes": names, "node_list": f"gpu[01-{nodes:02d}]"}


def figures(active, seen, busy, *, is_now=True, is_need=True):
    return Figures(
        mem=Use(31.0 * GIB, 256.0 * GIB), gpus=Use(given=seen, peak=active), busy=Use(busy),
        gpu_mem=Use(active * 60.0 * GIB, seen * 80.0 * GIB), is_need=is_need, is_now=is_now,
    )  # fmt: skip


IDLE = Verdict(
    4.5, "--gres=gpu:a100:4 → --gres=gpu:a100:3", "2 of 8 GPUs were never used", "critical"
)
HELD = Verdict(16.0, "release the job", "the job is suspended", "warning")
BROKEN = Verdict(0.2, "less slurm-4700.out", "it failed", "warning")
JOBS = [
    (job("4711", "finetune-llama-3-8b-lora", "RUNNING", **gpus(2, 8)), figures(6, 8, 71.0), IDLE),
    (job("4712", "eval\x1b[2J[b]", "RUNNING", **gpus(1, 1)), NOTHING, Verdict(missing="no")),
    (job("4713", "pretrain", "SUSPENDED", **gpus(4, 16)), figures(0, 16, 0.0, is_need=False), HELD),
    (job("4714", "next", "PENDING", reason="Priority", expected_start=NOW + 7200), NOTHING,
     Verdict(missing="pending")),
    (job("4700", "train", "FAILED", end=NOW - 60, exit_code=ExitCode(1), **gpus(1, 4)),
     figures(4, 4, 93.0, is_now=False), BROKEN),
    (job("4690", "prep", "COMPLETED", end=NOW - 60), NOTHING, Verdict(missing="no GPUs")),
]  # fmt: skip


class MadeJobs:
    """Answers as the thread does that keeps them up to date."""

    def __init__(self, jobs=JOBS, **more):
        lines = [
            JobLine(groups_of([each])[0], found is not NOTHING, found, verdict)
            for each, found, verdict in jobs
        ]
        self.listing: Listing | None = Listing(lines, NOW, **more)
        self.trouble = ""
        self.reports = []

    def report(self, id, columns):
        self.reports.append(id)
        if id == "4690":
            raise GpumonError("job 4690 has no report")
        return f"\x1b[1mgpumon report\x1b[0m {id} in {columns} columns\n"
