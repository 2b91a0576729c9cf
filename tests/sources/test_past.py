"""What was recorded before the screen began is drawn once the time axis shows it."""

import pytest

from gpumon.model.sample import Device, Event, Header, JobContext, Sample
from gpumon.model.view import Status
from gpumon.pipeline.pipeline import Pipeline
from gpumon.recording import Recorder
from gpumon.recording.runs import new_path, recorded_before
from gpumon.services.playing import open_replay, playing
from gpumon.sources.files import Past
from gpumon.store import Store
from tests.support.waiting import until

START = 1_795_200_000.0
PID = 77
BUSY = {"busy_percent": 90, "mem_used_bytes": 1 << 30}


def header(at, *, job="4711", node="gpu01", pid=1, uuids=("GPU-a", "GPU-b"), restarts=0):
    context = job and JobContext(job, cluster="c", restarts=restarts, start=START - 60)
    devices = [Device(n, n, uuid, "A100") for n, uuid in enumerate(uuids)]
    return Header(node, "boot", at, at - START + 9, 1.0, "0", devices, job=context or None,
                  agent_pid=pid)  # fmt: skip


def sample(at, busy=90, events=()):
    rows = {
        "host": {"": {"cpu_percent": 10.0}},
        "device": {0: {"busy_percent": busy}, 1: {"busy_percent": 5}},
        "usage": {(0, PID): {"mem_bytes": float(busy << 20)}},
        "process": {PID: {"cpu_percent": float(busy), "rss_bytes": 1e9}},
    }
    return Sample(at, at - START + 9, rows, {}, list(events))


def runs(at, start=START - 50):
    """The event that names the process, which began then."""
    facts = {"user": "ada", "command": "python a.py", "name": "python", "start": start}
    return Event(at, "process", pid=PID, data=facts)


def record(begin, seconds, *, events=(), **known):
    """A recording in the state folder; returns its path."""
    first = header(begin, **known)
    recorder = Recorder(new_path(first, begin))
    recorder.header(first)
    for second in range(seconds):
        at = begin + second
        of_process = [] if second else [runs(at)]
        told = [each for each in events if at <= each.time < at + 1]
        recorder.add(sample(at, events=[*of_process, *told]))
    recorder.end("done")
    recorder.close()
    return recorder.path


class Live:
    """A source that begins then, and shows so many seconds at once."""

    name = "ssh"

    def __init__(self, at, seconds=30, began=START - 50, **known):
        self.header, self.at, self.seconds = header(at, pid=2, **known), at, seconds
        self.began = began

    def start(self, sink):
        sink.status("gpu01", Status("live", self.at))
        sink.header("gpu01", self.header)
        for second in range(self.seconds):
            events = [] if second else [runs(self.at, self.began)]
            sink.add("gpu01", sample(self.at + second, 20, events))

    def now(self):
        return self.at + self.seconds - 1

    def stop(self):
        pass


def shown(pipeline, span_s=600, count=60, key=0):
    (node,) = pipeline.nodes()
    buckets = node.window("device", key, "busy_percent", pipeline.now(), span_s, count)
    return [bucket and round(bucket.mean) for bucket in buckets]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))


@pytest.fixture
def pipeline():
    made = []

    def begin(source, past):
        made.append(Pipeline(source, past=past))
        made[-1].start()
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def test_the_past_of_the_job_is_drawn_when_the_axis_shows_it(pipeline):
    mark = Event(START + 100.5, "mark", text="epoch 3")
    record(START, 200, events=[mark])
    live = pipeline(Live(START + 300), Past())
    assert shown(live).count(None) == 57
    live.show_from(START + 301)  # nothing of it is on the screen
    assert live.news() == ""
    live.show_from(START - 271)
    said = until(live.news)
    assert said.startswith("earlier recordings of this job are shown, from ")
    values = shown(live)
    assert values[-3:] == [20] * 3  # what was there stays
    assert values[-33:-13] == [90] * 20  # from the recording
    assert values[-13:-3] == [None] * 10  # nobody recorded then
    assert set(values[:-33]) == {None}
    (node,) = live.nodes()
    assert [event.text for event in node.events() if event.kind == "mark"] == ["epoch 3"]
    assert node.peak("device", 0, "busy_percent") == 20  # since it was attached
    assert node.peak("device", 0, "busy_percent", past=True) == 90  # the scale of a plot
    assert node.first_time("host", "", "cpu_percent") == START + 300
    assert node.first_time("host", "", "cpu_percent", past=True) == START
    live.show_from(START - 271)
    assert live.news() == ""  # it is read once


