"""Storage and placement: filling disks, caches at home, jobs spread thinly."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, device, evidence, node, process, tracks
from tests.analysis.rightsize.test_recommend import job, run

CHECK = BY_ID


def disk(used, free, label="tmpdir", path="/local/tmp", count=120):
    one = node(count, disks={label: tracks(count, used_bytes=used, free_bytes=free)},
               disk_paths={label: path})  # fmt: skip
    return evidence(count, nodes=[one], live=True, job=job("RUNNING"))


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


@pytest.mark.parametrize(
    ("used", "level"), [(89, None), (90, "warning"), (97, "warning"), (99.5, "critical")]
)
def test_a_full_disk(used, level):
    answer = CHECK["scratch-full"](disk(used * GIB, (100 - used) * GIB))
    assert [each.level for each in answer] == ([level] if level else [])


def test_a_full_disk_that_grows_is_critical_and_a_large_one_has_room():
    used = [(96 + n * 0.02) * GIB for n in range(120)]
    grows = disk(used, [100 * GIB - each for each in used])
    assert only("scratch-full", grows).level == "critical"
    assert CHECK["scratch-full"](disk(1900 * GIB, 120 * GIB)) == []


def test_loaders_are_spoken_of_only_where_there_are_any():
    full = disk(58 * GIB, 2 * GIB, "shm", "/dev/shm")
    assert only("scratch-full", full).actions[0].after == ""
    full.devices.append(device(120, processes=[process(120, framework="torch")]))
    full = evidence(120, full.devices, full.nodes, live=True)
    assert "num_workers" in only("scratch-full", full).actions[0].after


def test_shared_memory_is_the_jobs_memory():
    found = only("scratch-full", disk(58 * GIB, 2 * GIB, "shm", "/dev/shm"))
    assert found.title == "gpu01: /dev/shm 58 / 60 GiB (97 % full); counts as job memory"


def test_full_soon():
    used = [(40 + n * 0.35) * GIB for n in range(120)]  # 2.1 GiB a minute
    free = [(115 - 40 - n * 0.35) * GIB for n in range(120)]
    found = only("scratch-full", disk(used, free))
    assert found.harm_in_s == pytest.approx((115 - 81.65) / 0.035, rel=0.01)
    assert "+2.1 GiB/min, full in 15 min" in found.title
    slow = [(40 + n * 0.01) * GIB for n in range(120)]
    assert CHECK["scratch-full"](disk(slow, 60 * GIB)) == []
    young = [(1 + n * 0.1) * GIB for n in range(120)]  # fast, and nearly empty
    assert CHECK["scratch-full"](disk(young, [70 * GIB] * 120)) == []


def test_old_readings_say_nothing():
    assert isinstance(CHECK["scratch-full"](disk([99 * GIB] * 60 + [None] * 60, GIB)), NotEvaluable)
    assert isinstance(CHECK["scratch-full"](evidence(60)), NotEvaluable)


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [Errno 122] Disk quota exceeded: '/home/ada/.cache/huggingface/hub/x'",
        "/home/ada/.cache/huggingface/hub: No space left on device",
    ],
)
def test_a_cache_that_does_not_fit_at_home(text):
    found = only("home-cache", run(log_tail=f"epoch 1\n{text}\n"))
    assert found.actions[0].after == "export HF_HOME=/scratch/$USER/huggingface"


def test_other_full_disks_and_no_output():
    assert CHECK["home-cache"](run(log_tail="Disk quota exceeded: '/home/ada/data'")) == []
    assert CHECK["home-cache"](run(log_tail="loading ~/.cache/huggingface\nfine\n")) == []
    assert isinstance(CHECK["home-cache"](run()), NotEvaluable)


GPU_SITE = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB), NodeType("", 0, 96, 384 * GIB)))


def spread(gpus=1, nodes=4, site=GPU_SITE, mem=64 * GIB, cpus=8):
    made = job(nodes=nodes, gpus=gpus, gres=f"gpu:a100:{gpus}" if gpus else "", mem=mem, cpus=cpus)
    several = [node(360, f"gpu{n:02d}", cpus, mem) for n in range(1, nodes + 1)]
    devices = [device(360, n, each.node, busy_percent=50) for each in several for n in range(gpus)]
    return evidence(360, devices, several, made, site=site)


def test_gpus_on_more_nodes_than_needed():
    found = only("frag-nodes", spread())
    assert found.title == "4 GPUs on 4 nodes; one node has 8"
    assert found.actions[0].before == "#SBATCH --nodes=4 --gres=gpu:a100:1"
    assert found.actions[0].after == "#SBATCH --nodes=1 --gres=gpu:a100:4"


@pytest.mark.parametrize(
    "this",
    [spread(nodes=1), spread(gpus=2), spread(nodes=9), spread(mem=600 * GIB), spread(cpus=64)],
)
def test_near_misses_of_fragments(this):
    assert CHECK["frag-nodes"](this) == []


def test_without_the_sites_nodes_nothing_is_said():
    assert isinstance(CHECK["frag-nodes"](spread(site=Site())), NotEvaluable)
    assert isinstance(CHECK["frag-nodes"](evidence(60, job=Job())), NotEvaluable)
    assert isinstance(CHECK["few-cores-per-node"](spread(gpus=0, site=Site())), NotEvaluable)


def test_cores_spread_thinly():
    found = only("few-cores-per-node", spread(gpus=0))
    assert found.title == "8 cores on each of 4 nodes; one node has 96 cores"
    assert CHECK["few-cores-per-node"](spread(gpus=0, nodes=1)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, cpus=48)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, nodes=13)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, mem=90 * GIB)) == []  # memory explains it
    assert CHECK["few-cores-per-node"](spread()) == []
