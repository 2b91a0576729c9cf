"""The last row: the keys that matter here, clickable; what does not fit is in the help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gpumon.tui.keys import Key
from gpumon.tui.lines import Row
from gpumon.tui.parts.view import View, Zone

_ALWAYS = ("Job", "Device", "Processes", "Array", "Help", "Quit")


def key_bar(
    keys: Sequence[Key],
    where: Collection[str],
    lit: Collection[str],
    also: Callable[[str], str],
    width: int,
    *,
    several: bool,
) -> View:
    """The row.

    where: what `Key.where` may name now: the screen, "replay", "output known".
    lit: texts of the bar for what is on; also: what to say beside a text.
    several: whether there are several nodes.
    """
    shown = [key for key in keys if key.bar and (not key.where or set(key.where) & set(where))]
    runs = {key.action: _key_runs(key, lit, also) for key in shown}
    always = (*_ALWAYS, "Nodes") if several else _ALWAYS
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
    return View([row], zones)


def _key_runs(key: Key, lit: Collection[str], also: Callable[[str], str]) -> Row:
    text = f"{key.bar} {also(key.bar)}".rstrip()
    return [(f" {key.shown}", "key"), (f" {text} ", "title" if key.bar in lit else "dim")]


def _size(runs: Row) -> int:
    return sum(len(text) for text, _ in runs)
