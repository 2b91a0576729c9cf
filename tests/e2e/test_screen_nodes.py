"""Recordings of many nodes, played on the dashboard in a real terminal."""

import re

import pytest

from screenshots.terminal_png import Session
from tests.e2e.program import GPUMON, environment
from tests.support.waiting import HANGS_S
from tests.tui import cluster

pytestmark = pytest.mark.terminal


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Twelve nodes of eight devices, a minute and a half."""
    folder = tmp_path_factory.mktemp("run")
    cluster.record(folder, 12, seconds=90)
    return folder


def play(folder, size, speed="20"):
    command = [*GPUMON, "replay", str(folder), "--speed", speed]
    return Session(["env", *command], size, environment(TZ="UTC"))


def test_a_job_of_many_nodes_is_a_heat_map_that_leads_to_each_device(recordings):
    with play(recordings, (120, 40), speed="4") as screen:
        screen.wait_for("12 nodes, 96 GPUs", HANGS_S)
        shown = screen.wait_for("GPU 7 lost (Xid 79)", HANGS_S)
        assert re.search(r"gpu02 .*\d\d", shown)
        screen.wait_for("below the median", HANGS_S)
        screen.keys(" ")  # before all has ended
        screen.wait_for("paused", HANGS_S)
        first = next(line for line in screen.text().splitlines() if re.search(r"gpu03 +\d", line))
        assert re.search(r"gpu03( +0){7}", first)
        screen.keys("Home", "Enter")
        screen.wait_for("gpu03  live by replay", HANGS_S)
        screen.wait_for("gpu03:7 ● lost Xid 79", HANGS_S)
        screen.keys("Enter")
        screen.wait_for("17 of 96", HANGS_S)
        screen.keys("Escape", "Escape", "End", "4")
        screen.wait_for("▶gpu12", HANGS_S)
        screen.keys("q")
        assert screen.wait_exit(HANGS_S) == 0


def test_eighty_columns_keep_what_stands_out(recordings):
    with play(recordings, (80, 24)) as screen:
        screen.keys("4")
        shown = screen.wait_for("GPU 7 lost (Xid 79)", HANGS_S)
        assert "·······×" in shown
        assert all(len(line) <= 80 for line in shown.splitlines())
        screen.keys("c", "c")
        screen.wait_for("power W", HANGS_S)
