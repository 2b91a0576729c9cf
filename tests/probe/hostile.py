"""Worlds in which a probe has a hard time: each a program that must not notice."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: the folder that the probe is given -> made as this
FOLDERS: dict[str, Callable[[Path], object]] = {
    "whole": lambda path: path.mkdir(0o700),
    "missing": lambda path: None,
    "a file": lambda path: path.write_text(""),
    "a fifo": os.mkfifo,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(os.path.relpath(path)),
    "for all to write to": lambda path: (path.mkdir(), path.chmod(0o777)),
    "not to be written to": lambda path: path.mkdir(0o500),
    "a link": lambda path: path.symlink_to("/tmp"),
    "a link to itself": lambda path: path.symlink_to(path),
    "behind a file": lambda path: path.parent.chmod(0o700),
    "a stranger's": lambda path: (path.mkdir(0o700), os.getuid() == 0 and os.chown(path, 12345, 0)),
}
GIVEN = ["/nowhere", "/proc/self", "/dev/null", "/", "", "told", "/" + "x" * 300, "/told\udcff"]

#: what a program does to itself, before or after it imports a framework
DEEDS = {
    "no descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "no files": "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "no memory": "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
    "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)",
    "no threads": "import _thread\n_thread.start_new_thread = lambda *given: [][0]",
    "green threads": "import _thread, threading\n"
    "_thread.start_new_thread = lambda call, given=(), named={}: call(*given, **named)\n"
    "_thread.allocate_lock = threading.Lock",
    "its folder is removed": "import shutil; shutil.rmtree(TOLD, ignore_errors=True)",
    "its folder becomes a file": "import shutil; shutil.rmtree(TOLD, ignore_errors=True)\n"
    "open(TOLD, 'w').close()",
    "a fifo for its file": "planted(os.mkfifo)",
    "a folder for its file": "planted(os.mkdir)",
    "a link for its file": "planted(lambda path: os.symlink('/etc/passwd', path))",
    "elsewhere": "os.chdir('/')",
    "nowhere": "os.mkdir(HERE + '/gone'); os.chdir(HERE + '/gone'); os.rmdir(HERE + '/gone')",
    "no output": "out = sys.stdout; sys.stdout = sys.stderr = None",
    "closed descriptors": "os.closerange(3, 256)",
    "a clock that stands": "time.time = time.monotonic = time.perf_counter = lambda: 7.0",
    "a clock that fails": "time.time = time.monotonic = time.perf_counter = lambda: [][0]",
    "another os": "os.open = os.write = os.lstat = os.getpid = lambda *given, **named: [][0]",
    "other threads": "import threading\n"
    "threading.Event = threading.Lock = threading.main_thread = None",
    "no garbage": "import gc; gc.disable(); gc.freeze()",
    "a finder less": "sys.meta_path[:] = [it for it in sys.meta_path if isinstance(it, type)]",
    "modules less": "for name in ('json', 'time', 'threading', 'atexit', 'gc'):\n"
    "    sys.modules.pop(name, None)",
    "a tracer": "sys.setprofile(lambda *given: None)",
    "all warnings": "import warnings; warnings.simplefilter('error')",
    "no environment": "os.environ.clear()",
    "a low stack": "sys.setrecursionlimit(60)",
    "unhearing": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
    "forks": "for n in range(20):\n    child = os.fork()\n    child or os._exit(0)\n"
    "    os.waitpid(child, 0)",
    "a fork that goes on": "child = os.fork()\nchild and os._exit(os.waitpid(child, 0)[1] >> 8)",
    "a process": "import multiprocessing\n"
    "child = multiprocessing.get_context('fork').Process(target=step, args=(3,))\n"
    "child.start(); child.join()",
    "no step": "torch.optim.optimizer._global_optimizer_post_hooks.clear()",
}
#: these need root
ROOTS = {
    "another user": "os.setgroups([]); os.setresgid(12345, 12345, 12345)\n"
    "os.setresuid(12345, 12345, 12345)",
    "another root": "os.mkdir(HERE + '/empty'); os.chroot(HERE + '/empty'); os.chdir('/')",
    "no processes": "os.setgroups([]); resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
    "os.setresuid(12345, 12345, 12345)",
}
CALLS = {
    "the optimizer's": "optimizer.step()",
    "gpumon's": "gpumon.step()",
    "watched": "gpumon.watch(); gpumon.step()",
    "marked": "gpumon.mark('here'); optimizer.step()",
}
ENDS = {
    "plain": "",
    "by exit": "sys.exit(3)",
    "by an error": "raise ValueError(n)",
    "at once": "os._exit(4)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    "signal.pthread_sigmask(signal.SIG_SETMASK, [])\nos.kill(os.getpid(), signal.SIGTERM)",
    "another program": "os.execv('/bin/sh', ['sh', '-c', 'exit 5'])",
}
PROGRAM = """
import os, resource, signal, sys, time
sleep, TOLD, HERE = time.sleep, os.environ.pop("TOLD"), os.path.dirname(__file__)
def planted(make):
    for end in "", ".new":
        ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
        try:
            make("%s/%d-%s.json%s" % (TOLD, os.getpid(), ticks, end))
        except OSError:
            pass
