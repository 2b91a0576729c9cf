"""Clocks that are set, drift, sleep or start again: ages, series and verdicts stay right.

Nodes and machines are simulated second by second; decoder, follower, store and rules are real.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from math import inf
from tempfile import TemporaryDirectory

import psutil
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.time import time_short
from gpumon.analysis.run import LIVE, run_of
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Device, Event, Header, JobContext, Sample, State
from gpumon.model.units import age_text
from gpumon.recording import Recorder, Recording
from gpumon.recording.reader import frames_of
from gpumon.site import Site
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.runner import Result
from gpumon.sources.attempt import Attempt
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.sources.watched import WatchedJob
from gpumon.store import Store
from gpumon.transport.stream import Failure
from gpumon.tui.dialogs.signals import Target, send_signal
from gpumon.tui.parts.title import time_row, title_row
from gpumon.wire.encoder import Encoder
from tests.frames.framing import FramedRecorder, Gathering
from tests.sources.sinks import node
from tests.support.examples import examples
from tests.tui.looking import Looking

T0 = 1_795_200_000.0
HOUR = 3600.0
SLACK_S = 2.0  # a whole second of correction, and lines on their way
DELAY_S = 0.1


class Node:
    """One node's clocks by the true time: seconds since the simulation began."""

    def __init__(self, offset_s=0.0, drift=0.0, mono=4444.0):
        self.offset_s = offset_s  # of the wall clock
        self.drift = drift
        self.mono = mono
        self.boot = 1

    def wall_at(self, true):
        return T0 + true + self.offset_s + self.drift * true

    def header(self, true):
        job = JobContext("7", start=T0 - 60, end=T0 + 24 * HOUR, source="slurm")
        return Header(
            "n1", f"boot{self.boot}", self.wall_at(true), self.mono + true, 1.0, "0.1.0",
            [Device(0, 0, "GPU-a", "H200", facts={"mem_total_bytes": 80 << 30})], "580.1",
            job=job, agent_pid=7,
        )  # fmt: skip

    def sample(self, true, states=None, events=()):
        row = {"busy_percent": 97, "mem_used_bytes": 60 << 30, "power_w": 600.0}
        rows = {"device": {0: row}, "host": {"": {"cpu_percent": 50.0}}}
        wall = self.wall_at(true)
        return Sample(wall, self.mono + true, rows, states or {}, [
            event._replace(time=wall) for event in events
        ])  # fmt: skip


def play(schedule, offset_s=0.0, drift=0.0, ticks=120):
    """[(true arrival, true time of what it holds or None, item)] of a node that lives through it.

    `schedule`: tick -> [(what happens before it, by how many seconds)].
    """
    node, true, blocked_until, told = Node(offset_s, drift), 0.0, 0.0, []
    told.append((DELAY_S, None, node.header(0.0)))
    for tick in range(ticks):
        for what, by in schedule.get(tick, ()):
            if what == "set":
                node.offset_s += by
            elif what == "sleep" and true >= blocked_until:  # m stands still meanwhile
                true += abs(by)
                node.mono -= abs(by)
            elif what == "reboot" and true >= blocked_until:
                true += abs(by)
                node.offset_s, node.mono, node.boot = by, 10.0 - true, node.boot + 1
                told.append((max(true + DELAY_S, blocked_until), None, node.header(true)))
            elif what == "stall":  # what comes meanwhile arrives at once
                blocked_until = true + abs(by)
        told.append((max(true + DELAY_S, blocked_until), true, node.sample(true)))
        true += 1.0
    return told


class Lines:
    """A stream that gives each line at its time; `look` is called before the next one comes."""

    def __init__(self, told, look=lambda arrival: None):
        self._told = iter(told)
        self._encoder = Encoder()
        self._look = look
        self.now = T0

    def read(self):
        arrival, _, item = next(self._told, (None, None, None))
        self._look(inf if arrival is None else arrival)
        if item is None:
            return b""
        self.now = T0 + arrival
        told = self._encoder.header if isinstance(item, Header) else self._encoder.sample
        return told(item).encode() + b"\n"

    def write(self, data):
        pass

    def complaint(self):
        return ""


class Both:
    """The store, and what gathers for the verdict; the times that came."""

    def __init__(self):
        self.store, self.gathering = Store(), Gathering(LIVE)
        self.times, self.events = [], []

    def header(self, node, header):
        self.store.header(node, header)
        self.gathering.add(node, header)

    def add(self, node, sample, received=None):
        self.times.append(sample.time)
        self.events += sample.events
        self.store.add(node, sample, received)
        self.gathering.add(node, sample)

    def status(self, node, status):
        self.store.status(node, status)

    def reset(self):
        pass


