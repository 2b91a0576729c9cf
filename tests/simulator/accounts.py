"""The job as Slurm's accounting has it: states, limits, CPU time, and what MaxRSS means there."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

from gpumon.slurm.job import ExitCode, Job, NodeAllocation, Request, Resources, Step, Usage
from tests.simulator.job import SimJob, peaks, used
from tests.simulator.observe import START, node_name

_POLL_S = 30.0
_KILLED = {"TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED"}


def slurm_job(job: SimJob) -> Job:
    """What `sacct` would tell of it after its end."""
    request, ended = job.request, job.ended
    names = tuple(node_name(job, node) for node in range(request.nodes))
    kind = request.board.gres if request.board else ""
    gres = f"{kind}:{request.gpus}" if kind else ""
    whole = Resources(
        cpus=request.cpus * request.nodes, mem_bytes=int(request.mem * request.nodes),
        gpus=request.gpus * request.nodes, nodes=request.nodes,
        tres={"cpu": request.cpus * request.nodes},
        gpu_types={kind.partition(":")[2]: request.gpus * request.nodes} if kind else {},
    )  # fmt: skip
    form_bytes = {
        "node": request.mem, "cpu": request.mem / request.cpus,
        "gpu": request.mem / max(1, request.gpus),
    }[request.mem_form]  # fmt: skip
    running = ended.state == "RUNNING"
    asked = replace(whole, cpus=request.usable * request.nodes)
    steps = () if running else _steps(job)
    until = request.limit_s if running else ended.seconds
    derived = ExitCode(0, 125) if job.program.failed_step else ExitCode(ended.code, ended.signal)
    lost = running or ended.state in _KILLED
    return Job(
        raw_id="4711", id="4711", cluster="sim", name=job.program.kind, user="ada", uid=1000,
        account="lab", partition=request.partition, state=ended.state,
        state_by="1000" if ended.state == "CANCELLED" else "",
        exit_code=None if running else ExitCode(ended.code, ended.signal),
        derived_exit_code=None if running else derived,
        submit=START - 900, eligible=START - 900, start=START, end=START + until,
        elapsed_s=ended.seconds, time_limit_s=None if request.limit_words else request.limit_s,
        time_limit_words=request.limit_words, submit_line=request.submit_line, nodes=names,
        node_list=",".join(names), allocated=whole,
        requested=Request(
            asked, mem_form=request.mem_form,
            mem_form_bytes=0 if request.whole else int(form_bytes),
            tasks=request.tasks * request.nodes, cpus_per_task=request.usable // request.tasks,
            tasks_per_node=request.tasks if request.tasks_form == "node" else None,
            gres=gres, gres_form="node" if gres else "",
        ),
        allocations=tuple(
            NodeAllocation(name, request.cpus, int(request.mem), request.gpus) for name in names
        ),
        steps=steps, cpu_s=None if lost else sum(step.cpu_s or 0.0 for step in steps),
        slurm_version=job.view.slurm, acct_gather=job.view.gather,
        admin_comment="" if running or not job.view.jobstats else _summary(job),
        failed_node=names[0] if ended.state == "NODE_FAIL" else "",
    )  # fmt: skip


def _summary(job: SimJob) -> str:
    """What jobstats leaves in AdminComment: means and maxima, polled every 30 s."""
    request, seconds = job.request, job.ended.seconds
    busy = {(number, key): 0.0 for number in range(request.nodes) for key in range(request.gpus)}
    at = 0.0
    for segment in job.program.segments:
        length = max(0.0, min(segment.seconds, seconds - at))
        at += segment.seconds
        for number, node in enumerate(segment.nodes):
            for key, gpu in enumerate(node.gpus):
                share = gpu.active if gpu.requests_per_s else max(gpu.busy, gpu.foreign)
                busy[number, key] += 100 * share * length / seconds
    nodes: dict[str, dict[str, object]] = {}
    for number in range(request.nodes):
        polls = range(30, int(seconds), 30)
        found: dict[str, object] = {
            "cpus": request.cpus, "total_memory": int(request.mem),
            "used_memory": int(max((used(job, number, at) for at in polls), default=0)),
            "total_time": cpu_seconds(job, number),
        }  # fmt: skip
        gpus = range(request.gpus)
        if request.gpus:
            size = int(request.board.mem_bytes)
            found["gpu_total_memory"] = {str(key): size for key in gpus}
            found["gpu_used_memory"] = {str(key): _gpu_peak(job, number, key) for key in gpus}
        if request.gpus and not request.board.mig:  # no slice tells its utilization
            found["gpu_utilization"] = {str(key): round(busy[number, key]) for key in gpus}
        nodes[node_name(job, number)] = found
    text = json.dumps({"gpus": request.gpus * request.nodes, "total_time": seconds,
                       "nodes": nodes})  # fmt: skip
    return "JS1:" + base64.b64encode(gzip.compress(text.encode())).decode()


def _gpu_peak(job: SimJob, number: int, key: int) -> int:
    held = job.program.held[number][key] if job.program.held else ()
    most = job.request.board.mem_bytes - job.request.board.reserved_bytes
    return int(min(most, sum(each.shown(job.ended.seconds) for each in held)))


def _steps(job: SimJob) -> tuple[Step, ...]:
    """One step that runs the program: `batch`, or `srun` over several nodes."""
    request, ended = job.request, job.ended
    is_mpi = request.nodes * request.tasks > 1
    peaks = [_max_rss(job, node) for node in range(request.nodes)]
    tasks = request.nodes * (request.tasks if is_mpi else 1)
    of_task = max(peaks) / (request.tasks if is_mpi else 1)
    lost = ended.state in _KILLED
    cpu_s = sum(cpu_seconds(job, node) for node in range(request.nodes))
    state = "CANCELLED" if ended.state in ("TIMEOUT", "PREEMPTED") else ended.state
    step = Step(
        "0" if is_mpi else "batch", job.program.name, state, "",
        ExitCode(ended.code, ended.signal), START, START + ended.seconds, ended.seconds,
        node_count=request.nodes, cpus=request.cpus * request.nodes, tasks=tasks,
        cpu_s=None if lost else cpu_s, max_rss_bytes=int(of_task),
        usage=Usage(total={"mem": float(sum(peaks))}, maximum={"mem": of_task}), source="sacct",
    )  # fmt: skip
    if not job.program.failed_step:
        return (step,)
    killed = Step("0", job.program.name, "OUT_OF_MEMORY", "", ExitCode(0, 125), START + 60,
                  START + 200, 140.0, node_count=1, tasks=1, max_rss_bytes=0,
                  source="sacct")  # fmt: skip
    return (step, killed)


def cpu_seconds(job: SimJob, node: int) -> float:
    """What the kernel counted until the end."""
    total = at = 0.0
    for segment in job.program.segments:
        seconds = min(segment.seconds, job.ended.seconds - at)
        if seconds <= 0:
            break
        total += seconds * segment.nodes[node].cores.used(job.request.cpus)
        at += segment.seconds
    return total


def _max_rss(job: SimJob, node: int) -> float:
    """Slurm's peak: polled, or the kernel's own; with page cache or without, by its version."""
    ended, request = job.ended, job.request
    release = tuple(int(part) for part in job.view.slurm.split(".")[:2])
    cached = release >= (24, 11) or (release >= (23, 11) and job.view.gather.endswith("v2"))
    cached = cached and not job.view.gather.endswith("linux")
    if release >= (24, 11) and cached:
        most = peaks(job, ended.seconds)[node]
    else:
        times = [n * _POLL_S for n in range(1, int(ended.seconds / _POLL_S) + 1)]
        most = max((used(job, node, second) for second in times), default=0.0)
    if cached:
        most += _read(job, node)
    return min(most, request.mem)


def _read(job: SimJob, node: int) -> float:
    """Bytes read and written: what page cache would hold if there were room."""
    return sum(
        segment.seconds * (segment.nodes[node].read + segment.nodes[node].write)
        for segment in job.program.segments
    )
