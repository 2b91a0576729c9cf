import os

import pytest

from gpumon.collect.base import Tick
from gpumon.collect.cgroup.job import (
    JobCgroup,
    parse_blkio_bytes,
    parse_device_minors,
    parse_io_stat,
)
from gpumon.collect.cgroup.path import JobPath, Mount, find_job_cgroup, parse_mounts
from gpumon.collect.procfs import look
from gpumon.model.fields import FIELDS
from gpumon.model.reading import MEASURING, Missing
from tests.collect.trees import SLUID, V2_JOB, V2_STEP_CGROUP, fixture, plant, plant_v1, plant_v2

HYBRID = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw
"""


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def collected(cgroup, mono=100.0):
    tick = Tick(1e9, mono)
    cgroup.collect(tick)
    return tick.rows["job"][""]


# -- finding the job ---------------------------------------------------------------------------


def test_job_of_a_v1_task():
    job = find_job_cgroup(fixture("proc-cgroup-v1-task.txt"), {})
    top = "/slurm_node1/uid_20001/job_5"
    assert job == JobPath(
        "job_5",
        "5",
        "0",
        20001,
        {"freezer": top, "devices": top, "memory": top, "cpuacct": top},
        device_path=top + "/step_0/task_0",
    )


@pytest.mark.parametrize(
    ("line", "job", "step"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0", "4711", "batch"),
        ("0::/system.slice/n1_slurmstepd.scope/job_9/step_extern/user/task_special", "9", "extern"),
        ("0::/system.slice/slurmstepd.scope/job_9/step_interactive/slurm", "9", "interactive"),
        ("4:memory:/slurm/uid_7/job_12", "12", ""),
        ("4:cpu,cpuacct:/slurm/uid_7/job_12/step_3/task_0", "12", "3"),
    ],
)
def test_job_and_step_in_a_path(line, job, step):
    found = find_job_cgroup(line, {})
    assert (found.job, found.step) == (job, step)


@pytest.mark.parametrize(
    "text",
    [
        "0::/",
        "0::/user.slice/user-1000.slice/session-3.scope",
        "0::/job_5/step_0",  # not below Slurm's directory
        "0::/system.slice/slurmd.service",
        f"0::/system.slice/slurmstepd.scope/{SLUID}",  # without a step it could be anything
        "0::/system.slice/slurmstepd.scope/job_12345678901/step_0",
        "",
        "::::",
    ],
)
def test_no_job(text):
    assert find_job_cgroup(text, {"SLURM_JOB_ID": "5"}) is None


def test_sluid_needs_the_environment_for_its_id():
    told = {"SLURM_JOB_ID": "4711", "SLURM_JOB_SLUID": SLUID}
    assert find_job_cgroup(V2_STEP_CGROUP, told).job == "4711"
    assert find_job_cgroup(V2_STEP_CGROUP, told).name == SLUID
    other = {"SLURM_JOB_ID": "4712", "SLURM_JOB_SLUID": "s0KXM7X6DE7H00"}
    assert find_job_cgroup(V2_STEP_CGROUP, other).job == ""
    hostile = {"SLURM_JOB_ID": "4711; rm -rf /", "SLURM_JOB_SLUID": SLUID}
    assert find_job_cgroup(V2_STEP_CGROUP, hostile).job == ""


def test_mounts_of_a_hybrid_node():
    mounts = parse_mounts(HYBRID)
    assert mounts["cpuacct"].directory == "/sys/fs/cgroup/cpu,cpuacct"
    assert mounts["memory"] == Mount("/sys/fs/cgroup/memory", "/")
    assert mounts[""].directory == "/sys/fs/cgroup/uni fied"


def test_a_mount_from_outside_of_the_cgroup_namespace_is_passed_over():
    """A container's own comes after it, at the same place."""
    outer = "62 55 0:32 /../.. /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    own = outer.replace("/../..", "/")
    assert parse_mounts(outer + own)["memory"] == Mount("/sys/fs/cgroup/memory", "/")
    assert parse_mounts(outer) == {}


