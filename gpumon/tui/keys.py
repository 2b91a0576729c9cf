"""Every key in one table: bindings, the key bar and the help read it."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding


class Key(NamedTuple):
    """One action: `keys` in Textual's names; shown in the key bar unless `bar` is empty."""

    keys: str
    action: str
    shown: str
    bar: str
    help: str


KEYS: tuple[Key, ...] = (
    Key("1", "view('job')", "1", "Job", "the job or node: asked against used, every device"),
    Key("2,enter", "open", "2", "Device", "the selected device, large"),
    Key("3", "view('processes')", "3", "Processes", "processes on the devices"),
    Key("up,left", "move(-1)", "↑↓", "", "select a device or process"),
    Key("down,right", "move(1)", "", "", ""),
    Key("pageup", "move(-10)", "", "", ""),
    Key("pagedown", "move(10)", "", "", ""),
    Key("home", "move(-100000)", "", "", ""),
    Key("end", "move(100000)", "", "", ""),
    Key("escape", "back", "Esc", "", "back; clears the filter"),
    Key("plus,equals_sign", "zoom(-1)", "+", "", "a shorter time in the plots"),
    Key("minus", "zoom(1)", "+/-", "Zoom", "a longer time in the plots, up to all there is"),
    Key("space", "freeze", "space", "Freeze", "hold the screen still; the recording of it goes on"),
    Key("slash", "filter", "/", "Filter", "processes by text or gpu=0 user=ada mem>10G cpu>50"),
    Key("s", "sort(1)", "s", "Sort", "next column to sort the processes by"),
    Key("S", "reverse", "S", "", "reverse the order"),
    Key("v", "tree", "v", "Tree", "processes under their parents"),
    Key("k", "signal", "k", "Signal", "send a signal to the selected process, if it is yours"),
    Key("t", "theme", "t", "Theme", "next colours: dark, light, colour-blind, 16 colours, mono"),
    Key("question_mark", "help", "?", "Help", "this page"),
    Key("q,ctrl+c", "quit", "q", "Quit", "leave"),
)


def bindings() -> list[Binding]:
    """The table as Textual takes it."""
    return [Binding(key.keys, key.action, key.help or key.action, show=False) for key in KEYS]
