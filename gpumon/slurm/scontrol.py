"""`scontrol`: jobs with their allocations, the configuration, processes of jobs on a node.

Its text is lines of `Key=value`, of which only some hold free text, and those to their end: so a
name with blanks and `=` cannot become a field. One line per job (`-o`) would lose that. A name
with line ends can still forge the owner's own job here: who a job belongs to, squeue says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo

from gpumon.slurm import sacct, tres, values
from gpumon.slurm.job import Job, NodeAllocation, Request, Resources

SOURCE = "scontrol"
_MIB = 1 << 20
_RECORD = re.compile(r"\n\s*\n(?=JobId=\d+ )")
_NAME = re.compile(r"\sJobName=(.*)$")
#: a value ends where the next key begins
_PAIR = re.compile(r"([A-Za-z][\w/:.]*)=(.*?)(?=\s+[A-Za-z][\w/:.]*=|\s*$)")
_WHOLE_LINE = (
    "Command", "WorkDir", "Comment", "AdminComment", "SystemComment", "SubmitLine", "StdErr",
    "StdIn", "StdOut", "Extra", "BatchScript",
)  # fmt: skip
_USER = re.compile(r"(.*)\((\d+)\)")
_MEM_PER_GPU = re.compile(r"(?:gres[:/])?gpu[:=](\d+[KMGT]?)")
#: field -> as sacct calls it
_FIELDS = {
    "JobId": "jobidraw", "SLUID": "sluid", "JobName": "jobname", "Account": "account",
    "Partition": "partition", "QOS": "qos", "JobState": "state", "Reason": "reason",
    "ExitCode": "exitcode", "DerivedExitCode": "derivedexitcode", "SubmitTime": "submit",
    "EligibleTime": "eligible", "StartTime": "start", "EndTime": "end", "RunTime": "elapsed",
    "TimeLimit": "timelimit", "Restarts": "restarts", "NodeList": "nodelist",
    "FailedNode": "failednode", "SubmitLine": "submitline", "WorkDir": "workdir",
    "StdOut": "stdout", "StdErr": "stderr", "Comment": "comment", "AdminComment": "admincomment",
}  # fmt: skip
_FORMS = {
    "TresPerNode": "node",
    "TresPerTask": "task",
    "TresPerSocket": "socket",
    "TresPerJob": "job",
}


def show_job(id: str, *, shares: bool = False, local: bool = False) -> list[str]:
    """The call for one job, of an array all tasks, of a het job all components.

    `shares`: also those of each node, for which it fetches the table of all nodes. `local`: of this
    cluster, without asking for its federation.
    """
    where = ["--local"] if local else []
    return ["scontrol", *where, "show", "job", *(["-d"] if shares else []), id]


def may_be_forged(output: bytes) -> bool:
    """Whether a field may be from a name with line ends: it is there twice, or not at all."""
    records = _RECORD.split(output.decode("utf-8", "replace"))
    return not all(_is_whole(record) for record in records if record.startswith("JobId="))


def _is_whole(record: str) -> bool:
    lines = (line.strip() for line in record.split("\n")[1:])
    keys = Counter(
        key
        for line in lines
        if line.partition("=")[0] not in _WHOLE_LINE
        for key, _ in _PAIR.findall(line)
    )
    return keys["UserId"] == keys["JobState"] == 1 and all(keys[key] < 2 for key in _FIELDS)


def parse(output: bytes, zone: tzinfo | None = None, *, single: bool = False) -> list[Job]:
    """The jobs in the output of `scontrol show job -d`; `zone` is that of its local times.

    `single`: it is known to be of one job, so what looks like a second record is in a name.
    """
    text = output.decode("utf-8", "replace")
    parts = [text] if single else _RECORD.split(text)
    return [_job(record, zone) for record in parts if record.startswith("JobId=")]


def _fields(record: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """(the record's fields, those of each of its node groups). The first of equal keys counts."""
    first, _, rest = record.partition("\n")
    name = _NAME.search(first)
    found = dict(_PAIR.findall(first[: name.start()] if name else first))
    found["JobName"] = name[1] if name else ""
    groups: list[dict[str, str]] = []
    for line in rest.split("\n"):
        line = line.strip()
        key, equals, value = line.partition("=")
        if equals and key in _WHOLE_LINE:
            found.setdefault(key, value)
        elif key == "Nodes" and "CPU_IDs=" in line:
            groups.append(dict(_PAIR.findall(line)))
        else:
            for key, value in _PAIR.findall(line):
                found.setdefault(key, value)
    return found, groups


def _job(record: str, zone: tzinfo | None) -> Job:
    found, groups = _fields(record)
    row = {theirs: found.get(ours, "") for ours, theirs in _FIELDS.items()}
    user = _USER.fullmatch(found.get("UserId", ""))
    row["user"], row["uid"] = user.groups() if user else ("", "")
    row["jobid"] = _shown(found)
    job = replace(
        sacct.job(row, zone),
        batch_node=values.known(found.get("BatchHost", "")),
        expected_nodes=values.known(found.get("SchedNodeList", "")),
        requested=_request(found),
        allocated=Resources(),
    )
    if job.is_pending:  # its times are the scheduler's estimate
        return replace(job, expected_start=job.start, start=None, end=None).with_source(SOURCE)
    allocations = tuple(_allocations(found, groups))
    return replace(job, allocated=_allocated(found), allocations=allocations).with_source(SOURCE)


def _shown(found: Mapping[str, str]) -> str:
    raw = values.known(found.get("JobId", ""))
    task = values.known(found.get("ArrayTaskId", ""))
    if task:
        array = values.known(found.get("ArrayJobId", "")) or raw
        throttle = found.get("ArrayTaskThrottle", "")
        if not task.isdigit():
            return f"{array}_[{task.partition('%')[0]}{'%' + throttle if throttle else ''}]"
        return f"{array}_{task}"
    leader = values.known(found.get("HetJobId", ""))
    return f"{leader}+{found.get('HetJobOffset', '0')}" if leader else raw


def _allocated(found: Mapping[str, str]) -> Resources:
    allocated = tres.resources(found.get("AllocTRES") or found.get("TRES", ""))
    if allocated.gpus is None and "JOB_GRES" in found:  # tracked as TRES or not
        gpus, types = tres.gpus_of(found["JOB_GRES"])
        types.pop("", None)
        return replace(allocated, gpus=gpus, gpu_types=types)
    return allocated


def _request(found: Mapping[str, str]) -> Request:
    """Before 23.02 one list, `TRES`: of the request while it waits, then of the allocation."""
    asked = next(
        ((form, found[key]) for key, form in _FORMS.items() if _names_gres(found, key)), None
    )
    form, bytes_ = _mem_form(found)
    tasks_per_node = (found.get("NtasksPerN:B:S:C") or "").partition(":")[0]
    return Request(
        tres.resources(found.get("ReqTRES") or found.get("TRES", "")),
        mem_form=form,
        mem_form_bytes=bytes_,
        tasks=values.count(found.get("NumTasks", "")),
        cpus_per_task=values.count(found.get("CPUs/Task", "")),
        tasks_per_node=values.count(tasks_per_node) or None,
        constraint=values.known(found.get("Features", "")),
        gres=",".join(_plain(gres) for gres in tres.parse_gres(asked[1])) if asked else "",
        gres_form=asked[0] if asked else "",
    )


def _names_gres(found: Mapping[str, str], key: str) -> bool:
    """Whether this request names generic resources, not only `cpu=2` (26.05)."""
    return bool(tres.parse_gres(found.get(key, "")))


def _plain(gres: tres.Gres) -> str:
    return f"{gres.name}:{gres.type}:{gres.amount}" if gres.type else f"{gres.name}:{gres.amount}"


def _mem_form(found: Mapping[str, str]) -> tuple[str, int | None]:
    per_gpu = _MEM_PER_GPU.search(found.get("MemPerTres", ""))
    if per_gpu:
        return "gpu", values.size(per_gpu[1], "M")
    for key, form in (("MinMemoryCPU", "cpu"), ("MinMemoryNode", "node")):
        if key in found:
            return form, values.size(found[key], "M")
    return "", None


def _allocations(
    found: Mapping[str, str], groups: list[dict[str, str]]
) -> Iterator[NodeAllocation]:
    """The share of each node. Of an ended job the GPUs are no longer told: then unknown, not 0."""
    had_gpus = bool(tres.gpus_of(found.get("JOB_GRES", ""))[0])
    told = any(group.get("GRES") for group in groups)
    for group in groups:
        gpus, _ = tres.gpus_of(group.get("GRES", ""))
        cpus = tres.parse_indices(group.get("CPU_IDs", "")) or ()
        for node in sacct.nodes_of(group.get("Nodes", "")):
            yield NodeAllocation(
                node,
                cpus=len(cpus) if cpus else None,
                mem_bytes=values.size(group.get("Mem", ""), "M"),
                gpus=gpus if told or not had_gpus else None,
            )


@dataclass(frozen=True)
class Config:
    """The cluster from `scontrol show config`."""

    version: str = ""
    cluster: str = ""
    gathered_by: str = ""  # cgroup/v1, cgroup/v2, cgroup, linux: what MaxRSS means
    gather_params: str = ""
    slurmd_port: str = ""  # `6818`, or a range


def parse_config(output: bytes) -> Config:
    """The output of `scontrol show config`."""
    found: dict[str, str] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name.strip(), values.known(value))
    return Config(
        found.get("SLURM_VERSION", ""),
        found.get("ClusterName", ""),
        _gathered_by(found),
        found.get("JobAcctGatherParams", ""),
        found.get("SlurmdPort", ""),
    )


def _gathered_by(found: Mapping[str, str]) -> str:
    kind = found.get("JobAcctGatherType", "").rpartition("/")[2]
    plugin = found.get("CgroupPlugin", "")
    return plugin if kind == "cgroup" and plugin.startswith("cgroup/v") else kind
