"""Rules on what GPUs wait for, and on GPUs of one job that do unequal work."""

import pytest

from gpumon.analysis.catalogue import evaluate
from gpumon.analysis.findings import balance, bottleneck
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.sample import Process
from gpumon.slurm.job import Job, Request, Resources
from tests.analysis.build import GIB, device, evidence, node, process, track
from tests.analysis.test_gpu_idle import only

A100 = {"power_limit_default_w": 400.0, "pcie_gen_max": 4, "pcie_width_max": 16,
        "nvlink_links": 12}  # fmt: skip
COUNT = 60


def fed(busy=38, cpus=4, cores=3.96, job=None, processes=None, name="train", **host):
    """A run of one GPU whose host does something; `job`: more of its cgroup's tracks."""
    own = {} if cores is None else {"cpu_cores_used": cores}
    nodes = [node(COUNT, cpus=cpus, job={**own, **(job or {})}, host=host,
                  processes=processes or {})]  # fmt: skip
    nodes[0].header = nodes[0].header._replace(facts={"cpus_online": 64})
    request = Request(Resources(cpus=cpus, gpus=1), cpus_per_task=cpus, gres="gpu:1")
    known = Job(raw_id="1", name=name, state="COMPLETED", requested=request)
    devices = [device(COUNT, busy_percent=busy, processes=[process(COUNT, mem=GIB)])]
    return evidence(COUNT, devices, nodes, job=known)


# -- input-bound -----------------------------------------------------------------------------------


def test_cores_are_the_limit():
    found = only(bottleneck.input_bound(fed(job={"cpu_pressure_percent": 43})))
    assert "GPU busy 38 %, 4.0 of 4 cores work, cpu.pressure 43" in found.evidence
    line, loader = found.actions
    assert (line.before, line.after) == ("#SBATCH --cpus-per-task=4", "#SBATCH --cpus-per-task=10")
    assert "num_workers=10" in loader.after


@pytest.mark.parametrize("busy", [9.9, 70.5])
def test_busy_outside_the_range_is_clear(busy):
    assert bottleneck.input_bound(fed(busy=busy)) == []


def test_input_bound_near_misses():
    assert bottleneck.input_bound(fed(cores=3.5)) == []
    assert bottleneck.input_bound(fed(cores=2, job={"cpu_pressure_percent": 19})) == []
    assert bottleneck.input_bound(fed(cores=2, iowait_percent=19)) == []


def test_pressure_alone_is_enough():
    found = only(bottleneck.input_bound(fed(cores=None, job={"cpu_pressure_percent": 20})))
    assert "wait for data (CPU cores)" in found.title


def loaders(*percents):
    return {
        5000 + n: (Process(5000 + n, "ada", "python", "python", ppid=4312), track(value, COUNT))
        for n, value in enumerate(percents)
    }


def test_loaders_that_are_all_at_their_limit():
    assert only(bottleneck.input_bound(fed(cpus=16, cores=4, processes=loaders(98, 97, 95, 99))))
    assert bottleneck.input_bound(fed(cpus=16, cores=4, processes=loaders(98, 97, 40, 99))) == []


@pytest.mark.parametrize(
    "run",
    [fed(cores=1, iowait_percent=25), fed(cores=1, job={"io_pressure_percent": 40})],
)
def test_storage_variant(run):
    found = only(bottleneck.input_bound(run))
    assert "wait for data (storage)" in found.title
    assert "TMPDIR" in found.actions[0].after


ALTERNATING = [10, 80] * 30


def test_anticorrelated_host_work_is_storage_with_low_confidence():
    cores = [2, 0.3] * 30
    found = only(bottleneck.input_bound(fed(busy=ALTERNATING, cpus=32, cores=cores)))
    assert found.confidence == "low"
    quiet = fed(busy=ALTERNATING, cpus=32, cores=cores, job={"read_bytes_per_s": 1e3})
    assert bottleneck.input_bound(quiet) == []


