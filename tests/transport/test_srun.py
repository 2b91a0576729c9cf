"""srun's part: its command line, one launch for many nodes, streams that share one process.

The agents are real, several of them behind one pipe as srun joins them; the real srun is in
tests/slurm.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from gpumon.collect.labels import labelled
from gpumon.transport.local import ChildStream
from gpumon.transport.pauses import Pauses
from gpumon.transport.srun import SrunProcess, SrunTransport, srun_argv, srun_environment
from gpumon.transport.stream import Failure
from tests.support.waiting import HANGS_S, until

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


def launched(transport: SrunTransport) -> subprocess.Popen[bytes]:
    """The program that its first launch runs."""
    stream = transport._launches[0]._stream
    assert isinstance(stream, ChildStream)
    return stream._child


def opened(transport, nodes, argv=("agent",)):
    """All these at once; node -> stream or failure."""
    found = {}

    def open_one(node):
        try:
            found[node] = transport.open(node, list(argv))
        except Failure as failure:
            found[node] = failure

    threads = [threading.Thread(target=open_one, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    return found


def test_a_word_for_one_node_names_it_and_the_shared_input_goes_on():
    transport = SrunTransport("1", Started())
    transport.expect(["n1", "n2"])
    found = opened(transport, ["n1", "n2"])
    first, second = found["n1"], found["n2"]
    first.say(b"too early\n")  # the modules come first
    for stream in (first, second):
        stream.write(b"a\n")
    assert first.read() == b"n1 " + b"a" * 400 + b"\n"
    second.say(b"stack\n")
    assert first.read() == b"n1 " + b"@n2 stack" * 400 + b"\n"
    for stream in (first, second):
        stream.write(b"b\n")
    assert first.read() == b"n1 " + b"b" * 400 + b"\n"
    for stream in (first, second):
        stream.close()


def test_the_command_line():
    words = srun_argv("4711", ["n1", "n2"], ["sh", "-c", "x"])
    assert words[0] == "srun"
    assert {"--jobid=4711", "--overlap", "--mem=0", "--nodes=2", "--ntasks=2", "--nodelist=n1,n2",
            "--job-name=gpumon/agent", "--ntasks-per-node=1"} <= set(words)  # fmt: skip
    assert words[-4:] == ["sh", "-c", "x", "--label"]
    assert not [word for word in words if "gres" in word or "het" in word]
    assert "--het-group=1" in srun_argv("4711", ["n1"], [], 1)


def test_without_gpus():
    start = Started()
    transport = SrunTransport("1", start, gpus=False)
    opened(transport, ["n1"])
    assert "--gres=none" in start.commands[0]
    assert (transport.name, SrunTransport("1").lacks) == ("srun-host", "")
    assert transport.lacks.startswith("No GPUs: the job's own step holds them")
    transport.close()


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
    transport = SrunTransport("1", start)
    transport.expect(["n1", "n2", "n3", "n4"])
    timer = threading.Timer(0.3, transport.settle, ["n4"])  # came by ssh after all
    timer.start()
    streams = opened(transport, ["n3", "n1", "n2"])
    assert len(start.commands) == 1
    assert "--nodelist=n1,n2,n3" in start.commands[0]
    for stream in streams.values():  # each writes the same, as supervisor and heartbeats do
        stream.write(b"abc\n")
    got = {node: stream.read() for node, stream in streams.items()}
    assert got == {node: node.encode() + b" " + b"abc" * 400 + b"\n" for node in streams}
    for stream in streams.values():
        stream.write(b"de\n")
    assert streams["n2"].read() == b"n2 " + b"de" * 400 + b"\n"
    transport.close()


def test_a_node_that_does_not_decide_is_not_waited_for_long():
    start = Started()
    transport = SrunTransport("1", start, gather_s=0.2, pauses=Pauses(pause_s=0))
    transport.expect(["n1", "n2"])
    opened(transport, ["n1"])
    assert "--nodelist=n1" in start.commands[0]
    opened(transport, ["n2"])
    assert "--nodelist=n2" in start.commands[1]
    transport.close()


def test_nodes_with_other_commands_have_their_own_launch():
    start = Started()
    transport = SrunTransport("1", start, pauses=Pauses(pause_s=0))
    opened(transport, ["n1"], ["agent", "--gpus", "1"])
    opened(transport, ["n2"], ["agent", "--gpus", "2"])
    assert [words[-4:] for words in start.commands] == [
        ["agent", "--gpus", "1", "--label"], ["agent", "--gpus", "2", "--label"],
    ]  # fmt: skip
    transport.close()


def test_the_last_stream_that_closes_ends_srun():
    transport = SrunTransport("1", Started())
    transport.expect(["n1", "n2"])
    streams = opened(transport, ["n1", "n2"])
    child = launched(transport)
    streams["n1"].close()
    assert streams["n1"].read() == b""
    assert child.poll() is None
    streams["n2"].write(b"x\n")
    assert streams["n2"].read().startswith(b"n2 x")
    streams["n2"].close()
    assert child.wait(HANGS_S) == 0
    assert streams["n2"].read() == b""


def test_a_closed_stream_wakes_its_reader():
    transport = SrunTransport("1", Started())
    stream = opened(transport, ["n1"])["n1"]
    threading.Timer(0.2, stream.close).start()
    assert stream.read() == b""


def test_srun_that_fails_says_why():
    program = "import sys; sys.exit('srun: error: Unable to create step for job 1: denied')"
    transport = SrunTransport("1", Started(program))
    transport.expect(["n1", "n2"])
    for stream in opened(transport, ["n1", "n2"]).values():
        assert stream.read() == b""
        assert until(stream.complaint) == "Unable to create step for job 1: denied"


def test_srun_that_ends_before_anything_else_happens(monkeypatch):
    """Its reader may come to the end as soon as it is started."""
    started = threading.Thread.start

    def start(thread):
        thread.run() if thread.name == "srun" else started(thread)

    class Ended:
        def descriptor(self):
            return None

        def read(self):
            return b""

        def write(self, data):
            pass

        say = write

        def close(self):
            pass

        def complaint(self):
            return "srun: error: Unable to create step: busy"

    monkeypatch.setattr(threading.Thread, "start", start)
    stream = SrunTransport("1", lambda argv: Ended()).open("n1", ["agent"])
    assert stream.read() == b""
    assert stream.complaint() == "Unable to create step: busy"


def test_srun_that_is_not_there():
    transport = SrunTransport("1", lambda argv: ChildStream(["/no/srun"]))
    transport.expect(["n1", "n2"])
    for failure in opened(transport, ["n1", "n2"]).values():
        assert failure.text == "/no/srun: No such file or directory"


def test_a_controller_that_does_not_answer_is_given_up():
    transport = SrunTransport("1", Started("import time; time.sleep(3600)"), start_s=0.3)
    stream = opened(transport, ["n1"])["n1"]
    assert stream.read() == b""
    assert launched(transport).wait(HANGS_S) != 0


@pytest.mark.parametrize("noise", [b"slurmstepd: error: hm\n", b"n9 -{}\n", b"n1 ?{}\n", b"\xff\n"])
def test_foreign_lines_between_do_no_harm(noise):
    program = f"import sys, time\nsys.stdout.buffer.write({noise + labelled('n1', b'{}')!r})\n"
    transport = SrunTransport("1", Started(program + "sys.stdout.flush(); time.sleep(3600)"))
    stream = opened(transport, ["n1"])["n1"]
    assert stream.read() == b"{}\n"
    transport.close()


# -- no mark on the job ------------------------------------------------------------------------
#: ends a while after its input, as srun does when a task stands still; notes every signal
DEAF = """
import os, signal, sys, time
for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT:
    signal.signal(number, lambda number, _: os.write(1, b"signal\\n"))
