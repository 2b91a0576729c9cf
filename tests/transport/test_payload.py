"""The agent that brings itself: what travels, how it starts, lives and ends on a node."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib

import psutil
import pytest

import gpumon
from gpumon.collect.labels import AFRESH, Joiner, addressed, end_line
from gpumon.transport import payload as ship
from gpumon.transport.local import ChildStream
from gpumon.wire.decoder import Decoder
from tests.e2e.program import ROOT, environment
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S, until


def shipped(*flags, **env):
    """The agent as it runs on a node that knows nothing of gpumon."""
    bare = environment(**env)
    del bare["PYTHONPATH"]
    stream = ChildStream(ship.agent_argv("--until-eof", "--interval", "0.2", *flags), bare)
    with contextlib.suppress(BrokenPipeError):
        stream.write(ship.payload())
    return stream


def lines(stream):
    """Its lines as they come, decoded."""
    decoder, rest = Decoder(), b""
    while data := stream.read():
        *whole, rest = (rest + data).split(b"\n")
        yield from filter(None, map(decoder.line, whole))


def words(stream):
    return until(stream.complaint)


def test_what_travels_is_the_agent_alone():
    length, _, packed = ship.payload().partition(b"\n")
    assert int(length) == len(packed) < 130_000
    modules = json.loads(zlib.decompress(packed))
    assert {"gpumon", "gpumon.collect.agent", "gpumon.model.fields", "gpumon.wire"} <= set(modules)
    parts = {name.split(".")[1] for name in modules if "." in name}
    assert parts == {"collect", "model", "wire", "errors"}
    assert {name.split(".")[0] for name in modules} == {"gpumon", "pynvml"}
    ship.payload.cache_clear()
    assert ship.payload() == b"%s\n%s" % (length, packed)


def test_no_word_has_a_line_end_in_it():
    """Csh takes none in quotes."""
    assert not [word for word in ship.agent_argv("--job", "1") if "\n" in word]


def test_it_runs_from_memory(tmp_path):
    tmp = tmp_path / "full"
    tmp.mkdir(mode=0o500)
    stream = shipped(TMPDIR=str(tmp), HOME="/nowhere")
    items = lines(stream)
    header = next(items)
    assert header.gpumon == gpumon.__version__
    assert next(items).rows["host"]
    agent = header.agent_pid
    maps = [os.readlink(f"/proc/{agent}/fd/{fd}") for fd in os.listdir(f"/proc/{agent}/fd")]
    assert not [path for path in maps if str(ROOT) in path or str(tmp_path) in path]
    stream.close()
    assert list(tmp.iterdir()) == []
    assert stream._child.wait(HANGS_S) == 0


def test_it_reads_gpus_where_nothing_is_installed():
    """NVIDIA's binding travels too; what compiles it has ended before the first header."""
    with Emulated("preset:T4x1") as gpus:
        stream = shipped(**{name: gpus.env[name] for name in gpus.env.keys() - os.environ.keys()})
        items = lines(stream)
        header = next(items)
        assert [device.name for device in header.devices] == ["Tesla T4"]
        assert next(items).rows["device"]
        assert psutil.Process(header.agent_pid).children() == []
        stream.close()


def test_a_package_of_this_name_there_does_not_shadow_it(tmp_path):
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    stream = shipped(PYTHONPATH=str(tmp_path))
    assert next(lines(stream)).gpumon == gpumon.__version__
    stream.close()


def test_it_ends_when_the_input_ends_before_it_is_complete():
    stream = ChildStream(ship.agent_argv(), environment(), patience_s=HANGS_S)
    stream.write(ship.payload()[:1000])
    stream.close()
    assert stream._child.wait(HANGS_S) == 0
    assert stream.complaint() == ""


def interpreter(path, version):
    """A Python that says it is of this version and runs as the one here."""
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *version_info*) exec {sys.executable} -I -S -c '
        f"'import sys; sys.exit({version} < (3, 9))';; esac\nexec {sys.executable} \"$@\"\n"
    )
    path.chmod(0o755)


def test_the_first_python_that_is_new_enough_is_taken(tmp_path):
    interpreter(tmp_path / "python3", (3, 6))
    interpreter(tmp_path / "python3.11", (3, 11))
    traced = f"{tmp_path}:/nowhere"
    stream = shipped(PATH=traced)
    assert next(lines(stream)).gpumon == gpumon.__version__
    stream.close()


def test_without_any_python_a_sentence(monkeypatch):
    monkeypatch.setattr(ship, "_SHELL", ship._SHELL.replace("/usr/", "/no/"))
    stream = shipped(PATH="/nowhere")
    assert stream.read() == b""
    assert words(stream) == ship.NO_PYTHON
    assert stream._child.wait(HANGS_S) == 0  # under srun it would be the job's DerivedExitCode
    stream.close()


# -- the agent that was shipped ----------------------------------------------------------------
def end_of(stream):
    """Its last event, and whether anything was measured before."""
    items = list(lines(stream))
    (event,) = [event for item in items[1:] for event in item.events if event.kind == "end"]
    return event, [item for item in items[1:] if item.rows]


def test_in_the_wrong_job_it_shows_nothing(monkeypatch):
    stream = shipped("--job", "7", SLURM_JOB_ID="8", SLURMD_NODENAME="n1")
    event, measured = end_of(stream)
    assert (event.data, measured) == ({"why": "wrong-job"}, [])
    assert event.text == "this shell belongs to job 8, not to job 7"
    stream.close()


