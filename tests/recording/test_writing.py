"""Writers that are killed or cannot write leave a readable file and never an exception."""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
import zstandard

from gpumon.errors import GpumonError
from gpumon.recording import Recorder, Recording, writer
from gpumon.recording.writer import Lane
from tests.e2e.program import ROOT, Collecting, environment
from tests.nvml.emulator import Emulated, Proc, Scenario
from tests.recording import made
from tests.recording.recorded import Clock, record, samples_of, written
from tests.support.waiting import HANGS_S, until

_WRITER = """
import sys, time
from gpumon.recording import Recorder
from tests.recording import made
recorder = Recorder(sys.argv[1], flush_s=0.2, frame_s=0.6)
recorder.header(made.header()._replace(interval_s=0.02))
for sample in made.samples(100_000):
    recorder.add(sample)
    print(sample.time, flush=True)
    time.sleep(0.02)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_all_but_the_last_seconds(tmp_path):
    path = tmp_path / "killed.gpumon"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(100):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        taken = 100 + len(writer.stdout.read().splitlines())
    os.utime(path, (1e9, 1e9))
    with Recording(str(path)) as recording:
        found = [sample for sample in samples_of(recording.items()) if sample.rows]
        assert recording.state == "torn"
        assert recording.problems
        assert [sample.time for sample in found] == [
            round(sample.time, 3) for sample in made.samples(len(found))
        ]
    # 0.2 s of 0.02 s each, and what the disk was slow to take: bounded by half, not by speed
    assert taken / 2 < len(found) <= taken


@pytest.mark.parametrize(
    ("code", "says"),
    [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "quota"), (errno.EIO, "Input/output error")],
)
@pytest.mark.parametrize("partial", [0, 7])
def test_an_error_ends_the_recording_and_not_the_caller(
    tmp_path, few, monkeypatch, code, says, partial
):
    real, calls = os.write, []

    def failing(fd, data):
        calls.append(len(data))
        if len(calls) < 4:
            return real(fd, data)
        if len(calls) == 4 and partial:
            return real(fd, data[:partial])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", failing)
    path = tmp_path / "full.gpumon"
    recorder = record(path, few)  # never raises
    monkeypatch.undo()
    assert says in recorder.failed
    assert "\n" not in recorder.failed
    with Recording(str(path)) as recording:
        got = samples_of(recording.items())
    assert got == [written(sample) for sample in few[: len(got)]]
    assert len(got) >= 10


def test_a_sync_that_fails_is_an_error_too(tmp_path, few, monkeypatch):
    def quota(_fd):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fdatasync", quota)  # as network file systems report it
    assert "quota" in record(tmp_path / "x.gpumon", few, is_synced=False).failed


def test_what_is_flushed_is_on_disk(tmp_path, few, monkeypatch):
    """By the call that writes it; else by one at the beginning, and one for each frame."""
    synced, real = [], os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(fd) or real(fd))
    for is_synced, count in ((True, 0), (False, 2)):
        recorder = Recorder(str(tmp_path / f"{is_synced}.gpumon"), is_synced=is_synced)
        flags = fcntl.fcntl(recorder._writer.file._fd, fcntl.F_GETFL)
        assert bool(flags & os.O_DSYNC) is is_synced
        recorder.header(made.header())
        for sample in few:
            recorder.add(sample)
        recorder.close()
        assert len(synced) == count


@contextlib.contextmanager
def full_disk(folder):
    """A file system of 64 KiB; None where nobody may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    """A real one, else the device that is always full in place of the file."""
    with full_disk(tmp_path) as disk:
        path = tmp_path / "x.gpumon"
        if disk is None:
            recorder = record(path, made.samples(30), close=None)
            while recorder.pending_bytes:
                time.sleep(0.001)
            os.dup2(os.open("/dev/full", os.O_WRONLY), recorder._writer.file._fd)
            recorder.close()
        else:
            recorder = record(path, made.samples(300))
        assert "no space left" in recorder.failed
        with Recording(str(path)) as recording:
            assert len(samples_of(recording.items())) >= 20


@pytest.mark.slow
def test_a_file_size_limit(tmp_path):
    """The limit that the shell's `ulimit -f` sets, in a process of its own."""
    path = tmp_path / "x.gpumon"
    code = (
        "import sys\nfrom tests.recording import made\n"
        "from tests.recording.recorded import record\n"
        "print(record(sys.argv[1], made.samples(300)).failed)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )  # fmt: skip
    assert "File too large" in done.stdout, done.stderr
    with Recording(str(path)) as recording:
        assert len(samples_of(recording.items())) > 20


def test_a_disk_that_hangs_holds_nobody_up(tmp_path, few, monkeypatch):
    release = threading.Event()
    real = os.write

    def hanging(fd, data):
        release.wait(HANGS_S)
        return real(fd, data)

    monkeypatch.setattr(os, "write", hanging)
    monkeypatch.setattr("gpumon.recording.writer._CLOSE_S", 0.05)
    monkeypatch.setattr("gpumon.recording.writer._MAX_PENDING_BYTES", 20_000)
    try:
        recorder = record(tmp_path / "x.gpumon", few)
        assert "is not responding" in recorder.failed
    finally:
        release.set()


def test_two_writers_never_share_a_file(tmp_path, few):
    path = tmp_path / "x.gpumon"
    first = record(path, few[:3], close=None)
    with pytest.raises(GpumonError, match="never overwrites"):
        Recorder(str(path))
    first.close()
    with pytest.raises(GpumonError, match="never overwrites"):
        Recorder(str(path))
    link = tmp_path / "link.gpumon"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GpumonError, match="never overwrites"):
        Recorder(str(link))
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GpumonError, match="cannot record to"):
        Recorder(str(tmp_path / "file" / "x.gpumon"))


