"""The process that owns srun: one for all dashboards, whatever becomes of any of them.

`srun` is a program of this machine that answers on behalf of all nodes; the real one is in
tests/slurm/test_cluster_steps.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import psutil
import pytest

from gpumon.transport.launch import Launch
from gpumon.transport.relay import client, join, server, step
from gpumon.transport.relay.join import Wanted
from gpumon.transport.stream import Failure
from tests.support.waiting import HANGS_S, until

#: says a line for each node now and then, and on its error output what it reads; as srun, it has a
#: child, and ends with its input
SRUN = """\
#!PYTHON
import os, select, subprocess, sys, time
nodes = [word for word in sys.argv if word.startswith("--nodelist=")][0][11:].split(",")
def note(data):
    with open(os.environ["NOTES"], "ab") as file: file.write(data)
note(("start %d %s\\n" % (os.getpid(), ",".join(nodes))).encode())
child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
while True:
    ready, _, _ = select.select([0], [], [], 0.05)
    data = os.read(0, 65536) if ready else b"-"
    if ready: note(data)
    if not data and "STAYS" not in os.environ: break
    for node in nodes:
        os.write(1, (node + " -{" + "x" * int(os.environ.get("SIZE", "10")) + "}\\n").encode())
    time.sleep(0.05 if data else 1)
child.kill()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A private folder, and an srun in PATH; ends what was started."""
    (tmp_path / "srun").write_text(SRUN.replace("PYTHON", sys.executable))
    (tmp_path / "srun").chmod(0o755)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    monkeypatch.setattr(join, "GRACE_S", 1.0)
    monkeypatch.setattr(join, "payload", lambda: b"8\nmodules\n")
    yield Place(tmp_path)
    for process in Place(tmp_path).left():
        with suppress(psutil.NoSuchProcess):
            process.kill()


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.notes = folder / "notes"
        self.env = {"PATH": f"{folder}:/usr/bin:/bin", "NOTES": str(self.notes)}

    def wanted(self, *nodes, agent=("agent", "--interval", "1"), gpus=True, **env):
        command = ["srun", "--nodes=9", "--ntasks=9", f"--nodelist={','.join(nodes)}", *agent]
        return Wanted("7", gpus, nodes, agent, command, {**self.env, **env})

    def join(self, *nodes, **how):
        joined = join.join(self.wanted(*nodes, **how))
        assert joined is not None
        if joined.stream is not None:
            joined.stream.write(b"8\nmodules\n")
        return joined

    def read(self):
        return self.notes.read_text() if self.notes.exists() else ""

    def starts(self):
        return [line.split()[2] for line in self.read().splitlines() if line.startswith("start")]

    def left(self):
        """The relay and its sruns, and their children."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if any(str(self.folder) in word for word in words) and "srun" in " ".join(words):
                    found += [process, *process.children()]
                elif process.environ().get("XDG_RUNTIME_DIR", "").startswith(str(self.folder)):
                    found += [process] if any("relay" in word for word in words) else []
            except psutil.Error:
                pass
        return found

    def all_gone(self):
        until(lambda: not self.left(), lambda: f"left: {self.left()}")
        folder = self.folder / "runtime" / "gpumon"
        assert [each.name for each in folder.iterdir() if each.is_socket()] == []


def lines(stream, node, count=3):
    """So many lines of a node."""
    found, rest = 0, b""
    while found < count:
        data = stream.read()
        assert data, "the stream has ended"
        *whole, rest = (rest + data).split(b"\n")
        found += sum(line.startswith(node.encode() + b" ") for line in whole)


def end_of(stream):
    data = b"".join(iter(stream.read, b""))
    return [line[1:] for line in data.splitlines() if line.startswith(b"\0")]


def test_all_dashboards_share_one_step_and_its_modules_are_sent_once(place):
    first = place.join("n1", "n2")
    lines(first.stream, "n2")
    others = [place.join("n2", "n1", agent=("agent", "--interval", "7", "--spread"))]
    others.append(place.join("n2"))
    for each in others:
        lines(each.stream, "n2")
    assert place.starts() == ["n1,n2"]
    until(lambda: place.read().count("@n2 afresh\n") == 2, "the later ones want whole samples")
    assert place.read().count("modules") == 1
    first.stream.close()
    others[0].stream.close()
    lines(others[1].stream, "n2")
    until(lambda: "end n1\n" in place.read(), "n1 is nobody's any more")
    assert place.starts() == ["n1,n2"]
    others[1].stream.close()
    place.all_gone()


