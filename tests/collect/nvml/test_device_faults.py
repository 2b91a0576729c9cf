"""The device collector when devices or the driver fail: the others go on, and it says so."""

from __future__ import annotations

import pytest

from gpumon.model.fields import FIELDS
from gpumon.model.reading import LOST, TIMEOUT, Missing
from tests.collect.collected import busy, collect
from tests.nvml.emulator import Emulated, Proc, Scenario

pytestmark = pytest.mark.slow


def four():
    return Scenario().gpu("0-3", model="A100-SXM4-80GB", util=60, mem_mib=20000)


def test_lost_at_start_keeps_its_index():
    with Emulated("lost_at_start") as gpus:
        got = collect(gpus, 3)
    devices = got.told["devices"]
    assert [(d["key"], d["index"]) for d in devices] == [(n, n) for n in range(4)]
    assert (devices[2]["uuid"], devices[2]["name"]) == ("", "")
    assert set(got.ticks[0].device[2].values()) == {LOST}
    assert set(got.ticks[0].device[2]) == set(FIELDS["device"])
    for tick in got.ticks:
        assert list(tick.states) == [2]
        assert (tick.states[2].state, tick.states[2].detail) == ("lost", "GPU is lost")
        assert tick.states[2].since == got.ticks[0].time


def test_lost_later_says_since_when_and_which_xid():
    fault = "[system]\nrule = nvmlDevice* fail 15 gpu=2\nevent = NOW 2 xid 79\n"
    with Emulated(four().gpu("*", procs=[Proc("self", 900)])) as gpus:
        got = collect(gpus, 6, 0.5, after={1: [fault]})
    values = busy(got, 2)
    assert values[:2] == [60, 60]
    assert values[2] == LOST
    assert busy(got, 3) == [60] * 6
    states = [tick.states.get(2) for tick in got.ticks]
    assert states[:2] == [None, None]
    assert all(state.state == "lost" for state in states[2:])
    assert {state.since for state in states[2:]} == {got.ticks[2].time}
    assert set(got.ticks[2].device[2]) == set(FIELDS["device"])  # nothing old remains
    assert states[-1].detail == "Xid 79"
    (event,) = [event for tick in got.ticks for event in tick.events]
    assert (event.kind, event.device, event.text) == ("xid", 2, "79")
    assert got.ticks[2].told["devices"][2]["uuid"] != ""
    assert not any(key == 2 for tick in got.ticks[2:] for key, _ in tick.usage)


def test_a_device_that_comes_back():
    with Emulated(four()) as gpus:
        fault = "[system]\nrule = nvmlDevice* fail 15 gpu=1\n"
        got = collect(gpus, 4, after={0: [fault], 1: ["[system]\n"]})
    assert busy(got, 1) == [60, LOST, 60, 60]
    assert [sorted(tick.states) for tick in got.ticks] == [[], [1], [], []]


def test_a_hung_device_holds_up_no_other():
    fault = "[system]\nrule = nvmlDevice* hang gpu=1\n"
    with Emulated(four()) as gpus:
        got = collect(gpus, 4, 1.2, after={0: [fault]}, deadline_s=1.0)
    assert busy(got, 1)[0] == 60
    for key in (0, 2, 3):
        assert busy(got, key) == [60] * 4
    assert got.ticks[1].states == {}  # one interval is not yet a hang
    state = got.ticks[-1].states[1]
    assert state.state == "hung"
    assert state.since == got.ticks[0].time
    assert state.detail.startswith("nvmlDeviceGet")
    silent = [tick.device[1] for tick in got.ticks[1:] if 1 in tick.device]
    assert len(silent) == 1  # said once, in place of the values that would stand
    assert set(silent[0].values()) == {TIMEOUT}
    assert set(silent[0]) == set(FIELDS["device"])


def test_a_hung_device_that_answers_again():
    fault = "[system]\nrule = nvmlDeviceGetUtilizationRates delay 1500000 gpu=1\n"
    with Emulated(four()) as gpus:
        got = collect(gpus, 9, 0.4, after={0: [fault], 1: ["[system]\n"]}, deadline_s=0.35)
    states = [1 in tick.states for tick in got.ticks]
    assert any(states)
    assert not states[-1]
    assert busy(got, 1)[-1] == 60


def test_a_handle_that_hangs():
    with Emulated("hang_at_start") as gpus:
        got = collect(gpus, 3, 1.2, start_s=1.0, deadline_s=1.0)
    assert [device["index"] for device in got.told["devices"]] == [0, 1, 2, 3]
    assert busy(got, 0) == [60] * 3
    assert set(got.ticks[0].device[1].values()) == {TIMEOUT}
    state = got.ticks[-1].states[1]
    assert (state.state, state.detail) == ("hung", "nvmlDeviceGetHandleByIndex")


