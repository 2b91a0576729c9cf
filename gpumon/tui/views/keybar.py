"""The last row: the keys that matter here, clickable; what does not fit is in the help."""

from __future__ import annotations

from gpumon.tui.keys import KEYS, Key
from gpumon.tui.lines import Row
from gpumon.tui.state import ViewState, Zone

_ALWAYS = ("Job", "Device", "Processes", "Help", "Quit")


def key_bar(state: ViewState, width: int) -> tuple[Row, list[Zone]]:
    shown = [key for key in KEYS if key.bar and _belongs(state, key)]
    runs = {key.action: _key_runs(state, key) for key in shown}
    always = (*_ALWAYS, "Nodes") if len(state.nodes) > 1 else _ALWAYS
    room = width - sum(_size(runs[key.action]) for key in shown if key.bar in always)
    row: Row = []
    zones: list[Zone] = []
    x = 0
    for key in shown:
        size = _size(runs[key.action])
        if key.bar not in always:
            if size > room:
                continue
            room -= size
        zones.append(Zone(x, 0, size, 1, key.action))
        row += runs[key.action]
        x += size
    return row, zones


def _belongs(state: ViewState, key: Key) -> bool:
    modes = {
        "replay": state.player is not None,
        "output known": state.has_output,
        "nodes": state.selects_nodes,
    }
    return state.view in key.views or any(modes.get(view, False) for view in key.views)


def _key_runs(state: ViewState, key: Key) -> Row:
    also = {"Zoom": state.span_text, "Cells": state.metric.name}.get(key.bar)
    text = f"{key.bar} {also}" if also else key.bar
    held = state.frozen_at is not None or (state.player is not None and state.player.paused)
    frozen = key.bar == "Freeze" and held
    view = "nodes" if state.view == "node" else state.view
    here = frozen or key.bar.lower() == view
    return [(f" {key.shown}", "key"), (f" {text} ", "title" if here else "dim")]


def _size(runs: Row) -> int:
    return sum(len(text) for text, _ in runs)
