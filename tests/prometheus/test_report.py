"""`gpumon report` with a server: one job, a thousand, and servers that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.cli import main
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Point, openmetrics
from tests.slurm.made import NOW, row

_STEP_S = 30


def _dump(folder: Path, ids: range, **more: str) -> str:
    """A saved dump of jobs that ran for half an hour on two GPUs of gpu01."""
    rows = [row(id, state="COMPLETED", **more) for id in ids]
    batch = [{**each, "jobid": f"{each['jobid']}.batch", "jobidraw": each["jobid"] + ".batch",
              "maxrss": "8G", "ntasks": "1"} for each in rows]  # fmt: skip
    names = list(dict.fromkeys(name for each in batch for name in each))
    lines = ["|".join(names)]
    for job, step in zip(rows, batch):
        lines += ["|".join(each.get(name, "") for name in names) for each in (job, step)]
    path = folder / "dump.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _scrapes(ids: range, busy: Callable[[int, int], float]) -> Iterator[tuple[float, Point]]:
    """Two GPUs of each job, as busy as `busy(id, gpu)` says."""
    for second in range(0, 1800, _STEP_S):
        at = NOW - 3600 + second
        for id in ids:
            job = {"instance": "gpu01:9306", "jobid": str(id), "step": "", "task": ""}
            yield at, Point("cgroup_cpu_total_seconds", job, 2.0 * second)
            yield at, Point("cgroup_memory_rss_bytes", job, 8.0 * 2**30)
            yield at, Point("cgroup_memory_total_bytes", job, 64.0 * 2**30)
            for gpu in 0, 1:
                labels = {
                    "instance": "gpu01:9445", "jobid": str(id), "ordinal": str(gpu),
                    "uuid": f"GPU-{gpu}", "name": "NVIDIA A100-SXM4-80GB",
                }  # fmt: skip
                yield at, Point("nvidia_gpu_duty_cycle", labels, busy(id, gpu))
                yield at, Point("nvidia_gpu_memory_used_bytes", labels, 10.0 * 2**30)
                yield at, Point("nvidia_gpu_memory_total_bytes", labels, 80.0 * 2**30)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*args: str) -> tuple[int, str, str]:
        code = main(["report", *args])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


Report = Callable[..., tuple[int, str, str]]


def test_a_job_without_a_recording(prometheus: Start, report: Report, tmp_path: Path) -> None:
    url = prometheus(openmetrics(_scrapes(range(4711, 4712), lambda _, gpu: 90.0 * gpu)))
    code, page, err = report("4711", "--from-sacct", _dump(tmp_path, range(4711, 4712)),
                             "--prometheus", url)  # fmt: skip
    assert (code, err) == (0, "")
    assert "Source: Prometheus, 30 s, 100.0 % of the run" in page
    assert "gpu01:0" in page
    _, body, _ = report("4711", "--from-sacct", _dump(tmp_path, range(4711, 4712)),
                        "--prometheus", url, "--format", "json")  # fmt: skip
    told = json.loads(body)
    assert told["coverage"]["source"] == "prometheus"
    assert [each["busy_mean"] for each in told["devices"]] == [0, 90]


def test_a_thousand_jobs_take_a_few_queries(
    prometheus: Start, report: Report, tmp_path: Path, queries: list[str]
) -> None:
    ids = range(1000, 2000)
    url = prometheus(openmetrics(_scrapes(ids, lambda id, gpu: 0.0 if id == 1234 else 95.0)))
    dump = _dump(tmp_path, ids)
    code, table, err = report("--from-sacct", dump, "--prometheus", url)
    assert (code, err) == (0, "")
    assert len(queries) <= 20  # of two blocks of 500 jobs
    assert table.splitlines()[-1]
    assert table.splitlines()[1].startswith("1234 ")  # most waste first
    assert "GPU use was not measured" not in table
    _, body, _ = report("--from-sacct", dump, "--prometheus", url, "--format", "json")
    told = json.loads(body)
    (idle,) = [each for each in told if each["job"]["id"] == "1234"]
    assert idle["waste_gpu_hours"] == pytest.approx(1.0, rel=0.02)
    assert idle["coverage"]["source"] == "prometheus"
    assert sum(bool(each["waste_gpu_hours"]) for each in told) == 1


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of servers."""
    from gpumon.prometheus.client import Server

    asked: list[str] = []
    series = Server.series

    def noted(self: Server, query: str, at: float) -> object:
        asked.append(query)
        return series(self, query, at)

    monkeypatch.setattr(Server, "series", noted)
    return asked


@pytest.mark.parametrize("count", [1, 30])
def test_a_server_that_fails_leaves_the_accounting(
    report: Report, tmp_path: Path, count: int
) -> None:
    dump = _dump(tmp_path, range(1, 1 + count))
    code, page, err = report("--from-sacct", dump, "--prometheus", "http://127.0.0.1:9")
    assert code == 0
    said = " ".join((page + err).split())
    assert said.count("127.0.0.1:9 cannot be reached (Connection refused)") == 1
    assert "Traceback" not in err


def test_a_dump_alone_is_read_alone(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", "http://127.0.0.1:9")
    code, page, err = report("--from-sacct", _dump(tmp_path, range(1, 2)))
    assert (code, err) == (0, "")
    assert "127.0.0.1" not in page


@pytest.mark.parametrize("url", ["https://a:b@prom", "prom", "ftp://x"])
def test_a_wrong_url_is_wrong_usage(report: Report, tmp_path: Path, url: str) -> None:
    code, _, err = report("1", "--prometheus", url, "--from-sacct", _dump(tmp_path, range(1, 2)))
    assert code == 2
    assert err.startswith("gpumon: ")
    assert err.count("\n") == 1
