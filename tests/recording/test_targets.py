"""What may lie where a recording is to go: a new file is private, the rest stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import threading

import pytest

from gpumon import files
from gpumon.errors import GpumonError
from gpumon.recording import Recording
from tests.e2e.program import GPUMON, environment, gpumon
from tests.recording.recorded import record, samples_of
from tests.support.waiting import HANGS_S

OLD = b"what was there before\n"


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing", "loop", "folder"])
def test_what_is_there_is_never_recorded_over(tmp_path, few, kind):
    path, target = tmp_path / "there", tmp_path / "target"
    target.write_bytes(OLD)
    if kind == "file":
        path.write_bytes(OLD)
    elif kind == "folder":
        path.mkdir()
    else:
        os.symlink({"link": "target", "loop": "there"}.get(kind, "none"), path)
    with pytest.raises(GpumonError, match="exists; a recording never overwrites a file"):
        record(path, few)
    assert (target.read_bytes(), sorted(os.listdir(tmp_path))) == (OLD, ["target", "there"])
    assert kind != "file" or path.read_bytes() == OLD


def private_device(folder, minor):
    """A node of our own, else the system's, which nobody but root can replace."""
    if os.geteuid():
        return {3: "/dev/null", 7: "/dev/full"}[minor]
    os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, minor))
    return folder / "device"


@pytest.mark.parametrize(("minor", "says"), [(3, ""), (7, "no space left on its file system")])
def test_a_device_stays_a_device(tmp_path, few, minor, says):
    device = private_device(tmp_path, minor)
    recorder = record(device, few)
    assert recorder.failed.endswith(says)
    assert bool(recorder.failed) == bool(says)
    assert stat.S_ISCHR(os.stat(device).st_mode)
    empty = record(device, [])  # of which a new file would not stay
    assert not empty.failed
    assert stat.S_ISCHR(os.stat(device).st_mode)


def test_a_fifo_and_a_descriptor_get_the_whole_recording(tmp_path, few):
    fifo, copy = tmp_path / "fifo", tmp_path / "copy.gpumon"
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: copy.write_bytes(fifo.read_bytes()))
    reader.start()
    assert not record(fifo, few).failed
    reader.join(HANGS_S)
    with open(tmp_path / "log", "wb") as log:
        assert not record(f"/dev/fd/{log.fileno()}", few).failed
    for path in (copy, tmp_path / "log"):
        with Recording(str(path)) as recording:
            assert (recording.state, len(samples_of(recording.items()))) == ("ended", len(few) + 1)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_that_nothing_reads_is_one_line(tmp_path, few, monkeypatch):
    monkeypatch.setattr(files, "READER_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(GpumonError, match=r"cannot record to .*: no program reads from this FIFO"):
        record(tmp_path / "fifo", few)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_folders_and_file_are_private_and_their_names_on_disk(tmp_path, few, monkeypatch, umask):
    synced, real = set(), os.fsync

    def noted(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "a" / "b" / "x.gpumon"
    before = os.umask(umask)
    try:
        record(path, few)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parents[1], path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]
    assert synced == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}


def test_a_recording_on_standard_output(tmp_path):
    """Through a pipe; beside a command, whose output it is, there is none."""
    with subprocess.Popen(
        [*GPUMON, "record", "--interval", "0.1", "-o", "-"],
        env=environment(GPUMON_STATE=str(tmp_path / "state")), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.terminate()
        rest, said = process.communicate(timeout=HANGS_S)
    assert (process.returncode, said.count(b"\n")) == (0, 3)
    (tmp_path / "x.gpumon").write_bytes(first + rest)
    with Recording(str(tmp_path / "x.gpumon")) as recording:
        assert recording.state == "ended"
    for name in ("-", "/dev/stdout"):
        done = gpumon("record", "-o", name, "--", "echo", "hi", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert done.stderr == (
            "gpumon: not recording: standard output belongs to the command; name a file with -o\n"
        )
    assert not (tmp_path / "-").exists()
