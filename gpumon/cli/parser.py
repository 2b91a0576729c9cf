"""The parser of the command line; a command's arguments are read only where they are needed."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

from gpumon import __version__
from gpumon.errors import UsageError, suggestion

#: command -> one line of help. Each is a module of this package with add_arguments() and run().
COMMANDS = {
    "attach": "watch every GPU of a running job, on all its nodes",
    "jobs": "list your running and recent jobs with GPU use, memory, waste and advice",
    "report": "show what a job requested and used, and which lines to change",
    "once": "print one sample of this node, like nvidia-smi",
    "collect": "run the node-side agent: samples as lines on standard output",
    "doctor": "check what works here, and explain what does not",
    "stack": "show where each rank of a job, or a Python process, stands",
    "record": "record this node while a command runs, or in the background",
    "mark": "put a mark on the time axis of the current recording",
    "runs": "list recordings",
    "export": "export a recorded run as CSV, Parquet or JSON lines",
    "compare": "compare two recorded runs side by side",
    "exporter": "give this node's readings to Prometheus",
    "fit": "estimate which GPUs hold a language model",
    "replay": "play a recording in the dashboard",
    "demo": "play the example recording",
    "completion": "print a completion script for bash, zsh or fish",
}


_EPILOG = """\
Without a command: show the current job, or outside of a job this node.

exit codes: 0 success, 1 failure (I/O, no response), 2 invalid usage or input,
3 'report --fail-if' matched, 4 no such job, recording or device, 130 interrupted.
settings, by precedence: flags, environment variables GPUMON_*,
$XDG_CONFIG_HOME/gpumon/config.toml, the site file, defaults.
"""


class Parser(argparse.ArgumentParser):
    """Ends wrong usage with one line that names what to do, and what may have been meant."""

    #: name -> its parser; of the whole command line alone
    commands: Mapping[str, Parser] = MappingProxyType({})

    def of_command(self, name: str | None) -> Parser:
        """The parser of this command; None: of the words without one."""
        return self.commands[name] if name else self

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else ";"
        raise UsageError(f"{message}{end} see '{self.prog} --help'")

    def knows(self, option: str) -> bool:
        """Whether it is one of this parser's, with a value or without."""
        return option.split("=")[0] in self._option_string_actions

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Made for each argument. Where it is given no width it asks shutil, whose import takes
        longer than all of the parser.
        """
        return self.formatter_class(prog=self.prog, width=columns() - 2)  # type: ignore[call-arg]

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Raise UsageError for words that are not arguments of this parser."""
        near = suggestion(words[0].split("=")[0], self._option_string_actions)
        self.error(f"unrecognized arguments: {' '.join(words)}{near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = suggestion(str(value), map(str, action.choices or ()))
            if action.dest == "command":
                self.error(f"unknown command {str(value)!r}{near}")
            raise argparse.ArgumentError(action, f"{error.message}{near}") from None


def build_parser(words: Sequence[str] = tuple(COMMANDS)) -> Parser:
    """The command line, with the arguments of the commands that are named among `words` alone,
    which spares imports.
    """
    parser = Parser(
        prog="gpumon",
        description="Show what a job does on every GPU, and what to request next time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    command_module("live").add_arguments(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    parser.commands = commands.choices
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name in words:
            command_module(name).add_arguments(command)
    return parser


def columns() -> int:
    """Of the terminal, as shutil.get_terminal_size tells them."""
    told = os.environ.get("COLUMNS", "")
    try:
        return (int(told) if told.isdecimal() else 0) or os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def command_module(name: str) -> Command:
    """The module of this command, imported when it is needed."""
    module: Command = importlib.import_module(f"gpumon.cli.{name}")
    return module


class Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...
