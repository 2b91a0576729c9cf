"""`gpumon completion`: scripts for the shells, from the parser itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpumon.errors import EXIT_OK

if TYPE_CHECKING:
    from gpumon.cli.shells import Command

SHELLS = ("bash", "zsh", "fish")

_INSTALL = {
    "bash": "gpumon completion bash > ~/.local/share/bash-completion/completions/gpumon",
    "zsh": "gpumon completion zsh > ~/.zfunc/_gpumon   (with fpath+=~/.zfunc before compinit)",
    "fish": "gpumon completion fish > ~/.config/fish/completions/gpumon.fish",
}
#: how an argument is called in the help -> jobs that it names, and whether it may be a file
_ARGUMENTS = {
    "JOBID|NAME": ("running", False),
    "JOBID|PID": ("running", False),
    "JOBID|FILE": ("known", True),
    "FILE|JOBID": ("recorded", True),
    "RUN": ("recorded", True),
}
_FILES = ("FILE", "RUN")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", type=_shell, choices=SHELLS, help="shell")


def _shell(text: str) -> str:
    """Three are listed at once: a shell that is none of them is not misspelt."""
    if text not in SHELLS:
        raise argparse.ArgumentTypeError(
            f"no completion for {text!r}; choose from: {', '.join(SHELLS)}"
        )
    return text


def run(args: argparse.Namespace) -> int:
    from gpumon.cli import shells
    from gpumon.cli.parser import build_parser

    script = getattr(shells, args.shell)(_commands(build_parser()))
    first, _, rest = script.partition("\n")  # which zsh must find at the beginning
    print(f"{first}\n# {_INSTALL[args.shell]}\n{rest}", end="")
    return EXIT_OK


def _commands(parser: argparse.ArgumentParser) -> list[Command]:
    """The parser of the whole command line ("" is its name) and those of its commands."""
    from gpumon.cli.shells import Word

    found, names = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            names += [Word(name, helps.get(name, "")) for name in action.choices]
            found += [_command(name, command) for name, command in action.choices.items()]
    top = _command("", parser)
    return [top._replace(words=names + top.words), *found]


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    from gpumon import demos
    from gpumon.cli import shells
    from gpumon.config import NOTIFY, THEMES

    options: list[shells.Option] = []
    words: list[shells.Word] = []
    jobs, is_file = "", False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        values = [str(choice) for choice in action.choices or ()]
        if not action.option_strings:
            jobs, is_file = _ARGUMENTS.get(str(action.metavar), (jobs, is_file))
            values = demos.names() if name == "demo" else values
            words += [shells.Word(value, text) for value in values]
        elif action.nargs == 0:
            options.append(shells.Option(tuple(action.option_strings), text))
        else:
            values = list({"theme": THEMES, "notify": NOTIFY}.get(action.dest, values))
            kind = "files" if action.metavar in _FILES else "one of" if values else "any"
            options.append(shells.Option(tuple(action.option_strings), text, kind, values))
    return shells.Command(name, words, options, jobs, is_file)
