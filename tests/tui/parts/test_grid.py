"""How devices are laid out, and what their plots and rows say."""

import math
import re

import pytest

from gpumon.model.sample import JobContext, Sample
from gpumon.tui.parts.grid import plot_columns
from tests.tui import cluster
from tests.tui.by_hand import NOW, device_row, one_node, process, shown, with_processes
from tests.tui.looking import Looking


def test_eight_devices_show_eight_plots_at_160x50():
    assert plot_columns(8, 160, 38)
    assert plot_columns(8, 80, 16) == 0
    for count in range(1, 65):
        columns = plot_columns(count, 200, 50)
        assert columns == 0 or 200 // columns >= 44


@pytest.fixture(scope="module")
def eight():
    return cluster.fill(1, seconds=70)


def job(filled, width, height):
    store, now = filled
    return Looking(store.nodes(), now).text("job", width, height).splitlines()


@pytest.mark.parametrize(("width", "height", "plots"), [(160, 48, 8), (200, 58, 8), (300, 78, 8)])
def test_plots_share_their_axes(eight, width, height, plots):
    rows = job(eight, width, height)
    columns = next(row.count("GPU ") for row in rows if "GPU 0" in row and "busy" in row)
    assert sum(len(re.findall(r"GPU \d .*?busy", row)) for row in rows) == plots
    assert sum(row.startswith("100") for row in rows) == math.ceil(plots / columns)
    (axis,) = (row for row in rows if row.count("now") > 1)
    assert axis.count("now") == columns


def test_eight_devices_are_rows_with_two_bars_where_plots_would_take_the_processes(eight):
    for width, height in ((80, 22), (120, 38)):
        rows = job(eight, width, height)
        mine = [row for row in rows if re.match(r".GPU \d ", row) and row.count("━━") >= 2]
        assert len(mine) == 8
        assert all(row.rstrip().endswith("▇") for row in mine)  # rows stay apart
        assert sum("train.py" in row for row in rows) == 8
        assert len(rows) <= height
    assert any(row.startswith("100") for row in rows)  # the plot of the selected one


def test_processes_stand_below_wherever_six_rows_are_left():
    store = with_processes(process(7, framework="torch"), usage={(0, 7): 39 << 30})
    assert "PyTorch" in shown(store, height=30)[1].split("PID")[1]
    assert "PID" not in shown(store, width=80, height=9)[1]


def test_values_of_processes_stand_still_for_some_seconds(eight):
    store, now = eight
    looking = Looking(store.nodes(), now - now % 5)
    below = looking.processes.below(looking.moment, 120, 9)
    later = looking.at(now=now - now % 5 + 4.9)
    assert later.processes.below(later.moment, 120, 9) is below
    assert later.processes.below(later.at(now=now - now % 5 + 5).moment, 120, 9) is not below


def test_lines_over_time_stand_still_until_a_cell_ends(eight, monkeypatch):
    store, now = eight
    node, asked = type(store.nodes()[0]), []
    window = node.window
    monkeypatch.setattr(node, "window", lambda *args: asked.append(args[1:4]) or window(*args))
    begin = now - (now - store.nodes()[0].clock_offset_s) % 10 + 0.01
    looking = Looking(store.nodes(), begin)
    looking.text("job", 120, 38)
    first = set(asked)
    assert {
        ("device", device.key, "busy_percent") for device in store.nodes()[0].devices()
    } <= first
    asked.clear()
    looking.at(now=begin + 4.8).text("job", 120, 38)
    assert not asked
    looking.at(now=begin + 10).text("job", 120, 38)
    assert set(asked) == first


def idle_and_hot(seconds):
    store = one_node(3, JobContext("4711", cpus=8, start=NOW))
    for second in range(seconds):
        rows = {
            0: device_row(),
            1: device_row(busy_percent=0, busy_max_percent=0),
            2: device_row(throttle_mask=0x20 if second > 30 else 0),
        }
        store.add("gpu01", Sample(NOW + second, second, {"device": rows}))
    return store


def test_a_heading_says_the_state_of_its_device():
    looking, text = shown(idle_and_hot(400), NOW + 399, 160, 48)
    assert "GPU 1  ▲ idle 6 min ▌busy 0 %" in text
    assert "GPU 2  ▲ throttled (heat) ▌busy 50 %" in text
    assert "2/3" in shown(idle_and_hot(400), NOW + 399, 120, 38)[1]
    looks = {role for row in looking.draw("job", 160, 48).rows for _, role in row}
    assert any(role.startswith("busy-slowed") for role in looks)  # the throttled stretch
    narrow = shown(idle_and_hot(400), NOW + 399, 90, 40)[1]
    assert not re.search(r"GPU 1 .*…", narrow)  # readings are whole or not there


def test_clocks_that_go_up_and_down_are_one_state():
    store = one_node(1)
    for second in range(40):
        row = {0: device_row(throttle_mask=0x20 if second % 5 == 0 and second < 30 else 4)}
        store.add("gpu01", Sample(NOW + second, second, {"device": row}))
        if 5 < second < 34:
            assert "▲ throttled (heat)" in shown(store, NOW + second)[1], second
    assert "throttled" not in shown(store, NOW + 39)[1]


def test_a_short_pause_is_not_idle():
    store = one_node(1)
    for second in range(200):
        row = {0: device_row(busy_percent=0 if second > 170 else 90)}
        rows = {"device": row, "host": {"": {"cpu_percent": 1}}}
        store.add("gpu01", Sample(NOW + second, second, rows))
    assert "GPUs ━━" in shown(store, NOW + 199)[1]
    assert "idle" not in shown(store, NOW + 199)[1]


def test_reserved_memory_is_hatched():
    store = with_processes(process(7, framework="tf"), usage={(0, 7): 39 << 30})
    for second in range(40):
        rows = {"device": {0: device_row(busy_percent=0), 1: device_row(busy_percent=0)}}
        store.add("gpu01", Sample(NOW + 1 + second, 1 + second, rows))
    text = shown(store, NOW + 40)[1]
    assert "╱╱" in text
    assert "40 + 40 reserved/160 GiB" in text
