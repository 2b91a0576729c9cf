"""Disks that fill, caches at home, jobs spread thinly (findings, 3.9)."""

from dataclasses import replace

from gpumon.site import NodeType
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node
from tests.corpus.hardware import GIB
from tests.corpus.jobs import run, uva
from tests.corpus.signals import ramp

_TMP = "/tmp/job4711"


def disk(used, total=200 * GIB, path=_TMP, label="tmpdir", seconds=900, **rest):
    node = Node([Gpu()], disks={label: (path, total, used)}, **rest)
    return run(seconds, node, live=True)


# -- scratch-full ----------------------------------------------------------------------------------


@case("scratch-full:warning", near="mem-near-limit")
def nearly_full():
    """$TMPDIR 93 % full."""
    return disk(186 * GIB)


@case("scratch-full:critical")
def full():
    """$TMPDIR 98 % full, and filling."""
    return disk(ramp(192 * GIB, 196 * GIB, 900))


@case("scratch-full:warning")
def full_soon():
    """Half full, and full in 25 min at 4 GiB a minute."""
    return disk(ramp(40 * GIB, 100 * GIB, 900))


@case("scratch-full:warning", near="mem-near-limit")
def shared_memory_full():
    """/dev/shm 58 of 60 GiB: counts as the job's memory."""
    return disk(56 * GIB, 60 * GIB, "/dev/shm", "shm", mem=128 * GIB, anon=50 * GIB, shmem=56 * GIB)


@case(near="scratch-full")
def well_filled():
    """$TMPDIR 86 % full, and standing."""
    return disk(172 * GIB)


@case(near="scratch-full")
def fills_slowly():
    """Half full, and full in 3 h."""
    return disk(ramp(92 * GIB, 100 * GIB, 900))


@case(near="scratch-full")
def fills_from_empty():
    """5 % full after copying the data there, at a pace that would fill it in 25 min."""
    return disk(ramp(0, 12 * GIB, 900), 32 * GIB * 2)


@case(unknown="scratch-full")
def no_disk_read():
    """No file system was read."""
    return run(300, Node([Gpu()]), live=True)


# -- home-cache ------------------------------------------------------------------------------------


def says(text, seconds=120):
    return run(seconds, Node([Gpu()]), log_tail=text)


@case("home-cache:info")
def quota_of_home():
    """A model does not fit into ~/.cache/huggingface."""
    return says("OSError: [Errno 122] Disk quota exceeded: '/home/ada/.cache/huggingface/hub/m'")


@case(near="home-cache")
def another_disk_is_full():
    """The quota that is exceeded is of a project directory."""
    return says("OSError: [Errno 122] Disk quota exceeded: '/project/lab/out.pt'")


@case(near="home-cache")
def cache_named_without_a_fault():
    """The cache is named, nothing is full."""
    return says("loading weights from /home/ada/.cache/huggingface/hub/m")


@case(unknown="home-cache")
def output_not_readable():
    """No output to read."""
    return says("")


# -- frag-nodes, few-cores-per-node ----------------------------------------------------------------


def spread(count=4, gpus=1, mem=64 * GIB, cpus=8):
    nodes = [
        Node([Gpu(nvlink=0) for _ in range(gpus)], f"gpu{n + 1:02}", cpus=cpus, mem=mem)
        for n in range(count)
    ]
    return run(420, *nodes, interval=5)


@case("frag-nodes:info", near="nodes-idle straggler")
def one_gpu_on_each_node():
    """4 GPUs on 4 nodes; one node has 8."""
    return spread()


@case(near="frag-nodes")
def two_gpus_on_each_node():
    """4 GPUs on 2 nodes."""
    return spread(2, 2)


@case(near="frag-nodes")
def cores_of_several_nodes():
    """4 GPUs on 4 nodes, each with 40 cores: no node has so many."""
    return spread(cpus=40)


@case(near="frag-nodes")
def all_on_one_node():
    """4 GPUs on one node."""
    return spread(1, 4)


def thin(count=4, cpus=8, mem=32 * GIB):
    site = replace(uva(), nodes=(*uva().nodes, NodeType("", 0, 96, 384 * 10**9)),
                   mem_default_per_core_bytes={})  # fmt: skip
    nodes = [Node(name=f"c{n + 1:02}", cpus=cpus, cores=0.9 * cpus, mem=mem) for n in range(count)]
    return run(420, *nodes, interval=5, site=site)


@case("few-cores-per-node:info", near="cpu-low frag-nodes")
def few_cores_on_each_node():
    """4 nodes with 8 cores each; one node has 96."""
    return thin()


@case(near="few-cores-per-node")
def half_of_each_node():
    """2 nodes with 48 cores each."""
    return thin(2, 48)


@case(near="few-cores-per-node")
def memory_explains_it():
    """4 nodes with 8 cores and 128 GiB each: no node has so much memory."""
    return thin(mem=128 * GIB)
