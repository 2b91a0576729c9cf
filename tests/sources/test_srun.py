"""srun's part: its command line, one launch for many nodes, streams that share one process.

The agents are real, several of them behind one pipe as srun joins them; the real srun is in
tests/slurm.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from gpumon.collect.labels import labelled
from gpumon.sources.local import ChildStream
from gpumon.sources.srun import SrunLauncher, srun_argv, srun_environment
from gpumon.sources.stream import Failure
from tests.e2e.program import HANGS_S

#: reads lines; answers each on behalf of all nodes named in its arguments
ECHO = """
import sys
sys.path.insert(0, sys.argv[1])
from gpumon.collect.labels import labelled
for line in sys.stdin.buffer:
    for node in sys.argv[2].split(","):
        sys.stdout.buffer.write(labelled(node, node.encode() + b" " + line.strip() * 400))
    sys.stdout.flush()
"""


class Started:
    """Stands for srun: notes its command lines and runs `program` for the nodes named there."""

    def __init__(self, program=ECHO):
        self.commands = []
        self._program = program

    def __call__(self, argv):
        self.commands.append(argv)
        (nodes,) = [word[11:] for word in argv if word.startswith("--nodelist=")]
        top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        patience_s = HANGS_S if self._program is ECHO else 0.3  # it ends with its input
        argv = [sys.executable, "-c", self._program, top, nodes]
        return ChildStream(argv, patience_s=patience_s)


def opened(launcher, nodes, argv=("agent",)):
    """All these at once; node -> stream or failure."""
    found = {}

    def open_one(node):
        try:
            found[node] = launcher.open(node, list(argv))
        except Failure as failure:
            found[node] = failure

    threads = [threading.Thread(target=open_one, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    return found


def test_the_command_line():
    words = srun_argv("4711", ["n1", "n2"], ["sh", "-c", "x"])
    assert words[0] == "srun"
    assert {"--jobid=4711", "--overlap", "--mem=0", "--nodes=2", "--ntasks=2", "--nodelist=n1,n2",
            "--job-name=gpumon", "--ntasks-per-node=1"} <= set(words)  # fmt: skip
    assert words[-4:] == ["sh", "-c", "x", "--label"]
    assert not [word for word in words if "gres" in word or "het" in word]
    assert "--het-group=1" in srun_argv("4711", ["n1"], [], 1)


def test_without_gpus():
    start = Started()
    launcher = SrunLauncher("1", start, gpus=False)
    opened(launcher, ["n1"])
    assert "--gres=none" in start.commands[0]
    assert (launcher.name, SrunLauncher("1").lacks) == ("srun-host", "")
    assert launcher.lacks.startswith("GPUs n/a: held by the job's step")
    launcher.close()


def test_the_environment_of_a_surrounding_step_is_left_behind(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SRUN_DEBUG", "3")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SLURM_CLUSTERS", "alpha")
    kept = {name for name in srun_environment() if name.startswith(("SLURM", "SRUN"))}
    assert kept == {"SLURM_CONF", "SLURM_CLUSTERS"}
    assert "PATH" in srun_environment()


def test_one_launch_serves_all_that_wait():
    start = Started()
    launcher = SrunLauncher("1", start)
    launcher.expect(["n1", "n2", "n3", "n4"])
    timer = threading.Timer(0.3, launcher.settle, ["n4"])  # came by ssh after all
    timer.start()
    streams = opened(launcher, ["n3", "n1", "n2"])
    assert len(start.commands) == 1
    assert "--nodelist=n1,n2,n3" in start.commands[0]
    for stream in streams.values():  # each writes the same, as supervisor and heartbeats do
        stream.write(b"abc\n")
    got = {node: stream.read() for node, stream in streams.items()}
    assert got == {node: node.encode() + b" " + b"abc" * 400 + b"\n" for node in streams}
    for stream in streams.values():
        stream.write(b"de\n")
    assert streams["n2"].read() == b"n2 " + b"de" * 400 + b"\n"
    launcher.close()


def test_a_node_that_does_not_decide_is_not_waited_for_long():
    start = Started()
    launcher = SrunLauncher("1", start, gather_s=0.2)
    launcher.expect(["n1", "n2"])
    opened(launcher, ["n1"])
    assert "--nodelist=n1" in start.commands[0]
    opened(launcher, ["n2"])
    assert "--nodelist=n2" in start.commands[1]
    launcher.close()


def test_nodes_with_other_commands_have_their_own_launch():
    start = Started()
    launcher = SrunLauncher("1", start)
    opened(launcher, ["n1"], ["agent", "--gpus", "1"])
    opened(launcher, ["n2"], ["agent", "--gpus", "2"])
    assert [words[-4:] for words in start.commands] == [
        ["agent", "--gpus", "1", "--label"], ["agent", "--gpus", "2", "--label"],
    ]  # fmt: skip
    launcher.close()


def test_the_last_stream_that_closes_ends_srun():
    launcher = SrunLauncher("1", Started())
    launcher.expect(["n1", "n2"])
    streams = opened(launcher, ["n1", "n2"])
    child = launcher._launches[0]._stream._child
    streams["n1"].close()
    assert streams["n1"].read() == b""
    assert child.poll() is None
    streams["n2"].write(b"x\n")
    assert streams["n2"].read().startswith(b"n2 x")
    streams["n2"].close()
    assert child.wait(HANGS_S) == 0
    assert streams["n2"].read() == b""


def test_a_closed_stream_wakes_its_reader():
    launcher = SrunLauncher("1", Started())
    stream = opened(launcher, ["n1"])["n1"]
    threading.Timer(0.2, stream.close).start()
    assert stream.read() == b""


def test_srun_that_fails_says_why():
    program = "import sys; sys.exit('srun: error: Unable to create step for job 1: denied')"
    launcher = SrunLauncher("1", Started(program))
    launcher.expect(["n1", "n2"])
    for stream in opened(launcher, ["n1", "n2"]).values():
        assert stream.read() == b""
        until = time.monotonic() + HANGS_S
        while not stream.complaint() and time.monotonic() < until:
            time.sleep(0.02)
        assert stream.complaint() == "Unable to create step for job 1: denied"


def test_srun_that_is_not_there():
    launcher = SrunLauncher("1", lambda argv: ChildStream(["/no/srun"]))
    launcher.expect(["n1", "n2"])
    for failure in opened(launcher, ["n1", "n2"]).values():
        assert failure.text == "/no/srun: No such file or directory"


def test_a_controller_that_does_not_answer_is_given_up():
    launcher = SrunLauncher("1", Started("import time; time.sleep(3600)"), start_s=0.3)
    stream = opened(launcher, ["n1"])["n1"]
    assert stream.read() == b""
    assert launcher._launches[0]._stream._child.wait(HANGS_S) != 0


@pytest.mark.parametrize("noise", [b"slurmstepd: error: hm\n", b"n9 -{}\n", b"n1 ?{}\n", b"\xff\n"])
def test_foreign_lines_between_do_no_harm(noise):
    program = f"import sys, time\nsys.stdout.buffer.write({noise + labelled('n1', b'{}')!r})\n"
    launcher = SrunLauncher("1", Started(program + "sys.stdout.flush(); time.sleep(3600)"))
    stream = opened(launcher, ["n1"])["n1"]
    assert stream.read() == b"{}\n"
    launcher.close()
