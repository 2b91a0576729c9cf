"""Recordings are found by job, by folder and by file, and thrown away by age and size."""

import os
import shutil
import stat

import pytest

from gpumon.errors import GpumonError, NotFoundError, UsageError, WireError
from gpumon.model.sample import JobContext
from gpumon.recording import Recorder
from gpumon.recording.runs import (
    SeveralJobsError,
    find_runs,
    new_path,
    path_outside,
    prune,
    remove,
    resolve,
    state_dir,
)
from tests.recording import made

DAY_S = 86_400.0
GONE = made.START  # nobody wrote there since


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def record(job=None, node="gpu01", start=made.START, *, close=True, written=GONE):
    header = made.header(node, job)._replace(time=start)
    path = new_path(header, start)
    recorder = Recorder(path)
    recorder.header(header)
    for sample in made.samples(3):
        recorder.add(sample._replace(time=sample.time - made.START + start))
    if close:
        recorder.close()
    while recorder.pending_bytes:
        os.sched_yield()
    if written is not None:
        os.utime(path, (written, written))
    return path


def job(number, **more):
    return JobContext(str(number), **{"cluster": "alpha", **more})


def test_the_state_folder(monkeypatch):
    monkeypatch.delenv("GPUMON_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/x/state")
    assert state_dir() == "/x/state/gpumon"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert state_dir() == "/home/ada/.local/state/gpumon"


def test_a_path_tells_cluster_job_and_node(state, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    path = new_path(made.header("gpu01", job(4711)), made.START)
    assert path.startswith(f"{state}/jobs/alpha/4711/gpu01-20261120T")
    assert path.endswith(".gpumon")
    assert f"{state}/jobs/local/node/gpu01-" in new_path(made.header("gpu01"), made.START)
    assert "/alpha/4711_3/" in new_path(made.header("g", job(4713, array="4711_3")), made.START)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "", "-rf", "x\x1b[2J\n", "é" * 300])
def test_names_never_leave_the_folder(state, name):
    path = new_path(made.header(name, JobContext(name, cluster=name)), made.START)
    inside = os.path.relpath(path, state).split(os.sep)
    assert len(inside) == 4
    assert ".." not in inside
    assert all(part.isascii() and part.isprintable() and part[0] not in ".-" for part in inside)
    assert all(len(part) < 150 for part in inside)


def test_a_second_recording_of_the_same_second_gets_its_own_file():
    paths = {record(job(1)), record(job(1)), record(job(1))}
    assert len(paths) == 3


def test_the_runs_of_all_clusters_newest_first():
    record(job(1), "gpu01", made.START)
    record(job(1), "gpu02", made.START + 1)
    record(job(2), start=made.START + 100, close=False)
    record(job(1, cluster="beta"), start=made.START + 50)
    record(None, start=made.START + 200, close=False, written=None)
    record(None, start=made.START + 300)
    found = find_runs()
    assert [(run.cluster, run.job, run.nodes, run.state) for run in found] == [
        ("", "", ["gpu01"], "ended"),
        ("", "", ["gpu01"], "recording"),
        ("alpha", "2", ["gpu01"], "torn"),
        ("beta", "1", ["gpu01"], "ended"),
        ("alpha", "1", ["gpu01", "gpu02"], "ended"),
    ]
    last = found[-1]
    assert (round(last.start), round(last.end)) == (made.START, made.START + 3)
    assert last.size_bytes == sum(os.path.getsize(path) for path in last.paths)
    assert len(last.paths) == 2


def test_what_is_no_recording_is_passed_over(state):
    path = record(job(1))
    folder = os.path.dirname(path)
    for name, content in (("empty.gpumon", b""), ("text.gpumon", b"hello"), ("notes", b"x")):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    os.symlink("/etc/passwd", os.path.join(folder, "link.gpumon"))
    assert [run.paths for run in find_runs()] == [[path]]


def test_a_run_by_file_folder_and_job():
    one = record(job(4711), "gpu01")
    two = record(job(4711), "gpu02")
    assert resolve(one).paths == [one]
    assert resolve(os.path.dirname(one)).paths == [one, two]
    for form in ("4711", "4711.0", "4711.0+1", "4711.batch", "4711.extern", " 4711 "):
        assert resolve(form).paths == [one, two]


def test_each_run_has_an_id_that_names_it():
    """Outside of a job its file's name; where two clusters have the same job, its folder."""
    paths = [record(), record(node="gpu02"), record(job(1)), record(job(2))]
    paths.append(record(job(2, cluster="beta")))
    runs = find_runs()
    ids = {run.paths[0]: run.id for run in runs}
    assert [ids[path] for path in paths] == [
        *(os.path.basename(path).removesuffix(".gpumon") for path in paths[:2]),
        "1",
        *(os.path.dirname(path) for path in paths[3:]),
    ]
    assert {run.id: resolve(run.id).paths for run in runs} == {run.id: run.paths for run in runs}
    assert path_outside("1") is None
    assert path_outside(paths[0].removesuffix(".gpumon")) is None  # a path is no ID


def test_a_folder_is_looked_through_within_limits(tmp_path, monkeypatch):
    said = []
    paths = [record(job(4711), f"gpu{n:02}") for n in range(3)]
    folder = os.path.dirname(paths[0])
    assert resolve(folder, said.append).paths == paths
    assert said == []
    monkeypatch.setattr("gpumon.recording.runs._MANY", 2)
    assert resolve(folder, said.append).paths == paths
    assert said == [f"reading 3 recordings in {folder} …"]
    monkeypatch.setattr("gpumon.recording.runs._MAX_ENTRIES", 2)
    with pytest.raises(UsageError, match="more than 2 entries; name a folder"):
        resolve(folder)


