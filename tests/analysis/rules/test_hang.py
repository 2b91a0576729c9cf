"""GPUs that spin and go nowhere: live until now, after the run until its end."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import hang, time
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.model.sample import Process
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, START, device, evidence, node, process, track
from tests.analysis.rules.test_gpu_idle import only

A100 = {"power_limit_default_w": 400.0}
TRAINING = "python train.py"


def rank(n, count, until=None, framework="torch", **facts):
    """The process of rank n, which ends at bin `until`."""
    last = None if until is None else START + until * 10
    return process(count, mem=60 * GIB, pid=4312 + n, framework=framework, last=last,
                   **{"command": TRAINING, **facts})  # fmt: skip


def hung(worked=90, still=30, gpus=4, live=True, state="TIMEOUT", ended=(), cores=4.0, **changes):
    """`gpus` devices at 312 W, then at 71 W with full busy and nothing else. Ranks `ended` when
    that began."""
    count = worked + still
    values = {
        "busy_percent": [98] * worked + [100] * still,
        "power_w": [312] * worked + [71] * still,
        "mem_used_bytes": 60 * GIB,
        "pcie_rx_bytes_per_s": [900e6] * worked + [0] * still,
        **changes,
    }
    devices = []
    for n in range(gpus):
        gone = {"busy_percent": [98] * worked + [0] * still,
                "power_w": [312] * worked + [55] * still,
                "mem_used_bytes": [60 * GIB] * worked + [0] * still}  # fmt: skip
        own = rank(n, count, worked if n in ended else None)
        devices.append(device(count, n, facts=A100, processes=[own],
                              **(values | gone if n in ended else values)))  # fmt: skip
    job = {"read_bytes_per_s": [50e6] * worked + [0] * still, "cpu_cores_used": cores}
    made = Job(raw_id="4711", id="4711", state="RUNNING" if live else state,
               time_limit_s=count * 10.0, elapsed_s=count * 10.0)  # fmt: skip
    return evidence(count, devices, [node(count, job=job)], made, live)


# -- live ------------------------------------------------------------------------------------------


def test_four_gpus_that_stand_still():
    """312 W to 71 W, traffic stops (findings, 15.6)."""
    evaluation = evaluate(hung())
    found = evaluation.raised[0]
    assert (found.id, found.level, found.confidence) == ("suspected-hang", "critical", "high")
    assert "busy 100 % at 71 W (312 W before), no PCIe or NVLink traffic for 5 min" in found.title
    assert found.end - found.start == 300
    assert found.waste_gpu_hours == pytest.approx(4 * 300 / 3600)
    assert [each.after for each in found.actions][:2] == ["gpumon stack 4711", "scancel 4711"]


def test_what_moves_does_not_hang():
    moving = [900e6] * 120
    growing = [60 * GIB + n * (4 << 20) for n in range(120)]
    for changes in (
        {"still": 29},
        {"gpus": 1},
        {"pcie_rx_bytes_per_s": moving},
        {"power_w": 312},
        {"power_w": [312] * 90 + [71, 90] * 15},
        {"busy_percent": [98] * 90 + [100, 90] * 15},
        {"mem_used_bytes": growing},
        {"dram_active_percent": 60},  # a kernel that is bound by memory
        {"tensor_active_percent": 5},
        {"cores": 12},  # the host works
    ):
        assert hang.suspected_hang(hung(**changes)) == [], changes
    reading = hung()
    reading.nodes = [node(120, job={"read_bytes_per_s": 50e6})]
    assert hang.suspected_hang(reading) == []


def test_a_server_that_waits_for_requests_does_not_hang():
    run = hung()
    for each in run.devices:
        each.processes = [rank(each.device.index, 120, framework="vllm")]
    assert hang.suspected_hang(run) == []


def test_ranks_that_wait_for_one_that_computes_on_the_host_do_not_hang():
    """`with main_process_first(): dataset.map(...)`."""
    run = hung(ended=(0,))
    run.devices[0].processes = [rank(0, 120)]
    assert only(hang.suspected_hang(run))
    facts = Process(5000, "ada", TRAINING, "python", ppid=4312)
    run = hung(ended=(0,))
    run.devices[0].processes = [rank(0, 120)]
    run.nodes[0].processes = {5000: (facts, track([5] * 90 + [99] * 30))}
    assert hang.suspected_hang(run) == []


def test_what_never_was_seen_at_work_is_a_warning_at_most():
    (found,) = [each for each in evaluate(hung(worked=0)).raised if each.id == "suspected-hang"]
    assert (found.level, found.confidence) == ("warning", "low")
    alone = hung(worked=0)
    for each in alone.devices:  # replicas of a molecular dynamics code
        each.processes = [rank(each.device.index, 30, framework="cuda-other")]
    assert hang.suspected_hang(alone) == []
    assert hang.suspected_hang(hung(worked=0, pcie_rx_bytes_per_s=None)) == []


def test_ranks_that_wait_at_zero_fit_a_hang():
    run = hung(ended=(3,))
    run.devices[3].processes = [rank(3, 120)]
    found = only(hang.suspected_hang(run))
    assert set(found.devices) == {f"gpu01:{n}" for n in range(4)}
    assert "GPUs 0–2 busy 100 %" in found.title
    assert "when GPU 3 stopped working" in found.evidence


@pytest.mark.parametrize("name", ["busy_percent", "mem_used_bytes"])
def test_hang_needs_its_signals(name):
    assert isinstance(hang.suspected_hang(hung(**{name: None})), NotEvaluable)


def test_without_power_only_traffic_that_stopped_shows_a_hang():
    unread = hung(power_w=None, pcie_rx_bytes_per_s=None)
    assert isinstance(hang.suspected_hang(unread), NotEvaluable)
    assert hang.suspected_hang(hung(power_w=None)) == []  # not for long enough
    (found,) = evaluate(hung(still=60, power_w=None), [hang.suspected_hang]).raised
    assert (found.level, found.confidence) == ("warning", "low")
    assert "busy 100 %, no PCIe or NVLink traffic for 10 min" in found.title
    slow = [20e6] * 90 + [0] * 60  # it may as well be a phase without traffic
    assert hang.suspected_hang(hung(still=60, power_w=None, pcie_rx_bytes_per_s=slow)) == []
    moves = [900e6] * 90 + [50e6] * 60
    assert hang.suspected_hang(hung(still=60, power_w=None, pcie_rx_bytes_per_s=moves)) == []


def test_hang_without_link_counters_is_medium():
    assert only(hang.suspected_hang(hung(pcie_rx_bytes_per_s=None))).confidence == "medium"


def test_a_rank_that_works_beside_another_program_is_still_one_of_the_ranks():
    """Rank 0 evaluates, the others wait at a barrier; a TensorBoard has a context on its GPU."""
    run = hung(ended=(0,))
    run.devices[0] = device(120, 0, facts=A100, busy_percent=60, power_w=200, mem_used_bytes=GIB,
                            processes=[rank(0, 120),
                                       rank(9, 120, command="tensorboard")])  # fmt: skip
    assert hang.suspected_hang(run) == []


def test_another_program_that_works_makes_a_hang_less_certain():
    run = hung(ended=(3,))
    run.devices[3] = device(120, 3, facts=A100, busy_percent=60, power_w=200, mem_used_bytes=GIB,
                            processes=[rank(3, 120, command="python evaluate.py")])  # fmt: skip
    found = only(hang.suspected_hang(run))
    assert found.devices == ("gpu01:0", "gpu01:1", "gpu01:2")
    assert found.confidence == "low"


# -- after the run ---------------------------------------------------------------------------------


def test_a_rank_that_ended_is_named_with_what_was_lost():
    found = only(hang.suspected_hang(hung(still=720, live=False, ended=(2,))))
    assert (found.level, found.confidence) == ("critical", "high")
    assert "process 4314 on GPU 2 ended first, 15 min after the job's start" in found.evidence
    assert "8.0 GPU-h lost until the time limit" in found.evidence
    assert found.numbers["ended_pid"] == 4314
    (action,) = found.actions
    assert action.after == "dist.init_process_group(timeout=timedelta(minutes=10))"
    assert found.waste_gpu_hours == pytest.approx(8)


def test_consequences_fold_in_and_no_longer_limit_is_advised():
    evaluation = evaluate(hung(still=720, live=False, ended=(2,)))
    raised = {each.id: each for each in evaluation.raised}
    assert {"suspected-hang", "timed-out"} <= set(raised)
    assert not {"low-power-high-busy", "gpu-imbalance", "idle-tail", "gpu-mem-headroom",
                "gpus-partly-idle", "low-sm"} & set(raised)  # fmt: skip
    assert not any(each.change("--time") for each in evaluation.findings)
    assert "its GPUs seem to have hung for the last 2 h 00 min" in raised["timed-out"].title


def test_a_hang_that_a_timeout_ended_is_not_advised_one():
    run = hung(live=False, state="FAILED", still=60)
    run.log_tail = "[rank2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41)"
    found = only(hang.suspected_hang(run))
    assert "until a timeout of the program ended it" in found.evidence
    assert [each.after for each in found.actions] == [""]
    assert "which rank" in found.actions[0].text


def test_a_run_that_completed_did_not_hang():
    assert hang.suspected_hang(hung(still=40, live=False, state="COMPLETED")) == []
    assert only(hang.suspected_hang(hung(still=40, live=False, state="CANCELLED")))
    assert only(hang.suspected_hang(hung(still=40, live=False, state="FAILED")))  # the watchdog


def test_a_hang_that_passed_is_none():
    """The ranks waited for 8 min and went on."""
    passed = [100] * 48 + [98] * 60
    run = hung(still=108, live=False, busy_percent=[98] * 90 + passed,
               power_w=[312] * 90 + [71] * 48 + [312] * 60)  # fmt: skip
    assert hang.suspected_hang(run) == []
    assert "its GPUs worked until the end" in only(time.timed_out(run)).title


def test_a_gap_in_the_samples_does_not_shorten_a_hang():
    power = [312] * 90 + [71] * 100 + [None] * 20 + [71] * 100
    run = hung(still=220, live=False, power_w=power)
    found = only(hang.suspected_hang(run))
    assert found.end - found.start == pytest.approx(2200, abs=11)
