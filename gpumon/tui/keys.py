"""What a key does. Each screen has a table of its own; `screens.KEYS` is all of them together.

The bindings, the key bar and the help read the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from textual.binding import Binding
from textual.events import Key as Pressed


class Key(NamedTuple):
    """One action: `keys` in Textual's names; shown in the key bar unless `bar` is empty."""

    keys: str
    action: str
    shown: str
    bar: str
    help: str
    #: where the bar shows it: names of screens, "replay" or "output known"; () is everywhere
    where: tuple[str, ...] = ()
    group: str = ""  # its heading in the help


def grouped(group: str, *keys: Key) -> tuple[Key, ...]:
    """The keys under one heading of the help."""
    return tuple(key._replace(group=group) for key in keys)


def moving(help: str, up: str = "up", down: str = "down") -> list[Key]:
    """The keys that move a cursor; `help` stands beside the first."""
    steps = {up: -1, down: 1, "pageup": -10, "pagedown": 10, "home": -100_000, "end": 100_000}
    first, *others = (Key(keys, f"move({step})", "", "", "") for keys, step in steps.items())
    return [first._replace(shown="↑↓", help=help), *others]


_OUTPUT, _TABLE = ("output known",), ("processes", "nodes")
PLOTS = ("job", "device", "node", "array")

_SCREENS = grouped(
    "Screens",
    Key("1", "view('job')", "1", "Job", "job or node: requested and used resources, all devices"),
    Key("2", "device", "2", "Device", "the selected device, large"),
    Key("3", "view('processes')", "3", "Processes", "processes on the devices"),
    Key("4", "view('nodes')", "4", "Nodes", "nodes as a heat map, worst first"),
    Key("5", "report", "5", "Report", "report as if the job ended now, with the lines to change"),
    Key("6", "runs", "6", "Runs", "recorded runs: replay, report, compare two, delete"),
    Key("o", "output", "o", "Output", "the job's output; press again for its error file", _OUTPUT),
)
_MOVE = grouped(
    "Select",
    Key("enter", "open", "Enter", "", "open the selected node, device, process or finding"),
    *moving("select a node, device or process", "up,left", "down,right"),
    Key("escape", "leave", "Esc", "", "go back; clear the filter; stop seeking"),
    Key("slash", "filter", "/", "Filter",
        "filter by text, or gpu=0 user=ada mem>10G cpu>50", _TABLE),
)  # fmt: skip
_TIME = grouped(
    "Time",
    Key("plus,equals_sign", "zoom(-1)", "+", "", "zoom in: plot a shorter time"),
    Key("minus", "zoom(1)", "+ -", "Zoom",
        "zoom out: plot a longer time, up to the whole run", PLOTS),
    Key("space", "freeze", "space", "Freeze", "freeze the screen; sampling continues"),
)  # fmt: skip
#: the keys that every screen has, before those of single screens
FIRST = (*_SCREENS, *_MOVE, *_TIME)
#: and those after them
LAST = grouped(
    "gpumon",
    Key("t", "theme", "t", "Theme", "next theme: dark, light, colour-blind, 16 colours, mono"),
    Key("ctrl+p", "palette", "Ctrl-P", "", "find any action by its name"),
    Key("f2", "settings", "F2", "", "settings: theme, zoom, sort, plots; kept between starts"),
    Key("S", "picture", "S", "", "save a picture of the screen (SVG) in this folder"),
    Key("ctrl+l", "redraw", "Ctrl-L", "", "draw the whole screen again"),
    Key("question_mark,h,f1", "help", "?", "Help", "show this help (also h, F1)"),
    Key("q,ctrl+c", "quit", "q", "Quit", "quit"),
)


def mute_text(pressed: Pressed, known: Collection[str]) -> str:
    """What to say of a key that does nothing; "" of all others."""
    if pressed.key in known:
        return ""
    name = pressed.character if pressed.is_printable else pressed.key.title().replace("+", "-")
    return f"{name} does nothing here; ? lists the keys, Ctrl-P all actions"


def bindings(keys: Iterable[Key]) -> list[Binding]:
    """The tables as Textual takes them; `act` finds who has the action."""
    return [
        Binding(key.keys, f"act({key.action!r})", key.help or key.action, show=False)
        for key in keys
    ]
