"""What GPUs wait for, and GPUs that do unequal work (findings, 3.3)."""

from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import A100_PCIE, GIB, H100, torch, vllm
from tests.corpus.jobs import run
from tests.corpus.signals import steps, wave

_SW_THERMAL = 0x20

# -- input-bound -----------------------------------------------------------------------------------


@case("input-bound:warning", near="host-stall low-busy cpu-starved")
def few_cores_for_the_loader():
    """Busy 38 %, 4 of 4 cores at 99 %, pressure 43; four threads."""
    node = Node([Gpu(38)], cpus=4, cores=3.96, cpu_pressure=43)
    return run(1200, node)


@case("input-bound:warning", near="host-stall")
def every_loader_at_its_core():
    """Busy 45 %, 4 of 8 cores work: each of two loaders is at 97 % of its own."""
    main = Proc(4312, torch(56 * GIB), cpu=180)
    loaders = [Proc(4400 + n, None, "", ppid=4312, cpu=97) for n in range(2)]
    return run(1200, Node([Gpu(45, [main])], cores=4.4, cpu_pressure=6, procs=loaders))


@case("cpu-environments:info", near="input-bound host-stall low-busy")
def environments_on_the_cores():
    """PPO: eight environments use all eight cores, GPU busy 45 %."""
    main = Proc(4312, torch(56 * GIB), command="python ppo.py", cpu=30)
    envs = [Proc(4400 + n, None, "", command="python ppo.py", ppid=4312, cpu=96) for n in range(8)]
    return run(1200, Node([Gpu(45, [main])], cores=7.9, cpu_pressure=6, procs=envs))


@case(near="cpu-environments input-bound")
def environments_that_keep_up():
    """The same, and the GPU is busy 85 %."""
    main = Proc(4312, torch(56 * GIB), command="python ppo.py", cpu=30)
    envs = [Proc(4400 + n, None, "", command="python ppo.py", ppid=4312, cpu=96) for n in range(8)]
    return run(1200, Node([Gpu(85, [main])], cores=7.9, cpu_pressure=6, procs=envs))


@case("input-bound:warning", near="swap-io host-stall")
def slow_storage():
    """Busy 30 %, half of the cores, processes wait for I/O 31 % of the time."""
    return run(1200, Node([Gpu(30)], cores=4.4, io_pressure=31, iowait=8))


@case("input-bound:info")
def fetches_and_computes_in_turns():
    """Half a minute of loading with three cores, half a minute of computing with one, of four."""
    busy, cores = wave(4, 92, 60), wave(3.4, 1.2, 60)
    return run(1200, Node([Gpu(busy)], cpus=4, cores=cores, read=300e6))


@case(near="input-bound low-busy")
def cores_busy_but_gpu_too():
    """All cores at 98 %, and the GPU busy 80 %: they keep up."""
    return run(1200, Node([Gpu(80)], cpus=4, cores=3.9, cpu_pressure=15))


@case(near="input-bound host-stall low-busy")
def half_busy_with_cores_to_spare():
    """Busy 50 %, 70 % of the cores, no pressure."""
    return run(1200, Node([Gpu(50)], cores=5.6, cpu_pressure=5, io_pressure=12))


@case(near="input-bound")
def input_bound_for_three_minutes():
    """The cores are the limit for 3 min while the validation set is read."""
    busy, cores = steps(90, (600, 40), (780, 90)), steps(5.0, (600, 7.9), (780, 5.0))
    return run(1500, Node([Gpu(busy)], cores=cores))


@case("alloc-all-kv:info", near="input-bound host-stall low-busy")
def server_on_few_cores():
    """vLLM at 40 % busy with all of its 4 cores: it serves requests."""
    proc = Proc(framework="vllm", command="vllm serve m", mem=vllm(A100_PCIE))
    gpu = Gpu(40, [proc], A100_PCIE)
    return run(1200, Node([gpu], cpus=4, cores=3.9, cpu_pressure=10))


