"""The command line: exit codes, one-line errors, pipes and signals, completion."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpumon as package
from gpumon.cli import COMMANDS
from gpumon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_FOUND, EXIT_USAGE
from tests.e2e.program import GPUMON, HANGS_S, environment, gpumon
from tests.nvml.emulator import Emulated

PROGRAM = shlex.join(GPUMON)


def complains(done, code):
    """One line on stderr and nothing else; returns the line without its head."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("gpumon: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("gpumon: ").rstrip("\n")


# -- wrong usage -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nonsense"], "invalid choice: 'nonsense' (choose from"),
        (["once", "--nope"], "unrecognized arguments: --nope; see 'gpumon --help'"),
        (["once", "more"], "unrecognized arguments: more"),
        (["--vers"], "unrecognized arguments: --vers"),  # no abbreviations: they would bind us
        (["--interval"], "expected one argument; see 'gpumon --help'"),
        (["--interval", "0"], "'0' is no interval: give seconds from 0.1 to 3600"),
        (["--interval", "fast"], "'fast' is no interval: give seconds from 0.1 to 3600"),
        (["--interval", "nan"], "give seconds from 0.1 to 3600"),
        (["collect", "--interval", "0.09"], "give seconds from 0.1 to 3600"),
        (["collect", "--interval", "3601"], "see 'gpumon collect --help'"),
        (["collect", "--count", "0"], "'0' is no count: give a whole number from 1 on"),
        (["collect", "--count", "2.5"], "give a whole number from 1 on"),
        (["demo", "--speed", "0"], "'0' is no speed: give a number from 0.1 to 1000"),
        (["demo", "--speed", "x"], "give a number from 0.1 to 1000"),
        (["collect", "--job", "4711", "--gpus", "-1"], "-1 is no number of GPUs; give"),
        (["attach", "4711", "--login", "-oProxyCommand=x"], "expected one argument; see"),
        (["attach", "4711", "--login", "a b"], "'a b' is not the name of a host"),
        (["report", "4711", "--login", "$(id)"], "'$(id)' is not the name of a host"),
        (["replay", "12ab"], "'12ab' is neither a file nor a job id"),
        (["export", "12ab", "--to", "csv"], "`gpumon runs` lists what there is"),
        (["--theme", "pink"], "no theme 'pink'; there are dark, light, colour-blind, ansi, mono"),
        (["completion"], "the following arguments are required: shell"),
        (["completion", "tcsh"], "invalid choice: 'tcsh' (choose from"),
        (["once", "--\x1b[2J\n\x9b1m"], "--?[2J ?1m"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(args, words):
    line = complains(gpumon(*args), EXIT_USAGE)
    assert words in line
    assert any(hint in line for hint in ("--help'", "there are", "give ", "lists"))


def test_an_unknown_demo_is_not_found():
    assert "no demo 'none'" in complains(gpumon("demo", "none"), EXIT_NOT_FOUND)


def test_help_names_every_command_and_exit_code():
    done = gpumon("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command, text in COMMANDS.items():
        assert re.search(rf"^ +{command} +{re.escape(text[:24])}", done.stdout, re.M)
        assert gpumon(command, "--help").returncode == 0
    for code in ("0 done", "1 could not", "2 wrong", "4 no such", "130 interrupted"):
        assert code in done.stdout


def test_version():
    done = gpumon("--version")
    assert (done.returncode, done.stdout) == (0, f"gpumon {package.__version__}\n")


# -- pipes and files ---------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["once", "once --json", "doctor", "completion bash", "--help"])
def test_a_reader_that_has_enough(command):
    pipeline = f"{PROGRAM} {command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(
        ["bash", "-c", pipeline], env=environment(), capture_output=True, text=True, timeout=HANGS_S
    )
    assert (done.stdout, done.stderr) == ("0 0\n", "")


@pytest.mark.parametrize("command", ["once", "collect", "doctor", "completion zsh", "--version"])
def test_a_full_disk(command):
    with open("/dev/full", "w") as full:
        done = gpumon(*command.split(), capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == EXIT_FAILED
    assert done.stderr == "gpumon: output: No space left on device\n"


def test_a_closed_output():
    done = subprocess.run(
        ["bash", "-c", f"{PROGRAM} once >&-"], env=environment(), capture_output=True, text=True
    )
    assert "standard output is closed" in complains(done, EXIT_FAILED)


@pytest.mark.parametrize("args", [["once"], ["once", "--json"], ["doctor"]])
def test_ctrl_c_is_130_without_a_word(args):
    with Emulated("hang_init") as gpus:
        running = subprocess.Popen(
            [*GPUMON, *args],
            env=environment(gpus.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        folder = Path(gpus.env["FAKE_NVML_STATS"]).parent
        while not list(folder.glob("stats.*")):  # it waits for the driver now
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=HANGS_S)
    assert (running.returncode, out, err) == (EXIT_INTERRUPTED, b"", b"")


# -- mistakes of ours --------------------------------------------------------------------------
BROKEN = """
import sys
from gpumon.cli import main, once
def take(): raise ValueError("no\\nsuch \\x1b[2J thing")
once.take = take
sys.exit(main(["once"]))
"""


def test_a_mistake_of_ours_is_one_line_too():
    command = [sys.executable, "-c", BROKEN]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    line = complains(done, EXIT_FAILED)
    assert line == (
        "internal error; set GPUMON_DEBUG=1 for a traceback (ValueError: no such ?[2J thing)"
    )


@pytest.mark.parametrize("command", [[sys.executable, "-c", BROKEN], [*GPUMON, "nonsense"]])
def test_debug_shows_the_traceback(command):
    env = environment(GPUMON_DEBUG="1")
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr


# -- where there is no screen ------------------------------------------------------------------
def test_without_a_terminal_it_prints_one_sample():
    done = gpumon()
    assert done.returncode == 0
    assert done.stderr == "gpumon: the output is not a terminal; one sample as text instead\n"
    assert re.search(r"^host CPU \d+ % of \d+ cores \| memory ", done.stdout, re.M)


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_on_a_dumb_terminal_it_prints_one_sample(term):
    shown = in_terminal(GPUMON, environment(TERM=term))
    assert f"gpumon: TERM is {term or 'not set'}; one sample as text instead" in shown
    assert re.search(r"^host CPU \d+ %", shown, re.M)
    assert "\x1b" not in shown


def test_with_other_input_than_a_terminal_it_prints_one_sample():
    shown = in_terminal(GPUMON, environment(TERM="xterm"), stdin=subprocess.DEVNULL)
    assert "gpumon: the input is not a terminal; one sample as text instead" in shown


def in_terminal(command, env, **options):
    """All that a program shows on a terminal of its own."""
    master, terminal = pty.openpty()
    settings = {"stdin": terminal, "stdout": terminal, "stderr": terminal, **options}
    with subprocess.Popen(command, env=env, start_new_session=True, **settings) as running:
        os.close(terminal)
        shown = read_terminal(master, lambda _: False)
        assert running.wait(HANGS_S) == 0
    os.close(master)
    return shown


def read_terminal(master, enough):
    """What comes until there is enough of it, or the other end is closed."""
    data = b""
    while not enough(data):
        ready, _, _ = select.select([master], [], [], HANGS_S)
        assert ready, data
        try:
            more = os.read(master, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            more = b""
        if not more:
            break
        data += more
    return data.decode().replace("\r\n", "\n")


# -- doctor ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("scenario", "driver", "words"),
    [
        ("a100x4", "ok", "580.159.03, CUDA 13.0"),
        ("no_driver", "absent", "No NVIDIA driver"),
        ("mismatch", "absent", "needs a reboot"),
    ],
)
def test_doctor(scenario, driver, words):
    with Emulated(scenario) as gpus:
        env = environment(gpus.env)
        text, told = gpumon("doctor", env=env), gpumon("doctor", "--json", env=env)
    assert (text.returncode, told.returncode, text.stderr + told.stderr) == (0, 0, "")
    body = json.loads(told.stdout)
    checks = {check["name"]: check for check in body["checks"]}
    assert body["version"] == 1
    assert {check["result"] for check in body["checks"]} <= {"ok", "limited", "absent"}
    assert checks["NVIDIA driver"]["result"] == driver
    assert words in checks["NVIDIA driver"]["detail"]
    assert words in text.stdout
    assert ("GPU 3" in checks) == (scenario == "a100x4")
    assert checks["collector nvml"]["result"] == "ok"


# -- completion --------------------------------------------------------------------------------
def script(shell):
    done = gpumon("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def words_of_help():
    """command ("" the top) -> its flags and commands, as its help shows them."""
    words = {"": set(COMMANDS)}
    for command in ("", *COMMANDS):
        text = gpumon(*([command] if command else []), "--help").stdout
        words.setdefault(command, set()).update(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M))
        for choices in re.findall(r"\{([\w,-]+)\}", text):
            words[command] |= set(choices.split(","))
    return words


def completed(typed):
    """What bash offers for a line."""
    program = (
        f'{script("bash")}\nCOMP_WORDS=({typed} "$1"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n'
        '_gpumon; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program, "bash", ""], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_bash_offers_what_the_help_names():
    subprocess.run(["bash", "-n"], input=script("bash"), text=True, check=True)
    for command, words in words_of_help().items():
        offered = completed(f"gpumon {command}")
        assert words <= offered
        assert all(word.startswith("--") or word in words for word in offered)
    assert "--json" in completed("gpumon --theme dark --interval 2 once")  # values are no commands
    assert completed("gpumon --theme dark") >= set(COMMANDS)


def test_bash_completes_at_the_keyboard(tmp_path):
    """A real shell with its line editor: Tab, Enter."""
    (tmp_path / "rc").write_text(
        f"PS1='> '\ngpumon() {{ echo \"ran:$*:\"; }}\n{script('bash')}bind 'set bell-style none'\n"
    )
    master, terminal = pty.openpty()
    command = ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"]
    env = environment(TERM="dumb")
    settings = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(command, env=env, start_new_session=True, **settings) as shell:
        os.close(terminal)
        read_terminal(master, lambda data: data.endswith(b"> "))
        os.write(master, b"gpumon doc\t --j\t\n")
        shown = read_terminal(master, lambda data: b"ran:" in data and data.endswith(b"> "))
        os.write(master, b"exit\n")
        assert shell.wait(HANGS_S) == 0
    os.close(master)
    assert "ran:doctor --json:" in shown


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