def test_input_bound_needs_the_host():
    assert isinstance(bottleneck.input_bound(fed(cores=None)), NotEvaluable)
    assert isinstance(bottleneck.input_bound(fed(busy=None)), NotEvaluable)


def test_servers_and_notebooks_wait_for_others():
    assert bottleneck.input_bound(fed(name="interactive")) == []
    run = fed()
    run.devices[0].processes = [process(COUNT, mem=GIB, framework="vllm")]
    assert bottleneck.input_bound(run) == []


def test_waiting_folds_low_busy():
    count = 180
    request = Request(Resources(cpus=4, gpus=1))
    run = evidence(
        count, [device(count, busy_percent=12)],
        [node(count, cpus=4, job={"cpu_cores_used": 3.9})],
        job=Job(raw_id="1", requested=request),
    )  # fmt: skip
    verdicts = evaluate(run)
    assert ("low-busy", "input-bound") in [(f.id, f.suppressed_by) for f in verdicts.suppressed]


# -- host-stall ------------------------------------------------------------------------------------


def one_thread(percent=99):
    return {4312: (Process(4312, "ada", "python", "python"), track(percent, COUNT))}


def test_one_process_at_a_core():
    found = only(bottleneck.host_stall(fed(busy=45, cpus=16, cores=1.05, processes=one_thread())))
    assert "one process at 100 % of a core, GPU busy 45 %" in found.title


def test_host_stall_near_misses():
    assert bottleneck.host_stall(fed(45, 16, 1.3, processes=one_thread())) == []
    assert bottleneck.host_stall(fed(45, 16, 1.05, processes=one_thread(94))) == []
    assert bottleneck.host_stall(fed(70, 16, 1.05, processes=one_thread())) == []
    assert bottleneck.host_stall(fed(4, 16, 1.05, processes=one_thread())) == []


def test_cpu_offload_shows_in_the_dips():
    found = only(bottleneck.host_stall(fed(ALTERNATING, 32, [30, 2] * 30, processes=one_thread(9))))
    assert "in its dips 30.0 of 32 cores work (optimizer on the CPU?)" in found.title
    assert bottleneck.input_bound(fed(ALTERNATING, 32, [30, 2] * 30)) == []


def test_host_stall_needs_the_host():
    assert isinstance(bottleneck.host_stall(fed(45, cores=None)), NotEvaluable)
    assert isinstance(bottleneck.host_stall(fed(45, 16, 1.05)), NotEvaluable)


# -- comm-bound ------------------------------------------------------------------------------------


def talking(count=90, gpus=4, busy=99, power=200, rx=20e9, **values):
    values = {"facts": A100, "pcie_rx_bytes_per_s": rx, "mem_used_bytes": GIB, **values}
    return evidence(count, [device(count, n, busy_percent=busy, power_w=power, **values)
                            for n in range(gpus)])  # fmt: skip


def test_links_at_their_peak():
    found = only(bottleneck.comm_bound(talking()))
    assert "4 GPUs busy 99 %, links at 63 % of their peak" in found.evidence
    assert only(bottleneck.comm_bound(talking(rx=None, sm_active_percent=40)))
    nvlink = talking(rx=None, nvlink_tx_bytes_per_s=120e9)
    assert "links at 40 %" in only(bottleneck.comm_bound(nvlink)).evidence


def test_comm_bound_near_misses():
    assert bottleneck.comm_bound(talking(gpus=1)) == []
    assert bottleneck.comm_bound(talking(rx=9e9)) == []
    assert bottleneck.comm_bound(talking(power=300)) == []
    assert bottleneck.comm_bound(talking(busy=89)) == []
    assert bottleneck.comm_bound(talking(count=71)) == []


def test_tensor_parallel_serving_is_chatty_by_nature():
    server = process(90, mem=GIB, framework="vllm")
    assert only(bottleneck.comm_bound(talking(processes=[server]))).level == "info"


