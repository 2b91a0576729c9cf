"""A runner that answers as Slurm would of jobs that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.slurm import sacct, squeue, sstat
from gpumon.slurm.runner import NoSlurmError, Result

NOW = 1_795_200_000.0


def row(id: int | str, name: str = "train", state: str = "RUNNING", **more: str) -> dict[str, str]:
    """A job as sacct's fields tell it, by lower-case names; an hour old, with two GPUs on gpu01."""
    raw = more.pop("raw", str(id).partition("_")[0])
    pending, ended = state == "PENDING", state not in ("RUNNING", "PENDING", "SUSPENDED")
    start = NOW - 3600
    return {
        "jobidraw": raw, "jobid": str(id), "cluster": "alpha", "state": state, "jobname": name,
        "user": "ada", "uid": "20001", "account": "lab", "partition": "gpu", "qos": "normal",
        "submit": f"{start - 60:.0f}", "eligible": f"{start - 60:.0f}",
        "start": "Unknown" if pending else f"{start:.0f}",
        "end": f"{start + 1800:.0f}" if ended else f"{start + 7200:.0f}",
        "elapsed": "00:00:00" if pending else "00:30:00" if ended else "01:00:00",
        "elapsedraw": "0" if pending else "1800" if ended else "3600",
        "timelimit": "02:00:00", "timelimitraw": "120", "exitcode": "0:0",
        "nodelist": "None assigned" if pending else "gpu01",
        "alloctres": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
        "reqtres": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1", "nnodes": "1",
        "reason": "Priority" if pending else "None",
        **more,
    }  # fmt: skip


def step(id: str, state: str = "RUNNING") -> dict[str, str]:
    return {"jobidraw": id, "jobid": id, "state": state}


class MadeSlurm:
    """`queued`: what the controller still knows; `past`: what the accounting has, with steps.

    `calls` holds what was asked. `absent`: there is no Slurm; `fails`: programs that fail.
    """

    def __init__(self, *queued: dict[str, str], past: tuple[dict[str, str], ...] = ()) -> None:
        self.queued = list(queued)
        self.past = list(past)
        self.sstat: tuple[str, ...] = ()  # running steps that it lists
        self.calls: list[list[str]] = []
        self.absent = False
        self.fails: dict[str, str] = {}

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        self.calls.append(argv)
        if self.absent:
            raise NoSlurmError(f"there is no {argv[0]} here")
        if argv[0] in self.fails:
            return Result(1, b"", self.fails[argv[0]])
        return getattr(self, f"_{argv[0]}")(argv)

    def asked(self, program: str) -> int:
        return sum(argv[0] == program and "--helpformat" not in argv for argv in self.calls)

    def _squeue(self, argv: list[str]) -> Result:
        delimiter = argv[argv.index("-O") + 1].partition(":")[2].partition(",")[0]
        wanted = next((word[7:].split(",") for word in argv if word.startswith("--jobs=")), None)
        rows = [each for each in self.queued if wanted is None or _is_of(each, wanted)]
        if wanted and not rows:
            return Result(1, b"", "slurm_load_jobs error: Invalid job id specified")
        lines = (
            "".join(each.get(name, "") + delimiter for name in squeue.FIELDS.values())
            for each in rows
        )
        return Result(0, "".join(line + "\n" for line in lines).encode(), "")

    def _sacct(self, argv: list[str]) -> Result:
        if "--helpformat" in argv:
            return Result(0, " ".join(sacct.FIELDS).encode(), "")
        delimiter = next(word for word in argv if word.startswith("--delimiter="))[12:]
        names = argv[argv.index("-o") + 1].lower().split(",")
        wanted = argv[argv.index("-j") + 1].split(",") if "-j" in argv else None
        rows = [each for each in self.past if wanted is None or _is_of(each, wanted)]
        lines = (delimiter.join(each.get(name, "") for name in names) for each in rows)
        return Result(0, "".join(line + "\n" for line in lines).encode(), "")

    def _sstat(self, argv: list[str]) -> Result:
        if "--helpformat" in argv:
            return Result(0, " ".join(sstat.FIELDS).encode(), "")
        lines = (f"{id}|1|gpu01|1024K||" for id in self.sstat)
        return Result(0, "".join(line + "\n" for line in lines).encode(), "")

    def _scontrol(self, argv: list[str]) -> Result:
        if "config" in argv:
            return Result(0, b"ClusterName             = alpha\n", "")
        return Result(1, b"", "Invalid job id specified")

    def _id(self, argv: list[str]) -> Result:
        return Result(0, b"ada\n", "")


def _is_of(row: dict[str, str], wanted: list[str]) -> bool:
    plain = row["jobid"].partition(".")[0]
    raw = row["jobidraw"].partition(".")[0]
    return any(one in (plain, raw) or plain.startswith((f"{one}_", f"{one}+")) for one in wanted)
