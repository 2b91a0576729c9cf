"""Trees of files that stand for another node's /proc, /sys and cgroup file systems."""

import os
from pathlib import Path

from gpumon.collect.cgroup.path import Mount

FIXTURES = Path(__file__).parent / "fixtures"

#: what `plant_v2` builds: a job of 26.05 named by its SLUID, and what it holds
SLUID = "sEKNKTV3WPV500"
V2_JOB = f"system.slice/node1_slurmstepd.scope/{SLUID}"
V2_STEP_CGROUP = f"0::/{V2_JOB}/step_0/user/task_0\n"


def fixture(name):
    return (FIXTURES / name).read_text()


def environ(name):
    return dict(line.split("=", 1) for line in fixture(name).splitlines())


def plant(root, files):
    """Write name -> text (or bytes) below the directory `root`."""
    for name, content in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)


def plant_v1(root):
    """Job 5 of a node with cgroup v1, as it was read there; returns the mounts.

    The sample has one file a line: `./controller/path/file: line;line;`.
    """
    files = {}
    for line in fixture("cgroupfs-v1-job5.txt").splitlines():
        name, _, content = line.partition(": ")
        files[name] = content.replace(";", "\n")
    files["memory/slurm_node1/uid_20001/job_5/memory.stat"] = fixture("memory-stat-v1.txt")
    plant(root, files)
    return {name: Mount(f"{root}/{name}", "/") for name in os.listdir(root)}


def plant_v2(root):
    """A job with cgroup v2; the limit stands one level above it. Returns the mounts."""
    job = V2_JOB
    files = {
        "cgroup.controllers": "cpuset cpu io memory pids\n",
        f"{os.path.dirname(job)}/memory.max": "8589934592\n",
        f"{job}/memory.max": "max\n",
        f"{job}/memory.current": "5368709120\n",
        f"{job}/memory.peak": "6442450944\n",
        f"{job}/memory.swap.current": "4096\n",
        f"{job}/memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
        f"{job}/memory.stat": fixture("memory-stat-v2.txt"),
        f"{job}/cpu.stat": fixture("cpu-stat-v2.txt"),
        f"{job}/cpuset.cpus.effective": "0-3,8\n",
        f"{job}/io.stat": "259:0 rbytes=1000 wbytes=2000 rios=1 wios=2 dbytes=0 dios=0\n"
        "8:0 rbytes=24 wbytes=48\n",
        f"{job}/cpu.pressure": "some avg10=1.53 avg60=0.87 avg300=0.22 total=1234\n"
        "full avg10=0.50 avg60=0.00 avg300=0.00 total=0\n",
        f"{job}/io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        f"{job}/cgroup.procs": "",
        f"{job}/step_0/cgroup.procs": "",
        f"{job}/step_0/user/task_0/cgroup.procs": "4001\n4002\n0\n",
        f"{job}/step_extern/user/task_special/cgroup.procs": "4000\n",
    }
    plant(root, files)
    return {"": Mount(str(root), "/")}


def stat_line(pid, comm="python", state="S", ppid=1, session=None, ticks=(0, 0), start=1000):
    """A line of /proc/PID/stat, with 3 threads and 100 pages."""
    session = pid if session is None else session
    before = [state, ppid, pid, session, 0, -1, 4194304, 100, 0, 0, 0]
    after = [ticks[0], ticks[1], 0, 0, 20, 0, 3, 0, start, 123456789, 100, 2**64 - 1]
    numbers = " ".join(map(str, before[:11] + after + [1] * 28))
    return f"{pid} ({comm}) {numbers}\n"


def plant_process(root, pid, cmdline=b"python\0train.py\0", uid=1000, inner=None, **stat):
    """One process of a /proc tree."""
    namespaces = "\t".join(map(str, [pid, *([inner] if inner else [])]))
    plant(
        root,
        {
            f"{pid}/stat": stat_line(pid, **stat),
            f"{pid}/status": f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{namespaces}\n",
            f"{pid}/cmdline": cmdline,
            f"{pid}/cgroup": "0::/\n",
            f"{pid}/environ": b"PATH=/bin\0",
            f"{pid}/maps": "",
            f"{pid}/io": "rchar: 1000\nwchar: 500\nsyscr: 1\nread_bytes: 0\nwrite_bytes: 0\n",
        },
    )
