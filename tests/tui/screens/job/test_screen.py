"""The Job screen: what it says when there are no values, and of what went wrong."""

import re

import pytest

from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Event, Header, JobContext, Sample, State
from gpumon.model.view import Silence
from gpumon.store import Store
from gpumon.tui.lines import plain
from gpumon.tui.parts.title import title_row
from gpumon.tui.screens.job.notes import notes
from tests.tui.by_hand import NOW, device_row, one_node, process, shown, with_processes
from tests.tui.looking import Looking

SIZES = [(80, 22), (120, 38), (160, 48), (200, 58)]


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
    looking, _ = shown(store, NOW + 12)
    assert "no sample for 12 s" in plain([title_row(looking.moment, 120)])


def test_a_lost_and_a_hung_device_keep_their_rows():
    store = one_node(3)
    rows = {"device": {n: device_row() for n in range(3)}}
    store.add("gpu01", Sample(NOW, 0, rows))
    states = {1: State("lost", NOW - 30, "Xid 79"), 2: State("hung", NOW - 9, "nvmlDeviceGetX")}
    store.add("gpu01", Sample(NOW + 1, 1, {"device": {0: device_row()}}, states))
    for height in (20, 38):
        _, text = shown(store, NOW + 1, height=height)
        assert "lost Xid 79 · 31 s ago" in text
        assert "hung for 10 s" in text
        assert "● GPU 1 dropped off the bus 31 s ago (Xid 79)" in text
        assert "GPU 0" in text
    assert "1 of 1 active, 2 unknown" in text


@pytest.mark.parametrize(("width", "height"), [(80, 22), (120, 38), (200, 58), (300, 78)])
def test_a_note_that_appears_moves_nothing_below_it(width, height):
    job = JobContext("4711", cpus=8, mem_limit_bytes=64 << 30, start=NOW)
    looking = Looking(one_node(2, job=job).nodes(), NOW)
    before = looking.text("job", width, height).splitlines()
    silence = Silence(NOW - 60, "slurmctld does not respond")
    after = looking.at(silence=silence).text("job", width, height).splitlines()
    changed = [y for y, (old, new) in enumerate(zip(before, after)) if old != new]
    assert len(before) == len(after)
    assert len(changed) == 1
    assert "slurmctld does not respond" in after[changed[0]]


def test_a_wide_screen_has_resources_beside_what_is_wrong():
    job = JobContext("4711", cpus=8, mem_limit_bytes=64 << 30, start=NOW)
    looking = Looking(one_node(2, job=job).nodes(), NOW)
    text = looking.at(silence=Silence(NOW, "no answer")).text("job", 300, 78)
    assert re.search(r"^ ▲ no answer +CPU  ", text, re.M)


def test_a_device_that_never_worked_is_named_after_five_minutes_only():
    job = JobContext("4711", cpus=8, start=NOW)
    store = one_node(2, job)
    for second in range(320):
        rows = {0: device_row(), 1: device_row(busy_percent=0, busy_max_percent=0)}
        store.add("gpu01", Sample(NOW + second, second, {"device": rows}))
        if second == 200:
            assert not any(
                "observed" in note.text for note in notes(shown(store, NOW + 200)[0].moment)
            )
    found = [note for note in notes(shown(store, NOW + 319)[0].moment) if "observed" in note.text]
    assert [note.text for note in found] == ["GPU 1 idle for all of the 5 min observed"]


def test_a_burst_between_ticks_counts_as_work():
    store = one_node(1, JobContext("4711"))
    for second in range(320):
        row = device_row(busy_percent=0, busy_max_percent=90 if second == 100 else 0)
        store.add("gpu01", Sample(NOW + second, second, {"device": {0: row}}))
    assert not any("observed" in note.text for note in notes(shown(store, NOW + 319)[0].moment))


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
    looking, text = shown(store)
    assert ("mem 50 %*" in text) is starred
    assert ("40 + 40 reserved/160 GiB" in text) is starred
    assert any("the real need is unknown" in note.text for note in notes(looking.moment)) is starred


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
    looking, _ = shown(store)
    assert [view.device.index for _, view in looking.moment.devices] == [1, 2]
    looking.at(whole_node=True)
    assert len(looking.moment.devices) == 4


def test_without_devices_the_host_is_plotted_and_the_busiest_listed():
    store = one_node(0, notes=["No NVIDIA driver on this node."])
    for second in range(30):
        host = {"cpu_percent": 12.5, "mem_used_bytes": 8 << 30, "load1": 1.0, "iowait_percent": 3}
        rows = {"host": {"": host}, "process": {7: {"cpu_percent": 88.0, "rss_bytes": 1 << 20}}}
        events = [process(7, command="python fit.py")] if second == 0 else []
        store.add("gpu01", Sample(NOW + second, second, rows, {}, events))
    for width, height in SIZES:
        _, text = shown(store, NOW + 29, width, height)
        assert "waiting for I/O" in text
        assert "-40 s" in text
        assert "now" in text
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
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines) if "-40 s" in line)
    floor, axis = lines[number - 1], lines[number]  # of the plot, and below it
    assert floor.count("▲") == 2
    assert abs(floor.rindex("▲") - floor.index("▲") - 30 / 60 * (100 - 5)) <= 1
    ago_40_s, now = axis.index("-40 s") + 2, axis.rindex("now") + 1
    assert abs((now - floor.rindex("▲")) / (now - ago_40_s) - 19 / 40) < 0.05
    assert "mark: epoch 2, 49 s ago" in text
