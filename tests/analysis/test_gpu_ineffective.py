"""Rules on GPUs that are busy little, or busy and do little."""

import pytest

from gpumon.analysis.catalogue import evaluate
from gpumon.analysis.findings import gpu_ineffective, hang
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.sample import Mig
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, device, evidence, node, process
from tests.analysis.test_gpu_idle import only

SLICE = Mig("GPU-parent", 3, 0, "1g.10gb")
A100 = {"power_limit_default_w": 400.0}


# -- low-busy --------------------------------------------------------------------------------------


def low_busy(busy, count=360, **values):
    return gpu_ineffective.low_busy(evidence(count, [device(count, busy_percent=busy)], **values))


@pytest.mark.parametrize(("busy", "level"), [(14.9, "warning"), (15, "info"), (24.9, "info")])
def test_low_busy_levels(busy, level):
    found = only(low_busy(busy))
    assert found.level == level
    assert "mean" in found.evidence
    assert found.waste_gpu_hours == pytest.approx((1 - busy / 100) * 348 / 360, rel=1e-3)


def test_low_busy_near_misses():
    assert low_busy(25) == []
    assert low_busy(5, count=101) == []  # 15 min begin after 2 min of warm-up
    assert only(low_busy(5, count=102))


def test_low_busy_of_a_slice_needs_sm_activity():
    slice_ = device(360, mig=SLICE, active=0.5)
    assert isinstance(gpu_ineffective.low_busy(evidence(360, [slice_])), NotEvaluable)
    slice_ = device(360, mig=SLICE, active=1, sm_active_percent=5)
    assert only(gpu_ineffective.low_busy(evidence(360, [slice_]))).level == "warning"


def test_a_server_waits_for_requests():
    serving = process(360, mem=60 * GIB, framework="vllm")
    run = evidence(360, [device(360, busy_percent=3, processes=[serving])])
    found = only(gpu_ineffective.low_busy(run))
    assert found.level == "info"
    assert "serves requests" in found.evidence


def test_an_interactive_job_may_pause():
    job = Job(raw_id="1", name="interactive")
    assert low_busy(5, job=job) == []
    assert only(low_busy([5] * 60 + [0] * 660, count=720, job=job))  # idle for more than 80 %
    assert only(low_busy(5, count=2881, job=job))  # longer than 8 h


def test_low_busy_is_not_evaluable_on_gaps():
    assert isinstance(low_busy(None), NotEvaluable)
    assert isinstance(low_busy([3] * 200 + [None] * 160), NotEvaluable)


def test_idle_and_working_devices_are_named_apart():
    devices = [device(360, 0, busy_percent=10), device(360, 1, busy_percent=0)]
    found = gpu_ineffective.low_busy(evidence(360, devices))
    assert sorted(each.devices for each in found) == [("gpu01:0",), ("gpu01:1",)]


# -- low-sm ----------------------------------------------------------------------------------------


def hopper(busy=99, sm=21, count=60, **values):
    return evidence(count, [device(count, busy_percent=busy, sm_active_percent=sm, **values)])


def test_low_sm():
    found = only(gpu_ineffective.low_sm(hopper()))
    assert found.level == "warning"
    assert found.evidence.startswith("busy 99 % but SM 21 %")
    assert only(gpu_ineffective.low_sm(hopper(sm=50))).level == "info"
    assert only(gpu_ineffective.low_sm(hopper(sm=50))).waste_gpu_hours == 0


def test_low_sm_near_misses():
    assert gpu_ineffective.low_sm(hopper(sm=80)) == []
    assert gpu_ineffective.low_sm(hopper(busy=79)) == []
    assert gpu_ineffective.low_sm(hopper(count=41)) == []


def test_decode_is_bound_by_memory():
    found = only(gpu_ineffective.low_sm(hopper(dram_active_percent=70)))
    assert (found.level, found.waste_gpu_hours) == ("info", 0)
    assert "bound by memory" in found.title


def test_low_sm_needs_gpm():
    assert isinstance(gpu_ineffective.low_sm(hopper(sm=None)), NotEvaluable)


# -- low-power-high-busy ---------------------------------------------------------------------------


def powered(power=96, busy=99, count=60, rx=50e6, **values):
    values = {"facts": A100, "mem_used_bytes": 9 * GIB, "pcie_rx_bytes_per_s": rx, **values}
    return evidence(count, [device(count, busy_percent=busy, power_w=power, **values)])


def test_low_power():
    found = only(gpu_ineffective.low_power(powered()))
    assert found.evidence.startswith("busy 99 % but 96 W of 400 W")


def test_low_power_near_misses():
    idle_w = 0.13 * 400
    assert gpu_ineffective.low_power(powered(idle_w + 0.25 * (400 - idle_w) + 1)) == []
    assert gpu_ineffective.low_power(powered(busy=89)) == []
    assert gpu_ineffective.low_power(powered(rx=0)) == []  # nothing moves: it may hang
    assert gpu_ineffective.low_power(powered(count=41)) == []


def test_low_power_counts_on_the_default_limit():
    capped = powered(150)
    capped.devices[0].last["power_limit_w"] = 200.0
    assert gpu_ineffective.low_power(capped) == []  # 28 % of the default's range


def test_low_power_leaves_hopper_to_low_sm():
    assert gpu_ineffective.low_power(powered(sm_active_percent=20)) == []


