"""The fixture `cluster`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.sharing import Unable, shared_cluster


@pytest.fixture(scope="session")
def cluster(request):
    """A real Slurm cluster; see `tests/slurm/cluster.py`."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    try:
        with shared_cluster(run) as cluster:
            yield cluster
    except Unable as why:
        pytest.skip(f"no Slurm cluster: {why}")


#: of each log of the cluster, as much as a failed test shows
_SHOWN_BYTES = 4000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what the cluster's daemons said last, and what is queued."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for path in sorted((cluster.folder / "log").glob("slurm*.log")):
            said = path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")
            report.sections.append((path.name, said))
        queue = cluster.run("ctl", ["squeue", "-a"], "root", check=False)
        report.sections.append(("squeue", queue.stdout + queue.stderr))
    return report
