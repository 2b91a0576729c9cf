"""Run data from streams: what is on the grid, what is a gap, who was there, and what is unknown."""

from __future__ import annotations

import threading
from math import isnan

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpumon import demos
from gpumon.analysis.run import LIVE, Limits, Run, Window
from gpumon.frames.builder import built
from gpumon.model.fields import JUDGED, KEPT
from gpumon.model.reading import LOST, MIG, UNSUPPORTED
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Device, Event, Header, JobContext, Mig, Sample, State
from gpumon.recording import Recording
from gpumon.slurm.job import Job
from tests.frames.alike import differences
from tests.frames.framing import Gathering, gather
from tests.recording import made
from tests.recording.streams import KINDS, stream
from tests.support.examples import examples

GIB = 1 << 30
GPU = Device(0, 0, "GPU-a", "NVIDIA A100", 0, None, {"mem_total_bytes": 80 * GIB})
OTHER = Device(1, 1, "GPU-b", "NVIDIA A100", 1, None, {"mem_total_bytes": 80 * GIB})
JOB = JobContext("4711", cpus=8, mem_limit_bytes=64 * GIB)


def header(*devices, at=1000.0, interval_s=1.0, **more):
    return Header("gpu01", "boot", at, at, interval_s, "0.1.0", list(devices or (GPU,)), **more)


def sample(at, device=None, usage=None, events=(), states=None, **entities):
    rows = {"host": {"": {"cpu_percent": 1}}}
    rows.update({entity: {"": row} for entity, row in entities.items()})
    if device is not None:
        rows["device"] = device if 0 in device or 1 in device else {0: device}
    if usage is not None:
        rows["usage"] = {(0, pid): row for pid, row in usage.items()}
        rows.setdefault("device", {0: {}}).setdefault(0, {})["processes"] = len(usage)
    return Sample(at, at, rows, states or {}, list(events))


def started(at, pid, **facts):
    return Event(at, "process", pid=pid, data={"in_job": True, "name": "python", **facts})


def of(items, **more):
    return gather([("gpu01", items)], **more)


def means(track):
    return [None if isnan(value) else round(value, 3) for value in track.mean]


def test_nothing_at_all():
    empty = of([])
    assert (empty.devices, empty.nodes, empty.count, empty.has_samples) == ([], [], 0, False)
    alone = of([header()])
    assert (alone.count, alone.coverage.covered_percent) == (0, 0)
    assert alone.devices[0].track("busy_percent").mean.tolist() == []
    assert alone.nodes[0].oom_kills is None
    assert alone.coverage.missing == {"gpu01": "no sample came from this node"}


def test_a_node_of_the_job_that_was_not_recorded_is_missing_from_the_coverage():
    job = Job(nodes=("gpu01.cluster", "gpu02.cluster"), start=1000.0)
    items = [header(), *(sample(at, {"busy_percent": 0}) for at in range(1000, 1040))]
    coverage = of(items, job=job).coverage
    assert coverage.unrecorded == ("gpu02.cluster",)
    assert coverage.missing == {"gpu02.cluster": "this node was not recorded"}
    assert coverage.covered_percent == pytest.approx(50)
    assert (coverage.from_start, coverage.to_end) == (True, True)  # of the node that was recorded
    alias = Job(nodes=("node-1",), start=1000.0)  # Slurm may call a host by another name
    assert of(items, job=alias).coverage.unrecorded == ()


def test_bins_hold_mean_least_and_greatest_and_a_gap_is_no_zero():
    times = [*range(1000, 1010), *range(1040, 1045)]
    found = of([header(), *(sample(at, {"busy_percent": at % 10 * 10}) for at in times)])
    busy = found.devices[0].track("busy_percent")
    assert (found.bin_s, found.grid_start, found.count) == (10, 1000, 5)
    assert means(busy) == [45, None, None, None, 20]
    assert (busy.low[0], busy.high[0], busy.low[4], busy.high[4]) == (0, 90, 0, 40)
    assert means(found.nodes[0].covered) == [1, None, None, None, 1]
    coverage = found.coverage
    assert (coverage.gaps, coverage.longest_gap_s) == (1, 30)
    assert coverage.covered_percent == pytest.approx(100 * 15 / 45)


