"""Changes to a file of settings that people write: only what is changed, all else stays."""

from __future__ import annotations

import os
import stat
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config import SORTS, Settings, load_settings
from gpumon.errors import GpumonError, UsageError
from gpumon.toml import read_toml, with_values
from gpumon.tui.dialogs.settings import save_settings
from gpumon.tui.screens.processes.entries import SORTS as COLUMNS

BY_HAND = """\
# my settings

theme = "dark"   # at night: 'light' blinds
  zoom_s=600
interval_s = 2 # seconds

[other]  # not ours
theme = "kept"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    for name in Settings._fields:
        monkeypatch.delenv(f"GPUMON_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")
    return tmp_path / "config" / "gpumon" / "config.toml"


def changed(text, **changes):
    return with_values("config.toml", text, changes)


def test_a_value_is_changed_where_it_stands_and_all_else_stays():
    new = changed(BY_HAND, theme="light", zoom_s=1800.0, plots=False)
    assert new == BY_HAND.replace('"dark" ', '"light" ', 1).replace("=600", "=1800").replace(
        "seconds\n\n", "seconds\n\nplots = false\n"
    )


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("", 'theme = "light"\n'),
        ("# nothing", '# nothing\ntheme = "light"\n'),
        ("theme = 'dark'", 'theme = "light"'),
        ('theme="a#b"#c', 'theme="light"#c'),
        ('theme = "dark"\r\nascii = true\r\n', 'theme = "light"\r\nascii = true\r\n'),
        ("[a]\nb = 1\n", 'theme = "light"\n[a]\nb = 1\n'),
        ('# theme = "dark"\n', '# theme = "dark"\ntheme = "light"\n'),
        ('themes = "dark"\n', 'themes = "dark"\ntheme = "light"\n'),
    ],
)
def test_forms_of_a_line(text, new):
    assert changed(text, theme="light") == new


@pytest.mark.parametrize(
    "text", ['theme = """\ndark"""\n', '"theme" = "dark"\n', 'a = """\ntheme = "dark"\n"""\n']
)
def test_what_is_not_understood_is_left_to_people(text):
    with pytest.raises(UsageError, match="cannot change theme there; edit the file by hand"):
        changed(text, theme="light")


@given(
    st.dictionaries(
        st.sampled_from(["theme", "zoom_s", "plots", "sort", "x"]),
        st.one_of(st.booleans(), st.integers(-9, 9), st.text("ab #'=[]\\é", max_size=6)),
    ),
    st.sampled_from(["", BY_HAND, 'zoom_s = 60 # "x"\n\n\n# end', "[t]\nx = 1\n"]),
)
def test_every_change_is_read_back(changes, text):
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:

        def content(text):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            return read_toml(file.name)

        before = content(text)
        assert content(changed(text, **changes)) == {**before, **changes}


def test_what_was_saved_is_loaded(file):
    assert save_settings({"theme": "light", "zoom_s": 300.0}) == str(file)
    assert stat.S_ISREG(os.stat(file).st_mode)
    assert load_settings()[:2] == (1.0, "light")
    save_settings({"sort": "cpu", "plots": False})
    settings = load_settings()
    assert (settings.zoom_s, settings.sort, settings.plots) == (300, "cpu", False)


def test_a_file_with_a_mistake_is_not_touched(file):
    file.parent.mkdir(parents=True)
    file.write_text("theme = \n")
    with pytest.raises(UsageError, match="correct or remove it"):
        save_settings({"theme": "light"})
    assert file.read_text() == "theme = \n"


def test_a_folder_that_cannot_be_made_is_an_error(file):
    file.parent.parent.write_text("a file")
    with pytest.raises(GpumonError, match="cannot write"):
        save_settings({"theme": "light"})


def test_the_columns_are_those_of_the_table(file):
    assert SORTS == COLUMNS
    with pytest.raises(UsageError, match="unknown sort 'name'; choose from: pid, user"):
        load_settings(sort="name")
