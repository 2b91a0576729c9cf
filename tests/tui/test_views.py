"""Screens as text: goldens of the story, and what they say when there are no values."""

import pytest

from gpumon import demos
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Event, Header, JobContext, Sample, State
from gpumon.model.view import Status
from gpumon.sources.replay import ReplaySource, tracks_of
from gpumon.store import Store
from gpumon.tui.lines import plain, row_width
from gpumon.tui.state import ViewState
from gpumon.tui.views.device import device_view
from gpumon.tui.views.grid import plot_columns
from gpumon.tui.views.job import job_view
from gpumon.tui.views.notes import notes
from gpumon.tui.views.processes import SORTS, entries, process_view
from gpumon.tui.views.title import title_row
from tests.tui import cluster

SIZES = [(80, 22), (120, 38), (160, 48), (200, 58)]
VIEWS = {"job": job_view, "device": device_view, "processes": process_view}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_screens_of_the_story(state, golden, name, width, height):
    view = VIEWS[name](state, width, height)
    assert len(view.rows) <= height
    golden(f"{name}-{width}x{height}", [title_row(state, width), *view.rows])


@pytest.mark.parametrize("name", VIEWS)
def test_ascii_screens_are_ascii_but_for_units(state, name):
    state.glyphs = "ascii"
    text = plain(VIEWS[name](state, 120, 38).rows)
    assert {char for char in text if not char.isascii()} <= set("°·×…←→↓↑‹›")


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(10, 3), (30, 8), (50, 15), (79, 23), (260, 80)])
def test_no_size_breaks_a_screen(state, name, width, height):
    view = VIEWS[name](state, width, height)
    assert len(view.rows) <= max(height, 3)
    for zone in view.zones:
        assert zone.x + zone.width <= width


def test_eight_devices_show_eight_plots_at_160x50():
    assert plot_columns(8, 160, 38)
    assert plot_columns(8, 80, 16) == 0
    for count in range(1, 65):
        columns = plot_columns(count, 200, 50)
        assert columns == 0 or 200 // columns >= 44


# -- by hand ----------------------------------------------------------------------------------


NOW = 1_795_200_000.0


def one_node(count=2, job=None, notes=(), facts=None):
    """A store with one node of `count` devices of 80 GiB, and its state."""
    store = Store()
    mem = {"mem_total_bytes": 80 << 30} if facts is None else facts
    devices = [
        Device(n, n, f"GPU-{n}", "NVIDIA A100", n if job else None, None, mem) for n in range(count)
    ]
    header = Header(
        "gpu01", "b", NOW, 0.0, 1.0, "0", devices, driver="580", job=job,
        facts={"cpus": 64, "mem_total_bytes": 256 << 30}, notes=list(notes),
    )  # fmt: skip
    store.header("gpu01", header)
    store.status("gpu01", Status("live", NOW, "", "local"))
    return store


def shown(store, now=NOW, width=120, height=38, **choices):
    state = ViewState("dark", "braille", 600.0, whole_node=False)
    for name, value in choices.items():
        setattr(state, name, value)
    state.update(store.nodes(), now)
    return state, plain(job_view(state, width, height).rows)


def device_row(**readings):
    return {"busy_percent": 50, "mem_used_bytes": 40 << 30, "power_w": 200.0, **readings}


def test_a_missing_reading_shows_its_reason_and_never_a_number():
    store = one_node(1, facts={"mem_total_bytes": 80 << 30})
    row = device_row(busy_percent=Missing("mig"), mem_used_bytes=Missing("no-permission"))
    store.add("gpu01", Sample(NOW, 0, {"device": {0: row}}))
    _, text = shown(store)
    assert "busy n/a MIG" in text
    assert "0 %" not in text.split("GPU 0")[1].splitlines()[0]


def test_values_age_visibly():
    store = one_node(1)
    store.add("gpu01", Sample(NOW, 0, {"device": {0: device_row()}}))
    _, text = shown(store, NOW + 12)
    assert "busy 50 % (12 s old)" in text
    state, _ = shown(store, NOW + 12)
    assert "no sample for 12 s" in plain([title_row(state, 120)])


def test_a_lost_and_a_hung_device_keep_their_rows():
    store = one_node(3)
    rows = {"device": {n: device_row() for n in range(3)}}
    store.add("gpu01", Sample(NOW, 0, rows))
    states = {1: State("lost", NOW - 30, "Xid 79"), 2: State("hung", NOW - 9, "nvmlDeviceGetX")}
    store.add("gpu01", Sample(NOW + 1, 1, {"device": {0: device_row()}}, states))
    for height in (20, 38):
        _, text = shown(store, NOW + 1, height=height)
        assert "lost Xid 79 · 31 s ago" in text
        assert "no answer for 10 s" in text
        assert "● GPU 1 is lost since 31 s (Xid 79)" in text
        assert "GPU 0" in text
    assert "1 of 1 at work, 2 unknown" in text