# -- host-stall ------------------------------------------------------------------------------------


@case("host-stall:warning serial-many-cores:info", near="input-bound cpu-underused low-busy")
def one_thread_feeds_the_gpu():
    """One thread at 100 %, 1.0 of 8 cores, busy 45 %."""
    return run(1200, Node([Gpu(45, [Proc(mem=torch(56 * GIB), cpu=99)])], cores=1.0))


@case("host-stall:warning", near="input-bound")
def optimizer_on_the_cpu():
    """DeepSpeed's offload: GPUs dip every 48 s while 30 of 32 cores work."""
    busy, cores = wave(3, 95, 48, 0.6), wave(29.5, 17.0, 48, 0.6)
    return run(1500, Node([Gpu(busy) for _ in range(2)], cpus=32, cores=cores, mem=128 * GIB,
                          cpu_pressure=3, read=0))  # fmt: skip


@case("serial-many-cores:info", near="host-stall input-bound")
def one_thread_spins_beside_a_busy_gpu():
    """One thread at 100 %, but the GPU is busy 88 %: it waits for the GPU."""
    return run(1200, Node([Gpu(88, [Proc(mem=torch(56 * GIB), cpu=99)])], cores=1.0))


@case(near="host-stall input-bound")
def one_thread_for_four_minutes():
    """A preprocessing of 4 min on one thread between two epochs."""
    busy, cores = steps(92, (600, 30), (840, 92)), steps(6.0, (600, 1.0), (840, 6.0))
    procs = [Proc(mem=torch(56 * GIB), cpu=steps(300, (600, 99), (840, 300)))]
    return run(1500, Node([Gpu(busy, procs)], cores=cores))


# -- comm-bound ------------------------------------------------------------------------------------


def exchanging(count=4, busy=99.0, pf=0.4, pcie=15e9, seconds=960, **rest):
    gpus = [Gpu(busy, model=A100_PCIE, pf=pf, pcie=pcie) for _ in range(count)]
    return run(seconds, Node(gpus, cpus=8 * count, mem=64 * count * GIB), **rest)


@case("comm-bound:warning", near="low-power-high-busy gpu-imbalance",
      devices={"comm-bound": "gpu01:0,1,2,3"})  # fmt: skip
def all_reduce_over_pcie():
    """DDP on four A100 PCIe: 99 % busy, PCIe at 48 % of its peak, power fraction 0.4."""
    return exchanging()


@case("comm-bound:warning")
def all_reduce_over_nvlink():
    """Hopper: 98 % busy, power fraction 0.4, NVLink at a third of its peak; hence SM 42 %."""
    gpus = [Gpu(98, model=H100, sm=43, pf=0.4, nvlink=160e9) for _ in range(2)]
    return run(960, Node(gpus, cpus=16))


@case("low-sm:warning", near="comm-bound")
def small_kernels_without_communication():
    """The same without traffic: each GPU has small kernels of its own."""
    gpus = [Gpu(98, model=H100, sm=43, pf=0.4) for _ in range(2)]
    return run(960, Node(gpus, cpus=16))


@case(near="comm-bound")
def some_exchange():
    """PCIe at 19 % of its peak."""
    return exchanging(pcie=6e9)


@case(near="comm-bound")
def exchange_at_good_power():
    """PCIe at 48 %, but a power fraction of 0.62: it computes while it talks."""
    return exchanging(pf=0.62)


@case(near="comm-bound low-busy")
def exchange_when_not_busy():
    """Busy 82 %."""
    return exchanging(busy=82)


@case(near="comm-bound")
def one_gpu_cannot_exchange():
    """One GPU with much PCIe traffic: loading."""
    return exchanging(count=1)


@case(near="comm-bound")
def exchange_for_eight_minutes():
    """The same for 8 min after the warm-up."""
    return exchanging(seconds=610)


# -- gpu-imbalance ---------------------------------------------------------------------------------


