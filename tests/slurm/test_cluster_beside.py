"""Runs of the tests beside each other on one machine, on which packages are installed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.program import ROOT
from tests.slurm.cluster import NODES, Cluster
from tests.support.waiting import HANGS_S

HOSTS = ("login", *NODES)
#: another run on this machine: all that it shares with this one, but /etc is a copy, in which it
#: replaces each file as packages and useradd do
ANOTHER_RUN = """\
import json, shutil
from pathlib import Path
from tests.slurm.sharing import shared_cluster
from tests.slurm.test_cluster_beside import state

with shared_cluster("another run") as cluster:
    before = state(cluster)
    for path in list(Path("/etc").rglob("*")):
        if path.is_file() and not path.is_symlink():
            fresh = path.with_name(path.name + ".fresh")
            shutil.copy2(path, fresh)
            fresh.replace(path)
    shutil.rmtree("/etc/slurm", ignore_errors=True)
    assert state(cluster) == before
    print(json.dumps(before))
"""
IN_A_COPY = 'mkdir "$0" && cp -a /etc/. "$0" && mount --bind "$0" /etc && exec "$@"'


def state(cluster: Cluster) -> dict[str, list[str]]:
    """What it has for itself, each of which works: by kind, names that no other cluster has."""
    for host in HOSTS:
        cluster.run(host, ["sh", "-c", "echo $0 >>/tmp/mark && echo $0 >>/var/tmp/mark", host])
        marks = cluster.run(host, ["sort", "-u", "/tmp/mark", "/var/tmp/mark"]).stdout
        assert marks == f"{host}\n"
    job = cluster.submit("id -u; getent hosts ctl; gpumon once", "--gres=gpu:2", "-w", "node1")
    assert cluster.wait(job) == "COMPLETED", cluster.log(job)
    uid, address, once = cluster.log(job).split("\n", 2)
    assert once.count("A100") >= 2
    ssh = ["ssh", "-F", str(cluster.ssh_config), "node1", "id -un"]
    done = subprocess.run(ssh, capture_output=True, text=True, timeout=HANGS_S)
    assert done.stdout == "alice\n", done.stderr
    return {"folder": [str(cluster.folder)], "user": [uid], "address": address.split()[:1]}


@pytest.mark.ssh
def test_another_run_and_replaced_files_of_the_machine_change_nothing(cluster, tmp_path):
    before = state(cluster)
    argv = ["unshare", "-m", "sh", "-c", IN_A_COPY, tmp_path / "etc", sys.executable, "-c"]
    done = subprocess.run(
        [*map(str, argv), ANOTHER_RUN], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stderr
    other = json.loads(done.stdout)
    assert {kind: set(names) & set(other[kind]) for kind, names in before.items()} == {
        kind: set() for kind in before
    }
    assert state(cluster) == before
