"""Finds the command, imports only what that command needs, and runs it."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import TextIO

from gpumon import ending
from gpumon.cli import run_bare, unstarted
from gpumon.cli.candidates import COMPLETE, complete
from gpumon.cli.parser import COMMANDS, Parser, build_parser, command_module
from gpumon.collect.limits import spare_address_space
from gpumon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, GpumonError, shortage

#: commands that handle signals themselves, or leave nothing behind
_END_BY_THEMSELVES = ("collect", "record", "mark", "completion")
_LONGEST_LINE = 1000  # characters of an error


def run(words: Sequence[str]) -> int:
    """Run one command; returns its exit code. Only here errors become lines and codes."""
    spare_address_space()
    if sys.stderr is None:
        sys.stderr = io.StringIO()  # print() takes None for standard output
    if sys.stdout is None and words[:1] == ["record"]:
        sys.stdout = io.StringIO()  # it is the command's, which may not need it
    if sys.stdout is None:
        closed = "standard output is closed; redirect it to /dev/null instead"
        return _complain(words, closed, EXIT_FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names of users and devices are any text
    try:
        code = _run(words)
        sys.stdout.flush()
        return ending.code() or code
    except GpumonError as error:
        return _complain(words, str(error), error.code)
    except KeyboardInterrupt:
        if not _is_regular(sys.stdout):  # a full pipe or a stopped terminal would hold up the exit
            _drop(sys.stdout)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop(sys.stdout)  # `gpumon once | head -1`: the reader has what it wanted
        return EXIT_OK
    except OSError as error:
        if lacking := shortage(error):
            return _complain(words, lacking, EXIT_FAILED)
        _drop(sys.stdout)
        what = f"{error.filename or 'output'}: {error.strerror or error}"
        return _complain(words, what, EXIT_FAILED)
    except Exception as error:
        if lacking := shortage(error):
            return _complain(words, lacking, EXIT_FAILED)
        from gpumon.model.text import clean

        what = clean(f"{type(error).__name__}: {error}", 400)
        what = f"internal error; set GPUMON_DEBUG=1 for a traceback ({what})"
        return _complain(words, what, EXIT_FAILED)
    finally:
        ending.finish()
        _flush_errors()


def _run(words: Sequence[str]) -> int:
    first = words[0] if words else ""
    if first == COMPLETE:
        return complete(words[1:])
    try:
        parser = build_parser([first] if first in COMMANDS else words)
        _refuse_unknown_option(parser, first, words)
        args, extra = parser.parse_known_args(words)
    except SystemExit:  # --help and --version have printed
        return EXIT_OK
    if extra:
        parser.of_command(args.command).refuse(extra)
    if args.command not in _END_BY_THEMSELVES:
        ending.watch()
    return command_module(args.command or "live").run(args)


def _refuse_unknown_option(parser: Parser, first: str, words: Sequence[str]) -> None:
    """Raise UsageError for a misspelt option, before argparse takes its value for a command or
    only reports that a required option is missing.
    """
    if first == "record":
        return  # the options of its command may follow
    command = parser.of_command(first if first in COMMANDS else None)
    for word in words if first in COMMANDS else words[:1]:
        if word == "--":
            return
        if word.startswith("--") and not command.knows(word):
            command.refuse([word])


def _complain(words: Sequence[str], message: str, code: int) -> int:
    command = unstarted(words)
    if os.environ.get("GPUMON_DEBUG") and sys.exc_info()[0] is not None:
        if not command:
            raise
        sys.excepthook(*sys.exc_info())
    from gpumon.model.text import clean

    line = " ".join(clean(message, 100_000).split())
    if len(line) > _LONGEST_LINE:  # what is wrong stands first, what to do last
        line = f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    if command:
        return run_bare(command, line)
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
