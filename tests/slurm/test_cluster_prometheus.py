"""A job's report, live view and replay from the scrapes of exporters on its nodes, beside its
recording.

A real Prometheus on the login host scrapes `gpumon exporter`, which runs on the node as root.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.nvml.scenario import Proc, Scenario
from tests.slurm.cluster import Cluster, end
from tests.slurm.recorded import begun, go_on_as_whole, waits
from tests.slurm.test_cluster_report import SHORT
from tests.slurm.test_cluster_screen import dashboard, left, shows
from tests.support.ports import free_port
from tests.support.waiting import until

_CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: gpumon
  static_configs: [{{targets: [{targets}]}}]
"""
#: GPU 0 works, GPU 1 holds memory and does nothing, GPU 2 has no process
_USED, _HELD = 30_000, 12_000
#: of buckets of 10 s, so that one that no scrape fell into is no fifth of them
_RECORDED_S = 60


@dataclass(frozen=True)
class Ran:
    """A job that was recorded and scraped; what was asked while it ran."""

    cluster: Cluster
    job: str
    node: str
    url: str
    once: dict[str, Any]

    def gpumon(self, *argv: str, recorded: bool = False) -> str:
        """As its owner on the login host, with or without the recording."""
        env = self.env(recorded=recorded)
        return self.cluster.run("login", ["gpumon", *argv], env=env).stdout

    def env(self, *, recorded: bool = False) -> dict[str, str]:
        env = {"GPUMON_SITE": str(self.cluster.home() / "scraped.toml")}
        return env | (
            {} if recorded else {"XDG_STATE_HOME": str(self.cluster.home() / "no-recording")}
        )

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What the server answers now."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=60) as answer:
            found = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]


@contextmanager
def scraped(cluster: Cluster, nodes: list[str]) -> Iterator[str]:
    """Exporters on these nodes, and the URL of a server that scrapes them every second."""
    port = free_port()
    folder = cluster.home("bob") / f"prometheus-{port}"
    cluster.run("login", ["mkdir", folder], "bob")
    targets = ", ".join(f"'{node}:{port}'" for node in nodes)
    (folder / "prometheus.yml").write_text(_CONFIG.format(targets=targets))
    url = f"http://{cluster.address('login')}:{port}"
    with ExitStack() as running:

        def start(host: str, *argv: str, user: str) -> None:
            with (folder / f"{host}.log").open("w") as log:
                process = cluster.popen(host, argv, user, stdout=log, stderr=log)
            running.callback(end, process)

        for node in nodes:
            start(
                node, "gpumon", "exporter", "--interval", "1", "--listen", f":{port}", user="root"
            )
        start(
            "login", "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=:{port}", user="bob",
        )  # fmt: skip

        def is_scraped() -> bool:
            try:
                asked = f"{url}/api/v1/query?query=sum(up)"
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                return False
            return bool(found) and float(found[0]["value"][1]) == len(nodes)

        until(is_scraped, lambda: "\n".join(p.read_text()[-1500:] for p in folder.glob("*.log")))
        yield url