def test_a_reader_in_the_middle_of_a_bin_changes_nothing():
    items = [header(), *(sample(at, {"busy_percent": at % 7 * 10}) for at in range(1000, 1100))]
    gathering = Gathering()
    for item in items:
        gathering.add("gpu01", item)
        early = gathering.data(live=True)
    whole = of(items).devices[0]
    read = early.devices[0]
    assert means(read.track("busy_percent")) == means(whole.track("busy_percent"))
    assert read.track("busy_percent").high == whole.track("busy_percent").high
    assert means(read.active) == means(whole.active)


# -- activity --------------------------------------------------------------------------------------
def activity(*rows, usage=None):
    items = [header(), *(sample(1000 + at, row, usage) for at, row in enumerate(rows))]
    (device,) = of(items).devices
    return means(device.active), device.polled


def test_active_by_the_signal_that_says_most():
    assert activity({"busy_percent": 50}) == ([1], False)
    burst = {"busy_percent": 0, "busy_max_percent": 3, "busy_gap_s": 0}
    assert activity(burst, {"busy_percent": 0}) == ([1], False)
    assert activity({"busy_percent": 0, "busy_max_percent": 0, "busy_gap_s": 0}) == ([0], False)
    assert activity({"busy_percent": 0}, usage={7: {"sm_percent": 4}}) == ([1], False)
    assert activity({"busy_percent": 0}, usage={7: {"sm_percent": 0}}) == ([0], False)
    assert activity({"busy_percent": MIG, "sm_active_percent": 20}) == ([1], False)
    assert activity({"busy_percent": MIG, "sm_active_percent": 0}) == ([0], False)


def test_polling_alone_is_marked_and_nothing_is_unknown():
    assert activity({"busy_percent": 0}) == ([0], True)
    holes = {"busy_percent": 0, "busy_max_percent": 0, "busy_gap_s": 1.2}
    assert activity(holes) == ([0], True)
    unknown = {"busy_percent": MIG, "sm_active_percent": UNSUPPORTED, "mem_used_bytes": 5}

    active, polled = activity(unknown)
    assert (active, polled) == ([None], False)


def test_throttling_is_a_share_of_ticks_and_zero_where_none_was_named():
    masks = [0] * 10 + [0x4] * 5 + [0x44] * 5 + [None] * 10 + [0] * 5
    items = [header()]
    items += [sample(1000 + at, {"throttle_mask": UNSUPPORTED if mask is None else mask})
              for at, mask in enumerate(masks)]  # fmt: skip
    throttle = of(items).devices[0].throttle
    assert {name: means(track) for name, track in throttle.items()} == {
        "sw_power_cap": [0, 1, None, 0],
        "hw_thermal": [0, 0.5, None, 0],
    }


def test_throttling_in_parts_of_a_bin():
    gathering = Gathering()
    gathering.add("gpu01", header())
    for at, mask in enumerate([0] * 4 + [4] * 4):
        gathering.add("gpu01", sample(1000 + at, {"throttle_mask": mask}))
        (device,) = gathering.data().devices
    assert means(device.throttle["sw_power_cap"]) == [0.5]


def test_counters_grow_across_gaps_and_begin_anew():
    values = [100, 150, None, 400, 10, 30]
    items = [header()]
    items += [sample(1000 + 30 * at, {"energy_j": UNSUPPORTED if v is None else v})
              for at, v in enumerate(values)]  # fmt: skip
    (device,) = of(items).devices
    assert device.counters == {"energy_j": 320}
    assert device.last["energy_j"] == 30


