"""The events of a report in words, for all of its forms that people read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.report.model import Happening, Report
from gpumon.report.render.layout import Row, leveled, wrapped

LEVELS = ("critical", "warning", "info")
_DAY_S = 86_400.0
#: a page for a terminal or a ticket lists so many
MOST = 8
_LONG = 24  # characters that no column is padded to


def worst(found: Sequence[Happening], most: int) -> tuple[list[Happening], int]:
    """By time, the most severe of all and of these the first; and how many more there are."""
    places = sorted(range(len(found)), key=lambda at: LEVELS.index(found[at].level))[:most]
    return [found[at] for at in sorted(places)], len(found) - len(places)


def clock(report: Report, each: Happening) -> str:
    """When it was; with the day in a run of more than one."""
    if each.time is None:
        return "during the run"
    is_long = (report.elapsed_s or 0.0) >= _DAY_S
    return time.strftime("%d %b %H:%M:%S" if is_long else "%H:%M:%S", time.localtime(each.time))


def words(each: Happening) -> str:
    """What happened, without where: "Xid 31 (57 times)"."""
    lasted = "" if each.duration_s is None else f", {age_text(each.duration_s)}"
    again = f" ({each.count} times{lasted})" if each.count > 1 else lasted
    return f"{clean(each.text, 200)}{again}"


def more_text(more: int) -> str:
    """What is said of those that are not listed; "" where all are."""
    return f"and {more} more of the same or a lower level" if more else ""


def event_rows(report: Report, width: int, glyphs: str, most: int = MOST) -> list[Row]:
    """A line for each: sign, time, GPU, what happened."""
    found, more = worst(report.happenings, most)
    if not found:
        return []
    times = _padded([clock(report, each) for each in found])
    labels = _padded([clean(each.label, 100) for each in found])
    rows: list[Row] = [[("Events", "title")]]
    for each, when, where in zip(found, times, labels):
        text = f"{when}  {where}  {words(each)}" if where else f"{when}  {words(each)}"
        rows += leveled(each.level, text, width, glyphs)
    return rows + (wrapped("", more_text(more), width, "dim", "dim") if more else [])


def _padded(texts: Sequence[str]) -> list[str]:
    """Of one width, unless one is long."""
    width = max(map(len, texts))
    return [text.ljust(width) if width <= _LONG else text for text in texts]
