"""Rules on GPUs that are busy little, or busy and do little."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import gpu_ineffective
from gpumon.model.sample import Mig
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, device, evidence, node, process
from tests.analysis.rules.test_gpu_idle import only

SLICE = Mig("GPU-parent", 3, 0, "1g.10gb")
A100 = {"power_limit_default_w": 400.0}


# -- low-sm ----------------------------------------------------------------------------------------


def ranks(count, **values):
    """Of one program on one node; of each field, a list for each rank."""
    return [device(count, n, processes=[process(count, mem=GIB, framework="torch", pid=n)],
                   **{name: each[n] for name, each in values.items()})
            for n in range(3)]  # fmt: skip


VALIDATION = ([80] * 60 + [12] * 60) * 3  # of ranks that wait for it in a barrier
WATTS = ([300] * 60 + [80] * 60) * 3


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("low_sm", {"sm_active_percent": [[85] * 360, VALIDATION, VALIDATION]}),
        ("low_power", {"power_w": [[300] * 360, WATTS, WATTS], "facts": [A100] * 3}),
    ],
)
def test_ranks_that_wait_for_one_in_phases_are_a_warning(rule, values):
    shown = ranks(360, busy_percent=[[99] * 360] * 3, **values)
    found = only(getattr(gpu_ineffective, rule)(evidence(360, shown)))
    assert (found.level, found.devices) == ("warning", ("gpu01:1", "gpu01:2"))


def test_ranks_on_several_nodes_may_wait_for_their_messages():
    shown = [device(60, node=name, busy_percent=99, sm_active_percent=30,
                    processes=[process(60, mem=GIB, framework="torch")])
             for name in ("gpu01", "gpu02")]  # fmt: skip
    nodes = [node(60, name) for name in ("gpu01", "gpu02")]
    found = only(gpu_ineffective.low_sm(evidence(60, shown, nodes)))
    assert not any(each.after for each in found.actions)


# -- low-power-high-busy ---------------------------------------------------------------------------


FAILED = Job(raw_id="4711", id="4711", state="FAILED")


def powered(power=96, busy=99, count=60, rx=50e6, job=None, **values):
    values = {"facts": A100, "mem_used_bytes": 9 * GIB, "pcie_rx_bytes_per_s": rx, **values}
    return evidence(count, [device(count, busy_percent=busy, power_w=power, **values)], job=job)


def test_low_power_without_its_signals():
    assert isinstance(gpu_ineffective.low_power(powered(None)), NotEvaluable)
    assert isinstance(gpu_ineffective.low_power(powered(facts={})), NotEvaluable)
    assert isinstance(gpu_ineffective.low_power(powered(mig=SLICE)), NotEvaluable)
    still = powered(rx=None, mem_used_bytes=None, job=FAILED)
    assert isinstance(gpu_ineffective.low_power(still), NotEvaluable)
