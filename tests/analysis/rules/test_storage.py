"""Storage and placement: filling disks, caches at home, jobs spread thinly."""

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.site import NodeType, Site
from tests.analysis.build import GIB, device, evidence, node, tracks
from tests.analysis.rightsize.test_recommend import job

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


def test_shared_memory_is_the_jobs_memory():
    found = only("scratch-full", disk(58 * GIB, 2 * GIB, "shm", "/dev/shm"))
    assert found.title == "gpu01: /dev/shm 58 / 60 GiB (97 % full); counts as job memory"


def test_old_readings_say_nothing():
    assert isinstance(CHECK["scratch-full"](disk([99 * GIB] * 60 + [None] * 60, GIB)), NotEvaluable)
    assert isinstance(CHECK["scratch-full"](evidence(60)), NotEvaluable)


GPU_SITE = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB), NodeType("", 0, 96, 384 * GIB)))


def spread(gpus=1, nodes=4, site=GPU_SITE, mem=64 * GIB, cpus=8):
    made = job(nodes=nodes, gpus=gpus, gres=f"gpu:a100:{gpus}" if gpus else "", mem=mem, cpus=cpus)
    several = [node(360, f"gpu{n:02d}", cpus, mem) for n in range(1, nodes + 1)]
    devices = [device(360, n, each.node, busy_percent=50) for each in several for n in range(gpus)]
    return evidence(360, devices, several, made, site=site)


def test_cores_spread_thinly():
    assert only("few-cores-per-node", spread(gpus=0))
    assert CHECK["few-cores-per-node"](spread(gpus=0, nodes=1)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, cpus=48)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, nodes=13)) == []
    assert CHECK["few-cores-per-node"](spread(gpus=0, mem=90 * GIB)) == []  # memory explains it
    assert CHECK["few-cores-per-node"](spread()) == []