def test_nodes_that_come_later_have_a_step_of_their_own(place):
    first = place.join("n1")
    lines(first.stream, "n1")
    second = place.join("n1", "n2")
    assert second.nodes == ["n1", "n2"]
    lines(second.stream, "n1")
    lines(second.stream, "n2")
    assert place.starts() == ["n1", "n2"]
    for each in (first, second):
        each.stream.close()
    place.all_gone()


def test_other_jobs_agents_and_kinds_are_not_shared(place):
    joined = [
        place.join("n1"),
        place.join("n1", gpus=False),
        place.join("n1", agent=("agent", "--gpus", "1")),
        place.join("n1", SLURM_CONF="/elsewhere"),
    ]
    assert len(place.starts()) <= 4
    for each in joined:
        lines(each.stream, "n1")
        each.stream.close()
    assert place.starts() == ["n1"] * 4
    place.all_gone()


def test_who_starts_again_soon_finds_the_step_still_there(place):
    for _ in range(3):
        joined = place.join("n1")
        lines(joined.stream, "n1")
        joined.stream.close()
    assert place.starts() == ["n1"]
    place.all_gone()


DASHBOARD = """
import json, sys, time
from gpumon.transport.relay import join
join.payload = lambda: b"8\\nmodules\\n"
joined = join.join(join.Wanted(*json.loads(sys.argv[1])))
joined.stream.write(b"8\\nmodules\\n")
print(joined.nodes, flush=True)
while "reads" in sys.argv: joined.stream.read()
time.sleep(1000)
"""


def dashboard(place, *words, **env):
    wanted = json.dumps(place.wanted("n1", **env))
    argv = [sys.executable, "-c", DASHBOARD, wanted, *words]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"['n1']\n"
    return process


def test_a_dashboard_that_is_killed_takes_nothing_with_it(place):
    with dashboard(place, "reads") as first:  # it has started the relay
        second = place.join("n1")
        first.kill()
    lines(second.stream, "n1")
    assert place.starts() == ["n1"]
    second.stream.close()
    place.all_gone()


