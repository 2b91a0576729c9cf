"""GPUs that are busy and do little (findings, 3.2)."""

from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import A100_PCIE, GIB, H100, MIB, torch
from tests.corpus.jobs import run
from tests.corpus.signals import steps, wave

# -- low-busy --------------------------------------------------------------------------------------


@case("low-busy:warning", near="gpu-never-used gpus-partly-idle idle-tail")
def busy_eleven_percent():
    """Busy 11 % in the mean, in bursts."""
    return run(1500, Node([Gpu(wave(3, 43, 35, 0.2))]))


@case("low-busy:info")
def busy_twenty_percent():
    """Busy 20 %."""
    return run(1500, Node([Gpu(wave(8, 48, 35, 0.3))]))


@case(near="low-busy")
def busy_twenty_eight_percent():
    """Busy 28 %."""
    return run(1500, Node([Gpu(wave(8, 48, 35, 0.5))]))


@case(near="low-busy")
def busy_ten_percent_for_twelve_minutes():
    """Busy 10 % for 12 min after the warm-up: too short."""
    return run(850, Node([Gpu(10)]))


@case(near="low-busy jupyter-idle")
def interactive_at_ten_percent():
    """An interactive job of an hour at 10 %, never idle for long."""
    return run(3600, Node([Gpu(wave(2, 34, 60, 0.25))]), interval=5, job={"name": "interactive"})


# -- low-sm ----------------------------------------------------------------------------------------


@case("low-sm:warning")
def few_sms():
    """Busy 99 %, SM 21 %: kernels of a few blocks."""
    return run(900, Node([Gpu(99, model=H100, sm=21, pf=0.3)]))


@case("low-sm:info")
def some_sms():
    """Busy 99 %, SM 70 %."""
    return run(900, Node([Gpu(99, model=H100, sm=70, pf=0.5)]))


@case(near="low-sm")
def enough_sms():
    """Busy 99 %, SM 84 %."""
    return run(900, Node([Gpu(99, model=H100, sm=86, pf=0.5)]))


@case(near="low-sm low-busy")
def few_sms_when_not_busy():
    """Busy 72 %, SM 40 %: waiting, not small kernels."""
    return run(900, Node([Gpu(72, model=H100, sm=55)]))


@case(near="low-sm")
def few_sms_for_a_moment():
    """SM 50 % for 40 s of 20 min, else 93 %."""
    return run(1200, Node([Gpu(99, model=H100, sm=steps(94, (600, 50), (640, 94)))]))


@case(unknown="low-sm no-tensor")
def no_gpm():
    """An A100 has no SM activity: nobody can tell."""
    return run(900, Node([Gpu(99)]))


# -- low-power-high-busy ---------------------------------------------------------------------------


@case("low-power-high-busy:warning", near="suspected-hang", unknown="low-sm")
def little_power():
    """Busy 99 %, 96 W of 400 W, traffic moving, live."""
    return run(900, Node([Gpu(99, power=96)]), live=True)


@case(near="low-power-high-busy")
def some_power():
    """Busy 99 % at a power fraction of 0.3."""
    return run(900, Node([Gpu(99, pf=0.31)]))


@case(near="low-power-high-busy")
def little_power_when_not_busy():
    """Busy 80 % at 100 W."""
    return run(900, Node([Gpu(80, power=100)]))


@case(near="low-power-high-busy")
def power_told_better_by_gpm():
    """A Hopper at 150 W of 700, but SM 88 %: its SMs say more than its power."""
    return run(900, Node([Gpu(99, model=H100, power=150, sm=90)]))


# -- no-tensor -------------------------------------------------------------------------------------


@case("no-tensor:info")
def fp32_training():
    """PyTorch in FP32: tensor 0 %, FP32 41 %."""
    return run(1200, Node([Gpu(98, model=H100, tensor=0.2, fp32=41)]))


@case(near="no-tensor")
def some_tensor():
    """Tensor 3 %, FP32 41 %."""
    return run(1200, Node([Gpu(98, model=H100, tensor=3.2, fp32=41)]))


@case(near="no-tensor")
def fp64_code():
    """FP64 at 10 %: no candidate for mixed precision."""
    return run(1200, Node([Gpu(98, model=H100, tensor=0.2, fp32=41, fp64=10)]))


@case(near="no-tensor")
def not_learning():
    """A molecular dynamics code in FP32."""
    proc = Proc(framework="cuda-other", mem=torch(56 * GIB), command="gmx mdrun", name="gmx")
    return run(1200, Node([Gpu(98, [proc], H100, tensor=0, fp32=41)]))


@case(near="no-tensor")
def fp32_for_eight_minutes():
    """FP32 alone for 8 of 20 min."""
    tensor = steps(30, (400, 0.2), (880, 30))
    return run(1200, Node([Gpu(98, model=H100, tensor=tensor, fp32=41)]))


# -- suspected-hang --------------------------------------------------------------------------------


def stuck(count=4, hang_s=360.0, before_s=900.0, pcie=2e9, watts=71.0, mem=None, **rest):
    """Healthy, then every GPU at 100 % and standing still."""
    gpus = [
        Gpu(100, [Proc(4312 + n, mem or torch(60 * GIB))], A100_PCIE, noise=0.0,
            power=steps(wave(250, 240, 30), (before_s, watts)), pcie=steps(2e9, (before_s, pcie)))
        for n in range(count)
    ]  # fmt: skip
    node = Node(gpus, cpus=32, mem=256 * GIB, read=steps(20e6, (before_s, 0)),
                write=steps(1e6, (before_s, 0)), cores=steps(25, (before_s, count)))  # fmt: skip
    return run(before_s + hang_s, node, live=True, **rest)


@case("suspected-hang:critical", devices={"suspected-hang": "gpu01:0,1,2,3"},
      near="low-power-high-busy comm-bound")  # fmt: skip
def hang():
    """Four GPUs at 100 %, 245 W before and 71 W for 6 min, no traffic."""
    return stuck(pcie=0.0)


@case("suspected-hang:critical")
def hang_with_one_rank_gone():
    """Three spin, the process of the fourth ended."""
    made = stuck(pcie=0.0)
    gpu = made.nodes[0].gpus[3]
    gpu.listed()[0].until = 900
    gpu.busy, gpu.power = steps(100, (900, 0)), steps(245, (900, 52))
    return made


@case("low-power-high-busy:warning", near="suspected-hang")
def hang_not_yet():
    """The same for 4 min 30 s."""
    return stuck(pcie=0.0, hang_s=270)


@case("low-power-high-busy:warning", near="suspected-hang")
def slow_exchange():
    """The same, but PCIe still carries a fifth of its traffic."""
    return stuck(pcie=0.4e9)


@case(near="suspected-hang")
def one_long_kernel_on_one_gpu():
    """One GPU alone: a long kernel looks alike."""
    return stuck(count=1, pcie=0.0, watts=150)


@case("low-power-high-busy:warning", near="suspected-hang")
def memory_moves():
    """The same figures, but memory grows by 20 MiB a minute: it works."""
    return stuck(pcie=0.0, mem=lambda second: 50 * GIB + second * MIB / 3)
