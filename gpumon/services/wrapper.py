"""Runs a command as if nothing stood between it and the shell, with another process beside it.

The command is a child in our own process group: the terminal's signals (Ctrl-C, Ctrl-Z, a hang-up)
reach it as they would without us, and what is sent to us alone is passed on. We stop when it
stops and end as it ends. SIGKILL on this process kills only this process, as with `time`.
The process beside it has a session of its own and none of the command's files or signals; it
may hang in a driver for ever, and nobody waits for it for longer than `END_S` unless it works.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from gpumon.isolated import environment

#: how long the end of the command waits for the process beside it, and how much longer at most
#: where that works: on a busy node it may have to wait for a core
END_S = 1.0
_WORKS_S = 30.0
_SAY_S = 0.5
#: shells' exit codes for what could not be started
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
#: what a mistake of our own raises is not held back
_FAULTS = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGABRT, signal.SIGKILL, signal.SIGSTOP,
}  # fmt: skip
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
#: Python ignores these; programs expect to be ended by them, unless who started us ignores them
#: too, which only bin/gpumon can know
_IGNORED_BY_PYTHON = [
    number
    for number in (signal.SIGPIPE, signal.SIGXFSZ)
    if number.name not in str(sys._xoptions.get("gpumon.ignored", ""))
]

#: whether the command runs: whatever then goes wrong here, it must not be started again
started = False


def run_wrapped(
    command: list[str],
    beside: Callable[[], None],
    *,
    quiet: bool = False,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run the command, and `beside` in a process next to it; the command's exit code.

    Where a signal ended the command, this process ends by the same one: a shell then says 128 + n
    and breaks its loops on Ctrl-C, as without us. `beside` finds the reason to end on its standard
    input, at whose end it has a second; what it writes to its standard output is printed, and,
    unless `quiet`, that it takes longer. `variables` are added to the command's environment.
    """
    child_action = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody tells us
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        pid, error = _start(command, variables, before, child_action)
    except OSError as unstarted:  # no descriptor or process for us beside the command
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, child_action)
        _say_unrecorded(unstarted)
        return become(command, variables)
    if error:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _refused(command[0], error)
    global started
    started, code = True, None
    try:
        companion = Companion(beside, before)
        code = os.waitstatus_to_exitcode(_follow(pid, companion))
        ended = companion.end(f"exit {code}" if code >= 0 else f"signal {-code}")
        if not ended and not quiet:
            _say("gpumon: the recorder is still writing; 'gpumon runs' lists its recording\n")
    except Exception as error:  # of ours: the command is waited for all the same
        _say(f"gpumon: recording failed: {type(error).__name__}: {error}\n")
        if code is None:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        _die_by(-code)
        return 128 - code
    return code


def become(command: list[str], variables: Mapping[str, str] | None = None) -> int:
    """Run the command in this process's place; returns only where it cannot be run: the code."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    return _refused(command[0], _exec(command, variables))


# -- the command ----------------------------------------------------------------------------------


def _start(
    command: list[str], variables: Mapping[str, str] | None, mask: set[int], child_action: object
) -> tuple[int, int]:
    """The command's process, or the errno for which there is none."""
    reading, writing = _pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:  # closed by exec
            error = int(pipe.read() or b"0")
        if error:
            os.waitpid(pid, 0)
        return pid, error
    try:
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        if child_action is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.write(writing, str(_exec(command, variables)).encode())
    finally:
        os._exit(_NOT_FOUND)


def _exec(command: list[str], variables: Mapping[str, str] | None) -> int:
    """Become the command; returns the errno of what went wrong. Searches as shells do: a folder
    that this user may not search holds no command.
    """
    environ = environment()
    environ.update((os.fsencode(k), os.fsencode(v)) for k, v in (variables or {}).items())
    words: list[str] = list(command)
    if not words[0]:
        return errno.ENOENT
    is_named = "/" in words[0]
    paths = [words[0]]
    if not is_named:
        folders = os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath))).split(os.pathsep)
        paths = [os.path.join(folder or ".", words[0]) for folder in folders]
    worst = errno.ENOENT
    for path in paths:
        try:
            os.execve(path, words, environ)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a first line: the shell's
                os.execve("/bin/sh", ["sh", path, *words[1:]], environ)
            if is_named or os.path.exists(path):
                worst = error.errno or errno.EACCES
    return worst


def _refused(name: str, error: int) -> int:
    """Say why there is no command; the exit code that shells give."""
    from gpumon.model.text import clean

    why = f"cannot be run: {os.strerror(error)}"
    if error == errno.ENOENT and "/" not in name:
        why = "command not found"
    _say(f"gpumon: {clean(name, 200)}: {why}\n")
    return _NOT_FOUND if error in (errno.ENOENT, errno.ENOTDIR) else _NOT_EXECUTABLE


