"""Which runs replay, compare and report are about; the list of runs as text and JSON."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from gpumon import cli
from gpumon.errors import EXIT_INTERRUPTED, EXIT_NOT_FOUND, EXIT_USAGE
from gpumon.services import library
from tests.cli.test_compare import START, record, run
from tests.support.users import as_nobody


@pytest.fixture
def state(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "jobs" / "local" / "node"


@pytest.fixture
def recorded(state):
    """Three runs outside of any job, by their IDs, the oldest first."""
    state.mkdir(parents=True)
    ids = ["gpu01-20261101T100000", "gpu01-20261102T100000", "gpu02-20261103T100000"]
    for n, (id, busy) in enumerate(zip(ids, (10, 50, 90))):
        header, *samples = run(busy, seconds=20)
        later = [item._replace(time=item.time + 3600 * n) for item in samples]
        record(state / f"{id}.gpumon", [header._replace(job=None, time=START + 3600 * n), *later])
    return ids


@pytest.fixture
def on_a_terminal(monkeypatch):
    """As if there was one; the answers to the lists are what is put into the returned one."""
    answers, asked = [], []

    def choose(title, columns, choices, theme):
        asked.append((title, [choice.id for choice in choices]))
        return answers.pop(0)

    for where in ("gpumon.terminal", "gpumon.services.library"):
        monkeypatch.setattr(f"{where}.can_show_screen", lambda: "")
    monkeypatch.setattr("gpumon.tui.dialogs.choice.choose", choose)
    answers_and_asked = answers, asked
    return answers_and_asked


def test_the_list_names_each_run_and_where_they_are(recorded, state, capsys):
    assert cli.main(["runs"]) == 0
    head, *rows, blank, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "WHAT", "WHERE", "START", "LENGTH", "SIZE", "STATE"]
    assert [row.split()[0] for row in rows] == recorded[::-1]
    assert "1 × A100-SXM4-80GB" in rows[0]
    assert blank == ""
    assert total.startswith("3 runs, ")
    assert cli.main(["runs", "--json"]) == 0
    newest = json.loads(capsys.readouterr().out)["runs"][0]
    assert (newest["id"], newest["job"], newest["gpus"]) == (recorded[-1], None, 1)
    assert newest["paths"] == [str(state / f"{recorded[-1]}.gpumon")]


def test_the_newest_runs(recorded, capsys):
    assert cli.main(["compare", "--last", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [body[each]["run"] for each in "ab"] == recorded[1:]
    assert cli.main(["report", "--last", "--format", "json"]) == 0
    newest = json.loads(capsys.readouterr().out)
    assert round(newest["job"]["start"] - START) == 7200


@pytest.mark.parametrize("command", ["report", "export --to json --table device", "compare --json"])
def test_an_id_of_the_list_names_the_run(recorded, capsys, command):
    words = command.split()
    names = recorded[:2] if words[0] == "compare" else recorded[:1]
    assert cli.main([words[0], *names, *words[1:]]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ("replay", EXIT_USAGE, "name a run ('gpumon runs' lists them), or use 'gpumon replay --l"),
        ("compare", EXIT_USAGE, "name two runs ('gpumon runs' lists them), or use 'gpumon comp"),
        ("compare x", EXIT_USAGE, "name two runs"),
        ("compare x y z", EXIT_USAGE, "3 runs were named; compare two at a time"),
        ("replay x --last", EXIT_USAGE, "name a run, or give --last"),
        ("report", EXIT_USAGE, "name a JOBID, a recording's FILE, --last, or"),
    ],
)
def test_what_is_missing_is_named(recorded, capsys, args, code, words):
    assert cli.main(args.split()) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("args", ["replay --last", "report --last", "compare --last", "replay"])
def test_without_recordings(state, capsys, args):
    assert cli.main(args.split()) == EXIT_NOT_FOUND
    assert "there are no recordings in" in capsys.readouterr().err


def test_one_run_is_not_two(recorded, state, capsys):
    for id in recorded[1:]:
        (state / f"{id}.gpumon").unlink()
    assert cli.main(["compare", "--last"]) == EXIT_NOT_FOUND
    assert f"only one recorded run, {recorded[0]}" in capsys.readouterr().err


def test_a_terminal_gets_the_list(recorded, on_a_terminal, capsys):
    answers, asked = on_a_terminal
    answers += recorded[:2]
    assert cli.main(["compare", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [body[each]["run"] for each in "ab"] == recorded[:2]
    (first, of_first), (second, of_second) = asked
    assert (first, of_first) == ("gpumon compare: which run?", recorded[::-1])
    assert (second, of_second) == (f"gpumon compare: {recorded[0]}, and which?", recorded[:0:-1])
    answers.append(recorded[1])
    assert cli.main(["report"]) == 0
    assert asked[-1][0] == "gpumon report: which run?"


@pytest.mark.parametrize("command", ["replay", "report", "compare"])
def test_who_leaves_the_list_gets_nothing(recorded, on_a_terminal, capsys, command):
    on_a_terminal[0].append(None)
    assert cli.main([command]) == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""


def test_what_is_deleted_is_gone(recorded, state):
    runs = library.RecordedRuns(is_ascii=False)
    found, unread = runs.find()
    runs.remove(found[0])
    assert not unread
    assert [run.id for run in runs.find()[0]] == recorded[1::-1]


def as_nobody_sees(*words):
    """Exit code and output of the command to somebody who may not do what only root may."""
    with tempfile.TemporaryFile("w+") as said:

        def work():
            with redirect_stdout(said), redirect_stderr(said):
                code = cli.main([*words])
            said.flush()
            return code

        code = as_nobody(work)
        said.seek(0)
        return code, said.read()


@pytest.mark.parametrize("mode", [0o000, 0o400])
@pytest.mark.parametrize("closed", ["jobs", "jobs/local", "jobs/local/node"])
def test_a_folder_that_may_not_be_read_is_named_with_the_reason(
    tmp_path, monkeypatch, request, recorded, closed, mode
):
    with tempfile.TemporaryDirectory() as reached:  # pytest's own are for their owner alone
        place = Path(reached) / "state"
        shutil.copytree(tmp_path, place)
        for path in (Path(reached), *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        place.chmod(0o755)
        monkeypatch.setenv("GPUMON_STATE", str(place))
        code, said = as_nobody_sees("runs")
        assert (code, said.count("ended")) == (0, 3), said
        (place / closed).chmod(mode)
        try:
            code, said = as_nobody_sees("runs")
            assert f"cannot read {place / closed}" in said
            assert "Permission denied" in said
            assert f"No recordings in {place} can be read." in said
            code, said = as_nobody_sees("compare", recorded[0], "4711")
            assert code == EXIT_NOT_FOUND, said
            assert f"cannot read {place / closed}" in said
        finally:
            (place / closed).chmod(0o755)
