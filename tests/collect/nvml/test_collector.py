"""The device collector over the emulated driver: every reading as the driver was told it."""

from __future__ import annotations

import pytest

from gpumon.model.fields import FIELDS
from gpumon.model.reading import LOST, MEASURING, MIG, UNSUPPORTED, Missing
from gpumon.model.sample import FACTS
from tests.collect.collected import busy, collect
from tests.nvml.emulator import Emulated, Proc, Scenario

A100, H200 = "A100-SXM4-80GB", "H200"
RATES = {f"{link}_{way}_bytes_per_s" for link in ("pcie", "nvlink") for way in ("tx", "rx")}
COUNTERS = {"energy_j", "throttle_power_s", "throttle_thermal_s"}
GPM = {name for name in FIELDS["device"] if name.endswith("_active_percent")} | {
    "sm_occupancy_percent"
}
BURST = {"busy_mean_percent", "busy_min_percent", "busy_max_percent", "busy_gap_s"}


def four(**metrics):
    return Scenario().gpu("0-3", model=A100, **{"util": 60, "mem_mib": 20000, **metrics})


def constant():
    """Two devices on which nothing moves and everything is set."""
    return Scenario().gpu(
        "0-1",
        model=H200,
        procs=[Proc("self", 38000, sm=58)],
        **{
            "util": 60, "memutil": 33, "mem_mib": 40000, "power_w": 512.25, "temp": 61,
            "mtemp": 70, "smclk": 1755, "memclk": 3201, "enc": 12, "dec": 7, "throttle": 36,
            "pstate": 2, "pcie_tx": 300_000, "pcie_rx": 900_000, "nvlink_tx": 5_000_000,
            "nvlink_rx": 6_000_000, "ecc_corr": 3, "ecc_unc": 2, "remap_corr": 1, "bar1": 128,
            "pcie_replay": 4, "gpm_sm": 52,
        },
    )  # fmt: skip


# -- values ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    ["constant", "health", "throttling", "accounting", "no_permission", "na_all",
     "gone_process", "pid_namespace", "mig_no_permission", "lost", "lost_at_start"],
)  # fmt: skip
def test_readings_are_what_the_driver_was_told(name):
    with Emulated(name, freeze_s=30) as gpus:
        got, ideal = collect(gpus), gpus.expected()
    tick = got.ticks[0]
    assert [d["index"] for d in got.told["devices"]] == [d["index"] for d in ideal]
    for device, truth in zip(got.told["devices"], ideal):
        key = device["key"]
        row = tick.device[key]
        assert set(row) == set(FIELDS["device"])  # the first tick reads every group
        lost = row["busy_percent"] == LOST
        assert lost or (device["uuid"], device["name"]) == (truth["uuid"], truth["name"])
        for field, value in truth["readings"].items():
            if field in RATES | GPM and not isinstance(value, Missing):
                assert row[field] == MEASURING  # time stands still: no rate yet
            elif field in GPM and device["facts"].get("mig_mode") == 1:
                assert row[field] == MIG
            elif field in COUNTERS | {"power_w"} and not isinstance(value, Missing):
                assert row[field] == pytest.approx(value, rel=0.03)  # power: mean of a second
            elif row["busy_percent"] == MIG and value == MIG:
                assert row[field] in (MIG, UNSUPPORTED)  # the driver says the latter of some
            elif row[field] != MIG:
                assert row[field] == value, field
        if isinstance(truth["processes"], Missing):
            assert row["processes"] == truth["processes"]
            continue
        if row["processes"] == MIG:
            continue
        assert row["processes"] == len(truth["processes"])
        for process in truth["processes"]:
            usage = tick.usage[key, process["pid"]]
            assert {field: usage[field] for field in process if field != "pid"} == {
                field: value for field, value in process.items() if field != "pid"
            }


