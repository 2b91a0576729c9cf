"""In a replay, a click on a plot goes to the time under it."""

from types import SimpleNamespace

import pytest
from textual.actions import parse

from gpumon.tui.lines import plain
from gpumon.tui.screens.replay import ReplayKeys
from tests.tui.looking import Looking

LATEST, EARLIER = "now", "-4 min"  # below plots


@pytest.fixture
def replayed(story):
    store, now = story
    sought = []
    player = SimpleNamespace(seek=sought.append, seeking=False, paused=False, speed=1.0, aim=now)
    looking = Looking(store.nodes(), now, player=player)
    return looking, ReplayKeys(looking, is_replay=True), sought


def click(keys, view, x, y):
    zone = next(zone for zone in view.zones if zone.holds(x, y))
    _, name, arguments = parse(zone.action_at(x))
    getattr(keys, f"action_{name}")(*arguments)


@pytest.mark.parametrize(("screen", "size"), [("job", (120, 38)), ("device", (200, 58))])
def test_it_goes_to_the_time_under_it(replayed, screen, size):
    looking, keys, sought = replayed
    looking.show(screen)
    view = looking.draw(screen, *size)
    axis = next(row for row in map(plain, ([row] for row in view.rows)) if EARLIER in row)
    plot_row = next(zone.y for zone in view.zones if "_at(" in zone.action)
    for label, back_s in ((LATEST, 0), (EARLIER, 240)):
        x = axis.index(label) + len(label) // 2
        click(keys, view, x, plot_row)
        assert sought[-1] == pytest.approx(looking.moment.now - back_s, abs=30)


def test_on_the_job_screen_it_selects_the_device_too_and_titles_only_select(replayed):
    looking, keys, sought = replayed
    view = looking.draw("job", 120, 38)
    plot = next(zone for zone in view.zones if zone.action.startswith("pick_at(3"))
    click(keys, view, plot.x + 5, plot.y)
    assert looking.selection.device == 3
    assert len(sought) == 1
    title = next(zone for zone in view.zones if zone.holds(plot.x + 5, plot.y - 1))
    assert title.action == "pick(3)"


def test_live_it_selects(looking):
    view = looking.draw("job", 120, 38)
    assert not [zone for zone in view.zones if "_at(" in zone.action]


def test_wide_axes_have_the_time_of_day(looking):
    assert "-4 min 21:21" in looking.text("device", 400, 58)
    assert ":" not in looking.text("device", 120, 38).split("-4 min")[1][:2]