def uneven(*busy, **rest):
    gpus = [Gpu(value) for value in busy]
    return run(900, Node(gpus, cpus=8 * len(gpus), mem=64 * len(gpus) * GIB), **rest)


@case("gpu-imbalance:warning", near="straggler gpus-partly-idle")
def one_gpu_does_less():
    """97/96/58/95 % busy, clocks alike."""
    return uneven(97, 96, 58, 95)


@case("gpu-imbalance:warning", near="straggler comm-bound")
def one_gpu_takes_less_power():
    """Alike in busy, one of three at 55 % of the others' power."""
    gpus = [Gpu(96, pf=fraction) for fraction in (0.8, 0.8, 0.35)]
    return run(900, Node(gpus, cpus=24, mem=192 * GIB))


@case(near="gpu-imbalance straggler")
def slightly_uneven():
    """95/93/74/94 %: 24 % of the mean."""
    return uneven(95, 93, 74, 94)


@case(near="gpu-imbalance")
def uneven_in_turns():
    """Each of two GPUs leads for 2 min: the sign does not persist."""
    gpus = [Gpu(wave(60, 95, 240)), Gpu(wave(60, 95, 240, shift_s=120))]
    return run(1200, Node(gpus, cpus=16))


@case(near="gpu-imbalance")
def uneven_for_eight_minutes():
    """One GPU at half of the other for 4 of 15 min."""
    gpus = [Gpu(95), Gpu(steps(95, (300, 50), (540, 95)))]
    return run(900, Node(gpus, cpus=16))


# -- straggler -------------------------------------------------------------------------------------


@case("straggler:warning", folds="throttle-thermal", near="gpu-imbalance",
      devices={"straggler": "gpu01:3"})  # fmt: skip
def one_gpu_is_hot():
    """One of four at 1095 MHz (others 1410), software thermal slowdown in 41 % of the time."""
    hot = Gpu(97, clock=1095, throttle=wave(0, _SW_THERMAL, 10, 0.41), temperature=89)
    return run(900, Node([*(Gpu(97) for _ in range(3)), hot], cpus=32, mem=256 * GIB))


@case("straggler:warning", folds="throttle-thermal low-power-high-busy",
      devices={"straggler": "gpu01:3"})  # fmt: skip
def one_gpu_crawls():
    """One of four at 560 MHz (others 1410) by heat: it is always busy, and draws 95 of 400 W."""
    hot = Gpu(99, clock=560, throttle=wave(0, _SW_THERMAL, 10, 0.9), temperature=92, power=95)
    return run(1200, Node([*(Gpu(97) for _ in range(3)), hot], cpus=32, mem=256 * GIB))


@case("straggler:warning", near="gpu-imbalance throttle-thermal", devices={"straggler": "gpu02:0"})
def one_gpu_is_slow_by_its_link():
    """The link of one of four (two nodes) is x8, and it is 30 % less busy."""
    narrow = Gpu(66, width=8, gen=4, facts={"pcie_width_max": 8})
    nodes = [Node([Gpu(96), Gpu(96)], "gpu01", cpus=16),
             Node([narrow, Gpu(96)], "gpu02", cpus=16)]  # fmt: skip
    return run(900, *nodes)


@case("gpu-imbalance:warning", near="straggler")
def less_busy_without_a_cause():
    """One of three at 62 %, nothing wrong with it: the program."""
    return uneven(96, 95, 62)


@case(near="straggler gpu-imbalance")
def slightly_lower_clock():
    """One of four at 1230 MHz (13 % less), as busy as the others."""
    gpus = [*(Gpu(97) for _ in range(3)), Gpu(97, clock=1230)]
    return run(900, Node(gpus, cpus=32, mem=256 * GIB))


@case(near="straggler")
def one_gpu_rests():
    """One of three finishes its share after half of the time; its clock rests with it."""
    gpus = [Gpu(95), Gpu(95), Gpu(steps(95, (1380, 0)))]
    return run(1800, Node(gpus, cpus=24, mem=192 * GIB))
