"""Completion: the scripts for each shell, and the jobs that they ask gpumon for."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import time

import pytest

from gpumon import demos
from gpumon.cli.parser import COMMANDS
from gpumon.config import THEMES
from gpumon.services import completing
from tests.cli.test_command_line import read_terminal
from tests.e2e.program import environment, gpumon
from tests.recording import made
from tests.recording.recorded import record
from tests.support.waiting import HANGS_S


def script(shell):
    done = gpumon("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def words_of_help():
    """command ("" the top) -> its flags, commands and values, as its help shows them."""
    words = {"": set(COMMANDS)}
    for command in ("", *COMMANDS):
        text = gpumon(*([command] if command else []), "--help").stdout
        words.setdefault(command, set()).update(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M))
        for choices in re.findall(r"^ +\{([\w,-]+)\}", text, re.M):
            words[command] |= set(choices.split(","))
    words["demo"] |= set(demos.names())
    return words


@pytest.fixture(scope="module")
def bash():
    return script("bash")


@pytest.fixture
def shell(tmp_path, bash):
    """Completes a line in bash, in a folder with two files; gpumon there offers 4711 and 4712."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gpumon"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\necho 4711\necho 4712_3\n')
    program.chmod(0o755)
    for name in ("run one.gpumon", "results.csv"):
        (tmp_path / name).touch()
    env = environment(PATH=f"{program.parent}:{os.environ['PATH']}")

    def complete(*typed):
        code = (
            f'{bash}\nCOMP_WORDS=("$@"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n'
            '_gpumon; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", code, "bash", *typed], cwd=tmp_path, env=env, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return set(done.stdout.splitlines()) - {""}

    return complete


# -- bash --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_bash_offers_what_the_help_names(bash, shell):
    subprocess.run(["bash", "-n"], input=bash, text=True, check=True)
    for command, words in words_of_help().items():
        offered = shell("gpumon", *([command] if command else []), "")
        assert words <= offered
        jobs = {"4711", "4712_3", "run one.gpumon", "results.csv"}
        assert all(
            word.startswith("--") or word in words | jobs | {"bin", "asked"} for word in offered
        )
    once = shell("gpumon", "--theme", "dark", "--interval", "2", "once", "")
    assert "--json" in once  # values are no commands
    assert shell("gpumon", "--theme", "dark", "") >= set(COMMANDS)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["report", "--format", ""], {"text", "md", "html", "json", "csv"}),
        (["report", "--format", "=", "h"], {"html"}),
        (["report", "--format", "="], {"text", "md", "html", "json", "csv"}),
        (["--theme", ""], set(THEMES)),
        (["replay", "--theme", "l"], {"light"}),
        (["export", "-o", "r"], {"run one.gpumon", "results.csv"}),
        (["report", "--output", "res"], {"results.csv"}),
        (["attach", "--via", "s"], {"ssh", "srun"}),
        (["attach", "--nodes", ""], set()),
        (["demo", "f"], {"finetune"}),
        (["attach", "4"], {"4711", "4712_3"}),
        (["report", "47"], {"4711", "4712_3"}),
        (["compare", "4711", "r"], {"run one.gpumon", "results.csv"}),
        (["jobs", "4"], set()),
    ],
)
def test_what_bash_offers_behind_a_word(shell, typed, offered):
    assert shell("gpumon", *typed) == offered


def test_each_command_asks_for_its_jobs_and_only_where_one_may_stand(shell, tmp_path):
    for command in ("attach", "report", "replay", "export", "compare"):
        shell("gpumon", command, "")
    shell("gpumon", "attach", "--via", "")
    shell("gpumon", "attach", "--no")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "__complete bash running", "__complete bash known",
        *["__complete bash recorded"] * 3,
    ]  # fmt: skip


def test_a_gpumon_that_is_not_there_is_no_error(shell):
    assert "--last" in shell("/nowhere/gpumon", "attach", "")


@pytest.mark.terminal
def test_bash_completes_at_the_keyboard(tmp_path, bash):
    """A real shell with its line editor: Tab, Enter."""
    (tmp_path / "rc").write_text(
        f"PS1='> '\ngpumon() {{ echo \"ran:$*:\"; }}\n{bash}bind 'set bell-style none'\n"
    )
    master, terminal = pty.openpty()
    command = ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"]
    env = environment(TERM="dumb")
    with subprocess.Popen(
        command, env=env, start_new_session=True, stdin=terminal, stdout=terminal, stderr=terminal
    ) as shell:
        os.close(terminal)
        read_terminal(master, lambda data: data.endswith(b"> "))
        os.write(master, b"gpumon doc\t --j\t\n")
        shown = read_terminal(master, lambda data: b"ran:" in data and data.endswith(b"> "))
        os.write(master, b"exit\n")
        assert shell.wait(HANGS_S) == 0
    os.close(master)
    assert "ran:doctor --json:" in shown