def follow(told, look=lambda sink, arrival: None):
    sink = Both()
    stream = Lines(told, lambda arrival: look(sink, arrival))
    attempt = Attempt(None, node(stream, sink), now=lambda: stream.now)
    with contextlib.suppress(Failure):
        attempt.arrive()
        while attempt.take():
            pass
    return sink


def age_of(store, now):
    return store.node("n1").latest("device", 0, "busy_percent", now)


sizes = st.one_of(st.floats(0.2, 30.0), st.floats(60.0, 3 * HOUR), st.sampled_from([1.0, 2 * HOUR]))
amounts = st.builds(lambda size, sign: size * sign, sizes, st.sampled_from([1, -1]))
happenings = st.one_of(
    st.tuples(st.just("set"), st.one_of(amounts, st.sampled_from([1e6, -1e6]))),
    st.tuples(st.sampled_from(["sleep", "reboot", "stall"]), amounts),
)
schedules = st.dictionaries(st.integers(5, 110), happenings.map(lambda one: [one]), max_size=6)
offsets = st.one_of(st.just(0.0), st.floats(-1.0, 1.0), st.floats(-1e6, 1e6))
drifts = st.sampled_from([0.0, 1e-4, -1e-4])  # more than crystals do


@given(schedules, offsets, drifts)
@examples(60, phases=[Phase.reuse, Phase.generate])
def test_whatever_happens_to_a_nodes_clock_its_samples_keep_their_true_age(
    schedule, offset_s, drift
):
    told = play(schedule, offset_s, drift)
    sampled = []  # (arrival, true time) of what has come so far

    def look(sink, arrival):
        """Just after the newest sample came, and just before the next line comes."""
        if not sampled or sink.store.node("n1") is None:
            return
        came, true = sampled[-1]
        for at in (came, min(arrival, came + 3 * HOUR)):
            shown = age_of(sink.store, T0 + at)
            assert shown.age_s == pytest.approx(at - true, abs=SLACK_S + DELAY_S)
            if at - true <= 1.5:
                assert shown.fresh

    def steps():
        for arrival, true, item in told:
            yield arrival, true, item
            if true is not None:
                sampled.append((arrival, true))

    sink = follow(steps(), look)
    truths = [true for _, true, _ in told if true is not None]
    assert len(sink.times) == len(truths)  # nothing is lost
    assert sink.times == sorted(sink.times)
    lasted_s = sink.times[-1] - sink.times[0]
    assert lasted_s == pytest.approx(truths[-1] - truths[0], abs=3 * SLACK_S)
    assert abs(sink.times[-1] - T0 - truths[-1]) <= 3 * SLACK_S  # on our clock
    evidence = sink.gathering.data(None, Site(), live=True)
    assert not [each for each in evaluate(evidence).findings if each.level == "critical"]


@pytest.mark.parametrize("by", [2 * HOUR, -2 * HOUR])
def test_three_samples_two_hours_off_leave_no_trace(by):
    told = play({30: [("set", by)], 33: [("set", -by)]}, ticks=60)
    sink = follow(told)
    node, now = sink.store.node("n1"), T0 + 59.2
    assert age_of(sink.store, now).fresh
    buckets = node.window("device", 0, "busy_percent", now, 60, 60)
    assert sum(bucket.count for bucket in buckets if bucket) >= 59
    texts = [event.text for event in sink.events if event.kind == "note"]
    ahead, back = ("forward", "back") if by > 0 else ("back", "forward")
    assert texts == [
        f"the node's clock was set {how} by 2 h 00 min; times are corrected"
        for how in (ahead, back)
    ]


@pytest.mark.parametrize("by", [2 * HOUR, -2 * HOUR])
def test_the_store_alone_is_not_misled(by):
    """Without the follower's correction: what feeds it may be another's."""
    store = Store()
    for arrival, true, item in play({30: [("set", by)], 33: [("set", -by)]}, ticks=60):
        if true is None:
            store.header("n1", item)
        else:
            store.add("n1", item, T0 + arrival)
            assert age_of(store, T0 + arrival).fresh
    assert age_of(store, T0 + 59.2).fresh
    assert not age_of(store, T0 + 70).fresh


def test_a_burst_after_a_stall_is_as_old_as_its_samples():
    told = play({30: [("stall", 25.0)]}, ticks=56)
    burst = [each for each in told if each[0] == 55.0]
    assert len(burst) == 25
    seen = []

    def look(sink, arrival):
        if sink.times and arrival in (55.0, 55.1):
            seen.append(age_of(sink.store, T0 + 55.0).age_s)

    follow(told, look)
    ages = seen[1:]  # the first is before the burst
    assert ages == pytest.approx([25.0 - n - DELAY_S for n in range(25)], abs=0.2)


