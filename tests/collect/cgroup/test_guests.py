"""gpumon's own processes in a job: their memory is not the job's, by whichever way they came."""

import pytest

from gpumon.collect.cgroup.guests import Guests
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import JobPath
from gpumon.collect.guest import NAME
from tests.collect.cgroup.test_job import Clock, collected
from tests.collect.trees import V2_JOB, plant, plant_v1, plant_v2

MIB = 1 << 20
GIB = 1 << 30
V1_JOB = "/slurm_node1/uid_20001/job_5"


def smaps(anon_mib, newer=True):
    own = f"Pss_Anon:  {anon_mib << 10} kB\n" if newer else ""
    return f"00400000-7fff00000000 ---p 00000000 00:00 0    [rollup]\nRss:  99999 kB\n{own}" + (
        f"Private_Dirty:        {anon_mib << 10} kB\n"
    )


def process(root, pid, comm, anon_mib=0, newer=True):
    plant(root / f"proc/{pid}", {"comm": f"{comm}\n", "smaps_rollup": smaps(anon_mib, newer)})


def v2(root):
    """A job of 26.05 with two processes of its own, 4001 and 4002, and one of ssh, 4000."""
    mounts = plant_v2(root / "cg")
    for pid in (4000, 4001, 4002):
        process(root, pid, "python3", 500)
    clock = Clock()
    return JobCgroup(
        JobPath("x", "5", "0", None, {"": f"/{V2_JOB}"}), f"{root}/proc", mounts, clock
    )


def charge(root, mib, peak_mib):
    plant(root / f"cg/{V2_JOB}", {
        "memory.current": f"{mib * MIB}\n", "memory.peak": f"{peak_mib * MIB}\n",
        "memory.stat": f"anon {mib * MIB}\nfile 0\nshmem 0\n",
    })  # fmt: skip


def join(root, step, *pids):
    plant(root / f"cg/{V2_JOB}/{step}", {"cgroup.procs": "".join(f"{pid}\n" for pid in pids)})


@pytest.mark.parametrize("newer", [True, False])
def test_all_of_them_are_taken_off_v2(tmp_path, newer):
    cgroup = v2(tmp_path)
    before = collected(cgroup)
    assert before["mem_gpumon_bytes"] == 0
    join(tmp_path, "step_extern/user/task_special", 4000, 5000)
    join(tmp_path, "step_7/user/task_0", 5001)
    process(tmp_path, 5000, NAME, 10, newer)
    process(tmp_path, 5001, NAME, 12, newer)
    cgroup._clock.now += 6
    after = collected(cgroup)
    assert after["mem_gpumon_bytes"] == 22 * MIB
    for name in ("mem_used_bytes", "mem_anon_bytes", "mem_charged_bytes"):
        assert before[name] - after[name] == 22 * MIB
    for name in ("mem_shmem_bytes", "mem_cache_bytes", "mem_limit_bytes", "mem_peak_bytes"):
        assert before[name] == after[name]  # the peak was before them


def test_all_of_them_are_taken_off_v1(tmp_path):
    mounts = plant_v1(tmp_path / "cg")
    job = JobPath("job_5", "5", "0", 20001, dict.fromkeys(("memory", "freezer"), V1_JOB))
    names = {}
    for name in ("before", "after"):
        cgroup = JobCgroup(job, f"{tmp_path}/proc", mounts)
        names[name] = collected(cgroup)
        for pid in cgroup.pids():
            process(tmp_path, pid, NAME, 4)
    pids = len(cgroup.pids())
    assert pids > 0
    before, after = names["before"], names["after"]
    assert after["mem_gpumon_bytes"] == pids * 4 * MIB
    assert after["mem_used_bytes"] == before["mem_used_bytes"] - pids * 4 * MIB
    assert after["mem_charged_bytes"] == max(0, before["mem_charged_bytes"] - pids * 4 * MIB)


def test_a_program_of_any_other_name_is_the_jobs(tmp_path):
    cgroup = v2(tmp_path)
    before = collected(cgroup)["mem_used_bytes"]
    for pid, name in ((4000, "gpumon"), (4001, "gpumon record"), (4002, f"{NAME} 2")):
        process(tmp_path, pid, name, 500)
    cgroup._clock.now += 60
    assert collected(cgroup)["mem_used_bytes"] == before


def test_one_that_is_new_counts_at_once_and_one_that_ended_no_more(tmp_path):
    clock = Clock()
    guests = Guests(f"{tmp_path}/proc", clock)
    process(tmp_path, 7, NAME, 10)
    held = []
    for pids in ([1, 7], [1, 7, 8], [1, 8], [1]):
        process(tmp_path, 8, NAME, 11)
        guests.look(pids)
        held.append(guests.held_bytes // MIB)
        clock.now += 0.5
    assert held == [10, 21, 11, 0]


def test_one_that_grows_is_looked_at_again(tmp_path):
    clock = Clock()
    guests = Guests(f"{tmp_path}/proc", clock)
    process(tmp_path, 7, "sh")
    guests.look([7])
    process(tmp_path, 7, NAME, 10)  # the shell has become the agent
    clock.now += 6
    guests.look([7])
    process(tmp_path, 7, NAME, 14)
    clock.now += 6
    guests.look([7])
    assert guests.held_bytes == 14 * MIB


def test_what_cannot_be_read_is_left_with_the_job(tmp_path):
    guests = Guests(f"{tmp_path}/proc")
    plant(tmp_path / "proc/7", {"comm": f"{NAME}\n"})
    plant(tmp_path / "proc/8", {"comm": f"{NAME}\n", "smaps_rollup": "Pss_Anon: many kB\n"})
    guests.look([7, 8, 9])
    assert guests.held_bytes == 0


#: (charged, the kernel's peak, what guests hold) of each look, all MiB -> the job's own peak
PEAKS = [
    ([(14, 15, 10)], 5),  # a job that only sleeps: the peak was ours, too
    ([(100, 300, 10)], 300),  # from before us
    ([(100, 300, 10), (200, 300, 10)], 300),
    ([(100, 300, 10), (320, 330, 10)], 320),  # it rose while we were there
    ([(14, 15, 10), (26, 27, 22), (38, 40, 34)], 6),  # others came, the job did nothing
    ([(14, 15, 10), (200, 210, 10), (38, 210, 34)], 200),
    ([(14, 15, 10), (80, 90, 30), (60, 90, 10), (90, 95, 10)], 85),  # one left
    ([(5, 5, 10)], 0),
]


@pytest.mark.parametrize(("looks", "peak"), PEAKS)
def test_the_kernels_peak_without_guests(tmp_path, looks, peak):
    cgroup = v2(tmp_path)
    join(tmp_path, "step_7/user/task_0", 5000)
    for charged, kernel, held in looks:
        process(tmp_path, 5000, NAME, held)
        charge(tmp_path, charged, kernel)
        told = collected(cgroup)
        cgroup._clock.now += 6
    assert told["mem_peak_bytes"] // MIB == peak
