"""Findings on device memory whose need a probe measured: they rest on it, and say so."""

from __future__ import annotations

from tests.analysis.build import GIB, pooled
from tests.analysis.rules.test_gpu_memory import MIB, jump, of, run


def probed(devices, used, reserved=None, **figures):
    """All processes of the devices tell of such a pool."""
    for device in devices:
        for process in device.processes:
            pooled(process, used, reserved, **figures)
    return devices


def torch(used=60.4 * GIB, reserved=77.4 * GIB, figures=None, **rest):
    return probed(run(jump(reserved + 0.5 * GIB), **rest), used, reserved, **(figures or {}))


def test_a_leak_is_what_grows_in_use():
    def grows(bins, by):
        return [4 * GIB + n * by / 360 for n in range(bins)]

    long = {"seconds": 7200}
    steady = torch(10 * GIB, 40 * GIB, **long)
    assert of("gpu-leak", steady) == []
    hidden = torch(grows(720, 8 * GIB), 60 * GIB, **long)
    (found,) = of("gpu-leak", hidden)
    assert found.mem_truth == "measured"
    inside = run(jump(80000 * MIB), framework="tf", **long)  # its reservation never grows
    assert of("gpu-leak", probed(inside, grows(720, 8 * GIB)))
    torn = {"trace": lambda time: (10 + 8 * time / 3600) * GIB, **long}
    assert of("gpu-leak", run(**torn))
    fragments = run(**torn)
    reserved = [value - 0.5 * GIB for value in fragments[0].processes[0].mem_bytes.mean]
    assert of("gpu-leak", probed(fragments, 8 * GIB, reserved)) == []