# -- processes -------------------------------------------------------------------------------------
def test_a_process_its_rise_what_was_beside_it_and_its_end():
    items = [header()]
    for at in range(1000, 1100, 2):
        mem = {7: {"mem_bytes": GIB if at < 1016 else 60 * GIB, "sm_percent": 50}}
        here = 1010 <= at < 1060
        used = 2 * GIB + (mem[7]["mem_bytes"] if here else 0)
        row = {"mem_used_bytes": used, "mem_reserved_bytes": GIB}
        events = [started(at, 7, framework="torch", hints={"also": "tf"}, start=1009.0)]
        items.append(sample(at, row, mem if here else {}, events if at == 1010 else ()))
    (device,) = of(items).devices
    (process,) = device.processes
    assert (process.first, process.last, process.ended, process.appeared) == (
        1010,
        1058,
        True,
        True,
    )
    assert process.frameworks == ("torch", "tf")
    assert list(zip(*process.rise))[:4] == [(1010, GIB), (1012, GIB), (1014, GIB), (1016, 60 * GIB)]
    assert process.others_bytes == 3 * GIB  # with the driver's reserve
    assert device.mem_before_bytes == 2 * GIB
    assert means(process.mem_bytes)[1:6] == pytest.approx([24.6 * GIB] + [60 * GIB] * 4)
    assert len(process.mem_bytes.mean) == 10


def test_a_process_that_was_there_before_and_a_pid_that_comes_back():
    items = [header()]
    for at in range(1000, 1040, 2):
        events = []
        if at in (1000, 1020):
            events = [started(at, 7, start=float(at))]
        items.append(sample(at, {"mem_used_bytes": 5 * GIB}, {7: {"mem_bytes": 4 * GIB}}, events))
    (device,) = of(items).devices
    old, new = device.processes
    assert (old.appeared, old.ended, old.last) == (False, True, 1018)
    assert (new.appeared, new.ended, new.first) == (True, False, 1020)
    assert device.mem_before_bytes == GIB


def test_a_pool_with_the_most_that_it_told_of_each_figure():
    def tick(at, pools, pids=(7,), events=()):
        found = sample(at, {}, {key: {"mem_bytes": 9 * GIB} for key in pids}, events)
        found.rows["pool"] = {(0, pid): row for pid, row in pools.items()}
        return found

    ended = Event(1032, "process-end", pid=7)
    found = of(
        [
            header(),
            tick(1000, {7: {"used_bytes": 2, "peak_bytes": 6, "reserved_bytes": 8, "retries": 0}}),
            tick(1002, {7: {"used_bytes": 4, "peak_bytes": 4, "reserved_bytes": 8, "retries": 2}}),
            tick(1004, {8: {"used_bytes": 50}}),  # the driver lists no such process here
            tick(1030, {7: {"used_bytes": 1, "peak_bytes": 4, "reserved_bytes": 8}}),
            tick(1032, {7: {"used_bytes": 9, "peak_bytes": 9}}, (), [ended]),
            tick(1050, {7: {"used_bytes": 70, "peak_bytes": 70}}, ()),  # long gone
        ]
    )
    ((process,),) = (each.processes for each in found.devices)
    pool = process.pool
    assert process.ended
    assert (process.last, pool.last) == (1030, 1032)
    assert (pool.peak_bytes, pool.reserved_peak_bytes, pool.retries) == (9, 8, 2)
    assert (pool.limit_bytes, pool.ooms) == (None, None)
    assert means(pool.used_bytes) == [3, None, None, 5, None, None]
    assert means(pool.reserved_bytes) == [8, None, None, 8, None, None]


def test_what_it_is_may_be_known_later_and_an_end_is_told():
    items = [header(), sample(1000, {}, {}), sample(1002, {}, {7: {"mem_bytes": 1}})]
    items.append(sample(1004, {}, {7: {"mem_bytes": 1}}, [started(1004, 7, framework="jax")]))
    items.append(sample(1005, {}, None, [Event(1005, "process-end", pid=7)]))
    found = of(items)
    (process,) = found.devices[0].processes
    assert (process.frameworks, process.ended) == (("jax",), True)
    assert [(node, event.kind) for node, event in found.events] == [("gpu01", "process-end")]


def test_a_list_that_cannot_be_read_is_not_an_empty_one():
    hidden = of([header(), sample(1000, {"processes": UNSUPPORTED})]).devices[0]
    assert (hidden.process_list_known, hidden.mem_before_bytes) == (False, None)
    assert of([header(), sample(1000, {"processes": 0})]).devices[0].process_list_known


