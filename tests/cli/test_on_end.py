"""`--on-end CMD`: what runs, with which environment, and what is said of it."""

import sys
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.errors import UsageError
from gpumon.services.on_end import OnEnd, variables
from gpumon.slurm.job import ExitCode, Job
from tests.support.waiting import until

JOB = Job(id="4711_3", state="FAILED", exit_code=ExitCode(3), elapsed_s=61.4)
#: writes the environment, where it stands and its descriptors, then fails as asked
PROGRAM = """\
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("GPUMON_")}
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    told["tty"] = True
except OSError:
    told["tty"] = False
told["leader"] = os.getsid(0) == os.getpid()
told["argv"] = sys.argv[2:]
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(told) + "\\n")
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "told me.py"
    path.write_text(PROGRAM)
    return path


def command(program, out, *words):
    return f"{sys.executable} '{program}' {out} {' '.join(words)}"


def lines(path: Path):
    import json

    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_it_runs_once_without_a_shell_and_without_a_terminal(program, tmp_path, capfd):
    out = tmp_path / "out"
    on_end = OnEnd(command(program, out, "'$HOME; *'"), on_screen=True)
    on_end.run(JOB)
    on_end.run(JOB)
    until(lambda: lines(out), "it ran")
    assert on_end.finish(0) == 0
    (told,) = lines(out)
    assert told["argv"] == ["$HOME; *"]
    assert (told["tty"], told["leader"]) == (False, True)
    assert told["GPUMON_JOB_ID"] == "4711_3"
    assert told["GPUMON_JOB_STATE"] == "FAILED"
    assert told["GPUMON_EXIT_CODE"] == "3"
    assert told["GPUMON_ELAPSED_S"] == "61"
    assert capfd.readouterr() == ("", "")


def test_values_are_clean_and_empty_where_slurm_says_nothing():
    hostile = Job(id="47\x1b11", state="FAI\nLED", exit_code=ExitCode(0, 9))
    assert variables(hostile) == {
        "GPUMON_JOB_ID": "47?11", "GPUMON_JOB_STATE": "FAI LED", "GPUMON_EXIT_CODE": "137",
        "GPUMON_ELAPSED_S": "",
    }  # fmt: skip
    assert variables(Job())["GPUMON_EXIT_CODE"] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sh -c 'echo \"bad \x07news\" >&2; exit 7'", "sh failed with exit code 7: bad ?news"),
        ("sh -c 'kill -9 $$'", "sh was killed by signal 9"),
    ],
)  # fmt: skip
def test_its_failure_is_one_line(words, said, capfd):
    on_end = OnEnd(words, on_screen=True)
    on_end.run(JOB)
    assert on_end.finish(0) == 1
    assert capfd.readouterr().err == f"gpumon: --on-end: {said}\n"


def test_one_that_goes_on_is_not_waited_for(tmp_path, capfd):
    go, out = tmp_path / "go", tmp_path / "late"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; touch {out}"
    on_end = OnEnd(f"sh -c '{waits}'", on_screen=True)
    on_end.run(JOB)
    assert on_end.finish(0) == 0
    assert not out.exists()
    go.touch()
    until(out.exists, "it ended by itself")


def test_left_before_the_end_it_says_that_it_did_not_run(capfd):
    assert OnEnd("true", on_screen=True).finish(130) == 130
    assert "true did not run: gpumon quit before the job ended" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [("'", "No closing quotation"), ("", "is empty"), ("nothing-like-it x", "not found")],
)
def test_what_cannot_run_is_refused_at_once(words, said):
    with pytest.raises(UsageError, match=said):
        OnEnd(words, on_screen=True)


@pytest.mark.parametrize(
    ("argv", "environ", "said"),
    [
        (["attach", "4711", "--on-end", "true"], {}, "needs a terminal"),
        (["--on-end", "true"], {"SLURM_JOB_ID": ""}, "needs a job"),
        (["--on-end", "true", "--node"], {"SLURM_JOB_ID": "1"}, "needs a job"),
        (
            ["--on-end", "true"],
            {"SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n"},
            "ends together with it",
        ),
        (["attach", "4711", "--notify", "loud"], {}, "unknown notify 'loud'"),
    ],
)
def test_usage(argv, environ, said, monkeypatch, capfd):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(argv) == 2
    assert said in capfd.readouterr().err
