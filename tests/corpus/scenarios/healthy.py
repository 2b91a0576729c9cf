"""Jobs that are well: nothing to complain of, and only information where there is some."""

from gpumon.model.reading import Missing
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import (
    A100,
    GIB,
    H100,
    H200,
    MIG_10,
    RTX3090,
    doubling,
    jax,
    llama,
    tensorflow,
    torch,
    vllm,
)
from tests.corpus.jobs import run
from tests.corpus.signals import ramp, steps, wave

_CAP = 0x4


def _well(**rest):
    return case(healthy=True, **rest)


@_well(truth="upper-bound", near="gpu-never-used low-busy gpu-mem-headroom mem-over time-over")
def training_one_gpu():
    """PyTorch, one A100, 95 % busy for 25 min."""
    return run(1500, Node([Gpu()]))


@_well(near="gpus-partly-idle gpu-imbalance straggler comm-bound")
def training_four_gpus():
    """DDP over NVLink, four A100 at 93 to 96 %."""
    gpus = [Gpu(busy=93 + n, nvlink=40e9, pf=0.8) for n in range(4)]
    return run(900, Node(gpus, cpus=32, mem=256 * GIB))


@_well(near="comm-bound straggler nodes-idle gpu-imbalance")
def training_two_nodes():
    """Two nodes with two A100 each."""
    nodes = [Node([Gpu(nvlink=20e9), Gpu(nvlink=20e9)], name, cpus=16, mem=128 * GIB)
             for name in ("gpu01", "gpu02")]  # fmt: skip
    return run(900, *nodes)


@_well(near="low-sm no-tensor low-power-high-busy comm-bound")
def training_hopper():
    """As published (marin#7344): 98.55 % busy, tensor 0.324, DRAM 0.241, near full power."""
    gpus = [Gpu(98.55, model=H100, pf=0.96, sm=88, tensor=32.4, dram=24.1, nvlink=60e9)
            for _ in range(2)]  # fmt: skip
    return run(900, Node(gpus, cpus=32, mem=256 * GIB))


@_well(finds="throttle-power:info", near="throttle-thermal")
def training_at_its_power_cap():
    """At the power cap, 98 % of the limit: well used, not sick."""
    return run(900, Node([Gpu(99, pf=0.98, throttle=_CAP)]))


@_well(finds="alloc-all-tf:info", near="low-busy", truth="unknown")
def training_tensorflow():
    """TensorFlow with its usual reservation."""
    proc = Proc(framework="tf", mem=tensorflow(A100))
    return run(900, Node([Gpu(88, [proc])]))


@_well(finds="alloc-all-jax:info", truth="unknown", near="low-busy")
def training_jax():
    """JAX with its usual three quarters."""
    return run(900, Node([Gpu(97, [Proc(framework="jax", mem=jax(A100))])]))


@_well(truth="upper-bound", near="alloc-all-tf gpu-leak")
def training_tensorflow_growing():
    """TensorFlow told to grow: a staircase of doublings, then flat, for an hour."""
    proc = Proc(framework="tf", mem=doubling(50 * GIB),
                hints={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})  # fmt: skip
    return run(3900, Node([Gpu(90, [proc])]), interval=5)


@_well(near="gpu-idle-now gpus-partly-idle low-busy")
def checkpoints():
    """Live: every 20 min a checkpoint is written for 4 min, GPUs idle; now in one of them."""
    busy = wave(0, 94, 1440, 1200 / 1440)
    gpus = [Gpu(busy), Gpu(busy)]
    return run(2820, Node(gpus, cpus=16, write=400e6), live=True, interval=2)


@_well(near="gpu-idle-now gpu-never-used input-bound")
def cpu_phase_before():
    """Live: the first 6 min prepare data on all cores, then the GPU works."""
    cores = steps(7.6, (360, 6.4))
    return run(1500, Node([Gpu(steps(0, (360, 92)))], cores=cores), live=True)


@_well(near="gpus-partly-idle idle-tail gpu-imbalance")
def evaluation_at_the_end():
    """Four GPUs train for 50 min, the last 4 min one of them evaluates."""
    gpus = [Gpu(95), *(Gpu(steps(95, (3000, 0))) for _ in range(3))]
    return run(3240, Node(gpus, cpus=32, mem=256 * GIB), interval=5)


@_well(near="suspected-hang gpu-never-used gpus-partly-idle")
def warming_up():
    """Live: two minutes of building a process group, no work yet but a process."""
    gpus = [Gpu(0, [Proc(4312 + n, torch(2 * GIB))]) for n in range(2)]
    return run(150, Node(gpus), live=True)


@_well(
    finds="alloc-all-kv:info", truth="unknown", near="low-sm input-bound host-stall low-busy",
)  # fmt: skip
def serving_bound_by_memory():
    """vLLM decodes: busy 96 %, DRAM at 72 %, few tensor cores, SM 81 %."""
    command = "vllm serve m --gpu-memory-utilization 0.9"
    proc = Proc(framework="vllm", command=command, mem=vllm(H100))
    gpu = Gpu(99, [proc], H100, sm=84, tensor=6, dram=72, pf=0.55)
    return run(1200, Node([gpu]))


