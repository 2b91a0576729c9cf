import os
import shutil
import threading

import pytest

from gpumon.collect.base import Tick
from gpumon.collect.storage import Space, Storage, candidates, measure, parse_scratch_mounts
from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing

MOUNTINFO = """23 1 0:1 / / rw - ext4 /dev/root rw
24 23 0:2 / /scratch rw - xfs /dev/nvme0n1 rw
25 23 0:3 / /lustre/scratch rw - lustre mds:/x rw
26 23 0:4 / /mnt/localscratch rw shared:7 - ext4 /dev/sdb rw
27 23 0:5 / /boot rw - ext4 /dev/sda1 rw
"""


def collected(storage, mono=0.0):
    tick = Tick(1e9, mono)
    storage.collect(tick)
    return tick.rows.get("disk", {})


def test_what_is_asked():
    environ = {"TMPDIR": "/tmp", "SLURM_TMPDIR": "/scratch/job_5", "HOME": "/home/x"}
    assert candidates(environ, MOUNTINFO) == [
        ("slurm_tmpdir", "/scratch/job_5"),
        ("tmpdir", "/tmp"),
        ("shm", "/dev/shm"),
        ("scratch", "/scratch"),
        ("localscratch", "/mnt/localscratch"),
    ]
    assert parse_scratch_mounts(MOUNTINFO) == ["/scratch", "/mnt/localscratch"]


@pytest.mark.parametrize("path", ["", "relative", "/a\0b"])
def test_hostile_directories_are_not_asked(path):
    assert candidates({"TMPDIR": path}, "") == [("tmp", "/tmp"), ("shm", "/dev/shm")]


def test_real_file_system(tmp_path):
    rows = collected(Storage({"TMPDIR": str(tmp_path)}, paths=[("tmpdir", str(tmp_path))]))
    row = rows["tmpdir"]
    assert set(row) == set(FIELDS["disk"])
    usage = shutil.disk_usage(tmp_path)
    assert row["path"] == str(tmp_path)
    assert row["total_bytes"] == usage.total
    assert row["used_bytes"] == pytest.approx(usage.used, abs=1 << 30)
    assert row["free_bytes"] == pytest.approx(usage.free, abs=1 << 30)


def test_one_file_system_is_said_once(tmp_path):
    (tmp_path / "a").mkdir()
    rows = collected(Storage({}, paths=[("tmpdir", str(tmp_path / "a")), ("tmp", str(tmp_path))]))
    assert list(rows) == ["tmpdir"]


def test_a_directory_that_does_not_exist_hides_nothing(tmp_path):
    rows = collected(Storage({}, paths=[("gone", str(tmp_path / "x")), ("tmp", str(tmp_path))]))
    assert list(rows) == ["tmp"]


def test_only_every_30_s(tmp_path):
    storage = Storage({}, paths=[("tmp", str(tmp_path))])
    assert collected(storage, 0.0)
    assert not collected(storage, 10.0)
    assert collected(storage, 30.0)


def test_a_file_system_that_hangs_is_a_timeout_and_holds_up_no_other(tmp_path):
    release, asked = threading.Event(), []

    def ask(path):
        asked.append(path)
        if path == "/hung":
            release.wait()
        return measure(str(tmp_path))

    storage = Storage({}, paths=[("hung", "/hung"), ("tmp", "/fine")], ask=ask)
    rows = collected(storage, 0.0)
    assert rows["hung"]["path"] == "/hung"
    assert rows["hung"]["free_bytes"] == Missing("timeout")
    assert rows["tmp"]["free_bytes"] > 0
    assert collected(storage, 30.0)["hung"]["total_bytes"] == Missing("timeout")
    assert asked.count("/hung") == 1  # a second thread would hang beside the first
    release.set()
    storage._questions["hung"].wait(60)
    assert "hung" in collected(storage, 60.0)


def test_no_permission_and_no_answer():
    def ask(path):
        if path == "/secret":
            raise PermissionError(13, "no")
        return Space(1, 0, 0, 0)

    rows = collected(Storage({}, paths=[("secret", "/secret"), ("odd", "/odd")], ask=ask))
    assert rows["secret"]["free_bytes"] == Missing("no-permission")
    assert rows["odd"]["total_bytes"] == Missing("unsupported")


def test_this_node():
    rows = collected(Storage(os.environ))
    for row in rows.values():
        assert row["used_bytes"] + row["free_bytes"] <= row["total_bytes"]
    assert rows
