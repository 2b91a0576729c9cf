"""What goes wrong while the dashboard runs, and how it ends: it says so, and leaves nothing."""

import os
import re
import shlex
import signal
import sys
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.program import GPUMON
from tests.e2e.screen import Dashboard, agent, agents, wait_gone
from tests.nvml.emulator import Emulated, Scenario

pytestmark = pytest.mark.terminal

LARGE = (160, 50)
HUNG = 3  # this device's number


def moving(hangs_from_s=None):
    """Eight boards whose values change every second; one may hang for good."""
    scenario = Scenario().gpu("0-7", model="A100-SXM4-80GB", mem_mib=20000)
    for gpu in range(8):
        scenario.gpu(gpu, util=f"ramp 0 100 {20 + gpu}")
    if hangs_from_s is not None:
        scenario.rule("nvml[DG]*", hang=True, gpu=HUNG, from_s=hangs_from_s)
    return scenario


class Shell:
    """The dashboard as a shell starts it, to see how it leaves the terminal to the shell."""

    def __init__(self, dashboard, folder):
        self.dashboard = dashboard
        self._folder = folder

    @property
    def process(self):
        (found,) = psutil.Process(self.dashboard.pid).children()
        return found

    @property
    def terminal(self):
        """Alternate screen, cursor, mouse: is each on?"""
        return self.dashboard.ask("#{alternate_on} #{cursor_flag} #{mouse_any_flag}")

    def sane_after(self, code):
        """Wait for the shell's turn: the exit code is this, the terminal is as it was before."""
        shown = self.dashboard.wait_for("the shell again")
        said = {name: (self._folder / name).read_text() for name in ("before", "after", "code")}
        assert said["code"].strip() == str(code)
        assert said["after"] == said["before"] != ""
        assert self.terminal == "0 1 0"
        return shown


@contextmanager
def shell(gpus, folder, program=GPUMON, **more):
    script = folder / "session.sh"
    script.write_text(
        f"cd {folder}; stty -g > before; {shlex.join(program)}; echo $? > code\n"
        "stty -g > after; echo the shell again; exec cat\n"
    )
    with Dashboard(gpus, program=["sh", str(script)], size=(120, 40), **more) as dashboard:
        started = Shell(dashboard, folder)
        dashboard.wait_until(lambda shown: re.search(r"GPU 0 busy \d+ %", shown))
        assert started.terminal == "1 0 1"
        yield started


# -- devices and the agent ----------------------------------------------------------------------


def test_one_hung_device_stops_neither_the_others_nor_quitting(tmp_path):
    with Emulated(moving(hangs_from_s=6)) as gpus, Dashboard(gpus, size=LARGE) as dashboard:
        ages, others = [], {}

        def watched(shown):
            silent = re.search(rf"GPU {HUNG} ● hung for (\d+) s", shown)
            if silent:
                ages.append(int(silent[1]))
                for number, busy in re.findall(r"GPU (\d) busy (\d+) %", shown):
                    others.setdefault(int(number), set()).add(busy)
            return len(set(ages)) >= 5

        shown = dashboard.wait_until(watched)
        assert f"GPU {HUNG} hung: the driver has not responded for {ages[-1]} s" in shown
        assert ages == sorted(ages)
        assert sorted(others) == [number for number in range(8) if number != HUNG]
        assert all(len(values) >= 3 for values in others.values()), others
        running = [psutil.Process(dashboard.pid), *agents(dashboard.pid)]
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0  # the device never answers: nobody waited for it
        wait_gone(running)


def test_a_killed_agent_is_said_and_started_again():
    with Emulated(moving()) as gpus, Dashboard(gpus, size=LARGE) as dashboard:
        for wait_s in (1, 2):
            dashboard.wait_until(lambda shown: re.search(r"GPU 7 busy \d+ % mem", shown))
            first = agent(dashboard.pid)
            first.kill()
            dashboard.wait_for_all([f"collectors ended (exit -9); trying again in {wait_s} s"])
            dashboard.wait_until(lambda shown: "trying again" not in shown)
            assert agent(dashboard.pid) != first
        seen = set()

        def moves(shown):
            seen.update(re.findall(r"GPU 7 busy (\d+) % mem", shown))
            return len(seen) >= 3

        dashboard.wait_until(moves)


