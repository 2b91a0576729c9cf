"""A replay is live with another clock: the same samples give the same screens, wherever it goes."""

import gzip
import threading
import time
from functools import partial

import pytest

from gpumon import demos
from gpumon.frames.builder import built
from gpumon.model.reading import number
from gpumon.model.sample import Device, Event, Header, Sample, State
from gpumon.pipeline.evaluator import Evaluator
from gpumon.recording import Recording
from gpumon.recording.reader import Stretch
from gpumon.services.runs import finding_moments
from gpumon.sources.files import Track, tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.store import Store
from gpumon.tui.screens.replay import ReplayKeys, parse_moment
from gpumon.wire.encoder import Encoder
from tests.support.waiting import HANGS_S, until
from tests.tui.looking import Looking

START = 1_795_200_000.0


def stream(path, node, times, states=None, events=None):
    """A file of one node whose busy percent counts the samples."""
    encoder = Encoder()
    lines = [
        encoder.header(Header(node, "b", times[0], 0.0, 1.0, "0", [Device(0, 0, "G", "A100")]))
    ]
    for count, at in enumerate(times):
        rows = {"device": {0: {"busy_percent": count % 101}}, "host": {"": {"cpu_percent": 5}}}
        sample = Sample(
            at, at - START, rows, (states or {}).get(count, {}), (events or {}).get(count, [])
        )
        lines.append(encoder.sample(sample))
    path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))
    return str(path)


def busy(store, node="n1", now=None):
    view = store.node(node)
    return (
        None if view is None else view.latest("device", 0, "busy_percent", view.last_time).reading
    )


@pytest.fixture
def playing(tmp_path):
    """A paused replay of 100 samples."""
    source = ReplaySource(
        tracks_of([stream(tmp_path / "a", "n1", [START + n for n in range(100)])])
    )
    store = Store()
    source.start(store)
    source.pause()
    yield source, store
    source.stop()


def go(source, to):
    source.seek(to)
    until(lambda: not source.seeking)


@pytest.fixture
def being_read():
    """A paused replay of four hours, and what lets it read another hour's frames."""
    gate = threading.Semaphore(0)
    header = Header("n1", "b", START, 1.0, 10.0, "0", [Device(0, 0, "G", "A100")])

    def items(since):
        yield header
        for at in range(0, 4 * 3600, 10):
            if since is None or START + at >= since:
                yield Sample(START + at, 1.0 + at, {"device": {0: {"busy_percent": at % 101}}})

    def stretches():
        for hour in range(4):
            begin, end = START + 3600 * hour, START + 3600 * (hour + 1)
            gate.acquire()
            own = partial(part, begin, end)
            yield Stretch(begin, end - 10, own, lambda own=own: next(built(own(), 3600.0)))

    def part(begin, end):
        yield header
        yield from (item for item in items(begin) if begin <= item.time < end and item != header)

    source = ReplaySource([Track("n1", items, stretches, span_s=4 * 3600.0)])
    store = Store()
    source.start(Evaluator(store, replayed=True, is_framing=True))
    source.pause()
    yield source, store, gate
    source.stop()
    gate.release(9)


def test_a_seek_that_takes_long_tells_how_far_it_has_come(being_read):
    source, _, gate = being_read
    source.seek(START + 3.5 * 3600)
    seen = []
    for _ in range(2):  # hours; after the third it may have come there
        before = source.progress
        gate.release(1)
        until(lambda: source.progress > before or not source.seeking)  # noqa: B023
        seen.append(source.progress)
    assert 0 < seen[0] < seen[1] < 1
    gate.release(9)
    until(lambda: not source.seeking)
    assert source.now() == START + 3.5 * 3600


def test_a_seek_that_is_stopped_stays_where_it_has_come_to(being_read):
    source, store, gate = being_read
    go(source, START + 60)
    shown = busy(store)
    source.seek(START + 3.5 * 3600)
    gate.release(1)
    until(lambda: source.progress > 0)
    source.stay()
    gate.release(1)
    until(lambda: not source.seeking)
    assert source.paused
    assert (source.now(), busy(store)) == (START + 60, shown)
    gate.release(9)
    go(source, START + 3.5 * 3600)
    assert source.now() == START + 3.5 * 3600


@pytest.mark.parametrize("to", [50, 10, 99, 0, 73.5])
def test_wherever_it_goes_it_shows_what_was_then(playing, to):
    source, store = playing
    for target in (80, to):
        go(source, START + target)
    assert source.paused
    assert source.now() == START + to
    assert busy(store) == int(to)
    times = store.node("n1").window("device", 0, "busy_percent", START + 99, 100.0, 100)
    assert sum(bucket is not None and bucket.count > 0 for bucket in times) == int(to) + 1


def test_before_the_beginning_is_the_beginning_and_after_the_end_the_end(playing):
    source, store = playing
    go(source, START - 500)
    assert source.now() == START
    go(source, START + 5000)
    assert busy(store) == 99


def test_what_has_no_end_is_sent_an_hour_ahead_at_most(tmp_path):
    path = stream(tmp_path / "a", "n1", [START + n for n in range(100)])
    source = ReplaySource(tracks_of([path]), loop=True)
    source.start(Store())
    source.pause()
    go(source, START + 1e7)
    source.stop()
    assert START + 3600 <= source.now() < START + 3700


def test_it_goes_on_from_where_it_was_sent(playing):
    source, store = playing
    go(source, START + 40)
    source.set_speed(100)
    source.pause()
    until(lambda: busy(store) >= 60)
    source.pause()
    held = source.now()
    time.sleep(0.1)
    assert source.now() == held