def test_every_field_of_the_table_while_time_goes_on():
    with Emulated(constant(), start_s=20) as gpus:
        before = gpus.expected()[0]["readings"]
        got = collect(gpus, 2, 1.0, everything=True)
        truth = gpus.expected()[0]["readings"]
    for key in (0, 1):
        row = got.ticks[1].device[key]
        assert set(row) == set(FIELDS["device"])
        for field in RATES:
            assert row[field] == pytest.approx(truth[field], rel=0.2)
        for field in COUNTERS:
            assert before[field] <= row[field] <= truth[field]
        for field in set(truth) - RATES - COUNTERS - GPM:
            assert row[field] == truth[field], field
        for field in GPM:
            assert row[field] == pytest.approx(truth[field]), field
        assert [row[name] for name in sorted(BURST)] == [0, 60, 60, 60]
        assert row["processes"] == 1


def test_facts():
    with Emulated(constant()) as gpus:
        got, (truth, _) = collect(gpus), gpus.expected()
    assert (got.told["driver"], got.told["cuda"]) == ("580.159.03", "13.0")
    assert got.told["nvml"] == "13.580.159.03"
    assert got.told["notes"] == []
    device = got.told["devices"][0]
    facts = device["facts"]
    assert set(FACTS) <= set(facts)
    for name in ("mem_total_bytes", "bus_id", "serial", "minor", "sm_clock_max_mhz",
                 "mem_clock_max_mhz", "pcie_gen_max"):  # fmt: skip
        assert facts[name] == truth[name], name
    assert facts["architecture"] == "Hopper"
    assert facts["compute_capability"] == "9.0"
    assert (facts["cores"], facts["multiprocessors"]) == (16896, 132)
    assert (facts["power_limit_min_w"], facts["power_limit_default_w"]) == (200, 700)
    assert (facts["nvlink_links"], facts["gpm"], facts["power_kind"]) == (18, 1, "average")
    assert not got.ticks[0].told["changed"]


def test_place_of_a_device_from_sysfs(tmp_path):
    with Emulated(Scenario().gpu(0, model="T4", bus=0x18)) as gpus:
        folder = tmp_path / "bus/pci/devices/0000:18:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text("1\n")
        (folder / "local_cpulist").write_text("32-63,96-127\n")
        facts = collect(gpus, sysfs=str(tmp_path)).told["devices"][0]["facts"]
        assert (facts["numa_node"], facts["cpu_affinity"]) == (1, "32-63,96-127")
        (folder / "numa_node").write_text("-1\n")
        facts = collect(gpus, sysfs=str(tmp_path)).told["devices"][0]["facts"]
        assert facts["numa_node"] == UNSUPPORTED


def test_groups_come_at_their_periods():
    with Emulated("preset:A100-SXM4-80GBx1") as gpus:
        got = collect(gpus, 61, 1.0, hurry=True)
    ticks = {
        field: [n for n, tick in enumerate(got.ticks) if field in tick.device[0]]
        for field in ("busy_percent", "sm_clock_mhz", "temperature_c", "pstate", "ecc_corrected")
    }
    assert ticks["busy_percent"] == list(range(61))
    assert ticks["sm_clock_mhz"] == list(range(0, 61, 2))
    assert ticks["temperature_c"] == list(range(0, 61, 5))
    assert len(ticks["pstate"]) == 7
    assert len(ticks["ecc_corrected"]) == 2


def test_calls_stay_within_the_budget():
    scenario = Scenario().gpu("0-7", model=A100, util=70, procs=[Proc("self", 900)] * 2)
    with Emulated(scenario) as gpus:
        collect(gpus, 1, 1.0)
        first = gpus.stats()
        collect(gpus, 61, 1.0, hurry=True)
        calls = gpus.stats()
    assert "nvmlDeviceGetPcieThroughput" not in calls
    made = sum(one.calls for name, one in calls.items() if name != "nvmlEventSetWait_v2")
    start = sum(one.calls for name, one in first.items() if name != "nvmlEventSetWait_v2")
    per_s = (made - 2 * start) / 60 + 1  # the wait for Xids: one a second
    assert per_s <= 62  # the budget is half of what nvitop makes: 69


