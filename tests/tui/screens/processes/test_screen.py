"""The table of processes: sorted, filtered, as a tree, with a cursor."""

import re

from gpumon.model.reading import Missing
from gpumon.model.sample import Event, Sample
from gpumon.tui.lines import plain, row_width
from gpumon.tui.screens.processes.entries import SORTS
from tests.tui import cluster
from tests.tui.by_hand import NOW, process, shown, with_processes
from tests.tui.looking import Looking


def test_processes_sort_filter_and_tree():
    events = [process(10), process(11, "eve", ppid=10), process(12, ppid=11), process(13, ppid=12)]
    store = with_processes(*events, usage={(0, 10): 1 << 30, (0, 11): 3 << 30, (1, 11): 2 << 30})
    looking, _ = shown(store)
    assert [e.process.facts.pid for e in looking.entries()] == [11, 10, 12, 13]
    assert looking.entries()[0].devices == ["0", "1"]
    looking.processes.reverse = True
    assert [e.process.facts.pid for e in looking.entries()][-1] == 11
    looking.processes.reverse, looking.processes.tree = False, True
    assert [(e.process.facts.pid, e.depth) for e in looking.entries()] == [
        (10, 0), (11, 1), (12, 2), (13, 3),
    ]  # fmt: skip
    looking.processes.filter_text = "user=eve"
    assert [e.process.facts.pid for e in looking.entries()] == [11]
    for sort in SORTS:
        looking.processes.sort, looking.processes.filter_text = sort, ""
        assert len(looking.entries()) == 4


def test_what_slurm_starts_for_itself_is_counted_and_not_listed():
    forever = "sleep 100000000"
    store = with_processes(
        process(10), process(11, "root", name="slurmstepd", uid=0),
        process(12, "root", command=forever, name="sleep", uid=0),
        process(13, command=forever, name="sleep"), process(14, "root", uid=0),
        usage={},
    )  # fmt: skip
    looking, _ = shown(store)
    assert {e.process.facts.pid for e in looking.entries()} == {10, 13, 14}
    summary = plain(looking.draw("processes", 80, 20).rows[:1])
    assert summary.startswith(" 3 processes, 0 on GPUs (+2 of Slurm or gpumon)")


def test_without_processes_on_gpus_the_busiest_come_first():
    events = [process(10), process(11), process(12)]
    looking, _ = shown(with_processes(*events, usage={}))
    assert looking.processes.order(looking.moment).sort == "cpu"
    assert [e.process.facts.pid for e in looking.entries()] == [12, 11, 10]
    looking, _ = shown(with_processes(*events, usage={(0, 11): 1 << 30}))
    assert looking.processes.order(looking.moment).sort == "mem"
    assert looking.entries()[0].process.facts.pid == 11
    looking.processes.sort = "pid"
    assert looking.entries()[0].process.facts.pid == 10


def test_a_process_of_which_nothing_is_heard_keeps_no_number():
    store = with_processes(process(10), usage={(0, 10): 1 << 30})
    looking, _ = shown(store)
    assert "1 GiB   10 %   10 %     1 GiB" in looking.text("processes", 120, 20)
    looking.at(nodes=store.nodes(), now=NOW + 60)
    assert "old    old    old       old" in looking.text("processes", 120, 20)


def test_forged_parents_in_a_circle_are_shown_flat():
    store = with_processes(process(10, ppid=11), process(11, ppid=10), usage={(0, 10): 1})
    looking, _ = shown(store)
    looking.processes.tree = True
    assert sorted(e.process.facts.pid for e in looking.entries()) == [10, 11]


def test_memory_of_a_process_on_two_devices_is_no_total_when_one_is_missing():
    store = with_processes(process(10), usage={(0, 10): 1 << 30, (1, 10): Missing("no-permission")})
    looking, _ = shown(store)
    assert looking.entries()[0].mem == Missing("no-permission")


