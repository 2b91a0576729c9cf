"""`gpumon report` of jobs that were requeued, suspended, or recorded by several."""

from __future__ import annotations

import json
import os

import pytest

from gpumon import cli
from gpumon.model.sample import Device, JobContext, Sample
from tests.frames.framing import FramedRecorder
from tests.recording import made as samples
from tests.slurm.made import MadeSlurm, row, step

START = samples.START
FACTS = {"mem_total_bytes": 80 << 30, "power_limit_default_w": 400.0}


class Accounting(MadeSlurm):
    """Shows earlier attempts only where they are asked for, as sacct does."""

    def _sacct(self, argv):
        every = self.past
        if "-D" not in argv and every:
            self.past = every[-2:]  # with its step
        try:
            return super()._sacct(argv)
        finally:
            self.past = every


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("SLURM", "GPUMON_SITE"))]:
        monkeypatch.delenv(name)
    return tmp_path / "jobs" / "alpha" / "4711"


@pytest.fixture
def report(capsys, monkeypatch):
    def ask(slurm, *args):
        monkeypatch.setattr("gpumon.services.reports.runner_for", lambda login: slurm)
        code = cli.main(["report", *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return ask


def told(report, slurm, *args):
    code, out, err = report(slurm, *args, "--format", "json")
    assert code == 0, err
    return json.loads(out)


def record(path, begin, end, *, restarts=None, cores=2.0, watts=200.0, job_start=None, jump_j=0.0):
    """A node's samples from second `begin` to before `end`, by counters that go on for ever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    context = JobContext(
        "4711", "train", "ada", cluster="alpha", cpus=8, gpus=1, start=job_start, restarts=restarts
    )
    header = samples.header(path.name.partition("-")[0], context)._replace(
        time=START + begin, mono=100.0 + begin, facts={"cpus_online": 16},
        devices=[Device(0, 0, f"GPU-{path.name[:5]}", "NVIDIA A100", 0, None, FACTS)],
    )  # fmt: skip
    recorder = FramedRecorder(str(path), clock=lambda: 0.0)
    recorder.header(header)
    for n in range(begin, end):
        energy = 5e6 + watts * n + (jump_j if n >= (begin + end) // 2 else 0.0)
        rows = {
            "device": {0: {"busy_percent": 90, "power_w": watts, "energy_j": energy,
                           "mem_used_bytes": 5 << 30, "processes": 0}},
            "job": {"": {"cpu_cores_used": cores, "cpu_s": cores * n, "mem_used_bytes": 3 << 30}},
        }  # fmt: skip
        recorder.add(Sample(START + n, 100.0 + n, rows, {}, []))
    recorder.close("done")
    return path


def attempt(begin, end, state, **more):
    ended = state not in ("RUNNING", "PENDING")
    return row(
        4711, state=state, start=f"{START + begin:.0f}", submit=f"{START + begin - 5:.0f}",
        end=f"{START + end:.0f}" if ended else "Unknown",
        elapsedraw=f"{end - begin}", alloctres="cpu=8,mem=16G,gres/gpu=1,node=1", **more,
    )  # fmt: skip


# -- recorded by several ---------------------------------------------------------------------------


def test_what_four_recorded_counts_once(folder, report):
    for node in ("gpu01", "gpu02"):
        for n, (begin, end) in enumerate([(0, 600), (5, 400), (100, 700), (0, 600)]):
            record(folder / f"{node}-{n}.gpumon", begin, end)
    body = told(report, Accounting(), "4711")
    assert body["used"]["gpu_energy_j"] == pytest.approx(2 * 200 * 699)
    assert body["used"]["cpu_core_s"] == pytest.approx(2 * 2 * 699)
    assert [each["node"] for each in body["devices"]] == ["gpu01", "gpu02"]
    assert body["coverage"]["covered_percent"] == pytest.approx(100, abs=0.5)
    assert body["coverage"]["gaps"] == 0


def test_a_counter_that_cannot_be_is_refused_with_the_reason(folder, report):
    record(folder / "gpu01-0.gpumon", 0, 300, jump_j=3e6)
    body = told(report, Accounting(), "4711")
    assert body["used"]["gpu_energy_j"] is None
    assert body["devices"][0]["energy_j"] is None
    why = body["devices"][0]["missing"]["energy_j"]
    assert why.startswith("implausible: +3e+06 J in ")
    assert why.endswith(" s is beyond the device's power limit")
    assert body["coverage"]["missing"]["energy of gpu01:0"] == why
    record(folder / "gpu02-0.gpumon", 0, 300, cores=40.0)  # of 16
    assert told(report, Accounting(), "4711")["used"]["cpu_core_s"] is None
    assert "CPU time of gpu02: implausible: " in report(Accounting(), "4711")[1]


# -- attempts --------------------------------------------------------------------------------------

TWO = (attempt(0, 200, "REQUEUED", restarts="0"), step("4711.batch", "CANCELLED"),
       attempt(500, 1000, "COMPLETED", restarts="1"), step("4711.batch", "COMPLETED"))  # fmt: skip


def check_two(body):
    assert body["job"]["elapsed_s"] == 500
    assert body["used"]["cpu_core_s"] == pytest.approx(4 * 499)
    assert body["efficiency"]["cpu_percent"] == pytest.approx(50, abs=1)
    assert [row["node"] for row in body["devices"]] == ["gpu02"]
    assert body["coverage"]["covered_percent"] == pytest.approx(100, abs=1)
    first, second = body["attempts"]
    assert (first["name"], first["state"], first["end"] - first["start"]) == ("1", "REQUEUED", 200)
    assert (second["name"], second["state"]) == ("2", "COMPLETED")
    assert (first["cpu_cores_peak"], second["cpu_cores_peak"]) == (2.0, 4.0)


@pytest.mark.parametrize("restarts", [(0, 1), (None, None), (None, 1)])
def test_the_report_is_on_the_last_attempt(folder, report, restarts):
    """Recordings of older versions tell when they began."""
    record(folder / "gpu01-0.gpumon", 0, 200, restarts=restarts[0])
    record(folder / "gpu02-1.gpumon", 500, 1000, restarts=restarts[1], cores=4.0)
    check_two(told(report, Accounting(past=TWO), "4711"))


def test_where_slurm_counts_no_restarts(folder, report):
    record(folder / "gpu01-0.gpumon", 0, 200, restarts=0)
    record(folder / "gpu02-1.gpumon", 500, 1000, restarts=1, cores=4.0)
    past = tuple({**each, "restarts": ""} for each in TWO)
    check_two(told(report, Accounting(past=past), "4711"))


def test_without_slurm_the_recordings_tell_their_attempts(folder, report):
    record(folder / "gpu01-0.gpumon", 0, 200, job_start=START)
    record(folder / "gpu02-1.gpumon", 500, 1000, job_start=START + 500, cores=4.0)
    body = told(report, Accounting(), "4711")
    assert body["used"]["cpu_core_s"] == pytest.approx(4 * 499)
    assert body["job"]["elapsed_s"] == pytest.approx(499)
    assert [(each["name"], each["state"]) for each in body["attempts"]] == [
        ("1", None),
        ("2", None),
    ]
    assert {each["note"] for each in body["attempts"]} == {"Slurm has no record of it"}


def test_figures_of_an_attempt_that_was_not_recorded_are_slurms(folder, report):
    record(folder / "gpu01-0.gpumon", 0, 200, restarts=0)
    body = told(report, Accounting(past=TWO), "4711")
    assert body["coverage"]["source"] == "sacct"
    assert body["devices"] == []
    assert body["attempts"][0]["gpu_busy_percent"] == 90
    page = report(Accounting(past=TWO), "4711")[1]
    assert "1 REQUEUED" in page


def test_a_named_recording_is_reported_whatever_attempt_it_is_of(folder, report):
    path = record(folder / "gpu01-0.gpumon", 0, 200, restarts=0)
    record(folder / "gpu02-1.gpumon", 500, 1000, restarts=1)
    body = told(report, Accounting(past=TWO), path)
    assert [row["node"] for row in body["devices"]] == ["gpu01"]
    assert body["used"]["cpu_core_s"] == pytest.approx(2 * 199)


# -- suspended -------------------------------------------------------------------------------------


@pytest.fixture
def suspended(folder):
    """Accounting of a job that ran for so long between its start and its end."""

    def make(ran_s):
        record(folder / "gpu01-0.gpumon", 0, 300)
        record(folder / "gpu01-1.gpumon", 1020, 1320)
        job = attempt(0, ran_s, "COMPLETED") | {"end": f"{START + 1320:.0f}"}
        return Accounting(past=(job, step("4711.batch", "COMPLETED")))

    return make


def test_time_in_which_it_was_suspended_is_no_run_time(report, suspended):
    slurm = suspended(600)
    body = told(report, slurm, "4711")
    assert (body["job"]["elapsed_s"], body["job"]["suspended_s"]) == (600, 720)
    assert body["coverage"]["covered_percent"] == pytest.approx(100, abs=1)
    assert body["coverage"]["gaps"] == 0
    assert body["gpu_hours"] == 0.167
    assert ", suspended 12 min" in report(slurm, "4711")[1]


def test_a_gap_that_suspension_does_not_explain_is_one(report, suspended):
    body = told(report, suspended(1140), "4711")
    assert (body["job"]["suspended_s"], body["coverage"]["gaps"]) == (180, 1)
    assert body["coverage"]["covered_percent"] == pytest.approx(100 * 600 / 1140, abs=1)
