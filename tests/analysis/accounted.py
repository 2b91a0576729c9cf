"""Jobs as sacct prints them, and the report that follows from that alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpumon.report.arrays import build_array
from gpumon.report.build import build, from_accounting, with_attempts
from gpumon.report.model import Report
from gpumon.site import Site
from gpumon.slurm import saved
from gpumon.slurm.job import Job

START = 1_795_200_000
FIELDS = (
    "JobIDRaw", "JobID", "Cluster", "State", "ExitCode", "DerivedExitCode", "ElapsedRaw", "Start",
    "End", "Submit", "Timelimit", "TimelimitRaw", "Partition", "User", "UID", "NNodes",
    "AllocCPUS", "ReqCPUS", "NTasks", "NodeList", "Reason", "ReqMem", "ReqTRES", "AllocTRES",
    "TotalCPU", "MaxRSS", "TRESUsageInTot", "TRESUsageInMax", "Restarts", "AdminComment",
    "JobName", "SubmitLine",
)  # fmt: skip

Row = Mapping[str, str]


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


@dataclass(frozen=True)
class Made:
    """One job: figures of a plain one that used well what it asked for, unless told otherwise.

    `row` and `batch` replace fields of the job's row and of its batch step's; None: no such step.
    """

    id: str = "4711"
    raw: str = ""
    state: str = "COMPLETED"
    hours: float = 4.0
    limit_hours: float = 5.0
    cpus: int = 8
    asked_cpus: int | None = None
    cores: float = 7.6  # used on average
    mem: str = "32G"
    rss: str = "27G"
    gpus: int = 0
    nodes: int = 1
    submit: str = "sbatch job.sh"
    row: Row = field(default_factory=dict)
    batch: Row | None = field(default_factory=dict)
    steps: tuple[Row, ...] = ()
    version: str = "24.11.7"
    gather: str = "cgroup/v2"

    def rows(self) -> Iterable[Row]:
        raw = self.raw or self.id.partition("_")[0].partition("+")[0]
        elapsed = int(3600 * self.hours)
        tres = f"billing={self.cpus},cpu={{}},mem={self.mem},node={self.nodes}"
        tres += f",gres/gpu={self.gpus}" if self.gpus else ""
        limit = int(60 * self.limit_hours)
        common = {
            "JobIDRaw": raw, "JobID": self.id, "Cluster": "alpha", "State": self.state,
            "ExitCode": "0:0", "ElapsedRaw": f"{elapsed}", "Start": f"{START}",
            "End": f"{START + elapsed}", "NNodes": f"{self.nodes}", "AllocCPUS": f"{self.cpus}",
            "AllocTRES": tres.format(self.cpus), "TotalCPU": clock(self.cores * elapsed),
            "NodeList": "n1" if self.nodes == 1 else f"n[1-{self.nodes}]",
        }  # fmt: skip
        yield {
            **common, "DerivedExitCode": "0:0", "Submit": f"{START - 60}",
            "Timelimit": clock(60 * limit), "TimelimitRaw": f"{limit}", "Partition": "cpu",
            "User": "ada", "UID": "20001", "ReqMem": self.mem,
            "ReqCPUS": f"{self.asked_cpus or self.cpus}",
            "ReqTRES": tres.format(self.asked_cpus or self.cpus), "Reason": "None",
            "JobName": "train", "SubmitLine": self.submit, **self.row,
        }  # fmt: skip
        step = {
            **common, "NTasks": "1", "MaxRSS": self.rss, "JobName": "batch",
            "State": self.state.partition(" ")[0], "TRESUsageInTot": _usage(common, self.rss),
            "TRESUsageInMax": _usage(common, self.rss),
        }  # fmt: skip
        if self.batch is not None:
            yield {**step, "JobIDRaw": f"{raw}.batch", "JobID": f"{self.id}.batch", **self.batch}
        for n, each in enumerate(self.steps):
            more = dict(each)
            rss = more.get("MaxRSS", self.rss)
            used = {"TRESUsageInTot": _usage(common, rss), "TRESUsageInMax": _usage(common, rss)}
            yield {
                **step, **used, "JobIDRaw": f"{raw}.{n}", "JobID": f"{self.id}.{n}",
                "JobName": "srun", **more,
            }  # fmt: skip


def _usage(row: Row, rss: str) -> str:
    return f"cpu={row['TotalCPU']},mem={rss}" if rss else ""


def text(*made: Made) -> bytes:
    """What `sacct -P` prints of these jobs."""
    rows = [row for each in made for row in each.rows()]
    lines = ["|".join(FIELDS), *("|".join(row.get(name, "") for name in FIELDS) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def jobs_of(*made: Made) -> list[Job]:
    first = made[0]
    return [
        replace(job, slurm_version=first.version, acct_gather=first.gather)
        for job in saved.parse(text(*made))
    ]


def reports(*made: Made, site: Site | None = None) -> list[Report]:
    """As `gpumon report` makes them of a window: an array is one."""
    found, tasks = [], []
    for job, runs in with_attempts(jobs_of(*made)):
        if job.array_job_id:
            tasks.append(job)
        else:
            found.append(build(from_accounting(job, site or Site(), siblings=runs)))
    if tasks:
        found.append(build_array(tasks, site or Site()))
    return found