@_well(finds="alloc-all-kv:info low-sm:info", truth="unknown")
def serving_small_batches():
    """vLLM with small batches: SM 40 %, but DRAM at 74 %: bound by memory, by nature."""
    proc = Proc(framework="vllm", command="vllm serve m", mem=vllm(H200, 0.92))
    gpu = Gpu(97, [proc], H200, sm=40, tensor=3, dram=74, pf=0.5)
    return run(900, Node([gpu]))


@_well(finds="low-busy:info alloc-all-kv:info", near="input-bound host-stall")
def serving_few_requests():
    """vLLM waits for requests, busy 12 % in bursts."""
    proc = Proc(framework="vllm", command="vllm serve m", mem=vllm(A100, 0.9))
    return run(1500, Node([Gpu(wave(2, 70, 70, 0.15), [proc], pf=0.4)], cores=5.0))


@_well(truth="real", near="gpu-mem-headroom low-busy gpu-mem-full")
def serving_llama():
    """llama.cpp on an RTX 3090, 19 of 24 GiB for weights and context: real need."""
    proc = Proc(framework="llama", command="llama-server -m m.gguf", mem=llama(19 * GIB))
    return run(1200, Node([Gpu(62, [proc], RTX3090)]))


@_well(near="jupyter-idle gpu-idle-now low-busy gpu-never-used")
def notebook():
    """Live: a notebook, cells of some minutes, pauses of ten; the last was run a minute ago."""
    proc = Proc(mem=torch(45 * GIB), command="python -m ipykernel_launcher -f k.json")
    busy = steps(wave(0, 90, 780, 0.25, 585), (4140, 80))
    return run(4200, Node([Gpu(busy, [proc])], cores=wave(1, 6, 780)), live=True, interval=5,
               job={"name": "sys/dashboard/sys/jupyter"})  # fmt: skip


@_well(
    finds="gpu-unreadable:info", truth={"gpu01:0/gi3": "upper-bound"},
    near="gpu-allocated-no-process",
    unknown="gpu-never-used low-busy",
)  # fmt: skip
def mig_slice():
    """A slice of an A100: no utilization at all, and a process at work."""
    gpu = Gpu(80, [Proc(mem=torch(7 * GIB))], MIG_10, mig="1g.10gb")
    return run(1200, Node([gpu]))


@_well(near="gpu-imbalance gpus-partly-idle straggler")
def pipeline_parallel():
    """Pipeline parallel: alike in busy, uneven in memory, and that is by design."""
    sizes = (72, 60, 55, 48)
    gpus = [Gpu(78, [Proc(4312 + n, torch(size * GIB))]) for n, size in enumerate(sizes)]
    return run(1200, Node(gpus, cpus=32, mem=256 * GIB))


@_well(near="gpu-imbalance")
def rank_zero_has_more():
    """Rank 0 holds 1 GiB more than the others, as is normal."""
    gpus = [Gpu(95, [Proc(4312 + n, torch((57 if n == 0 else 56) * GIB))]) for n in range(4)]
    return run(900, Node(gpus, cpus=32, mem=256 * GIB))


@_well(near="cpu-low cpu-underused serial-many-cores cpu-never-used cpu-starved mem-over")
def cpu_only():
    """A job without GPUs that uses 30 of its 32 cores."""
    return run(1800, Node(cpus=32, cores=30.0, mem=128 * GIB), interval=2)


@_well(near="cpu-low serial-many-cores cpu-never-used cpu-starved")
def serial_on_one_core():
    """One core asked for, one core used."""
    return run(1200, Node(cpus=1, cores=0.99, mem=4 * GIB), interval=2)


@_well(near="input-bound host-stall low-busy")
def half_busy_by_design():
    """Reinforcement learning: busy 55 % all the time, with three cores to spare."""
    return run(1500, Node([Gpu(wave(20, 90, 4))], cores=5.0, cpu_pressure=4))


@_well(near="host-leak mem-over mem-near-limit swap-io")
def page_cache_fills():
    """Live: reading a data set fills the page cache to the limit; what is needed stays."""
    node = Node([Gpu()], anon=50 * GIB, cache=ramp(0, 60 * GIB, 2400), read=900e6)
    return run(4200, node, live=True, interval=5)


@_well(near="low-coverage data-stale idle-tail")
def one_short_gap():
    """The node was too loaded to sample for half a minute."""
    return run(1200, Node([Gpu()], gaps=[(500, 530)]))


@_well(near="gpu-mem-full gpu-oom-suspect")
def several_processes():
    """A hyperparameter search: three processes share a GPU and take turns for an hour."""
    procs = [Proc(4312, torch(20 * GIB)), Proc(4313, torch(18 * GIB), since=60),
             *(Proc(4400 + n, torch(16 * GIB), since=90 + 600 * n, until=660 + 600 * n)
               for n in range(6))]  # fmt: skip
    return run(3600, Node([Gpu(93, procs)]), interval=5)


@_well(near="gpu-unreadable gpu-health")
def no_permission_for_links():
    """The driver refuses PCIe counters; all else is read."""
    gpu = Gpu(refused={"pcie_tx_bytes_per_s": Missing("no-permission"),
                       "pcie_rx_bytes_per_s": Missing("no-permission")})  # fmt: skip
    return run(900, Node([gpu]))


@_well(near="gpu-never-used time-over low-coverage", unknown="cpu-never-used")
def short_test():
    """A test of two minutes: too short for any verdict."""
    return run(120, Node([Gpu(40)], cores=2.0), job={"time_limit_s": 3600})
