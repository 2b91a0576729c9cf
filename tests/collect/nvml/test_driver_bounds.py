"""Counts and bytes that no driver should answer: bounded, said, and never taken for values."""

from __future__ import annotations

import sys

import pytest

from gpumon.collect.nvml.buffer import MAX_ENTRIES
from gpumon.collect.nvml.collector import MAX_GPUS, MAX_USAGE_ROWS
from gpumon.collect.nvml.gpu import MAX_INSTANCES
from gpumon.model.fields import FIELDS
from gpumon.model.reading import MIG, Missing
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from tests.collect.collected import Collected, collect
from tests.nvml.emulator import Emulated, Proc, Scenario

pytestmark = pytest.mark.slow

A100 = "A100-SXM4-80GB"
HUGE = 10**6
LISTS = (
    "nvmlDeviceGet*RunningProcesses*",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetSamples",
)
SPOILT = (
    "nvmlDeviceGetComputeRunning*", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetName", "nvmlDeviceGetSerial",
    "nvmlDeviceGetTemperature", "nvmlDeviceGetMigMode", "nvmlGpmMetricsGet", "nvmlDeviceGet*",
)  # fmt: skip
ABSURD = {
    "too small for ever, no count": {"fail": 7},
    "too small for ever, count 0": {"claim": 0, "claim_code": 7},
    "too small for ever, within bounds": {"claim": 500, "claim_code": 7},
    "too small for ever, huge": {"claim": HUGE, "claim_code": 7},
    "too small for ever, 2**32 - 1": {"claim": 2**32 - 1, "claim_code": 7},
    "OK, one more than fits": {"claim": MAX_ENTRIES + 1},
    "OK, huge": {"claim": HUGE},
    "OK, 2**32 - 1": {"claim": 2**32 - 1},
}


def two(**metrics):
    return Scenario().gpu("0-1", model=A100, util=60, procs=[Proc("self", 900)], **metrics)


def possible(got: Collected) -> None:
    """Every reading is in its range or has a reason."""
    for tick in got.ticks:
        for entity, rows in (("device", tick.device), ("usage", tick.usage)):
            for row in rows.values():
                for name, value in row.items():
                    field = FIELDS[entity][name]
                    assert (
                        field.text
                        or isinstance(value, Missing)
                        or (field.low <= value <= field.high)
                    ), (name, value)


@pytest.mark.parametrize("fault", ABSURD)
def test_a_list_without_end_costs_its_reading_alone(fault):
    scenario = Scenario().gpu("0-3", model=A100, util=60, procs=[Proc("self", 900)])
    for number, pattern in enumerate(LISTS, 1):
        scenario.rule(pattern, gpu=number, **ABSURD[fault])
    with Emulated(scenario) as gpus:
        got = collect(gpus, 3, everything=True)
        calls = gpus.stats()
    possible(got)
    for tick in got.ticks:
        assert tick.states == {}
        assert [tick.device[key]["busy_percent"] for key in range(4)] == [60] * 4
        assert [tick.device[key]["processes"] for key in (0, 2, 3)] == [1] * 3
        assert isinstance(tick.device[1]["processes"], Missing)
        assert {key for key, _ in tick.usage} == {0, 2, 3}
        utilization = {key: row["sm_percent"] for (key, _), row in tick.usage.items()}
        assert isinstance(utilization[2], Missing)
        assert isinstance(utilization[3], int)
        assert isinstance(tick.device[3]["busy_mean_percent"], Missing)
    assert all(one.calls < 100 for name, one in calls.items() if "Process" in name)


def test_a_list_that_is_too_long_is_told():
    scenario = two().rule("nvmlDeviceGetComputeRunning*", gpu=1, claim=HUGE, claim_code=7)
    with Emulated(scenario) as gpus:
        (note,) = collect(gpus, 2).ticks[-1].told["notes"]
    assert note == (
        "GPU 1: nvmlDeviceGetComputeRunningProcesses reports 1000000 entries, "
        f"at most {MAX_ENTRIES} are read."
    )


def test_a_list_that_grows_between_two_calls_is_read():
    procs = [Proc(100_000 + number, 10) for number in range(500)]
    scenario = Scenario(system={"reap": 0}).gpu(0, model=A100, procs=procs)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 1)
    assert got.ticks[0].device[0]["processes"] == 500
    assert len(got.ticks[0].usage) == 500