def _follow(pid: int, companion: Companion) -> int:
    """Pass signals on until the command has ended; its wait status."""
    waiting_for = signal.valid_signals() - _FAULTS
    while True:
        info = signal.sigwaitinfo(waiting_for)
        if info.si_signo == signal.SIGCHLD:
            companion.hear()
            status = _changed(pid)
            if status is not None:
                return status
        elif info.si_signo == signal.SIGCONT:
            if _is_stopped(pid):  # meant for us alone; else it has had one of its own
                _pass_on(pid, info.si_signo)
        elif info.si_code <= 0 and info.si_pid != pid:
            # from a process; what the kernel sends, for the terminal, it sends to the whole group
            _pass_on(pid, info.si_signo)


def _pass_on(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except PermissionError:  # it runs as another user (sudo); our sender could not have either
        pass


def _changed(pid: int) -> int | None:
    """What became of the command: its status at the end; stops with it, when it stopped."""
    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if not found:
        return None
    if not os.WIFSTOPPED(status):
        return status
    number = signal.Signals(os.WSTOPSIG(status))
    # SIGCONT may be on its way already; and alone we stop only where a shell sees and resumes us
    if _is_stopped(pid) and (number in _STOPS or _has_terminal(pid)):
        _stop_by(number)
    return None


def _is_stopped(pid: int) -> bool:
    """Whether it is stopped and stays so."""
    for _ in range(3):
        if _stat(pid)[:1] not in ([b"T"], [b"t"]):
            return False
        time.sleep(0.01)
    return True


def _has_terminal(pid: int) -> bool:
    """Whether the command is what the user at the terminal is waiting for."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) in (os.getpgrp(), os.getpgid(pid))
    except OSError:
        return False
    finally:
        os.close(terminal)


def _stop_by(number: signal.Signals) -> None:
    """Stop as the command did, so that the shell reports it; returns when resumed.

    Once: the terminal's own signal, which still waits for us too, becomes one with this.
    """
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.pthread_sigmask(signal.SIG_BLOCK, {number} - _FAULTS)


def _die_by(number: int) -> None:
    """End by this signal, without a core of our own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


# -- beside it ------------------------------------------------------------------------------------


class Companion:
    """The process beside the command."""

    def __init__(self, work: Callable[[], None], mask: set[int]) -> None:
        """Where there is no room for it, the command runs on alone, which is said."""
        self._pid = 0
        try:
            listening, self._tell = _pipe()
            self._hear, speaking = _pipe()
            self._pid = os.fork()
        except OSError as error:
            _say_unrecorded(error)
            return
        if not self._pid:
            _live_apart(work, listening, speaking, mask)
        os.close(listening)
        os.close(speaking)

    def hear(self) -> None:
        """If it ended early, print its messages."""
        if not self._pid:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._pid = 0
            self._print_words(0)
            if os.WIFSIGNALED(status):
                _say(f"gpumon: the recorder was killed by signal {os.WTERMSIG(status)}\n")

    def end(self, reason: str) -> bool:
        """Ask it to end, and print its messages; False: it does not end soon."""
        if not self._pid:
            return True
        try:
            os.write(self._tell, reason.encode())
        except BrokenPipeError:
            pass
        os.close(self._tell)
        return self._print_words(END_S)

    def _print_words(self, patience_s: float) -> bool:
        """Print its messages; False if it does not end."""
        words, until = b"", time.monotonic() + patience_s
        last, used = until + _WORKS_S, _cpu_use(self._pid)
        ended = False
        while not ended:
            if select.select([self._hear], [], [], _left(until))[0]:
                part = os.read(self._hear, 65536)
                words += part
                ended = not part
                continue
            now_used = _cpu_use(self._pid)
            if until >= last or now_used == used:
                break
            until, used = until + patience_s, now_used
        _say(words.decode("utf-8", "replace"))
        return ended


def _say(text: str) -> None:
    """To standard error, if there is one and it takes anything: nothing else hangs on that.

    All signals are blocked here, so a terminal that takes nothing would make us unkillable.
    """
    words = text.encode("utf-8", "replace")

    def write() -> None:
        with contextlib.suppress(OSError):
            os.write(2, words)

    if text:
        thread = threading.Thread(target=write, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no room for a thread: only as much as does not hang
            with contextlib.suppress(OSError):
                if select.select([], [2], [], _SAY_S)[1]:
                    os.write(2, words[: select.PIPE_BUF])
            return
        thread.join(_SAY_S)


def _say_unrecorded(error: OSError) -> None:
    _say(f"gpumon: not recording: {error.strerror}; check 'ulimit -n' and 'ulimit -u'\n")


def _cpu_use(pid: int) -> object:
    """What changes as long as a process gets CPU time, or waits for it."""
    fields = _stat(pid)
    return object() if fields[:1] == [b"R"] else fields[11:13]


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the state on; none where it is hidden: another user's."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
    return []


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _live_apart(
    work: Callable[[], None], listening: int, speaking: int, mask: set[int]
) -> NoReturn:
    """Become a process outside of others' signals, which holds no inherited files open."""
    try:
        os.setsid()
        os.dup2(listening, 0)
        os.dup2(speaking, 1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        for number in signal.valid_signals() - _FAULTS - {signal.SIGCHLD}:
            if number < signal.SIGRTMIN:
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        work()
    finally:
        os._exit(0)


def _pipe() -> tuple[int, int]:
    """A pipe beyond the standard files, which may be closed."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