def test_values_age_while_the_agent_is_stopped():
    with Emulated(moving()) as gpus, Dashboard(gpus, size=LARGE) as dashboard:
        dashboard.wait_until(lambda shown: re.search(r"GPU 7 busy \d+ % mem", shown))
        stopped = agent(dashboard.pid)
        stopped.suspend()
        ages, of_values = [], []

        def aged(shown):
            ages.extend(map(int, re.findall(r"no sample for (\d+) s", shown)))
            of_values.extend(map(int, re.findall(r"GPU 7 busy \d+ % \((\d+) s old\)", shown)))
            return len(set(ages)) >= 3 and len(set(of_values)) >= 3

        dashboard.wait_until(aged)
        assert ages == sorted(ages)
        assert of_values == sorted(of_values)
        stopped.resume()
        shown = dashboard.wait_until(lambda shown: re.search(r"GPU 7 busy \d+ % mem", shown))
        assert "no sample" not in shown
        stopped.suspend()
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0
        wait_gone([stopped])


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("C-c", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_every_end_leaves_the_terminal_as_it_was(tmp_path, end, code):
    with Emulated("a100x4") as gpus, shell(gpus, tmp_path) as started:
        process = started.process
        running = [process, agent(process.pid)]
        if isinstance(end, str):
            started.dashboard.keys(end)
        else:
            os.kill(process.pid, end)
        started.sane_after(code)
        wait_gone(running)


def test_it_draws_on_standard_output(tmp_path):
    """Standard error may be a log, or closed."""
    log = tmp_path / "log"
    for where in (f"2>{log}", "2>&-"):
        program = ("sh", "-c", f'exec "$@" {where}', "-", *GPUMON)
        with Emulated("a100x4") as gpus, Dashboard(gpus, program=program) as dashboard:
            dashboard.wait_for_all(["GPU 0", "GPU 3"])
            dashboard.keys("q")
            assert dashboard.wait_exit() == 0
    assert log.read_text() == ""


@pytest.mark.parametrize("hangs_from_s", [None, 0])
def test_a_closed_terminal_ends_everything(hangs_from_s):
    with Emulated(moving(hangs_from_s)) as gpus, Dashboard(gpus) as dashboard:
        dashboard.wait_until(lambda shown: re.search(r"GPU 7 \d+ % \d+ %", shown))
        running = [psutil.Process(dashboard.pid), agent(dashboard.pid)]
        dashboard.kill()
        wait_gone(running)


def test_a_killed_dashboard_leaves_no_agent():
    with Emulated(moving()) as gpus, Dashboard(gpus) as dashboard:
        dashboard.wait_until(lambda shown: re.search(r"GPU 7 \d+ % \d+ %", shown))
        running = [psutil.Process(dashboard.pid), agent(dashboard.pid)]
        os.kill(dashboard.pid, signal.SIGKILL)
        wait_gone(running[1:])


# A program that does what gpumon does until a file appears; then a widget is broken.
BROKEN = """
import os, sys
from gpumon.cli import main
from gpumon.tui.lines import Lines

def broken(whole):
    def part(self, *arguments):
        if os.path.exists({flag!r}):
            raise ValueError("no such\\ncell \\x1b[31m")
        return whole(self, *arguments)
    return part

setattr(Lines, {where!r}, broken(getattr(Lines, {where!r})))
sys.exit(main([]))
"""


@pytest.mark.parametrize("where", ["show", "runs"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_crash_in_a_widget_is_one_line_and_a_sane_terminal(tmp_path, where, debug):
    flag = tmp_path / "break"
    program = tmp_path / "broken.py"
    program.write_text(BROKEN.format(flag=str(flag), where=where))
    more = {"GPUMON_DEBUG": "1"} if debug else {}
    with (
        Emulated("a100x4") as gpus,
        shell(gpus, tmp_path, [sys.executable, str(program)], **more) as started,
    ):
        running = agents(started.process.pid)
        flag.touch()
        lines = started.sane_after(code=1).strip().splitlines()
        wait_gone(running)
        if debug:
            assert "Traceback (most recent call last):" in lines
            assert any(str(program) in line for line in lines)
            return
        said = (
            "gpumon: the screen failed (ValueError: no such cell ?[31m); GPUMON_DEBUG=1 shows where"
        )
        assert lines == [said, "the shell again"]