def test_a_day_is_read_in_buckets(pipeline):
    record(START, 4000)
    live = pipeline(Live(START + 4100), Past())
    live.show_from(START)
    until(lambda: "are shown" in live.news())
    values = shown(live, 4200, 70)
    assert values[-1] == 20
    assert values[2:-3] == [90] * 65


COURSES = (("usage", (0, PID), "mem_bytes"), ("process", PID, "cpu_percent"))


@pytest.mark.parametrize(
    ("seconds", "uuids"), [(200, ("GPU-a", "GPU-b")), (2000, ("GPU-b", "GPU-a"))]
)
def test_a_process_that_still_runs_is_drawn_from_before(pipeline, seconds, uuids):
    record(START, seconds)
    live = pipeline(Live(START + seconds + 1000, uuids=uuids), Past())
    live.show_from(START)
    until(lambda: "are shown" in live.news())
    (node,) = live.nodes()
    before = START + seconds - 5
    buckets = node.window("process", PID, "cpu_percent", before, 100.0, 10)
    assert {round(each.mean) for each in buckets[:-1]} == {90}
    resident = node.window("process", PID, "rss_bytes", before, 100.0, 10)
    assert {round(each.mean) for each in resident[:-1]} == {10**9}
    if uuids[0] == "GPU-a":
        buckets = node.window("usage", (0, PID), "mem_bytes", before, 100.0, 10)
        assert {round(each.mean) for each in buckets[:-1]} == {90 << 20}
    else:  # it uses another GPU now
        buckets = node.window("usage", (0, PID), "mem_bytes", before, 100.0, 10)
        assert set(buckets) == {None}


def test_another_process_with_its_number_has_no_past(pipeline):
    record(START, 200)
    live = pipeline(Live(START + 300, began=START + 290), Past())
    live.show_from(START)
    until(lambda: "are shown" in live.news())
    (node,) = live.nodes()
    for key in COURSES:
        assert set(node.window(*key, START + 195, 100.0, 10)) == {None}


def test_devices_are_found_by_their_uuid_whatever_their_number(pipeline):
    record(START, 100, uuids=("GPU-b", "GPU-c"))
    live = pipeline(Live(START + 100), Past())
    live.show_from(START)
    until(live.news)
    assert shown(live, 130, 13, key=1)[2] == 90
    assert shown(live, 130, 13, key=0)[2] is None


@pytest.mark.parametrize(
    "other", [{"job": "4712"}, {"node": "gpu02"}, {"restarts": 1}, {"job": None}]
)
def test_nothing_else_is_taken_for_it(other):
    record(START, 20, **other)
    assert recorded_before(header(START + 100), START + 100) == []
    (mine,) = [record(START, 20)]
    assert [each.path for each in recorded_before(header(START + 9), START + 9)] == [mine]
    assert recorded_before(header(START), START) == []  # it does not begin before


def test_what_cannot_be_read_is_left_out(pipeline):
    path = record(START, 20)
    with open(path, "r+b") as file:
        file.truncate(10)
    assert recorded_before(header(START + 100), START + 100) == []


def test_a_replay_of_one_of_several_shows_the_others_before_also_after_a_seek():
    record(START, 100)
    second = record(START + 200, 100)
    source = open_replay(second)
    replay = playing(source, second)
    replay.start()
    source.pause()

    def has_past_at(moment):
        source.seek(moment)
        until(lambda: not source.seeking)
        assert replay.now() == moment
        replay.show_from(START - 300)
        first = -1 - int(moment - START) // 10
        return until(lambda: shown(replay)[first : first + 10] == [90] * 10)

    try:
        assert has_past_at(START + 290)
        assert "are shown" in replay.news()
        assert has_past_at(START + 250)  # where all nodes are new ones
    finally:
        replay.stop()


def test_a_store_without_the_node_that_is_looked_for_stays_as_it_is():
    past = Past()
    past.want(Store(), -1e12)
    assert past.news() == ""


def test_a_fault_in_an_earlier_recording_leaves_the_screen_alone(pipeline, monkeypatch):
    record(START, 20)

    def fail(*_):
        raise ValueError("not a number")

    monkeypatch.setattr(Past, "_frame_before", fail)
    live = pipeline(Live(START + 60), Past())
    live.show_from(START)
    assert until(live.news) == "earlier samples of gpu01 cannot be read: not a number"
    assert shown(live, 60, 6)[-1] == 20


def test_more_nodes_than_are_read_are_left_as_they_are(pipeline, monkeypatch):
    monkeypatch.setattr("gpumon.sources.files.MOST_NODES", 0)
    record(START, 20)
    past = Past()
    live = pipeline(Live(START + 60), past)
    live.show_from(START)
    assert not past._known