def test_two_nodes_that_disagree_by_hours_are_on_one_axis():
    gathering = Gathering(LIVE)
    for name, offset_s in (("n1", 0.0), ("n2", 5 * HOUR), ("n3", -7 * HOUR)):
        sink = follow(play({}, offset_s, ticks=120))
        axis = Axis(ours=True)
        for arrival, true, item in play({}, offset_s, ticks=120):
            placed = axis.header if true is None else axis.sample
            gathering.add(name, placed(item, T0 + arrival))
        assert abs(sink.times[0] - T0) < SLACK_S
    evidence = gathering.data(None, Site(), live=True)
    assert evidence.end - T0 < 121
    assert evidence.coverage.covered_percent > 60  # the job began a minute before the samples


def test_what_is_on_an_axis_stays_as_it_is():
    first, again = Axis(ours=True), Axis()
    for arrival, true, item in play(
        {9: [("set", 7211.4)], 20: [("sleep", 600.0)], 40: [("reboot", -300.0)]}, 4.4 * HOUR
    ):
        name = "header" if true is None else "sample"
        once = getattr(first, name)(item, T0 + arrival)
        assert getattr(again, name)(once) is once


def test_events_and_states_move_with_their_samples():
    node, axis = Node(), Axis()
    axis.header(node.header(0))
    lost = {0: State("lost", node.wall_at(0), "Xid 79")}
    axis.sample(node.sample(1, lost))
    stale = Event(node.wall_at(1.5), "xid", device=0, text="79")  # read before the clock was set
    node.offset_s += 2 * HOUR
    process = Event(0, "process", pid=5, data={"start": node.wall_at(2) - 100.0})
    forward = node.sample(2, lost, [process])
    moved = axis.sample(forward._replace(events=[stale, *forward.events]))
    assert moved.time == pytest.approx(T0 + 2)
    assert moved.states[0].since == T0
    xid, appeared, note = moved.events
    assert T0 - 60 < xid.time <= moved.time
    assert appeared.data["start"] == pytest.approx(T0 + 2 - 100)
    assert (note.kind, note.time) == ("note", moved.time)
    node.offset_s -= 2 * HOUR
    ahead = Event(T0 + 2 * HOUR, "xid", device=0, text="79")  # of the time in which it was ahead
    back = axis.sample(node.sample(3, lost)._replace(events=[ahead]))
    assert (back.time, back.states[0].since) == (T0 + 3, T0)
    assert back.events[0].time == T0 + 3


def test_a_header_that_is_repeated_is_no_new_boot():
    node, axis = Node(), Axis()
    first = axis.header(node.header(0))
    axis.sample(node.sample(1))
    node.offset_s += 2 * HOUR
    axis.sample(node.sample(2))
    assert axis.header(first._replace(notes=["1 line could not be read"])).time <= T0 + 2
    assert axis.sample(node.sample(3)).time == pytest.approx(T0 + 3)


def test_a_clock_that_is_set_all_the_time_fills_no_memory():
    schedule = {tick: [("set", HOUR if tick % 2 else -HOUR)] for tick in range(1, 400)}
    sink = follow(play(schedule, ticks=400))
    assert len([event for event in sink.events if event.kind == "note"]) == 100
    assert sink.times == pytest.approx([T0 + n for n in range(400)], abs=SLACK_S)


def test_our_clock_goes_on_when_the_wall_clock_is_set(monkeypatch):
    wall, before = time.time, clock.now()
    for by in (2 * HOUR, -2 * HOUR, -1e9):
        monkeypatch.setattr(time, "time", lambda by=by: wall() + by)
        assert 0 <= clock.now() - before < 60
        assert clock.set_by() == pytest.approx(by, abs=60)
        assert clock.wall(clock.now()) == pytest.approx(time.time(), abs=2)
    monkeypatch.undo()
    assert clock.set_by() == 0.0


def test_our_clock_counts_the_time_in_suspend(monkeypatch):
    real = time.clock_gettime
    slept = {time.CLOCK_BOOTTIME: HOUR}
    before = clock.now()
    monkeypatch.setattr(time, "clock_gettime", lambda name: real(name) + slept.get(name, 0.0))
    assert clock.now() - before >= HOUR


