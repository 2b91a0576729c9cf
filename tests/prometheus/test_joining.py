"""Reports of jobs that a recording covers in part, with a server that scraped the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from gpumon.analysis.rundata import RunData
from gpumon.cli import main
from gpumon.frames.builder import built
from gpumon.frames.frame import Frame
from gpumon.model.sample import Device, Header, Sample
from gpumon.recording.reader import Stretch
from gpumon.report.build import build
from gpumon.report.model import Report
from gpumon.services.joining import filled, joined, lacks_much, same_devices
from gpumon.services.prometheus import Measured
from gpumon.services.runs import open_last, run_of
from gpumon.slurm.job import Job
from tests.cli.test_report_attempts import START, record
from tests.frames.framing import FramedRecorder
from tests.prometheus import exporters
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Point, openmetrics
from tests.prometheus.test_families import _history, _job
from tests.simulator import judge, observe
from tests.simulator.job import SimJob, View
from tests.slurm.made import MadeSlurm, row

#: seed 5: an idle GPU; one out of memory; four GPUs
_IDLE, _LEAK, _FOUR = 1, 5, 9


def _recorded(sim: SimJob, folder: Path, view: View, nodes: range) -> str:
    """The folder of its recordings."""
    part = replace(sim, view=view)
    for node in nodes:
        recorder = FramedRecorder(
            str(folder / f"{observe.node_name(sim, node)}.gpumon"), clock=lambda: 0.0
        )
        for item in observe.stream(part, node):
            recorder.header(item) if isinstance(item, Header) else recorder.add(item)
        recorder.close("done")
    return str(folder)


def _filled(path: str, url: str, job: Job) -> tuple[RunData, RunData, Report]:
    """Of the recording alone, of both, and the report of both."""
    site = judge.site()
    streams = open_last(path)
    alone = run_of(streams).data(job, site)
    found = Measured(site, url).streams(job)
    both = joined(streams, found.streams, len(job.nodes)).data(job, site)
    both.coverage.interval_s = 30.0
    return alone, both, build(both)


@pytest.mark.parametrize(
    "view",
    [View(since=3000), View(until=3000), View(gaps=[(2000, 5000)])],
    ids=["attached late", "ended early", "gap"],
)
@pytest.mark.parametrize("number", [_IDLE, _LEAK, _FOUR])
def test_scrapes_fill_what_a_recording_lacks(
    prometheus: Start, tmp_path: Path, number: int, view: View
) -> None:
    sim, job = _job(number)
    path = _recorded(sim, tmp_path, view, range(len(job.nodes)))
    url = prometheus(_history(sim, job, exporters.princeton))
    alone, both, report = _filled(path, url, job)
    whole = judge.report_of(sim)
    assert lacks_much(alone)
    assert not lacks_much(both)
    assert both.coverage.covered_percent == pytest.approx(100, abs=2)
    assert both.coverage.gaps == 0
    assert both.bin_s >= 30  # no rule looks closer than the scrapes are
    assert len(report.devices) == len(whole.devices)
    for ours, theirs in zip(report.devices, whole.devices):
        assert (ours.node, ours.device.index, ours.device.uuid) == (
            theirs.node,
            theirs.device.index,
            theirs.device.uuid,
        )
        assert ours.busy_mean == pytest.approx(theirs.busy_mean, abs=4)
        assert ours.mem_peak_bytes == pytest.approx(theirs.mem_peak_bytes, rel=0.05)
    assert report.used.cpu_core_s == pytest.approx(whole.used.cpu_core_s, rel=0.05)
    assert report.used.mem.peak == pytest.approx(whole.used.mem.peak, rel=0.05)


@cache
def _several() -> tuple[SimJob, Job]:
    """The first of seed 5 on more than one node."""
    for number in range(200):
        sim, job = _job(number)
        if isinstance(sim, SimJob) and len(job.nodes) > 1 and job.gpus:
            return sim, job
    raise AssertionError("none has several nodes")


def test_nodes_that_were_not_recorded_come_from_the_server(
    prometheus: Start, tmp_path: Path
) -> None:
    sim, job = _several()
    path = _recorded(sim, tmp_path, View(), range(1))
    alone, both, report = _filled(path, prometheus(_history(sim, job, exporters.princeton)), job)
    assert alone.coverage.unrecorded == tuple(job.nodes[1:])
    assert both.coverage.unrecorded == ()
    assert {each.node for each in report.devices} == set(job.nodes)


def test_a_whole_recording_is_read_alone(tmp_path: Path) -> None:
    sim, job = _job(_IDLE)
    path = _recorded(sim, tmp_path, View(), range(len(job.nodes)))
    assert not lacks_much(run_of(open_last(path)).data(job, judge.site()))


@pytest.mark.parametrize("as_frames", [True, False])
def test_no_scrape_lies_between_recorded_samples(as_frames: bool) -> None:
    header = Header("n", "", 0.0, 0.0, 1.0, "")
    told = header._replace(interval_s=30.0)
    parts = [[header, *_samples(range(100, 160))], [header, *_samples([300, 301])]]
    scrapes: list[Header | Sample] = [told, *_samples(range(10, 400, 30))]

    def stretch(items: list[Header | Sample]) -> Stretch:
        opened = partial(next, built(items)) if as_frames else lambda: None
        return Stretch(items[1].time, items[-1].time, partial(iter, items), opened)

    whole = Frame()
    for frame in filled(map(stretch, parts), scrapes):
        assert whole.samples.last <= frame.samples.first
        whole.extend(frame)
    assert whole.samples.seen == 60 + 2 + len([10, 40, 70, 160, 190, 220, 250, 280, 310, 340, 370])
    assert whole.samples.gaps == 0


def _samples(times: Iterable[int]) -> Iterator[Sample]:
    for at in times:
        yield Sample(float(at), float(at), {"host": {"": {"cpu_percent": 1.0}}})


def test_devices_are_the_same_by_uuid_else_in_order() -> None:
    own = [Device(0, 0, "GPU-b", "", 0, None, {}), Device(1, 1, "GPU-a", "", 1, None, {})]
    named = [Device(0, 3, "GPU-a", "", None, None, {}), Device(1, 5, "GPU-b", "", None, None, {})]
    assert same_devices(named, own) == {0: 1, 1: 0}
    nameless = [each._replace(uuid="") for each in named]
    assert same_devices(nameless, own) == {0: 0, 1: 1}
    assert same_devices(nameless[:1], own) == {}


def test_the_report_names_both_sources(
    prometheus: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    record(tmp_path / "jobs" / "alpha" / "4711" / "gpu01-1.gpumon", 1800, 3600)
    past = row(4711, state="COMPLETED", start=f"{START:.0f}", end=f"{START + 3600:.0f}",
               elapsedraw="3600", alloctres="cpu=8,gres/gpu=1,mem=64G,node=1")  # fmt: skip
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    monkeypatch.setattr("gpumon.services.reports.runner_for", lambda login: MadeSlurm(past=(past,)))

    def report(*more: str) -> str:
        assert main(["report", "4711", *more]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    url = prometheus(openmetrics(_scrapes()))
    said = " ".join(report("--prometheus", url).split())
    assert "Source: recording, 1 s, 50.0 % of the run; Prometheus, 30 s, another 50.0 %" in said
    told = json.loads(report("--prometheus", url, "--format", "json"))
    assert told["coverage"]["source"] == "recording"
    assert told["coverage"]["interval_s"] == 30
    assert [each["source"] for each in told["coverage"]["parts"]] == ["recording", "prometheus"]
    assert told["devices"][0]["busy_mean"] == pytest.approx(45, abs=2)
    said = " ".join(report("--prometheus", "http://127.0.0.1:9").split())
    assert "Source: recording, 1 s, 50.0 % of the run" in said
    assert "127.0.0.1:9 cannot be reached" in said


def _scrapes() -> Iterator[tuple[float, Point]]:
    """An hour of an idle GPU."""
    for second in range(0, 3600, 30):
        at = START + second
        gpu = {"instance": "gpu01:9445", "jobid": "4711", "ordinal": "0", "uuid": "GPU-gpu01"}
        job = {"instance": "gpu01:9306", "jobid": "4711", "step": "", "task": ""}
        yield at, Point("nvidia_gpu_duty_cycle", gpu, 0.0)
        yield at, Point("nvidia_gpu_memory_used_bytes", gpu, 5.0 * 2**30)
        yield at, Point("cgroup_cpu_total_seconds", job, 2.0 * second)
