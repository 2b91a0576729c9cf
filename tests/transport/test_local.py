"""Streams of a child's output: what becomes of its group, and of its descriptors."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import time

import psutil

from gpumon import ending
from gpumon.transport.local import ChildStream
from gpumon.transport.openssh import _OpensshStream
from tests.support.waiting import HANGS_S, until


def test_a_stream_that_was_closed_reads_nothing_of_another():
    """What the child left behind still holds its standard error, and writes to it later."""
    left = "(sleep 0.5; echo late >&2; sleep 1)"
    stream = ChildStream(["setsid", "sh", "-c", f"setsid sh -c '{left}' & exit 0"])
    stream.close()
    del stream
    gc.collect()
    pipes = [os.pipe() for _ in range(6)]
    time.sleep(1.0)  # a thread that still read from one of these numbers would wait in it now
    for begin, end in pipes:
        os.set_blocking(begin, False)
        os.write(end, b"mine")
        time.sleep(0.05)
        assert os.read(begin, 9) == b"mine"
        os.close(begin)
        os.close(end)


def test_what_ssh_left_in_its_group_ends_with_it():
    stream = _OpensshStream(["sh", "-c", "sleep 77 & echo $!; exit 0"])
    left = psutil.Process(int(os.read(stream._out, 99)))
    leader = psutil.Process(stream._child.pid)
    until(lambda: leader.status() == "zombie", "the leader's end")
    stream.close()
    until(lambda: not left.is_running() or left.status() == "zombie", "the end of what it left")


#: ends in order when its input does, and says so
ORDERLY = "trap 'echo killed >>{0}' TERM; echo $$; cat >/dev/null; echo in order >>{0}"


def _stop(child):
    """Once it waits for its input: before, it may stand in vfork."""
    until(lambda: [each.name() for each in child.children()] == ["cat"])
    os.killpg(child.pid, signal.SIGSTOP)
    until(lambda: child.status() == psutil.STATUS_STOPPED)


def test_a_stopped_child_ends_in_order_with_its_stream(tmp_path):
    said = tmp_path / "said"
    stream = ChildStream(["sh", "-c", ORDERLY.format(said)], patience_s=HANGS_S)
    child = psutil.Process(int(os.read(stream._out, 99)))
    _stop(child)
    stream.close()
    assert said.read_text() == "in order\n"
    assert not child.is_running()


def test_a_stopped_child_ends_after_a_program_that_did_not_wait_for_it(tmp_path):
    said = tmp_path / "said"
    stream = ChildStream(["sh", "-c", ORDERLY.format(said)])
    child = psutil.Process(int(os.read(stream._out, 99)))
    _stop(child)
    known = f"{child.pid}:{ending._start_ticks(child.pid)}"
    stream._child.stdin.close()
    subprocess.run(["sh", "-c", ending._PATIENTLY, "gpumon", known], check=True)
    assert said.read_text() == "in order\n"
    stream.close()