def test_without_the_job_it_says_so():
    event, measured = end_of(shipped("--job", "4294967290"))
    assert (event.data, measured) == ({"why": "no-job"}, [])
    assert "no cgroup of job 4294967290" in event.text


def test_with_a_job_it_always_exits_with_0():
    stream = shipped("--job", "7", SLURM_JOB_ID="7", SLURMD_NODENAME="n1")
    items = lines(stream)
    next(items)
    next(items)
    stream._child.terminate()
    assert [event.text for item in items for event in item.events][-1:] == ["signal 15"]
    assert stream._child.wait(HANGS_S) == 0


def test_it_names_its_node_in_front_of_each_line():
    stream = shipped("--label", "--count", "1", SLURMD_NODENAME="gpu 07")
    data = b"".join(iter(stream.read, b""))
    assert all(len(line) < 1000 for line in data.splitlines())
    assert {line.split(b" ")[0] for line in data.splitlines()} == {b"gpu_07"}


@contextlib.contextmanager
def heartbeats(agent):
    """Writes them to its input all the time."""
    over = threading.Event()

    def write():
        with contextlib.suppress(BrokenPipeError):
            while not over.wait(0.1):
                os.write(agent.stdin.fileno(), b"\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


QUICK = "import gpumon.collect.stream as stream; stream._SILENCE_S = 1; stream.main()"


@pytest.mark.parametrize("reads", [True, False])
def test_without_a_heartbeat_it_ends(reads):
    """Also when it is stuck in writing, because nothing is read any more."""
    flags = ["--heartbeat", "--interval", "0.1" if not reads else "0.5"]
    agent = subprocess.Popen(
        [sys.executable, "-c", QUICK, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    if not reads:
        fcntl.fcntl(agent.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    else:
        out = agent.stdout.read().splitlines()
        assert b"no heartbeat from the reader" in out[-1]
    assert agent.wait(HANGS_S) == 0
    agent.stdin.close()
    agent.stdout.close()


def test_with_a_heartbeat_it_lives():
    flags = ["--heartbeat", "--interval", "0.2"]
    with subprocess.Popen(
        [sys.executable, "-c", QUICK, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(),
    ) as agent:  # fmt: skip
        with heartbeats(agent):
            last = time.monotonic() + 3
            while time.monotonic() < last:  # three times as long as it would live without
                assert agent.stdout.readline()
            assert agent.poll() is None
        agent.stdin.close()
        assert agent.wait(HANGS_S) == 0


@pytest.mark.parametrize("waiting", [b"\n", b""])
def test_one_that_was_stopped_lives_on_if_a_heartbeat_waits_for_it(waiting):
    """As an agent of a suspended job: its clock has run on meanwhile."""
    flags = ["--heartbeat", "--interval", "0.2"]
    with subprocess.Popen(
        [sys.executable, "-c", QUICK, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        bufsize=0, env=environment(),
    ) as agent:  # fmt: skip
        with heartbeats(agent):
            assert agent.stdout.readline()
        agent.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        agent.stdin.write(waiting)
        agent.send_signal(signal.SIGCONT)
        if waiting:
            with heartbeats(agent):
                for _ in range(10):
                    assert agent.stdout.readline()
            agent.stdin.close()
        assert b"" in iter(agent.stdout.readline, None)
        assert agent.wait(HANGS_S) == 0


def test_one_of_several_on_a_shared_input_ends_by_a_line_of_its_own():
    stream = shipped("--label", "--heartbeat", "--interval", "0.2", SLURMD_NODENAME="gpu07")
    assert stream.read()
    stream.write(end_line("gpu08"))
    assert stream.read()
    assert stream.read()
    stream.write(end_line("gpu07"))
    while stream.read():
        pass
    assert stream._child.wait(HANGS_S) == 0


def test_a_reader_who_comes_later_gets_a_header_and_a_whole_sample():
    """At once, with what is else sent only once or now and then; as from an agent just started."""
    stream = shipped("--heartbeat", "--interval", "3600", "--label", SLURMD_NODENAME="gpu07")
    joiner, decoder, rest, found = Joiner(1 << 20), Decoder(), b"", []
    while len(found) < 6:
        *whole, rest = (rest + stream.read()).split(b"\n")
        pieces = filter(None, map(joiner.piece, whole))
        found += [decoder.line(line) for _, line in pieces]
        if len(found) in (2, 4):
            stream.write(addressed("gpu08", AFRESH + b"\n") + addressed("gpu07", AFRESH + b"\n"))
    stream.close()
    headers, samples = found[::2], found[1::2]
    assert {header.agent_pid for header in headers} == {headers[0].agent_pid}
    kinds = [{entity for entity in sample.rows} for sample in samples]
    assert kinds[0] - {"program"} <= kinds[1] == kinds[2]
    known = [
        {event.pid for event in sample.events if event.kind == "process"} for sample in samples
    ]
    assert known[0]
    assert known[0] & known[1]
    assert len(known[1] & known[2]) >= len(known[1]) // 2  # the busiest may be others by now


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_whenever_slurm_signals_its_task_it_ends_with_0(number, after_s):
    """All its processes get the signal, as those of a step do."""
    argv = ship.agent_argv("--heartbeat", "--job", "7")
    stream = ChildStream(argv, environment(SLURM_JOB_ID="7"))
    stream.write(ship.payload())
    shell = psutil.Process(stream._child.pid)
    until(shell.children, "the shell has set its traps")
    time.sleep(after_s)
    os.killpg(stream._child.pid, number)
    assert stream._child.wait(HANGS_S) == 0
    stream.close()
