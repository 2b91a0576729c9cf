"""The exporter, scraped by a real server: what its dashboard and `gpumon report` find there."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.prometheus.access import Access
from gpumon.prometheus.client import Server
from gpumon.prometheus.fetch import Fetch, Wanted
from gpumon.site.read import shipped_families
from tests.exporter.conftest import Exporter
from tests.exporter.conftest import Start as StartExporter
from tests.prometheus.conftest import Start
from tests.prometheus.conftest import prometheus as prometheus  # a fixture
from tests.support.waiting import until

_DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "gpumon.json"
#: of what no job, no throttling and no lost GPU there is nothing
_ABSENT = ("gpumon_job_", "gpumon_gpu_throttled", "gpumon_gpu_up", "jobid")


def _scraping(exporter: Exporter, prometheus: Start) -> Server:
    target = exporter.url.partition("://")[2]
    config = (
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: gpumon\n"
        f"  static_configs: [{{targets: ['{target}'], labels: {{node: gpu01}}}}]\n"
    )
    server = Server(Access(prometheus(config=config)))
    until(lambda: len(_points(server, "gpumon_gpu_sm_active_ratio")) >= 5, "no scrapes")
    return server


def _points(server: Server, metric: str) -> list[float]:
    found = server.series(f"{metric}[5m]", time.time())
    return list(found[0].values) if found else []


def test_every_query_of_the_dashboard_finds_something(
    exporter: StartExporter, prometheus: Start
) -> None:
    server = _scraping(exporter("h200", "--processes"), prometheus)
    body = json.loads(_DASHBOARD.read_text())
    queries = [target["expr"] for panel in body["panels"] for target in panel.get("targets", ())]
    assert len(queries) >= 20
    for query in queries:
        asked = re.sub(r"\$(jobid|instance|user)", ".*", query)
        found = server.series(asked, time.time())  # raises where it is no PromQL
        assert found or any(name in query for name in _ABSENT), query


def test_the_series_are_read_back_as_they_were(exporter: StartExporter, prometheus: Start) -> None:
    server = _scraping(exporter("h200"), prometheus)
    (family,) = [each for each in shipped_families() if each.name == "gpumon"]
    by_node = replace(family, node=("node",), job="")
    now = time.time()
    wanted = Wanted(("1",), ("gpu01",), now - 60, now, {"gpu01": 8})
    (node,) = Fetch(server, [by_node], wanted).run()
    gpu = node.gpus[0]
    assert gpu.name == "NVIDIA H200"
    assert gpu.facts["mem_total_bytes"] > 100e9
    assert all(0 <= value <= 100 for value in gpu.columns["busy_percent"].values())
    assert max(gpu.columns["sm_clock_mhz"].values()) == pytest.approx(1905, abs=200)


pytestmark = pytest.mark.slow
