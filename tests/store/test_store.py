"""Store: what the screens read is a value with its age, or the reason why there is none."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.base import Schedule
from gpumon.model.reading import MIG, REASONS, Missing
from gpumon.model.reading import number as number_of
from gpumon.model.sample import Device, Event, Header, JobContext, Process, Sample, State
from gpumon.model.view import LEFT, Status
from gpumon.store import LEFT_KEPT, Store
from gpumon.store.processes import ENDED_KEPT_S
from tests.support.examples import examples

T0 = 1_795_200_000.0


def devices(*uuids):
    return [Device(n, n, uuid, "H200") for n, uuid in enumerate(uuids)]


def header(*uuids, pid=7, interval_s=1.0, time=T0):
    listed = devices(*uuids)
    return Header("gpu01", "boot", time, 0.0, interval_s, "0.1.0", listed, agent_pid=pid)


def sample(at, rows=None, states=None, events=()):
    return Sample(T0 + at, float(at), rows or {}, states or {}, list(events))


def busy(*values):
    return {"device": {n: {"busy_percent": value} for n, value in enumerate(values)}}


def store_of(*uuids, **more):
    store = Store()
    store.header("gpu01", header(*uuids, **more))
    return store, store.node("gpu01")


readings = st.one_of(
    st.floats(0, 100), st.integers(0, 100), st.sampled_from(sorted(REASONS)).map(Missing)
)


@given(
    st.lists(st.tuples(st.lists(readings, min_size=2, max_size=2), st.booleans()), max_size=8),
    st.floats(0, 20),
)
@examples(1000)
def test_missing_never_becomes_a_number(ticks, later):
    store, node = store_of("A", "B")
    for at, (values, lost) in enumerate(ticks):
        states = {1: State("lost", T0 + at, "Xid 79")} if lost else {}
        store.add("gpu01", sample(at, busy(*values), states))
    now = T0 + len(ticks) - 1 + later
    for key in (0, 1):
        shown = node.latest("device", key, "busy_percent", now)
        last = ticks[-1][0][key] if ticks else Missing("not-sampled")
        if key == 1 and ticks and ticks[-1][1]:
            assert shown.reading == Missing("lost")
            assert shown.reading.detail == "Xid 79"
            assert not shown.fresh
        else:
            assert shown.reading == last
            assert shown.fresh == (bool(ticks) and later <= 4)
        measured = [v[key] for v, _ in ticks if not isinstance(v[key], Missing)]
        assert node.peak("device", key, "busy_percent") == (max(measured) if measured else None)
        true_now = number_of(shown.reading) if shown.fresh else None
        assert node.numbers("device", [key, 99], "busy_percent", now) == [true_now, None]
        buckets = node.window("device", key, "busy_percent", T0 + 10, 20, 20)
        assert sum(bucket.count for bucket in buckets if bucket) == len(measured)
    assert [view.device.uuid for view in node.devices()] == ["A", "B"]


uuid_sets = st.lists(st.sampled_from("ABCDEF"), unique=True, max_size=6)


@given(st.lists(st.tuples(uuid_sets, st.booleans()), min_size=1, max_size=5))
@examples(1000)
def test_a_device_keeps_its_row_whatever_later_headers_name(headers):
    store = Store()
    rows = {}
    for run, (uuids, same_run) in enumerate(headers):
        store.header("gpu01", header(*uuids, pid=run))
        if same_run:
            store.header("gpu01", header(*uuids, pid=run))
        marks = {n: {"busy_percent": float(ord(uuid))} for n, uuid in enumerate(uuids)}
        store.add("gpu01", sample(run, {"device": marks}))
        node = store.node("gpu01")
        views = {view.device.uuid: view for view in node.devices()}
        for uuid, view in views.items():
            assert rows.setdefault(uuid, view.key) == view.key
            assert view.gone == (uuid not in uuids)
            shown = node.latest("device", view.key, "busy_percent", T0 + run)
            assert shown.reading == (Missing("lost") if view.gone else float(ord(uuid)))
            assert node.peak("device", view.key, "busy_percent") == ord(uuid)
        assert len(set(rows.values())) == len(rows) == len(node.devices())


def test_a_device_lost_before_it_could_be_asked_keeps_its_row_and_uuid():
    store, node = store_of("A", "B")
    store.header("gpu01", header("A", "", pid=8))
    assert [(view.key, view.device.uuid, view.gone) for view in node.devices()] == [
        (0, "A", False),
        (1, "B", False),
    ]


def test_a_new_stream_that_numbers_devices_otherwise_fills_the_same_rows():
    store, node = store_of("A", "B")
    store.add("gpu01", sample(0, busy(1.0, 2.0)))
    store.header("gpu01", header("B", pid=8))  # A fell off the bus, the agent was started again
    hung = {0: State("hung", T0 + 1)}
    xid = Event(T0 + 1, "xid", 0, text="79")
    usage = {"usage": {(0, 99): {"mem_bytes": 5}}}
    store.add("gpu01", sample(1, {**busy(22.0), **usage}, hung, [xid]))
    a, b = node.devices()
    assert (a.gone, a.state, a.xid) == (True, None, None)
    assert (b.gone, b.state.state, b.xid.text) == (False, "hung", "79")
    assert node.latest("device", 1, "busy_percent", T0 + 1).reading == 22
    assert node.events()[0].device == 1
    assert node.processes(T0 + 1)[0].usage[1]["mem_bytes"].reading == 5


def test_a_hung_device_keeps_its_value_with_its_age():
    store, node = store_of("A")
    store.add("gpu01", sample(0, busy(50.0)))
    store.add("gpu01", sample(1, {}, {0: State("hung", T0 + 1)}))
    assert node.latest("device", 0, "busy_percent", T0 + 2)[:] == (50.0, T0, 2.0, False)
    store.add("gpu01", sample(2, busy(60.0)))
    assert node.latest("device", 0, "busy_percent", T0 + 2).fresh


def test_freshness_is_judged_by_the_groups_period_and_the_nodes_interval():
    store, node = store_of("A")
    slow = {"device": {0: {"busy_percent": 1.0, "temperature_c": 40, "ecc_corrected": 0}}}
    store.add("gpu01", sample(0, slow))

    def fresh(field, age_s):
        return node.latest("device", 0, field, T0 + age_s).fresh

    assert (fresh("busy_percent", 4), fresh("busy_percent", 4.1)) == (True, False)
    assert (fresh("temperature_c", 16), fresh("temperature_c", 16.1)) == (True, False)
    assert (fresh("ecc_corrected", 181), fresh("ecc_corrected", 182)) == (True, False)
    store.header("gpu01", header("A", interval_s=10))
    assert (fresh("busy_percent", 31), fresh("busy_percent", 32)) == (True, False)


def test_readings_of_one_tick_do_not_renew_those_of_another():
    store, node = store_of("A")
    store.add("gpu01", sample(0, {"device": {0: {"busy_percent": 1.0, "temperature_c": 40}}}))
    store.add("gpu01", sample(5, busy(2.0)))
    row = node.row("device", 0, T0 + 5)
    assert {field: (one.reading, one.age_s) for field, one in row.items()} == {
        "busy_percent": (2.0, 0.0),
        "temperature_c": (40, 5.0),
    }
    assert node.keys("device") == [0]


def test_a_skewed_clock_ages_nothing():
    store, node = store_of("A")
    for at in range(5):
        store.add("gpu01", sample(at, busy(1.0)), received=T0 + at + 3600 + (0.3 if at else 0.1))
    assert node.clock_offset_s == pytest.approx(3600.1)
    shown = node.latest("device", 0, "busy_percent", T0 + 4 + 3600.6)
    assert (shown.age_s, shown.fresh) == (pytest.approx(0.5), True)


@pytest.mark.parametrize("jump_s", [-5, -300, -3600, -100_000])
def test_after_a_clock_was_set_back_the_newest_samples_are_shown(jump_s):
    store, node = store_of("A")
    for at in range(700):
        store.add("gpu01", sample(at, busy(10.0)))
    for at in range(700, 730):
        store.add("gpu01", sample(at, busy(90.0))._replace(time=T0 + at + jump_s))
    shown = node.window("device", 0, "busy_percent", node.last_time, 20, 20)
    assert [bucket.high for bucket in shown] == [90] * 20


def test_bursts_between_ticks_reach_the_series_and_the_peak():
    store, node = store_of("A")
    burst = {"busy_percent": 0.0, "busy_min_percent": 0.0, "busy_max_percent": 97.0}
    store.add("gpu01", sample(0, {"device": {0: burst}}))
    store.add("gpu01", sample(1, {"device": {0: {**burst, "busy_max_percent": MIG}}}))
    low, mean, high, count = node.window("device", 0, "busy_percent", T0 + 1, 604_800, 2)[-1]
    assert (low, mean, high, count) == (0, 0, 97, 2)
    assert node.peak("device", 0, "busy_percent") == 97


def process_event(at, pid, start=1.0, **more):
    data = {"user": "ada", "command": "python train.py", "name": "python", "start": start, **more}
    return Event(T0 + at, "process", pid=pid, data=data)


def test_ended_processes_are_listed_for_a_minute_more():
    store, node = store_of("A")
    rows = {"usage": {(0, 5): {"mem_bytes": 10, "type": "C"}}, "process": {5: {"threads": 3}}}
    store.add("gpu01", sample(0, rows, events=[process_event(0, 5, in_job=True)]))
    (view,) = node.processes(T0)
    assert (view.facts.user, view.facts.in_job, view.ended) == ("ada", True, None)
    assert view.usage[0]["mem_bytes"].reading == 10
    assert view.readings["threads"].reading == 3
    store.add("gpu01", sample(1, events=[Event(T0 + 1, "process-end", pid=5)]))
    assert node.processes(T0 + 1)[0].ended == T0 + 1
    store.add("gpu01", sample(ENDED_KEPT_S + 20))
    assert node.processes(T0 + ENDED_KEPT_S + 20) == []
    assert node.keys("usage") == node.keys("process") == []
    assert node.events() == []


def test_a_number_used_again_is_another_process():
    store, node = store_of("A")
    rows = {"process": {5: {"threads": 64}}}
    store.add("gpu01", sample(0, rows, events=[process_event(0, 5)]))
    store.add("gpu01", sample(1, events=[process_event(1, 5, start=2.0)]))
    (view,) = node.processes(T0 + 1)
    assert (view.facts.start, view.readings, view.ended) == (2.0, {}, None)
    assert node.peak("process", 5, "threads") is None


def test_what_a_new_stream_does_not_name_has_ended():
    store, node = store_of("A")
    store.add("gpu01", sample(0, events=[process_event(0, 5), process_event(0, 6)]))
    store.header("gpu01", header("A", pid=8, time=T0 + 9))
    store.add("gpu01", sample(10, events=[process_event(10, 6)]))
    assert [(view.facts.pid, view.ended) for view in node.processes(T0 + 10)] == [
        (5, T0 + 9),
        (6, None),
    ]


def test_a_usage_row_ends_when_its_process_left_the_device():
    store, node = store_of("A")
    rows = {"usage": {(0, 5): {"mem_bytes": 10}}}
    store.add("gpu01", sample(0, rows, events=[process_event(0, 5)]))
    store.add("gpu01", sample(ENDED_KEPT_S + 20))
    (view,) = node.processes(T0 + 80)
    assert (view.usage, view.ended) == ({}, None)


def test_processes_on_a_device_are_those_with_usage_there():
    store, node = store_of("A", "B")
    usage = {(0, 5): {"mem_bytes": 1}, (1, 5): {"mem_bytes": 1}, (1, 6): {"mem_bytes": 2}}
    started = [process_event(0, 5, framework="jax"), process_event(0, 6)]
    store.add("gpu01", sample(0, {"usage": usage}, events=started))
    held = node.frozen()
    bare = [view._replace(readings={}, usage={key: {} for key in view.usage})
            for view in node.processes(T0)]  # fmt: skip
    assert node.processes(None) == bare
    assert [facts.pid for facts in node.processes_on(0)] == [5]
    assert [facts.framework for facts in node.processes_on(1)] == ["jax", ""]
    assert node.processes_on(2) == []
    store.add("gpu01", sample(1, events=[process_event(1, 5, start=2.0)]))  # the number again
    assert node.processes_on(0) == []
    assert [facts.pid for facts in held.processes_on(0)] == [5]


def test_facts_of_a_wrong_type_are_left_out():
    data = {"user": 5, "command": "x", "own": "yes", "ppid": 3, "hints": None, "start": 7}
    facts = Process.of(Event(T0, "process", pid=9, data=data))
    assert (facts.pid, facts.user, facts.command, facts.own) == (9, "", "x", False)
    assert (facts.ppid, facts.hints, facts.start) == (3, {}, 7.0)


def test_a_live_stream_without_samples_is_stale():
    store, node = store_of("A")
    assert node.status(T0).state == "connecting"
    store.status("gpu01", Status("live", T0, source="ssh"))
    store.add("gpu01", sample(0))
    assert node.status(T0 + 4).state == "live"
    assert node.status(T0 + 12) == ("stale", T0, "no sample for 12 s", "ssh")
    store.status("gpu01", Status("lost", T0 + 13, "connection reset", "ssh"))
    assert node.status(T0 + 14).detail == "connection reset"


def test_generations_tell_what_changed():
    store, node = store_of("A", "B")
    before = store.generation, node.generation
    views = node.devices()
    store.add("gpu01", sample(0, busy(1.0)))
    assert store.generation > before[0]
    assert node.generation > before[1]
    assert all(new is old for new, old in zip(node.devices(), views))
    store.add("gpu01", sample(1, {}, {1: State("lost", T0)}))
    assert [new is old for new, old in zip(node.devices(), views)] == [True, False]
    assert node.devices()[1].state == State("lost", T0)
    other = node.generation
    store.add("gpu02", sample(1))
    assert node.generation == other
    assert [each.name for each in store.nodes()] == ["gpu01", "gpu02"]


def test_job_peaks_over_a_minute():
    store, node = store_of("A")
    for at in range(181):
        cores = 8.0 if 60 <= at < 120 or at == 150 else 1.0
        rows = {"job": {"": {"cpu_cores_used": cores + (56 if at == 150 else 0)}}}
        store.add("gpu01", sample(at, rows))
    assert node.peak("job", "", "cpu_cores_used") == 64
    assert node.peak60("job", "", "cpu_cores_used") == pytest.approx(8)
    assert node.stats("job", "", "cpu_cores_used", T0, T0 + 60).mean == pytest.approx(1)
    assert node.first_time("job", "", "cpu_cores_used") == T0


def test_a_period_that_is_no_multiple_of_the_interval_makes_no_false_gaps():
    """5 s fields on a clock of 4 s come now 4 s apart, now 8 s: longer than 1.5 × 5 s."""
    store, node = store_of("A", interval_s=4.0)
    schedule = Schedule()
    ticks = [at for at in range(0, 300, 4) if schedule.due("thermal", 5, at)]
    assert max(after - before for before, after in zip(ticks, ticks[1:])) == 8
    for at in ticks:
        store.add("gpu01", sample(at, {"device": {0: {"temperature_c": 50}}}))
    assert None not in node.window("device", 0, "temperature_c", T0 + ticks[-1], 200, 200)


def test_missing_readings_leave_gaps():
    store, node = store_of("A")
    for at, value in enumerate([50.0, MIG, MIG, 60.0]):
        store.add("gpu01", sample(at, busy(value)))
    shown = node.window("device", 0, "busy_percent", T0 + 3, 4, 4)
    assert [bucket and bucket.mean for bucket in shown] == [50, None, None, 60]


def test_a_broken_stream_fills_no_memory():
    store, node = store_of()
    names = {f"eth{n}": {"rx_bytes_per_s": MIG} for n in range(10_000)}
    store.add("gpu01", sample(0, {"net": names}))
    events = [process_event(0, pid) for pid in range(10_000)]
    store.add("gpu01", sample(0, events=events))
    store.add("gpu01", sample(0, events=[Event(T0 + n, "note", text="x") for n in range(5000)]))
    assert len(node.keys("net")) == len(node.processes(T0)) == 4096
    assert len(node.events()) == 1000
    assert len(node.events(since=T0 + 4990)) == 9


def test_unknown_nodes_and_entities_are_no_error():
    store = Store()
    assert store.node("gpu01") is None
    store.add("gpu01", sample(0, {"future": {"x": {"new_percent": 5}}}))
    node = store.node("gpu01")
    assert node.header is None
    assert node.latest("future", "x", "new_percent", T0).reading == 5
    assert node.latest("device", 0, "busy_percent", T0).reading == Missing("not-sampled")
    assert node.window("device", 0, "busy_percent", T0, 10, 2) == [None, None]
    assert node.stats("device", 0, "busy_percent", T0, T0 + 1).mean is None
    assert node.row("device", 0, T0) == {}
    assert node.peak("device", 0, "busy_percent") is None


def test_the_job_of_a_header_is_kept():
    store = Store()
    store.header("gpu01", header("A")._replace(job=JobContext("4711")))
    assert store.node("gpu01").header.job.id == "4711"


def test_streams_may_write_while_the_screen_reads():
    store = Store()
    failures = []

    def stream(name):
        try:
            store.header(name, header("A", "B"))
            for at in range(300):
                rows = {**busy(1.0 * at, MIG), "process": {at: {"threads": 1}}}
                store.add(name, sample(at, rows, events=[process_event(at, at)]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=stream, args=(f"gpu{n:02}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for node in store.nodes():
            node.processes(T0)
            node.devices()
            node.window("device", 0, "busy_percent", T0 + 300, 300, 100)
    assert failures == []
    for node in store.nodes():
        shown = node.window("device", 0, "busy_percent", T0 + 299, 300, 10)
        assert sum(bucket.count for bucket in shown) == 300


# -- what is the job's no more -------------------------------------------------------------------
def leave(store, at):
    store.status("gpu01", Status(LEFT, T0 + at, "no longer part of the job"))


def test_the_gpus_of_an_earlier_attempt_are_left_and_not_lost():
    store, node = store_of("A", "B")
    for second in range(3):
        store.add("gpu01", sample(second, busy(90, 90)))
    leave(store, 3)
    assert node.is_left
    assert [(view.left, view.gone) for view in node.devices()] == [(True, False)] * 2
    store.header("gpu01", header("B", "C", pid=8, time=T0 + 100))
    store.status("gpu01", Status("live", T0 + 100))
    store.add("gpu01", sample(100, busy(5, 6)))
    shown = {view.device.uuid: (view.key, view.left, view.gone) for view in node.devices()}
    assert shown == {"A": (0, True, False), "B": (1, False, False), "C": (2, False, False)}
    assert node.latest("device", 1, "busy_percent", T0 + 100).reading == 5
    gone = node.latest("device", 0, "busy_percent", T0 + 100)
    assert (gone.reading, gone.reading.detail, gone.fresh) == (Missing("not-sampled"), LEFT, False)


def test_peaks_are_of_this_attempt_and_the_series_of_all():
    store, node = store_of("A")
    rows = busy(90)
    rows["device"][0]["sm_clock_mhz"] = 1980
    for second in range(130):
        store.add("gpu01", sample(second, rows))
    assert node.peak60("device", 0, "busy_percent") == 90
    leave(store, 130)
    assert node.peak60("device", 0, "busy_percent") is None
    assert node.peak("device", 0, "busy_percent") is None
    assert node.since == T0 + 130
    store.header("gpu01", header("A", pid=8, time=T0 + 140))
    store.add("gpu01", sample(140, busy(5)))
    assert node.peak("device", 0, "busy_percent") == 5
    assert node.first_time("device", 0, "busy_percent") == T0
    assert node.stats("device", 0, "busy_percent", T0, T0 + 130).mean == pytest.approx(90)


def test_processes_of_an_earlier_attempt_have_ended():
    store, node = store_of("A")
    event = Event(T0, "process", pid=5, data={"command": "python train.py"})
    store.add("gpu01", sample(0, busy(90), events=[event]))
    leave(store, 1)
    (process,) = node.processes(T0 + 1)
    assert process.ended == T0 + 1


def test_of_nodes_that_were_left_the_last_ones_are_kept():
    store = Store()
    for number in range(LEFT_KEPT + 3):
        store.status(f"n{number}", Status("live", T0))
        store.status(f"n{number}", Status(LEFT, T0 + number, "no longer part of the job"))
    store.status("now", Status("live", T0))
    assert len(store.nodes()) == LEFT_KEPT + 1
    assert store.node("n2") is None
    assert store.node("n3").is_left
