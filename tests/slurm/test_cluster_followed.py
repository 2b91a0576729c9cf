"""Every kind of recommendation, followed on a real Slurm: the lines are written into the job's
script, the same job runs again with them, completes, and no longer has the finding.

(Fewer cores, less memory and a shorter limit of a recorded job: `test_cluster_report`.) All jobs
run side by side, and then all of them again. A site's file lowers the times from which jobs are
judged, as they last for seconds.
"""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

import pytest

from gpumon.analysis.finding import Change
from gpumon.analysis.rightsize.directives import apply
from tests.slurm import jobs
from tests.slurm.test_cluster_report import SHORT, changes, ids
from tests.support.waiting import until

SITE = f"""{SHORT}
[[node]]
cores = 8
mem_gb = 64
partitions = ["standard"]
"""
#: of the node on which GPUs are requested: only the first one works
ONE_WORKS = "[gpu 1-3]\nutil = 0\nmem = 0\n"
#: however long the job and its recorder took to start, that is less than a tenth of the run
RECORDED = (
    'export T0=$(date -d "$(squeue -h -j $SLURM_JOB_ID -o %S)" +%s)\n'
    "srun gpumon record --quiet -- sh -c 'sleep $((15 * ($(date +%s) - T0) + 30))'\n"
)


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
    "less time": Kind("--time=2:00:00 --mem=100M", "sleep 5\n", "time-over",
                      {"--time": "00:15:00"}),
    "fewer GPUs": Kind("-p faults -c 1 --gres=gpu:a100:2 --mem=1G", RECORDED,
                       "gpus-partly-idle", {"--gres": "gpu:a100:1"}),
    "fewer nodes": Kind("-N2 -n2 -c1 --mem=700M", f"srun {jobs.hold(300, 5)}",
                        "few-cores-per-node", {"--nodes": "1", "--ntasks": "2", "--mem": "2G"}),
    "an array": Kind("-a 1-5 -t 1:00:00 --mem=4G", jobs.hold(90, 5), "array-time-over",
                     {"--time": "00:15:00"}),
}  # fmt: skip


class Followed(NamedTuple):
    """Two reports of a job: as it was submitted, and with the recommended lines."""

    before: dict
    after: dict


def script_of(kind):
    return f"#!/bin/bash\n#SBATCH {kind.asks}\n{kind.work}"


def told(cluster, job):
    """The report, once the accounting knows how the job and all of its tasks ended."""
    until(lambda: all(row["End"] != "Unknown" for row in cluster.accounting(job, "End")))
    env = {"GPUMON_SITE": str(cluster.home() / "followed.toml")}
    argv = ["gpumon", "report", "--format", "json", job]
    return json.loads(cluster.run("login", argv, env=env).stdout)


def run_all(cluster, scripts):
    """name -> the report of the job, of which all run at the same time."""
    submitted = {name: cluster.submit(script) for name, script in scripts.items()}
    cluster.wait(submitted["more time"], "RUNNING", "COMPLETED")
    if "--time=1 " in scripts["more time"]:
        jobs.end_soon(cluster, submitted["more time"])
    for name, job in submitted.items():
        for each in [f"{job}_{n}" for n in range(1, 6)] if "array" in name else [job]:
            cluster.wait(each, timeout_s=180)
    return {name: told(cluster, job) for name, job in submitted.items()}


@pytest.fixture(scope="module")
def followed(cluster):
    cluster.write("followed.toml", SITE)
    scripts = {name: script_of(kind) for name, kind in KINDS.items()}
    with cluster.faulty() as node, cluster.gpus(node, ONE_WORKS):
        before = run_all(cluster, scripts)
        changed = {name: apply(scripts[name], asked(before[name])) for name in KINDS}
        after = run_all(cluster, changed)
    return {name: Followed(before[name], after[name]) for name in KINDS}


def asked(body):
    return [
        Change(each["directive"], each["before"], each["after"] or None)
        for each in body["recommendations"]
    ]


@pytest.mark.parametrize("name", KINDS)
def test_a_recommendation_that_is_followed(followed, name):
    kind, (before, after) = KINDS[name], followed[name]
    assert kind.finding in ids(before)
    lines = {option: value for option, (_, value) in changes(before).items()}
    assert {option: lines.get(option) for option in kind.lines} == kind.lines
    assert states(before) == {kind.ends}
    assert states(after) == {"COMPLETED"}
    assert kind.finding not in ids(after)
    assert not set(kind.lines) & set(changes(after))


def states(body):
    return set(body["tasks"]["states"]) if "tasks" in body else {body["job"]["state"]}


def test_a_findings_lines_are_those_of_the_report(followed):
    for body in (each for pair in followed.values() for each in pair):
        lines = {f"#SBATCH {each['directive']}={each['after']}" for each in body["recommendations"]}
        options = {each.partition("=")[0] for each in lines}
        for finding in body["findings"]:
            for action in finding["actions"]:
                if action["kind"] == "sbatch" and action["after"]:
                    settings = {f"#SBATCH {each}" for each in shlex.split(action["after"])[1:]}
                    assert {each for each in settings if each.partition("=")[0] in options} <= lines
