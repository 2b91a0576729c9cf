"""A runner that answers as one sampled cluster did, in the form in which it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timezone

from gpumon.slurm import records, scontrol, squeue
from gpumon.slurm.runner import Result, SlurmError
from tests.slurm import samples

#: codes of the sampled `squeue -o`, and the names of the same in -O
_CODES = "iAFKjuaPqTtrRNDCcmMlLSeVboZQBkE"
_NAMES = {
    "JobID": "A", "JobArrayID": "i", "State": "T", "NumNodes": "D", "NumCPUs": "C",
    "StartTime": "S", "EndTime": "e", "SubmitTime": "V", "EligibleTime": "V", "TimeLimit": "l",
    "TimeUsed": "M", "UserName": "u", "Account": "a", "Partition": "P", "QOS": "q",
    "NodeList": "N", "BatchHost": "B", "Reason": "r", "Comment": "k", "WorkDir": "Z", "Name": "j",
}  # fmt: skip


class Replies:
    """`calls` holds what was asked; `failing` commands (also `scontrol -d`) to raise or answer
    something else.
    """

    def __init__(self, cluster: str, when: str = "running") -> None:
        self.cluster = cluster
        self.when = when
        self.calls: list[list[str]] = []
        self.environment: Mapping[str, str] = {}
        self.failing: dict[str, Result | SlurmError] = {}
        self.rewritten: Callable[[str], str] = lambda text: text  # what squeue and scontrol print

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        self.calls.append(argv)
        self.environment = env
        answer = self.failing.get(f"{argv[0]} -d" if "-d" in argv else argv[0])
        answer = answer or self.failing.get(argv[0])
        if isinstance(answer, SlurmError):
            raise answer
        if answer is not None and "--helpformat" not in argv:
            return answer
        return getattr(self, "_" + argv[0])(argv)

    def asked(self, command: str) -> int:
        """How often, not counting questions after fields and versions."""
        return sum(
            argv[0] == command and "--helpformat" not in argv and "config" not in argv
            for argv in self.calls
        )

    def _read(self, name: str) -> bytes:
        return samples.read(self.cluster, name)

    def _table(self, name: str) -> list[dict[str, str]]:
        header, _, body = self._read(name).decode().partition("\n")
        return list(records.rows(body, "|", header.split("|")))

    def _sacct(self, argv: list[str]) -> Result:
        if "--helpformat" in argv:
            return Result(0, self._read("sacct-helpformat.txt"), "")
        if "-B" in argv:
            return Result(0, self._read("running-sacct-batch-script.txt"), "")
        delimiter = argv[3].partition("=")[2]
        fields = argv[argv.index("-o") + 1].split(",")
        rows = self._table(f"{self.when}-sacct-P-all.txt")
        if "-j" in argv:
            wanted = argv[argv.index("-j") + 1].split(",")
            rows = [row for row in rows if _is_of(row["jobid"], row["jobidraw"], wanted)]
        lines = (delimiter.join(row.get(name.lower(), "") for name in fields) for row in rows)
        return Result(0, "".join(line + "\n" for line in lines).encode(), "")

    def _scontrol(self, argv: list[str]) -> Result:
        if "config" in argv:
            return Result(0, self._read("scontrol-show-config.txt"), "")
        if "write" in argv:
            return Result(0, self._read("running-scontrol-write-batch.txt"), "")
        every = self.rewritten(self._read(f"{self.when}-scontrol-show-job-all.txt").decode())
        if "-d" not in argv:
            every = re.sub(r"\n *(JOB_GRES=|Nodes=.*CPU_IDs=).*", "", every)
        wanted = [
            text
            for text in every.split("\n\n")
            for job in scontrol.parse(text.encode(), timezone.utc)
            if _is_of(job.id, job.raw_id, [argv[-1]])
        ]
        if not wanted:
            return Result(1, b"", "slurm_load_jobs error: Invalid job id specified")
        return Result(0, "\n\n".join(wanted).encode(), "")

    def _squeue(self, argv: list[str]) -> Result:
        form = argv[argv.index("-O") + 1]
        delimiter = form.partition(":")[2].partition(",")[0]
        text = self.rewritten(self._read(f"{self.when}-squeue-o.txt").decode())
        lines = text.splitlines()[1:]
        tres = {row.split("|")[0]: row for row in self._squeue_tres()}
        rows = []
        for line in lines:
            parts = line.split("|")
            if len(parts) != len(_CODES):
                continue  # the job whose name holds the delimiter
            row = dict(zip(_CODES, parts))
            cells = {name: row[code] for name, code in _NAMES.items()} | {
                "UserID": "20001",
                "tres-alloc": tres[row["A"]].split("|")[7],
            }
            rows.append(cells)
        wanted = next((part[7:].split(",") for part in argv if part.startswith("--jobs=")), None)
        if wanted is not None:
            rows = [row for row in rows if _is_of(row["JobArrayID"], row["JobID"], wanted)]
            if not rows:
                return Result(1, b"", "slurm_load_jobs error: Invalid job id specified")
        if "PENDING" in argv:
            rows = [row for row in rows if row["State"] == "PENDING"]
        text = "".join(
            "".join(row.get(name, "") + delimiter for name in squeue.FIELDS) + "\n" for row in rows
        )
        return Result(0, text.encode(), "")

    def _squeue_tres(self) -> list[str]:
        text = self.rewritten(self._read(f"{self.when}-squeue-O.txt").decode())
        return text.splitlines()[1:]

    def _sstat(self, argv: list[str]) -> Result:
        if "--helpformat" in argv:
            return Result(0, self._read("sstat-helpformat.txt"), "")
        kinds = {id: kind for kind, id in samples.job_ids(self.cluster).items()}
        name = f"running-sstat-{kinds[argv[-1]]}.txt"
        fields = argv[argv.index("-o") + 1].split(",")
        header, *lines = self._read(name).decode().splitlines()
        rows = (dict(zip(header.split("|"), line.split("|"))) for line in lines)
        text = "".join("|".join(row[name] for name in fields) + "\n" for row in rows)
        return Result(0, text.encode(), "")


def _is_of(id: str, raw: str, wanted: list[str]) -> bool:
    """Whether sacct, scontrol and squeue tell this job or step for what was asked."""
    plain = id.partition(".")[0]
    return any(
        one in (plain, raw.partition(".")[0]) or plain.startswith((f"{one}_", f"{one}+"))
        for one in wanted
    )
