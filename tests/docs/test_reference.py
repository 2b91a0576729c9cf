"""The generated pages are the newest, complete, and readable as a man page."""

from __future__ import annotations

import re
import subprocess

import pytest

from docs.generate import __main__ as generate
from docs.generate import facts
from docs.generate.command_line import commands
from gpumon import errors
from gpumon.config import Settings
from gpumon.site import read as site
from tests.e2e.program import ROOT, gpumon

CODE = "\n".join(path.read_text() for path in (ROOT / "gpumon").rglob("*.py"))


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_page_is_the_newest(name):
    text = (ROOT / "docs" / name).read_text()
    assert text == generate.PAGES[name](), "stale; run: python -m docs.generate"


@pytest.mark.slow
def test_the_command_writes_only_what_differs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    assert generate.main() == 0
    (tmp_path / "keys.md").write_text("old")
    capsys.readouterr()
    generate.main()
    assert capsys.readouterr().out == "wrote docs/keys.md\n"


@pytest.mark.parametrize("command", commands(), ids=lambda each: each.called)
def test_help_and_page_have_the_same_options(command):
    text = gpumon(*command.called.split()[1:], "--help").stdout
    shown = set(re.findall(r"^  (-.*?)(?:  .*)?$", text, re.M)) - {"-h, --help"}
    flags = {flag for form in shown for flag in re.findall(r"(?:^|, )(-[a-z-]*)", form)}
    ours = {
        flag for each in command.entries for flag in re.findall(r"(?:^|, )(-[a-z-]*)", each.form)
    }
    assert flags == ours


def test_every_exit_code_is_explained():
    constants = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert constants <= set(facts.EXIT_CODES)


def test_every_setting_is_explained():
    assert [each.name for each in facts.settings()] == list(Settings._fields)


def test_every_variable_that_the_code_reads_is_explained():
    read = set(re.findall(r"""["'$](GPUMON_[A-Z_]*[A-Z])\b""", CODE))
    assert {"GPUMON_SITE", "GPUMON_STATE", "GPUMON_DEBUG"} <= read
    assert read <= set(facts.ENVIRONMENT)
    assert [name for name in facts.ENVIRONMENT if name not in CODE] == []


def test_the_man_page_renders_without_warnings():
    page = ROOT / "docs" / "gpumon.1"
    made = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=True
    )
    assert made.stderr == ""
    shown = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", page],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for words in ("gpumon attach", "--via ssh|openssh|srun", "EXIT STATUS", "GPUMON_SITE"):
        assert words in shown


def test_every_key_of_a_sites_file_is_described():
    keys = {*site._TABLES, *site._SITE, *site._POLICY, *site._NODE, *site._NAMES, *site._GPU}
    assert {"mem_mib", "zero_run_h", "gres", "thresholds"} <= keys
    text = (ROOT / "docs" / "site.md").read_text()
    assert [name for name in sorted(keys) if not re.search(rf"\b{name}\b", text)] == []
