"""When a recording of this node ends: with the command beside it, or by a signal.

Imports what records only where it is needed: a wrapped command must not wait for that.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from gpumon.collect.guest import as_inherited, be_guest
from gpumon.errors import EXIT_FAILED, EXIT_OK, GpumonError, UsageError, shortage

if TYPE_CHECKING:
    from gpumon.collect.agent import Agent
    from gpumon.collect.cgroup.room import Room
    from gpumon.config import Settings
    from gpumon.model.sample import Header
    from gpumon.services.probing import Probe
    from gpumon.sources.base import Sink

#: sleeps until this monotonic time; returns why to end, "" to continue
Wait = Callable[[float], str]
_PR_SET_PDEATHSIG = 1  # prctl(2)
#: how long the end waits for the recorders of all nodes: a node may not answer any more
_STEP_ENDS_S = 30.0
_LOOK_S = 60.0


def is_recorded_by_another(environ: Mapping[str, str]) -> bool:
    """Whether this is a later task of a step on its node, and sees what the first one records.

    Tasks that Slurm gave GPUs of their own (--gpus-per-task) each see nobody else's.
    """
    task = environ.get("SLURM_LOCALID", "")
    if not task.isdecimal() or int(task) == 0:
        return False
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    of_step = environ.get("SLURM_GPUS_ON_NODE", "")
    return not (visible and of_step.isdecimal() and visible.count(",") + 1 < int(of_step))


def probe_asked_for(flag: bool | None) -> Probe | None:
    """The probe for a command, if the flag or the settings ask for one.

    A mistake in the settings is reported by who records.
    """
    try:
        from gpumon.config import load_settings

        if not (flag or load_settings().probe):
            return None
    except UsageError:
        return None
    from gpumon.services.probing import probe_of

    return probe_of(os.environ)


class _ThisNode:
    """This node as a source, by an agent in this process, as nothing is shown meanwhile: it brings
    samples in the thread that starts it, until there is a reason to end.
    """

    name = "local"

    def __init__(self, agent: Agent, header: Header, wait: Wait) -> None:
        """`header`: the newest of the agent, which was started."""
        self.reason = ""  # for which it ended
        self._agent = agent
        self._header = header
        self._wait = wait

    def start(self, sink: Sink) -> None:
        from gpumon.collect.agent import next_tick
        from gpumon.model.axis import Axis

        agent, node, axis = self._agent, self._header.node, Axis()
        sink.header(node, axis.header(self._header, self.now()))
        while not self.reason:
            sample = agent.sample()
            if agent.devices.changed:
                sink.header(node, axis.header(agent.header(), self.now()))
            sink.add(node, axis.sample(sample, self.now()))
            due = next_tick(agent.interval_s)
            self.reason = "the job has ended" if agent.job_ended else self._wait(due)
            agent.late(time.monotonic() - due)
        if (last := agent.last_words()).rows:
            sink.add(node, axis.sample(last, self.now()))

    def stop(self) -> None:
        self._agent.close()

    def now(self) -> float:
        from gpumon.model import clock

        return clock.now()


def record(
    output: str | None,
    settings: Settings,
    wait: Wait,
    *,
    quiet: bool = False,
    probe: Probe | None = None,
) -> tuple[bool, list[str]]:
    """Record until `wait` gives a reason to end; whether it failed, and what to print about it.

    `output`: a new file or a folder; None: a new file among all recordings. `probe`: of the
    command beside it.
    """
    from gpumon.collect.agent import Agent
    from gpumon.collect.cgroup.room import LEFT
    from gpumon.model.text import clean
    from gpumon.pipeline.recorder import RecorderStage
    from gpumon.recording.runs import marks_dir
    from gpumon.services.retention import start_retention
    from gpumon.services.run_summary import Summary

    began = time.monotonic()
    agent = Agent(settings.interval_s, {**os.environ, **(probe.variables if probe else {})})
    agent.start()
    header = agent.header()
    source = _ThisNode(agent, header, lambda due: recorder.failed or wait(due))
    stage = RecorderStage(source, marks_dir())
    recorder = stage.record_to(header, output)
    if not quiet and sys.stderr.isatty():
        print(f"gpumon: recording to {clean(recorder.path)}; press Ctrl-C to stop", file=sys.stderr)
    start_retention(settings)
    summary = Summary()
    stage.start(summary)
    stage.close(source.reason, in_haste=False)
    source.stop()
    if probe is not None:
        from gpumon.services.probing import sweep

        sweep(os.environ, summary.probed)
    if recorder.failed:
        return True, [f"gpumon: {clean(recorder.failed)}"]
    if source.reason == LEFT:  # a summary would take what memory is left
        return False, [f"gpumon: recording stopped: {LEFT}"]
    if quiet:
        return False, []
    lines = summary.lines(recorder.path, time.monotonic() - began)
    if probe is not None:
        lines.append(f"gpumon: {probe.why_not or _probe_line(len(summary.probed))}")
    return False, [clean(line) for line in lines]


def _probe_line(count: int) -> str:
    """How far the probe came."""
    from gpumon.model.units import plural

    if count:
        return f"the probe measured inside {plural(count, 'process', 'es')}"
    return "the probe found no Python that trains with PyTorch or has JAX or TensorFlow on a GPU"


def record_beside(
    output: str | None, interval_s: float | None, *, quiet: bool, probe: Probe | None = None
) -> None:
    """Next to a command, until standard input ends with it.

    What is to be said about the recording is written to standard output. `probe`: the command's.
    """
    be_guest()
    os.umask(0o077)  # of this process alone: with 777 nobody could read the recording
    from gpumon.collect.cgroup.room import Room, leave_in_time
    from gpumon.files import is_own_descriptor

    try:
        room = Room()
        if why := room.refusal():
            raise GpumonError(why)
        leave_in_time(1)
        if output and (output == "-" or is_own_descriptor(output)):
            raise UsageError("standard output belongs to the command; name a file with -o")
        settings, mistake = _settings(interval_s)
        wait = partial(_wait_for_input, room)
        lines = record(output, settings, wait, quiet=quiet, probe=probe)[1]
        text = "\n".join([*mistake, *lines])
    except GpumonError as error:
        text = f"gpumon: not recording: {error}"
    except Exception as error:
        why = shortage(error) or f"{type(error).__name__}: {error}"
        text = f"gpumon: recording failed: {why}"
    os.write(1, f"{text}\n".encode("utf-8", "replace") if text else b"")


def _settings(interval_s: float | None) -> tuple[Settings, list[str]]:
    """The settings; where there is a mistake in them, the defaults and a line about it: a recording
    that is missed cannot be made later. Then none is removed either, for how many the user keeps
    is not known.
    """
    from gpumon.config import Settings, load_settings

    try:
        return load_settings(interval_s=interval_s), []
    except UsageError as error:
        settings = Settings(interval_s or 1.0, record_keep_days=36500, record_max_bytes=1e18)
        return settings, [f"gpumon: recording with default settings: {error}"]


def _wait_for_input(room: Room, due: float) -> str:
    """Until `due`; why the other end ended, or that the job needs the memory."""
    from gpumon.collect.cgroup.room import LEFT

    while patience := room.patience_s():
        left = due - time.monotonic()
        if select.select([0], [], [], max(0.0, min(left, patience)))[0]:
            break
        if left <= 0:
            return ""
    else:
        return LEFT
    text = b""
    while part := os.read(0, 4096):
        text += part
    return f"the command ended: {text.decode()}" if text else "gpumon was killed"


def record_alone(
    output: str | None, interval_s: float | None, *, quiet: bool, until_eof: bool = False
) -> int:
    """In the background of a script, or by hand, until a signal; returns the exit code.

    `until_eof`: also until standard input ends.
    """
    be_guest()
    os.umask(0o077)
    from gpumon.collect.cgroup.room import LEFT, Room, leave_in_time

    if output == "-":
        output = "/dev/stdout"
        if sys.stdout.isatty():
            raise UsageError("a recording cannot be written to a terminal; name a file with -o")

    parent = os.getppid()
    ends = _block_ends()
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # sbatch --signal is for the job's own steps
        signal.signal(number, signal.SIG_IGN)
    room = Room()
    if why := room.refusal():  # as a step of the job this must not become its exit code
        print(f"gpumon: not recording: {why}", file=sys.stderr)
        return EXIT_OK
    leave_in_time()
    stopped = _at_eof() if until_eof else threading.Event()

    def wait(due: float) -> str:
        while patience := room.patience_s():
            left = due - time.monotonic()
            info = signal.sigtimedwait(ends, max(0.0, min(left, patience)))
            if stopped.is_set():
                return "it was stopped"
            if signal.SIGHUP in ends and os.getppid() != parent:
                return "the shell ended"
            if info is not None:
                return signal.Signals(info.si_signo).name
            if left <= 0:
                return ""
        return LEFT

    settings, mistake = _settings(interval_s)
    failed, lines = record(output, settings, wait, quiet=quiet)
    if said := [*mistake, *lines]:
        print("\n".join(said), file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK


def _block_ends() -> set[signal.Signals]:
    """The signals that end a recorder, which wait from now on. The end of the shell is one."""
    import ctypes

    ends = {
        number
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup; Ctrl-C in the background
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    return ends


def _at_eof() -> threading.Event:
    """Set once standard input has ended; the main thread gets a SIGTERM then."""
    ended = threading.Event()

    def read() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True, name="input").start()
    return ended


def record_all_nodes(output: str | None, interval_s: float | None, *, quiet: bool) -> int:
    """On each node of the job around us, in a step of its own, until a signal; the exit code.

    The step ends by the end of its input, whatever becomes of this process.
    """
    be_guest()
    from gpumon.collect.cgroup.room import LEFT, Room
    from gpumon.isolated import command
    from gpumon.slurm.own_step import OwnStep

    room = Room()
    if why := room.refusal():
        print(f"gpumon: not recording: {why}", file=sys.stderr)
        return EXIT_OK
    if output is not None and not os.path.isdir(output):
        raise UsageError("--all-nodes writes a file for each node; name a folder with -o")
    argv = [
        *command("gpumon/__main__.py"),
        "record",
        "--until-eof",
        *(["--quiet"] if quiet else []),
    ]
    argv += [] if output is None else ["-o", os.path.abspath(output)]
    argv += [] if interval_s is None else ["--interval", f"{interval_s:g}"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody tells us
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    ends = _block_ends()
    try:
        with as_inherited():  # an srun that is killed has its tasks killed
            step = OwnStep(argv, os.environ, {*ends, signal.SIGCHLD})
    except OSError as error:
        raise GpumonError(f"cannot start srun: {error.strerror}") from None
    until = inf
    while not step.has_ended():
        patience_s = room.patience_s() if until == inf else _LOOK_S
        left_s = min(_LOOK_S, patience_s, until - time.monotonic())
        if not patience_s:
            print(f"gpumon: recording stopped: {LEFT}", file=sys.stderr)
        elif left_s <= 0:
            print("gpumon: the recorders are still running; not waiting longer", file=sys.stderr)
            return EXIT_FAILED
        info = signal.sigtimedwait({*ends, signal.SIGCHLD}, left_s)
        if not patience_s or (info is not None and info.si_signo in ends):
            step.end()
            until = min(until, time.monotonic() + _STEP_ENDS_S)
    return EXIT_FAILED if step.failed else EXIT_OK