def test_wide_and_hostile_names_keep_the_columns():
    store = with_processes(process(10, user="漢字漢字漢字", command="漢" * 200), usage={(0, 10): 1})
    looking, _ = shown(store)
    for width in (80, 120):
        assert {row_width(row) for row in looking.draw("processes", width, 20).rows[2:3]} == {width}


def test_the_cursor_follows_its_process():
    store = with_processes(process(10), process(11), usage={(0, 10): 1 << 30, (0, 11): 3 << 30})
    looking, _ = shown(store)
    looking.processes.cursor = 1
    looking.draw("processes", 120, 20)
    assert looking.entries()[1].identity == ("gpu01", 10)
    looking.processes.reverse = True
    looking.draw("processes", 120, 20)
    assert looking.processes.cursor == 0
    assert looking.entries()[0].identity == ("gpu01", 10)


def test_a_process_that_is_watched_no_more_has_not_ended():
    store = with_processes(process(10), process(11), usage={})
    events = [
        Event(NOW + 1, "process-end", pid=10, text="no longer among the busiest"),
        Event(NOW + 1, "process-end", pid=11, text="ended"),
    ]
    store.add("gpu01", Sample(NOW + 1, 1, {}, {}, events))
    looking, _ = shown(store, NOW + 1)
    assert [(e.process.facts.pid, e.process.ended) for e in looking.entries()] == [(11, NOW + 1)]


def test_columns_are_as_narrow_as_what_they_hold_and_the_command_has_the_rest():
    command = "python train.py --model llama-3-8b --data /scratch/ada/c4 --batch-size 32"
    looking, _ = shown(with_processes(process(10, command=command), usage={(0, 10): 1 << 30}))
    for width, room in ((80, 30), (120, 45), (200, len(command))):
        row = looking.text("processes", width, 20).splitlines()[2]
        assert command[: room - 1] in row


def test_a_click_on_a_heading_sorts_by_it_and_another_one_reverses():
    looking, _ = shown(with_processes(process(10), usage={(0, 10): 1 << 30}))
    view = looking.draw("processes", 120, 20)
    heading = plain(view.rows[1:2])
    for title, name in (("PID", "pid"), ("GPU memory", "mem"), ("CPU", "cpu"), ("age", "time")):
        x = heading.index(title)
        assert next(z.action for z in view.zones if z.holds(x, 1)) == f"sort_by('{name}')"
    looking.processes.action_sort_by("cpu")
    assert "CPU↓" in looking.text("processes", 120, 20)
    looking.processes.action_sort_by("cpu")
    assert "CPU↑" in looking.text("processes", 120, 20)


def test_the_selected_process_stands_below_where_there_is_room():
    store = with_processes(
        process(10, command="python one.py"), process(11, command="python two.py"),
        usage={(0, 10): 1 << 30, (1, 11): 3 << 30},
    )  # fmt: skip
    looking, _ = shown(store)
    assert "parent" not in looking.text("processes", 120, 12)
    assert looking.text("processes", 120, 38).count("python two.py") == 2
    looking.processes.action_move(1)
    text = looking.text("processes", 120, 38)
    assert (text.count("python one.py"), len(re.findall("GPU memory +80G", text))) == (2, 1)


def test_below_the_gpus_processes_stand_by_gpu_and_those_of_none_last():
    usage = {(0, 10): 1 << 30, (1, 11): 3 << 30}
    _, text = shown(with_processes(process(9), process(10), process(11), usage=usage))
    rows = [line.split()[0] for line in text.splitlines() if line.endswith("python a.py")]
    assert rows == ["10", "11", "9"]


def test_the_selected_process_is_beside_a_long_table_that_leaves_room():
    store, now = cluster.fill(16, seconds=5)
    looking = Looking(store.nodes(), now)
    wide = looking.text("processes", 200, 40).splitlines()
    assert "python  PyTorch" in wide[1]
    assert not any("…  " in line.partition("command")[2] for line in wide)
    assert all("python train.py  " in line for line in wide[2:])
    assert any("peak" in line for line in wide)
    assert "peak" not in looking.text("processes", 120, 40)
