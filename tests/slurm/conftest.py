"""The fixture `cluster`."""

from __future__ import annotations

import os

import pytest

from tests.slurm.sharing import Unable, shared_cluster


@pytest.fixture(scope="session")
def cluster(request):
    """A real Slurm cluster; see `tests/slurm/cluster.py`."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid {os.getpid()}"
    try:
        with shared_cluster(run) as cluster:
            yield cluster
    except Unable as why:
        pytest.skip(f"no Slurm cluster: {why}")
