"""The stage between a source and the screen: what it writes, what it passes on, what it says."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from gpumon.model.sample import Device, Event, Header, JobContext, Sample
from gpumon.model.view import Status
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording import Recording
from gpumon.recording.claims import Claims
from gpumon.recording.sharing import Mark, Spool, choose, mark_text, running, send
from gpumon.store import Store
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S, until

START = 1_795_200_000.0


class Source:
    """Hands its sink to the test."""

    name = "local"

    def start(self, sink):
        self.sink = sink

    def stop(self):
        self.stopped = True

    def now(self):
        return START


def header(node="gpu01", job="4711"):
    return Header(node, "boot", START, 1.0, 1.0, "0.1", job=JobContext(job, cluster="alpha"))


def sample(second, *events):
    rows = {"host": {"": {"cpu_percent": float(second)}}}
    return Sample(START + second, 1.0 + second, rows, {}, list(events))


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def source(state):
    return Source()


def stage(source, state, *, record=True):
    made = RecorderStage(source, str(state / "marks"), record=record)
    store = Store()
    made.start(store)
    return made, store


def recorded(state):
    """By node: the times of its samples, and its marks."""
    found = {}
    for path in sorted(state.rglob("*.gpumon")):
        recording = Recording(str(path))
        samples = [item for item in recording.items() if isinstance(item, Sample)]
        events = [event for item in samples for event in item.events]
        found[recording.header.node] = (
            [item.time - START for item in samples if item.rows],
            [event.text for event in events if event.kind == "mark"],
        )
    return found


def marked(store, node="gpu01"):
    return [event.text for event in store.node(node).events() if event.kind == "mark"]


def test_every_node_has_a_file_and_the_screen_has_everything(source, state):
    made, store = stage(source, state)
    for node in ("gpu01", "gpu02"):
        source.sink.header(node, header(node))
        source.sink.status(node, Status("live", START))
        for second in range(3):
            source.sink.add(node, sample(second))
    assert [node.name for node in store.nodes()] == ["gpu01", "gpu02"]
    assert store.node("gpu02").last_time == START + 2
    made.stop()
    assert source.stopped
    assert recorded(state) == {"gpu01": ([0, 1, 2], []), "gpu02": ([0, 1, 2], [])}
    (folder,) = {path.parent for path in state.rglob("*.gpumon")}
    assert folder == state / "jobs" / "alpha" / "4711"
    news = made.news()
    assert news.startswith(f"recording to {folder}/gpu01-")
    assert made.news() == ""  # once, and for the first node only


def test_what_comes_after_the_end_is_shown_and_not_recorded(source, state):
    made, store = stage(source, state)
    source.sink.header("gpu01", header())
    source.sink.add("gpu01", sample(0))
    made.stop()
    source.sink.header("gpu01", header())
    source.sink.add("gpu01", sample(1))
    assert store.node("gpu01").last_time == START + 1
    assert recorded(state) == {"gpu01": ([0], [])}


def test_a_header_that_changes_goes_into_the_same_file(source, state):
    made, _ = stage(source, state)
    source.sink.header("gpu01", header())
    source.sink.add("gpu01", sample(0))
    source.sink.header("gpu01", header()._replace(driver="580"))
    source.sink.add("gpu01", sample(1))
    made.stop()
    (path,) = state.rglob("*.gpumon")
    headers = [item for item in Recording(str(path)).items() if isinstance(item, Header)]
    assert [item.driver for item in headers] == ["", "580"]


def test_marks_are_on_every_nodes_axis_and_on_the_screen(source, state):
    made, store = stage(source, state)
    for node in ("gpu01", "gpu02"):
        source.sink.header(node, header(node))
        source.sink.add(node, sample(0))
    assert made.mark(" epoch\t2\x1b[2J ") == "marked: epoch 2?[2J"
    assert made.mark("  ") == "the mark is empty"
    for node in ("gpu01", "gpu02"):
        source.sink.add(node, sample(1))
        assert marked(store, node) == ["epoch 2?[2J"]
    made.stop()
    assert recorded(state) == {
        "gpu01": ([0, 1], ["epoch 2?[2J"]), "gpu02": ([0, 1], ["epoch 2?[2J"]),
    }  # fmt: skip


def test_marks_after_the_last_sample_are_recorded(source, state):
    made, _ = stage(source, state)
    for node in ("gpu01", "gpu02"):
        source.sink.header(node, header(node))
        source.sink.add(node, sample(0))
    made.mark("from the screen")
    script = """if True:
        import sys
        from gpumon.recording.sharing import Mark, running, send
        (spool,) = running(sys.argv[1])
        assert send(spool, Mark(1_795_200_001.0, "from a script"))
    """
    subprocess.run([sys.executable, "-c", script, state / "marks"], check=True)
    made.stop()
    said = ["from the screen", "from a script"]
    assert recorded(state) == {"gpu01": ([0], said), "gpu02": ([0], said)}


def test_without_recording_marks_are_shown_and_said_to_be_lost(source, state):
    made, store = stage(source, state, record=False)
    source.sink.header("gpu01", header())
    source.sink.add("gpu01", sample(0))
    assert made.mark("epoch 2") == "marked: epoch 2 (nothing is recorded here)"
    source.sink.add("gpu01", sample(1))
    assert marked(store) == ["epoch 2"]
    assert made.news() == ""
    made.stop()
    assert recorded(state) == {}
    assert not list((state / "marks").iterdir())


def test_a_folder_that_cannot_be_written_costs_only_the_recording(source, state):
    (state / "jobs").write_text("in the way")
    (state / "marks").write_text("in the way")
    made, store = stage(source, state)
    source.sink.header("gpu01", header())
    source.sink.add("gpu01", sample(0))
    assert store.node("gpu01").last_time == START
    news = made.news()
    assert news.startswith("not recording: cannot record to ")
    assert made.not_recorded["gpu01"].where.startswith(str(state))
    assert news.endswith(f": {made.not_recorded['gpu01'].why}")
    assert made.mark("epoch 2").endswith("(nothing is recorded here)")
    made.stop()


def test_a_file_that_cannot_grow_is_said_once_and_the_samples_go_on(source, state):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    made, store = stage(source, state)
    source.sink.header("gpu01", header())
    made.news()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        news, second = "", 0
        deadline = time.monotonic() + HANGS_S
        while not news and time.monotonic() < deadline:
            source.sink.add("gpu01", sample(second))
            news = made.news()
            second += 1
            time.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (path,) = state.rglob("*.gpumon")
    assert news == f"{path}: recording stopped: File too large"
    source.sink.add("gpu01", sample(second))
    assert store.node("gpu01").last_time == START + second
    assert made.news() == ""
    assert made.not_recorded == {"gpu01": ("File too large", str(path))}  # as long as that is so
    made.stop()


OTHER = """
import sys
import threading
from gpumon.model.sample import Device, Header, JobContext
from gpumon.recording.claims import Claims
folder, job, node, devices, is_asked_for = sys.argv[1:]
claims = Claims().open(folder, job, node)
devices = [Device(n, n, name, "A100") for n, name in enumerate(devices.split())]
header = Header(node, "boot", 0.0, 1.0, 1.0, "", devices, job=JobContext(job))
claims.hold(node, claims.made(node, header, is_asked_for=bool(is_asked_for)))
print("there", flush=True)
sys.stdin.read()
print(*(mark.text for mark in claims.close()), sep=",")
"""


class Other:
    """A recorder in another process."""

    def __init__(self, state, job="4711", node="gpu01", devices="", is_asked_for=True):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(state / "marks"), job, node, devices,
             "yes" if is_asked_for else ""],
            env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout.readline() == "there\n"

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.process.kill()
        self.process.communicate(timeout=HANGS_S)

    def marks(self):
        return self.process.communicate("", timeout=HANGS_S)[0].strip()


def test_what_is_recorded_already_is_not_recorded_twice(source, state):
    with Other(state):
        made, store = stage(source, state)
        source.sink.header("gpu01", header())
        source.sink.add("gpu01", sample(0))
        source.sink.header("gpu02", header("gpu02"))
        source.sink.add("gpu02", sample(0))
        assert made.news() == "gpu01: already being recorded; only shown here"
        made.stop()
    assert recorded(state) == {"gpu02": ([0], [])}
    assert store.node("gpu01").last_time == START


def test_a_spool_is_there_as_long_as_its_recorder(state):
    folder = str(state / "marks")
    with Other(state, "4711_3", "gpu 01/x") as other:
        (spool,) = running(folder)
        assert (spool.job, spool.node) == ("4711_3", "gpu-01-x")
        assert send(spool, Mark(START, "one"))
        assert send(spool, Mark(START, "two"))
        assert other.marks() == "one,two"
        assert not send(spool, Mark(START, "three"))
    assert running(folder) == []
    with Other(state) as other:
        (spool,) = running(folder)
        other.process.kill()
        other.process.wait()
        assert running(folder) == []
        assert not os.path.exists(spool.path)


def test_a_spool_takes_whole_marks_only(state):
    spool = Claims().open(str(state / "marks"), "", "gpu01")
    assert os.stat(spool.path).st_mode & 0o777 == 0o600
    lines = [
        b'{"t": 1795200000, "text": "a\\u001b[2Jb"}', b"", b"no json", b"[1]", b'{"t": "x"}',
        b'{"t": 1e300, "text": "late"}', b'{"t": 1795200001, "text": ""}', b"[" * 5000, b"\xff",
    ]  # fmt: skip
    (here,) = running(str(state / "marks"))

    def taken():
        spool.beat()
        return spool.marks()

    for path in (spool.path, here.path):  # from other machines, and from this one
        with open(path, "ab") as file:
            file.write(b"\n".join(lines) + b'\n{"t": 1795200002, "te')
        assert taken() == [Mark(START, "a?[2Jb")]
        assert taken() == []
        with open(path, "ab") as file:
            last = b'\n{"t": 1795200003, "text": "on"}\n'
            file.write(b'xt": "whole"}\n' + b"x" * (1 << 17) + last)
        assert [mark.text for _ in range(4) for mark in taken()] == ["whole", "on"]
    assert spool.close() == spool.close() == []


@pytest.mark.parametrize(
    ("job", "node", "chosen"),
    [
        ("1", "a", ["1a"]),  # in the job, recorded here
        ("2", "a", ["2b", "2c"]),  # in the job, recorded elsewhere
        ("3", "a", []),
        ("", "a", ["1a", "a"]),  # a shell on the node that is in no job
        ("", "z", []),  # whose?
    ],
)
def test_whom_a_mark_is_for(job, node, chosen):
    spools = [Spool(f"{j}{n}", j, n) for j, n in ("1a", "2b", "2c")]
    spools.append(Spool("a", "", "a"))
    assert [spool.path for spool in choose(spools, job, node)] == chosen
    if node == "z":  # there is only one it can be
        assert [each.path for each in choose(spools[1:3], job, node)] == ["2b", "2c"]


def test_a_marks_text_is_one_clean_short_line():
    assert mark_text(" a\n b\tc ") == "a b c"
    assert mark_text("\n\t") == ""
    assert mark_text("\u202ea\x00") == "?a?"
    assert mark_text("x" * 300) == "x" * 199 + "…"


def test_a_folder_that_hangs_holds_up_neither_keys_nor_quitting(source, state, monkeypatch):
    hangs = threading.Event()

    def never_yet(*_):
        hangs.wait(HANGS_S)
        return str(state / "late.gpumon")

    monkeypatch.setattr("gpumon.pipeline.recorder.new_path", never_yet)  # as a dead file server
    through, _ = stage(source, state)
    stream = threading.Thread(target=source.sink.header, args=("gpu01", header()), daemon=True)
    stream.start()
    done = []

    def keys():
        done.extend([through.news(), through.mark("epoch 2")])
        through.stop()
        done.append("quit")

    pressed = threading.Thread(target=keys, daemon=True)
    pressed.start()
    pressed.join(HANGS_S / 2)
    assert done == ["", "not marked: the folder of recordings is not responding", "quit"]
    hangs.set()
    stream.join(HANGS_S)


# -- recorded once -----------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch):
    """Claims are looked at all the time."""
    monkeypatch.setattr("gpumon.recording.claims.LOOK_S", 0.02)
    monkeypatch.setattr("gpumon.recording.claims._FRESH_S", 0.0)


def with_gpu(**more):
    devices = [Device(0, 0, "GPU-a", "A100")]
    return header()._replace(devices=devices, **more)


def came(pid):
    return Event(START, "process", pid=pid, data={"user": "ada", "command": "train", "name": "py"})


def paths(state):
    return sorted(state.rglob("*.gpumon"))


def test_who_watches_takes_over_when_the_recorder_dies(source, state, soon):
    with Other(state, devices="GPU-a") as other:
        made, _ = stage(source, state)
        source.sink.header("gpu01", with_gpu())
        source.sink.add("gpu01", sample(0, came(7), came(8)))
        source.sink.add("gpu01", sample(1, Event(START, "process-end", pid=8)))
        assert (made.news(), paths(state)) == ("gpu01: already being recorded; only shown here", [])
        other.process.kill()
        other.process.wait()
        until(lambda: paths(state), "it takes over")
    source.sink.add("gpu01", sample(2))
    assert made.news().startswith("recording to ")
    made.stop()
    assert recorded(state) == {"gpu01": ([2], [])}
    (path,) = paths(state)
    samples = [item for item in Recording(str(path)).items() if isinstance(item, Sample)]
    assert [event.pid for event in samples[0].events if event.kind == "process"] == [7]
    assert not list((state / "marks").iterdir())


def test_a_dashboard_leaves_a_node_to_gpumon_record(source, state, soon):
    made, _ = stage(source, state)
    source.sink.header("gpu01", with_gpu())
    source.sink.add("gpu01", sample(0))
    assert len(paths(state)) == 1
    with Other(state, devices="GPU-a"):
        until(lambda: made._nodes["gpu01"].recorder is None, "it yields")
        source.sink.add("gpu01", sample(1))
    made.stop()
    assert recorded(state) == {"gpu01": ([0], [])}
    with Recording(str(paths(state)[0])) as recording:
        assert recording.state == "ended"


def test_of_two_dashboards_the_first_goes_on_recording_what_both_see(source, state, soon):
    made, _ = stage(source, state)
    source.sink.header("gpu01", with_gpu())
    with Other(state, devices="GPU-a", is_asked_for=False), Other(state, "4712", devices="GPU-a"):
        for second in range(3):
            time.sleep(0.05)
            source.sink.add("gpu01", sample(second))
    made.stop()
    assert recorded(state) == {"gpu01": ([0, 1, 2], [])}


def test_an_attempt_has_a_file_of_its_own(source, state):
    made, _ = stage(source, state)
    job = JobContext("4711", cluster="alpha", restarts=0)
    for second, context in ((0, job), (1, job), (40, job._replace(restarts=1))):
        source.sink.header(
            "gpu01", header()._replace(job=context, time=START + second, mono=1.0 + second)
        )
        source.sink.add("gpu01", sample(second))
    made.stop()
    found = [Recording(str(path)) for path in paths(state)]
    assert [each.header.job.restarts for each in found] == [0, 1]
    assert [(each.start - START, each.end - START) for each in found] == [(0, 1), (40, 40)]
