"""Sources: the agent as a child process over the emulated driver, and recordings."""

from __future__ import annotations

import gzip
import itertools
import signal
import sys
import time

import psutil
import pytest

import gpumon
from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.sample import Device, Event, Header, JobContext, Sample, State
from gpumon.recording import Recording
from gpumon.sources.attach import AttachSource
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.transport.intake import Intake
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.encoder import Encoder
from tests.nvml.emulator import Emulated
from tests.sources.sinks import Sink
from tests.support.waiting import HANGS_S


# -- this node ---------------------------------------------------------------------------------
@pytest.fixture
def local(monkeypatch):
    """Starts local sources over a scenario; all of them are stopped at the end."""
    running = []

    def start(scenario, interval_s=0.2):
        gpus = Emulated(scenario)
        running.append(gpus)
        for name, value in gpus.__enter__().env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SLURMD_NODENAME", raising=False)
        source, sink = AttachSource.of_this_node("n1", interval_s), Sink()
        running.append(source)
        source.start(sink)
        return source, sink

    yield start
    for one in reversed(running):
        one.stop() if isinstance(one, AttachSource) else one.__exit__()


def distinct(states):
    """The states without repetitions in a row: a second `connecting` names the transport."""
    return [state for state, _ in itertools.groupby(states)]


def agents():
    return [
        child for child in psutil.Process().children() if "gpumon/collect/" in str(command(child))
    ]


def command(child):
    """Its command line; none of one that has ended meanwhile."""
    try:
        return child.cmdline()
    except psutil.Error:
        return []


def test_local_brings_the_samples_of_this_node(local):
    source, sink = local("a100x4")
    sink.wait(lambda sink: len(sink.of("sample")) >= 3)
    assert distinct(sink.states()) == ["connecting", "live"]
    (header,) = sink.of("header")
    assert [device.index for device in header.devices] == [0, 1, 2, 3]
    assert header.interval_s == 0.2
    assert sink.of("status")[-1].source == "local"
    assert all(sample.rows["host"][""] for sample in sink.of("sample"))
    assert {what[1] for what in sink.got if what[0] != "status"} == {header.node}
    assert abs(source.now() - time.time()) < HANGS_S
    (agent,) = agents()
    source.stop()
    assert agent.wait(HANGS_S) in (0, None)
    sink.wait(lambda sink: not agents())
    assert "lost" not in sink.states()  # it was asked to end


def test_local_starts_a_killed_agent_again(local):
    _, sink = local("a100x4")
    sink.wait(lambda sink: sink.of("sample"))
    (agent,) = agents()
    agent.kill()
    sink.wait(lambda sink: sink.states().count("live") == 2)
    assert distinct(sink.states()) == ["connecting", "live", "lost", "live"]
    lost = next(status for status in sink.of("status") if status.state == "lost")
    assert lost.detail == "the collectors ended (exit -9); trying again in 1 s"


