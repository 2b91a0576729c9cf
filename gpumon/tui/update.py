"""What Textual draws itself (a first screen, dialogs), in as few bytes as what gpumon draws."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Union

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.strip import Strip

from gpumon.tui.picture import Picture, Run


def release_closed_dialogs() -> None:
    """Release what Textual and rich keep of widgets that are gone.

    In Textual 8 a cache of 1,024 pairs of colours (`StylesCache.get_inner_outer`) has the widget's
    own cache in its keys, with every line that was drawn: about 80 KB for each dialog ever opened.
    Rich remembers the last 16,384 pieces that it cut, with their texts. And a closed widget is a
    ring of styles, caches and strips (16,000 objects of a help), which only the collector finds.
    """
    StylesCache.get_inner_outer.cache_clear()
    Segment._split_cells.cache_clear()
    gc.collect()


class Changes(CompositorUpdate):
    """An update of the compositor, of which only cells are sent that the terminal does not show."""

    def __init__(self, update: Union[ChopsUpdate, LayoutUpdate], picture: Picture) -> None:
        self._update = update
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._update.__rich_console__(console, options)

    def render_segments(self, console: Console) -> str:
        update = self._update
        parts = _lines(update) if isinstance(update, LayoutUpdate) else _chops(update)
        return self._picture.change(parts, console._color_system or ColorSystem.TRUECOLOR)


def _lines(update: LayoutUpdate) -> Iterator[tuple[int, int, list[Run]]]:
    for y, strips in enumerate(update.strips, update.region.y):
        yield y, update.region.x, [run for strip in strips for run in _runs(strip)]


def _chops(update: ChopsUpdate) -> Iterator[tuple[int, int, list[Run]]]:
    for y, first, past in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items()):
            if strip is not None and x < past and end > first:
                start = max(x, first)
                yield y, start, _runs(strip.crop(start - x, min(end, past) - x))


def _runs(strip: Strip) -> list[Run]:
    return [(text, style or Style.null()) for text, style, control in strip if not control]
