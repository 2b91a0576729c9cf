"""Settings: every place they may come from, and the one line for each mistake."""

from __future__ import annotations

import os

import pytest

from gpumon.config import THEMES, Settings, load_settings
from gpumon.errors import EXIT_USAGE, UsageError
from tests.e2e.program import environment, gpumon


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Functions that write the user's and the site's file; no other settings are seen."""
    for name in Settings._fields:
        monkeypatch.delenv(f"GPUMON_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")
    user = tmp_path / "config" / "gpumon" / "config.toml"
    user.parent.mkdir(parents=True)

    class Places:
        def user(self, text):
            user.write_bytes(text if isinstance(text, bytes) else text.encode())
            return user

        def site(self, text):
            (tmp_path / "site.toml").write_text(text)
            return tmp_path / "site.toml"

    return Places()


# -- what is right -----------------------------------------------------------------------------
VALID = {
    "": {},
    "# nothing but a comment\n": {},
    "interval_s = 2": {"interval_s": 2},
    "interval_s = 0.1": {"interval_s": 0.1},
    "interval_s = 3600": {"interval_s": 3600},
    "zoom_s = 10": {"zoom_s": 10},
    "zoom_s = 2678400": {"zoom_s": 2678400},
    "ascii = true": {"ascii": True},
    "ascii = false": {},
    'theme = ""': {},
    **{f'theme = "{theme}"': {"theme": theme} for theme in THEMES},
    'theme = "mono"\nascii = true\ninterval_s = 5\nzoom_s = 60.5': {
        "theme": "mono", "ascii": True, "interval_s": 5, "zoom_s": 60.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("text", VALID)
def test_valid_files(places, text):
    places.user(text)
    assert load_settings() == Settings(**VALID[text])
    places.user("")
    places.site(f"[gpus.a100]\nmem_gib = 80\n[settings]\n{text}")  # the site's has other tables
    assert load_settings() == Settings(**VALID[text])


def test_no_file_at_all(monkeypatch, tmp_path, places):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
    assert load_settings() == Settings()
    assert Settings() == Settings(1.0, "", False, 600.0)


def test_the_users_file_under_home(monkeypatch, tmp_path, places):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".config" / "gpumon" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("interval_s = 7")
    assert load_settings().interval_s == 7


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes"])
def test_true_in_the_environment(places, monkeypatch, text):
    monkeypatch.setenv("GPUMON_ASCII", text)
    assert load_settings().ascii is True


@pytest.mark.parametrize("text", ["0", "false", "no", ""])
def test_false_in_the_environment(places, monkeypatch, text):
    places.user("ascii = true")
    monkeypatch.setenv("GPUMON_ASCII", text)
    assert load_settings().ascii is False


def test_flags_over_environment_over_user_over_site_over_defaults(places, monkeypatch):
    seen = [load_settings().interval_s]
    places.site("[settings]\ninterval_s = 2\nzoom_s = 20")
    seen.append(load_settings().interval_s)
    places.user("interval_s = 3\nascii = true")
    seen.append(load_settings().interval_s)
    monkeypatch.setenv("GPUMON_INTERVAL_S", "4")
    seen.append(load_settings().interval_s)
    seen.append(load_settings(interval_s=5.0).interval_s)
    assert seen == [1, 2, 3, 4, 5]
    # each setting on its own; a flag that was not given is None
    assert load_settings(interval_s=None, theme="ansi") == Settings(4, "ansi", True, 20)


# -- what is wrong -----------------------------------------------------------------------------
INVALID = {
    "interval_s =": "Invalid value",
    "interval_s = 2\ninterval_s = 3": "overwrite",
    b"\xff\xfe": "codec can't decode",
    "interval = 2": "unknown setting 'interval'; did you mean 'interval_s'?",
    "[settings]\ninterval_s = 2": "unknown setting 'settings'",
    'interval_s = "2"': "interval_s must be a number, not '2'",
    "interval_s = true": "interval_s must be a number, not True",
    "interval_s = [1]": "interval_s must be a number",
    "interval_s = 0": "interval_s 0: expected 0.1 to 3600 seconds",
    "interval_s = -1": "expected 0.1 to 3600 seconds",
    "interval_s = nan": "expected 0.1 to 3600 seconds",
    "interval_s = inf": "expected 0.1 to 3600 seconds",
    "zoom_s = 9": "zoom_s 9: expected seconds, from 10 to a month",
    "ascii = 1": "ascii must be true or false, not 1",
    'ascii = "yes"': "ascii must be true or false",
    "theme = 1": "theme must be text, not 1",
    'theme = "pink"': "unknown theme 'pink'; choose from: dark, light, colour-blind, ansi, mono",
}


@pytest.mark.parametrize("text", INVALID)
def test_invalid_files(places, text):
    path = places.user(text)
    with pytest.raises(UsageError) as raised:
        load_settings()
    assert INVALID[text] in str(raised.value)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("INTERVAL_S", "fast", "GPUMON_INTERVAL_S='fast': must be a number"),
        ("INTERVAL_S", "", "must be a number"),
        ("INTERVAL_S", "0", "expected 0.1 to 3600 seconds"),
        ("ZOOM_S", "1e9", "expected seconds, from 10 to a month"),
        ("ASCII", "maybe", "GPUMON_ASCII='maybe': must be true or false"),
        ("THEME", "pink", "unknown theme 'pink'"),
    ],
)
def test_invalid_environment(places, monkeypatch, name, text, words):
    monkeypatch.setenv(f"GPUMON_{name}", text)
    with pytest.raises(UsageError, match=words):
        load_settings()


def test_a_site_file_that_was_named_must_be_there(places, monkeypatch, tmp_path):
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match=r"none\.toml: No such file .*; correct GPUMON_SITE or"):
        load_settings()
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path))
    with pytest.raises(UsageError, match="Is a directory"):
        load_settings()


@pytest.mark.parametrize("kind", ["device", "fifo"])
def test_what_has_no_end_is_not_read(places, monkeypatch, tmp_path, kind):
    path = "/dev/zero"
    if kind == "fifo":
        os.mkfifo(path := tmp_path / "fifo")
    monkeypatch.setenv("GPUMON_SITE", str(path))
    with pytest.raises(UsageError, match=f"{path}: (longer than 1 MiB|a FIFO).*; correct"):
        load_settings()


def test_settings_of_a_site_must_be_a_table(places):
    places.site("settings = 3")
    with pytest.raises(UsageError, match="settings must be a table"):
        load_settings()


@pytest.mark.parametrize("text", [text for text in INVALID if isinstance(text, str)])
def test_users_see_one_line(places, text, tmp_path):
    places.user(text)
    env = environment(XDG_CONFIG_HOME=str(tmp_path / "config"))
    done = gpumon(env=env)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr.startswith("gpumon: ")
    assert done.stderr.count("\n") == 1
    assert INVALID[text] in done.stderr
