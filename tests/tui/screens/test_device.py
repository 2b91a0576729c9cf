"""One device: facts in columns, each reading once, its processes."""

import pytest

from gpumon.model.sample import Sample
from gpumon.tui.lines import row_width
from gpumon.tui.parts.aligned import aligned
from gpumon.tui.theme import NAMES, style_of
from tests.tui.by_hand import NOW, device_row, one_node, process
from tests.tui.looking import Looking

GPM = {
    "sm_active_percent": 60.0,
    "tensor_active_percent": 30.0,
    "dram_active_percent": 20.0,
    "sm_occupancy_percent": 40.0,
}
LINKS = {f"{link}_{way}_bytes_per_s": 1e9 for link in ("pcie", "nvlink") for way in ("rx", "tx")}


def looking(**readings):
    store = one_node(1)
    for t in range(3):
        rows = {
            "device": {0: device_row(**GPM, **LINKS, throttle_mask=0x24, **readings)},
            "usage": {(0, 10): {"mem_bytes": 39 << 30, "sm_percent": 50}},
            "process": {10: {"cpu_percent": 90.0, "rss_bytes": 1 << 30}},
        }
        store.add("gpu01", Sample(NOW + t, t, rows, {}, [process(10, framework="torch")]))
    return Looking(store.nodes(), NOW + 2)


def test_every_reading_has_a_lane_and_no_number_stands_twice():
    text = looking().text("device", 120, 38)
    names = ("busy", "GPU memory", "SM", "tensor", "DRAM", "occupancy", "power")
    for name in (*names, "PCIe ↓", "PCIe ↑", "NVLink ↓", "NVLink ↑"):
        assert f" {name} " in text, name
    head = text.partition("busy")[0]
    assert "50 %" not in head
    assert "40 GiB" not in head
    assert "200 W" not in head


def test_all_lanes_are_there_at_80_by_24():
    text = looking().text("device", 80, 22)
    for name in ("tensor", "DRAM", "occupancy", "PCIe ↑", "NVLink ↓", "NVLink ↑", "python a.py"):
        assert name in text, name


def test_why_clocks_are_limited_is_said_in_words():
    text = looking().text("device", 120, 38)
    assert "clocks limited by power limit, heat" in text
    assert "sw_" not in text


@pytest.mark.parametrize("size", [(80, 22), (120, 38), (300, 80)])
def test_every_part_has_a_colour_in_every_theme_also_while_throttled(size):
    for row in looking().draw("device", *size).rows:
        for _, role in row:
            for palette in NAMES:
                style_of(palette, role)


def test_processes_have_the_names_of_the_table_of_processes():
    text = looking().text("device", 120, 38)
    assert "PID  user  GPU  framework  GPU memory" in text
    assert "PyTorch        39 GiB   50 %   90 %" in text


def test_facts_are_in_columns_of_equal_width():
    facts = [(f"label{n}", ("x" * n, "")) for n in range(1, 10)]
    rows = aligned(facts, 60)
    assert len({row_width(row) for row in rows if len(row) == len(rows[0])}) == 1
    assert all(row_width(row) <= 60 for row in rows)
    assert aligned([], 60) == []


def test_enter_opens_the_process_and_esc_comes_back():
    shown = looking()
    shown.show("device")
    device = shown.pane
    device.entered("job")
    device.action_open()
    assert shown.pane.name == "process"
    assert "python a.py" in shown.text("process", 120, 38)
    shown.pane.action_leave()
    assert shown.pane is device
    device.entered("process")
    device.action_leave()
    assert shown.pane.name == "job"


def test_esc_ends_where_it_began_when_2_and_enter_take_turns():
    shown = looking()
    device, process = shown.panes["device"], shown.panes["process"]
    shown.processes.action_move(0)
    shown.processes.action_open()
    shown.show("device")
    device.entered("process")
    device.action_open()
    assert shown.pane is process
    process.action_leave()
    assert shown.pane is shown.processes


def test_enter_without_a_process_and_arrows_at_an_end_say_so():
    shown = Looking(one_node(2).nodes(), NOW)
    device = shown.panes["device"]
    device.action_open()
    device.action_move(-1)
    device.action_move(5)
    device.action_move(1)
    assert shown.said == [
        "no process on this GPU to open", "this is the first GPU", "this is the last GPU",
    ]  # fmt: skip
