"""A real Slurm cluster for tests: hosts `login`, `node1` to `node5` (and `ctl`, which runs Slurm).

    def test_something(cluster):
        job = cluster.submit("srun sleep 60", "--gres=gpu:2", "-p", "gpu")
        cluster.wait(job, "RUNNING")
        done = cluster.run("login", ["squeue", "-j", job])

    with cluster.job("sleep 60", "-w", "node2") as job:  # runs; is cancelled at the end
        cluster.run("node2", ["gpumon", "once"], user="bob")

The fixture `cluster` (conftest.py) makes one for a whole run of pytest, shared by its workers; it
skips where the machine cannot run it. Tests go on beside each other: they know their own jobs and
processes by id, and expect others. Everybody's home is on all hosts, and here under `home(user)`.
Each host has its own /etc and /tmp, and each cluster its own ids of users: clusters of other runs
and packages that are installed on the machine change nothing here.

- **Users** `alice`, `bob` and `carol` (account `research`) and root. carol is for tests that must
  know all jobs of a user, one at a time: `with cluster.carol():`. Commands and jobs of `run` and
  `submit` find `gpumon` (an environment on the shared file system) and `python` in their PATH;
  an ssh session does not: to it the nodes have /usr/bin/python3 and nothing of ours.
- **Nodes** have 8 CPUs, 64 GB and 4 GPUs (`gpu:a100`) as Slurm counts them; the machine has less,
  so nothing may depend on how fast they are. `node1` to `node3` make up the partitions `standard`
  and `gpu`. ssh to `node3` asks pam_slurm_adopt, where it is installed: no job there, no entry.
- **`node4` and `node5`**, in the partition `faults`, are for tests that break things, each for one
  at a time: `with cluster.faulty() as node:` waits for its turn and mends it afterwards; its jobs
  have `-p faults -w node`. `-p all -w node2,node` puts a job on a sound node, too.
- **ssh** from here: `ssh -F cluster.ssh_config login`, `... node1` (through login), `node1-direct`.
- **GPUs** are the emulated driver's: a job sees those that its device cgroup lets it open. `gpus`
  changes what they say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Union

from tests.nvml.scenario import Scenario
from tests.support.waiting import HANGS_S, until

TESTBED = Path(__file__).parent / "testbed" / "cluster.sh"
#: of all clusters of this machine, as in cluster.sh; nobody but root can put anything there
FOLDER = Path("/var/lib/gpumon-cluster")
NODES = ("node1", "node2", "node3", "node4", "node5")
#: those that tests may break
FAULTY = NODES[3:]
USERS = ("alice", "bob", "carol")
#: s before a question that Slurm dropped is asked again
_ASKED_AGAIN_S = (0.2, 1.0, 5.0)
#: the shell's exit code for signal 0
_SIGNALLED = 128
#: what Slurm's commands say of a question that was dropped (slurm_strerror and strerror)
_DROPPED = re.compile(
    "Broken pipe|Connection reset|Socket timed out|Zero Bytes were transmitted"
    "|Unable to contact slurm|Transport endpoint is not connected"
)
#: states in which a job stays
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "TIMEOUT",
}  # fmt: skip

Words = Sequence[Union[str, Path]]


class Cluster:
    """A cluster that is up."""

    def __init__(self, number: int) -> None:
        self.folder = FOLDER / str(number)  # the same path on every host
        self.name = "gpumon"
        self._number = number
        self._uid_base = 20000 + 100 * number  # as in cluster.sh

    # -- commands ----------------------------------------------------------------------------------
    def command(
        self, host: str, argv: Words, user: str = "alice", env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command line that runs `argv` on a host, in the user's home and bare environment."""
        settings = [f"{name}={value}" for name, value in (env or {}).items()]
        words = ["env", *settings, *map(str, argv)] if settings else list(map(str, argv))
        return [str(TESTBED), "exec", "-u", user, host, *words]

    def run(
        self,
        host: str,
        argv: Words,
        user: str = "alice",
        *,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = HANGS_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. With `check`, an exit code other than 0 fails the test."""
        with self.popen(
            host, argv, user, env=env, text=True,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(input, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                end(process)
                out, err = process.communicate()
                said = f"{out}\n{err}"
                raise AssertionError(
                    f"{argv} on {host}: not within {timeout_s:g} s\n{said}"
                ) from None
            except BaseException:
                end(process)
                raise
        done = subprocess.CompletedProcess(list(map(str, argv)), process.returncode, out, err)
        assert not check or done.returncode == 0, f"{done.args} on {host}: {done.returncode}\n{err}"
        return done

    def popen(
        self,
        host: str,
        argv: Words,
        user: str = "alice",
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a command, in a session of its own: `end` ends it with all that it started."""
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, "GPUMON_CLUSTER_ID": str(self._number)},
            "start_new_session": True,
        }
        command = self.command(host, argv, user, env)
        return subprocess.Popen(command, **{**settings, **options})

    # -- jobs --------------------------------------------------------------------------------------
    def submit(
        self, script: str, *args: str, user: str = "alice", env: Mapping[str, str] | None = None
    ) -> str:
        """Submit a batch script (with or without its first line); the job's id.

        It runs in the user's home and writes to `output(job)`.
        """
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
        argv = ["sbatch", "--parsable", *args]
        return self.run("login", argv, user, input=text, env=env).stdout.strip().split(";")[0]

    @contextlib.contextmanager
    def job(self, script: str, *args: str, user: str = "alice") -> Iterator[str]:
        """A job that runs inside the block, and is cancelled at its end."""
        job = self.submit(script, *args, user=user)
        try:
            self.wait(job, "RUNNING")
            yield job
        finally:
            self.cancel(job)

    def ask(self, *argv: str) -> str:
        """What a command of Slurm prints of the cluster's state, as root.

        On a busy machine a daemon now and then drops a question. The command then says so, or
        crashes: `scontrol show job -d` of 22.05 to 24.05 does if its second question, the one about
        the nodes, gets no answer. Both are asked again, with a warning in the run's summary; every
        other failure counts.
        """
        for pause_s in _ASKED_AGAIN_S:
            done = self.run("ctl", argv, "root", check=False)
            if done.returncode <= _SIGNALLED and not _DROPPED.search(done.stderr):
                break
            warnings.warn(f"{argv}: {done.returncode} {done.stderr.strip()}", stacklevel=2)
            time.sleep(pause_s)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr}"
        return done.stdout

    def cancel(self, job: str, *args: str) -> None:
        self.run("ctl", ["scancel", *args, job], user="root", check=False)

    def wait(self, job: str, *states: str, timeout_s: float = HANGS_S) -> str:
        """Wait until the job is in one of these states, or, without any, has ended; its state."""

        def there() -> str:
            state = self.show(job).get("JobState", "")
            assert state in wanted or state not in ENDED, f"job {job} is {state}\n{self.log(job)}"
            return state if state in wanted else ""

        wanted = set(states) or ENDED
        return until(there, f"job {job} in {wanted}", timeout_s)

    def show(self, job: str) -> dict[str, str]:
        """What `scontrol show job -d` says of it: name -> value; of several (het), of the first."""
        text = self.ask("scontrol", "-o", "show", "job", "-d", job)
        pairs = re.findall(r"(\S+?)=(.*?)(?= [A-Za-z/:]+=|\s*$)", text.splitlines()[0])
        return dict(pairs)

    def accounting(self, job: str, *fields: str) -> list[dict[str, str]]:
        """Rows of sacct: the job, or its tasks or components, and the steps of each."""
        names = ["JobID", *fields]
        argv = ["sacct", "-n", "-P", "--delimiter=\x1f", "-j", job, "-o", ",".join(names)]
        lines = self.ask(*argv).splitlines()
        return [dict(zip(names, line.split("\x1f"))) for line in lines]

    def accounted(self, job: str, *fields: str) -> dict[str, str]:
        """The job's row of sacct, once the accounting knows that it has ended."""

        def ended() -> dict[str, str]:
            rows = self.accounting(job, "State", "End", *fields)
            done = rows and all(row["End"] != "Unknown" for row in rows)
            return rows[0] if done else {}

        return until(ended, f"sacct of job {job}")

    def nodes(self, job: str) -> list[str]:
        """The nodes of a job that runs or ran, in Slurm's order."""
        return self.expanded(self.show(job)["NodeList"])

    def expanded(self, hosts: str) -> list[str]:
        """The nodes of a host list, in Slurm's order."""
        return self.ask("scontrol", "show", "hostnames", hosts).split()

    # -- files -------------------------------------------------------------------------------------
    def home(self, user: str = "alice") -> Path:
        return self.folder / "home" / user

    def uid(self, user: str = "alice") -> int:
        """The user's number, which no user of another cluster has."""
        return self._uid_base + 1 + USERS.index(user)

    def nameless_uid(self, number: int) -> int:
        """A number, of 0 to 9, that no user has."""
        return self._uid_base + 50 + number

    def log(self, job: str, user: str = "alice") -> str:
        """What the job has written so far: standard output and standard error."""
        path = self.home(user) / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def write(self, name: str, text: str, user: str = "alice") -> Path:
        """A file in the user's home; its path, the same on every host."""
        path = self.home(user) / name
        path.write_text(text)
        path.chmod(0o755)
        os.chown(path, self.uid(user), self._uid_base)
        return path

    # -- ssh ---------------------------------------------------------------------------------------
    @property
    def ssh_config(self) -> Path:
        """For `ssh -F` from this machine, where the user sits: keys, known hosts and the jump."""
        return self.folder / "ssh" / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "ssh" / "known_hosts"

    def address(self, host: str) -> str:
        """A host's IPv4 address, reachable from here."""
        last = {"ctl": 2, "login": 10}.get(host) or 10 + int(host.removeprefix("node"))
        return f"198.18.{self._number}.{last}"

    # -- faults ------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def faulty(self) -> Iterator[str]:
        """A node for this test alone; mended at the end. Jobs get there by `-p faults -w`."""
        with self._alone(*FAULTY) as node:
            try:
                yield node
            finally:
                self.link(node, up=True)
                uids = ",".join(str(self.uid(user)) for user in USERS)
                self.run(node, ["pkill", "-CONT", "-U", uids], "root", check=False)
                self.start_sshd(node)

    @contextlib.contextmanager
    def carol(self) -> Iterator[None]:
        """No other test has jobs of carol's meanwhile."""
        with self._alone("carol"):
            yield

    @contextlib.contextmanager
    def _alone(self, *names: str) -> Iterator[str]:
        """One of these, which no other test holds meanwhile."""
        with contextlib.ExitStack() as stack:
            locks = {
                name: stack.enter_context((self.folder / f"{name}.lock").open("w"))
                for name in names
            }

            def first_free() -> str:
                return next((name for name, lock in locks.items() if _locked(lock)), "")

            yield until(first_free, f"one of {names} is free", 30 * HANGS_S)

    def link(self, node: str, *, up: bool) -> None:
        """Pull a node's network cable (nothing answers, nothing is refused), or put it back."""
        command = [str(TESTBED), "link", node, "up" if up else "down"]
        env = {**os.environ, "GPUMON_CLUSTER_ID": str(self._number)}
        subprocess.run(command, check=True, env=env, timeout=HANGS_S)

    def stop_sshd(self, node: str) -> None:
        """End a node's sshd and all its sessions: they break, and new ones are refused."""
        self.run(node, ["pkill", "-KILL", "-x", "sshd"], "root", check=False)

    def start_sshd(self, node: str) -> None:
        """Let a node take connections again; nothing where it does."""
        if self.run(node, ["pgrep", "-x", "sshd"], "root", check=False).returncode:
            self.run(node, ["start-sshd"], "root")

    def pids(self, node: str, pattern: str) -> list[int]:
        """Processes on a node whose command line matches, by their numbers there."""
        return list(
            map(int, self.run(node, ["pgrep", "-f", pattern], "root", check=False).stdout.split())
        )

    def kill(self, node: str, number: signal.Signals, *pids: int) -> None:
        """A signal to processes of a node, by their numbers there: SIGSTOP pauses them."""
        self.run(node, ["kill", f"-{int(number)}", *map(str, pids)], "root")

    # -- GPUs --------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def gpus(self, node: str, scenario: Scenario | str) -> Iterator[None]:
        """Let a node's GPUs 0-3 say something else; lines of a scenario that win.

        Meant for `faulty` nodes: every job on the node sees it. Pids are those of the node.
        """
        path = self.folder / "nodes" / f"{node}.scn"
        before = path.read_text()
        text = scenario if isinstance(scenario, str) else scenario.text()
        _replace(path, f"{before}\n{text}\n")
        try:
            yield
        finally:
            _replace(path, before)

    def uuid(self, node: str, minor: int) -> str:
        """The UUID of the GPU behind a node's /dev/nvidia<minor>."""
        return f"GPU-0000000{node.removeprefix('node')}-0000-4000-8000-00000000000{minor}"


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill what `popen` started, with its children, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