def test_a_folder_of_several_jobs_has_a_run_for_each(tmp_path):
    """Wherever their files are; each has an ID to name it by."""
    paths = [record(job(4711), "gpu01"), record(job(4711), "gpu02"), record(job(4712)), record()]
    flat = tmp_path / "flat"
    flat.mkdir()
    copies = [shutil.copy(path, flat / f"{n}.gpumon") for n, path in enumerate(paths)]
    with pytest.raises(
        SeveralJobsError, match=r"of several jobs \(4711, 4712\); name one"
    ) as found:
        resolve(str(flat))
    runs = {run.job: run for run in found.value.runs}
    assert [str(path) for path in copies[:2]] == runs["4711"].paths
    assert {name: run.id for name, run in runs.items()} == {
        "4711": f"{flat}/4711",
        "4712": f"{flat}/4712",
        "": str(copies[3]),
    }
    for run in runs.values():
        assert resolve(run.id).paths == run.paths
    with pytest.raises(GpumonError, match="4713"):  # there is no such file
        resolve(f"{flat}/4713")


def test_a_jobs_id_is_no_file_of_that_name(tmp_path, monkeypatch):
    """A job's output is often a folder of its number."""
    one, two = record(job(4711)), record(job(4712))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "4711").mkdir()
    shutil.copy(two, tmp_path / "4711.gpumon")
    assert resolve("4711").paths == [one]
    assert resolve("4711.gpumon").paths == ["4711.gpumon"]
    with pytest.raises(NotFoundError, match="no recordings"):
        resolve("./4711")


def test_the_tasks_of_an_array():
    three = record(job(4713, array="4711_3"))
    assert resolve("4711_3").paths == [three]
    assert resolve("4711_3.0").paths == [three]
    assert resolve("4713").paths == [three]  # the number behind the task
    assert resolve("4711").paths == [three]
    assert resolve("4711_[1-9%2]").paths == [three]
    record(job(4714, array="4711_4"))
    with pytest.raises(NotFoundError, match="4711_3, 4711_4"):
        resolve("4711")


def test_a_component_of_a_heterogeneous_job():
    one = record(job("4711+1"))
    assert resolve("4711+1").paths == [one]


def test_the_same_number_on_two_clusters_is_asked_about():
    record(job(1))
    record(job(1, cluster="beta"))
    with pytest.raises(NotFoundError, match=r"name a folder: .*beta"):
        resolve("1")


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(NotFoundError, match="'gpumon runs' lists"):
        resolve("4711")
    with pytest.raises(NotFoundError, match="no file"):
        resolve("folder/x.gpumon")
    with pytest.raises(NotFoundError, match="no recordings"):
        resolve(str(tmp_path))
    (tmp_path / "x.gpumon").write_text("hello")
    with pytest.raises(WireError, match="is a text file, not a recording"):
        resolve(str(tmp_path / "x.gpumon"))


def test_a_run_is_removed_with_its_folder_unless_it_is_being_written(state):
    record(job(1), "gpu01")
    record(job(1), "gpu02")
    live = record(job(2), close=False, written=None)
    newest, other = sorted(find_runs(), key=lambda run: run.job)[::-1]
    with pytest.raises(GpumonError, match="2 is still being recorded; end the recording first"):
        remove(newest)
    remove(other)
    remove(other)  # somebody else was faster
    assert [run.paths for run in find_runs()] == [[live]]
    assert os.listdir(state / "jobs" / "alpha") == ["2"]


# -- retention ------------------------------------------------------------------------------------
NOW = made.START + 100 * DAY_S


def test_what_is_too_old_goes_with_its_folders(state):
    old = record(job(1), written=NOW - 40 * DAY_S)
    young = record(job(2), written=NOW - 20 * DAY_S)
    assert prune(30 * DAY_S, 1 << 40, NOW) == [old]
    assert [run.paths for run in find_runs()] == [[young]]
    assert not os.path.exists(os.path.dirname(old))
    assert stat.S_IMODE(os.stat(state / "jobs").st_mode) == 0o700


def test_the_oldest_make_room():
    paths = [record(job(n), written=NOW - (10 - n) * DAY_S) for n in range(4)]
    size = os.path.getsize(paths[0])
    assert prune(1000 * DAY_S, 2 * size + size // 2, NOW) == paths[:2]
    assert prune(1000 * DAY_S, 2 * size + size // 2, NOW) == []
    assert prune(1000 * DAY_S, 0, NOW) == paths[2:]


def test_what_is_being_written_stays():
    live = record(job(1), close=False, written=NOW - 3600)
    assert prune(0, 0, NOW) == []
    os.utime(live, (NOW - 2 * DAY_S,) * 2)  # its writer is gone
    assert prune(0, 0, NOW) == [live]


def test_other_files_stay(state):
    folder = os.path.dirname(record(job(1), written=NOW - 40 * DAY_S))
    other = os.path.join(folder, "notes.txt")
    with open(other, "w") as file:
        file.write("mine")
    outside = state / "outside.gpumon"
    outside.write_text("not below jobs")
    prune(0, 0, NOW)
    assert os.path.exists(other)
    assert outside.exists()
