"""Whatever gpumon starts where a job runs is what the kernel ends first, and only that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpumon.collect.guest import NAME
from gpumon.transport.payload import agent_argv, payload
from tests.e2e.program import GPUMON, environment
from tests.support.waiting import until

SCORE = "/proc/self/oom_score_adj"
#: what root may set; a machine whose root may not leaves it as it was
BEFORE = (-998, 0, 300, 1000)


def score(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_from_its_first_line_the_shell_and_all_that_it_becomes(tmp_path):
    """Seen by a `python3` that the shell looks at, and of the agent that is loaded."""
    seen = tmp_path / "seen"
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\nread -r x <{SCORE}; echo $x >>{seen}; exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    env = environment(PATH=f"{tmp_path}:/usr/bin:/bin")
    with subprocess.Popen(
        agent_argv("--heartbeat"), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        until(lambda: score(process.pid) == 1000, "the first line")
        process.stdin.write(payload())
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline()
        (agent,) = psutil.Process(process.pid).children()  # the shell waits for it
        assert agent.name() == NAME
        assert score(agent.pid) == score(process.pid) == 1000
        process.stdin.close()
        process.stdout.read()
    assert set(seen.read_text().split()) == {"1000"}


@pytest.mark.parametrize("before", BEFORE)
def test_a_recorded_command_has_the_score_that_it_would_have(tmp_path, before):
    """The recorder has its own; the process around the command ends no sooner than that does."""
    words = " ".join([*GPUMON, "record", "--quiet", "-o", f"{tmp_path}/x.gpumon"])
    inner = f"read -r x <{SCORE}; echo $x $PPID; read -r y"
    script = (
        f"{{ echo {before} >{SCORE}; }} 2>/dev/null; read -r x <{SCORE}; echo $x; "
        f"exec {words} -- sh -c '{inner}'"
    )
    with subprocess.Popen(
        ["sh", "-c", script], text=True, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        inherited = int(process.stdout.readline())
        told, around = map(int, process.stdout.readline().split())
        assert told == inherited
        assert around == process.pid
        assert score(around) == inherited
        assert psutil.Process(around).name() == NAME

        def recorder():
            beside = psutil.Process(around).children()
            return [each.pid for each in beside if each.name() == NAME]

        (pid,) = until(recorder, "the recorder")
        until(lambda: score(pid) == 1000)
        process.communicate("\n")
        assert process.returncode == 0


@pytest.mark.parametrize("before", BEFORE)
def test_a_command_at_the_jobs_end_has_the_score_that_gpumon_was_started_with(tmp_path, before):
    program = (
        "import os, sys\n"
        "from gpumon.collect.guest import be_guest\n"
        "from gpumon.services.on_end import OnEnd\n"
        "from gpumon.slurm.job import Job\n"
        f"print(open({SCORE!r}).read().strip(), flush=True)\n"
        "be_guest()\n"
        f"on_end = OnEnd('cp {SCORE} ' + sys.argv[1], on_screen=True)\n"
        "on_end.run(Job(id='7', state='COMPLETED'))\n"
        "on_end._process.wait()\n"
        f"print(open({SCORE!r}).read().strip(), open(sys.argv[1]).read().strip())\n"
    )
    script = f'{{ echo {before} >{SCORE}; }} 2>/dev/null; exec {sys.executable} -c "$0" $1'
    done = subprocess.run(
        ["sh", "-c", script, program, tmp_path / "score"],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert done.stderr == ""
    first, ours, theirs = done.stdout.split()
    assert (ours, theirs) == ("1000", first)


@pytest.mark.parametrize("arguments", [["-m", "gpumon.collect"], ["-m", "gpumon", "collect"]])
def test_the_agent_of_this_machine(arguments):
    with subprocess.Popen(
        [sys.executable, *arguments, "--until-eof"], env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline()
        assert (score(process.pid), psutil.Process(process.pid).name()) == (1000, NAME)
        assert process.stdin is not None
        process.stdin.close()
        process.stdout.read()
