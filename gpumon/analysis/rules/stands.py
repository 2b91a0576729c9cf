"""Where the probe saw the main threads of ranks stand, and how findings put it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gpumon.analysis.rules.phrasing import alike, percent
from gpumon.analysis.rundata import DeviceData, ProgramData, RunData
from gpumon.analysis.steps import probed_on
from gpumon.frames.places import Place, ranked
from gpumon.model.text import clean
from gpumon.model.units import plural

_MOST_GROUPS = 3
_MOST_NAMES = 4


def probed_of(run: RunData, devices: Iterable[DeviceData]) -> list[ProgramData]:
    """Those on any of these devices, each once."""
    found = {id(each): each for device in devices for each in probed_on(run, device)}
    return sorted(found.values(), key=lambda each: (each.rank is None, each.rank or 0))


def seen(
    programs: Iterable[ProgramData],
    spans: Sequence[Sequence[int]],
    wanted: Callable[[Place], bool] | None = None,
    *,
    workers: bool = False,
) -> Counter[Place]:
    """The looks at all of these, or at the workers of their data loaders, in spans of the grid."""
    found: Counter[Place] = Counter()
    for each in programs:
        looks = each.worker_places(spans) if workers else each.places(spans)
        found.update(
            {place: count for place, count in looks.items() if wanted is None or wanted(place)}
        )
    return found


def mostly_in(looks: Counter[Place]) -> str:
    """`train.py:88 → next`, of the place that was seen most; "" without any."""
    return next((clean(place.shown, 120) for place, _ in ranked(looks)), "")


def line_of(looks: Counter[Place]) -> str:
    """`train.py:88`, of the user's own line that was seen most; "" where none was."""
    lines: Counter[str] = Counter()
    for place, count in looks.items():
        lines[place.line] += count
    del lines[""]
    return clean(max(lines, key=lambda line: (lines[line], line)), 80) if lines else ""


def ranks_text(programs: Sequence[ProgramData]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`, `8 ranks`; processes where they have no such numbers."""
    ranks = [each.rank for each in programs if each.rank is not None]
    has_ranks = len(set(ranks)) == len(programs)
    word = "rank" if has_ranks else "process"
    names = [str(each) for each in (ranks if has_ranks else [p.facts.pid for p in programs])]
    if len(names) == 1:
        return f"{word} {names[0]}"
    if len(names) > _MOST_NAMES:
        return plural(len(names), word, "s" if has_ranks else "es")
    words = "ranks" if has_ranks else "processes"
    return f"{words} {', '.join(names[:-1])} and {names[-1]}"


def where_text(programs: Sequence[ProgramData]) -> str:
    """`rank 3 stands in train.py:131; ranks 0, 1 and 2 in train.py:120 → all_reduce`: where they
    were seen last, those first that are fewest.
    """
    groups = alike(programs, lambda each: each.place)
    groups.sort(key=lambda each: (each[0].place.waits_for == "ranks", len(each)))
    parts = []
    for n, group in enumerate(groups[:_MOST_GROUPS]):
        verb = "" if n else " stands" if len(group) == 1 else " stand"
        parts.append(f"{ranks_text(group)}{verb} in {clean(group[0].place.shown, 120)}")
    if more := sum(map(len, groups[_MOST_GROUPS:])):
        parts.append(f"{more} elsewhere")
    return "; ".join(parts)


def most_text(programs: Sequence[ProgramData], spans: Sequence[Sequence[int]]) -> str:
    """`rank 0 stands in train.py:57 → tokenize 64 % of the time`; "" where nothing was seen."""
    looks = seen(programs, spans)
    place, part = next(ranked(looks), (None, 0.0))
    if place is None:
        return ""
    verb = "stands" if len(programs) == 1 else "stand"
    where = clean(place.shown, 120)
    return f"{ranks_text(programs)} {verb} in {where} {percent(100 * part)} of the time"
