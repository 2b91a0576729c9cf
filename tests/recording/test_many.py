"""More recordings than a process may open, and files that cannot be read: all are accounted for."""

import json
import resource
import shutil
import subprocess
import sys

import pytest

from gpumon.model.sample import JobContext
from gpumon.recording import Recording, file
from gpumon.recording.file import Opened
from gpumon.recording.runs import resolve
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.store import Store
from tests.e2e.program import GPUMON, ROOT, environment
from tests.recording import made
from tests.recording.recorded import record
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.slow

NODES = 150
LIMIT = 64  # open files


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A folder with a recording of each of many nodes."""
    folder = tmp_path_factory.mktemp("many")
    for n in range(NODES):
        few = list(made.samples(3))
        record(
            folder / f"n{n:03d}.gpumon", few, header=made.header(f"n{n:03d}", JobContext("4711"))
        )
    return folder


def gpumon(*args, limit=LIMIT, **env):
    return subprocess.run(
        [*GPUMON, *map(str, args)],
        env=environment(**env), capture_output=True, text=True, timeout=HANGS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )  # fmt: skip


def test_a_report_is_on_all_nodes(many):
    done = gpumon("report", many, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    nodes = {each["node"] for each in json.loads(done.stdout)["devices"]}
    assert len(nodes) == NODES


def test_an_export_is_of_all_nodes(many):
    done = gpumon("export", many, "--to", "csv", "--table", "host")
    assert (done.returncode, done.stderr) == (0, "")
    assert len({line.split(",")[2] for line in done.stdout.splitlines()[1:]}) == NODES


def test_a_comparison_is_of_all_nodes(many):
    done = gpumon("compare", many, many, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    devices = json.loads(done.stdout)["a"]["devices"]
    assert len({each["node"] for each in devices}) == NODES


def test_runs_lists_all_nodes(many, tmp_path):
    shutil.copytree(many, tmp_path / "jobs" / "alpha" / "4711")
    done = gpumon("runs", "--json", GPUMON_STATE=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    [run] = json.loads(done.stdout)["runs"]
    assert len(run["nodes"]) == NODES


_REPLAY = """
import sys
from gpumon.recording.runs import resolve
from gpumon.sources.replay import ReplaySource
from gpumon.sources.files import tracks_of
from gpumon.store import Store
unread = []
source, store = ReplaySource(tracks_of(resolve(sys.argv[1]).paths, unread)), Store()
source._base_time += 2
source.start(store)
source.stop()
print(len([node for node in store.nodes() if node.last_time is not None]), unread)
"""


def test_a_replay_plays_all_nodes_side_by_side(many):
    done = subprocess.run(
        [sys.executable, "-c", _REPLAY, str(many)],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT)),
    )  # fmt: skip
    assert done.stdout == f"{NODES} []\n", done.stderr


def test_files_read_in_turns_are_closed_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "_MOST", 3)
    paths = [tmp_path / str(n) for n in range(9)]
    for path in paths:
        path.write_text(path.name * 100)
    files = [Opened(str(path)) for path in paths]
    for at in range(50):
        assert [file.read(1, at) for file in files] == [path.name.encode() for path in paths]
        assert len(file._in_use) <= 4
    (tmp_path / "another").write_text("another" * 100)
    (tmp_path / "another").replace(paths[0])
    with pytest.raises(OSError, match="another file"):
        files[0].read(1, 0)


def test_a_reading_without_a_free_descriptor_is_an_error_that_names_the_file(many):
    code = (
        "import os, sys\nfrom gpumon.recording import Recording\nfrom gpumon.errors import *\n"
        "held = []\n"
        "try:\n    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "try: Recording(sys.argv[1])\nexcept GpumonError as error: print(error)\n"
    )
    path = str(many / "n000.gpumon")
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT)),
    )  # fmt: skip
    assert done.stdout == f"cannot read {path}: Too many open files\n", done.stderr


@pytest.fixture
def partly(many, tmp_path):
    """Three nodes of a job; the files of two more cannot be read."""
    folder = tmp_path / "jobs" / "alpha" / "4711"
    folder.mkdir(parents=True)
    for n in range(3):
        shutil.copy(many / f"n{n:03d}.gpumon", folder)
    (folder / "n003.gpumon").write_bytes((many / "n003.gpumon").read_bytes()[:300])
    (folder / "n004.gpumon").write_bytes(b"garbage")
    return folder


@pytest.mark.parametrize(
    "command",
    [("report",), ("export", "--to", "json"), ("compare", "-"), ("runs",),
     ("fit", "--params", "7B", "--recording")],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_cannot_be_read_is_counted_and_named(partly, command):
    args = [str(partly) if each == "-" else each for each in command]
    args += [] if command[0] == "runs" else [str(partly)]
    done = gpumon(*args, limit=1024, GPUMON_STATE=str(partly.parents[2]))
    assert done.returncode == 0
    for name in ("n003.gpumon", "n004.gpumon"):
        assert name in done.stderr
    assert command[0] == "runs" or "2 of 5 recordings not read" in done.stderr


def test_a_replay_names_what_it_lacks(partly):
    found = resolve(str(partly))
    source, store = ReplaySource(tracks_of(found.paths), unread=found.unread), Store()
    source.start(store)
    source.stop()
    said = [node.status(source.now()).detail for node in store.nodes()]
    assert sum("2 recordings could not be read" in each for each in said) == 1


def test_a_job_of_which_nothing_can_be_read_is_not_called_unrecorded(partly):
    for path in partly.iterdir():
        path.write_bytes(path.read_bytes()[:200])
    for run in ("4711", partly):
        done = gpumon("export", run, "--to", "json", GPUMON_STATE=str(partly.parents[2]))
        assert done.returncode == 4
        assert "5 cannot" in done.stderr
        assert ".gpumon" in done.stderr


def test_damage_is_told_by_a_replay_and_a_report(many, tmp_path):
    data = bytearray((many / "n000.gpumon").read_bytes())
    with Recording(str(many / "n000.gpumon")) as recording:
        data[recording._parts[0].end - 2] ^= 1  # in zstd's checksum: found behind all samples
    path = tmp_path / "x.gpumon"
    path.write_bytes(data)
    assert "damaged" in gpumon("report", path).stderr
    source, store = ReplaySource(tracks_of([str(path)]), ahead_s=60.0), Store()
    source.start(store)
    until(lambda: source.at_end)
    source.stop()
    assert "damaged" in store.node("n000").status(source.now()).detail
