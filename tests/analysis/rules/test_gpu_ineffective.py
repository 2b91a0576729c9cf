"""Rules on GPUs that are busy little, or busy and do little."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import gpu_ineffective
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.model.sample import Mig
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, device, evidence, node, process
from tests.analysis.rules.test_gpu_idle import only

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


def test_low_busy_of_a_phase_is_told_with_its_share_and_what_the_host_did():
    compiled = device(540, busy_percent=[5] * 120 + [95] * 420)
    host = node(540, cpus=16, job={"cpu_cores_used": [14] * 120 + [1] * 420})
    found = only(gpu_ineffective.low_busy(evidence(540, [compiled], [host])))
    assert "over 18 min of 1 h 30 min" in found.title
    assert "meanwhile 14.0 of 16 cores were busy" in found.evidence
    assert "keep its result" in found.actions[0].text


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
    assert "a server, waiting for requests" in found.evidence


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


def test_a_running_job_is_judged_from_its_first_work_on():
    """It prepares its data for 50 min, and trains since 17 min."""
    busy = device(400, busy_percent=[0] * 300 + [30] * 100)
    assert gpu_ineffective.low_busy(evidence(400, [busy], live=True)) == []


def test_work_too_rare_to_be_seen_again_is_no_tail():
    (found,) = gpu_ineffective.low_busy(evidence(360, [device(360, busy_percent=[3, *[0] * 359])]))
    assert found.level == "warning"
    worked = [90] * 90 + [0] * 270
    assert gpu_ineffective.low_busy(evidence(360, [device(360, busy_percent=worked)])) == []


def test_a_server_is_given_more_requests():
    server = process(360, mem=1 << 30, framework="vllm")
    busy = device(360, busy_percent=12, processes=[server])
    (found,) = gpu_ineffective.low_busy(evidence(360, [busy]))
    assert (found.level, found.actions[0].text) == (
        "info", "Serve more requests at once, or several models on this GPU."
    )  # fmt: skip


# -- low-sm ----------------------------------------------------------------------------------------


def hopper(busy=99, sm=21, count=60, **values):
    return evidence(count, [device(count, busy_percent=busy, sm_active_percent=sm, **values)])


@pytest.mark.parametrize(
    ("command", "framework", "word"),
    [
        ("python train.py", "torch", "larger batch"),
        ("gmx mdrun", "cuda-other", "simulations"),
        ("vasp_std", "cuda-other", "fewer GPUs"),
        ("python train_ppo.py", "torch", "environments"),
        ("./program", "", "Profile"),
    ],
)
def test_more_work_is_advised_by_the_kind_of_program(command, framework, word):
    held = process(60, mem=GIB, command=command, framework=framework)
    found = only(gpu_ineffective.low_sm(hopper(processes=[held])))
    assert word in found.actions[0].text
    assert ("batch" in found.actions[0].text) == (framework == "torch" and "ppo" not in command)


def test_a_gpu_that_waits_for_another_gets_no_larger_batch():
    held = process(60, mem=GIB, framework="torch")
    run = hopper(processes=[held])
    run.devices.append(device(60, 1, busy_percent=99, sm_active_percent=90, processes=[held]))
    found = only(gpu_ineffective.low_sm(run))
    assert "wait for GPU 1" in found.actions[0].text


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
    assert found.title.startswith("GPUs 1,2 waited for GPU 0: busy 99 %")
    assert found.actions[0].text.startswith("Find out what GPU 0 did in that time")


def test_sms_that_are_less_than_ineffective_are_told_of_most_of_the_run():
    part = [70] * 100 + [90] * 260
    assert gpu_ineffective.low_sm(hopper(sm=part, count=360)) == []
    assert only(gpu_ineffective.low_sm(hopper(sm=70, count=360))).level == "info"


def test_ranks_on_several_nodes_may_wait_for_their_messages():
    shown = [device(60, node=name, busy_percent=99, sm_active_percent=30,
                    processes=[process(60, mem=GIB, framework="torch")])
             for name in ("gpu01", "gpu02")]  # fmt: skip
    nodes = [node(60, name) for name in ("gpu01", "gpu02")]
    found = only(gpu_ineffective.low_sm(evidence(60, shown, nodes)))
    assert "compare the run time on one node" in found.actions[0].text
    assert not any(each.after for each in found.actions)


def test_low_sm():
    found = only(gpu_ineffective.low_sm(hopper()))
    assert found.level == "warning"
    assert found.evidence.startswith("busy 99 %, but only 21 % of the multiprocessors (SMs) active")
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


@pytest.mark.parametrize(
    ("sm", "command", "level"),
    [(90, "train", "info"), (90, "other", "warning"), (51, "train", "warning")],
)
def test_ranks_that_wait_for_a_slow_one_are_its_consequence(sm, command, level):
    shown = ((45, "train"), (46, "train"), (sm, command))
    ranks = [device(60, n, busy_percent=99, sm_active_percent=active,
                    processes=[process(60, pid=n, command=name)])
             for n, (active, name) in enumerate(shown)]  # fmt: skip
    found = evaluate(evidence(60, ranks)).raised
    assert next(each for each in found if each.id == "low-sm").level == level


def test_low_sm_needs_gpm():
    assert isinstance(gpu_ineffective.low_sm(hopper(sm=None)), NotEvaluable)


# -- low-power-high-busy ---------------------------------------------------------------------------


FAILED = Job(raw_id="4711", id="4711", state="FAILED")


def powered(power=96, busy=99, count=60, rx=50e6, job=None, **values):
    values = {"facts": A100, "mem_used_bytes": 9 * GIB, "pcie_rx_bytes_per_s": rx, **values}
    return evidence(count, [device(count, busy_percent=busy, power_w=power, **values)], job=job)


def test_low_power():
    found = only(gpu_ineffective.low_power(powered()))
    assert found.evidence.startswith("busy 99 %, but drew only 96 of 400 W")


def test_a_run_that_completed_did_not_hang():
    assert only(gpu_ineffective.low_power(powered(rx=0))).level == "warning"


def test_low_power_near_misses():
    idle_w = 0.13 * 400
    assert gpu_ineffective.low_power(powered(idle_w + 0.25 * (400 - idle_w) + 1)) == []
    assert gpu_ineffective.low_power(powered(busy=89)) == []
    assert gpu_ineffective.low_power(powered(rx=0, job=FAILED)) == []  # nothing moves: may hang
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
    still = powered(rx=None, mem_used_bytes=None, job=FAILED)
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
        assert [each.id for each in found if each.devices] == ["alloc-all-pool"]
