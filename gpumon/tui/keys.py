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
    #: where the bar shows it: names of screens, "replay" or "output known"
    views: tuple[str, ...] = (
        "job", "device", "processes", "nodes", "node", "output", "report", "finding",
    )  # fmt: skip


_TABLE = ("processes",)
_PLOTS = ("job", "device", "node")
_REPLAY = ("replay",)  # only while a recording is played

KEYS: tuple[Key, ...] = (
    Key("1", "view('job')", "1", "Job", "the job or node: asked against used, every device"),
    Key("2", "device", "2", "Device", "the selected device, large"),
    Key("3", "view('processes')", "3", "Processes", "processes on the devices"),
    Key("4", "view('nodes')", "4", "Nodes", "nodes as a heat map, the worst first"),
    Key(
        "5", "report", "5", "Report", "the report as if the job ended now, with the lines to change"
    ),
    Key(
        "o",
        "output",
        "o",
        "Output",
        "what the job writes; again: its error file",
        ("output known",),
    ),
    Key("enter", "open", "Enter", "", "the selected node's devices, the device, or the finding"),
    Key("up,left", "move(-1)", "↑↓", "", "select a node, device or process"),
    Key("down,right", "move(1)", "", "", ""),
    Key("pageup", "move(-10)", "", "", ""),
    Key("pagedown", "move(10)", "", "", ""),
    Key("home", "move(-100000)", "", "", ""),
    Key("end", "move(100000)", "", "", ""),
    Key("escape", "leave", "Esc", "", "back; clears the filter"),
    Key("plus,equals_sign", "zoom(-1)", "+", "", "a shorter time in the plots"),
    Key("minus", "zoom(1)", "+ -", "Zoom", "a longer time, up to all there is", _PLOTS),
    Key("space", "freeze", "space", "Freeze", "hold the screen still; sampling goes on"),
    Key(
        "slash",
        "filter",
        "/",
        "Filter",
        "by text, or gpu=0 user=ada mem>10G cpu>50",
        _TABLE,
    ),
    Key("left_square_bracket", "seek(-1)", "[", "", "replay: back by a tenth of the plots' time"),
    Key("right_square_bracket", "seek(1)", "[ ]", "Seek", "replay: forward", _REPLAY),
    Key("comma", "step(-1)", ",", "", "replay: one sample back, and pause"),
    Key("full_stop", "step(1)", ", .", "Step", "replay: one sample forward, and pause", _REPLAY),
    Key("g", "go_to", "g", "Go to", "replay: to a time", _REPLAY),
    Key("n", "next_event", "n", "Next", "replay: to the next finding, mark or Xid", _REPLAY),
    Key("left_curly_bracket", "speed(0.5)", "{", "", "replay: half as fast"),
    Key("right_curly_bracket", "speed(2)", "{ }", "Speed", "replay: twice as fast", _REPLAY),
    Key(
        "c",
        "metric(1)",
        "c",
        "Cells",
        "nodes: cells show busy, memory, power, temperature",
        ("nodes",),
    ),
    Key(
        "s", "sort(1)", "s", "Sort", "next order of the nodes or processes", ("processes", "nodes")
    ),
    Key("S", "reverse", "S", "", "reverse the order"),
    Key("v", "tree", "v", "Tree", "processes under their parents", _TABLE),
    Key("k", "signal", "k", "Signal", "signal the selected process, if it is yours", _TABLE),
    Key("y", "copy", "y", "Copy", "copy the report's or finding's lines", ("report", "finding")),
    Key("e", "save", "e", "Save", "save the report as Markdown, here", ("report", "finding")),
    Key("m", "mark", "m", "", "put a line on the time axis, here and in the recording"),
    Key("t", "theme", "t", "Theme", "next colours: dark, light, colour-blind, 16 colours, mono"),
    Key("question_mark", "help", "?", "Help", "this page"),
    Key("q,ctrl+c", "quit", "q", "Quit", "leave"),
)


def bindings() -> list[Binding]:
    """The table as Textual takes it."""
    return [Binding(key.keys, key.action, key.help or key.action, show=False) for key in KEYS]