def test_local_says_the_agents_last_words(local, monkeypatch, tmp_path):
    """What it wrote to stderr, and harmless."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 'no \\033[2J library\\n' >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    _, sink = local("no_driver")
    sink.wait(lambda sink: "lost" in sink.states())
    detail = sink.of("status")[-1].detail
    assert detail.startswith("local: the collectors ended (exit 1)")
    assert "trying again" in detail
    assert detail.isprintable()


def test_local_starts_an_agent_again_that_was_told_to_end(local):
    _, sink = local("a100x4")
    sink.wait(lambda sink: sink.of("sample"))
    (agent,) = agents()
    agent.send_signal(signal.SIGTERM)
    sink.wait(lambda sink: sink.states().count("live") == 2)
    lost = next(status for status in sink.of("status") if status.state == "lost")
    assert lost.detail == "signal 15; trying again in 1 s"


def test_local_cannot_start(local, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/python")
    _, sink = local("no_driver")
    sink.wait(lambda sink: "lost" in sink.states())
    assert "/no/python: No such file or directory" in sink.of("status")[-1].detail


def test_local_stops_at_once_while_the_driver_hangs(local):
    source, sink = local("hang_init")
    sink.wait(lambda sink: sink.of("sample"))
    assert "is not responding" in sink.of("header")[0].notes[0]
    (agent,) = agents()
    source.stop()
    assert not agent.is_running() or agent.wait(HANGS_S) in (0, -9, None)


def test_local_stopped_before_it_began():
    source = AttachSource.of_this_node("n1", 1.0)
    source.stop()
    sink = Sink()
    source.start(sink)
    time.sleep(0.2)
    assert sink.states() == ["connecting"]
    assert not agents()


def test_the_package_is_found_from_any_folder(local, monkeypatch, tmp_path):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpumon").mkdir()  # a folder of this name here must not shadow the package
    _, sink = local("no_driver")
    sink.wait(lambda sink: sink.of("sample"))
    assert sink.of("header")[0].gpumon == gpumon.__version__


# -- lines -------------------------------------------------------------------------------------
HEADER = Header("n1", "b", 1000.0, 10.0, 1.0, "0.1.0", [Device(0, 0, "GPU-1", "A100")])


def lines(times=(1000.0, 1001.0, 1002.0), header=HEADER, **more):
    """A stream of samples at these times."""
    encoder = Encoder()
    told = [encoder.header(header)]
    for number, t in enumerate(times):
        rows = {"device": {0: {"busy_percent": number}}}
        told.append(encoder.sample(Sample(t, t - 990, rows, **more)))
    return [f"{line}\n".encode() for line in told]


def busy(samples):
    return [sample.rows["device"][0]["busy_percent"] for sample in samples]


def test_a_bad_line_is_counted_and_the_others_are_taken():
    intake = Intake()
    head, first, second, third = lines()
    told = (head, first, b"{\n", b"\n", second[:40] + b"\n", b'{"later": 1}\n', third)
    taken = [item for line in told for item in intake.line(line)]
    assert intake.bad_lines == 2
    assert busy([item for item in taken if isinstance(item, Sample)]) == [0, 2]


def test_a_stream_of_another_version_is_refused():
    with pytest.raises(WireError):
        Intake().line(b'{"wire":"2.0","node":"x","t":1,"m":1}\n')


def test_what_comes_before_a_stream_is_skipped():
    intake = Intake()
    assert intake.line(b"Welcome to node n1!\n") == []
    (header,) = intake.line(b"\x1b[0m" + lines()[0])
    assert isinstance(header, Header)


# -- recordings --------------------------------------------------------------------------------
def recording(path, told, packed=False):
    path.write_bytes(gzip.compress(b"".join(told)) if packed else b"".join(told))
    return str(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_recording_is_read(tmp_path, packed):
    head, *samples = Recording(recording(tmp_path / "r", lines(), packed)).items()
    assert head == HEADER
    assert busy(samples) == [0, 1, 2]


def test_a_torn_recording_gives_what_is_whole(tmp_path):
    whole = b"".join(lines())
    plain, packed, cut = tmp_path / "plain", tmp_path / "packed", gzip.compress(whole)
    plain.write_bytes(whole[:-5])
    packed.write_bytes(cut[:-12])
    for path, least in ((plain, 3), (packed, 1)):
        read = Recording(str(path))
        assert least <= len(list(read.items())) <= 4
        assert ["the end is missing" in each for each in read.problems] == [True]


def test_nothing_is_given_of_a_damaged_gzip_file(tmp_path):
    whole = gzip.compress(b"".join(lines()), compresslevel=0)  # a flip changes only that byte
    for at in range(40, len(whole) - 8, 97):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path = tmp_path / "r"
        path.write_bytes(damaged)
        with pytest.raises(GpumonError, match="cannot read"):
            next(Recording(str(path)).items())


@pytest.mark.parametrize("junk", [b"junk\n", b"[1]\n", b"x" * (3 * MAX_LINE_BYTES) + b"\n"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_lines_that_cannot_be_read_do_not_end_a_file(tmp_path, junk, place):
    path = tmp_path / "r"
    whole = [*lines()]
    path.write_bytes(b"".join([*whole[:place], junk, *whole[place:]]))
    read = Recording(str(path))
    assert len(list(read.items())) == len(whole)
    assert read.problems == ["1 line could not be read"]


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, NotFoundError, "no file .*lists the recordings"),
        (b"", WireError, "r is empty: nothing was recorded"),
        (b"\n\n", WireError, "r is empty"),
        (b"hello\n", WireError, "r is a text file, not a recording; expected a .gp"),
        (b'{"version":1}\n', WireError, "r is a JSON file"),
        (gzip.compress(b"#!/bin/bash\n"), WireError, "r is a script"),
        (b"\xff\0\1", WireError, "r is a binary file"),
        (b"JobID|State\n1|FAILED\n", WireError, "r is a dump of sacct .see 'gpumon report --from"),
        (b'{"t":1,"m":1}\n', WireError, "before the header"),
        (b"x" * (MAX_LINE_BYTES + 9), WireError, "a line of"),
        (b'{"wire":"9.0","node":"a","t":1,"m":1}\n', WireError, "use the gpumon version"),
        (b"\x1f\x8b" + b"\0" * 40, GpumonError, "cannot read"),
        (gzip.compress(b"", mtime=0)[:10] + b"\xff" * 60, GpumonError, "cannot read"),
    ],
    ids=[
        "absent", "empty", "blank", "text", "json", "script", "binary", "sacct", "headless",
        "endless", "newer", "no gzip", "damaged",
    ],
)  # fmt: skip
def test_what_is_no_recording_is_refused_in_words(tmp_path, content, error, words):
    path = tmp_path / "r"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=words):
        ReplaySource(tracks_of([str(path)]))


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(GpumonError, match="Is a directory"):
        ReplaySource(tracks_of([str(tmp_path)]))


def test_replay_brings_everything_and_says_that_it_ended(tmp_path):
    path = recording(tmp_path / "r", lines())
    source, sink = ReplaySource(tracks_of([path]), speed=1000), Sink()
    source.start(sink)
    sink.wait(lambda sink: "ended" in sink.states())
    assert busy(sink.of("sample")) == [0, 1, 2]
    assert sink.states() == ["live", "ended"]
    assert {what[1] for what in sink.got} == {"n1"}


def test_replay_begins_with_the_story_so_far(tmp_path):
    told = lines([1000.0 + n for n in range(100)])
    source, sink = ReplaySource(tracks_of([recording(tmp_path / "r", told)]), ahead_s=50), Sink()
    source.start(sink)
    source.stop()
    assert busy(sink.of("sample"))[:51] == list(range(51))
    assert len(sink.of("sample")) < 100  # not to its end
    assert 1050 <= source.now() < 1050 + HANGS_S


def test_replay_in_a_loop_goes_on_in_time(tmp_path):
    state = {0: State("lost", 999.0)}
    told = lines(states=state, events=[Event(998.0, "xid", 0, text="79")])
    source = ReplaySource(tracks_of([recording(tmp_path / "r", told)]), speed=1000, loop=True)
    sink = Sink()
    assert source.news() == ""  # before it starts: a round lasts 3 ms
    source.start(sink)
    sink.wait(lambda sink: len(sink.of("sample")) >= 9)
    source.stop()
    assert source.news() == "the recording begins again"
    samples = sink.of("sample")[:9]
    assert [sample.time - 1000 for sample in samples] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [sample.states[0].since for sample in samples[::3]] == [999, 1002, 1005]
    assert [sample.events[0].time for sample in samples[::3]] == [998, 1001, 1004]
    assert "ended" not in sink.states()


def test_replay_in_a_loop_moves_the_job_along(tmp_path):
    header = HEADER._replace(job=JobContext("7", start=900.0, end=2000.0))
    path = recording(tmp_path / "r", lines(header=header))
    source = ReplaySource(tracks_of([path]), speed=1000, loop=True)
    sink = Sink()
    source.start(sink)
    sink.wait(lambda sink: len(sink.of("header")) >= 2)
    source.stop()
    jobs = [header.job for header in sink.of("header")[:2]]
    assert [(job.start, job.end) for job in jobs] == [(900, 2000), (903, 2003)]


def test_a_recording_that_is_damaged_in_the_middle_goes_on_and_says_so(tmp_path):
    told = lines()
    told[2] = b"{damaged}\n"
    source, sink = ReplaySource(tracks_of([recording(tmp_path / "r", told)]), speed=1000), Sink()
    source.start(sink)
    sink.wait(lambda sink: "ended" in sink.states())
    assert busy(sink.of("sample")) == [0, 2]
    assert "1 line could not be read" in sink.of("status")[-1].detail