def test_power_without_field_values_is_the_plain_reading():
    scenario = four(power_w=212.5).rule("nvmlDeviceGetFieldValues", fail=13)
    with Emulated(scenario) as gpus:
        got = collect(gpus)
    row = got.ticks[0].device[0]
    assert row["power_w"] == 212.5
    assert row["energy_j"] >= 0
    assert got.told["devices"][0]["facts"]["power_kind"] == "instant"  # GA100
    assert row["mem_temperature_c"] == UNSUPPORTED


@pytest.mark.parametrize("driver", ["418", "470", "510"])
def test_older_drivers(driver):
    scenario = Scenario(driver=f"{driver}.1").gpu(
        0, model=A100, util=55, mem_mib=21000, reserved_mib=904, procs=[Proc("self", 20500)]
    )
    with Emulated(scenario, driver=driver) as gpus:
        got, (truth,) = collect(gpus), gpus.expected()
    row = got.ticks[0].device[0]
    assert row["busy_percent"] == 55
    assert row["processes"] == 1
    (usage,) = got.ticks[0].usage.values()
    assert usage["mem_bytes"] == 20500 * 2**20
    reserved = row["mem_reserved_bytes"]
    if isinstance(reserved, Missing):  # counted into what is used
        assert (reserved.reason, reserved.detail) == ("unsupported", f"driver {driver}.1")
        assert row["mem_used_bytes"] == (21000 + 904) * 2**20
    else:
        assert row["mem_used_bytes"] == truth["readings"]["mem_used_bytes"] == 21000 * 2**20


def test_nothing_supported_is_no_number_at_all():
    with Emulated("na_all") as gpus:
        got = collect(gpus, 3)
    for value in got.latest()[0].values():
        assert isinstance(value, Missing)
        assert value in (UNSUPPORTED, MIG)
    assert got.ticks[-1].states == {}


def test_implausible_numbers_are_none():
    with Emulated("implausible", start_s=3) as gpus:
        rows = collect(gpus).ticks[0].device
    for name in ("busy_percent", "mem_controller_percent", "mem_used_bytes", "temperature_c",
                 "power_w", "sm_clock_mhz", "encoder_percent"):  # fmt: skip
        assert rows[0][name] == Missing("implausible"), name
        assert isinstance(rows[2][name], (int, float)), name


def test_text_is_made_safe():
    with Emulated("hostile_text") as gpus:
        names = [device["name"] for device in collect(gpus).told["devices"]]
    for name in names:
        assert name.isprintable()
        assert "\x1b" not in name


# -- processes ---------------------------------------------------------------------------------
def test_processes_of_all_types():
    procs = [
        Proc("self", 1000, sm=40),
        Proc("ppid", "na", type="G"),
        Proc(1, 300, type="M", sm=0),
        Proc("self", 1000, sm=40, type="G"),
    ]
    with Emulated(four().gpu(0, procs=procs)) as gpus:
        got = collect(gpus)
    usage = {pid: row for (key, pid), row in got.ticks[0].usage.items() if key == 0}
    assert got.ticks[0].device[0]["processes"] == len(usage) == 3
    assert usage[1]["type"] == "M"
    assert usage[1]["sm_percent"] == 0  # the driver answered, and did not name it
    both = next(row for row in usage.values() if row["type"] == "C+G")
    assert (both["mem_bytes"], both["sm_percent"]) == (1000 * 2**20, 40)
    assert both["mem_peak_bytes"] == UNSUPPORTED
    hidden = next(row for row in usage.values() if row["type"] == "G")
    assert hidden["mem_bytes"] == UNSUPPORTED


def test_process_utilization_that_is_not_supported_is_not_zero():
    scenario = four().gpu(0, procs=[Proc("self", 1000)])
    with Emulated(scenario.rule("nvmlDeviceGetProcessUtilization", fail=3)) as gpus:
        (usage,) = collect(gpus).ticks[0].usage.values()
    assert usage["sm_percent"] == UNSUPPORTED
    assert usage["mem_bytes"] == 1000 * 2**20


