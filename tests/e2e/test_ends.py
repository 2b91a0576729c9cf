"""Whatever the program is doing and whatever becomes of its terminal: it ends, and all with it."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.held import SOON_S, Held
from tests.e2e.program import GPUMON, environment, gpumon
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.terminal

#: enough drawings to fill what lies between the program and a terminal that takes nothing
REPAINTS = "ttttttttt"

#: runs `gpumon` with a part of it replaced, which may call `hangs`
REPLACED = """
import sys, threading
from gpumon.cli import main
def hangs():
    open(__file__ + ".hangs", "w").close()
{replaced}
sys.exit(main(sys.argv[1:]))
"""
#: the main thread waits for a lock that somebody else holds
LOCKED = """
from gpumon.store import Store
lock, nodes = threading.Lock(), Store.nodes
def held(self):
    if nodes(self):
        hangs()
        lock.acquire(); lock.acquire()
    return nodes(self)
Store.nodes = held
"""
#: the main thread is in C code that no signal interrupts and that comes back to Python never
STUCK = """
import ctypes
from gpumon.store import Store
def held(self):
    hangs()
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
mutex = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
Store.nodes = held
"""
ASKS = """
from gpumon.cli import live
from gpumon.transport.prompt import Question, TerminalPrompter
def ask(args):
    said = TerminalPrompter().ask(Question("ada@hpc", "Password:", True, "password"))
    return 1 if said is None else 0
live.run = ask
"""


def terminate(held):
    held.send(signal.SIGTERM)
    return 128 + signal.SIGTERM


def hup(held):
    held.send(signal.SIGHUP)
    return 128 + signal.SIGHUP


def interrupt(held):
    held.send(signal.SIGINT, signal.SIGINT)
    return 128 + signal.SIGINT


def vanish(held):
    held.hang_up()
    return 128 + signal.SIGHUP


def stop(held):
    held.send(signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT)
    return 128 + signal.SIGTERM


EVENTS = [terminate, hup, interrupt, vanish, stop]

#: what is pressed to come there
STATES = {"running": "", "help": "?", "a filter": "/", "frozen": " ", "the report": "5"}


@contextlib.contextmanager
def dashboard(gpus, *arguments, program=GPUMON, ignored=()):
    with Held([*program, *arguments], environment(gpus.env), ignored=ignored) as held:
        yield held


@pytest.fixture(scope="module")
def gpus():
    with Emulated("a100x4") as emulated:
        yield emulated


@pytest.fixture
def replaced(tmp_path):
    """A program that does what gpumon does, but for this."""

    def make(text):
        program = tmp_path / "replaced.py"
        program.write_text(REPLACED.format(replaced=text))
        return [sys.executable, str(program)]

    return make


def ends(held, event):
    code = event(held)
    held.gone()
    assert held.program.returncode == code
    if event is not vanish:
        held.as_before()


@pytest.mark.parametrize(
    ("state", "event"),
    [
        *((state, event) for state in STATES for event in (terminate, vanish)),
        *(("running", event) for event in EVENTS if event not in (terminate, vanish)),
    ],
)
def test_the_dashboard_ends_in_every_state(gpus, state, event):
    ignored = [signal.SIGHUP] if event is vanish else []
    with dashboard(gpus, ignored=ignored) as held:
        held.until("GPU 0")
        for key in STATES[state]:
            held.type(key)
        time.sleep(0.3)
        ends(held, event)


@pytest.mark.parametrize("event", EVENTS)
def test_it_ends_while_nobody_takes_what_it_draws(gpus, event):
    with dashboard(gpus, ignored=[signal.SIGHUP] if event is vanish else []) as held:
        held.until("GPU 0")
        held.stall(REPAINTS)
        ends(held, event)


def test_a_terminal_that_takes_nothing_for_a_while_shows_all_after_that(gpus):
    with dashboard(gpus) as held:
        held.until("GPU 0")
        held.stall(REPAINTS)
        before = len(held.data)
        time.sleep(1)
        assert len(held.data) == before
        held.type("?")
        held.reads.set()
        held.until("Esc")
        held.type("qq")
        held.gone()
        assert held.program.returncode == 0
        held.as_before()


@pytest.mark.parametrize("keys", ["q", "\x03"])
def test_it_can_be_left_while_nobody_takes_what_it_draws(gpus, keys):
    with dashboard(gpus) as held:
        held.until("GPU 0")
        held.stall(REPAINTS)
        held.type(keys)
        held.gone()
        assert held.program.returncode == 0
        held.as_before()


@pytest.mark.parametrize("event", [terminate, hup, interrupt, vanish])
@pytest.mark.parametrize("hangs", [LOCKED, STUCK])
def test_it_ends_while_its_main_thread_hangs(gpus, replaced, hangs, event):
    ignored = [signal.SIGHUP] if event is vanish else []
    program = replaced(hangs)
    with dashboard(gpus, program=program, ignored=ignored) as held:
        held.until("\x1b[?1049h")
        until(Path(f"{program[-1]}.hangs").exists, "its main thread hangs")
        ends(held, event)


@pytest.mark.parametrize("seed", range(8))
def test_it_ends_at_any_moment_of_its_start_and_end(gpus, seed):
    """Before the handlers are there, the signal's own action is the end."""
    chance = random.Random(seed)
    event = chance.choice([terminate, hup])
    with dashboard(gpus) as held:
        if seed % 2:
            held.until("GPU 0")
            held.type("q")
        time.sleep(chance.uniform(0, 0.8))
        code = event(held)
        held.gone()
        assert held.program.returncode in (code, 128 - code, *([0] if seed % 2 else []))
        held.as_before()