def test_so_many_processes_are_kept_and_no_more():
    usage = {pid: {"mem_bytes": 1, "sm_percent": 0} for pid in range(1, 500)}
    (device,) = of([header(), sample(1000, {}, usage)]).devices
    assert len(device.processes) == 128


# -- events, states, the job -----------------------------------------------------------------------
def test_xids_states_and_renumbered_devices():
    lost = {0: State("lost", 1004.0, "Xid 79")}
    items = [header(GPU, OTHER)]
    items += [sample(1000 + at, {0: {"busy_percent": 50}, 1: {"busy_percent": 1}}) for at in (0, 1)]
    items.append(sample(1004, {0: {"busy_percent": LOST}}, None,
                        [Event(1004, "xid", device=0, text="79")], lost))  # fmt: skip
    items.append(sample(1005, {0: {}}, states=lost))
    items.append(header(OTHER._replace(key=0, index=0), GPU._replace(key=1, index=1), at=1006))
    items.append(sample(1006, {1: {"busy_percent": 90}}))
    first, second = of(items).devices
    assert (first.device.uuid, second.device.uuid) == ("GPU-a", "GPU-b")
    assert [event.text for event in first.xids] == ["79"]
    assert [(event.time, event.text) for event in first.states] == [(1004, "lost"), (1006, "well")]
    assert first.states[0].data == {"detail": "Xid 79"}
    assert first.track("busy_percent").peak() == 90


def test_the_job_its_memory_its_kills_and_its_busiest_minute():
    items = [header(job=JOB)]
    for at in range(1000, 1300):
        row = {"cpu_cores_used": 6 if 1080 <= at < 1200 else 1, "cpu_s": at - 1000,
               "mem_used_bytes": 3 * GIB if at == 1111 else GIB,
               "oom_kills": 0 if at < 1200 else 2, "mem_limit_bytes": 32 * GIB}  # fmt: skip
        items.append(sample(at, job=row))
    (node,) = of(items).nodes
    assert (node.oom_kills, node.cpu_core_s, node.mem_peak_bytes) == (2, 299, 3 * GIB)
    assert (node.mem_limit_bytes, node.cpus, node.peak60_cores) == (32 * GIB, 8, 6)
    assert means(node.job["cpu_cores_used"])[:10] == [1] * 8 + [6] * 2
    assert "cpu_s" not in node.job


def test_cpu_and_threads_of_the_jobs_processes():
    events = [started(1000, 7), started(1000, 8), Event(1000, "process", pid=9, data={"user": "x"})]
    rows = {pid: {"cpu_percent": cpu, "threads": 10} for pid, cpu in ((7, 90), (8, 0.1), (9, 50))}
    items = [header(job=JOB), Sample(1000, 0, {"process": rows}, {}, events)]
    (node,) = of(items).nodes
    assert {pid: means(track) for pid, (_, track) in node.processes.items()} == {7: [90]}
    assert means(node.threads) == [20]


def test_network_and_disks():
    rows = {"net": {"ib0": {"rx_bytes_per_s": 5}},
            "disk": {"tmp": {"path": "/tmp", "used_bytes": 1, "total_bytes": 10}}}  # fmt: skip
    items = [header(), Sample(1000, 0, rows)]
    (frame,) = built(items)
    assert frame.rollups["net", "ib0", "rx_bytes_per_s"].mean.tolist() == [5]  # which screens show
    (node,) = of(items).nodes
    assert (means(node.disks["tmp"]["total_bytes"]), node.disk_paths) == ([10], {"tmp": "/tmp"})


# -- nodes, the grid, coverage ---------------------------------------------------------------------
def test_two_nodes_lie_on_one_grid():
    one = [header(), *(sample(at, {"busy_percent": 10}) for at in range(1000, 1020))]
    two = [header(at=1030), *(sample(at, {"busy_percent": 20}) for at in range(1030, 1040))]
    found = gather([("gpu02", two), ("gpu01", one)])
    busy = {each.node: means(each.track("busy_percent")) for each in found.devices}
    assert busy == {"gpu01": [10, 10, None, None], "gpu02": [None, None, None, 20]}
    assert (found.start, found.end) == (1000, 1039)


