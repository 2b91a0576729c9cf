"""What happened when, in the HTML report: numbered flags on the charts, and the list of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.report.model import Happening, Report
from gpumon.report.render.events import LEVELS, clock, more_text, words, worst
from gpumon.report.render.html_chart import Axis

#: the list has at most so many, the most severe of all; the others have no flag
_MOST = 24
#: flags of a chart that are closer to each other than this part of its width are one
_NEAR = 0.04


class Flag(NamedTuple):
    """One of the list, by its number there; 0 where no time is known."""

    number: int
    happening: Happening
    text: str  # when, where and what


def flags_of(report: Report) -> tuple[list[Flag], int]:
    """By time; and how many more there were."""
    kept, more = worst(report.happenings, _MOST)
    numbers = iter(range(1, len(kept) + 1))
    flags = [
        Flag(0 if each.time is None else next(numbers), each, _text(report, each)) for each in kept
    ]
    return flags, more


def _text(report: Report, each: Happening) -> str:
    return " ".join(filter(None, (clock(report, each), clean(each.label, 100), words(each))))


def flags_on(flags: Sequence[Flag], axis: Axis, top_percent: float = 0.0) -> str:
    """Those of one plot, at their times; near ones together, in the colour of the worst."""
    groups: list[list[Flag]] = []
    for flag in flags:
        if not flag.number or not 0 <= _share(axis, flag) <= 1:
            continue
        if groups and _share(axis, flag) - _share(axis, groups[-1][0]) < _NEAR:
            groups[-1].append(flag)
        else:
            groups.append([flag])
    spans = [_pin(group, _share(axis, group[0]), top_percent) for group in groups]
    return f'<div class="flags">{"".join(spans)}</div>' if spans else ""


def _pin(group: Sequence[Flag], share: float, top_percent: float) -> str:
    level = min((flag.happening.level for flag in group), key=LEVELS.index)
    first, last = group[0].number, group[-1].number
    name = str(first) if len(group) == 1 else f"{first}–{last}"
    title = "\n".join(flag.text for flag in group)
    place = f"left:{100 * share:.1f}%" + (f";top:{top_percent:.1f}%" if top_percent else "")
    return f'<span class="is-{level}" style="{place}" title="{escape(title)}">{name}</span>'


def events_list(report: Report) -> list[str]:
    """A line for each, with its number on the charts."""
    flags, more = flags_of(report)
    rows = [
        f'<p><b class="is-{flag.happening.level}">{flag.number or "·"}</b> {escape(flag.text)}</p>'
        for flag in flags
    ]
    note = [f'<p class="dim">{more_text(more)}</p>'] if more else []
    return ["<h2>Events</h2>", f'<div class="events">{"".join(rows)}</div>', *note] if rows else []


def _share(axis: Axis, flag: Flag) -> float:
    return axis.at(flag.happening.time or 0.0)
