"""How much memory a guest may count on: by the agent, and by the shell before there is a Python."""

import shutil
import subprocess

import pytest

from gpumon.collect.cgroup.room import LEAVE_BYTES, START_BYTES, Room, lacking
from gpumon.transport.payload import _ROOM
from tests.collect.trees import V2_JOB, plant, plant_v2

MIB = 1 << 20
STEP = f"{V2_JOB}/step_0/user/task_0"
JOB_V1 = "slurm_node1/uid_20001/job_5"
MAX_V1 = "9223372036854771712\n"
SHELLS = [shell for shell in ("dash", "bash", "busybox", "ksh", "mksh") if shutil.which(shell)]


def v2(root, limit=300, used=0, inactive=0, active=0, shmem=0, **more):
    """A job's tree with cgroup v2, in MiB, and /proc of a process in its step."""
    plant_v2(root / "cg")
    stat = f"anon 1\nfile {(inactive + active + shmem) * MIB}\nshmem {shmem * MIB}\n"
    stat += f"inactive_file {inactive * MIB}\nactive_file {active * MIB}\n"
    files = {
        "memory.max": f"{limit * MIB}\n", "memory.current": f"{used * MIB}\n", "memory.stat": stat
    }  # fmt: skip
    plant(root / f"cg/{V2_JOB}", {**files, **more})
    mount = f"30 23 0:26 / {root}/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    return proc(root, f"0::/{STEP}\n", mount)


def v1(root, limit=300, used=0, inactive=0, active=0, shmem=0, top="", above="/"):
    job = JOB_V1
    cache = (inactive + active + shmem) * MIB
    stat = f"cache 1\ntotal_cache {cache}\ntotal_shmem {shmem * MIB}\n"
    stat += f"inactive_file 7\ntotal_inactive_file {inactive * MIB}\nfoo 1\n"
    for folder, of in ((f"{job}/step_0", MAX_V1), (job, f"{limit * MIB}\n"), ("", MAX_V1)):
        plant(
            root / "cg/memory" / folder,
            {
                "memory.limit_in_bytes": of,
                "memory.usage_in_bytes": f"{used * MIB}\n",
                "memory.stat": stat,
            },
        )
    mounts = (
        f"31 23 0:28 / {root}/cg rw - tmpfs tmpfs rw,mode=755\n"
        f"33 31 0:30 / {root}/cg/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        f"34 31 0:32 /../.. {root}/elsewhere rw - cgroup cgroup rw,memory\n"
        f"35 31 0:32 {above} {root}/cg/memory rw - cgroup cgroup rw,memory\n"
        f"41 31 0:38 / {root}/cg/unified rw - cgroup2 cgroup2 rw\n"
    )
    cgroup = f"11:cpu,cpuacct:/\n4:memory:{above.rstrip('/')}/{job}/step_0\n0::/\n"
    return proc(root, cgroup, mounts)


def proc(root, cgroup, mounts):
    plant(root / "proc/self", {"cgroup": cgroup, "mountinfo": mounts})
    return root


def room(root):
    return Room(str(root / "proc"))


def shell_says(root, shell="sh"):
    text = _ROOM.replace("/proc/self", f"{root}/proc/self")
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    argv = [*words, "-c", f"exec 4>&2 2>/dev/null; {text} echo starts"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0
    assert bool(done.stderr) != (done.stdout == "starts\n")
    return done.stderr.strip()


#: a tree, and how much of it is free before a start and for who stays
TREES = [
    (v2, {"used": 100}, 200, 200),
    (v2, {"used": 289}, 11, 11),
    (v2, {"used": 299, "inactive": 60, "active": 100, "shmem": 100}, 61, 161),
    (v2, {"used": 299, "inactive": 64}, 65, 65),
    (v2, {"memory.high": f"{100 * MIB}\n", "used": 90}, 10, 10),
    (v2, {"limit": 100 << 10, "used": 8192}, 0, 0),  # full one level above the job
    (v1, {"used": 100}, 200, 200),
    (v1, {"used": 289}, 11, 11),
    (v1, {"used": 299, "inactive": 62, "active": 10, "shmem": 10}, 63, 73),
    (v1, {"used": 310}, -10, -10),
    (v1, {"used": 289, "above": "/host"}, 11, 11),
]


@pytest.mark.parametrize(("tree", "files", "start", "stay"), TREES)
def test_what_is_free(tmp_path, tree, files, start, stay):
    root = tree(tmp_path, **files)
    if files.get("limit") == 100 << 10:
        plant(root / "cg" / V2_JOB.rpartition("/")[0], {"memory.current": f"{8192 * MIB}\n"})
    free = room(root)
    assert free.to_start_bytes() // MIB == start
    assert free.to_stay_bytes() // MIB == stay
    assert (free.patience_s() == 0.0) == (stay * MIB < LEAVE_BYTES)
    for shell in SHELLS:
        told = shell_says(root, shell)
        assert told == (lacking(start * MIB) if start * MIB < START_BYTES else "")


UNKNOWN = [
    ("0::/\n", ""),
    ("0::/job\n", "30 23 0:26 /other {root}/cg rw - cgroup2 cgroup2 rw\n"),  # not mounted here
    ("4:memory:/job\n", "30 23 0:26 / {root}/cg rw - cgroup2 cgroup2 rw\n"),
    ("", "30 23 0:26 / {root}/cg rw - cgroup2 cgroup2 rw\n"),
]


@pytest.mark.parametrize(("cgroup", "mounts"), UNKNOWN)
def test_where_nothing_is_known_nothing_is_refused(tmp_path, cgroup, mounts):
    plant(tmp_path / "cg/job", {"memory.max": "4096\n", "memory.current": "4096\n"})
    root = proc(tmp_path, cgroup, mounts.format(root=tmp_path))
    assert room(root).to_start_bytes() is None
    assert room(root).patience_s() == float("inf")
    assert [shell_says(root, shell) for shell in SHELLS] == [""] * len(SHELLS)


DAMAGE = {"memory.max": "12x\n", "memory.current": "", "memory.stat": "inactive_file\n"}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_read_refuses_nothing(tmp_path, name):
    root = v2(tmp_path, used=100, **{name: DAMAGE[name]})
    (root / "cg" / V2_JOB.rpartition("/")[0] / "memory.max").unlink()
    assert [shell_says(root, shell) for shell in SHELLS] == [""] * len(SHELLS)
    assert (room(root).to_start_bytes() or START_BYTES) >= START_BYTES


def test_who_is_near_the_limit_looks_more_often(tmp_path):
    waits = [room(v2(tmp_path / str(used), used=used)).patience_s() for used in (0, 200, 240, 260)]
    assert waits == sorted(waits, reverse=True)
    assert 0.0 < waits[2] < 0.05
    assert waits[3] == 0.0
