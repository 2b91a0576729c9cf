"""`gpumon record`: records this node while a command runs, or until it is told to end."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpumon.cli.arguments import interval
from gpumon.errors import EXIT_FAILED, EXIT_OK, GpumonError, UsageError

if TYPE_CHECKING:
    from gpumon.collect.marks import MarkSpool
    from gpumon.collect.recorder import Wait
    from gpumon.config import Settings
    from gpumon.model.sample import Header
    from gpumon.recording import Recorder

_PR_SET_PDEATHSIG = 1  # prctl(2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpumon record [-o FILE] [--interval S] [--quiet] [-- COMMAND ARG...]"
    parser.add_argument(
        "-o", dest="output", metavar="FILE",
        help="a new file, or a folder (-: standard output)",
    )  # fmt: skip
    parser.add_argument("--interval", type=interval, metavar="S", help="seconds (1)")
    parser.add_argument("--quiet", action="store_true", help="no summary, only what went wrong")
    parser.add_argument(
        "wrapped", nargs=argparse.REMAINDER, metavar="-- COMMAND ARG...",
        help="run this, end with it and by its exit code; else record until SIGTERM or the "
        "end of the job or of the shell",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    command = args.wrapped[1:] if args.wrapped[:1] == ["--"] else args.wrapped
    another_records = _is_recorded_by_another(os.environ)
    if command:
        from gpumon.cli.wrapper import become, run_wrapped

        if another_records:
            return become(command)
        return run_wrapped(command, lambda: _beside(args), quiet=args.quiet)
    return EXIT_OK if another_records else _alone(args)


def _is_recorded_by_another(environ: Mapping[str, str]) -> bool:
    """Whether this is a later task of a step on its node, and sees what the first one records.

    Tasks that Slurm gave GPUs of their own (--gpus-per-task) each see nobody else's.
    """
    if environ.get("SLURM_LOCALID", "0") == "0":
        return False
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    of_step = environ.get("SLURM_GPUS_ON_NODE", "")
    return not (visible and of_step.isdecimal() and visible.count(",") + 1 < int(of_step))


def _beside(args: argparse.Namespace) -> None:
    """Next to a command: standard input ends with it, standard output is read aloud at the end."""
    from gpumon.files import is_own_descriptor

    try:
        if args.output and (args.output == "-" or is_own_descriptor(args.output)):
            raise UsageError("standard output belongs to the command; name a file with -o")
        words = "\n".join(_record(args, _wait_for_input)[1])
    except GpumonError as error:
        words = f"gpumon: {error}"
    except Exception as error:
        words = f"gpumon: recording failed: {type(error).__name__}: {error}"
    os.write(1, f"{words}\n".encode("utf-8", "replace") if words else b"")


def _wait_for_input(due: float) -> str:
    """Until `due`; what the other end says when it ends."""
    if not select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
        return ""
    words = b""
    while part := os.read(0, 4096):
        words += part
    return f"the command ended: {words.decode()}" if words else "gpumon was killed"


def _alone(args: argparse.Namespace) -> int:
    """In the background of a script, or by hand."""
    import ctypes

    from gpumon.collect.agent import leave

    if args.output == "-":
        args.output = "/dev/stdout"
        if sys.stdout.isatty():
            raise UsageError("a recording is not for a terminal; name a file with -o")

    parent = os.getppid()
    ends = {
        number
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup; Ctrl-C in the background
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)

    def wait(due: float) -> str:
        info = signal.sigtimedwait(ends, max(0.0, due - time.monotonic()))
        if signal.SIGHUP in ends and os.getppid() != parent:
            return "the shell ended"
        return signal.Signals(info.si_signo).name if info is not None else ""

    failed, words = _record(args, wait)
    if words:
        print("\n".join(words), file=sys.stderr)
    leave(EXIT_FAILED if failed else EXIT_OK)


def _record(args: argparse.Namespace, wait: Wait) -> tuple[bool, list[str]]:
    """Record until `wait` says why to end; whether it went wrong, and what to say about it."""
    from gpumon.analysis.summary import summarise
    from gpumon.cli.closing import closing_words
    from gpumon.collect.agent import Agent
    from gpumon.collect.recorder import NodeRecorder
    from gpumon.config import load_settings
    from gpumon.model.axis import Axis
    from gpumon.model.text import clean

    settings = load_settings(interval_s=args.interval)
    agent = Agent(settings.interval_s)
    agent.start()
    header = agent.header()
    recorder = _new_recorder(args.output, header)
    if not args.quiet and sys.stderr.isatty():
        print(f"gpumon: recording to {clean(recorder.path)}; Ctrl-C ends it", file=sys.stderr)
    start_retention(settings)
    node = NodeRecorder(agent, recorder, open_spool(header))
    summary = summarise(map(Axis().item, node.items(header, wait)))
    agent.close()
    if recorder.failed:
        return True, [f"gpumon: {clean(recorder.failed)}"]
    words = [] if args.quiet else closing_words(summary, node, recorder.path)
    return False, [clean(line) for line in words]


def _new_recorder(output: str | None, header: Header) -> Recorder:
    """Another task of the step may take the next free name at the same moment."""
    from gpumon.analysis.digester import Digester
    from gpumon.recording import Recorder

    while True:
        path = _path(output, header)
        try:
            return Recorder(path, digester=Digester)
        except GpumonError:
            if output is not None or not os.path.lexists(path):
                raise


def _path(output: str | None, header: Header) -> str:
    """Where to: the file that was named, or one of the usual name in the usual or named folder."""
    from gpumon.recording import new_path

    usual = new_path(header, header.time)
    if output is None:
        return usual
    is_folder = os.path.isdir(output) or output.endswith("/")
    return os.path.join(output, os.path.basename(usual)) if is_folder else output


def open_spool(header: Header) -> MarkSpool | None:
    """Where marks come in; None where the folder cannot be written: that is no reason to fail."""
    from gpumon.collect.marks import MarkSpool

    try:
        return MarkSpool(marks_dir(), header.job.id if header.job else "", header.node)
    except OSError:
        return None


def marks_dir() -> str:
    """The folder that recorders and `gpumon mark` share."""
    from gpumon.recording import state_dir

    return os.path.join(state_dir(), "marks")


def start_retention(settings: Settings) -> None:
    """Remove the recordings that are too old or too many, in a thread: a folder may be slow."""
    import threading

    from gpumon.recording import prune

    limits = (settings.record_keep_days * 86400, int(settings.record_max_bytes), time.time())
    threading.Thread(target=prune, args=limits, daemon=True, name="retention").start()
