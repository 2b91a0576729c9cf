"""A replay that goes far in a long recording shows what playing up to there would have shown."""

import math
import time
from functools import lru_cache

import pytest

from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Event, Header, Sample, State
from gpumon.model.view import Status
from gpumon.pipeline.evaluator import Evaluator
from gpumon.recording import Recorder, Recording
from gpumon.site.read import load_site
from gpumon.sources import replay
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.store import Store
from tests.frames.framing import FramedRecorder, Gathering
from tests.support.waiting import until
from tests.tui.looking import Looking

pytestmark = pytest.mark.slow

START = 1_795_200_137.0  # on no grid
BOOT = START - 1000
HOUR_S = 3600
BIN_S = 10
PLOT_EDGES = 4  # of values in a screen's plots: where they begin, and around the gap
FIELDS = ("busy_percent", "mem_used_bytes", "power_w", "temperature_c")


def header(node, *, pid=1, first_key=0, at=START, interval_s=1.0):
    devices = [Device(first_key + n, n, f"GPU-{node}-{n}", "A100") for n in range(2)]
    return Header(node, "boot", at, at - BOOT, interval_s, "0", devices, agent_pid=pid)


def sample(second, first_key=0):
    """Waves with bursts within a tick, a reading that is missing for minutes, a slow one."""
    wave = 50 + 40 * math.sin(second / 700)
    rows = {"device": {}, "host": {"": {"cpu_percent": wave / 2, "mem_used_bytes": 10**9 + second}}}
    for number in range(2):
        busy = round(wave + 7 * math.sin(second * (number + 3)))
        row = {"busy_percent": busy, "mem_used_bytes": (second // 60 + number) << 20}
        row["power_w"] = Missing("timeout") if 4000 < second < 4400 else 3.5 * busy
        if second % 2 == 0:
            row |= {"busy_mean_percent": busy, "busy_min_percent": 0, "busy_max_percent": 100}
        if second % 5 == 0:
            row["temperature_c"] = 40 + busy // 4
        rows["device"][first_key + number] = row
    if 9000 <= second < 15000:
        rows["process"] = {77: {"cpu_percent": 90, "rss_bytes": 1 << 30}}
        rows["usage"] = {(first_key, 77): {"mem_bytes": 1 << 30}}
    events = []
    if second % 5000 == 700:
        events.append(Event(START + second, "mark", text=f"epoch {second // 5000}"))
    if second == 9000:
        facts = {"user": "ada", "command": "python a.py", "name": "python", "own": True}
        events.append(Event(START + second, "process", pid=77, data=facts))
    if second == 15000:
        events.append(Event(START + second, "process-end", pid=77))
    if second == 6000:
        events.append(Event(START + second, "xid", device=first_key, data={"xid": 31}, text="31"))
    unwell = {}
    if second > 16000:  # its last readings stay, and grow old
        unwell = {first_key + 1: State("hung", START + 16000, "nvmlDeviceGetUtilizationRates")}
        del rows["device"][first_key + 1]
    at = START + second + 0.003
    return Sample(at, at - BOOT, rows, unwell, events)


def written(recorder):
    """Close it once all is on disk: closing waits for a few seconds only."""
    recorder.end("done")
    while recorder.pending_bytes:
        time.sleep(0.01)
    recorder.close()


@pytest.fixture(scope="module", params=[FramedRecorder, Recorder], ids=["frames", "samples"])
def files(tmp_path_factory, request):
    """Five hours of a node, with a gap; two of another, whose agent begins anew in the middle."""
    folder = tmp_path_factory.mktemp("far")
    clock = [0.0]

    def record(name, items):
        recorder = request.param(str(folder / name), clock=lambda: clock[0])
        for item in items:
            clock[0] = item.mono
            recorder.header(item) if isinstance(item, Header) else recorder.add(item)
            while recorder.pending_bytes > 1 << 20:
                time.sleep(0.001)
        written(recorder)
        return recorder.path

    def second_node():
        yield header("n2", at=START + 2 * HOUR_S)
        yield from map(sample, range(2 * HOUR_S, 3 * HOUR_S))
        yield header("n2", pid=2, first_key=5, at=START + 3 * HOUR_S + 20)
        named = sample(9000).events  # an agent that begins names all that live
        first = sample(3 * HOUR_S + 20, 5)
        yield first._replace(events=[event._replace(time=first.time) for event in named])
        yield from (sample(n, 5) for n in range(3 * HOUR_S + 21, 4 * HOUR_S))

    seconds = [n for n in range(5 * HOUR_S) if not 8000 <= n < 8600]
    first = record("n1.gpumon", [header("n1"), *map(sample, seconds)])
    return first, record("n2.gpumon", second_node())


@lru_cache(maxsize=1)
def items_of(files):
    """What all files say, by time, with the node."""
    recordings = [Recording(path) for path in files]
    items = [(each.header.node, item) for each in recordings for item in each.items()]
    return sorted(items, key=lambda pair: pair[1].time)


def live(files, until):
    """A store that was fed all samples one by one."""
    store = Store()
    for node, item in items_of(files):
        if item.time <= until:
            if isinstance(item, Header):
                store.header(node, item)
                store.status(node, Status("live", item.time, "", "replay"))
            else:
                store.add(node, item)
    return store


def go(source, to):
    source.seek(to)
    until(lambda: not source.seeking)


def assert_same_buckets(shown, lived, name):
    assert [each is None for each in shown] == [each is None for each in lived], name
    for one, two in zip(shown, lived):
        if one is not None:
            assert (one.low, one.high) == pytest.approx((two.low, two.high), rel=1e-6), name
            assert one.mean == pytest.approx(two.mean, rel=3e-3, abs=1e-3), name


def assert_same(played, lived, now):
    assert sorted(node.name for node in played.nodes()) == sorted(n.name for n in lived.nodes())
    for node in lived.nodes():
        other = played.node(node.name)
        assert [each[:5] for each in other.devices()] == [each[:5] for each in node.devices()]
        assert [(e.kind, e.text) for e in other.events()] == [
            (e.kind, e.text) for e in node.events()
        ]
        assert [each[:2] for each in other.processes(now)] == [
            each[:2] for each in node.processes(now)
        ]
        for entity, key, field in [
            *(("device", device.key, field) for device in node.devices() for field in FIELDS),
            ("host", "", "cpu_percent"),
        ]:
            name = (entity, key, field)
            was, known = (each.latest(*name, now) for each in (node, other))
            if was.fresh:
                assert (known.reading, known.time) == (was.reading, was.time), name
            else:  # in whole buckets
                assert known.reading == pytest.approx(was.reading, rel=0.3), name
                assert known.time == pytest.approx(was.time, abs=2 * BIN_S), name
            assert other.peak(*name) == pytest.approx(node.peak(*name), rel=1e-6), name
            assert other.peak60(*name) == pytest.approx(node.peak60(*name), rel=1e-6), name
            # of what began after the recording the first bin is known, not the first sample in it
            began_s = node.first_time(*name) - other.first_time(*name)
            assert 0 <= began_s < BIN_S + 0.01, name
            for span_s, n in ((240, 240), (600, 60), (3 * HOUR_S, 100), (24 * HOUR_S, 100)):
                shown, lived_ = (each.window(*name, now, span_s, n) for each in (other, node))
                if n == span_s:  # of single samples nothing is approximate
                    assert shown == lived_, (node.name, name)
                else:
                    assert_same_buckets(shown, lived_, (node.name, name, span_s))
            mine, theirs = (each.stats(*name, START, now) for each in (other, node))
            assert mine[:3] == pytest.approx(theirs[:3], rel=1e-3), name
            # how fine a gap's edges are kept three hours ago depends on when what was older went
            assert mine.coverage == pytest.approx(theirs.coverage, abs=60 / (now - START)), name


@pytest.fixture
def playing(files, monkeypatch):
    fed = []
    monkeypatch.setattr(Store, "add", _counting(Store.add, fed))
    source, store = ReplaySource(tracks_of(files)), Store()
    source.start(Evaluator(store, replayed=True, is_framing=True))
    source.pause()
    yield source, store, fed
    source.stop()


def _counting(add, fed):
    def counted(store, node, each, received=None):
        fed.append(each)
        add(store, node, each, received)

    return counted


@pytest.mark.parametrize("hours", [4.9, 2.5, 3.4, 4.2])
def test_what_is_shown_is_what_playing_would_have_shown(playing, files, hours):
    source, store, fed = playing
    go(source, START + 4.95 * HOUR_S)
    for now in (START + hours * HOUR_S, START + hours * HOUR_S - 1):
        del fed[:]
        go(source, now)
        assert source.now() == now
        assert len(fed) <= 2 * (replay.SINGLE_S + replay.EDGE_S + 10)  # of two nodes
        assert_same(store, live(files, now), now)


def test_the_screens_are_those_of_live(playing, files):
    source, store, _ = playing
    now = START + 2.45 * HOUR_S
    go(source, START + 4.95 * HOUR_S)
    go(source, now)
    lived = live(files, now)

    def screens(shown):
        names = ("job", "device", "processes", "nodes")
        looking = Looking(zoom_s=4 * HOUR_S)
        looking.at(nodes=[shown.node("n1"), shown.node("n2")], now=now)
        return [looking.text(name, 120, 38) for name in names]

    for played, seen in zip(screens(store), screens(lived)):
        assert len(played) == len(seen)
        unlike = [both for both in zip(played, seen) if both[0] != both[1]]
        assert all(is_of_plot(cell) for both in unlike for cell in both), unlike
        assert len(unlike) <= PLOT_EDGES  # half a bin counts as a whole


def test_a_process_is_shown_from_its_start_on(playing):
    source, store, _ = playing
    go(source, START + 4.95 * HOUR_S)
    now = START + 4 * HOUR_S
    go(source, now)
    node = store.node("n1")
    for *key, mean in (
        ("process", 77, "cpu_percent", 90),
        ("process", 77, "rss_bytes", 1 << 30),
        ("usage", (0, 77), "mem_bytes", 1 << 30),
    ):
        assert node.first_time(*key) == pytest.approx(START + 9000, abs=BIN_S)
        shown = node.window(*key, now, 6000.0, 60)
        assert {bucket and bucket.mean for bucket in shown[:3]} == {None}, key
        assert [each.mean for each in shown[12:-1]] == [pytest.approx(mean, rel=1e-3)] * 47, key


def is_of_plot(cell):
    """Dots, blocks, or none."""
    return cell == " " or "\u2800" < cell <= "\u28ff" or "\u2580" <= cell <= "\u259f"


def test_a_verdict_hears_of_all_that_was_before(files):
    """The same evidence as of a recording that ended there."""
    evaluator = Evaluator(Store(), replayed=True, is_framing=True)
    source = ReplaySource(tracks_of(files))
    evaluator.start()
    source.start(evaluator)
    source.pause()
    now = START + 4 * HOUR_S
    go(source, now)
    deadline = time.monotonic() + 120
    while not (evaluator.latest and evaluator.latest.run.end >= now - 40):
        assert not evaluator.trouble
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    source.stop()
    evaluator.stop()
    gathering = Gathering()
    for node, item in items_of(files):
        if item.time <= now:
            gathering.add(node, item)
    found, expected = evaluator.latest.run, gathering.data(None, load_site(), live=True)
    assert (found.grid_start, found.start) == (expected.grid_start, expected.start)
    assert found.coverage.covered_percent == pytest.approx(expected.coverage.covered_percent, abs=1)
    assert [event for _, event in found.events] == [event for _, event in expected.events]


def test_another_aim_ends_a_long_way(playing):
    source, store, _ = playing
    source.seek(START + 4.95 * HOUR_S)
    go(source, START + 30)
    assert source.now() == START + 30
    assert store.node("n1").last_time <= START + 30


def test_days_are_shown_in_the_bins_that_there_are(tmp_path):
    """Of 50 hours bins are 40 s long, which no bucket of a minute is a multiple of."""
    clock = [0.0]
    recorder = FramedRecorder(str(tmp_path / "a.gpumon"), clock=lambda: clock[0])
    lived, now = Store(), START + 49 * HOUR_S
    for item in [header("n1", interval_s=10.0), *map(sample, range(0, 50 * HOUR_S, 10))]:
        clock[0] = item.mono
        is_header = isinstance(item, Header)
        (recorder.header if is_header else recorder.add)(item)
        if item.time <= now:
            lived.header("n1", item) if is_header else lived.add("n1", item)
        while recorder.pending_bytes > 1 << 20:
            time.sleep(0.001)
    written(recorder)
    source, played = ReplaySource(tracks_of([recorder.path])), Store()
    source.start(Evaluator(played, replayed=True, is_framing=True))
    source.pause()
    go(source, now)
    source.stop()
    name = ("device", 0, "mem_used_bytes")
    for span_s in (600, HOUR_S, 3 * HOUR_S, 24 * HOUR_S, 168 * HOUR_S):
        shown, expected = (
            each.node("n1").window(*name, now, span_s, 60) for each in (played, lived)
        )
        assert [each is None for each in shown] == [each is None for each in expected]
        for one, two in zip(shown, expected):
            if one is not None:
                assert one.mean == pytest.approx(two.mean, abs=1 << 20)
                assert one.low - (1 << 20) <= two.low <= two.high <= one.high + (1 << 20)
    assert played.node("n1").peak(*name) == lived.node("n1").peak(*name)


@pytest.mark.parametrize("ways", [(1500, 2900), (5000, 6100, 7000), (2000, 1400, 3100)])
def test_short_ways_are_shown_as_well(playing, files, ways):
    source, store, _ = playing
    for second in ways:
        go(source, START + second)
    assert_same(store, live(files, START + second), START + second)


@pytest.mark.parametrize("second", [13000, 14990])
def test_plots_of_a_process_reach_back_as_far_as_they_would_have(playing, files, second):
    source, store, _ = playing
    now = START + second
    go(source, START + 4.95 * HOUR_S)
    go(source, now)
    lived = live(files, now).node("n1")
    shown = store.node("n1")
    for name in (("usage", (0, 77), "mem_bytes"), ("process", 77, "cpu_percent")):
        assert shown.first_time(*name) == pytest.approx(lived.first_time(*name), abs=BIN_S)
        for span_s in (600, HOUR_S, 3 * HOUR_S):
            ours, theirs = (each.window(*name, now, span_s, 60) for each in (shown, lived))
            for one, two in zip(ours, theirs):  # counts are what is due in a bin
                assert (one and one[:3]) == (two and pytest.approx(two[:3], rel=1e-6)), name


def test_of_a_process_that_ended_no_plot_is_left(playing):
    source, store, _ = playing
    go(source, START + 4.95 * HOUR_S)
    go(source, START + 16500)
    assert store.node("n1").first_time("process", 77, "cpu_percent") is None
    assert not store.node("n1").processes(START + 16500)


def test_far_after_the_end_is_the_end(playing, files):
    source, store, _ = playing
    source.seek(START + 30 * HOUR_S)
    until(lambda: source.at_end)
    last = items_of(files)[-1][1].time
    assert store.node("n1").last_time == last
    assert last <= source.now() <= last + 1
