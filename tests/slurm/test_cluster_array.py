"""A whole array on one screen: three tasks on one node, each with a GPU of its own."""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.following import gone
from tests.slurm.test_cluster_screen import attached, left, shows
from tests.support.waiting import until

pytestmark = pytest.mark.terminal

#: each task says which GPU it has, and holds as many 100 MB as its number; the second fails
SCRIPT = """\
gpumon once --json > gpus-$SLURM_ARRAY_TASK_ID.json
python -c '
import os, pathlib, sys, time
held = b"1" * (100_000_000 * int(sys.argv[1]))
while not pathlib.Path("go-" + os.environ["SLURM_ARRAY_JOB_ID"]).exists():
    time.sleep(0.2)
' $SLURM_ARRAY_TASK_ID
[ $SLURM_ARRAY_TASK_ID != 2 ]
"""
ON_END = 'echo "$GPUMON_JOB_ID $GPUMON_JOB_STATE $GPUMON_EXIT_CODE" >> ended-$GPUMON_JOB_ID'


def rows(screen):
    """task -> the cells of its row, as far as the table has them."""
    found = (re.match(r"^[ ▶] (\d) +([A-Z]+.*)", line) for line in screen.text().splitlines())
    return {match[1]: match[2].split("  ") for match in found if match}


def percent(cells):
    """The last share in a row: the host memory in use, of the limit."""
    return int(re.findall(r"(\d+) %", "  ".join(cells))[-1])


def measured(screen):
    found = rows(screen)
    return len(found) == 3 and all(" %" in "".join(cells) for cells in found.values())


def test_each_task_is_measured_alone_opened_and_followed_to_its_end(cluster):
    """ssh to node3 leads into any of the tasks: the others are reached by srun."""
    options = ["-a", "1-3", "-w", "node3", "-p", "gpu", "--gres=gpu:1", "-c", "1", "--mem=1G"]
    array = cluster.submit(SCRIPT, *options)
    home = cluster.home()
    try:
        cluster.wait(f"{array}_3", "RUNNING")
        with left(attached(cluster, array, "--on-end", f"sh -c '{ON_END}'")) as screen:
            shows(screen, f"array {array}", "3 of 3 tasks running")
            screen.keys("s")  # by number
            until(lambda: measured(screen), screen.text)
            held = [percent(cells) for _, cells in sorted(rows(screen).items())]
            for number, share in enumerate(held, 1):
                assert number * 9 <= share <= number * 10 + 5, held
            uuids = set()
            for number in (1, 2, 3):
                file = home / f"gpus-{number}.json"
                (device,) = json.loads(file.read_text())["devices"]
                screen.keys("Home", *["Down"] * (number - 1), "Enter")
                shows(screen, f"gpumon  {array}_{number}")
                screen.keys("2")
                shows(screen, device["uuid"])
                uuids.add(device["uuid"])
                screen.keys("Escape", "Escape")
                shows(screen, f"array {array}")
            assert len(uuids) == 3
            (home / f"go-{array}").touch()
            shows(screen, "0 of 3 tasks running", "1 failed", "2 completed", "exit code 1")
            until((home / f"ended-{array}").exists, "--on-end ran")
            ids = [cluster.show(f"{array}_{number}")["JobId"] for number in (1, 2, 3)]
        assert (home / f"ended-{array}").read_text().splitlines() == [f"{array} FAILED 1"]
        for id in ids:
            gone(cluster, id, "node3")
    finally:
        cluster.cancel(array)