@contextmanager
def ran(cluster: Cluster) -> Iterator[Ran]:
    """One job of three GPUs, scraped and recorded from its start to its end."""
    idle = Scenario().gpu(1, util=0, mem_mib=_HELD).gpu(2, util=0, mem_mib=0)
    with cluster.faulty() as node, cluster.gpus(node, idle), scraped(cluster, [node]) as url:
        cluster.write("scraped.toml", f'{SHORT}\n[prometheus]\nurl = "{url}"\n')
        script = waits("gpumon record --quiet --")
        options = ["-p", "faults", "-w", node, "--gres=gpu:a100:3", "-c2", "--mem=2G", "-t", "60"]
        job = cluster.submit(script, *options)
        begun(cluster, job)
        (pid, *_) = until(lambda: cluster.pids(node, "^sh -c until.*go-on"), "the job")
        procs = Scenario()
        procs.gpu(0, util=60, mem_mib=_USED, procs=[Proc(pid, mem_mib=_USED)])
        procs.gpu(1, util=0, mem_mib=_HELD, procs=[Proc(pid, mem_mib=_HELD)])
        with cluster.gpus(node, procs):
            go_on = Ran(cluster, job, node, url, {})
            query = f'count(count_over_time(gpumon_gpu_up{{jobid="{job}"}}[1m]) > 5)'
            until(lambda: go_on.values(query), "scrapes that name the job")
            once = json.loads(go_on.gpumon("attach", job, "--via", "prometheus", "--json"))
            go_on_as_whole(cluster, job, least_s=_RECORDED_S)
            cluster.wait(job, "COMPLETED")
        cluster.accounted(job)
        yield Ran(cluster, job, node, url, once)


@pytest.mark.terminal
def test_report_series_sample_and_replay_of_a_job_that_was_scraped(cluster: Cluster) -> None:
    with ran(cluster) as job:
        _the_newest_scrape_is_a_sample(job)
        _series_carry_the_job(job)
        _the_report_is_that_of_the_recording(job)
        settings = [f"{name}={value}" for name, value in job.env().items()]
        with left(dashboard(cluster, "env", *settings, "gpumon", "replay", job.job)) as screen:
            shows(screen, f"gpumon  {job.job}", "A100", "60")


def _gpu_findings(body: dict[str, Any]) -> set[str]:
    return {each["id"] for each in body["findings"] if "gpu" in each["id"]}


def _the_report_is_that_of_the_recording(ran: Ran) -> None:
    argv = ("report", ran.job, "--format", "json")
    recorded, scraped = reports = [
        json.loads(ran.gpumon(*argv, recorded=is_recorded)) for is_recorded in (True, False)
    ]
    assert recorded["coverage"]["source"] == "recording"
    assert scraped["coverage"]["source"] == "prometheus"
    assert _gpu_findings(scraped) == _gpu_findings(recorded) == {"gpus-partly-idle"}
    others = ({each["id"] for each in body["findings"]} for body in reports)
    assert len(set(map(frozenset, others))) == 1
    assert scraped["waste_gpu_hours"] == pytest.approx(recorded["waste_gpu_hours"], rel=0.15)
    assert scraped["used"]["mem_peak_bytes"] == pytest.approx(
        recorded["used"]["mem_peak_bytes"],
        rel=0.1,
        abs=32 << 20,  # a recorder is known to be no program of the job after 5 s
    )
    assert len(scraped["devices"]) == len(recorded["devices"]) == 3
    for ours, theirs in zip(scraped["devices"], recorded["devices"]):
        assert (ours["node"], ours["index"]) == (theirs["node"], theirs["index"])
        assert ours["busy_mean"] == pytest.approx(theirs["busy_mean"], abs=1)
        assert ours["mem_peak_bytes"] == theirs["mem_peak_bytes"]


def _series_carry_the_job(ran: Ran) -> None:
    """Also that of the GPU without a process, and none of the GPU that is not the job's."""
    query = f'last_over_time(gpumon_gpu_busy_ratio{{jobid="{ran.job}"}}[10m])'
    assert {labels["gpu"]: value for labels, value in ran.values(query)} == {
        "0": 0.6,
        "1": 0,
        "2": 0,
    }
    ((labels, limit),) = ran.values("last_over_time(gpumon_job_memory_limit_bytes[10m])")
    assert (labels["jobid"], limit) == (ran.job, 2 * 2**30)


def _the_newest_scrape_is_a_sample(ran: Ran) -> None:
    assert ran.once["node"] == ran.node
    assert [each["index"] for each in ran.once["devices"]] == [0, 1, 2]
    assert [each["mem_used_bytes"] >> 20 for each in ran.once["devices"]] == [_USED, _HELD, 0]
