"""Signals reach what gpumon started, and nothing that has its number by now."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import psutil

from gpumon import ending


@contextlib.contextmanager
def leader(*argv: str):
    """A process that leads a group of its own."""
    child = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_a_group_is_signalled_while_its_leader_is_not_waited_for():
    with leader("sleep", "60") as child:
        assert ending.signal_group(child.pid, 0)
        assert ending.signal_group(child.pid, signal.SIGTERM)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert ending.signal_group(child.pid, 0)  # a zombie keeps its number
        assert child.wait() == -signal.SIGTERM


def test_no_group_is_signalled_once_its_leader_was_waited_for():
    """What is left in the group shows what another process of that number would get."""
    with leader("sh", "-c", "sleep 60 & echo $!") as child:
        assert child.stdout is not None
        left = psutil.Process(int(child.stdout.readline()))
        child.wait()
        assert not ending.signal_group(child.pid, signal.SIGKILL)
        assert left.is_running()
        assert left.status() != psutil.STATUS_ZOMBIE


def test_who_may_take_its_time_is_ended_later_unless_its_number_is_anothers():
    with leader("sleep", "60") as child, leader("sleep", "60") as other:
        known = f"{child.pid}:{ending._start_ticks(child.pid)}"
        mistaken = f"{other.pid}:{int(ending._start_ticks(other.pid)) - 1}"
        subprocess.run(["sh", "-c", ending._PATIENTLY, "gpumon", mistaken, known], check=True)
        assert child.wait(10) == -signal.SIGTERM
        assert other.poll() is None
