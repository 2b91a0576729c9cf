"""`gpumon` without a command: what comes before the screen."""

from __future__ import annotations

import gc

import pytest

from gpumon.cli import main
from gpumon.errors import UsageError
from gpumon.services import dashboard
from gpumon.services.this_site import site_of_screen


def test_no_garbage_is_collected_until_the_screen_is_drawn(monkeypatch):
    seen = []
    monkeypatch.setattr("gpumon.terminal.can_show_screen", lambda: "")
    monkeypatch.setattr(dashboard, "show_node", lambda *_, **__: seen.append(gc.isenabled()) or 0)
    assert main(["--node"]) == 0
    assert seen == [False]
    assert gc.isenabled()


def test_a_mistake_in_a_sites_file_ends_before_the_screen(monkeypatch, tmp_path):
    (tmp_path / "site.toml").write_text("[site]\nnonsense = 1\n")
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    with pytest.raises(UsageError, match="nonsense"):
        site_of_screen()


def test_a_screen_reads_its_sites_file_once(monkeypatch, tmp_path):
    (tmp_path / "site.toml").write_text('[site]\nname = "Here"\n')
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    site = site_of_screen()
    (tmp_path / "site.toml").unlink()
    assert site().name == "Here"
    assert site() is site()


def test_without_a_file_a_screen_has_the_gpus_that_ship(monkeypatch):
    monkeypatch.delenv("GPUMON_SITE", raising=False)
    site = site_of_screen()
    assert site().gpu_type("NVIDIA A100-SXM4-80GB") is not None
    assert site() is site()