def test_long_runs_and_long_intervals_have_wider_bins():
    hour = [header(interval_s=60.0), *(sample(at, {"busy_percent": 50})
                                      for at in range(0, 3600, 60))]  # fmt: skip
    found = of(hour)
    assert (found.bin_s, found.count) == (80, 45)
    assert found.devices[0].track("busy_percent").share() == 1
    week = [header(interval_s=60.0), *(sample(at, {"busy_percent": at // 86400})
                                       for at in range(0, 30 * 86400, 600))]  # fmt: skip
    found = of(week)
    assert found.bin_s == 320
    assert found.count <= 8640
    assert found.devices[0].track("busy_percent").peak() == 29
    assert found.devices[0].track("busy_percent").average() == pytest.approx(14.5, abs=0.01)


def test_twice_as_long_bins_join_those_of_the_absolute_grid():
    bins = Rollup()
    for index, value in ((5, 1.0), (6, 2.0), (7, 4.0), (9, 8.0)):
        bins.put(index, [value, value + 1])
    bins.coarsen(2)  # 4|5 6|7 8|9
    track = Window(1, 5, shared=False).of(bins)
    assert means(track) == [None, 1.5, 3.5, 8.5, None]
    assert (track.low[2], track.high[2]) == (2, 5)
    bins.put(4, [20.0])  # the newest one goes on
    assert Window(4, 1, shared=False).of(bins).high[0] == 20


def test_many_devices_have_fewer_bins():
    devices = [Device(n, n, f"GPU-{n}", "A100") for n in range(64)]
    items = [header(*devices), *(sample(at) for at in range(0, 20000, 10))]
    assert of(items).count <= 8640 * 8 // 64


def test_the_span_of_the_run_is_slurms_where_it_is_known():
    items = [header(job=JOB._replace(start=900.0)), *(sample(at) for at in range(1000, 1100))]
    assert (of(items).start, of(items).end, of(items).coverage.from_start) == (900, 1099, False)
    job = Job(raw_id="4711", state="COMPLETED", start=990.0, end=1120.0)
    found = of(items, job=job)
    assert (found.start, found.end) == (990, 1120)
    assert (found.coverage.from_start, found.coverage.to_end) == (True, True)
    assert found.coverage.covered_percent == pytest.approx(100 * 100 / 130)
    assert not of(items, job=Job(state="COMPLETED", start=1000.0, end=2000.0)).coverage.to_end


def test_a_clock_that_is_set_back_loses_nothing_else():
    times = [*range(1000, 1050), *range(1020, 1060)]
    found = of([header(), *(sample(at, {"busy_percent": 50}) for at in times)])
    assert means(found.devices[0].track("busy_percent")) == [50] * 6


def test_a_sample_before_its_header_says_nothing():
    assert not of([sample(1000, {"busy_percent": 1})]).has_samples


def test_mig_instances_are_devices_of_their_own():
    mig = Device(1, 0, "MIG-a", "NVIDIA A100 MIG 1g.10gb", 0, Mig("GPU-a", 3, 0, "1g.10gb"))
    items = [header(GPU, mig), sample(1000, {0: {"power_w": 90}, 1: {"mem_used_bytes": 5}})]
    whole, instance = of(items).devices
    assert (whole.label, instance.label) == ("gpu01:0", "gpu01:0/gi3")
    assert whole.track("power_w").peak() == 90


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from(KINDS)), max_size=10),
    st.lists(st.integers(1, 120), max_size=6),
    st.integers(0, 100),
    st.sampled_from((4, 8, 720)),
)
def test_evidence_that_is_shared_is_what_a_copy_is(happenings, asked, later, most):
    """And leaves no trace in what is gathered; nodes begin and end at different times."""
    streams = [list(stream(7, 120, happenings)), list(stream(8, 110, happenings[::2]))]
    gatherings = [Gathering(Limits(most, 8)) for _ in range(2)]
    for tick in range(220):
        for node, (items, delay) in enumerate(zip(streams, (0, later))):
            if 0 <= tick - delay < len(items):
                for gathering in gatherings:
                    gathering.add(f"gpu{node}", items[tick - delay])
        if tick in asked:
            copied = gatherings[0].data(live=True)
            shared = gatherings[1].data(live=True, shared=True)
            assert differences(copied, shared) == []
    assert differences(*(each.data() for each in gatherings)) == []


