"""Screens with their colours (`pytest --snapshot-update` after a change), ASCII, odd sizes."""

import pytest

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.lines import plain
from tests.tui import cluster
from tests.tui.conftest import fill
from tests.tui.test_app import Still


@pytest.mark.parametrize(
    ("theme", "keys", "size"),
    [
        ("dark", (), (120, 40)),
        ("light", ("2",), (120, 40)),
        ("colour-blind", ("3",), (80, 24)),
        ("ansi", (), (80, 24)),
        ("mono", ("question_mark",), (120, 40)),
    ],
)
def test_screens_look_as_before(snap_compare, theme, keys, size):
    store, now = fill(500)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings(theme=theme))
    assert snap_compare(app, press=keys, terminal_size=size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "nodes", "keys", "size"),
    [
        ("dark", 16, (), (120, 40)),
        ("light", 4, ("4",), (120, 40)),
        ("colour-blind", 16, ("4",), (80, 24)),
        ("mono", 4, ("4", "c"), (120, 40)),
    ],
)
def test_nodes_look_as_before(snap_compare, theme, nodes, keys, size):
    store, now = cluster.fill(nodes, seconds=70)
    app = GpumonApp(Pipeline(Still(now, "ssh"), store=store), Settings(theme=theme))
    assert snap_compare(app, press=keys, terminal_size=size)


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