# -- zsh and fish ------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_what_the_help_names(shell):
    text = script(shell)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)
    assert text.count("'") % 2 == 0  # a quote in a help text would break the script
    for command, words in words_of_help().items():
        for word in words:
            if shell == "fish":
                when = f"from {command}'" if command else "not __fish_seen_subcommand_from"
                option = f"-l {word[2:]} " if word.startswith("--") else f"-a {word} "
                assert any(when in line and option in line for line in text.splitlines())
            else:
                head = f"    {command or '*'}) entries=("
                (line,) = [line for line in text.splitlines() if line.startswith(head)]
                assert f"'{word}:" in line


def test_zsh_and_fish_ask_for_jobs_with_their_descriptions():
    zsh, fish = script("zsh"), script("fish")
    assert zsh.startswith("#compdef gpumon\n")  # else compinit does not take the file
    assert re.search(r"^    attach\) .* jobs=running files=no ;;", zsh, re.M)
    assert re.search(r"^    report\) .* jobs=known files=yes ;;", zsh, re.M)
    assert "report:--format) compadd -- text md html json csv; return ;;" in zsh
    assert re.search(r"export:-o\|export:--output.*\) _files; return ;;", zsh)
    when = "complete -c gpumon -n '__fish_seen_subcommand_from"
    assert f"{when} attach' -k -a '(command gpumon __complete fish running 2>/dev/null)'" in fish
    assert f"{when} report' -l format -x -a 'text md html json csv'" in fish
    assert f"{when} export' -l output -s o -r -F" in fish
    assert f"{when} replay' -F" in fish


# -- jobs --------------------------------------------------------------------------------------
ROWS = (
    "4711|4711|RUNNING|gpu|train",
    "4720_1|4720|RUNNING|gpu|sweep",
    "4720_[2-9]|4720|PENDING|gpu|sweep",
    "4700|4700|FAILED|gpu|old\x1b[2J|$(x)",
    "1;rm|1;rm|RUNNING|gpu|evil",
)


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """A squeue that prints these jobs and counts its calls; where recordings are, too."""
    state = tmp_path / "state"
    monkeypatch.setenv("GPUMON_STATE", str(state))
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    lines = "".join(f"echo '{row}' | sed 's/|/\t/g; s/^/'\"$mark\"'/'\n" for row in ROWS)
    begin = f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
    program.write_text(begin + f"for last; do :; done\nmark=${{last%%%*}}\n{lines}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_ones_own_jobs_with_what_they_are(squeue):
    assert completing.running() == [
        ("4711", "train, RUNNING, gpu"),
        ("4720", "sweep, an array, gpu"),
        ("4720_1", "sweep, RUNNING, gpu"),
    ]
    ids = [each.id for each in completing.known()]
    assert ids == ["4711", "4720", "4720_1", "4700"]
    about = dict(completing.known())["4700"]
    assert about.startswith("old?[2J")
    assert about.isprintable()


def test_slurm_is_asked_once_in_ten_seconds(squeue):
    for _ in range(3):
        completing.running()
        completing.known()
    assert len(calls(squeue)) == 1
    cache = squeue / "state" / "completing"
    os.utime(cache, (time.time() - 11,) * 2)
    completing.running()
    assert len(calls(squeue)) == 2
    assert cache.stat().st_mode & 0o777 == 0o600


def test_recorded_jobs_the_newest_first(squeue):
    jobs = squeue / "state" / "jobs" / "alpha"
    for n, name in enumerate(("12", "13_4", "node", "$(x)")):
        (jobs / name).mkdir(parents=True)
        os.utime(jobs / name, (1e9 + n, 1e9 + n))
    record(jobs / "12" / "n1.gpumon", made.samples(3))
    os.utime(jobs / "12", (1e9, 1e9))
    found = completing.recorded()
    assert [each.id for each in found] == ["13_4", "12"]
    assert found[0].about.startswith("recorded 09 Sep")
    assert "recorded 09 Sep" in found[1].about
    assert [each.id for each in completing.known()][-2:] == ["13_4", "12"]


def run(*words, **env):
    done = gpumon("__complete", *words, env=environment(**env))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_each_shell_gets_its_form(squeue):
    env = {"PATH": os.environ["PATH"], "GPUMON_STATE": os.environ["GPUMON_STATE"]}
    assert run("bash", "running", **env) == "4711\n4720\n4720_1\n"
    assert run("zsh", "running", **env).startswith("4711:train, RUNNING, gpu\n")
    assert run("fish", "running", **env).startswith("4711\ttrain, RUNNING, gpu\n")


@pytest.mark.parametrize("words", ["", "bash", "bash nothing", "bash __class__", "x x x"])
def test_nothing_that_is_wrong_is_said(words, tmp_path):
    assert run(*words.split(), GPUMON_STATE=str(tmp_path)) == ""


def test_a_slurm_that_hangs_and_a_folder_that_is_not_there(squeue, tmp_path, monkeypatch):
    (squeue / "bin" / "squeue").write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(completing, "_TIMEOUT_S", 0.1)
    assert completing.running() == []
    env = {"PATH": os.environ["PATH"], "GPUMON_STATE": "/proc/nowhere"}
    assert run("bash", "known", **env) == ""
