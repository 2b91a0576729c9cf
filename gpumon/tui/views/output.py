"""The tail of the job's output or error file."""

from __future__ import annotations

from gpumon.tui.lines import Row, row_width, spread
from gpumon.tui.state import View, ViewState, Zone

_NAMES = {"out": "output", "err": "error"}


def output_view(state: ViewState, width: int, height: int) -> View:
    """A line that says which file, then its last lines; up goes back, End follows it again."""
    pane = state.output
    place = f"{pane.back} before the end" if pane.back else "following"
    right: Row = [(place, "attention" if pane.back else "dim"), ("   o ", "key")]
    right.append((f"{_NAMES['err' if pane.stream == 'out' else 'out']} ", "dim"))
    left: Row = [(f" {_NAMES[pane.stream]}  ", "title")]
    room = max(0, width - row_width(left) - row_width(right) - 1)
    path = pane.path if len(pane.path) <= room else "…" + pane.path[len(pane.path) - room + 1 :]
    rows: list[Row] = [spread([*left, (path, "dim")], right, width)]
    if pane.trouble:
        return View([*rows, [(f" {pane.trouble}", "unknown")]])
    room = max(0, height - 1)
    pane.back = min(pane.back, max(0, len(pane.lines) - room))
    last = len(pane.lines) - pane.back
    shown = pane.lines[max(0, last - room) : last]
    rows += [[(" ", ""), (line, "")] for line in shown]
    if not shown:
        rows.append([(" nothing written yet", "dim")])
    return View(rows, [Zone(0, 0, width, 1, "output")])