def test_comm_bound_needs_its_signals():
    assert isinstance(bottleneck.comm_bound(talking(rx=None)), NotEvaluable)
    assert isinstance(bottleneck.comm_bound(talking(power=None)), NotEvaluable)
    assert isinstance(bottleneck.comm_bound(talking(busy=None)), NotEvaluable)


# -- gpu-imbalance ---------------------------------------------------------------------------------


def uneven(busies=(97, 96, 58, 95), count=200, **values):
    return evidence(count, [device(count, n, busy_percent=busy, **values)
                            for n, busy in enumerate(busies)])  # fmt: skip


def test_one_gpu_does_less():
    found = only(balance.imbalance(uneven()))
    assert "GPU busy 97/96/58/95 % for" in found.evidence
    assert "least GPU 2" in found.evidence


def test_imbalance_near_misses():
    assert balance.imbalance(uneven((97, 96, 75, 95))) == []
    assert balance.imbalance(uneven((97, 0))) == []  # one never worked: `gpus-partly-idle`
    assert balance.imbalance(uneven(count=71)) == []
    turns = [[97, 40] * 100, [40, 97] * 100]  # in turns is no imbalance
    assert balance.imbalance(uneven(turns)) == []


def test_power_and_memory_can_be_uneven():
    power = uneven((97, 97))
    power.devices[0].tracks["power_w"] = track(390, 200)
    power.devices[1].tracks["power_w"] = track(250, 200)
    assert "GPU power 390/250 W" in only(balance.imbalance(power)).evidence
    memory = uneven((97, 97))
    memory.devices[0].tracks["mem_used_bytes"] = track(30 * GIB, 200)
    memory.devices[1].tracks["mem_used_bytes"] = track(20 * GIB, 200)
    assert only(balance.imbalance(memory)).level == "info"
    memory.devices[1].tracks["mem_used_bytes"] = track(29.2 * GIB, 200)
    assert balance.imbalance(memory) == []


def test_imbalance_needs_busy():
    assert isinstance(balance.imbalance(uneven((97, None))), NotEvaluable)
    assert isinstance(balance.imbalance(uneven((None, None))), NotEvaluable)


# -- straggler -------------------------------------------------------------------------------------


def slow(clock=1095, busy=58, throttle=None, width=None, count=200):
    run = uneven((97, 96, 95, busy), count)
    for n, each in enumerate(run.devices):
        each.tracks["sm_clock_mhz"] = track(clock if n == 3 else 1410, count)
        each.tracks["pcie_width"] = track(width if n == 3 and width else 16, count)
    if throttle:
        run.devices[3].throttle["sw_thermal"] = track(throttle, count)
    return run


def test_a_slow_clock_is_a_straggler():
    found = only(balance.straggler(slow(throttle=0.41)))
    assert found.devices == ("gpu01:3",)
    assert "1095 MHz (others 1410), sw thermal 41 % of the time" in found.title
    assert found.actions[0].kind == "staff"
    assert found.actions[1].after == "#SBATCH --exclude=gpu01"


def test_what_hardware_holds_back_is_no_imbalance():
    assert balance.imbalance(slow()) == []
    assert only(balance.imbalance(slow(clock=1410)))
    assert balance.straggler(slow(clock=1410)) == []


def test_straggler_by_clock_or_link_alone():
    assert only(balance.straggler(slow(busy=97)))  # others wait at 97 % too
    assert "PCIe x8 (others x16)" in only(balance.straggler(slow(clock=1410, width=8))).title


def test_straggler_near_misses():
    assert balance.straggler(slow(clock=1350, busy=58)) == []
    assert balance.straggler(slow(busy=80, clock=1200)) == []
    assert balance.straggler(slow(count=71)) == []
    assert balance.straggler(uneven((97, 58))) == []


def test_a_gpu_that_does_little_is_slow_by_design():
    assert balance.straggler(slow(busy=29)) == []
    assert only(balance.straggler(slow(busy=31)))


def test_straggler_needs_busy():
    assert isinstance(balance.straggler(uneven((97, None, None))), NotEvaluable)