def test_more_processes_than_the_first_buffer_holds():
    procs = [Proc(pid, 10, sm=1) for pid in range(1, 301)]
    with Emulated(Scenario(system={"reap": 0}).gpu(0, model=A100, procs=procs)) as gpus:
        got = collect(gpus)
    assert got.ticks[0].device[0]["processes"] == 300
    assert {pid for _, pid in got.ticks[0].usage} == set(range(1, 301))
    assert all(row["sm_percent"] == 1 for row in got.ticks[0].usage.values())


def test_accounting_knows_the_peak():
    with Emulated("accounting", start_s=10) as gpus:
        (usage,) = collect(gpus, everything=True).ticks[0].usage.values()
    assert usage["mem_peak_bytes"] == 30000 * 2**20


# -- MIG ---------------------------------------------------------------------------------------
def split(**metrics):
    procs = [Proc("self", 30000, gi=2, ci=0)]
    return Scenario().gpu(
        0, model=A100, mig=["2 0 3g.40gb", "3 0 2g.20gb"], procs=procs, temp=47, **metrics
    )


def test_mig_instances_are_devices_of_their_own():
    with Emulated(split()) as gpus:
        got, (_, truth, _) = collect(gpus), gpus.expected()
    parent, first, second = got.told["devices"]
    assert [device["label"] for device in (parent, first, second)] == ["0", "0/gi2", "0/gi3"]
    assert first["mig"] == truth["mig"]
    assert first["mig"]["parent"] == parent["uuid"]
    assert first["facts"]["mem_total_bytes"] == truth["mem_total_bytes"]
    assert first["facts"]["multiprocessors"] == 42
    rows, usage = got.ticks[0].device, got.ticks[0].usage
    for name in ("busy_percent", "mem_controller_percent", "busy_mean_percent"):
        assert rows[0][name] == rows[1][name] == MIG
    assert rows[0]["temperature_c"] == 47
    for name in ("temperature_c", "power_w", "sm_clock_mhz", "ecc_corrected", "power_limit_w"):
        assert (rows[1][name].reason, rows[1][name].detail) == ("mig", "whole GPU")
    assert rows[1]["mem_used_bytes"] == truth["readings"]["mem_used_bytes"]
    ((key, _),) = usage  # once, and on the instance
    assert key == first["key"]
    assert usage[next(iter(usage))]["sm_percent"] == MIG
    assert [rows[key]["processes"] for key in range(3)] == [MIG, 1, 0]


def test_an_instance_that_only_its_uuid_opens():
    refuse = "nvmlDeviceGetMigDeviceHandleByIndex"
    with Emulated(split().rule(refuse, fail=4)) as gpus:
        uuid = gpus.expected()[1]["uuid"]
        got = collect(gpus, environ={"CUDA_VISIBLE_DEVICES": uuid})
        without = collect(gpus, environ={})
    parent, instance = got.told["devices"]
    assert instance["uuid"] == uuid
    assert instance["mig"]["parent"] == parent["uuid"]
    assert got.ticks[0].device[instance["key"]]["processes"] == 1
    assert len(without.told["devices"]) == 1


def test_mig_switched_on_while_running():
    scenario = Scenario().gpu(0, model=A100, util=50).gpu(1, model=A100, util=50)
    with Emulated(scenario) as gpus:
        on = "[gpu 0]\nmig = 2 0 3g.40gb\n"
        got = collect(gpus, 3, everything=True, after={0: [on]})
    assert [device["label"] for device in got.told["devices"]] == ["0", "1"]
    assert busy(got, 0) == [50, MIG, MIG]
    assert busy(got, 1) == [50, 50, 50]
    assert got.ticks[1].told["changed"]
    devices = got.ticks[1].told["devices"]
    assert [(d["key"], d["label"]) for d in devices] == [(0, "0"), (2, "0/gi2"), (1, "1")]
    assert got.ticks[2].device[2]["mem_used_bytes"] > 0
