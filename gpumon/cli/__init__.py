"""The command line: finds the command, then imports only what that command needs."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, TextIO

from gpumon import __version__, ending
from gpumon.collect.room import spare_address_space
from gpumon.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    NO_MEMORY,
    GpumonError,
    UsageError,
    is_out_of_memory,
)

#: command -> one line of help. Each is a module of this package with add_arguments() and run().
COMMANDS = {
    "attach": "every GPU of a running job, on all its nodes",
    "report": "what a job asked for against what it used, and the lines to change",
    "once": "one sample of this node, like nvidia-smi",
    "collect": "the node-side agent: samples as lines on standard output",
    "doctor": "what works here and what does not, and why",
    "record": "record this node while a command runs, or in the background of a script",
    "mark": "a line on the time axis of the recording that runs",
    "runs": "the recordings there are",
    "export": "a recorded run as CSV, Parquet or JSON lines",
    "compare": "two recorded runs side by side",
    "fit": "which GPU holds a language model, by rule of thumb",
    "replay": "the dashboard on a recording, with its own clock",
    "demo": "play a recording that ships with gpumon",
    "completion": "completion script for bash, zsh or fish",
}

#: commands that handle signals themselves, or leave nothing behind
_END_BY_THEMSELVES = ("collect", "record", "mark", "completion")
_LONGEST_LINE = 1000  # characters of an error

_EPILOG = """\
Without a command: the live dashboard of the job around it, else of this node.

exit codes: 0 done, 1 could not (I/O, no answer), 2 wrong usage or input,
3 'report --fail-if' matched, 4 no such job, recording or device, 130 interrupted.
settings: flags, then GPUMON_* in the environment, then
$XDG_CONFIG_HOME/gpumon/config.toml, then the site's file, then defaults.
"""


class Parser(argparse.ArgumentParser):
    """Ends wrong usage with one line that names what to do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see '{self.prog} --help'")


def build_parser(only: str = "") -> Parser:
    """The command line; with `only`, that command's arguments alone, which spares imports."""
    parser = Parser(
        prog="gpumon",
        description="What is my job doing on every GPU, and did I ask for the right resources?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    _module("live").add_arguments(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if only in ("", name):
            _module(name).add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Only here errors become lines and codes."""
    spare_address_space()
    if sys.stderr is None:
        sys.stderr = io.StringIO()  # print() takes None for standard output
    if sys.stdout is None and (sys.argv[1:] if argv is None else argv)[:1] == ["record"]:
        sys.stdout = io.StringIO()  # it is the command's, which may not need it
    if sys.stdout is None:
        return _complain("standard output is closed; redirect it to /dev/null instead", EXIT_FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names of users and devices are any text
    try:
        code = _run(argv)
        sys.stdout.flush()
        return ending.code() or code
    except GpumonError as error:
        return _complain(str(error), error.code)
    except KeyboardInterrupt:
        if not _is_regular(sys.stdout):  # a full pipe or a stopped terminal would hold up the exit
            _drop(sys.stdout)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop(sys.stdout)  # `gpumon once | head -1`: the reader has what it wanted
        return EXIT_OK
    except OSError as error:
        if is_out_of_memory(error):
            return _complain(NO_MEMORY, EXIT_FAILED)
        _drop(sys.stdout)
        return _complain(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_FAILED)
    except Exception as error:
        if is_out_of_memory(error):
            return _complain(NO_MEMORY, EXIT_FAILED)
        from gpumon.model.text import clean

        what = clean(f"{type(error).__name__}: {error}", 400)
        return _complain(
            f"internal error; set GPUMON_DEBUG=1 for a traceback ({what})", EXIT_FAILED
        )
    finally:
        ending.finish()
        _flush_errors()


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    first = words[0] if words else ""
    try:
        args = build_parser(first if first in COMMANDS else "").parse_args(words)
    except SystemExit:  # --help and --version have printed
        return EXIT_OK
    if args.command not in _END_BY_THEMSELVES:
        ending.watch()
    return _module(args.command or "live").run(args)


def _module(name: str) -> _Command:
    module: _Command = importlib.import_module(f"gpumon.cli.{name}")
    return module


class _Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def _complain(message: str, code: int) -> int:
    if os.environ.get("GPUMON_DEBUG") and sys.exc_info()[0] is not None:
        raise
    from gpumon.model.text import clean

    line = " ".join(clean(message, 100_000).split())
    if len(line) > _LONGEST_LINE:  # what is wrong stands first, what to do last
        line = f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    with contextlib.suppress(OSError):  # the terminal is gone
        print(f"gpumon: {line}", file=sys.stderr)
    return code


def _flush_errors() -> None:
    """What a terminal that is gone did not take must not become the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def _is_regular(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # a test's
        return True


def _drop(stream: TextIO) -> None:
    """Let what is still buffered flush to nowhere: it would fail again at the interpreter's end."""
    with contextlib.suppress(OSError):  # no descriptor is free, or it has none
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
