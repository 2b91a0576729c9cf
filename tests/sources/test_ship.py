"""The agent that brings itself: what travels, how it starts, lives and ends on a node."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import zlib

import pytest

import gpumon
from gpumon.sources import ship
from gpumon.sources.local import ChildStream
from gpumon.wire import Decoder
from tests.e2e.program import HANGS_S, ROOT, environment


def shipped(*flags, **env):
    """The agent as it runs on a node that knows nothing of gpumon."""
    bare = environment(**env)
    del bare["PYTHONPATH"]
    stream = ChildStream(ship.ship_argv("--until-eof", "--interval", "0.2", *flags), bare)
    with contextlib.suppress(BrokenPipeError):
        stream.write(ship.cargo())
    return stream


def lines(stream):
    """Its lines as they come, decoded."""
    decoder, rest = Decoder(), b""
    while data := stream.read():
        *whole, rest = (rest + data).split(b"\n")
        yield from filter(None, map(decoder.line, whole))


def words(stream):
    until = time.monotonic() + HANGS_S
    while not stream.complaint() and time.monotonic() < until:
        time.sleep(0.05)
    return stream.complaint()


def test_what_travels_is_the_agent_alone():
    length, _, packed = ship.cargo().partition(b"\n")
    assert int(length) == len(packed) < 200_000
    modules = json.loads(zlib.decompress(packed))
    assert {"gpumon", "gpumon.collect.agent", "gpumon.model.fields", "gpumon.wire"} <= set(modules)
    parts = {name.split(".")[1] for name in modules if "." in name}
    assert parts == {"collect", "model", "wire", "errors"}
    ship.cargo.cache_clear()
    assert ship.cargo() == b"%s\n%s" % (length, packed)


def test_no_word_has_a_line_end_in_it():
    """Csh takes none in quotes."""
    assert not [word for word in ship.ship_argv("--job", "1") if "\n" in word]


def test_it_runs_from_memory(tmp_path):
    tmp = tmp_path / "full"
    tmp.mkdir(mode=0o500)
    stream = shipped(TMPDIR=str(tmp), HOME="/nowhere")
    items = lines(stream)
    assert next(items).gpumon == gpumon.__version__
    assert next(items).rows["host"]
    agent = stream._child.pid
    maps = [os.readlink(f"/proc/{agent}/fd/{fd}") for fd in os.listdir(f"/proc/{agent}/fd")]
    assert not [path for path in maps if str(ROOT) in path or str(tmp_path) in path]
    stream.close()
    assert list(tmp.iterdir()) == []
    assert stream._child.wait(HANGS_S) == 0


def test_a_package_of_this_name_there_does_not_shadow_it(tmp_path):
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    stream = shipped(PYTHONPATH=str(tmp_path))
    assert next(lines(stream)).gpumon == gpumon.__version__
    stream.close()


def test_it_ends_when_the_input_ends_before_it_is_complete():
    stream = ChildStream(ship.ship_argv(), environment(), patience_s=HANGS_S)
    stream.write(ship.cargo()[:1000])
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
    assert event.text == "this shell was put into job 8, not into job 7"
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


QUICK = "import gpumon.collect.agent as agent; agent._SILENCE_S = 1; agent.main()"


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
        assert b"no sign of the reader" in out[-1]
    assert agent.wait(HANGS_S) == 0
    agent.stdin.close()
    agent.stdout.close()


def test_with_a_heartbeat_it_lives():
    flags = ["--heartbeat", "--interval", "0.2"]
    with subprocess.Popen(
        [sys.executable, "-c", QUICK, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(),
    ) as agent:  # fmt: skip
        last = time.monotonic() + 3
        while time.monotonic() < last:  # three times as long as it would live without
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            assert agent.stdout.readline()
        assert agent.poll() is None
        agent.stdin.close()
        assert agent.wait(HANGS_S) == 0