def test_it_ends_at_its_limit_with_the_file_whole(tmp_path):
    path = tmp_path / "x.gpumon"
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, max_bytes=20_000)
    recorder.header(made.header())
    for sample in made.samples(200):
        clock.now = sample.mono
        recorder.add(sample)
        while recorder.pending_bytes:
            time.sleep(0.001)
    assert "limit of 20000 bytes" in recorder.failed
    recorder.close()
    assert path.stat().st_size < 60_000
    with Recording(str(path)) as recording:
        assert (recording.state, recording.problems) == ("ended", [])
        assert "limit" in samples_of(recording.items())[-1].events[0].text


def test_one_of_many_recorders_keeps_little_and_writes_the_same(tmp_path, few):
    found, windows = [], []
    for is_small in (False, True):
        path = tmp_path / f"{is_small}.gpumon"
        record(path, few, is_small=is_small)
        with Recording(str(path)) as recording:
            found.append(list(recording.items()))
        windows.append(zstandard.get_frame_parameters(path.read_bytes()).window_size)
    assert found[0] == found[1] != []
    assert windows[1] < windows[0]


def test_nothing_recorded_leaves_no_file(tmp_path):
    recorder = Recorder(str(tmp_path / "x.gpumon"))
    recorder.close()
    recorder.close()
    assert (recorder.failed, list(tmp_path.iterdir())) == ("", [])


def test_a_file_that_is_being_written_is_read_and_called_so(tmp_path, few):
    path = tmp_path / "x.gpumon"
    recorder = record(path, few[:25], close=None)
    while recorder.pending_bytes:
        time.sleep(0.001)
    with Recording(str(path)) as recording:
        assert recording.state == "recording"
        assert recording.problems == []
        assert len(samples_of(recording.items())) >= 15
    recorder.close()


@pytest.mark.slow
def test_no_secret_of_a_command_line_is_in_the_file(tmp_path):
    """Real processes with the arguments of the corpus, as the agent sees them."""
    corpus = (ROOT / "tests/collect/fixtures/commands.txt").read_text()
    lines = [line for line in corpus.splitlines() if "s3cr3tvalue" in line]
    assert len(lines) > 15
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with contextlib.ExitStack() as stack:
        running = []
        for line in lines:
            process = subprocess.Popen([*sleep, *line.split("|")])
            stack.callback(process.wait)
            stack.callback(process.kill)
            running.append(process.pid)
        scenario = Scenario().gpu(0, model="T4", procs=[Proc(pid, mem_mib=100) for pid in running])
        gpus = stack.enter_context(Emulated(scenario))
        collecting = stack.enter_context(Collecting("--count", "3", env=environment(gpus.env)))
        assert collecting.rest() == 0
    path = tmp_path / "x.gpumon"
    record(path, collecting.samples, header=collecting.header)
    with path.open("rb") as packed:
        text = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    for pid in running:
        assert f'"kind":"process","pid":{pid},'.encode() in text
    assert b"s3cr3t" not in text


def test_what_one_recorder_left_is_written_before_what_the_next_one_writes():
    lane, slow, done, threads = Lane(), threading.Event(), [], set()
    for number in range(3):
        lane.put(partial(slow.wait, HANGS_S))
        lane.put(lambda: threads.add(threading.get_ident()))
        lane.put(partial(done.append, number))
    slow.set()
    until(lambda: len(done) == 3)
    assert (done, len(threads)) == ([0, 1, 2], 1)


def test_the_thread_of_recorders_that_ended_ends(monkeypatch):
    monkeypatch.setattr(writer, "_IDLE_S", 0.01)
    lane, done = Lane(), []
    for number in range(3):
        lane.put(partial(done.append, number))
        until(lambda: not lane._is_running)
    assert done == [0, 1, 2]


def test_work_for_which_no_thread_is_to_be_had_is_done_with_the_next(monkeypatch):
    lane, done, start = Lane(), [], threading.Thread.start
    refusals = iter([RuntimeError("can't start new thread")])

    def refuse(thread):
        raise next(refusals)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    lane.put(lambda: done.append(1))
    assert done == []
    monkeypatch.setattr(threading.Thread, "start", start)
    lane.put(lambda: done.append(2))
    until(lambda: done == [1, 2])
