"""A dashboard's side of the relay: finds or starts it, and asks it for streams of nodes.

Its socket is in a private folder of this host: $XDG_RUNTIME_DIR/gpumon, else one in /tmp that is
ours. Where there is none, or no process can be started, each dashboard runs an srun of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import gpumon
from gpumon import private
from gpumon.isolated import command
from gpumon.transport.payload import payload
from gpumon.transport.relay import GRACE_S
from gpumon.transport.stream import Failure

#: s for the relay to answer, which waits for nobody
_ANSWER_S = 10.0
_TRIES = 3
#: s; steps count for an hour
_KEPT_S = 7200.0
_PIECE_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 4 << 20
#: names in /tmp that are tried, should others have taken the first
_NAMES = 8
#: variables that decide which cluster srun speaks to
_STEERING = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS")
#: words that differ between dashboards of one job
_OWN_WORDS = ("--spread",)
_OWN_PAIRS = ("--interval",)


class Wanted(NamedTuple):
    """Streams that a dashboard asks for: what srun is to run, and where."""

    job: str  # the job and the component, in words of srun
    gpus: bool
    nodes: Sequence[str]
    agent: Sequence[str]  # the agent's command
    command: Sequence[str]  # srun's, for all of these nodes
    env: Mapping[str, str]
    may_start: bool = True  # else only what runs already is joined


class Joined(NamedTuple):
    """The answer: a stream of these nodes; the others may ask again in so many seconds."""

    stream: RelayStream | None
    nodes: list[str]
    wait_s: float
    has_started: bool = False  # it is a step for this dashboard


class RelayStream:
    """A connection to the relay, as a Stream of several nodes' labelled lines."""

    def __init__(self, line: socket.socket, first: bytes) -> None:
        """`first`: what came with the answer."""
        self._line = line
        self._first = first

    def read(self) -> bytes:
        first, self._first = self._first, b""
        try:
            return first or self._line.recv(_PIECE_BYTES)
        except OSError:
            return b""

    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        self._line.sendall(data)

    say = write

    def close(self) -> None:
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def complaint(self) -> str:
        return ""


def join(wanted: Wanted) -> Joined | None:
    """The nodes' streams from the relay, which is started if need be; None: there can be none.

    Raises Failure with what srun's start met.
    """
    try:
        with closing(_Folder()) as folder:
            for _ in range(_TRIES):
                line = folder.connect(may_start=wanted.may_start)
                with suppress(OSError, ValueError):
                    return _asked(line, wanted)
                line.close()  # it was just ending
    except OSError:
        pass
    return None


def _asked(line: socket.socket, wanted: Wanted) -> Joined:
    line.settimeout(_ANSWER_S)
    line.sendall(_request(wanted) + b"\n")
    data = b""
    while b"\n" not in data and len(data) < _MAX_ANSWER_BYTES:
        piece = line.recv(_PIECE_BYTES)
        if not piece:
            raise ConnectionError
        data += piece
    head, _, rest = data.partition(b"\n")
    answer = json.loads(head)
    nodes, why = list(answer["joined"]), str(answer["why"])
    if nodes:
        line.settimeout(None)
        started = bool(answer["started"])
        return Joined(RelayStream(line, rest), nodes, float(answer["wait_s"]), started)
    line.close()
    if why:
        raise Failure(why)
    return Joined(None, [], float(answer["wait_s"]))


def _request(wanted: Wanted) -> bytes:
    agent, interval_s = _shared_words(wanted.agent)
    steering = [wanted.env.get(name, "") for name in _STEERING]
    program = shutil.which(wanted.command[0], path=wanted.env.get("PATH")) or ""
    job = json.dumps([wanted.job, steering])
    modules = hashlib.sha256(payload()).hexdigest()
    body = {
        "job": job,
        "sign": json.dumps([job, wanted.gpus, program, modules, *agent]),
        "gpus": wanted.gpus,
        "interval_s": interval_s,
        "nodes": list(wanted.nodes),
        "command": list(wanted.command),
        "env": dict(wanted.env),
        "may_start": wanted.may_start,
    }
    return json.dumps(body).encode("ascii")