def test_more_processes_than_a_sample_holds_are_cut_and_told():
    scenario = Scenario(system={"reap": 0})
    each = 128
    scenario.gpu("0-7", model=A100, procs=[Proc(100_000 + n, 10) for n in range(each)])
    with Emulated(scenario) as gpus:
        got = collect(gpus, 1)
    assert len(got.ticks[0].usage) == 8 * each  # all that the emulator holds, below the bound
    assert got.ticks[0].told["notes"] == []
    program = (
        "from gpumon.collect.nvml import collector; collector.MAX_USAGE_ROWS = 100;"
        "from gpumon.collect.agent import Agent; agent = Agent(1.0); agent.start(30.0);"
        "agent.devices.deadline_s = 30.0; rows = agent.sample().rows;"
        "print(len(rows['usage']), [r['processes'] for r in rows['device'].values()],"
        " agent.devices.notes)"
    )
    with Emulated(scenario) as gpus:
        done = gpus.run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        f"100 {[each] * 8} ['More than 100 processes on the GPUs: not all are shown.']"
    )
    assert 8 * each < MAX_USAGE_ROWS


@pytest.mark.parametrize("claim", [HUGE, 2**32 - 1])
def test_a_driver_that_claims_a_million_devices(claim):
    scenario = two().rule("nvmlDeviceGetCount*", claim=claim)
    with Emulated(scenario) as gpus:
        command = [sys.executable, "-m", "gpumon", "collect", "--interval", "0.5", "--count", "4"]
        done = gpus.run(command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.encode().splitlines()
    assert max(map(len, lines)) < MAX_LINE_BYTES
    decoder = Decoder()
    items = [item for line in lines for item in [decoder.line(line)] if item is not None]
    header, *samples = items
    assert len(header.devices) == MAX_GPUS
    assert header.notes == [
        f"The NVIDIA driver reports {claim} devices; gpumon reads the first {MAX_GPUS}."
    ]
    used = [each.rows.get("device", {}).get(1, {}).get("mem_used_bytes") for each in samples]
    assert any(isinstance(each, (int, float)) for each in used)  # a slow machine may miss some


def test_a_gpu_that_claims_a_million_instances():
    scenario = two(mig=["1 0 3g.40gb", "2 0 3g.40gb"])
    scenario.rule("nvmlDeviceGetMaxMigDeviceCount", gpu=1, claim=HUGE)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 2)
        asked = gpus.stats()["nvmlDeviceGetMigDeviceHandleByIndex"].calls
    assert asked < 50
    assert len(got.told["devices"]) == 6
    assert got.ticks[-1].told["notes"] == [
        f"GPU 1: 1000000 MIG instances are reported, at most {MAX_INSTANCES} are read."
    ]


def test_a_metric_count_that_the_driver_writes_is_not_believed():
    scenario = Scenario().gpu(0, model="H200", gpm_sm=50).rule("nvmlGpmMetricsGet", claim=HUGE)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 4)
    assert [tick.device[0]["sm_active_percent"] for tick in got.ticks[1:]] == [50] * 3


@pytest.mark.parametrize("model", [A100, "H200"])
def test_bytes_that_mean_nothing_are_no_values_and_no_crash(model):
    scenario = Scenario().rule("nvmlDeviceGetHandle*", allow=True)
    for number, pattern in enumerate(SPOILT, 1):
        scenario.rule(pattern, gpu=number, garbage=True)
    scenario.gpu(f"0-{len(SPOILT)}", model=model, util=60, procs=[Proc("self", 900)])
    with Emulated(scenario) as gpus:
        got = collect(gpus, 4, everything=True)
    possible(got)
    assert len(got.ticks[-1].device) == len(SPOILT) + 1
    assert got.ticks[-1].device[0]["busy_percent"] == 60
    assert all(tick.states == {} for tick in got.ticks)


def test_events_without_end_do_not_keep_a_core_busy():
    scenario = two()
    for _ in range(60):
        scenario.xid(31, gpu=0, at_s=0.0)
    scenario.rule("nvmlEventSetWait*", fail=10)  # does not wait either
    with Emulated(scenario, start_s=5) as gpus:
        collect(gpus, 8, 0.5)
        calls = gpus.stats()["nvmlEventSetWait_v2"].calls
    assert calls < 200  # 20 a second and not a hundred thousand


def test_an_instance_needs_no_gpu_that_tells_of_it():
    """The list of instances comes from the environment, and is as long as that says."""
    scenario = two(mig=["1 0 3g.40gb"])
    with Emulated(scenario) as gpus:
        names = ",".join(f"MIG-{number:036}" for number in range(2000))
        got = collect(gpus, 2, environ={"CUDA_VISIBLE_DEVICES": names})
    assert len(got.told["devices"]) <= 2 * MAX_GPUS
    assert got.ticks[-1].device[0]["busy_percent"] == MIG