def test_of_several_that_start_at_once_one_starts_the_step(place):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(place.join("n1", "n2"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    for each in found:
        lines(each.stream, "n1")
        each.stream.close()
    assert (len(found), place.starts()) == (8, ["n1,n2"])
    place.all_gone()


def test_a_dashboard_that_stands_still_is_cut_off_and_the_others_go_on(place, within):
    relay = within(place)
    clients = []
    with dashboard(place, SIZE="60000") as still:
        good = place.join("n1", SIZE="60000")
        until(lambda: len(relay.clients) == 2)
        while len(relay.clients) == 2:
            lines(good.stream, "n1")
            clients.append(max(len(each._out) for each in relay.clients))
        assert max(clients) <= client.MAX_WAITING_BYTES
        lines(good.stream, "n1")
        still.kill()
    good.stream.close()


def test_srun_that_does_not_end_with_its_input_is_killed_its_child_first(
    place, within, monkeypatch
):
    """Its child would end the step with 0:9 if it saw srun die."""
    monkeypatch.setattr(step, "_ENDS_S", 0.5)
    killed = []
    monkeypatch.setattr(
        os,
        "kill",
        lambda pid, number, kill=os.kill: killed.append((pid, number)) or kill(pid, number),
    )
    relay = within(place)
    joined = place.join("n1", STAYS="1")
    lines(joined.stream, "n1")
    (srun,) = (each for each in place.left() if "srun" in each.cmdline()[1])
    (child,) = srun.children()
    joined.stream.close()
    until(lambda: not relay._steps, "it is killed")
    assert killed[:3] == [
        (srun.pid, signal.SIGSTOP), (child.pid, signal.SIGKILL), (srun.pid, signal.SIGKILL),
    ]  # fmt: skip


def test_why_srun_ended_is_said_and_the_next_waits(place):
    (place.folder / "srun").write_text("#!/bin/sh\necho 'srun: error: it broke' >&2\nsleep 1\n")
    joined = place.join("n1")
    assert end_of(joined.stream) == [b"srun: error: it broke"]
    again = place.join("n1", gpus=False)
    assert again.stream is None
    assert 50 < again.wait_s <= 60
    place.all_gone()
    assert 50 < place.join("n1").wait_s <= 60  # by another relay
    place.all_gone()


def test_who_asks_for_a_node_hears_that_no_agent_began_and_why(place):
    """By which no other step is tried where the job needs its memory (`transport.room`)."""
    (place.folder / "srun").write_text("#!/bin/sh\necho 'too little memory is free' >&2\nexit 0\n")
    joined = place.join("n1", "n2")
    told = []
    launch = Launch(
        joined.stream,
        joined.nodes,
        HANGS_S,
        lambda it: told.append((it.is_refused, it.complaint())),
    )
    assert [stream.read() for stream in launch.streams.values()] == [b"", b""]
    assert {stream.complaint() for stream in launch.streams.values()} == {
        "too little memory is free"
    }
    until(lambda: told == [(True, "too little memory is free")])
    place.all_gone()


def test_a_step_that_runs_is_joined_without_a_start(place):
    """So a job without room for a step can be watched by whom a running one serves."""
    only = place.wanted("n1", "n2")._replace(may_start=False)
    assert join.join(only) is None  # nor is a relay started
    first = place.join("n1")
    assert first.has_started
    second = join.join(only)
    assert (second.nodes, second.wait_s, second.has_started) == (["n1"], 0.0, False)
    none = join.join(only._replace(nodes=["n2"]))
    assert (none.stream, none.nodes, none.wait_s) == (None, [], 0.0)
    until(lambda: place.starts() == ["n1"])
    first.stream.close()
    second.stream.close()
    place.all_gone()


def test_one_that_was_refused_is_tried_again_sooner(place):
    why = "srun: error: Unable to create step for job 7: Requested nodes are busy"
    (place.folder / "srun").write_text(f"#!/bin/sh\necho '{why}' >&2\nexit 1\n")
    joined = place.join("n1")
    assert end_of(joined.stream) == [why.encode()]
    assert 0 < place.join("n1").wait_s <= 5
    second = place.join("n1", gpus=False)  # the other kind may be granted
    assert end_of(second.stream) == [why.encode()]
    place.all_gone()


def test_a_node_that_fell_silent_counts_as_broken_when_it_is_left(place, within, monkeypatch):
    monkeypatch.setattr(step, "_SILENT_S", 0.5)
    monkeypatch.setattr(step, "_SILENT_INTERVALS", 0.0)
    within(place)
    joined = place.join("n1")
    lines(joined.stream, "n1")
    (srun,) = (each for each in place.left() if "srun" in each.cmdline()[1])
    srun.suspend()
    time.sleep(1)
    joined.stream.close()
    assert until(lambda: place.join("n1").wait_s) > 50
    srun.resume()


def test_without_srun_a_sentence(place):
    (place.folder / "srun").unlink()
    with pytest.raises(Failure, match="srun: No such file or directory"):
        join.join(place.wanted("n1", PATH=str(place.folder)))
    place.all_gone()


def test_a_relay_that_is_killed_is_replaced(place):
    joined = place.join("n1")
    lines(joined.stream, "n1")
    (relay,) = (each for each in place.left() if "relay/__main__" in " ".join(each.cmdline()))
    relay.kill()
    assert end_of(joined.stream) == []
    assert 0 < place.join("n1").wait_s <= 60  # nobody saw how the step ended
    place.all_gone()


@pytest.mark.parametrize("data", [b"\n", b"{}\n", b"[1]\n", b"\xff\n", b'{"nodes": 1}\n'])
def test_what_is_no_request_is_closed(place, data):
    joined = place.join("n1")
    with closing(join._Folder()) as folder, folder.connect(may_start=True) as line:
        line.sendall(data)
        assert line.recv(1) == b""
    lines(joined.stream, "n1")
    joined.stream.close()
    place.all_gone()


def test_the_folder_is_our_own(tmp_path, monkeypatch):
    """One that somebody else has made under the first name is passed over."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    names = [str(tmp_path / name) for name in ("a", "b")]
    os.mkdir(names[0])
    os.chmod(names[0], 0o777)
    monkeypatch.setattr(join, "_folders", lambda: iter(names))
    within = join._open_folder()
    assert os.path.samestat(os.fstat(within), os.stat(names[1]))
    assert os.stat(names[1]).st_mode & 0o777 == 0o700
    os.close(within)


@pytest.fixture
def within(monkeypatch):
    """Runs the relay in a thread of this process; gives it."""
    threads = []

    def make(place):
        folder = join._Folder()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(folder._path)
        listener.listen()
        relay = server.Relay(listener, folder._within, folder._name, 0.2)
        thread = threading.Thread(target=relay.run)
        thread.start()
        threads.append((thread, listener, folder, relay))
        return relay

    yield make
    for thread, listener, folder, relay in threads:
        relay.end()
        thread.join(HANGS_S)
        listener.close()
        folder.close()
