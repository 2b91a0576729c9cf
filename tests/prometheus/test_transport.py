"""A running job, and a replay of one that was not recorded, by what a server scraped."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gpumon.errors import NotFoundError
from gpumon.model.reading import number
from gpumon.model.sample import Header, Sample
from gpumon.prometheus.access import Access
from gpumon.prometheus.client import Server
from gpumon.prometheus.transport import PrometheusTransport
from gpumon.services import playing
from gpumon.services.prometheus import replayed
from gpumon.site.read import shipped_families
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.sources.replay import ReplaySource
from gpumon.transport.stream import Failure
from gpumon.wire.decoder import Decoder
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Point, openmetrics


def _job(nodes: tuple[str, ...] = ("gpu01",)) -> Job:
    start = time.time() - 600
    shares = tuple(NodeAllocation(node, gpus=1) for node in nodes)
    return Job(raw_id="4711", id="4711", state="RUNNING", start=start, nodes=nodes,
               allocations=shares)  # fmt: skip


def _history(job: Job, until: float = 0.0) -> str:
    """Scrapes every 15 s to a moment before now."""
    points = []
    assert job.start is not None
    at = job.start
    while at < time.time() - until:
        for node in job.nodes:
            labels = {"instance": f"{node}:9445", "jobid": "4711", "uuid": f"GPU-{node}",
                      "ordinal": "0", "name": "NVIDIA A100"}  # fmt: skip
            points.append((at, Point("nvidia_gpu_duty_cycle", labels, (at - job.start) % 100)))
        at += 15
    return openmetrics(points)


def _transport(url: str, job: Job) -> PrometheusTransport:
    return PrometheusTransport(job, Server(Access(url)), shipped_families(), None)


def test_the_newest_scrape_comes_as_an_agents_lines(prometheus: Start) -> None:
    job = _job()
    stream = _transport(prometheus(_history(job)), job).open("gpu01", [])
    decoder = Decoder()
    header = decoder.line(stream.read())
    sample = decoder.line(stream.read())
    stream.close()
    assert isinstance(header, Header)
    assert isinstance(sample, Sample)
    assert header.interval_s == 15
    assert [device.uuid for device in header.devices] == ["GPU-gpu01"]
    assert header.job is not None
    assert header.job.id == "4711"
    busy = number(sample.rows["device"][0]["busy_percent"])
    assert busy is not None
    assert sample.time == header.time > time.time() - 60
    assert stream.read() == b""


def test_a_node_that_is_not_scraped_is_refused(prometheus: Start) -> None:
    job = _job()
    known = prometheus(_history(job))
    with pytest.raises(Failure, match="no samples of the job on this node"):
        _transport(known, replace(job, nodes=("gpu01", "gpu02"))).open("gpu02", [])


def test_a_server_that_is_down_is_a_reason_for_the_next_transport() -> None:
    with pytest.raises(Failure, match="cannot be reached"):
        _transport("http://127.0.0.1:9", _job()).open("gpu01", [])


def test_a_scrape_that_ended_long_ago_is_not_live(prometheus: Start) -> None:
    job = _job()
    with pytest.raises(Failure, match="no samples of this job"):
        _transport(prometheus(_history(job, until=400)), job).open("gpu01", [])


def test_a_replay_of_what_was_scraped(prometheus: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(_job(("gpu01", "gpu02")), state="COMPLETED", end=time.time())
    url = prometheus(_history(job))
    tracks = replayed(job, url)
    assert [track.name for track in tracks] == ["gpu01", "gpu02"]
    items = list(tracks[0].items(None))
    assert isinstance(items[0], Header)
    assert len(items) == pytest.approx(1 + 600 / 15, abs=2)
    later = list(tracks[0].items((job.start or 0) + 300))
    assert isinstance(later[0], Header)
    assert all(each.time >= (job.start or 0) + 300 for each in later[1:])
    source = ReplaySource(tracks)
    assert source.end == pytest.approx(time.time(), abs=60)
    # without a server the word is only what is not recorded
    monkeypatch.delenv("GPUMON_PROMETHEUS_URL", raising=False)
    with pytest.raises(NotFoundError):
        playing.open_replay("99999")
