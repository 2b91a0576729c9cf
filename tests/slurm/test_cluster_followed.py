"""Every kind of recommendation, followed on a real Slurm: the lines are written into the job's
script, the same job runs again with them, completes, and no longer has the finding.

All jobs run side by side, and then all of them again. A site's file lowers the times from which
jobs are judged, as they last for seconds.
"""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

from gpumon.analysis.finding import Change
from gpumon.analysis.rightsize.directives import apply
from tests.slurm import jobs
from tests.slurm.recorded import go_on_as_whole, waits
from tests.slurm.test_cluster_report import SHORT, changes, ids
from tests.support.waiting import HANGS_S, until

SITE = f"""{SHORT}
[[node]]
cores = 8
mem_gb = 64
partitions = ["standard"]
"""
#: of the node on which GPUs are requested: only the first one works
ONE_WORKS = "[gpu 1-3]\nutil = 0\nmem = 0\n"
#: until `go_on_as_whole`: however long the job and its recorder took to start
RECORDED = waits("srun gpumon record --quiet --")
#: 90 MiB and no core
HARDLY = waits("gpumon record --quiet --", beside=[jobs.hold(90, 600)])


class Kind(NamedTuple):
    """A job that asks for the wrong amount of something."""

    asks: str  # its directives
    work: str
    finding: str
    lines: dict[str, str]  # option -> its new value; "": it goes
    ends: str = "COMPLETED"


KINDS = {
    "more memory": Kind(
        "--mem=200M", jobs.hold(600, 4), "oom-killed", {"--mem": "1G"}, "OUT_OF_MEMORY"
    ),
    "more time": Kind("--time=1 --mem=100M", "sleep 20\n", "timed-out",
                      {"--time": "00:02:00"}, "TIMEOUT"),
    "less of everything": Kind("--time=2:00:00 --mem=16G -c4", HARDLY,
                               "mem-over", {"--time": "00:05:00", "--mem": "1G"}),
    "fewer GPUs": Kind("-p faults -w {node} -c 1 --gres=gpu:a100:2 --mem=1G", RECORDED,
                       "gpus-partly-idle", {"--gres": "gpu:a100:1"}),
    "fewer nodes": Kind("-N2 -n2 -c1 --mem=700M", f"srun {jobs.hold(300, 5)}",
                        "few-cores-per-node", {"--nodes": "1", "--ntasks": "2", "--mem": "2G"}),
    "an array": Kind("-a 1-5 -t 1:00:00 --mem=4G", jobs.hold(90, 5), "array-time-over",
                     {"--time": "00:05:00"}),
}  # fmt: skip


def script_of(kind, node):
    return f"#!/bin/bash\n#SBATCH {kind.asks.format(node=node)}\n{kind.work}"


def told(cluster, job):
    """The report, once the accounting knows how the job and all of its tasks ended."""
    until(lambda: all(row["End"] != "Unknown" for row in cluster.accounting(job, "End")))
    argv = ["gpumon", "report", "--format", "json", job]
    return json.loads(cluster.run("login", argv, env=env_of(cluster)).stdout)


def env_of(cluster):
    return {"GPUMON_SITE": str(cluster.home() / "followed.toml")}


def run_all(cluster, scripts):
    """name -> the report of the job, of which all run at the same time."""
    submitted = {name: cluster.submit(script) for name, script in scripts.items()}
    cluster.wait(submitted["more time"], "RUNNING", "COMPLETED")
    if "--time=1 " in scripts["more time"]:
        jobs.end_soon(cluster, submitted["more time"])
    for name, job in submitted.items():
        if "gpumon record" in scripts[name]:
            go_on_as_whole(cluster, job, least_s=30)
    for name, job in submitted.items():
        for each in [f"{job}_{n}" for n in range(1, 6)] if "array" in name else [job]:
            cluster.wait(each, timeout_s=5 * HANGS_S)
    return {name: told(cluster, job) for name, job in submitted.items()}


def asked(body):
    return [
        Change(each["directive"], each["before"], each["after"] or None)
        for each in body["recommendations"]
    ]


def test_every_recommendation_that_is_followed(cluster):
    cluster.write("followed.toml", SITE)
    with cluster.faulty() as node, cluster.gpus(node, ONE_WORKS):
        scripts = {name: script_of(kind, node) for name, kind in KINDS.items()}
        before = run_all(cluster, scripts)
        changed = {name: apply(scripts[name], asked(before[name])) for name in KINDS}
        after = run_all(cluster, changed)
    for name, kind in KINDS.items():
        assert kind.finding in ids(before[name]), name
        lines = {option: value for option, (_, value) in changes(before[name]).items()}
        assert {option: lines.get(option) for option in kind.lines} == kind.lines, name
        assert states(before[name]) == {kind.ends}, name
        assert states(after[name]) == {"COMPLETED"}, name
        assert kind.finding not in ids(after[name]), name
        assert not set(kind.lines) & set(changes(after[name])), name
        check_actions(before[name])
        check_actions(after[name])
    name = "less of everything"
    assert before[name]["coverage"]["source"] == "recording"
    argv = ["gpumon", "report", "--diff", before[name]["job"]["id"]]
    diff = cluster.run("login", argv, env=env_of(cluster)).stdout  # as `patch` takes it
    added = {line[1:] for line in diff.splitlines()[2:] if line.startswith("+")}
    assert added == set(changed[name].splitlines()) - set(scripts[name].splitlines())


def states(body):
    return set(body["tasks"]["states"]) if "tasks" in body else {body["job"]["state"]}


def check_actions(body):
    """A finding's lines are those of the report."""
    lines = {f"#SBATCH {each['directive']}={each['after']}" for each in body["recommendations"]}
    options = {each.partition("=")[0] for each in lines}
    for finding in body["findings"]:
        for action in finding["actions"]:
            if action["kind"] == "sbatch" and action["after"]:
                settings = {f"#SBATCH {each}" for each in shlex.split(action["after"])[1:]}
                assert {each for each in settings if each.partition("=")[0] in options} <= lines
