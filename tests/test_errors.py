"""What errors say of a system that lacks something."""

from __future__ import annotations

import errno
import os
import resource
import subprocess

import pytest

from gpumon import errors
from gpumon.cli import main
from gpumon.slurm.runner import LocalRunner, SlurmError

NO_THREAD = RuntimeError("can't start new thread")
NO_FORK = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.fixture
def limits(monkeypatch):
    """Of processes and of address space, as they seem to be."""
    found = {resource.RLIMIT_NPROC: 30, resource.RLIMIT_AS: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (found[which], 99))
    return found


@pytest.mark.parametrize("error", [NO_THREAD, NO_FORK])
def test_a_limit_of_processes_is_named(limits, error):
    assert errors.shortage(error) == (
        "cannot start another process or thread; 'ulimit -u' allows you 30: raise it, or end other "
        "programs"
    )
    limits[resource.RLIMIT_NPROC] = resource.RLIM_INFINITY
    assert "pids.max" in errors.shortage(error)


def test_with_little_address_space_a_thread_lacks_memory(limits):
    limits[resource.RLIMIT_AS] = 1 << 28
    assert errors.shortage(NO_THREAD) == errors.NO_MEMORY
    assert "ulimit -u" in errors.shortage(NO_FORK)
    assert errors.shortage(MemoryError()) == errors.NO_MEMORY


def test_other_errors_lack_nothing():
    full = BlockingIOError(errno.EAGAIN, "a full pipe", 7)
    for error in (full, RuntimeError("else"), OSError(errno.ENOENT, "x"), ValueError("x")):
        assert errors.shortage(error) == ""


@pytest.mark.parametrize("error", [NO_THREAD, NO_FORK])
def test_a_command_that_can_start_nothing_ends_with_one_line(limits, error, monkeypatch, capsys):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr("gpumon.services.once.take", fails)
    assert main(["once"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("gpumon: cannot start another process or thread; 'ulimit -u'")
    assert line.count("\n") == 1


def test_a_command_of_slurm_that_cannot_be_started(limits, monkeypatch):
    def fails(*args, **kwargs):
        raise NO_FORK

    monkeypatch.setattr(subprocess, "Popen", fails)
    with pytest.raises(SlurmError, match=r"cannot run true: cannot start another .* 'ulimit -u'"):
        LocalRunner().run(["true"], env={}, timeout_s=1)
