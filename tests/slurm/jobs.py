"""Jobs of every kind and fate. Each function submits one to the cluster and returns its id.

They are light: the machine has fewer processors than the nodes say. `args` are more options of
sbatch, `seconds` how long a job does what it does. An awaited fate is in the name and the text.
"""

from __future__ import annotations

import shlex

from tests.slurm.cluster import Cluster

_DABBLE = (
    "import time\nend = time.time() + {seconds}\n"
    "while time.time() < end: sum(range(500_000)); time.sleep(0.1)\n"
)
_HOLD = (
    "import time\ndata = bytearray({mib} << 20)\n"
    "for at in range(0, len(data), 4096): data[at] = 1\ntime.sleep({seconds})\n"
)


_GROW = (
    "import time\nheld = []\nfor _ in range({mib} // 8):\n"
    "    held.append(b'x' * (8 << 20)); time.sleep(0.02)\n"
)


def _python(text: str, **values: float) -> str:
    return f"python3 -c {shlex.quote(text.format(**values))}\n"


def dabble(seconds: float) -> str:
    """A line of a script that computes now and then: it hardly waits for a core, however busy."""
    return _python(_DABBLE, seconds=seconds)


def hold(mib: int, seconds: float) -> str:
    """A line of a script that holds so much memory."""
    return _python(_HOLD, mib=mib, seconds=seconds)


def grow(mib: int) -> str:
    """A line of a script that takes so much memory as one that loads a model does."""
    return _python(_GROW, mib=mib)


def over_requested(cluster: Cluster, *args: str, seconds: float = 60) -> str:
    """Four CPUs, 16 GiB and two hours asked for; uses part of one, 90 MiB and `seconds`."""
    script = f"{hold(90, seconds).strip()} &\n{dabble(seconds)}wait\n"
    return cluster.submit(script, "-J", "overreq", "-c4", "--mem=16G", "-t2:00:00", *args)


def oom_in_script(cluster: Cluster, *args: str) -> str:
    """OUT_OF_MEMORY, the batch step too."""
    return cluster.submit(hold(600, 30), "-J", "oom", "--mem=200M", *args)


def oom_in_step(cluster: Cluster, *args: str) -> str:
    """FAILED 1:0, and only step 0 OUT_OF_MEMORY."""
    return cluster.submit(f"srun {hold(600, 30)}", "-J", "oomstep", "--mem=200M", *args)


def timeout(cluster: Cluster, script: str = "sleep 600", *args: str) -> str:
    """TIMEOUT half a minute after its start, which is how often Slurm looks."""
    job = cluster.submit(script, "-J", "timeout", "--mem=300M", "-t1", *args)
    cluster.wait(job, "RUNNING")
    end_soon(cluster, job)
    return job


def end_soon(cluster: Cluster, job: str) -> None:
    """Let a running job's time be over."""
    cluster.run("ctl", ["scontrol", "update", f"JobId={job}", "EndTime=now+1second"], "root")


def failed(cluster: Cluster, *args: str) -> str:
    """FAILED 3:0."""
    return cluster.submit("echo bad >&2; exit 3", "-J", "failed", "--mem=100M", *args)


def segv(cluster: Cluster, *args: str) -> str:
    """FAILED 0:11."""
    return cluster.submit("kill -SEGV $$", "-J", "segv", "--mem=100M", *args)


def cancelled(cluster: Cluster, *args: str) -> str:
    """CANCELLED by its owner, after it ran."""
    job = cluster.submit("sleep 600", "-J", "cancelled", "--mem=100M", *args)
    cluster.wait(job, "RUNNING")
    cluster.run("login", ["scancel", job])
    return job


def array(cluster: Cluster, *args: str, seconds: float = 60) -> str:
    """Tasks 1 to 4, three at a time: ID_1 to ID_4."""
    script = f"sleep {seconds}"
    return cluster.submit(script, "-J", "array", "-a", "1-4%3", "--mem=100M", *args)


def heterogeneous(cluster: Cluster, *args: str, seconds: float = 60) -> str:
    """Two components, ID+0 on one CPU and ID+1 on two, and a step over both."""
    script = (
        f"#SBATCH -J het -n1 -c1 --mem=300M\n#SBATCH hetjob\n#SBATCH -n1 -c2 --mem=400M\n"
        f"srun --het-group=0,1 sleep {seconds}\n"
    )
    return cluster.submit(script, *args)


def two_nodes(cluster: Cluster, *args: str, seconds: float = 60) -> str:
    """Two tasks on each of two nodes, in one step."""
    script = f"srun sleep {seconds}"
    options = ["-J", "twonode", "-N2", "--ntasks-per-node=2", "--mem=600M"]
    return cluster.submit(script, *options, *args)


def gpus(cluster: Cluster, *args: str, count: int = 2, seconds: float = 60) -> str:
    """So many GPUs of one node, in a step."""
    script = f"srun sleep {seconds}"
    options = ["-J", "gpu", "-p", "gpu", f"--gres=gpu:a100:{count}", "-c2", "--mem=2G"]
    return cluster.submit(script, *options, *args)
