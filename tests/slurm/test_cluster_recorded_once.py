"""However many record a job on a real cluster, each moment of it counts once."""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from itertools import pairwise

import pytest

from gpumon.errors import GpumonError
from gpumon.model.reading import number
from gpumon.model.sample import Sample
from gpumon.recording import Recording
from tests.slurm import jobs
from tests.slurm.cluster import end
from tests.slurm.following import Following
from tests.slurm.test_cluster_life import begin_now, control
from tests.support.waiting import until

#: s; at which `Following` samples
INTERVAL_S = 0.5


def recordings(cluster, job):
    """By node."""
    found = defaultdict(list)
    for path in sorted((cluster.home() / ".local/state/gpumon/jobs").rglob(f"{job}/*.gpumon")):
        found[path.name.partition("-")[0]].append(path)
    return dict(found)


def dashboard(cluster, job, via=None):
    return Following(cluster, job, via, env={"RECORD": "1"})


def told(cluster, job):
    return json.loads(cluster.run("login", ["gpumon", "report", job, "--format", "json"]).stdout)


def counted(paths):
    """What the counters of a node show, over all files: joules of its GPUs, CPU seconds."""
    joules: dict[str, list[float]] = defaultdict(list)
    cpu_s: list[float] = []
    for recording in readable(paths):
        uuids = {device.key: device.uuid for device in recording.header.devices}
        for item in recording.items():
            rows = item.rows if isinstance(item, Sample) else {}
            for key, row in rows.get("device", {}).items():
                joules[uuids[int(str(key))]] += known(row.get("energy_j"))
            cpu_s += known(rows.get("job", {}).get("", {}).get("cpu_s"))
    return sum(max(each) - min(each) for each in joules.values()), max(cpu_s) - min(cpu_s)


def known(reading):
    value = number(reading)
    return [] if value is None else [value]


def test_two_dashboards_record_each_node_once_and_take_over(cluster):
    options = ["-w", "node1,node2", "-p", "gpu", "--gres=gpu:1", "--mem=500M", "-c1"]
    with cluster.job(f"srun {jobs.dabble(600)}", *options) as job:
        nodes = cluster.nodes(job)
        with dashboard(cluster, job, "srun") as first, dashboard(cluster, job, "srun") as second:
            first.live(*nodes)
            second.live(*nodes)
            until(lambda: len(recordings(cluster, job)) == 2, "both nodes are recorded")
            time.sleep(6)  # enough for two beats: one of them leaves each node to the other
            before = recordings(cluster, job)
            end(first.process)
            ended = time.time()
            until(lambda: newest(cluster, job) > ended + 3, "the other records on, on both nodes")
            second.stop()
        found = recordings(cluster, job)
        assert all(len(before[node]) <= 2 and len(found[node]) <= 3 for node in nodes)
        body = told(cluster, job)
        energy, cpu = (sum(each) for each in zip(*(counted(found[node]) for node in nodes)))
        assert body["used"]["gpu_energy_j"] == pytest.approx(energy, rel=0.02)
        assert body["used"]["cpu_core_s"] == pytest.approx(cpu, rel=0.02)
        assert body["used"]["cpu_core_s"] <= 2 * 1.05 * body["job"]["elapsed_s"]
        assert len(body["devices"]) == 2
        table = cluster.run("login", ["gpumon", "export", job, "--to", "csv", "--table", "host"])
        rows = [line.split(",")[1:3] for line in table.stdout.splitlines()[1:]]
        for node in nodes:
            times = [float(at) for at, where in rows if where == node]
            assert len(times) > 5  # more on a machine with nothing else to do
            assert all(earlier < later for earlier, later in pairwise(times))
            # a busy node takes one sample late and the next on time, but none is counted twice
            assert len(times) <= (times[-1] - times[0]) / INTERVAL_S + 3


def test_a_requeued_job_has_recordings_and_figures_of_each_attempt(cluster):
    script = f"gpumon record &\n{jobs.dabble(600)}"
    with cluster.job(script, "--requeue", "--mem=200M", "-c1") as job:
        until(lambda: attempts(cluster, job) == [0], "the first attempt is recorded")
        control(cluster, "requeue", job)
        cluster.wait(job, "PENDING")
        begin_now(cluster, job)
        until(lambda: attempts(cluster, job) == [0, 1], "both attempts are recorded")
        body = until(lambda: (body := told(cluster, job))["used"]["cpu_core_s"] and body)
        assert body["job"]["restarts"] == 1
        first, second = body["attempts"]
        assert (first["name"], first["state"], second["name"]) == ("1", "REQUEUED", "2")
        assert first["end"] <= second["start"] <= body["job"]["start"] + 1
        assert body["used"]["cpu_core_s"] <= 1.1 * body["job"]["elapsed_s"] + 1
        assert first["mem_peak_bytes"] > 0


def attempts(cluster, job):
    """Restarts before the attempts that were recorded."""
    found = [context.restarts for paths in recordings(cluster, job).values()
             for each in readable(paths) if (context := each.header.job)]  # fmt: skip
    return sorted(set(found))


def newest(cluster, job):
    """Up to when both nodes are recorded."""
    of_nodes = recordings(cluster, job).values()
    return min(max([each.end for each in readable(paths)], default=0.0) for paths in of_nodes)


def readable(paths):
    """Of those that are being made there may be one without a sample."""
    for path in paths:
        with contextlib.suppress(GpumonError), Recording(str(path)) as recording:
            yield recording