def test_a_driver_that_does_not_even_initialise():
    with Emulated("hang_init") as gpus:
        got = collect(gpus, 2, start_s=0.5, deadline_s=None)
    assert got.told["notes"][0].startswith("The NVIDIA driver is not responding (in nvmlInit since")
    assert got.told["devices"] == []
    assert got.ticks[1].device == {}


def test_a_driver_that_initialises_late():
    with Emulated(four().rule("nvmlInit*", delay_s=1.0)) as gpus:
        got = collect(gpus, 8, 0.3, start_s=0.2)
    assert got.told["devices"] == []
    last = got.ticks[-1]
    assert len(last.told["devices"]) == 4
    assert last.told["notes"] == []
    assert last.device[3]["busy_percent"] == 60
    assert any(tick.told["changed"] for tick in got.ticks)


def test_slow_calls_answer_late_with_their_own_values():
    scenario = four()
    scenario.system["latency_us"] = 20000
    with Emulated(scenario) as gpus:
        got = collect(gpus, 8, 0.5, deadline_s=None)
    assert got.latest()[3]["busy_percent"] == 60
    assert got.latest()[3]["ecc_corrected"] == 0
    assert got.ticks[-1].states == {}


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("no_driver", "No NVIDIA driver on this node"),
        ("mismatch", "The driver was updated without a reboot"),
        ("no_devices", "No NVIDIA device is visible here."),
    ],
)
def test_no_driver_is_a_normal_state(name, note):
    with Emulated(name) as gpus:
        got = collect(gpus, 2)
    assert got.told["notes"][0].startswith(note)
    assert got.ticks[1].device == {}
    assert got.ticks[1].states == {}


def test_no_library():
    with Emulated("preset:T4x1") as gpus:
        gpus.env["LD_LIBRARY_PATH"] = ""
        got = collect(gpus)
    assert got.told["notes"] == ["No NVIDIA driver on this node."]


def test_an_unknown_error_of_one_device_is_its_own():
    with Emulated("unknown_at_start") as gpus:
        got = collect(gpus, 2)
    assert list(got.ticks[1].states) == [1]
    assert (got.ticks[1].states[1].state, got.ticks[1].states[1].detail) == (
        "error",
        "Unknown Error",
    )
    assert got.told["notes"] == []
    assert isinstance(busy(got, 0)[1], int)


def test_the_session_is_opened_again_when_every_device_is_unknown():
    # sticky: what began before the fault ended stays broken, as in a container that lost its GPUs
    fault = "[system]\nrule = nvmlDevice* fail 999 from=0 to=1e6 sticky=1\n"
    over = "[system]\nrule = nvmlDevice* fail 999 from=0 to=NOW sticky=1\n"
    with Emulated(four()) as gpus:
        got = collect(gpus, 12, 0.3, after={1: [fault], 2: [over]})
    assert busy(got, 0)[:2] == [60, 60]
    broken = got.ticks[2]
    assert {state.state for state in broken.states.values()} == {"error"}
    assert "was lost (Unknown Error)" in broken.told["notes"][0]
    last = got.ticks[-1]
    assert last.states == {}
    assert busy(got, 3)[-1] == 60
    assert "reopened" in last.told["notes"][0]
    assert [d["key"] for d in last.told["devices"]] == [0, 1, 2, 3]
    assert [d["uuid"] for d in last.told["devices"]] == [d["uuid"] for d in got.told["devices"]]


def test_flaky_calls_cost_only_their_own_reading():
    scenario = four().rule("nvmlDeviceGetHandle*", allow=True)
    scenario.rule("nvmlDeviceGet*", fail=999, probability=0.3)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 10, everything=True)
    seen = [tick.device[key] for tick in got.ticks for key in range(4)]
    values = [row["busy_percent"] for row in seen]
    assert 60 in values
    assert any(value == Missing("error") for value in values)
    assert all(value == 60 or isinstance(value, Missing) for value in values)
    assert all(set(row) == set(FIELDS["device"]) for row in seen)


@pytest.mark.parametrize("name", ["many", "mig_8x7"])
def test_fifty_six_devices(name):
    with Emulated(name) as gpus:
        got = collect(gpus, 2)
        ideal = gpus.expected()
    assert [d["uuid"] for d in got.told["devices"]] == [d["uuid"] for d in ideal]
    assert len(got.ticks[1].device) == len(ideal) >= 56
    assert got.ticks[1].states == {}
