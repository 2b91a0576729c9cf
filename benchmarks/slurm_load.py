"""What dashboards on one job cost Slurm's controller: questions a minute, and bytes of answers.

    python -m benchmarks.slurm_load [--dashboards 1 5 20] [--minutes 2] [--nodes 1000]

Needs root: it brings up the tests' Slurm cluster, with so many made nodes beside the real ones, and
follows a job on two nodes by as many programs of one user on the login host. Each does what a
dashboard asks of Slurm, without screen and agents. slurmctld counts the questions (`sdiag`); bytes
are those that the login host received.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.table import rows_table
from tests.slurm.cluster import Cluster, end
from tests.slurm.sharing import Unable, shared_cluster

#: until programs that were started at once have asked all that they ask first
START_S = 25.0
FOLLOW = """\
import sys
from gpumon.services import jobs as find
from gpumon.services.asking import shared_slurm
from gpumon.slurm import ids
from gpumon.slurm.runner import LocalRunner
from gpumon.sources.attach import NOTHING, AttachSource
from gpumon.sources.watched import WatchedJob

class Sink:
    def status(self, node, status): pass

slurm = shared_slurm(LocalRunner())
jobs = find.with_cluster(slurm, find.find_jobs(slurm, ids.parse(sys.argv[1])))
look = lambda soon: find.look_again(slurm, jobs, soon=soon)
source = WatchedJob(jobs, look, lambda running: NOTHING, AttachSource((), {}, 1.0))
source.start(Sink())
sys.stdin.read()
"""
#: what the commands of gpumon ask; slurmctld counts its own nodes' messages, too
_KINDS = re.compile(r"^\s*REQUEST_(\w*(?:INFO|INFO_SINGLE))\s.*count:(\d+)", re.MULTILINE)
_OWN = ("STATS_INFO",)  # of sdiag


class Load(NamedTuple):
    """What was asked in so many seconds, and the bytes of the answers."""

    seconds: float
    asked: Counter[str]
    received: int

    def row(self, name: str) -> list[str]:
        number, minutes = self.asked.total(), self.seconds / 60
        kinds = ", ".join(
            f"{kind} {count / minutes:.1f}" for kind, count in self.asked.most_common()
        )
        return [
            name, f"{number / minutes:.1f}", f"{self.received / minutes / 1024:.1f}",
            f"{self.received / max(number, 1) / 1024:.1f}", kinds or "none",
        ]  # fmt: skip


class Meter:
    """Counts from its start on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self._asked, self._received = self._read()

    def load(self) -> Load:
        asked, received = self._read()
        seconds = time.monotonic() - self._began
        return Load(seconds, asked - self._asked, received - self._received)

    def _read(self) -> tuple[Counter[str], int]:
        told = self._cluster.ask("sdiag").partition("by message type")[2].partition("by user")[0]
        asked = Counter({kind: int(count) for kind, count in _KINDS.findall(told)})
        for kind in _OWN:
            asked.pop(kind, None)
        lines = self._cluster.run("login", ["cat", "/proc/net/dev"], "root").stdout
        found = re.search(r"eth0:\s*(\d+)", lines)
        assert found is not None, lines
        return asked, int(found[1])


@contextlib.contextmanager
def following(cluster: Cluster, job: str, number: int) -> Iterator[None]:
    """So many programs that follow the job."""
    argv = [cluster.folder / "venv" / "bin" / "python", "-c", FOLLOW, job]
    running = [cluster.popen("login", argv, stdin=subprocess.PIPE) for _ in range(number)]
    try:
        yield
        for process in running:
            assert process.poll() is None, process.stderr.read().decode()
    finally:
        for process in running:
            end(process)


def made_nodes(number: int) -> str:
    """Lines of slurm.conf: nodes that are down and answer to nobody."""
    lines = []
    for first in range(1, number + 1, 250):
        last = min(first + 249, number)
        addresses = f"198.19.{first // 250}.[1-{last - first + 1}]"
        lines.append(
            f"NodeName=far[{first:05d}-{last:05d}] NodeAddr={addresses} Sockets=1 "
            "CoresPerSocket=64 ThreadsPerCore=1 RealMemory=512000 Gres=gpu:a100:4 State=DOWN "
            "Reason=made"
        )
    return "\n".join([*lines, f"PartitionName=far Nodes=far[00001-{number:05d}] State=UP"])


def measure(cluster: Cluster, numbers: list[int], minutes: float) -> str:
    rows = []
    with cluster.job("srun sleep 7200", "-w", "node1,node2", "--gres=gpu:1", "-p", "gpu") as job:
        for number in numbers:
            start = Meter(cluster)
            with following(cluster, job, number):
                time.sleep(START_S)
                began = start.load()
                steady = Meter(cluster)
                time.sleep(60 * minutes)
                rows.append(steady.load().row(f"{number}"))
            count = began.asked.total()
            rows[-1][1:1] = [f"{count}", f"{began.received / 1024:.0f}"]
            print(rows[-1], file=sys.stderr)
    head = ["dashboards", "at the start", "KiB", "a minute", "KiB a minute", "KiB an answer"]
    return rows_table([*head, "of which (a minute)"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dashboards", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--nodes", type=int, default=1000)
    args = parser.parse_args()
    os.environ["GPUMON_CLUSTER_SLURM"] = made_nodes(args.nodes)
    try:
        with shared_cluster(f"slurm_load {os.getpid()}") as cluster:
            print(measure(cluster, args.dashboards, args.minutes))
    except Unable as why:
        print(f"not measured: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
