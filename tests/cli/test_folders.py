"""A folder with recordings of several jobs: the list on a terminal, else what to type."""

from __future__ import annotations

import json

import pytest

from gpumon import cli
from gpumon.errors import EXIT_INTERRUPTED, EXIT_USAGE
from tests.cli.test_compare import START, record, run
from tests.cli.test_runs import on_a_terminal, state

__all__ = ["on_a_terminal", "state"]  # fixtures


@pytest.fixture
def folder(tmp_path, state):
    """Two jobs in one folder, the second of two nodes, as copied from elsewhere."""
    folder = tmp_path / "my copies"
    folder.mkdir()
    for number, (job, node) in enumerate([("1", "n1"), ("2", "n1"), ("2", "n2")]):
        header, *samples = run(30 * number, seconds=20, node=node, name=f"train-{job}")
        header = header._replace(job=header.job._replace(id=job), time=START + number)
        samples = [each._replace(time=each.time + number) for each in samples]
        record(folder / f"{number}.gpumon", [header, *samples])
    return str(folder)


@pytest.mark.parametrize("command", ["replay", "report", "compare"])
def test_without_a_terminal_the_error_names_the_jobs_and_what_to_type(folder, capsys, command):
    assert cli.main([command, folder]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert f"{folder} has recordings of several jobs: 2 (train-2), 1 (train-1); " in err
    assert f"name one: gpumon {command} '{folder}/2'" in err


def test_export_names_one_too(folder, capsys):
    assert cli.main(["export", folder, "--to", "json", "--table", "device"]) == EXIT_USAGE
    assert f"name one of them: {folder}/1" in capsys.readouterr().err


def test_what_the_error_says_works(folder, capsys):
    assert cli.main(["report", f"{folder}/2", "--format", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["job"]["id"] == "2"
    assert [each["node"] for each in body["devices"]] == ["n1", "n2"]


def test_on_a_terminal_one_is_chosen(folder, on_a_terminal, capsys):
    answers, asked = on_a_terminal
    answers.append(f"{folder}/1")
    assert cli.main(["report", folder, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["id"] == "1"
    assert asked == [(f"gpumon report: which run in {folder}?", [f"{folder}/2", f"{folder}/1"])]


def test_a_replay_plays_the_one_that_was_chosen(folder, on_a_terminal, monkeypatch):
    on_a_terminal[0].append(f"{folder}/2")
    played = []
    monkeypatch.setattr(
        "gpumon.services.replay.play", lambda source, *_, **__: played.append(source) or 0
    )
    assert cli.main(["replay", folder]) == 0
    assert [sum(len(track.paths) for track in source.tracks) for source in played] == [2]


@pytest.mark.parametrize("named", [1, 2])
def test_two_are_compared_from_one_folder(folder, on_a_terminal, capsys, named):
    answers, asked = on_a_terminal
    answers += [f"{folder}/1", f"{folder}/2"]
    assert cli.main(["compare", *[folder] * named, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [body[each]["run"] for each in "ab"] == [f"{folder}/1", f"{folder}/2"]
    assert asked[1][1] == [f"{folder}/2"]  # not the one that was chosen already


@pytest.mark.parametrize("command", ["replay", "report", "compare"])
def test_who_leaves_the_list_gets_nothing(folder, on_a_terminal, capsys, command):
    on_a_terminal[0].append(None)
    assert cli.main([command, folder]) == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""
