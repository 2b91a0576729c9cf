"""What is removed from the folder of probes, and when."""

import os
import subprocess

from gpumon.services.probing import sweep


def test_what_the_recorded_processes_left_goes_at_once_and_the_rest_after_a_minute(tmp_path):
    folder = tmp_path / f"gpumon-probe-{os.getuid()}"
    folder.mkdir(mode=0o700)
    gone, other, killed = (subprocess.Popen(["true"]) for _ in range(3))
    for child in (gone, other, killed):
        child.wait()
    names = {
        f"{gone.pid}-1.json": 0, f"{gone.pid}-1.json.new": 0, f"{other.pid}-1.json": 0,
        f"{killed.pid}-1.json": 61, f"{os.getpid()}-1.json": 61, "of-the-user.json": 61,
    }  # fmt: skip
    for name, age_s in names.items():
        (folder / name).touch()
        changed = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (changed, changed))
    (folder / f"{killed.pid}-2.json").mkdir()  # cannot be removed, and stops nothing
    sweep({"TMPDIR": str(tmp_path)}, {gone.pid, os.getpid()})
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{other.pid}-1.json", f"{os.getpid()}-1.json", "of-the-user.json", f"{killed.pid}-2.json"]
    )


def test_a_folder_that_is_not_there_or_of_another_is_left_alone(tmp_path):
    sweep({"TMPDIR": str(tmp_path)})
    (tmp_path / f"gpumon-probe-{os.getuid()}").symlink_to(tmp_path)
    (tmp_path / "999999999-1.json").touch()
    os.utime(tmp_path / "999999999-1.json", (1, 1))
    sweep({"TMPDIR": str(tmp_path)})
    assert (tmp_path / "999999999-1.json").exists()
