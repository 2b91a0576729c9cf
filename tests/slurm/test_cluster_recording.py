"""`gpumon record` in jobs of a real Slurm: whatever ends the job, the recording is whole."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from screenshots.terminal_png import Session
from tests.e2e.program import GPUMON, ROOT, environment, gpumon
from tests.slurm import jobs
from tests.slurm.recorded import begun, ended, events, go_on, header, paths, samples, waits
from tests.support.waiting import until

MIB = 1 << 20


def end_of(path: Path) -> str:
    """Why a whole recording ended, as it says itself."""
    assert until(lambda: ended(path), f"the end of {path}")
    return events(path, "end")[-1].text


# -- the example of the README ------------------------------------------------------------------
def readme_script() -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (script,) = [block for block in blocks if "#SBATCH" in block]
    return script


@pytest.mark.terminal
def test_the_readmes_batch_script_replays_on_another_machine(cluster, tmp_path):
    cluster.write("train.py", f"import os, sys\nprint('epoch 1', flush=True)\n{SPIN}sys.exit(5)\n")
    job = cluster.submit(readme_script(), "-J", "train")
    (path,) = begun(cluster, job)
    until(lambda: len(samples(path)) > 3, "its rates are known")
    go_on(cluster, job)
    cluster.wait(job, "FAILED")
    assert cluster.accounted(job, "ExitCode")["ExitCode"] == "5:0"

    (path,) = paths(cluster, job)
    trained, where, gpu, host, error = cluster.log(job).splitlines()
    assert "Exited with exit code 5" in error
    assert trained == "epoch 1"
    assert re.fullmatch(
        rf"gpumon: recorded \d+ s(?: of \d+ s)? on node\d \(\d+ % covered, .*\) in {path}", where
    )
    assert re.fullmatch(r"gpumon: GPU \d busy 60 % mem .* GiB · GPU \d busy 60 % mem .* GiB", gpu)
    assert re.match(r"gpumon: job CPU \d\.\d cores.* of 1 · memory peak [\d.]+ / ", host)

    elsewhere = tmp_path / path.name
    shutil.copy(path, elsewhere)
    table = gpumon("export", str(elsewhere), "--to", "csv", "-o", str(tmp_path / "tables"))
    assert table.returncode == 0, table.stderr
    with Session([*GPUMON, "replay", str(elsewhere)], (120, 40), environment()) as screen:
        shown = until(lambda: (text := screen.text()) and "busy" in text and text)
        for said in (job, "train", "A100", "alice"):
            assert said in shown


SPIN = "while not os.path.exists('go-on-' + os.environ['SLURM_JOB_ID']): pass\n"


# -- several nodes --------------------------------------------------------------------------------
def test_one_line_with_srun_records_every_node(cluster):
    script = waits("srun gpumon record --", "exit $SLURM_NODEID")
    job = cluster.submit(script, "-N2", "--ntasks-per-node=2", "--gres=gpu:1", "-p", "gpu")
    begun(cluster, job, 2)
    go_on(cluster, job)
    cluster.wait(job, "FAILED")
    nodes = cluster.nodes(job)
    files = paths(cluster, job)
    assert [header(path).node for path in files] == nodes
    for path in files:
        assert end_of(path) == f"the command ended: exit {nodes.index(header(path).node)}"
        assert header(path).job.step == "0"
        (device,) = header(path).devices
        assert device.uuid.startswith(cluster.uuid(header(path).node, 0)[:12])
    assert cluster.log(job).count("gpumon: recorded") == len(nodes)


def test_tasks_of_an_array_and_tasks_with_gpus_of_their_own_have_their_own_files(cluster):
    array = cluster.submit(waits("gpumon record --"), "-a", "3,5", "--mem=300M")
    script = waits("srun gpumon record --")
    wide = cluster.submit(script, "-N1", "-n2", "--gpus-per-task=1", "-p", "gpu")
    for task in (f"{array}_3", f"{array}_5"):
        (path,) = begun(cluster, task)
        go_on(cluster, task)
        cluster.wait(task, "COMPLETED")
        assert end_of(path) == "the command ended: exit 0"
        assert header(path).job.array == task
    begun(cluster, wide, 2)
    go_on(cluster, wide)
    cluster.wait(wide, "COMPLETED")
    found = [device.uuid for path in paths(cluster, wide) for device in header(path).devices]
    assert len(found) == len(set(found)) == 2


# -- what it says of the job ----------------------------------------------------------------------
def test_header_and_readings_agree_with_slurm_and_marks_come_from_inside(cluster):
    options = ["-J", "the | name", "-c2", "--mem=400M", "-p", "gpu", "--gres=gpu:3"]
    script = f"gpumon record --interval 1 &\n{jobs.hold(120, 600)}"
    with cluster.job(script, *options) as job:
        (path,) = begun(cluster, job)
        show = cluster.show(job)
        (node,) = cluster.nodes(job)
        found = header(path)
        context = found.job
        assert (found.node, context.nodes, context.node_count) == (node, show["NodeList"], 1)
        assert (context.id, context.name, context.partition, context.user, context.account) == (
            show["JobId"], "the | name", show["Partition"], "alice", show["Account"],
        )  # fmt: skip
        assert (context.cpus, context.gpus) == (int(show["NumCPUs"]), 3)
        assert (context.mem_limit_bytes, context.cluster) == (400 * MIB, "gpumon")
        numbers = gpu_indices(show["GRES"])
        assert [(device.uuid, device.cuda_index) for device in found.devices] == [
            (cluster.uuid(node, minor), cuda) for cuda, minor in enumerate(numbers)
        ]

        until(lambda: cgroup_stat(cluster, node, job)["total_rss"] > 120 * MIB)
        mark = ["srun", f"--jobid={job}", "--overlap", "--mem=0", "gpumon", "mark", "here"]
        cluster.run("login", mark)
        (event,) = until(lambda: events(path, "mark"), "the mark in the file")
        assert event.text == "here"
        held, then = cgroup_stat(cluster, node, job), time.time()
        # What was sampled before may be from before the script held its memory.
        later = until(lambda: [sample for sample in samples(path) if sample.time > then])
        row = later[0].rows["job"][""]
        with_us = row["mem_anon_bytes"] + row["mem_gpumon_bytes"]
        assert abs(with_us - held["total_rss"]) < 16 * MIB
        assert row["mem_limit_bytes"] == held["hierarchical_memory_limit"] == 400 * MIB
        assert row["processes"] >= 3  # the script, the recorder, what holds the memory


def gpu_indices(gres: str) -> list[int]:
    """gpu:a100:3(IDX:0-1,3) -> 0 1 3."""
    found: list[int] = []
    for part in re.findall(r"IDX:([\d,-]+)", gres)[0].split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_a_mark_comes_from_another_node(cluster):
    """Which sees the recorder only in the shared home."""
    step = "srun --overlap -N1 -n1 -w node1 --mem=100M gpumon record --interval 1"
    with cluster.job(f"{step} &\n{jobs.dabble(600)}", "-w", "node1,node2", "--mem=300M") as job:
        (path,) = begun(cluster, job)
        assert path.name.startswith("node1-")
        there = ["srun", f"--jobid={job}", "-N1", "-n1", "-w", "node2", "--overlap", "--mem=0"]
        began = time.time()
        cluster.run("login", [*there, "gpumon", "mark", "from afar"])
        (event,) = until(lambda: events(path, "mark"), "the mark in the file")
        assert event.text == "from afar"
        assert began - 1 < event.time < time.time() + 1


def cgroup_stat(cluster, node: str, job: str) -> dict[str, int]:
    """memory.stat of the job's own cgroup, as root reads it on the node."""
    path = f"/sys/fs/cgroup/memory/slurm_{node}/uid_{cluster.uid()}/job_{job}/memory.stat"
    lines = cluster.run(node, ["cat", path], "root").stdout.splitlines()
    return {key: int(value) for key, value in map(str.split, lines)}
