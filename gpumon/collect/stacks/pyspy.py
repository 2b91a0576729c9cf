"""py-spy, where it is installed: the stacks of a Python process, read from outside.

Only with `--nonblocking`: its default mode stops every thread, and has frozen programs with many
threads (py-spy's issue 872). Without stopping, what it reads may change meanwhile: then once more.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from typing import Any, NamedTuple

from gpumon.collect.procfs import parse_count
from gpumon.model.stack import MAX_FRAMES, MAX_NAME, MAX_THREADS, MAX_TOGETHER, Frame, ThreadStack
from gpumon.model.text import clean

_NAME = "py-spy"
_PATIENCE_S = 3.0
_TRIES = 3
_MOST_BYTES, _MOST_COMPLAINT_BYTES = 2 << 20, 8192
_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
#: what an installed package's file lies below, and one of Python's own
_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib(?:64)?/python\d+(?:\.\d+)?)/(.+)")

#: what torch.compile and TensorFlow's AutoGraph write
_GENERATED = re.compile(r"/torchinductor_|/__autograph_generated_file")


class Dump(NamedTuple):
    """Threads, the main one first; or `why` there are none, as `Stack.why`, and its detail."""

    threads: tuple[ThreadStack, ...] = ()
    why: str = ""
    detail: str = ""


def find(beside: str = "", path: str | None = None) -> str:
    """Where it is: in PATH, or at `beside`; "" if nowhere."""
    folders = os.get_exec_path() if path is None else path.split(os.pathsep)
    places = [os.path.join(folder, _NAME) for folder in folders if os.path.isabs(folder)]
    if os.path.basename(beside) == _NAME and os.path.isabs(beside):
        places.append(beside)
    return next((each for each in places if os.path.isfile(each) and os.access(each, os.X_OK)), "")


def beside_python() -> str:
    """Where it lies if it was installed with gpumon, as nodes may see it, too; "" if nowhere."""
    path = os.path.join(os.path.dirname(sys.executable), _NAME)
    return path if os.path.exists(path) else ""


def dump(program: str, pid: int) -> Dump:
    """The stacks of all threads of a process that this user may read."""
    found = Dump(why="timeout")
    until = time.monotonic() + _PATIENCE_S
    for _ in range(_TRIES):
        argv = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        ended = _run(argv, until)
        if ended is None:
            return Dump(why="timeout")
        found = _read(pid, *ended)
        if found.threads or found.why != "failed":
            break
    return found


def _read(pid: int, output: bytes, complaint: str) -> Dump:
    try:
        threads = _threads(pid, json.loads(output))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _refusal(pid, complaint)
    return Dump(threads) if threads else Dump(why="failed", detail="no thread with a Python stack")


def _refusal(pid: int, complaint: str) -> Dump:
    """Why it told nothing, from what it said first."""
    first = clean(complaint.strip().split("\n")[0].removeprefix("Error: "), 120)
    if not os.path.exists(f"/proc/{pid}"):
        return Dump(why="ended")
    if "ermission" in first:
        scope = ptrace_scope()
        return Dump(why="ptrace", detail=str(scope)) if scope else Dump(why="refused")
    if "find python version" in first:
        return Dump(why="not-python")
    return Dump(why="failed", detail=first or "no output")


def ptrace_scope() -> int:
    """0 where a user may read all of their own processes, else 1 to 3 (Yama's documentation)."""
    try:
        with open(_SCOPE) as file:
            return parse_count(file.read(20)) or 0
    except OSError:  # a kernel without Yama
        return 0


# -- what it prints --------------------------------------------------------------------------------


def _threads(pid: int, told: list[dict[str, Any]]) -> tuple[ThreadStack, ...]:
    """Those with frames. In another PID namespace the main thread has another number."""
    main = next((each for each in told if each.get("os_thread_id") == pid), None)
    main = main or next((each for each in told if each.get("thread_name") == "MainThread"), None)
    found: list[ThreadStack] = []
    room = MAX_TOGETHER
    for thread in sorted(told, key=lambda each: each is not main)[:MAX_THREADS]:
        frames = [_frame(each) for each in thread["frames"][: min(MAX_FRAMES, room)]]
        room -= len(frames)
        if frames:
            name = clean(str(thread.get("thread_name") or ""), MAX_NAME)
            found.append(ThreadStack(name, thread is main, tuple(frames)))
    return tuple(found)


def _frame(told: dict[str, Any]) -> Frame:
    path, name = str(told["filename"]), clean(str(told["name"]), MAX_NAME)
    library = _LIBRARY.fullmatch(path)
    made = path[: path.find(">") + 1] if path[:1] == "<" else ""
    file = library[1] if library else made or os.path.basename(path)
    own = library is None and path[:1] != "<" and not _GENERATED.search(path)
    return Frame(clean(file, MAX_NAME), int(told.get("line") or 0), name, own)


# -- the program -----------------------------------------------------------------------------------


def _run(argv: list[str], until: float) -> tuple[bytes, str] | None:
    """What it printed and complained; None if it was killed, as it took too long.

    `subprocess` would take 1 MiB of the node's memory.
    """
    (out, out_in), (err, err_in) = os.pipe(), os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out_in, 1),
        (os.POSIX_SPAWN_DUP2, err_in, 2),
    ]
    try:
        child = os.posix_spawn(
            argv[0], argv, {"LC_ALL": "C", "RUST_BACKTRACE": "0"}, file_actions=actions,
            setsigdef=[signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT],
        )  # fmt: skip
    except OSError as error:
        os.close(out)
        os.close(err)
        return b"", f"{argv[0]}: {error.strerror}"
    finally:
        os.close(out_in)
        os.close(err_in)
    try:
        return _drained(out, err, until)
    finally:
        os.close(out)
        os.close(err)
        _end(child)


def _drained(out: int, err: int, until: float) -> tuple[bytes, str] | None:
    """Both pipes to their ends; no more than the bounds."""
    found = {out: bytearray(), err: bytearray()}
    poll = select.poll()
    for pipe in found:
        poll.register(pipe, select.POLLIN)
    is_open = set(found)
    while is_open and len(found[out]) <= _MOST_BYTES:
        left = until - time.monotonic()
        if left <= 0:
            return None
        for pipe, _ in poll.poll(left * 1000 + 1):
            piece = os.read(pipe, 1 << 16)
            found[pipe] += piece
            if not piece:
                poll.unregister(pipe)
                is_open.discard(pipe)
        del found[err][_MOST_COMPLAINT_BYTES:]
    return bytes(found[out]), found[err].decode("utf-8", "replace")


def _end(child: int) -> None:
    """It has ended, or must."""
    try:
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    except OSError:  # where SIGCHLD is ignored nothing is left of it
        pass
