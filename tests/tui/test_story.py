"""Screens of the recorded story in ASCII, and at odd sizes."""

import pytest

from gpumon.tui.lines import plain

VIEWS = ("job", "device", "processes")


@pytest.mark.parametrize("name", VIEWS)
def test_ascii_screens_are_ascii_but_for_units(looking, name):
    looking.at(glyphs="ascii")
    text = plain(looking.draw(name, 120, 38).rows)
    assert {char for char in text if not char.isascii()} <= set("°·×…←→↓↑‹›")


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(10, 3), (30, 8), (50, 15), (79, 23), (260, 80)])
def test_no_size_breaks_a_screen(looking, name, width, height):
    view = looking.draw(name, width, height)
    assert len(view.rows) <= max(height, 3)
    for zone in view.zones:
        assert zone.x + zone.width <= width
