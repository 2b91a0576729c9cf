"""One process in full: its command, where it comes from, and what it used over time."""

import re

from gpumon.model.sample import Event, Sample
from tests.tui.by_hand import NOW, device_row, one_node, process
from tests.tui.looking import Looking

LONG = "python train.py " + " ".join(f"--option-{n} value-{n}" for n in range(12))


def opened(*events, seconds=20, pid=11):
    """The process `pid` of a table, opened; those of `events` are on GPU 0 if their pid is odd."""
    store = one_node(2)
    for t in range(0, seconds, 2):
        pids = [event.pid for event in events]
        rows = {
            "device": {0: device_row(), 1: device_row()},
            "usage": {(0, p): {"mem_bytes": t << 30, "sm_percent": 5 * t} for p in pids if p % 2},
            "process": {p: {"cpu_percent": 10.0 * t, "rss_bytes": 2 << 30} for p in pids},
        }
        store.add("gpu01", Sample(NOW + t, t, rows, {}, [*events] if not t else []))
    looking = Looking(store.nodes(), NOW + seconds - 2)
    looking.show("processes")
    looking.draw("processes", 120, 38)
    looking.processes._identity = ("gpu01", pid)
    looking.draw("processes", 120, 38)
    looking.processes.action_open()
    return looking


def test_enter_opens_it_with_its_whole_command():
    looking = opened(process(11, command=LONG, framework="torch"))
    assert looking.pane.name == "process"
    for size in ((80, 22), (120, 38)):
        text = looking.text("process", *size)
        assert (
            " ".join(LONG.split())
            == " ".join(" ".join(text.splitlines()[1:6]).split())[: len(LONG)]
        )
    assert "PyTorch" in text
    assert "age 118 s" in text
    looking.pane.action_leave()
    assert looking.pane.name == "processes"


def test_its_own_use_is_plotted():
    text = opened(process(11)).text("process", 120, 30)
    for label in ("GPU memory", "SM", "CPU", "memory"):
        assert f" {label} " in text
    assert "18 GiB" in text
    assert "peak 90 %" in text
    assert "180 %" in text


def test_what_the_probe_tells_of_it_stands_beside():
    store = one_node(2)
    for t in range(0, 20, 2):
        rows = {
            "device": {0: device_row(), 1: device_row()},
            "usage": {(0, 11): {"mem_bytes": 70 << 30, "sm_percent": 50}},
            "pool": {(0, 11): {"used_bytes": (t + 1) << 30, "peak_bytes": 20 << 30}},
            "program": {
                11: {
                    "steps": t,
                    "step_us": 21_400,
                    "rank": 3,
                    "place": "train.py:9 loss.item",
                    "waits_for": "ranks",
                }
            },
        }
        store.add("gpu01", Sample(NOW + t, t, rows, {}, [process(11)] if not t else []))
    looking = Looking(store.nodes(), NOW + 18)
    looking.show("processes")
    looking.draw("processes", 120, 38)
    looking.processes.action_open()
    for size in ((80, 22), (120, 38)):
        text = looking.text("process", *size)
        assert "of it in use" in text
        assert "steps 18" in text
        assert "21.4 ms" in text
        assert "rank 3" in text
        where = " at train.py:9 → loss.item  waits for other ranks"
        assert f"\n{where}\n" in re.sub(" +\n", "\n", text)  # a row of its own
    assert "19 GiB" in text


def test_parents_and_children_are_named_as_far_as_they_are_known():
    events = [
        process(11, ppid=12),
        process(12, ppid=4, command="bash run.sh"),
        process(13, ppid=11),
    ]
    text = opened(*events).text("process", 120, 30)
    assert "parent 12  bash run.sh" in text
    assert "4  not part of the job" in text
    assert "1 child 13" in text


def test_forged_parents_in_a_circle_end():
    text = opened(process(11, ppid=12), process(12, ppid=11)).text("process", 120, 30)
    assert text.count("python a.py") == 2


def test_without_a_gpu_it_has_numbers_and_no_course():
    text = opened(process(12), pid=12).text("process", 120, 30)
    assert "CPU 180 %" in text
    assert "memory 2 GiB" in text
    assert "│" not in text


def test_one_that_is_gone_says_so():
    looking = opened(process(11))
    store_time = NOW + 200
    looking.moment.nodes[0].take_sample(
        Sample(store_time, 200, {}, {}, [Event(store_time, "process-end", pid=11, text="ended")]),
        None,
    )
    assert "ended 0 s ago" in looking.at(now=store_time).text("process", 80, 22)


def test_on_any_size():
    looking = opened(process(11, command=LONG))
    for size in ((1, 1), (20, 3), (80, 5), (300, 80)):
        assert len(looking.draw("process", *size).rows) <= max(size[1], 1)