@pytest.mark.parametrize("event", [terminate, hup, vanish])
def test_a_password_is_being_asked_for(gpus, replaced, event):
    ignored = [signal.SIGHUP] if event is vanish else []
    with dashboard(gpus, program=replaced(ASKS), ignored=ignored) as held:
        held.until("Password:")
        if event is not vanish:
            ends(held, event)
            return
        vanish(held)
        held.gone()
        assert held.program.returncode == 1


@pytest.mark.parametrize("event", [terminate, hup])
def test_a_command_of_slurm_hangs(gpus, tmp_path, event):
    for name in ("squeue", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\ntrap '' TERM HUP\nsleep 600\n")
        (tmp_path / name).chmod(0o755)
    env = environment(gpus.env)
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    with Held([*GPUMON, "attach", "4711"], env) as held:
        until(lambda: any("600" in process.cmdline() for process in held.left))
        ends(held, event)


def test_after_a_stop_that_left_nothing_in_order_it_goes_on(gpus):
    with dashboard(gpus) as held:
        held.until("GPU 0")
        held.send(signal.SIGSTOP)
        held.data = b""
        held.send(signal.SIGCONT)
        held.until("\x1b[?1049h")
        held.until("GPU 0")
        held.type("q")
        held.gone()
        assert held.program.returncode == 0
        held.as_before()


# -- without a screen --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "words", [["collect", "--interval", "0.1"], ["doctor"], ["once", "--json"]]
)
def test_a_reader_that_takes_nothing(gpus, words, number):
    """The pipe is full before it begins; its command is then in the shell's place."""
    with subprocess.Popen(
        ["sh", "-c", 'yes | dd bs=4096 count=16 2>/dev/null; exec "$@"', "-", *GPUMON, *words],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(gpus.env),
        start_new_session=True,
    ) as program:  # fmt: skip
        waits_in = Path(f"/proc/{program.pid}/wchan")
        until(lambda: "pipe_write" in waits_in.read_text(), waits_in.read_text)
        assert program.poll() is None
        program.send_signal(number)
        program.send_signal(number)
        code = program.wait(SOON_S)
    assert code in (128 + number, -number)


@pytest.mark.parametrize("words", [["once"], ["collect", "--count", "1"], ["demo", "--list"]])
def test_a_terminal_that_is_gone(gpus, words):
    """No traceback, and no code but those that are documented."""
    ignored = [signal.SIGHUP]
    with Held(["sh", "-c", 'sleep 1; exec "$@"', "-", *GPUMON, *words], environment(gpus.env),
              ignored=ignored) as held:  # fmt: skip
        held.hang_up()
        held.gone()
        assert held.program.returncode in (0, 1)


def recorded(folder):
    (file,) = folder.iterdir()
    done = gpumon("report", str(file), "--format", "json")
    return done.returncode


@pytest.mark.parametrize("stalled", [False, True])
def test_a_terminal_that_is_gone_costs_neither_command_nor_recording(gpus, tmp_path, stalled):
    """The command ignores the hang-up, as under nohup."""
    runs, begun, go_on, done = (tmp_path / name for name in ("runs", "begun", "go-on", "done"))
    runs.mkdir()
    script = f"touch {begun}; until [ -e {go_on} ]; do sleep 0.1; done; touch {done}; exit 7"
    argv = [*GPUMON, "record", "-o", str(runs), "--", "sh", "-c", script]
    with Held(argv, environment(gpus.env), ignored=[signal.SIGHUP]) as held:
        until(begun.exists, "the command runs")
        if stalled:
            held.reads.clear()
        else:
            held.hang_up()
        go_on.touch()
        held.gone(HANGS_S)
        assert held.program.returncode == 7
        assert done.exists()
        assert recorded(runs) == 0


def test_what_wraps_a_command_stays_killable_when_nobody_reads_it(gpus, tmp_path):
    """Its closing words do not fit: they are dropped."""
    script = "yes | head -c 200000"
    argv = [*GPUMON, "record", "-o", str(tmp_path / "run"), "--", "sh", "-c", script]
    with Held(argv, environment(gpus.env)) as held:
        held.stall()
        time.sleep(2)
        held.send(signal.SIGTERM)
        held.gone()
        assert held.program.returncode == -signal.SIGTERM
