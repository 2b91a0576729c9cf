"""Our figures of jobs equal those that Slurm and the kernel give at that moment.

The oracle reads scontrol, sacct, sstat and the job's cgroup files by itself. What moves (CPU time,
memory) is read before and after ours, which then lies between.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.wire.decoder import Decoder
from tests.slurm import jobs
from tests.slurm.test_client_cluster import slurm
from tests.support.waiting import until

MIB = 1 << 20
#: memory comes and goes a little between two looks
SLACK_BYTES = 8 * MIB
LONG_S = 600

KINDS = {
    "over-requested": lambda cluster, seconds: jobs.over_requested(cluster, seconds=seconds),
    "gpus": lambda cluster, seconds: jobs.gpus(cluster, "-w", "node2", seconds=seconds),
    "two nodes": lambda cluster, seconds: jobs.two_nodes(cluster, seconds=seconds),
    "heterogeneous": lambda cluster, seconds: jobs.heterogeneous(cluster, seconds=seconds),
    "array": lambda cluster, seconds: jobs.array(cluster, seconds=seconds),
}


def parts(kind, job):
    """The job as people name it, and in sacct: of an array a task, of a het job its components."""
    if kind == "heterogeneous":
        return [f"{job}+0", f"{job}+1"]
    return [f"{job}_2"] if kind == "array" else [job]


# -- what Slurm says -----------------------------------------------------------------------------
def amount(text):
    """`2`, `500M`, `00:01:30.5`, `1-00:00:00` as a number: bytes, seconds."""
    if ":" in text:
        days, _, clock = text.rpartition("-")
        total = 0.0
        for each in clock.split(":"):
            total = total * 60 + float(each)
        return total + 86400 * int(days or 0)
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    return float(text.rstrip("KMGT")) * unit


def tres(text):
    pairs = (each.split("=") for each in text.split(",") if each)
    return {name: amount(value) for name, value in pairs}


class Share(NamedTuple):
    cpus: int
    mem_bytes: int
    gpus: int


def shares(cluster, id):
    """node -> its share, from the lines of `scontrol show job -d`."""
    text = cluster.ask("scontrol", "-o", "show", "job", "-d", id)
    found = {}
    line = r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)"
    for nodes, cpus, mib, gres in re.findall(line, text.splitlines()[0]):
        count = sum(
            int(last or first) - int(first) + 1 for first, last in re.findall(r"(\d+)-?(\d*)", cpus)
        )
        gpus = re.search(r"gpu:a100:(\d+)", gres)
        share = Share(count, int(mib) * MIB, int(gpus[1]) if gpus else 0)
        found.update(dict.fromkeys(cluster.expanded(nodes), share))
    return found


def sstat(cluster, id):
    """step -> its TRESUsageInTot, as the owner sees it."""
    argv = ["sstat", "-a", "-n", "-P", "-o", "JobID,TRESUsageInTot", "-j", id]
    rows = (line.split("|") for line in cluster.run("login", argv).stdout.splitlines())
    return {name.partition(".")[2]: tres(told) for name, told in rows}


class Group(NamedTuple):
    """A job's cgroup on a node, as its files say."""

    cpu_s: float
    mem_used_bytes: int
    mem_limit_bytes: int


def group(cluster, node, raw_id):
    where = f"$(ls -d /sys/fs/cgroup/%s/slurm*/uid_*/job_{raw_id})"
    files = [
        ("cpuacct", "cpuacct.usage"), ("memory", "memory.limit_in_bytes"),
        ("memory", "memory.stat"),
    ]  # fmt: skip
    script = "; echo; ".join(f"cat {where % tree}/{name}" for tree, name in files)
    text = cluster.run(node, ["sh", "-c", script], "root").stdout
    used, limit, stat = text.split("\n\n", 2)
    table = dict(line.split() for line in stat.splitlines())
    return Group(
        int(used) / 1e9, int(table["total_rss"]) + int(table.get("total_shmem", 0)), int(limit)
    )


# -- what we say ---------------------------------------------------------------------------------
def collected(cluster, host, argv):
    """Header and samples of an agent."""
    decoder = Decoder()
    lines = cluster.run(host, argv).stdout.splitlines()
    items = [decoder.line(line) for line in lines]
    headers = [item for item in items if isinstance(item, Header)]
    return headers[-1], [item for item in items if isinstance(item, Sample) and item.rows]


def report(cluster, id):
    body = json.loads(cluster.run("login", ["gpumon", "report", id, "--format", "json"]).stdout)
    return body[0] if isinstance(body, list) else body


def figures(told):
    """CPUs, bytes and GPUs of a part of the report, or of TRES."""
    if "mem_bytes" in told:
        return told["cpus"], told["mem_bytes"], told["gpus"] or 0
    return told["cpu"], told["mem"], told.get("gres/gpu", 0)


def between(low, value, high, slack=0.0):
    return min(low, high) - slack <= value <= max(low, high) + slack


def recorded(cluster, part):
    """The job's row of sacct, once it tells what was allocated."""
    rows = cluster.accounting(part, "JobIDRaw", "ReqTRES", "AllocTRES")
    return rows[0] if rows and rows[0]["AllocTRES"] else None


def test_running_jobs(cluster):
    """Each kind of job, while all of them run."""
    found = {kind: submit(cluster, LONG_S) for kind, submit in KINDS.items()}
    try:
        for kind, id in found.items():
            for part in parts(kind, id):
                cluster.wait(part, "RUNNING")
                check(cluster, part)
        check_inside(cluster, found["gpus"])
    finally:
        for id in found.values():
            cluster.cancel(id)


