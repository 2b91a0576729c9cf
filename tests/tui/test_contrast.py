"""Every text on every screen is readable: WCAG 2.1 asks for a contrast of 4.5 (1.4.3)."""

import pytest

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.theme import NAMES, NATIVE
from tests.tui.test_app import Still

LEAST = 4.5
BLACK_AND_WHITE = (0, 7, 8, 15)  # of the 16 colours, with the bright ones
#: keys that lead to each screen and dialog; those with a text to type open with a hint
PLACES = ((), ("2",), ("3",), ("4",), ("5",), ("question_mark",), ("3", "slash"), ("3", "k"))


def luminance(colour):
    """Relative luminance of (red, green, blue), 0 to 255 each."""
    parts = [part / 255 for part in colour]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def written(app):
    """(text, colour, background) of all there is to read; bars, plots and rules are none of it.

    Of a dialog, what is in it: the screen behind is dimmed on purpose.
    """
    dialogs = app.screen.query(".dialog, .bottom")
    area = dialogs.first().region if dialogs else app.screen.region
    update = app.screen._compositor.render_update(full=True)
    for y, line in enumerate(update.strips):
        x = 0
        for text, style, _ in (segment for strip in line for segment in strip):
            x += len(text)
            if not area.contains(x - 1, y) or not any(c.isascii() and c.isalnum() for c in text):
                continue
            colours = [tuple(each.get_truecolor()) for each in (style.color, style.bgcolor)]
            yield text, *(reversed(colours) if style.reverse else colours)


@pytest.mark.parametrize("theme", [name for name in NAMES if name not in NATIVE])
async def test_every_text_stands_out_from_its_background(story, theme):
    store, now = story
    for keys in PLACES:
        app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme=theme))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            found = list(written(app))
            assert found, keys
            faint = {
                (text.strip(), round(contrast(colour, background), 2))
                for text, colour, background in found
                if contrast(colour, background) < LEAST
            }
            assert not faint, (theme, keys)


@pytest.mark.parametrize("theme", NATIVE)
async def test_the_terminals_own_colours_stay_its_own(story, theme):
    """Their contrast is the terminal's to set: none is mixed here, and in mono there is none."""
    store, now = story
    for keys in PLACES:
        app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme=theme))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            strips = app.screen._compositor.render_update(full=True).strips
            styles = {style for line in strips for strip in line for _, style, _ in strip if style}
            used = {each for style in styles for each in (style.color, style.bgcolor) if each}
            assert styles, keys
            assert not [each for each in used if each.triplet is not None], keys
            if theme == "mono":
                assert {each.number for each in used} <= {None, *BLACK_AND_WHITE}, keys