sys.stdout.buffer.write(SAID)
sys.stdout.flush()
sys.stdin.read()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
sys.exit(0)
"""


def test_srun_is_never_signalled_and_nobody_waits_for_it(monkeypatch, tmp_path):
    adopted = []
    monkeypatch.setattr("gpumon.ending.adopt", lambda group, **how: adopted.append(group))
    program = DEAF.replace("SAID", repr(labelled("n1", b"{}")))
    ends = tmp_path / "ends"
    stream = SrunProcess([sys.executable, "-c", program, str(ends)], srun_environment())
    transport = SrunTransport("1", lambda argv: stream)
    opened(transport, ["n1"])["n1"].close()
    transport.close()
    assert stream._child.poll() is None
    ends.touch()
    assert stream._child.wait(HANGS_S) == 0
    assert adopted == []


def test_one_of_several_nodes_ends_by_a_line_of_its_own():
    program = "import sys\nfor line in sys.stdin: print(repr(line), file=sys.stderr, flush=True)"
    transport = SrunTransport("1", Started(program))
    transport.expect(["n1", "n2"])
    streams = opened(transport, ["n1", "n2"])
    streams["n1"].close()  # nothing was sent yet: it would stand within the agent's modules
    streams["n2"].write(b"modules\n")
    assert until(lambda: "modules" in streams["n2"].complaint())
    transport.close()
    transport = SrunTransport("1", Started(program))
    transport.expect(["n1", "n2"])
    streams = opened(transport, ["n1", "n2"])
    streams["n1"].write(b"modules\n")
    streams["n1"].close()
    assert until(lambda: "end n1" in streams["n2"].complaint())
    transport.close()


def test_steps_with_and_without_gpus_take_turns_in_one_pause():
    """And a transport of the next plan knows of the steps of the last one."""
    start, pauses = Started(), Pauses(pause_s=1.5)
    for gpus in (True, False, True):
        transport = SrunTransport("1", start, gpus=gpus, gather_s=0, pauses=pauses)
        began = time.monotonic()
        opened(transport, ["n1"])["n1"].close()
        took_s = time.monotonic() - began
        transport.close()
    assert took_s > 1.5
    assert len(start.commands) == 3


def test_nodes_that_wait_for_the_next_step_share_it():
    start = Started()
    transport = SrunTransport("1", start, gather_s=0, pauses=Pauses(pause_s=1.5))
    opened(transport, ["n1"])
    opened(transport, ["n3", "n2", "n1"])  # all three within the pause
    assert [word for words in start.commands for word in words if "nodelist" in word] == [
        "--nodelist=n1", "--nodelist=n1,n2,n3",
    ]  # fmt: skip
    transport.close()


def test_a_node_that_came_by_another_transport_meanwhile_is_in_no_step():
    start = Started()
    transport = SrunTransport("1", start, gather_s=0, pauses=Pauses(pause_s=HANGS_S))
    opened(transport, ["n1"])
    threading.Timer(0.3, transport.settle, ["n1"]).start()
    assert opened(transport, ["n1"])["n1"].text == "another transport was faster"
    assert len(start.commands) == 1
    transport.close()


def test_no_step_starts_on_a_node_that_does_not_answer():
    start = Started()
    away = {"n2": "slurmd of n2 does not answer"}
    transport = SrunTransport("1", start, absent=lambda nodes: away, pauses=Pauses(pause_s=0))
    transport.expect(["n1", "n2"])
    found = opened(transport, ["n1", "n2"])
    assert found["n2"].text == away["n2"]
    assert not found["n2"].final
    assert "--nodelist=n1" in start.commands[0]
    away["n1"] = "gone too"
    opened(transport, ["n2"])
    assert len(start.commands) == 1
    transport.close()


def test_a_step_that_does_not_begin_is_named_so():
    transport = SrunTransport("1", Started("import sys; sys.stdin.read()"), start_s=0.3)
    stream = opened(transport, ["n1"])["n1"]
    assert stream.read() == b""
    assert stream.complaint() == "no answer within 0.3 s"