def check(cluster, part):
    row = until(lambda: recorded(cluster, part))
    job = slurm(cluster).job(part)
    assert (job.id, job.raw_id) == (part, row["JobIDRaw"])
    for ours, theirs in ((job.requested.resources, tres(row["ReqTRES"])),
                         (job.allocated, tres(row["AllocTRES"]))):  # fmt: skip
        assert (ours.cpus, ours.mem_bytes, ours.nodes, ours.gpus or 0) == (
            theirs["cpu"], theirs["mem"], theirs["node"], theirs.get("gres/gpu", 0)
        )  # fmt: skip
    told = shares(cluster, job.raw_id)
    assert {each.node: Share(each.cpus, each.mem_bytes, each.gpus or 0)
            for each in job.allocations} == told  # fmt: skip
    body = report(cluster, part)
    assert figures(body["allocated"]) == figures(tres(row["AllocTRES"]))
    assert figures(body["requested"]) == figures(tres(row["ReqTRES"]))
    for node, share in told.items():
        check_node(cluster, node, job.raw_id, share)
    check_steps(cluster, part, job.raw_id)


def check_node(cluster, node, raw_id, share):
    """The agent, from outside of the job, against the cgroup's files."""
    argv = ["gpumon", "collect", "--job", raw_id, "--interval", "0.5", "--count", "2"]
    before = group(cluster, node, raw_id)
    header, samples = collected(cluster, node, [*argv, "--gpus", str(share.gpus)])
    after = group(cluster, node, raw_id)
    assert header.job.id == raw_id
    row = samples[-1].rows["job"][""]
    assert between(before.cpu_s, row["cpu_s"], after.cpu_s, 0.01)  # it travels with two decimals
    assert between(before.mem_used_bytes, row["mem_used_bytes"], after.mem_used_bytes, SLACK_BYTES)
    assert row["mem_limit_bytes"] == before.mem_limit_bytes == share.mem_bytes
    assert header.job.gpus == share.gpus
    assert header.devices == []  # nothing uses them: from outside of the job none is known


def check_steps(cluster, part, raw_id):
    """Our usage of each step that runs, against sstat's."""
    before = until(lambda: sstat(cluster, raw_id))
    asked = slurm(cluster)
    ours = {step.id: step for step in asked.with_usage(asked.job(part)).steps}
    after = sstat(cluster, raw_id)
    assert set(before) <= {id for id, step in ours.items() if step.source == "sstat"}
    for id, told in before.items():
        for name, low in told.items():
            slack = SLACK_BYTES if name in ("mem", "vmem") else 0
            if name in ("cpu", "mem"):
                assert between(low, ours[id].usage.total[name], after[id][name], slack), (id, name)


def check_inside(cluster, job):
    """The job's environment says the same, and its GPUs are those that it may open."""
    (share,) = shares(cluster, job).values()
    step = ["srun", f"--jobid={job}", "--overlap", "--mem=0"]
    header, _ = collected(cluster, "login", [*step, "gpumon", "collect", "--count", "1"])
    assert (header.job.cpus, header.job.mem_limit_bytes, header.job.gpus) == share
    tries = "for n in 0 1 2 3; do (exec 3</dev/nvidia$n) 2>&1; done"
    said = cluster.run("login", [*step, "bash", "-c", tries], check=False).stdout
    # the kernel's words where the job may open it, and there is no driver behind
    held = re.findall(r"nvidia(\d): No such device or address", said)
    assert len(held) == share.gpus
    assert said.count("Operation not permitted") == 4 - share.gpus
    assert [device.uuid for device in header.devices] == [
        cluster.uuid("node2", int(minor)) for minor in held
    ]
    assert [device.cuda_index for device in header.devices] == list(range(share.gpus))


# -- ended ---------------------------------------------------------------------------------------
def test_ended_jobs(cluster):
    """Of jobs that ran some seconds, together."""
    ended = {kind: submit(cluster, 4) for kind, submit in KINDS.items()}
    for kind, job in ended.items():
        for part in parts(kind, job):
            until(lambda part=part: cluster.accounting(part, "End"), part)
            cluster.accounted(part)
            check_ended(cluster, part)


def check_ended(cluster, part):
    fields = ("State", "ReqTRES", "AllocTRES", "ElapsedRaw", "TotalCPU", "MaxRSS", "NTasks",
              "TRESUsageInTot")  # fmt: skip
    whole, *steps = cluster.accounting(part, *fields)
    body = report(cluster, part)
    assert body["job"]["state"] == whole["State"] == "COMPLETED"
    assert body["job"]["elapsed_s"] == int(whole["ElapsedRaw"])
    assert figures(body["requested"]) == figures(tres(whole["ReqTRES"]))
    assert figures(body["allocated"]) == figures(tres(whole["AllocTRES"]))
    cpu_s = [max(amount(step["TotalCPU"]), tres(step["TRESUsageInTot"]).get("cpu", 0))
             for step in steps]  # fmt: skip
    known_s = max(sum(cpu_s), amount(whole["TotalCPU"]))
    assert body["used"]["cpu_core_s"] == pytest.approx(known_s, abs=0.01)
    if all(int(step["NTasks"]) == 1 for step in steps):
        peak = sum(amount(step["MaxRSS"] or "0") for step in steps)
        assert body["used"]["mem_peak_bytes"] == (pytest.approx(peak) if peak else None)