def test_mounts_of_this_machine_hold_its_own_cgroups():
    """Every path of /proc/self/cgroup is a directory below the mount that is named for it."""
    mounts = parse_mounts(look("/proc/self/mountinfo"))
    checked = 0
    for line in look("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounts and ".." not in path:
                assert os.path.isdir(mounts[controller].directory + path)
                checked += 1
    assert checked


def test_a_container_that_sees_only_its_part_of_the_tree(tmp_path):
    plant(tmp_path, {"memory.current": "7\n", "cgroup.procs": "1\n"})
    top = "/system.slice/slurmstepd.scope/job_5"
    job = find_job_cgroup(f"0::{top}/step_0/user/task_0", {})
    inside = JobCgroup(job, mounts={"": Mount(str(tmp_path), top)})
    assert collected(inside)["mem_charged_bytes"] == 7
    elsewhere = JobCgroup(job, mounts={"": Mount(str(tmp_path), "/machine.slice")})
    reading = collected(elsewhere)["mem_charged_bytes"]
    assert reading == Missing("unsupported")
    assert not elsewhere.exists


# -- readings ----------------------------------------------------------------------------------


def v1_job(tmp_path, clock=None):
    mounts = plant_v1(tmp_path)
    job = find_job_cgroup(fixture("proc-cgroup-v1-task.txt"), {})
    return JobCgroup(job, mounts=mounts, clock=clock or Clock())


def v2_job(tmp_path, clock=None):
    mounts = plant_v2(tmp_path)
    return JobCgroup(find_job_cgroup(V2_STEP_CGROUP, {}), mounts=mounts, clock=clock or Clock())


@pytest.mark.parametrize("make", [v1_job, v2_job])
def test_every_field_has_a_value_or_a_reason(make, tmp_path):
    readings = collected(make(tmp_path))
    assert set(readings) == set(FIELDS["job"])
    for name, reading in readings.items():
        field = FIELDS["job"][name]
        assert isinstance(reading, Missing) or field.low <= reading <= field.high, name


def test_v1_readings(tmp_path):
    clock = Clock()
    cgroup = v1_job(tmp_path, clock)
    first = collected(cgroup)
    assert first["cpu_cores_used"] == MEASURING
    assert first["cpu_s"] == pytest.approx(5.927199798)
    assert first["mem_used_bytes"] == 62922752 + 20971520
    assert first["mem_cache_bytes"] == 62914560 - 20971520
    assert first["mem_active_cache_bytes"] == 8388608
    assert first["mem_charged_bytes"] == 15097856
    assert first["mem_peak_bytes"] == 16945152
    assert first["mem_limit_bytes"] == 629145600
    assert first["oom_kills"] == 0
    assert first["processes"] == 9
    assert str(first["cpu_throttled_percent"]) == "n/a cpu is not under Slurm's control"
    assert str(first["read_bytes_per_s"]) == "n/a blkio is not under Slurm's control"
    assert str(first["oom_events"]) == "n/a cgroup v1"
    assert str(cgroup.cpus()) == "n/a cpuset is not under Slurm's control"
    assert cgroup.device_minors() is None  # a *:*
    clock.now += 2
    usage = "cpuacct/slurm_node1/uid_20001/job_5/cpuacct.usage"
    plant(tmp_path, {usage: f"{5927199798 + 3_000_000_000}\n"})
    assert collected(cgroup)["cpu_cores_used"] == pytest.approx(1.5)
    clock.now += 2
    plant(tmp_path, {usage: "1\n"})
    assert collected(cgroup)["cpu_cores_used"] == Missing("implausible")


def test_v1_oom_kills_are_summed_over_steps_and_outlive_them(tmp_path):
    clock = Clock()
    cgroup = v1_job(tmp_path, clock)
    step = tmp_path / "memory/slurm_node1/uid_20001/job_5/step_1/task_1"
    plant(step, {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"})
    assert collected(cgroup)["oom_kills"] == 2
    for file in step.iterdir():
        file.unlink()
    step.rmdir()
    clock.now += 10
    assert collected(cgroup)["oom_kills"] == 2


def test_v1_devices_of_a_task(tmp_path):
    cgroup = v1_job(tmp_path)
    task = "devices/slurm_node1/uid_20001/job_5/step_0/task_0/devices.list"
    plant(tmp_path, {task: "c 1:3 rwm\nc 195:2 rwm\nc 195:255 rwm\nb 195:1 rwm\nc 195:3 m\n"})
    assert cgroup.device_minors() == {2}


def test_v2_readings(tmp_path):
    clock = Clock()
    cgroup = v2_job(tmp_path, clock)
    first = collected(cgroup, mono=100)
    gib = 1 << 30
    assert first["mem_used_bytes"] == 2 * gib + gib + 4194304 + 1048576 + 8388608
    assert first["mem_anon_bytes"] == 2 * gib
    assert first["mem_shmem_bytes"] == gib
    assert first["mem_cache_bytes"] == 2 * gib
    assert first["mem_active_cache_bytes"] == 0
    assert first["mem_charged_bytes"] == 5 * gib
    assert first["mem_peak_bytes"] == 6 * gib
    assert first["mem_limit_bytes"] == 8 * gib  # of the directory above
    assert first["swap_used_bytes"] == 4096
    assert (first["oom_events"], first["oom_kills"]) == (3, 2)
    assert first["cpu_s"] == 10.0
    assert first["cpu_pressure_percent"] == 1.53
    assert first["io_pressure_percent"] == 0.0
    assert str(first["mem_pressure_percent"]) == "n/a no memory.pressure"
    assert first["processes"] == 3
    assert sorted(cgroup.pids()) == [4000, 4001, 4002]
    assert cgroup.cpus() == [0, 1, 2, 3, 8]
    assert cgroup.device_minors() is None
    clock.now += 4
    plant(
        tmp_path,
        {
            f"{V2_JOB}/cpu.stat": "usage_usec 18000000\nnr_periods 140\nnr_throttled 35\n",
            f"{V2_JOB}/io.stat": "259:0 rbytes=5000 wbytes=2000\n8:0 rbytes=24 wbytes=48\n",
        },
    )
    second = collected(cgroup, mono=105)
    assert second["cpu_cores_used"] == pytest.approx(2.0)
    assert second["cpu_throttled_percent"] == pytest.approx(25.0)
    assert second["read_bytes_per_s"] == pytest.approx(1000.0)
    assert second["write_bytes_per_s"] == 0.0


def test_v2_without_limit_quota_or_peak(tmp_path):
    """RHEL 8's kernel has no memory.peak; `max` everywhere is no limit."""
    cgroup = v2_job(tmp_path)
    (tmp_path / V2_JOB / "memory.peak").unlink()
    plant(tmp_path, {f"{os.path.dirname(V2_JOB)}/memory.max": "max\n"})
    plant(tmp_path, {f"{V2_JOB}/cpu.stat": "usage_usec 1\nnr_periods 0\nnr_throttled 0\n"})
    readings = collected(cgroup)
    assert str(readings["mem_limit_bytes"]) == "n/a no limit"
    assert str(readings["mem_peak_bytes"]) == "n/a no memory.peak"
    assert str(readings["cpu_throttled_percent"]) == "n/a no CPU quota"


def test_a_part_of_the_sum_that_is_missing_makes_it_missing(tmp_path):
    """An old kernel without `shmem`: anonymous memory alone would pass for all of it."""
    cgroup = v2_job(tmp_path)
    plant(tmp_path, {f"{V2_JOB}/memory.stat": "anon 100\nfile 300\n"})
    readings = collected(cgroup)
    assert readings["mem_anon_bytes"] == 100
    assert readings["mem_used_bytes"] == Missing("unsupported")
    assert readings["mem_cache_bytes"] == Missing("unsupported")


def test_a_job_that_has_ended(tmp_path):
    cgroup = v2_job(tmp_path / "mount")
    assert cgroup.exists
    (tmp_path / "mount").rename(tmp_path / "gone")
    assert not cgroup.exists
    readings = collected(cgroup)
    assert readings == dict.fromkeys(FIELDS["job"], Missing("ended"))


def test_outside_of_a_job_nothing_is_collected():
    tick = Tick(0, 0)
    cgroup = JobCgroup(None)
    cgroup.collect(tick)
    assert tick.rows == {}
    assert cgroup.pids() == []
    assert isinstance(cgroup.mem_limit_bytes(), Missing)
    assert not cgroup.exists


def test_real_cgroup_of_this_process_as_a_job():
    """Files of the running kernel, whichever version it has: the same sums as read by hand."""
    paths = {}
    for line in look("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    cgroup = JobCgroup(JobPath("job_1", "1", "0", None, paths))
    assert os.getpid() in cgroup.pids()
    readings = collected(cgroup)
    assert readings["processes"] >= 1
    values = {n: r for n, r in readings.items() if not isinstance(r, Missing)}
    assert values["cpu_s"] > 0
    for name, reading in values.items():
        assert FIELDS["job"][name].low <= reading <= FIELDS["job"][name].high, name


# -- parsers -----------------------------------------------------------------------------------


def test_io_totals():
    assert parse_io_stat("8:0 rbytes=1 wbytes=2\n8:16 rbytes=10 wbytes=x\n\n") == (11, 2)
    assert parse_blkio_bytes("8:0 Read 5\n8:0 Write 6\n8:0 Sync 9\nTotal 11\n") == (5, 6)


def test_device_minors():
    assert parse_device_minors("c 195:0 rw\nc 195:1 r\nc 136:* rwm\n") == {0, 1}
    assert parse_device_minors("c 195:* rwm\n") is None
    assert parse_device_minors("a *:* rwm\n") is None
    assert parse_device_minors("") == frozenset()
