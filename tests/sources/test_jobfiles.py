import os
import threading

import pytest

from gpumon.slurm.job import Job
from gpumon.slurm.runner import LocalRunner
from gpumon.sources import jobfiles
from gpumon.sources.jobfiles import TAIL_BYTES, JobFiles, expanded, read_local
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/h/slurm-%j.out", "/h/slurm-4715.out"),
        ("/h/%A_%a.out", "/h/4711_4.out"),
        ("/h/%5a-%u-%x-%N.%%", "/h/00004-ada-train-gpu01.%"),
        ("/h/%q", "/h/%q"),
    ],
)
def test_patterns_are_filled_in_as_sbatch_does(pattern, path):
    job = Job(
        raw_id="4715", array_job_id="4711", array_task="4", user="ada", name="train",
        nodes=("gpu01", "gpu02"),
    )  # fmt: skip
    assert expanded(pattern, job) == path


@pytest.mark.parametrize("runner", [None, LocalRunner()])
def test_a_growing_file_is_followed(tmp_path, runner, monkeypatch):
    for name in ("LOCAL_PERIOD_S", "REMOTE_PERIOD_S"):
        monkeypatch.setattr(jobfiles, name, 0.05)
    out = tmp_path / "slurm-1.out"
    out.write_bytes(b"one\n\xfftwo\n")
    files = JobFiles(lambda: Job(raw_id="1", std_out=str(out)), runner)
    assert until(lambda: files.tail("out")) == ["one", "\ufffdtwo"]
    with open(out, "a") as file:
        file.write("three\n")
    until(lambda: files.tail("out")[-1:] == ["three"])
    assert files.path("err") == ""
    with pytest.raises(OSError, match="does not report"):
        files.tail("err")


@pytest.mark.parametrize("runner", [None, LocalRunner()])
def test_only_whole_lines_of_the_end_of_a_large_file(tmp_path, runner):
    out = tmp_path / "out"
    out.write_text("".join(f"line {n}\n" for n in range(100_000)))
    files = JobFiles(lambda: Job(raw_id="1", std_out=str(out)), runner)
    lines = until(lambda: files.tail("out"))
    assert lines[-1] == "line 99999"
    assert all(line.startswith("line ") for line in lines)
    assert sum(len(line) + 1 for line in lines) <= TAIL_BYTES


@pytest.mark.parametrize("runner", [None, LocalRunner()])
def test_a_file_that_is_not_there_is_said(tmp_path, runner):
    files = JobFiles(lambda: Job(raw_id="1", std_out=str(tmp_path / "none")), runner)

    def complaint():
        try:
            files.tail("out")
        except OSError as error:
            return str(error.strerror)
        return ""

    assert "No such file" in until(complaint)


def test_a_pipe_is_refused_and_a_server_that_hangs_holds_up_nobody(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a plain file"):
        read_local(str(tmp_path / "pipe"))
    release = threading.Event()

    def hangs(path):
        release.wait(30)
        return b"late\n"

    monkeypatch.setattr(jobfiles, "read_local", hangs)
    files = JobFiles(lambda: Job(raw_id="1", std_out="/x"))
    assert files.tail("out") == []  # at once
    release.set()
    assert until(lambda: files.tail("out")) == ["late"]