def _shared_words(agent: Sequence[str]) -> tuple[list[str], float]:
    """The agent's command without what each dashboard may have its own way; and its interval."""
    words, interval_s, rest = [], 1.0, iter(agent)
    for word in rest:
        if word in _OWN_PAIRS:
            interval_s = float(next(rest))
        elif word not in _OWN_WORDS:
            words.append(word)
    return words, interval_s


class _Folder:
    """The private folder with the relay's socket. Raises OSError where there is none."""

    def __init__(self) -> None:
        self._within = _open_folder()
        self._name = f"relay-{_place()}"

    def close(self) -> None:
        os.close(self._within)

    def connect(self, *, may_start: bool) -> socket.socket:
        """To the relay; starts it where there is none, if it may. Raises OSError."""
        with suppress(OSError):
            return self._connected()
        if not may_start:
            raise ConnectionRefusedError
        lock = private.open_file(self._within, f"{self._name}.lock", os.O_CREAT)
        try:
            _lock(lock)
            with suppress(OSError):  # somebody else was faster
                return self._connected()
            self._start()
            return self._connected()
        finally:
            os.close(lock)

    @property
    def _path(self) -> str:
        """By the folder's descriptor: short, and no link leads elsewhere."""
        return f"/proc/self/fd/{self._within}/{self._name}"

    def _connected(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.settimeout(_ANSWER_S)
            line.connect(self._path)
        except OSError:
            line.close()
            raise
        return line

    def _tidy(self) -> None:
        """Remove what containers that have gone knew of steps."""
        for name in os.listdir(self._within):
            with suppress(OSError):
                age_s = time.time() - os.stat(name, dir_fd=self._within).st_mtime
                if name.startswith("relay-") and name.endswith(".json") and age_s > _KEPT_S:
                    os.unlink(name, dir_fd=self._within)

    def _start(self) -> None:
        self._tidy()
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._within)
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(self._path)
            listener.listen(128)
            # a job's own processes end with it: nothing may be left to wait then
            grace_s = 0.0 if os.environ.get("SLURMD_NODENAME") else GRACE_S
            words = [str(listener.fileno()), str(self._within), self._name, f"{grace_s:g}"]
            argv = command("gpumon/transport/relay/__main__.py", *words)
            descriptors = (listener.fileno(), self._within)
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, pass_fds=descriptors,
            )  # fmt: skip
            try:
                has_failed = bool(child.wait(_ANSWER_S))
            except subprocess.TimeoutExpired:
                child.kill()
                has_failed = True
            if has_failed:
                os.unlink(self._name, dir_fd=self._within)
                raise ChildProcessError("the relay does not start")


def _lock(file: int) -> None:
    """Who has it starts a relay, which takes a moment. Raises OSError where it takes longer."""
    until = time.monotonic() + _ANSWER_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _place() -> str:
    """This version here: containers may share a folder, but not their processes."""
    first = ""
    with suppress(OSError), open("/proc/1/stat", encoding="utf-8", errors="replace") as file:
        first = file.read().rpartition(")")[2].split()[19]  # when it started
    here = [gpumon.__version__, os.uname().nodename, os.readlink("/proc/self/ns/pid"), first]
    return hashlib.sha256(json.dumps(here).encode()).hexdigest()[:16]


def _open_folder() -> int:
    for folder in _folders():
        with suppress(OSError):
            private.make_folder(folder)
            return private.open_folder(folder)
    raise FileNotFoundError("no private folder")


def _folders() -> Iterator[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    with suppress(OSError):
        status = os.lstat(runtime)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            yield os.path.join(runtime, "gpumon")
    for number in range(_NAMES):
        yield f"/tmp/gpumon-{os.geteuid()}" + (f"-{number}" if number else "")