@pytest.mark.slow
def test_a_bucket_may_come_in_parts():
    """Beside a screen frames are short: a bucket of minutes comes in many, and reads the same."""
    items = [made.header(), *made.samples(340)]
    whole, parts = Run(Limits(4, 32)), Run(Limits(4, 32))
    for run, frame_s in ((whole, 600.0), (parts, 5.0)):
        for frame in built(items, frame_s):
            run.add("gpu01", frame)
    assert whole.step_s == parts.step_s == 160
    assert differences(whole.data(), parts.data()) == []


def test_beside_a_screen_there_is_only_what_rules_ask_for():
    (frame,) = built([made.header(), *made.samples(60)])
    run = Run(LIVE)
    run.add("gpu01", frame)
    found = run.data()
    for one, device in zip(found.devices, frame.devices):
        judged = {name for name, kept in KEPT["device"].items() if kept == JUDGED}
        assert one.tracks.keys() == judged & device.rollups.keys() - {"throttle_mask"}
        assert device.rollups.keys() - one.tracks.keys() > {"busy_max_percent", "active"}
    assert "load15" not in found.nodes[0].host
    assert not found.nodes[0].net


def test_a_bin_before_1970_is_as_good_as_any():
    bins = Rollup()
    bins.put(-3, [1.0])
    bins.put(-2, [2.0])
    assert means(Window(-3, 2, shared=True).of(bins)) == [1, 2]


def test_series_that_have_ended_do_not_grow():
    bins = Rollup()
    bins.put(0, [1.0])
    for size in range(1, 100):
        assert means(Window(0, size, shared=True).of(bins)) == [1] + [None] * (size - 1)
    assert len(Window(0, 1, shared=False).of(bins).mean) == 1
    assert len(bins) < 10


def test_readers_and_writers_in_threads():
    run = Run()
    frames = list(built([made.header(), *made.samples(120)], 10.0))
    done = threading.Event()

    def write():
        for frame in frames:
            run.add("gpu01", frame)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    while not done.is_set():
        counts.append(run.data(live=True).count)
    writer.join()
    assert counts == sorted(counts)
    assert run.data().count == 12


def test_the_recording_that_ships():
    found = of(Recording(demos.path(demos.names()[0])).items())
    assert len(found.devices) == 4
    assert not found.coverage.from_start  # the job began two hours before
    for device in found.devices:
        assert len(device.active.mean) == found.count
        assert all(len(track.mean) == found.count for track in device.tracks.values())
    tags = {tag for device in found.devices for each in device.processes for tag in each.frameworks}
    assert "tf" in tags


def test_beside_a_screen_few_of_the_processes_that_ended_are_kept():
    gathering = Gathering(LIVE)
    gathering.add("gpu01", header())
    for n in range(2000):
        at, pid = 1001.0 + 4 * n, 1000 + n
        usage = {7: {"mem_bytes": GIB, "sm_percent": 50}} if n < 500 else {}
        usage[pid] = {"mem_bytes": GIB, "sm_percent": 50}
        gathering.add("gpu01", sample(at, {}, usage, [started(at, pid)]))
        gathering.add("gpu01", sample(at + 2, {}, usage))
        gathering.add("gpu01", sample(at + 3, events=[Event(at + 3, "process-end", pid=pid)]))
    found = gathering.data(live=True).devices[0].processes
    assert len(found) == 16
    longest = max(found, key=lambda each: each.last - each.first)
    assert (longest.facts.pid, longest.ended) == (7, True)
    assert len(gathering.run._nodes["gpu01"].frame.devices[0].processes) == 16