def test_the_title_shows_the_wall_clock_and_ages_do_not(monkeypatch):
    store, wall, begun = Store(), time.time, clock.now()
    node = Node(begun - T0)
    store.header("n1", node.header(0))
    store.add("n1", node.sample(0), begun)
    monkeypatch.setattr(time, "time", lambda: wall() + 2 * HOUR)
    moment = Looking(store.nodes(), clock.now()).moment
    text = "".join(part for part, _ in title_row(moment, 120))
    labels = [time.strftime("%H:%M:%S", time.localtime(time.time() - n)) for n in range(60)]
    assert any(label in text for label in labels)
    assert age_of(store, clock.now()).age_s < 60


@pytest.mark.parametrize("set_by", [2 * HOUR, -2 * HOUR])
def test_a_process_can_be_signalled_after_the_clock_was_set(monkeypatch, set_by):
    """Its start is told by the boot time, which the kernel moves with the wall clock."""
    wall, start_time = time.time, psutil.Process.create_time
    started = psutil.Process().create_time()
    monkeypatch.setattr(time, "time", lambda: wall() + set_by)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: start_time(self) + set_by)
    same, other = (Target(os.getpid(), started - ago, "pytest") for ago in (0, 30))
    assert send_signal(same, signal.SIGCONT).startswith("sent")
    assert "another process" in send_signal(other, signal.SIGCONT)


# -- Slurm's clock ---------------------------------------------------------------------------------
class Controller:
    """squeue on a cluster whose clock is right; ours may not be."""

    def __init__(self, limit_s=12 * HOUR, suspended_s=0.0):
        self.limit_s, self.suspended_s = limit_s, suspended_s
        self.true = 0.0  # seconds since the job's start

    def run(self, argv, *, env, timeout_s):
        if argv[0] != "squeue":
            return Result(1, b"", "Invalid job id specified")
        values = {
            "JobID": "7", "JobArrayID": "7", "State": "RUNNING", "NumNodes": "1", "NumCPUs": "8",
            "StartTime": int(T0), "SubmitTime": int(T0) - 9, "NodeList": "n1",
            "EndTime": int(T0 + self.suspended_s + self.limit_s), "Name": "train",
            "TimeLimit": slurm_form(self.limit_s), "UserName": "ada",
            "TimeUsed": slurm_form(self.true - self.suspended_s),
        }  # fmt: skip
        columns = [each.partition(":") for each in argv[4].split(",")]
        row = "".join(f"{values.get(name, 'N/A')}{end}" for name, _, end in columns)
        return Result(0, f"{row}\n".encode(), "")


def slurm_form(seconds):
    whole = int(seconds)
    return f"{whole // 86400}-{whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def not_wanted(jobs):
    raise AssertionError("nobody attaches")


@given(
    st.floats(-1e6, 1e6), st.floats(60, 11.5 * HOUR), st.floats(0, 600), st.sampled_from([0, 1800])
)
@examples(100, phases=[Phase.reuse, Phase.generate])
def test_time_left_is_slurms_however_wrong_our_clock_is(skew_s, true, later_s, suspended_s):
    suspended_s = min(suspended_s, true - 1)
    controller = Controller(suspended_s=suspended_s)
    controller.true = true
    told_at = T0 + true + skew_s
    slurm = Slurm(controller, now=lambda: told_at, clock=lambda: 1000.0)
    job = WatchedJob(slurm.live("7"), lambda soon: (), not_wanted, 1.0).job()
    now = told_at + later_s
    left_s = 12 * HOUR - (true - suspended_s + later_s)
    assert job.time_limit_s - job.elapsed_at(now) == pytest.approx(left_s, abs=1.1)
    assert job.end - now == pytest.approx(left_s, abs=7)
    text = "".join(part for part, _ in time_row(Looking(now=now, job=job).moment, 120))
    assert f"{age_text(left_s)} left" in text or f"{age_text(left_s + 1)} left" in text

    gathering = Gathering(LIVE)
    node = Node(now - 60 - T0)
    gathering.add("n1", node.header(0)._replace(job=None))
    for second in range(61):
        gathering.add("n1", node.sample(second))
    found = time_short(gathering.data(job, Site(), live=True))
    assert isinstance(found, list)
    levels = [each.level for each in found]
    assert levels == (["critical"] if left_s < 1.2 * HOUR - 2 else []) or left_s < 1.2 * HOUR + 2


def test_a_suspended_job_has_as_much_time_left_an_hour_later():
    job = Job(
        state="SUSPENDED", start=T0, end=T0 + 10 * HOUR, elapsed_s=HOUR, time_limit_s=4 * HOUR,
        told_at=T0 + 2 * HOUR,
    )  # fmt: skip
    assert job.elapsed_at(T0 + 3 * HOUR) == HOUR
    assert job.ahead_s is None


