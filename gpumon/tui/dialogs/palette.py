"""Every action by its name: Textual's command palette, over the tables of keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from textual.app import App
from textual.command import SimpleCommand

from gpumon.tui.keys import Key


def open_palette(app: App[Any], keys: Iterable[Key], act: Callable[[str], Awaitable[None]]) -> None:
    """The one that is chosen is done by `act`, as if its key was pressed."""
    commands = [
        SimpleCommand(_name(key), partial(act, key.action), f"key {key.shown.split(' ')[-1]}")
        for key in keys
        if key.help and not key.action.startswith(("palette", "move"))
    ]
    app.search_commands(commands, placeholder="Find an action …")


def _name(key: Key) -> str:
    """`Report: report as if the job ended now`; what the bar calls it comes first."""
    text = key.help[:1].upper() + key.help[1:]
    return text if not key.bar or text.startswith(key.bar) else f"{key.bar}: {key.help}"
