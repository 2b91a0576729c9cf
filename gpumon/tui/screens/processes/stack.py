"""Where a process is: its stack, as rows of its screen."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.export.stacks import frame_texts, why_text
from gpumon.model.stack import Frame
from gpumon.model.units import age_text, plural
from gpumon.pipeline.stacks import Seen, Stacks
from gpumon.tui.lines import Row, fit_row

#: of the screen's height, the calls together
_SHARE = 0.4
#: a program of which nothing can be told; it needs no row
_NO_PROGRAM = ("not-python", "other-user", "ended")


def stack_rows(stacks: Stacks, node: str, pid: int, now: float, width: int, room: int) -> list[Row]:
    """Its calls, the deepest first, or how to see them. `now`: monotonic s."""
    seen = stacks.look(node, pid)
    if stacks.is_awaited(node, pid):
        return [[(" stack  ", "dim"), ("reading it…", "")]]
    if seen is None or (seen.stack.why in _NO_PROGRAM and not seen.stack.by):
        return []
    if not seen.stack.main:
        return [fit_row([(" stack  ", "dim"), *_why_not(seen)], width)]
    most = max(2, int(room * _SHARE))
    frames, left_out = shortened(seen.stack.main, most)
    rows = [fit_row([(" stack  ", "dim"), (_source(seen, now), "dim"), *_again(seen)], width)]
    texts = frame_texts(frames)
    cells = max(len(place) for place, _, _ in texts)
    for place, function, own in texts:
        role = "" if own else "dim"
        rows.append(fit_row([(f"   {place:<{cells}}  ", role), (function, role)], width))
    if left_out:
        rows.append([(f"   and {plural(left_out, 'more call')}", "dim")])
    return rows


def _why_not(seen: Seen) -> Row:
    if seen.stack.why == "no-probe":
        return [("w ", "key"), ("shows it, by py-spy", "dim")]
    return [(why_text(seen.stack), "unknown"), ("  w ", "key"), ("tries again", "dim")]


def _source(seen: Seen, now: float) -> str:
    age_s = max(0.0, now - seen.at) + seen.stack.age_s
    return f"by {'the probe' if seen.stack.by == 'probe' else seen.stack.by}, {age_text(age_s)} ago"


def _again(seen: Seen) -> Row:
    return [] if seen.stack.by == "probe" else [("   w ", "key"), ("reads it again", "dim")]


def shortened(frames: Sequence[Frame], most: int) -> tuple[list[Frame], int]:
    """At most so many, in their order, and how many are left out.

    The deepest call stays, then the user's own files, then what is deepest.
    """
    if len(frames) <= most:
        return list(frames), 0
    places = range(len(frames))
    ranked = sorted(places, key=lambda place: (place != 0, not frames[place].own, place))
    kept = sorted(ranked[:most])
    return [frames[place] for place in kept], len(frames) - most
