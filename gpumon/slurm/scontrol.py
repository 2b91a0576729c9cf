"""`scontrol`: jobs with their allocations, the configuration, processes of jobs on a node.

Its text is lines of `Key=value`, of which only some hold free text, and those to their end: so a
name with blanks and `=` cannot become a field. One line per job (`-o`) would lose that. A name
with line ends can still forge the owner's own job here: who a job belongs to, squeue says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.slurm import sacct, tres, values
from gpumon.slurm.job import ENDED_STATES, Job, NodeAllocation, Request, Resources

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
_FORMS = {
    "TresPerNode": "node",
    "TresPerTask": "task",
    "TresPerSocket": "socket",
    "TresPerJob": "job",
}
_PROCESS = re.compile(r"\s*(-?\d+)\s+(\d+)\s+(\S+)\s")
_PIDINFO = re.compile(r"JobId=(\d+)(?:\.(\S+))? ends")
_REMAINING = re.compile(r"remaining time is (\d+) seconds")


def show_job(id: str) -> list[str]:
    """The call for one job, of an array all tasks, of a het job all components."""
    return ["scontrol", "show", "job", "-d", id]


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

    def text(name: str) -> str:
        return values.known(found.get(name, ""))

    def time(name: str) -> float | None:
        return values.moment(found.get(name, ""), zone)

    state = values.state(found.get("JobState", ""))
    ended = state.word in ENDED_STATES
    user = _USER.fullmatch(found.get("UserId", ""))
    limit, words = values.time_limit(found.get("TimeLimit", ""))
    job = Job(
        raw_id=text("JobId"),
        sluid=text("SLUID"),
        name=text("JobName"),
        user=values.known(user[1]) if user else "",
        uid=values.count(user[2]) if user else None,
        account=text("Account"),
        partition=text("Partition"),
        qos=text("QOS"),
        state=state.word,
        state_flags=state.flags,
        reason=text("Reason"),
        exit_code=values.exit_code(found.get("ExitCode", "")) if ended else None,
        derived_exit_code=values.exit_code(found.get("DerivedExitCode", "")) if ended else None,
        submit=time("SubmitTime"),
        eligible=time("EligibleTime"),
        elapsed_s=values.duration(found.get("RunTime", "")),
        time_limit_s=limit,
        time_limit_words=words,
        restarts=values.count(found.get("Restarts", "")),
        node_list=text("NodeList"),
        nodes=sacct.nodes_of(text("NodeList")),
        batch_node=text("BatchHost"),
        failed_node=text("FailedNode"),
        expected_nodes=text("SchedNodeList"),
        submit_line=text("SubmitLine"),
        work_dir=text("WorkDir"),
        std_out=text("StdOut"),
        std_err=text("StdErr"),
        comment=text("Comment"),
        admin_comment=clean(found.get("AdminComment", "").strip(), sacct.MAX_ADMIN_COMMENT),
        requested=_request(found),
    )
    job = sacct.identified(job, _shown(found))
    if job.is_pending:  # its times are the scheduler's estimate
        return replace(job, expected_start=time("StartTime")).with_source(SOURCE)
    return replace(
        job,
        start=time("StartTime"),
        end=time("EndTime"),
        allocated=_allocated(found),
        allocations=tuple(_allocations(found, groups)),
    ).with_source(SOURCE)


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
        gpus, types, _ = tres.gpus_of(found["JOB_GRES"])
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
        gpus, types, indices = tres.gpus_of(group.get("GRES", ""))
        known = told or not had_gpus
        cpus = tres.parse_indices(group.get("CPU_IDs", "")) or ()
        for node in sacct.nodes_of(group.get("Nodes", "")):
            yield NodeAllocation(
                node,
                cpus=len(cpus) if cpus else None,
                cpu_ids=cpus,
                mem_bytes=values.size(group.get("Mem", ""), "M"),
                gpus=gpus if known else None,
                gpu_types=types,
                gpu_indices=(() if gpus == 0 else indices) if known else None,
            )


@dataclass(frozen=True)
class Config:
    """What `scontrol show config` says; `values` has all of it by name."""

    version: str = ""
    cluster: str = ""
    gathered_by: str = ""  # cgroup/v1, cgroup/v2, cgroup, linux: what MaxRSS means
    gather_params: str = ""
    storage_type: str = ""  # accounting_storage/slurmdbd; "" where accounting is off
    tracked_tres: tuple[str, ...] = ()
    min_job_age_s: int | None = None  # scontrol forgets a job so long after its end
    values: Mapping[str, str] | None = None


def parse_config(output: bytes) -> Config:
    """The output of `scontrol show config`."""
    found: dict[str, str] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name.strip(), values.known(value))
    age = found.get("MinJobAge", "").partition(" ")[0]
    return Config(
        found.get("SLURM_VERSION", ""),
        found.get("ClusterName", ""),
        _gathered_by(found),
        found.get("JobAcctGatherParams", ""),
        found.get("AccountingStorageType", ""),
        tuple(name for name in found.get("AccountingStorageTRES", "").split(",") if name),
        values.count(age),
        found,
    )


def _gathered_by(found: Mapping[str, str]) -> str:
    kind = found.get("JobAcctGatherType", "").rpartition("/")[2]
    plugin = found.get("CgroupPlugin", "")
    return plugin if kind == "cgroup" and plugin.startswith("cgroup/v") else kind


class JobProcess(NamedTuple):
    """A process of a job on this node. Job ids are raw ones."""

    pid: int
    job: str
    step: str


def parse_listpids(output: bytes) -> list[JobProcess]:
    """The output of `scontrol listpids`; the mark of an empty `.extern`, PID -1, is left out."""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        match = _PROCESS.match(line + " ")
        if match and int(match[1]) > 0:
            found.append(JobProcess(int(match[1]), match[2], values.known(match[3])))
    return found


class PidInfo(NamedTuple):
    """The job of a process; `step` from 26.05 on, `remaining_s` until its limit."""

    job: str
    step: str
    remaining_s: int | None


def parse_pidinfo(output: bytes) -> PidInfo | None:
    """The output of `scontrol pidinfo PID`; None where it tells of no job."""
    text = output.decode("utf-8", "replace")
    job, left = _PIDINFO.search(text), _REMAINING.search(text)
    if not job:
        return None
    return PidInfo(job[1], values.known(job[2] or ""), values.count(left[1]) if left else None)
