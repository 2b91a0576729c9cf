"""The first row, and names of devices in one line."""

from gpumon import demos
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.tui.lines import plain
from gpumon.tui.parts.phrasing import devices_named
from gpumon.tui.parts.title import title_row
from tests.tui import cluster


def test_a_replay_says_how_long_the_recording_is(tmp_path, looking):
    cluster.record(tmp_path, 2, devices=1, seconds=121)
    player = ReplaySource(tracks_of([str(path) for path in tmp_path.iterdir()]))
    looking.at(player=player, now=player.origin + 30)
    assert "replay 30 s of 2 min ·" in plain([title_row(looking.moment, 120)])
    assert "replay 30 s ·" in plain([title_row(looking.moment, 80)])
    player = ReplaySource(tracks_of([demos.path("finetune")]))  # plain lines
    looking.at(player=player, now=player.origin + 30)
    assert "replay 30 s of 14 min ·" in plain([title_row(looking.moment, 120)])


def test_a_seek_shows_how_far_it_has_come(looking):
    player = ReplaySource(tracks_of([demos.path("finetune")]))
    looking.at(player=player, now=player.origin + 30)
    player.seeking, player.progress = True, 0.45
    assert "seeking 45 % (Esc stops) 30 s of 14 min ·" in plain([title_row(looking.moment, 120)])


def test_parts_of_the_title_are_whole_or_not_there(looking):
    for width in range(60, 140):
        assert "…" not in plain([title_row(looking.moment, width)])
    narrow = plain([title_row(looking.moment, 90)])
    assert "4 × H100 80GB HBM3" in narrow  # before the user and the partition
    assert "gpu-h100" not in narrow


def test_devices_of_one_node_share_its_name():
    assert devices_named(["GPU 2", "GPU 3"]) == "GPU 2, 3"
    assert devices_named(["gpu02:2", "gpu02:3", "gpu03:0"]) == "gpu02:2, 3, gpu03:0"
    assert devices_named(["gpu02:0", "gpu03:0", "gpu03:1"]) == "gpu02:0, gpu03:0, 1"
    assert devices_named([f"GPU {n}" for n in range(5)]) == "5 GPUs"