def test_low_power_without_its_signals():
    assert isinstance(gpu_ineffective.low_power(powered(None)), NotEvaluable)
    assert isinstance(gpu_ineffective.low_power(powered(facts={})), NotEvaluable)
    assert isinstance(gpu_ineffective.low_power(powered(mig=SLICE)), NotEvaluable)
    still = powered(rx=None, mem_used_bytes=None)
    assert isinstance(gpu_ineffective.low_power(still), NotEvaluable)


# -- no-tensor -------------------------------------------------------------------------------------


def learning(count=90, framework="torch", cc="9.0", **values):
    values = {"tensor_active_percent": 0, "fp32_active_percent": 41, "fp64_active_percent": 0,
              **values}  # fmt: skip
    worker = process(count, mem=GIB, framework=framework)
    return evidence(count, [device(count, cc=cc, busy_percent=95, processes=[worker], **values)])


def test_no_tensor():
    found = only(gpu_ineffective.no_tensor(learning()))
    assert "tensor 0 %, FP32 41 %" in found.title
    assert "bfloat16" in found.actions[0].after
    assert "float16)" in only(gpu_ineffective.no_tensor(learning(cc="7.0"))).actions[0].after


def test_no_tensor_near_misses():
    assert gpu_ineffective.no_tensor(learning(framework="cuda-other")) == []
    assert gpu_ineffective.no_tensor(learning(tensor_active_percent=2)) == []
    assert gpu_ineffective.no_tensor(learning(fp32_active_percent=19)) == []
    assert gpu_ineffective.no_tensor(learning(fp64_active_percent=30)) == []
    assert gpu_ineffective.no_tensor(learning(count=71)) == []
    assert isinstance(gpu_ineffective.no_tensor(learning(tensor_active_percent=None)), NotEvaluable)


def test_an_unknown_compute_capability_is_no_error():
    assert "float16)" in only(gpu_ineffective.no_tensor(learning(cc="?"))).actions[0].after


# -- suspected-hang --------------------------------------------------------------------------------


def hung(worked=90, still=30, gpus=4, live=True, **changes):
    """`gpus` devices at 312 W, then at 71 W with full busy and nothing else."""
    count = worked + still
    values = {
        "busy_percent": [98] * worked + [100] * still,
        "power_w": [312] * worked + [71] * still,
        "mem_used_bytes": 60 * GIB,
        "pcie_rx_bytes_per_s": [900e6] * worked + [0] * still,
        **changes,
    }
    devices = [device(count, n, facts=A100, **values) for n in range(gpus)]
    nodes = [node(count, job={"read_bytes_per_s": [50e6] * worked + [0] * still})]
    return evidence(count, devices, nodes, live=live)


def test_four_gpus_that_stand_still():
    """312 W to 71 W, traffic stops (findings, 15.6)."""
    verdicts = evaluate(hung())
    found = verdicts.raised[0]
    assert (found.id, found.level, found.confidence) == ("suspected-hang", "critical", "high")
    assert "100 % but 71 W (was 312 W), no PCIe/NVLink traffic" in found.title
    assert found.end - found.start == 300


def test_hang_near_misses():
    moving = [900e6] * 120
    assert hang.suspected_hang(hung(still=29)) == []
    assert hang.suspected_hang(hung(gpus=1)) == []
    assert hang.suspected_hang(hung(pcie_rx_bytes_per_s=moving)) == []
    assert hang.suspected_hang(hung(power_w=312)) == []
    assert hang.suspected_hang(hung(power_w=[312] * 90 + [71, 90] * 15)) == []
    assert hang.suspected_hang(hung(busy_percent=[98] * 90 + [100, 95] * 15)) == []
    growing = [60 * GIB + n * (4 << 20) for n in range(120)]
    assert hang.suspected_hang(hung(mem_used_bytes=growing)) == []
    reading = hung()
    reading.nodes = [node(120, job={"read_bytes_per_s": 50e6})]
    assert hang.suspected_hang(reading) == []


def test_without_a_healthy_time_before_confidence_is_low():
    assert only(hang.suspected_hang(hung(worked=0))).confidence == "low"


def test_ranks_that_wait_at_zero_fit_a_hang():
    run = hung()
    run.devices[3] = device(120, 3, facts=A100, busy_percent=[98] * 90 + [0] * 30,
                            power_w=[312] * 90 + [60] * 30, mem_used_bytes=60 * GIB)  # fmt: skip
    found = only(hang.suspected_hang(run))
    assert found.devices == ("gpu01:0", "gpu01:1", "gpu01:2")
    assert "the other 1 at 0 %" in found.evidence


@pytest.mark.parametrize("name", ["busy_percent", "power_w", "mem_used_bytes"])
def test_hang_needs_its_signals(name):
    assert isinstance(hang.suspected_hang(hung(**{name: None})), NotEvaluable)


def test_hang_without_link_counters_is_medium():
    assert only(hang.suspected_hang(hung(pcie_rx_bytes_per_s=None))).confidence == "medium"


def test_healthy_training_raises_nothing():
    """98.55 % busy, 984 W, tensor 0.324, DRAM 0.241 (marin#7344; findings, 15.6)."""
    healthy = device(
        360, facts={"power_limit_default_w": 1000.0}, busy_percent=98.55, power_w=984,
        sm_active_percent=86, tensor_active_percent=32.4, dram_active_percent=24.1,
        fp32_active_percent=8, fp64_active_percent=0, mem_used_bytes=50 * GIB,
        processes=[process(360, mem=50 * GIB, framework="jax")],
    )  # fmt: skip
    for live in (True, False):
        found = evaluate(evidence(360, [healthy], live=live)).raised
        assert [each.id for each in found if each.resource == "gpu"] == []