def test_a_device_that_never_worked_is_named_after_five_minutes_only():
    job = JobContext("4711", cpus=8, start=NOW)
    store = one_node(2, job)
    for second in range(320):
        rows = {0: device_row(), 1: device_row(busy_percent=0, busy_max_percent=0)}
        store.add("gpu01", Sample(NOW + second, second, {"device": rows}))
        if second == 200:
            assert not any("did nothing" in note.text for note in notes(shown(store, NOW + 200)[0]))
    found = [note for note in notes(shown(store, NOW + 319)[0]) if "did nothing" in note.text]
    assert [note.text for note in found] == ["GPU 1 did nothing in the 5 m watched"]


def test_a_burst_between_ticks_counts_as_work():
    store = one_node(1, JobContext("4711"))
    for second in range(320):
        row = device_row(busy_percent=0, busy_max_percent=90 if second == 100 else 0)
        store.add("gpu01", Sample(NOW + second, second, {"device": {0: row}}))
    assert not any("did nothing" in note.text for note in notes(shown(store, NOW + 319)[0]))


def process(pid, user="ada", framework="", hints=None, ppid=1, command="python a.py", **facts):
    data = {
        "user": user, "command": command, "name": "python", "ppid": ppid, "uid": 1000,
        "start": NOW - 100, "own": True, "framework": framework, "hints": hints or {}, **facts,
    }  # fmt: skip
    return Event(NOW, "process", pid=pid, data=data)


def with_processes(*events, usage):
    store = one_node(2)
    rows = {
        "device": {0: device_row(), 1: device_row()},
        "usage": {
            key: {"type": "C", "mem_bytes": mem, "sm_percent": 10} for key, mem in usage.items()
        },
        "process": {
            event.pid: {"cpu_percent": float(event.pid), "rss_bytes": 1 << 30} for event in events
        },
    }
    store.add("gpu01", Sample(NOW, 0, rows, {}, list(events)))
    return store


@pytest.mark.parametrize(
    ("framework", "hints", "starred"),
    [
        ("tf", {}, True), ("tf", {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, False), ("jax", {}, True),
        ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, False), ("vllm", {}, True),
        ("torch", {}, False), ("", {}, False),
    ],
)  # fmt: skip
def test_a_reservation_is_never_shown_as_a_need(framework, hints, starred):
    store = with_processes(process(7, framework=framework, hints=hints), usage={(0, 7): 39 << 30})
    state, text = shown(store)
    assert ("mem 50 %*" in text) is starred
    assert ("'s reservation" in text) is starred
    assert any("what it needs is unknown" in note.text for note in notes(state)) is starred


def test_processes_sort_filter_and_tree():
    events = [process(10), process(11, "eve", ppid=10), process(12, ppid=11), process(13, ppid=12)]
    store = with_processes(*events, usage={(0, 10): 1 << 30, (0, 11): 3 << 30, (1, 11): 2 << 30})
    state, _ = shown(store)
    assert [e.process.facts.pid for e in entries(state)] == [11, 10, 12, 13]
    assert entries(state)[0].devices == ["0", "1"]
    state.reverse = True
    assert [e.process.facts.pid for e in entries(state)][-1] == 11
    state.reverse, state.tree = False, True
    assert [(e.process.facts.pid, e.depth) for e in entries(state)] == [
        (10, 0), (11, 1), (12, 2), (13, 3),
    ]  # fmt: skip
    state.filter_text = "user=eve"
    assert [e.process.facts.pid for e in entries(state)] == [11]
    for sort in SORTS:
        state.sort, state.filter_text = sort, ""
        assert len(entries(state)) == 4


def test_what_slurm_starts_for_itself_is_counted_and_not_listed():
    forever = "sleep 100000000"
    store = with_processes(
        process(10), process(11, "root", name="slurmstepd", uid=0),
        process(12, "root", command=forever, name="sleep", uid=0),
        process(13, command=forever, name="sleep"), process(14, "root", uid=0),
        usage={},
    )  # fmt: skip
    state, _ = shown(store)
    assert {e.process.facts.pid for e in entries(state)} == {10, 13, 14}
    summary = plain(process_view(state, 80, 20).rows[:1])
    assert summary.startswith(" 3 processes, 0 on GPUs (+2 of Slurm or gpumon)")


def test_without_processes_on_gpus_the_busiest_come_first():
    events = [process(10), process(11), process(12)]
    state, _ = shown(with_processes(*events, usage={}))
    assert state.sort == "cpu"
    assert [e.process.facts.pid for e in entries(state)] == [12, 11, 10]
    state, _ = shown(with_processes(*events, usage={(0, 11): 1 << 30}))
    assert state.sort == "mem"
    assert entries(state)[0].process.facts.pid == 11
    state.sort = "pid"
    assert entries(state)[0].process.facts.pid == 10


def test_a_process_of_which_nothing_is_heard_keeps_no_number():
    store = with_processes(process(10), usage={(0, 10): 1 << 30})
    state, _ = shown(store)
    assert "1 GiB   10 %    10 %      1 GiB" in plain(process_view(state, 120, 20).rows)
    state.update(store.nodes(), NOW + 60)
    assert "old    old     old        old" in plain(process_view(state, 120, 20).rows)


