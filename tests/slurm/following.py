"""For tests of `gpumon attach` on the cluster: a source that is watched, agents that are sought."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import threading
import time

from gpumon.slurm.job import OWN_STEP
from tests.e2e.program import environment
from tests.slurm.cluster import end
from tests.support.waiting import HANGS_S, until

#: the process on the login host that owns the sruns
RELAY = "relay/__main__[.]py"
#: agents end sooner than by themselves, which takes them 45 s
SOON_S = 30

#: Slurm's answers stand for seconds, as this cluster's controller has little to do
QUICKLY = """\
from gpumon.slurm import client, looking, pace
from gpumon.sources import watched
for module in client, looking, pace, watched:
    module.LEAST_PERIOD_S = 2.0
watched.ASK_S = watched.SELDOM_S = 3.0
client.Slurm.__init__.__kwdefaults__["controller_period_s"] = 2.0
"""

#: prints what the source brings as lines of JSON, until its input ends
FOLLOW = (
    QUICKLY
    + """\
import json, os, sys, threading, time
from gpumon.services import jobs as finding
from gpumon.services.attach import watch
from gpumon.services.prompting import Prompting
from gpumon.config import Settings
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording.runs import marks_dir
from gpumon.slurm import ids
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import LocalRunner
from gpumon.sources import attach, attempt
from gpumon.transport import payload
from gpumon.transport.available import AvailableTransports, here
from gpumon.tui.jobs import restart_text

attempt.SILENCE_S, attach.HEARTBEAT_S = 6.0, 1.0
if "AGENT_SILENCE_S" in os.environ:
    modules = payload.modules()
    is_package, text = modules["gpumon.collect.stream"]
    silence_s = os.environ["AGENT_SILENCE_S"]
    modules["gpumon.collect.stream"] = is_package, text + "\\n_SILENCE_S = " + silence_s
    payload.modules = lambda: modules
slurm = Slurm(LocalRunner())
jobs = finding.find_jobs(slurm, ids.parse(sys.argv[1]))
finding.check(jobs, remote=False)

class Sink:
    def _say(self, *what):
        os.write(1, (json.dumps(what) + "\\n").encode())
    def header(self, node, header):
        job = header.job and header.job.id
        self._say("header", node, job, [d.uuid for d in header.devices], header.agent_pid)
    def add(self, node, sample, received=None):
        job = sample.rows.get("job", {}).get("", {})
        told = {name: each for name, each in job.items() if isinstance(each, (int, float))}
        self._say("sample", node, sample.time, told)
    def status(self, node, status):
        self._say("status", node, status.state, status.detail, status.source)
    def reset(self): pass

via = sys.argv[2] if len(sys.argv) > 2 else None
available = AvailableTransports(Prompting(), here({}), via=via)
source = watch(jobs, slurm, available, (), Settings(interval_s=0.5))
source._ask_s = float(os.environ.get("ASK_S", 3))
sink = Sink()
followed = RecorderStage(source, marks_dir(), record=True) if "RECORD" in os.environ else source
followed.start(sink)

def watch_state():
    known = ()
    while True:
        job = source.job()
        if (job.state, restart_text(job)) != known:
            known = job.state, restart_text(job)
            sink._say("job", "", *known)
        time.sleep(0.2)

threading.Thread(target=watch_state, daemon=True).start()
sys.stdin.read()
followed.stop()
"""
)


_NUMBERS = itertools.count()


class Following:
    """A source on the login node, watched from here."""

    def __init__(self, cluster, job, via=None, user="alice", env=None):
        python = cluster.folder / "venv" / "bin" / "python"
        name = f"follow-{os.getpid()}-{next(_NUMBERS)}.py"  # nobody else writes it while it starts
        argv = [python, cluster.write(name, FOLLOW, user), job, *([via] if via else [])]
        self.process = cluster.popen("login", argv, user, env=env, stdin=subprocess.PIPE, text=True)
        self.got = []
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def until(self, holds):
        """Read on until something holds of what has come."""
        deadline = time.monotonic() + HANGS_S
        while not holds(self):
            with contextlib.suppress(queue.Empty):
                item = self._lines.get(timeout=1)
                assert item is not None, f"it has ended: {self.process.stderr.read()}"
                self.got.append(item)
            assert time.monotonic() < deadline, self.got[-8:]

    def of(self, kind, node):
        return [what[2:] for what in self.got if what[:2] == [kind, node]]

    def states(self, node):
        return [status[0] for status in self.of("status", node)]

    @property
    def job_states(self):
        """Of the job, as the screen would show them."""
        return [state for state, _ in self.of("job", "")]

    def last(self, node):
        return self.of("status", node)[-1]

    def live(self, *nodes):
        self.until(lambda self: all(self.of("sample", node) for node in nodes))

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(HANGS_S) == 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end(self.process)


def agents(cluster, job, *nodes):
    """A job's agents on these nodes, with what brings them there, and its sruns on
    the login node. Other tests have theirs.
    """
    found = {node: cluster.pids(node, f"zlib.decompres[s].* --job ({job})\\b") for node in nodes}
    found["login"] = cluster.pids("login", f"srun --jobid=({job}) .*--job-name=gpumon/agen[t]")
    return {node: pids for node, pids in found.items() if pids}


def gone(cluster, job, *nodes):
    """Soon nothing of gpumon is left there, whatever ended."""
    until(lambda: not agents(cluster, job, *nodes), "no agent is left", SOON_S)


def attach(cluster, *args, **options):
    return cluster.run("login", ["gpumon", "attach", "--no-record", *args], check=False, **options)


def laptop(cluster, folder):
    """The environment of a user on this machine, whose ssh knows the way to the login host."""
    (folder / "bin").mkdir()
    ssh = folder / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {cluster.ssh_config} "$@"\n')
    ssh.chmod(0o755)
    return environment(PATH=f"{ssh.parent}:{os.environ['PATH']}")


def heads(done):
    """The nodes of which there is a sample, in order."""
    return [line.split()[0] for line in done.stdout.splitlines() if " driver " in line]


def gpumon_steps(cluster, job):
    return [row for row in cluster.accounting(job, "JobName", "State", "ExitCode")
            if row["JobName"] == OWN_STEP]  # fmt: skip
