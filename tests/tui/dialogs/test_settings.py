"""The screen of settings: what it changes at once, and keeps."""

from __future__ import annotations

import pytest

from gpumon.config import Settings, load_settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.settings import CHOICES, SettingsDialog, value_text
from tests.tui.conftest import fill
from tests.tui.test_app import Still


@pytest.fixture
def config(tmp_path, monkeypatch):
    for name in Settings._fields:
        monkeypatch.delenv(f"GPUMON_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")
    path = tmp_path / "gpumon" / "config.toml"
    path.parent.mkdir()
    path.write_text("# by hand\ninterval_s = 2\n")
    return path


@pytest.fixture
def app(config):
    store, now = fill(120)
    return GpumonApp(Pipeline(Still(now), store=store), Settings(theme="dark"))


def test_every_value_is_one_that_can_be_set():
    for each in CHOICES:
        assert Settings._field_defaults[each.name] in each.values
        for value in each.values:
            load_settings(**{each.name: value})
            assert value_text(value)


async def test_what_is_changed_is_shown_at_once_and_kept(app, config):
    async with app.run_test(size=(120, 40)) as pilot:
        view = app._parts["view"]
        assert "°C  busy" not in view.text  # the heading of a table: there are plots
        await pilot.press("f2", "right")  # the theme
        await pilot.press("down", "down", "right", "right")  # the sort
        await pilot.press("down", "right", "escape")  # no plots
        assert view.palette == "light"
        assert "°C  busy" in view.text
        await pilot.press("3")
        assert "sorted by user" in view.text
        assert "saved theme, sort, plots in /" in app._parts["keys"].text
    assert config.read_text().startswith("# by hand\ninterval_s = 2\n")
    kept = load_settings()
    assert (kept.theme, kept.sort, kept.plots, kept.interval_s) == ("light", "user", False, 2)


async def test_the_theme_of_the_key_is_kept_and_nothing_else_is_written(app, config):
    before = config.read_text()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2", "left", "right", "escape")
        assert config.read_text() == before
        await pilot.press("t", "f2")
        assert isinstance(app.screen, SettingsDialog)
        await pilot.press("escape")
    assert load_settings().theme == "light"


async def test_a_setting_that_the_environment_overrides_says_so(app, config, monkeypatch):
    monkeypatch.setenv("GPUMON_ZOOM_S", "60")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        shown = [str(app.screen.query_one("OptionList").get_option_at_index(n).prompt)
                 for n in range(len(CHOICES))]  # fmt: skip
        assert "GPUMON_ZOOM_S overrides it" in shown[1]


async def test_what_cannot_be_written_is_said(app, config):
    config.write_text("theme = \n")
    async with app.run_test(size=(200, 24)) as pilot:
        await pilot.press("f2", "right", "escape")
        assert "correct or remove it" in app._parts["keys"].text
