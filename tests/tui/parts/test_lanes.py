"""Lanes: every series in a strip of its own, beside its value, over one time axis."""

from types import SimpleNamespace

import pytest

from gpumon.model.sample import Sample
from gpumon.store import NodeView
from gpumon.tui.lines import plain, row_width
from gpumon.tui.parts.lanes import Lane, lanes_view
from gpumon.tui.parts.plots import Layer
from tests.tui.by_hand import NOW, device_row, one_node
from tests.tui.looking import Looking


@pytest.fixture
def moment():
    """Busy 100 % and power 100 of 400 W, for two minutes."""
    store = one_node(1)
    for t in range(121):
        readings = device_row(busy_percent=100, power_w=100.0)
        store.add("gpu01", Sample(NOW + t, t, {"device": {0: readings}}))
    return Looking(store.nodes(), NOW + 120).moment


def lane(label, field, role="busy", high=100.0):
    layers = [Layer(field, role, "area")]
    return Lane(label, (f"{label} now", role), "device", 0, layers, high, f"{high:.0f}")


LANES = [lane("busy", "busy_percent"), lane("power", "power_w", "fourth", 400.0)]


def text(moment, width, height, lanes=LANES):
    return plain(lanes_view(moment, moment.nodes[0], lanes, width, height).rows)


def test_a_row_each_where_there_is_no_more_room(moment):
    rows = text(moment, 80, 4).splitlines()
    assert rows[0].startswith(" busy")
    assert "busy now │" in rows[0]
    assert rows[0].endswith("▇▇▇")
    assert rows[1].startswith(" power")
    assert rows[1].endswith("▃▃▃")
    assert "now" in rows[3]


def test_lanes_are_a_row_high_until_all_of_them_have_two(moment):
    for height in (5, 6):
        rows = text(moment, 80, height, LANES * 2).splitlines()
        assert [row.split("│")[0].split() for row in rows[: height - 2]] == [
            ["busy", "busy", "now"], ["power", "power", "now"],
            ["busy", "busy", "now"], ["power", "power", "now"],
        ][: height - 2]  # fmt: skip
    for height in (7, 9):
        rows = text(moment, 80, height, LANES * 2).splitlines()
        assert all("now" in row for row in rows[:4])


def test_more_room_gives_a_scale_whose_ends_lie_where_their_values_do(moment):
    rows = text(moment, 80, 10).splitlines()
    assert rows[0].split("│")[0].split() == ["busy", "100"]
    assert rows[3].split("│")[0].split() == ["0"]
    # 100 % is a dot lower than the lane, so that lanes do not touch; 100 of 400 W are a row of four
    assert rows[0].endswith("▆▆▆")
    assert rows[3].endswith("███")
    assert [row[-3:] for row in rows[4:8]][-1] == "███"
    assert rows[5].split("│")[1].strip() == ""


@pytest.mark.parametrize(("width", "columns"), [(80, 1), (120, 2), (300, 2)])
def test_time_is_written_once_under_each_column(moment, width, columns):
    rows = [row for row in text(moment, width, 12).splitlines() if "-40 s" in row]
    assert [row.count("-40 s") for row in rows] == [columns]
    axes = [row for row in text(moment, width, 12).splitlines() if "└" in row]
    assert [len(axis) for axis in axes] == [width - 1]  # no column is empty


@pytest.mark.parametrize("width", [10, 30, 80, 120, 300])
@pytest.mark.parametrize("height", [0, 2, 3, 4, 9, 40])
def test_any_size_is_kept(moment, width, height):
    for lanes in ([], LANES, LANES * 7):
        rows = lanes_view(moment, moment.nodes[0], lanes, width, height).rows
        assert len(rows) <= max(height, 0)
        assert {row_width(row) for row in rows} <= {width // 3 * 3, width // 2 * 2, width}


def test_a_click_in_a_replay_goes_to_the_time_under_it(moment):
    zones = lanes_view(moment, moment.nodes[0], LANES, 80, 10).zones
    assert zones == []
    replay = Looking(moment.nodes, moment.now, player=SimpleNamespace()).moment
    view = lanes_view(replay, replay.nodes[0], LANES, 80, 10)
    axis = plain(view.rows).splitlines()[-2]
    for x, back_s in ((axis.rindex("┬"), 0), (axis.index("┬"), 60)):
        zone = next(zone for zone in view.zones if zone.holds(x, 1))
        name, _, arguments = zone.action_at(x).partition("(")
        begin, cell_s, cell = (float(each) for each in arguments.rstrip(")").split(","))
        assert name == "seek_at"
        assert abs(begin + (cell + 0.5) * cell_s - (NOW + 120 - back_s)) <= 2 * cell_s


@pytest.mark.parametrize("height", [4, 10])
def test_what_stands_is_not_asked_again(moment, monkeypatch, height):
    before = text(moment, 80, height)
    monkeypatch.setattr(NodeView, "window", None)
    assert text(moment, 80, height) == before


@pytest.mark.parametrize("count", range(1, 16))
@pytest.mark.parametrize("width", [80, 120, 300])
def test_every_column_is_full_down_to_its_time_axis(moment, width, count):
    rows = text(moment, width, 38, (LANES * 8)[:count]).splitlines()
    columns = min(count, 1 if width == 80 else 2 if width == 120 else 3)
    starts = [column * (width // columns) for column in range(columns)]
    ends = [rows[35][start : start + width // columns].split("│")[0] for start in starts]
    assert [end.split()[-1] for end in ends] == ["0"] * columns
    assert sum("now" in part for row in rows for part in row.split("│")[:-1]) == count