class Held(Store):
    """Takes no sample until it is told to."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()

    def add(self, node, sample, received=None):
        self.free.wait(HANGS_S)
        super().add(node, sample, received)


def test_steps_add_up_while_it_is_on_its_way(tmp_path):
    path = stream(tmp_path / "a", "n1", [START + n for n in range(100)])
    source, store = ReplaySource(tracks_of([path])), Held()
    keys = ReplayKeys(Looking(player=source), is_replay=True)  # plots show a minute
    store.free.set()
    source.start(store)
    source.pause()
    go(source, START + 80)
    store.free.clear()
    for _ in range(3):
        keys.action_seek(-1)
    keys.action_step(1)
    assert source.aim == START + 63
    store.free.set()
    until(lambda: not source.seeking)
    assert source.now() == source.aim == START + 63
    source.stop()


def test_at_the_end_it_says_so_and_can_go_back(tmp_path):
    path = stream(tmp_path / "a", "n1", [START + n for n in range(20)])
    source, store = ReplaySource(tracks_of([path]), speed=1000), Store()
    source.start(store)
    until(lambda: source.at_end)
    assert store.node("n1").status(source.now()).state == "ended"
    source.set_speed(1)  # else it would be at its end again
    go(source, START + 5)
    source.pause()
    assert busy(store) >= 5
    assert store.node("n1").status(source.now()).state == "live"
    source.stop()


def test_the_next_event_is_a_mark_an_xid_or_a_device_that_changes(tmp_path):
    lost = {count: {0: State("lost", START + 60, "Xid 79")} for count in range(60, 70)}
    events = {
        30: [Event(START + 30, "mark", text="epoch 2")],
        40: [Event(START + 40, "process-end")],
    }
    path = stream(tmp_path / "a", "n1", [START + n for n in range(100)], lost, events)
    source, store = ReplaySource(tracks_of([path])), Store()
    source.start(store)
    source.pause()
    seen, told = [], []
    for _ in range(4):
        source.next_event()
        until(lambda: not source.seeking)
        seen.append(source.now() - START)
        told.append(source.news())
    assert seen == [30, 60, 70, 70]  # and there it stays
    changed = "a GPU's state changed"
    assert told == ["mark epoch 2", changed, changed, "no further finding, mark or Xid"]
    assert source.news() == ""
    source.moments = [START + 10, START + 50.5]  # a finding begins
    go(source, START)
    seen = []
    for _ in range(4):
        source.next_event()
        until(lambda: not source.seeking)
        seen.append(source.now() - START)
    assert seen == [10, 30, 50.5, 60]
    source.stop()


def test_findings_of_a_run_are_moments_of_its_replay():
    moments = finding_moments(demos.path("finetune"))
    first = next(Recording(demos.path("finetune")).items()).time
    assert moments == sorted(moments)
    assert moments
    assert all(first <= moment <= first + 3600 for moment in moments)


def test_nodes_are_played_on_one_clock(tmp_path):
    paths = [
        stream(tmp_path / "a", "n1", [START + n for n in range(50)]),
        stream(tmp_path / "b", "n2", [START + 20 + n for n in range(50)]),
    ]
    source, store = ReplaySource(tracks_of(paths)), Store()
    source.start(store)
    source.pause()
    assert [node.name for node in store.nodes()] == ["n1"]
    go(source, START + 30)
    assert (busy(store, "n1"), busy(store, "n2")) == (30, 10)
    go(source, START + 25.5)
    assert (busy(store, "n1"), busy(store, "n2")) == (25, 5)
    source.stop()


def screens(store, now):
    looking = Looking()
    looking.at(nodes=store.nodes(), now=now)
    return [looking.text("job", 120, 38), looking.text("processes", 120, 12)]


def test_the_screens_and_numbers_are_those_of_live():
    """The demo, fed sample by sample as if live, and the same moment reached by going there."""
    path = demos.path("finetune")
    live, now = Store(), 0.0
    values = []
    for item in Recording(path).items():
        if isinstance(item, Header):
            live.header(item.node, item)
            first = item.time
        elif item.time <= first + 200:
            live.add("gpu07", item)
            now = item.time
            value = number(item.rows.get("device", {}).get(0, {}).get("busy_percent"))
            values += [] if value is None else [value]
    source, store = ReplaySource(tracks_of([path])), Store()
    source.start(store)
    source.pause()
    for target in (now + 100, now):
        go(source, target)
    source.stop()
    assert screens(store, now) == screens(live, now)
    stats = store.node("gpu07").stats("device", 0, "busy_percent", first, now + 1)
    assert stats.mean == pytest.approx(sum(values) / len(values), rel=0.01)
    assert (stats.low, stats.high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+90", 1090), ("-10m", 400), ("1h30m", 5400), ("45", 45), ("1.5m", 90), ("2d", 172800),
        ("", None), ("soon", None), ("1x", None), ("12:61", None), ("25:00", None), ("m", None),
        ("1h30", 3630), ("..5s", None), ("2 h 05 min", 7500), ("45 s", 45),
    ],
)  # fmt: skip
def test_moments(text, seconds):
    moment = parse_moment(text, START, START + 1000)
    assert (None if moment is None else moment - START) == seconds


def test_a_clock_time_outside_of_the_recording_counts_from_its_beginning(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    begin = START - START % 86400 + 19 * 3600  # 19:00
    assert parse_moment("00:05:00", begin, begin, begin + 900) == begin + 300
    assert parse_moment("19:05", begin, begin, begin + 900) == begin + 300
    assert parse_moment("03:00:00", begin, begin, begin + 900) < begin  # neither


def test_a_clock_time_is_on_the_day_shown(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert parse_moment("12:31:07", START, START) == START - START % 86400 + 12 * 3600 + 31 * 60 + 7
