"""GPUs that spin and go nowhere: live until now, after the run until its end."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import hang
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.model.sample import Event, Process
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


def test_what_moves_does_not_hang():
    moving = [900e6] * 120
    growing = [60 * GIB + n * (4 << 20) for n in range(120)]
    swinging = [60 * GIB, 59 * GIB] * 60
    for changes in (
        {"still": 29},
        {"gpus": 1},
        {"pcie_rx_bytes_per_s": moving},
        {"power_w": 312},
        {"power_w": [312] * 90 + [71, 90] * 15},
        {"busy_percent": [98] * 90 + [100, 90] * 15},
        {"mem_used_bytes": growing},
        {"mem_used_bytes": swinging},
        {"dram_active_percent": 60},  # a kernel that is bound by memory
        {"tensor_active_percent": 5},
        {"cores": 12},  # the host works
    ):
        assert hang.suspected_hang(hung(**changes)) == [], changes
    reading = hung()
    reading.nodes = [node(120, job={"read_bytes_per_s": 50e6})]
    assert hang.suspected_hang(reading) == []


def test_memory_that_moved_once_asks_for_twice_the_time():
    """As where another process on the GPU ended."""
    for still, found in ((40, 0), (60, 1)):
        memory = [60 * GIB] * (90 + still - 10) + [59 * GIB] * 10
        assert len(hang.suspected_hang(hung(still=still, mem_used_bytes=memory))) == found


@pytest.mark.parametrize(("since", "began"), [(90, True), (20, False)])
def test_the_peers_of_a_lost_gpu_hang(since, began):
    reading, count = hung(still=40, live=False), 130
    gone = {"busy_percent": [98] * since + [None] * (count - since),
            "power_w": [312] * since + [None] * (count - since),
            "mem_used_bytes": [60 * GIB] * since + [None] * (count - since)}  # fmt: skip
    lost = device(count, 0, facts=A100, processes=[rank(0, count)], **gone)
    lost.states = [Event(START + 10 * since, "state", 0, text="lost")]
    reading.devices[0] = lost
    found = only(hang.suspected_hang(reading))
    assert (found.level, found.devices) == ("critical", ("gpu01:1", "gpu01:2", "gpu01:3"))
    assert ("when GPU 0 was lost" in found.evidence) == began
    evaluation = evaluate(reading)
    assert "low-power-high-busy" not in {each.id for each in evaluation.raised}
    lost_s = 3 * 400 + 10 * (count - since)
    assert evaluation.waste_gpu_hours == pytest.approx(lost_s / 3600, rel=0.1)


def test_a_few_minutes_of_work_before_show_what_it_is():
    for worked, found in ((10, 0), (20, 1)):
        assert len(hang.suspected_hang(hung(worked=worked, still=60))) == found


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


def test_what_never_was_seen_at_work_may_need_no_more_power():
    assert hang.suspected_hang(hung(worked=0)) == []
    assert hang.suspected_hang(hung(worked=0, pcie_rx_bytes_per_s=None)) == []


def test_without_power_only_traffic_that_stopped_shows_a_hang():
    unread = hung(power_w=None, pcie_rx_bytes_per_s=None)
    assert isinstance(hang.suspected_hang(unread), NotEvaluable)
    assert hang.suspected_hang(hung(power_w=None)) == []  # not for long enough
    (found,) = evaluate(hung(still=60, power_w=None), [hang.suspected_hang]).raised
    assert (found.level, found.confidence) == ("warning", "low")
    slow = [20e6] * 90 + [0] * 60  # it may as well be a phase without traffic
    assert hang.suspected_hang(hung(still=60, power_w=None, pcie_rx_bytes_per_s=slow)) == []
    moves = [900e6] * 90 + [50e6] * 60
    assert hang.suspected_hang(hung(still=60, power_w=None, pcie_rx_bytes_per_s=moves)) == []


def test_another_program_that_works_makes_a_hang_less_certain():
    run = hung(ended=(3,))
    run.devices[3] = device(120, 3, facts=A100, busy_percent=60, power_w=200, mem_used_bytes=GIB,
                            processes=[rank(3, 120, command="python evaluate.py")])  # fmt: skip
    found = only(hang.suspected_hang(run))
    assert found.devices == ("gpu01:0", "gpu01:1", "gpu01:2")
    assert found.confidence == "low"


# -- after the run ---------------------------------------------------------------------------------


def test_consequences_fold_in_and_no_longer_limit_is_advised():
    evaluation = evaluate(hung(still=720, live=False, ended=(2,)))
    raised = {each.id: each for each in evaluation.raised}
    assert {"suspected-hang", "timed-out"} <= set(raised)
    assert not {"low-power-high-busy", "gpu-imbalance", "idle-tail", "gpu-mem-headroom",
                "gpus-partly-idle", "low-sm"} & set(raised)  # fmt: skip
    assert not any(each.change("--time") for each in evaluation.findings)


def test_a_hang_that_a_timeout_ended_is_not_advised_one():
    run = hung(live=False, state="FAILED", still=60)
    run.log_tail = "[rank2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41)"
    found = only(hang.suspected_hang(run))
    assert [each.after for each in found.actions] == [""]