def test_a_node_that_puts_the_job_beyond_its_end_proves_nothing():
    """Slurm did not answer; start and end are those of the job's environment."""
    gathering, node = Gathering(LIVE), Node(offset_s=30 * HOUR)
    gathering.add("n1", node.header(0))
    for second in range(60):
        gathering.add("n1", node.sample(second))
    answer = time_short(gathering.data(None, Site(), live=True))
    assert "clock" in answer.detail


def test_the_moment_of_an_answer_stays_with_its_figure():
    ours = Job(state="RUNNING", start=T0, told_at=T0 + 50)
    theirs = Job(state="RUNNING", elapsed_s=30.0, told_at=T0 + 30)
    assert ours.merged(theirs).told_at == T0 + 30
    assert replace(ours, elapsed_s=50.0).merged(theirs).told_at == T0 + 50
    assert "told_at" not in ours.with_source("squeue").sources


# -- recordings ------------------------------------------------------------------------------------
JUMPY = {20: [("set", 2 * HOUR)], 23: [("set", -2 * HOUR)], 60: [("set", -5 * HOUR)]}


def lines_of(told):
    encoder = Encoder()
    return b"".join(
        (encoder.header if isinstance(item, Header) else encoder.sample)(item).encode() + b"\n"
        for _, _, item in told
    )


def check_replayed(items, told):
    """As long as it really was, in order, nothing lost."""
    times = [item.time for item in items if isinstance(item, Sample) and item.rows]
    truths = [true for _, true, _ in told if true is not None]
    assert len(times) == len(truths)
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(truths[-1] - truths[0], abs=SLACK_S)


@given(schedules, drifts)
@examples(25, phases=[Phase.reuse, Phase.generate])
def test_a_recording_is_as_long_as_the_run_whatever_the_clock_did(schedule, drift):
    schedule = {
        tick: [each for each in happens if each[0] == "set"] for tick, happens in schedule.items()
    }
    told = play(schedule, drift=drift)
    with TemporaryDirectory() as folder:
        path = f"{folder}/run.gpumon"
        recorder = FramedRecorder(path)
        for _, true, item in told:
            recorder.header(item) if true is None else recorder.add(item)
        recorder.close()
        with Recording(path) as recording:
            assert recording.end - recording.start == pytest.approx(119, abs=SLACK_S)
            check_replayed(recording.items(), told)
            (node,) = run_of([("n1", frames_of(recording.stretches()))]).data().nodes
        assert node.covered_s == pytest.approx(120, abs=2 * SLACK_S)
        again = Axis()
        with Recording(path) as recording:
            assert all(again.item(item) is item for item in recording.items())


def test_lines_with_jumps_are_read_without_them(tmp_path):
    """Of a file that something else wrote: as plain lines, and in frames."""
    told = play(JUMPY)
    (tmp_path / "run.jsonl").write_bytes(lines_of(told))
    check_replayed(list(Recording(str(tmp_path / "run.jsonl")).items()), told)
    (tmp_path / "run.gpumon").write_bytes(ZstdCompressor().compress(lines_of(told)))
    with Recording(str(tmp_path / "run.gpumon")) as recording:
        check_replayed(recording.items(), told)
        evidence = run_of([("n1", frames_of(recording.stretches()))]).data()
    assert evidence.elapsed_s < 200  # the job began a minute before
    assert not [each for each in evaluate(evidence).findings if each.level == "critical"]


def test_a_recording_with_jumps_is_played_in_its_own_time(tmp_path):
    told = play(JUMPY)
    (tmp_path / "run.jsonl").write_bytes(lines_of(told))
    source = ReplaySource(tracks_of([str(tmp_path / "run.jsonl")]), ahead_s=200.0)
    sink = Both()
    source.start(sink)
    source.stop()
    assert sink.times == sorted(sink.times)
    assert len(sink.times) == 120
    assert sink.times[-1] - T0 == pytest.approx(119, abs=SLACK_S)


def test_a_mark_lies_where_the_samples_are(tmp_path):
    node, path = Node(), str(tmp_path / "run.gpumon")
    recorder = Recorder(path)
    recorder.header(node.header(0))
    recorder.add(node.sample(1))
    node.offset_s += 2 * HOUR
    recorder.add(node.sample(2))
    recorder.mark(node.wall_at(2.5), "epoch 1/3")
    recorder.close()
    with Recording(path) as recording:
        (mark,) = [
            event for item in recording.items() if isinstance(item, Sample)
            for event in item.events if event.kind == "mark"
        ]  # fmt: skip
    assert mark.time == pytest.approx(T0 + 2.5)