def step(times):
    for n in range(times):
        CALL
        sleep(0.05)
try:
    import gpumon  # a program has imported what it calls
    before, out = 0, sys.stdout
    BEFORE
    before = 1
except Exception as error:
    before = type(error).__name__
import torch, torch.optim.optimizer
optimizer = torch.optim.optimizer.Optimizer()
sleep(0.3)
step(4)
try:
    AFTER
    after = 1
except Exception as error:
    after = type(error).__name__
step(12)
n = before, after
if out is not None:
    out.write("%s\\n" % (n,)), out.flush()
END
"""


class Hostile(NamedTuple):
    """One world, and what it is made of."""

    folder: str
    before: str
    after: str
    call: str
    end: str

    def program(self) -> str:
        text = PROGRAM
        deeds = {**DEEDS, **ROOTS, "": "pass"}
        parts = {
            "BEFORE": deeds[self.before], "AFTER": deeds[self.after],
            "CALL": CALLS[self.call], "END": ENDS[self.end],
        }  # fmt: skip
        for name, part in parts.items():
            lines = []
            for line in text.splitlines():
                indent = line[: len(line) - len(line.lstrip())]
                is_it = line.strip() == name
                lines += [indent + each for each in part.splitlines()] if is_it else [line]
            text = "\n".join(lines)
        return text

    def made(self, within: Path) -> str:
        """The folder that the probe is given."""
        path = within / "told"
        if self.folder in FOLDERS:
            before = os.getcwd()
            os.chdir(within)
            try:
                FOLDERS[self.folder](path)
            finally:
                os.chdir(before)
            return str(path)
        return self.folder


def world(seed: int) -> Hostile:
    """Each deed once in so many worlds as there are deeds, beside others."""
    chance = random.Random(seed)
    deeds = [*DEEDS, *(ROOTS if os.getuid() == 0 else ())]
    folders = [*FOLDERS, *GIVEN]
    deed = deeds[seed % len(deeds)]
    # a deed that ends what others need comes last
    other = chance.choice(["", "forks", "a process", "elsewhere", "no output", "a tracer"])
    first = chance.random() < 0.4 and deed not in ("a process", "no step", *ROOTS, *LAST)
    before, after = (deed, other) if first else (other if other != "a process" else "", deed)
    folder = "whole" if chance.random() < 0.6 else folders[seed % len(folders)]
    end = chance.choice([*ENDS])
    return Hostile(folder, before, after, chance.choice([*CALLS]), end)


#: nothing can be imported behind these
LAST = (
    "no descriptors", "no memory", "a clock that fails", "another os", "a low stack",
    "modules less", "other threads", "a finder less", "a clock that stands", "green threads",
    "closed descriptors", "no threads",
)  # fmt: skip


def ran(
    hostile: Hostile, within: Path, environ: dict[str, str], python: str, timeout_s: float
) -> tuple[int, bytes, bytes]:
    """The program's exit status, output and errors."""
    path = within / "program.py"
    path.write_text(hostile.program(), errors="surrogateescape")
    done = subprocess.run(
        [python, "-X", "utf8", str(path)],
        env=environ, cwd=within, capture_output=True, timeout=timeout_s,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
