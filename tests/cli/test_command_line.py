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
from gpumon.cli.parser import COMMANDS, columns
from gpumon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_FOUND, EXIT_USAGE
from tests.e2e.program import GPUMON, environment, gpumon
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S

PROGRAM = shlex.join(GPUMON)


def complains(done, code):
    """One line on stderr and nothing else; returns the line without its head."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("gpumon: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("gpumon: ").rstrip("\n")


@pytest.mark.parametrize("told", ["", "100", "x", "0", "-3"])
def test_help_is_as_wide_as_the_terminal(monkeypatch, told):
    monkeypatch.setenv("COLUMNS", told)
    assert columns() == shutil.get_terminal_size().columns


# -- wrong usage -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nonsense"], "unknown command 'nonsense'; see 'gpumon --help'"),
        (["fit", "--param", "7B"], "unrecognized arguments: --param; did you mean '--params'?"),
        (["once", "--nope"], "unrecognized arguments: --nope; see 'gpumon once --help'"),
        (["once", "--jso"], "unrecognized arguments: --jso; did you mean '--json'? see"),
        (["recrod"], "unknown command 'recrod'; did you mean 'record'? see 'gpumon --help'"),
        (["--thme", "dark"], "unrecognized arguments: --thme; did you mean '--theme'? see"),
        (["attach", "1", "--via", "opnssh"], "; did you mean 'openssh'? see 'gpumon attach"),
        (["once", "more"], "unrecognized arguments: more"),
        (["--vers"], "unrecognized arguments: --vers"),  # no abbreviations: they would bind us
        (["--interval"], "expected one argument; see 'gpumon --help'"),
        (["--interval", "0"], "invalid interval '0': expected 0.1 to 3600 seconds"),
        (["--interval", "fast"], "invalid interval 'fast': expected 0.1 to 3600 seconds"),
        (["--interval", "nan"], "expected 0.1 to 3600 seconds"),
        (["collect", "--interval", "0.09"], "expected 0.1 to 3600 seconds"),
        (["collect", "--interval", "3601"], "see 'gpumon collect --help'"),
        (["collect", "--count", "0"], "invalid count '0': expected 1, 2, 3, …"),
        (["collect", "--count", "2.5"], "expected 1, 2, 3, …"),
        (["demo", "--speed", "0"], "invalid speed '0': expected 0.1 to 1000"),
        (["demo", "--speed", "x"], "expected 0.1 to 1000"),
        (["collect", "--job", "4711", "--gpus", "-1"], "-1 is not a valid number of GPUs"),
        (["attach", "4711", "--login", "-oProxyCommand=x"], "expected one argument; see"),
        (["attach", "4711", "--login", "a b"], "'a b' is not a valid host name"),
        (["report", "4711", "--login", "$(id)"], "'$(id)' is not a valid host name"),
        (["replay", "12ab"], "'12ab' is neither a file nor a job ID"),
        (["export", "12ab", "--to", "csv"], "'gpumon runs' lists the recordings"),
        (
            ["--theme", "pink"],
            "unknown theme 'pink'; choose from: dark, light, colour-blind, ansi, mono",
        ),
        (["completion"], "the following arguments are required: shell"),
        (["completion", "ksh"], "no completion for 'ksh'; choose from: bash, zsh, fish; see"),
        (["once", "--\x1b[2J\n\x9b1m"], "--?[2J ?1m"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(args, words):
    line = complains(gpumon(*args), EXIT_USAGE)
    assert words in line
    assert any(hint in line for hint in ("--help'", "choose from", "expected ", "lists"))


def test_an_unknown_demo_is_not_found():
    assert "unknown demo 'none'" in complains(gpumon("demo", "none"), EXIT_NOT_FOUND)


def test_help_names_every_command_and_exit_code():
    done = gpumon("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command, text in COMMANDS.items():
        assert re.search(rf"^ +{command} +{re.escape(text[:24])}", done.stdout, re.M)
        assert gpumon(command, "--help").returncode == 0
    for code in ("0 success", "1 failure", "2 invalid", "4 no such", "130 interrupted"):
        assert code in done.stdout


def test_version():
    done = gpumon("--version")
    assert (done.returncode, done.stdout) == (0, f"gpumon {package.__version__}\n")


# -- pipes and files ---------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["once", "once --json", "doctor", "completion bash", "--help"])
@pytest.mark.slow
def test_a_reader_that_has_enough(command):
    pipeline = f"{PROGRAM} {command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(
        ["bash", "-c", pipeline], env=environment(), capture_output=True, text=True, timeout=HANGS_S
    )
    assert (done.stdout, done.stderr) == ("0 0\n", "")


@pytest.mark.slow
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
from gpumon.cli import main
from gpumon.services import once
def take(**_): raise ValueError("no\\nsuch \\x1b[2J thing")
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
    assert (
        done.stderr == "gpumon: the output is not a terminal; printing one sample as text instead\n"
    )
    assert re.search(r"^host CPU \d+ % of \d+ cores \| memory ", done.stdout, re.M)


@pytest.mark.terminal
@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_on_a_dumb_terminal_it_prints_one_sample(term):
    shown = in_terminal(GPUMON, environment(TERM=term))
    assert f"gpumon: TERM is {term or 'not set'}; printing one sample as text instead" in shown
    assert re.search(r"^host CPU \d+ %", shown, re.M)
    assert "\x1b" not in shown


@pytest.mark.terminal
def test_with_other_input_than_a_terminal_it_prints_one_sample():
    shown = in_terminal(GPUMON, environment(TERM="xterm"), stdin=subprocess.DEVNULL)
    assert "gpumon: the input is not a terminal; printing one sample as text instead" in shown


@pytest.mark.terminal
@pytest.mark.parametrize("command", [(), ("demo",)], ids=["live", "demo"])
def test_a_mistake_in_the_site_file_is_said_before_the_screen_opens(tmp_path, command):
    path = tmp_path / "site.toml"
    path.write_text('[thresholds]\n"low-busy.warning_percnt" = 5\n')
    env = environment(TERM="xterm", GPUMON_SITE=str(path), XDG_STATE_HOME=str(tmp_path))
    shown = in_terminal([*GPUMON, *command], env, code=2)
    assert shown == (
        f"gpumon: {path}: thresholds.low-busy.warning_percnt: unknown; "
        "did you mean 'low-busy.warning_percent'?\n"
    )


def in_terminal(command, env, code=0, **options):
    """All that a program shows on a terminal of its own."""
    master, terminal = pty.openpty()
    settings = {"stdin": terminal, "stdout": terminal, "stderr": terminal, **options}
    with subprocess.Popen(command, env=env, start_new_session=True, **settings) as running:
        os.close(terminal)
        shown = read_terminal(master, lambda _: False)
        assert running.wait(HANGS_S) == code
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
        ("mismatch", "absent", "reboot the node"),
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
    assert checks["terminal"] == {
        "name": "terminal",
        "result": "absent",  # a pipe is no trouble
        "detail": "not checked: the output is not a terminal",
    }
