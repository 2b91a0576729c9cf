"""Hardware (findings, 3.8)."""

from gpumon.model.reading import Missing
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node
from tests.corpus.jobs import run
from tests.corpus.signals import ramp, steps, wave

_CAP, _SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


def gpu(seconds=900, live=False, **rest):
    return run(seconds, Node([Gpu(**{"busy": 94, **rest})]), live=live)


# -- throttle-thermal, throttle-power --------------------------------------------------------------


@case("throttle-thermal:warning", near="throttle-power straggler")
def too_hot():
    """Hardware thermal slowdown in a third of the ticks, 89 °C."""
    return gpu(throttle=wave(0, _HW_THERMAL | _SLOWDOWN, 30, 0.34), temperature=89)


@case("throttle-thermal:warning")
def too_hot_by_the_counter():
    """The mask was never caught, but the driver counted 20 % of the time."""
    return gpu(thermal_s=ramp(100, 280, 900))


@case(near="throttle-thermal throttle-power")
def warm_now_and_then():
    """Software thermal slowdown in 6 % of the ticks."""
    return gpu(throttle=wave(0, _SW_THERMAL, 60, 0.06))


@case("throttle-power:warning", near="throttle-thermal")
def power_brake():
    """Power brake in 4 % of the ticks, at 210 of 400 W."""
    return gpu(throttle=wave(0, _BRAKE, 100, 0.04), pf=0.5)


@case("throttle-power:warning")
def capped_early():
    """Software power cap in half of the ticks at 60 % of the limit."""
    return gpu(throttle=wave(0, _CAP, 20, 0.5), pf=0.58)


@case("throttle-power:info", near="throttle-thermal")
def capped_at_full_load():
    """At its cap with 97 % of the limit: normal."""
    return gpu(throttle=_CAP, busy=99, pf=0.98)


@case(near="throttle-power")
def capped_rarely():
    """Software power cap in 5 % of the ticks."""
    return gpu(throttle=wave(0, _CAP, 80, 0.05))


@case(near="throttle-power throttle-thermal")
def slowdown_for_a_tick():
    """One tick of hardware slowdown in 10 min."""
    return gpu(throttle=steps(0, (400, _SLOWDOWN), (402, 0)), live=True)


@case(near="throttle-power low-power-high-busy")
def site_caps_its_gpus():
    """The site enforces 250 W, and the GPU draws them: well used."""
    return gpu(throttle=_CAP, busy=99, power=248, power_limit=250)


# -- gpu-health, gpu-unreadable --------------------------------------------------------------------


@case("gpu-health:critical", devices={"gpu-health": "gpu01:1"}, near="gpus-partly-idle")
def fell_off_the_bus():
    """Xid 79 on one of two, then lost."""
    lost = Gpu(94, lost_at=600, xids=[(600, "79")])
    return run(900, Node([Gpu(94), lost], cpus=16), live=True)


@case("gpu-health:critical", near="pcie-degraded")
def double_bit_errors():
    """Two uncorrectable memory errors, 5 min into the job."""
    return gpu(health={"ecc_uncorrected": steps(1, (300, 3))})


@case("gpu-health:warning")
def remap_pending():
    """A row remap waits for a reset."""
    return gpu(health={"remap_pending": 1})


@case("gpu-health:critical")
def wants_a_reset():
    """The driver asks for a reset."""
    return gpu(health={"recovery_action": 1})


@case("gpu-health:warning")
def xid_of_the_program():
    """Xid 31: usually the program's own, and said so."""
    return gpu(xids=[(500, "31")])


@case(near="gpu-health")
def corrected_errors():
    """1200 corrected errors and three remapped rows: the hardware did its work."""
    return gpu(health={"ecc_corrected": 1200, "remapped_corrected": 3})


@case("gpu-unreadable:warning", near="gpu-health data-stale")
def refused_memory():
    """The driver refuses device memory."""
    return gpu(refused={"mem_used_bytes": Missing("no-permission")})


@case("gpu-unreadable:info")
def refused_power():
    """An old board cannot say its power."""
    return gpu(refused={"power_w": Missing("unsupported")})


@case(near="gpu-unreadable")
def refused_fan():
    """A passive board has no fan: nothing is missing."""
    return gpu(refused={"temperature_c": Missing("unsupported")})


# -- pcie-degraded ---------------------------------------------------------------------------------


@case("pcie-degraded:warning", near="gpu-health")
def narrow_link():
    """x8 of x16 under load."""
    return gpu(width=8)


@case("pcie-degraded:warning")
def slow_link():
    """Generation 1 of 4 under load."""
    return gpu(gen=1)


@case("pcie-degraded:warning")
def replays():
    """The replay counter rises."""
    return gpu(replays=ramp(5, 400, 900))


@case("idle-time:warning", near="pcie-degraded")
def link_rests():
    """Generation 1 while idle, 4 while busy, by turns of 70 s."""
    return gpu(busy=wave(0, 94, 140), seconds=1400)


@case(near="pcie-degraded gpu-idle-now low-busy")
def link_rests_at_the_end():
    """Generation 1 since the work ended 5 min ago."""
    return gpu(busy=steps(94, (900, 0)), seconds=1200, live=True)


@case(near="pcie-degraded")
def old_replays():
    """400 replays, all of them before this job."""
    return gpu(replays=400)
