"""The commands with their options, from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

from docs.generate.facts import sentence
from gpumon.cli.parser import build_parser


class Entry(NamedTuple):
    """One option or positional argument of a command."""

    form: str  # "--interval S", "-o FILE, --output FILE", "JOBID"
    help: str
    default: str


class Command(NamedTuple):
    """One command; `name` is empty for `gpumon` alone."""

    name: str
    help: str
    usage: str
    entries: tuple[Entry, ...]

    @property
    def called(self) -> str:
        return f"gpumon {self.name}".rstrip()


def commands() -> list[Command]:
    """All commands in the order of `gpumon --help`."""
    parser = build_parser()
    found = [_command("", parser.description or "", parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            found += [_command(name, helps[name], each) for name, each in action.choices.items()]
    return found


def _command(name: str, text: str, parser: argparse.ArgumentParser) -> Command:
    shown = [
        action
        for action in parser._actions
        if not isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))
        and action.help != argparse.SUPPRESS
    ]
    shown.sort(key=lambda action: bool(action.option_strings))  # what is named by place comes first
    usage = parser.usage or " ".join((f"gpumon {name}".rstrip(), *_synopsis(shown, parser)))
    return Command(name, sentence(text), usage, tuple(map(_entry, shown)))


def _synopsis(actions: list[argparse.Action], parser: argparse.ArgumentParser) -> Iterator[str]:
    """Options, then arguments; of options that exclude each other one in parentheses."""
    together = {
        id(action): group
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    for action in (each for each in actions if each.option_strings):
        group = together.get(id(action))
        if group is None:
            yield _called(action) if action.required else f"[{_called(action)}]"
        elif action is group._group_actions[0]:
            choice = " | ".join(map(_called, group._group_actions))
            yield f"({choice})" if group.required else f"[{choice}]"
    for action in (each for each in actions if not each.option_strings):
        value = _value(action)
        some = {"*": f"[{value} ...]", "+": f"{value} ...", "?": f"[{value}]"}
        yield some.get(str(action.nargs), value)


def _called(action: argparse.Action) -> str:
    return f"{action.option_strings[-1]} {_value(action)}".rstrip()


_DEFAULT = re.compile(r" \(([\w.]+)\)$")  # what a help text names in the end: "seconds (1)"


def _entry(action: argparse.Action) -> Entry:
    value = _value(action)
    form = ", ".join(f"{flag} {value}".rstrip() for flag in action.option_strings) or value
    text = action.help or ""
    named = _DEFAULT.search(text)
    default = "" if action.nargs == 0 or isinstance(action.default, list) else action.default
    if default in (None, "", False, argparse.SUPPRESS):
        default = named[1] if named else ""
    elif isinstance(default, float):
        default = f"{default:g}"
    text = _DEFAULT.sub("", text) if default else text
    return Entry(form, sentence(text) if text else "", str(default))


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and not action.metavar:
        return "|".join(str(choice) for choice in action.choices)
    return str(action.metavar or action.dest)
