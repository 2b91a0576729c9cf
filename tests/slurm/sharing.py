"""One cluster for a run of pytest, whatever number of workers it has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.slurm.cluster import FOLDER, TESTBED, Cluster

_CANNOT = 77  # cluster.sh's exit code
_NUMBERS = range(80, 100)


class Unable(Exception):
    """This machine cannot run a cluster; the text says why."""


@contextlib.contextmanager
def shared_cluster(run: str) -> Iterator[Cluster]:
    """The cluster of this run of pytest: made by the first worker, removed by the last.

    A number is free when nobody holds its lock. What a killed run left behind under one is removed
    before anything is made. `run` is the same text in all workers of a run.
    """
    if os.geteuid() != 0:
        raise Unable("needs root")
    FOLDER.mkdir(exist_ok=True)
    FOLDER.chmod(0o755)  # whatever the umask: the cluster's users pass through
    for number in _NUMBERS:
        if (FOLDER / str(number)).is_dir():
            _Lease(number).clean()
    for number in _NUMBERS:
        lease = _Lease(number)
        if lease.take(run):
            try:
                yield Cluster(number)
            finally:
                lease.give_back()
            return
    raise Unable("every cluster number is in use")


class _Lease:
    """A share in the cluster of one number. The lock file says whose it is, by `run`."""

    def __init__(self, number: int) -> None:
        path = FOLDER / f"{number}.lock"
        self._env = {**os.environ, "GPUMON_CLUSTER_ID": str(number)}
        self._gate = path.with_suffix(".gate").open("w")  # held while it is made or removed
        self._use = path.open("a+")

    def take(self, run: str) -> bool:
        with self._closed_gate():
            if _locked(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB):  # nobody's
                self._testbed("up")
                self._use.truncate(0)
                self._use.write(run)
                self._use.flush()
                fcntl.flock(self._use, fcntl.LOCK_SH)
                return True
            self._use.seek(0)
            return self._use.read() == run and _locked(self._use, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def clean(self) -> None:
        """Remove a cluster that nobody uses."""
        with self._closed_gate():
            if _locked(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._testbed("down")
            self._use.close()

    def give_back(self) -> None:
        with self._closed_gate():
            if _locked(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._testbed("down")
            self._use.close()

    @contextlib.contextmanager
    def _closed_gate(self) -> Iterator[None]:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _testbed(self, command: str) -> None:
        done = subprocess.run(
            [TESTBED, command], env=self._env, capture_output=True, text=True, timeout=900
        )
        if done.returncode == _CANNOT:
            raise Unable(done.stderr.strip())
        assert done.returncode == 0, done.stderr


def _locked(file: Any, how: int) -> bool:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    return True
