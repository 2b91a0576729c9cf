"""What the store keeps of a node that sends more than any node has."""

import pytest

from gpumon.model.sample import Device, Event, Header, Sample, State
from gpumon.model.series import RETENTIONS
from gpumon.model.view import Status
from gpumon.store import Store
from gpumon.store.devices import DEVICES_KEPT
from gpumon.store.node import EVENTS_KEPT, KEYS_KEPT, UNLISTED_KEPT

T0 = 1_795_200_000.0


def header(keys, at=0.0, interval_s=1.0):
    devices = [Device(key, key, f"GPU-{key}", "H100") for key in keys]
    return Header("n0", "b", T0 + at, at, interval_s, "0.1.0", devices)


def busy(keys, value=1.0):
    return {"device": {key: {"busy_percent": value} for key in keys}}


def store_of(keys):
    store = Store()
    store.header("n0", header(keys))
    return store, store.node("n0")


def test_devices_that_no_header_lists_get_few_rows_and_a_sentence():
    store, node = store_of(range(2))
    for turn in range(3):
        keys = range(10 + turn * 8000, 10 + (turn + 1) * 8000)
        store.add("n0", Sample(T0 + turn, turn, {"device": {**busy([0, 1])["device"],
                                                            **busy(keys)["device"]}}))  # fmt: skip
    assert len(node.keys("device")) == UNLISTED_KEPT + 2
    assert node.latest("device", 0, "busy_percent", T0 + 2).fresh
    assert "rows of devices that it does not list" in node.left_out()


def test_devices_that_are_gone_make_room_for_new_ones():
    store, node = store_of([])
    for turn in range(20):
        keys = range(turn * 60, (turn + 1) * 60)
        store.header("n0", header(keys, turn))
        store.add("n0", Sample(T0 + turn, turn, busy(keys), {keys[0]: State("lost", T0)}))
        assert len(node.devices()) <= DEVICES_KEPT
        assert {each.key for each in node.devices() if not each.gone} == set(keys)
        assert node.latest("device", keys[-1], "busy_percent", T0 + turn).reading == 1
    assert len(node.keys("device")) <= DEVICES_KEPT
    assert "devices that are gone" in node.left_out()


def test_more_devices_than_are_kept_are_said_to_be():
    _, node = store_of(range(1000))
    assert len(node.devices()) == DEVICES_KEPT
    assert f"{1000 - DEVICES_KEPT} devices" in node.left_out()


def test_new_names_processes_and_events_have_their_bounds():
    store, node = store_of([0])
    for turn in range(3):
        first = turn * KEYS_KEPT
        names = range(first, first + KEYS_KEPT)
        long = {"command": "\U0001f4a3" * 4096, "user": "ada"}
        rows = {"net": {str(n): {"rx_bytes_per_s": 1} for n in names},
                "process": {n: {"cpu_percent": 1.0} for n in names}}  # fmt: skip
        events = [Event(T0, "process", pid=n, data=long) for n in names]
        events += [Event(T0, "note", text="x" * 4096) for _ in range(EVENTS_KEPT)]
        store.add("n0", Sample(T0 + turn, turn, rows, {}, events))
    assert len(node.keys("net")) == len(node.keys("process")) == KEYS_KEPT
    assert 0 < len(node.events()) <= EVENTS_KEPT
    assert sum(len(event.text) for event in node.events()) <= 1 << 20
    known = [each for each in node.processes(T0) if each.facts.command]
    assert 0 < sum(4 * len(each.facts.command) for each in known) <= 8 << 20
    for words in ("rows of new names", "processes' command lines"):
        assert words in node.left_out()


@pytest.mark.slow
def test_a_node_with_many_series_counts_for_many_nodes():
    store, node = store_of(range(DEVICES_KEPT))
    row = dict.fromkeys(("busy_percent", "mem_used_bytes", "power_w", "sm_active_percent",
                         "temperature_c", "sm_clock_mhz", "tensor_active_percent",
                         "dram_active_percent"), 1.0)  # fmt: skip
    for turn in range(2000):
        if turn % 100 == 0:
            store.add("n0", Sample(T0 + turn, turn, {"device": dict.fromkeys(range(256), row)}))
    few, _ = store_of(range(8))
    few.add("n0", Sample(T0, 0, {"device": dict.fromkeys(range(8), row)}))
    assert store._retention == RETENTIONS[1]
    assert few._retention == RETENTIONS[0]
    assert node.peak("device", 255, "busy_percent") == 1


def test_a_claimed_interval_does_not_switch_off_ages():
    for claimed in (3600.0, 86_400.0, 1e14):
        store = Store()
        store.header("n0", header([0], interval_s=min(claimed, 3600.0)))
        store.status("n0", Status("live", T0))
        for at in range(10):
            store.add("n0", Sample(T0 + at, at, busy([0])), T0 + at)
        node = store.node("n0")
        assert node.status(T0 + 9.5).state == "live"
        assert node.status(T0 + 60).state == "stale"
        assert not node.latest("device", 0, "busy_percent", T0 + 60).fresh


def test_an_honest_interval_of_a_minute_is_kept():
    store = Store()
    store.header("n0", header([0], interval_s=60.0))
    store.status("n0", Status("live", T0))
    for at in (0.3, 40, 100, 160, 220):
        store.add("n0", Sample(T0 + at, at, busy([0])), T0 + at)
        assert store.node("n0").status(T0 + at + 90).state == "live"
