"""What goes to the terminal when few cells have changed.

Textual 8 sends each changed span from the left edge of its widget on (`ChopsUpdate` crops only
the right side) and resets the style after every run. On a screen of one wide widget
that is ten times the bytes that changed, and over ssh bytes are what a dashboard costs.
"""

from __future__ import annotations

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.strip import Strip

#: rich remembers the last 16,384 pieces that it cut, with their texts: where screens change all the
#: time that is 200 more each minute, and hardly one of them is asked for again
_PIECES_KEPT = 512


class TightUpdate(CompositorUpdate):
    """The same update, in as few bytes: only the changed cells, styles only where they change."""

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._update.__rich_console__(console, options)

    def render_segments(self, console: Console) -> str:
        """The terminal sequences."""
        system = console._color_system or ColorSystem.TRUECOLOR
        update = self._update
        written: list[str] = []
        current = ""
        for y, first, past in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items()):
                if strip is None or x >= past or end <= first:
                    continue
                start = max(x, first)
                written.append(f"\x1b[{y + 1};{start + 1}H")
                for text, style, _ in strip.crop(start - x, min(end, past) - x):
                    codes = Strip.render_ansi(style, system) if style is not None else ""
                    if codes != current:
                        written.append(f"\x1b[0;{codes}m" if codes else "\x1b[0m")
                        current = codes
                    written.append(text)
        if current:
            written.append("\x1b[0m")
        cut = Segment._split_cells
        if cut.cache_info().currsize > _PIECES_KEPT:
            cut.cache_clear()
        return "".join(written)