def test_a_replay_says_how_long_the_recording_is(tmp_path, state):
    cluster.record(tmp_path, 2, devices=1, seconds=121)
    state.player = ReplaySource(tracks_of([str(path) for path in tmp_path.iterdir()]))
    state.update(state.nodes, state.player.origin + 30)
    assert "replay 00:00:30 of 00:02:00 ·" in plain([title_row(state, 120)])
    assert "replay 00:00:30 ·" in plain([title_row(state, 80)])
    state.player = ReplaySource(tracks_of([demos.path("finetune")]))  # its lines are not counted
    state.update(state.nodes, state.player.origin + 30)
    assert "replay 00:00:30 ·" in plain([title_row(state, 120)])


def test_forged_parents_in_a_circle_are_shown_flat():
    store = with_processes(process(10, ppid=11), process(11, ppid=10), usage={(0, 10): 1})
    state, _ = shown(store, tree=True)
    assert sorted(e.process.facts.pid for e in entries(state)) == [10, 11]


def test_memory_of_a_process_on_two_devices_is_no_total_when_one_is_missing():
    store = with_processes(process(10), usage={(0, 10): 1 << 30, (1, 10): Missing("no-permission")})
    state, _ = shown(store)
    assert entries(state)[0].mem == Missing("no-permission")


def test_wide_and_hostile_names_keep_the_columns():
    store = with_processes(process(10, user="漢字漢字漢字", command="漢" * 200), usage={(0, 10): 1})
    state, _ = shown(store)
    for width in (80, 120):
        assert {row_width(row) for row in process_view(state, width, 20).rows[2:]} == {width}


def test_the_cursor_follows_its_process():
    store = with_processes(process(10), process(11), usage={(0, 10): 1 << 30, (0, 11): 3 << 30})
    state, _ = shown(store, cursor=1)
    process_view(state, 120, 20)
    assert state.cursor_pid == ("gpu01", 10)
    state.reverse = True
    process_view(state, 120, 20)
    assert (state.cursor, state.cursor_pid) == (0, ("gpu01", 10))


def test_no_devices_says_so_once_and_shows_the_host():
    store = one_node(0, notes=["No NVIDIA driver on this node."])
    host = {"cpu_percent": 12.5, "mem_used_bytes": 8 << 30, "load1": 1.0}
    store.add("gpu01", Sample(NOW, 0, {"host": {"": host}}))
    _, text = shown(store)
    assert text.count("No NVIDIA driver on this node.") == 1
    assert "gpumon demo" in text
    assert "12 %  load 1.0" in text


def test_the_job_shows_only_its_own_devices():
    store = Store()
    devices = [Device(n, n, f"GPU-{n}", "A100", {1: 1, 2: 0}.get(n), None, {}) for n in range(4)]
    store.header("gpu01", Header("gpu01", "b", NOW, 0, 1, "0", devices, job=JobContext("4711")))
    state, _ = shown(store)
    assert [view.device.index for _, view in state.devices] == [1, 2]
    state.whole_node = True
    state.update(store.nodes(), NOW)
    assert len(state.devices) == 4


def test_a_process_that_is_watched_no_more_has_not_ended():
    store = with_processes(process(10), process(11), usage={})
    events = [
        Event(NOW + 1, "process-end", pid=10, text="no longer among the busiest"),
        Event(NOW + 1, "process-end", pid=11, text="ended"),
    ]
    store.add("gpu01", Sample(NOW + 1, 1, {}, {}, events))
    state, _ = shown(store, NOW + 1)
    assert [(e.process.facts.pid, e.process.ended) for e in entries(state)] == [(11, NOW + 1)]


def test_without_devices_the_host_is_plotted_and_the_busiest_listed():
    store = one_node(0, notes=["No NVIDIA driver on this node."])
    for second in range(30):
        host = {"cpu_percent": 12.5, "mem_used_bytes": 8 << 30, "load1": 1.0}
        rows = {"host": {"": host}, "process": {7: {"cpu_percent": 88.0, "rss_bytes": 1 << 20}}}
        events = [process(7, command="python fit.py")] if second == 0 else []
        store.add("gpu01", Sample(NOW + second, second, rows, {}, events))
    for width, height in SIZES:
        _, text = shown(store, NOW + 29, width, height)
        assert "waiting for I/O" in text
        assert "start" in text
        assert "python fit.py" in text


def test_marks_and_xids_stand_on_the_time_axis_and_in_the_notes():
    store = one_node(1)
    for second in range(60):
        events = []
        if second in (10, 40):
            kind = "mark" if second == 10 else "xid"
            events = [Event(NOW + second, kind, 0 if kind == "xid" else None, text="epoch 2")]
        row = {"device": {0: device_row()}, "host": {"": {"cpu_percent": 1}}}
        store.add("gpu01", Sample(NOW + second, second, row, {}, events))
    _, text = shown(store, NOW + 59, 100, 30)
    axis = next(line for line in text.splitlines() if "┬" in line)
    assert axis.count("▲") == 2
    assert abs(axis.index("▲") - 100 * 10 / 60) < 6
    assert "mark: epoch 2, 49 s ago" in text
