"""Environments in which a recorder may break, drawn from lists of faults; and what a command feels.

`python -m tests.e2e.broken 300 [SEED]` tries so many, and prints what fell.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.clone import NO_NETWORK, Clone
from tests.support.waiting import HANGS_S

#: everything that a command could feel of what started it
_LOOK = """
/bin/cat /proc/$$/environ
umask; ulimit -a; /bin/pwd
/bin/grep -E '^(Sig(Blk|Ign)|NSpid|Seccomp)' /proc/$$/status | /bin/grep -v NSpid
for each in /proc/$$/fd/*; do echo ${each##*/}; done
/bin/cat
"""
_ENDS = {0: "exit 0", 3: "exit 3", 255: "exit 255", -11: "kill -SEGV $$", -15: "kill -TERM $$"}
#: of bash, before any line of a script; of the loader, for every program
_NOT_OURS = re.compile(rb"setlocale: LC_ALL|error retrieving current|object .* from LD_PRELOAD|^$")
_KEPT = (b"PATH", b"LANG", b"TERM", b"USER")


class Felt(NamedTuple):
    """What a run came to: the end, the output, and what was said on standard error."""

    code: int
    out: bytes
    said: list[bytes]


class Case:
    """One environment; faults change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: os.environb[name] for name in _KEPT if name in os.environb}
        self.state = folder / "state"
        self.env |= {b"HOME": bytes(folder / "home"), b"GPUMON_STATE": bytes(self.state)}
        (folder / "home").mkdir()
        self.clone = "good"
        self.is_heard = True  # standard error is open
        self.options: list[str] = []
        self.before: list[Callable[[], object]] = []  # in the process, before the program starts

    def file(self, name: str, text: str) -> bytes:
        """Write it; returns its folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return bytes(path.parent)

    def feel(self, prefix: list[str], code: int) -> Felt:
        """Run the command that looks around, behind these words."""
        with tempfile.TemporaryDirectory() as cwd:
            process = subprocess.Popen(
                [*prefix, "/bin/sh", "-c", _LOOK + _ENDS[code]], env=self.env, cwd=cwd,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=self._prepare, restore_signals=False,
            )  # fmt: skip
            out, err = process.communicate(b"passes\0through\xff\n" * 999, timeout=5 * HANGS_S)
        said = [line for line in err.split(b"\n") if not _NOT_OURS.search(line)]
        return Felt(process.returncode, out.replace(os.fsencode(cwd), b"CWD"), said)

    def _prepare(self) -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for each in self.before:
            each()


def variable(name: str, value: str = "") -> Callable[[Case], None]:
    def set_it(case: Case) -> None:
        case.env[name.encode()] = os.fsencode(value)

    set_it.__name__ = f"{name}={value}"
    return set_it


def unset(name: str) -> Callable[[Case], None]:
    def unset_it(case: Case) -> None:
        case.env.pop(name.encode(), None)

    unset_it.__name__ = f"unset {name}"
    return unset_it


def module(name: str, text: str) -> Callable[[Case], None]:
    """A module of another Python in PYTHONPATH."""

    def put(case: Case) -> None:
        folder = case.file(f"{name}-py/{name}.py", text)
        before = case.env.get(b"PYTHONPATH", b"")
        case.env[b"PYTHONPATH"] = folder + b":" + before if before else folder

    put.__name__ = f"module {name}"
    return put


def program(name: str, text: str) -> Callable[[Case], None]:
    """A program of this name first in PATH."""

    def put(case: Case) -> None:
        folder = case.file(f"{name}-bin/{name}", f"#!/bin/sh\n{text}\n")
        case.env[b"PATH"] = folder + b":" + case.env.get(b"PATH", b"")

    put.__name__ = f"program {name}"
    return put


def closed(number: int) -> Callable[[Case], None]:
    def close(case: Case) -> None:
        case.before.append(lambda: os.close(number))
        case.is_heard = case.is_heard and number != 2

    close.__name__ = f"closed {number}"
    return close


def limited(what: int, most: int) -> Callable[[Case], None]:
    def limit(case: Case) -> None:
        case.before.append(lambda: resource.setrlimit(what, (most, most)))

    limit.__name__ = f"limit {what} {most}"
    return limit


def ignored(number: signal.Signals) -> Callable[[Case], None]:
    def ignore(case: Case) -> None:
        case.before.append(lambda: signal.signal(number, signal.SIG_IGN))

    ignore.__name__ = f"ignored {number.name}"
    return ignore


def option(*words: str) -> Callable[[Case], None]:
    def add(case: Case) -> None:
        case.options += words

    add.__name__ = f"option {' '.join(words)}"
    return add


def cloned(state: str) -> Callable[[Case], None]:
    def choose(case: Case) -> None:
        case.clone = state
        case.env |= {name.encode(): value.encode() for name, value in NO_NETWORK.items()}

    choose.__name__ = f"clone {state}"
    return choose


def shell_file(case: Case) -> None:
    case.env[b"BASH_ENV"] = case.env[b"ENV"] = case.file("bashrc", "exit 9") + b"/bashrc"


def pip_file(case: Case) -> None:
    text = "[global]\nuser = true\nrequire-virtualenv = true\ntarget = /nonexistent\n"
    case.file("home/.config/pip/pip.conf", text)


def settings_file(case: Case) -> None:
    case.file("home/.config/gpumon/config.toml", "theme = [[")


def home_is_a_file(case: Case) -> None:
    case.env[b"HOME"] = case.file("nohome", "") + b"/nohome"


def state_is_a_file(case: Case) -> None:
    case.env[b"GPUMON_STATE"] = case.file("nostate", "") + b"/nostate"


def no_umask(case: Case) -> None:
    case.before.append(lambda: os.umask(0o777))


def no_folder(case: Case) -> None:
    def leave() -> None:
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)

    case.before.append(leave)


def many_variables(case: Case) -> None:
    case.env |= {b"V%d" % n: b"\xff\n'\"$(`" * 200 for n in range(300)}


RAISES, PRINTS = "raise RuntimeError('of another Python')", "print('site banner')"
FUNCTIONS = [
    variable(f"BASH_FUNC_{name}%%", "() {  echo of the user; exit 9\n}")
    for name in ("cd", "readlink", "exec", "echo", "mapfile", "[", "set", "type", "flock", "module")
]
FAULTS: list[Callable[[Case], None]] = [
    # Python's
    variable("PYTHONHOME", "/nonexistent"), variable("PYTHONPATH", "/nonexistent:."),
    *(module(name, RAISES) for name in (
        "select", "selectors", "rich", "psutil", "typing_extensions", "zstandard", "os", "site",
        "encodings", "signal", "json", "gpumon", "ctypes", "argparse", "sitecustomize",
    )),
    module("sitecustomize", PRINTS), module("usercustomize", PRINTS),
    *(variable(f"PYTHON{name}", value) for name, value in (
        ("SAFEPATH", "1"), ("WARNINGS", "error"), ("OPTIMIZE", "2"), ("INSPECT", "1"),
        ("DONTWRITEBYTECODE", "1"), ("PYCACHEPREFIX", "/dev/full"), ("MALLOC", "debug"),
        ("MALLOC", "none such"), ("UTF8", "7"), ("UTF8", "1"), ("HASHSEED", "x"),
        ("IOENCODING", "x"), ("STARTUP", "/nonexistent"), ("VERBOSE", "1"), ("DEVMODE", "1"),
        ("PLATLIBDIR", "x"), ("BREAKPOINT", "x"), ("USERBASE", "/dev/null"), ("EXECUTABLE", "x"),
        ("COERCECLOCALE", "0"), ("NOUSERSITE", "1"), ("UNBUFFERED", "1"),
        ("PROFILEIMPORTTIME", "1"), ("INTMAXSTRDIGITS", "1"), ("DUMPREFS", "1"),
        ("FAULTHANDLER", "1"), ("TRACEMALLOC", "x"),
    )),
    variable("VIRTUAL_ENV", "/nonexistent"), variable("CONDA_PREFIX", "/nonexistent"),
    variable("__PYVENV_LAUNCHER__", "/nonexistent"),
    program("python3", "exit 9"), program("python3", "echo Python 3.6.8; exit 1"),
    *(variable(f"PIP_{name}", value) for name, value in (
        ("USER", "true"), ("REQUIRE_VIRTUALENV", "true"), ("TARGET", "/nonexistent"),
        ("PREFIX", "/nonexistent"), ("TIMEOUT", "x"), ("CONFIG_FILE", "/nonexistent"),
        ("NO_INDEX", "1"), ("PYTHON", "3.6"), ("REQUIRE_HASHES", "1"), ("LOG", "/dev/full"),
    )),
    pip_file,
    # bash's
    *FUNCTIONS, shell_file, variable("CDPATH", "/tmp:/"), variable("IFS", "/e"),
    variable("POSIXLY_CORRECT"), variable("SHELLOPTS", "errexit:nounset:noexec:xtrace:noglob"),
    variable("BASHOPTS", "failglob:nocaseglob"), variable("GLOBIGNORE", "*"),
    variable("PS4", "$(x)"), variable("SHLVL", "x"), variable("_", "x"), unset("PWD"),
    variable("PWD", "/nonexistent"),
    variable("OLDPWD", "x"), variable("BASH_XTRACEFD", "1"), variable("a.b", "c"),
    variable("-i", "x"), variable("EUID", "x"), variable("TMOUT", "1"),
    *(program(name, "echo of the user; exit 9") for name in (
        "readlink", "env", "bash", "flock", "timeout", "nice", "sh",
    )),
    # of the system and the place
    variable("LANG", "xx_XX.nonsense"), variable("LC_ALL", "xx_XX.nonsense"),
    variable("LC_ALL", "C"), variable("LD_LIBRARY_PATH", "/nonexistent"),
    variable("LD_PRELOAD", "/nonexistent.so"),
    variable("PATH", "/nonexistent"), variable("PATH"), unset("PATH"),
    unset("HOME"), variable("HOME", "/nonexistent"), home_is_a_file,
    variable("TMPDIR", "/nonexistent"), variable("XDG_CONFIG_HOME", "\udcff"),
    variable("XDG_RUNTIME_DIR", "/nonexistent"), unset("USER"), variable("COLUMNS", "x"),
    variable("TERM", "x"), variable("MALLOC_ARENA_MAX", "x"), variable("TZ", "x/../../y"),
    many_variables, no_umask, no_folder, closed(0), closed(1), closed(2),
    limited(resource.RLIMIT_NOFILE, 7), limited(resource.RLIMIT_NOFILE, 16),
    limited(resource.RLIMIT_AS, 24 << 20), limited(resource.RLIMIT_AS, 60 << 20),
    limited(resource.RLIMIT_AS, 300 << 20), limited(resource.RLIMIT_FSIZE, 0),
    limited(resource.RLIMIT_CORE, 0),
    *map(ignored, (signal.SIGPIPE, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM)),
    # gpumon's
    settings_file, state_is_a_file, variable("GPUMON_STATE", "/proc/x"),
    *(variable(f"GPUMON_{name}", "x") for name in (
        "INTERVAL_S", "THEME", "PROBE", "RECORD_KEEP_DAYS", "SITE", "PROBE_DIR", "DEBUG",
    )),
    variable("SLURM_LOCALID", "1"), variable("SLURM_JOB_ID", "x"), variable("SLURM_LOCALID", "x"),
    option("--interval", "0"), option("--intervall", "5"), option("--nope"), option("--interval=x"),
    option("-o", "/proc/x/y"), option("-o", "-"), option("-q"),
    # the clone's
    *(cloned(state) for state in (
        "pulled", "new dependency", "no Python", "another Python", "half made", "unprepared",
        "without packages", "torn", "syntax", "no launcher of the environment", "moved", "no lock",
    ) * 2),
]  # fmt: skip


class Clones:
    """A clone in each state, made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Clone] = {}

    def get(self, state: str) -> Clone:
        if state not in self._made:
            self._made[state] = self._make(state)
        return self._made[state]

    def _make(self, state: str) -> Clone:
        clone = Clone(self._folder / f"{len(self._made)}" / "a=b c")
        if state == "unprepared":
            return clone
        clone.prepare()
        python = clone.root / ".venv" / "bin" / "python"
        if state == "pulled":
            with (clone.root / "pyproject.toml").open("a") as file:
                file.write("[tool.another]\n")
        elif state == "new dependency":
            clone.depend_on("no-such-package-of-ours")
        elif state == "no Python":
            python.unlink()
            python.symlink_to("/nonexistent/python3")
        elif state == "another Python":
            (library,) = (clone.root / ".venv" / "lib").iterdir()
            library.rename(library.with_name("python3.8"))
        elif state == "half made":
            shutil.rmtree(clone.root / ".venv-first" / "bin")
            clone.stamp.unlink()
        elif state == "without packages":
            next(clone.root.glob(".venv/lib/*/*/borrowed.pth")).unlink()
            clone.stamp.unlink()
        elif state == "torn":
            (clone.root / "gpumon" / "cli" / "__init__.py").unlink()
        elif state == "syntax":
            (clone.root / "gpumon" / "isolated.py").write_text("<<<<<<< ours\n")
        elif state == "no launcher of the environment":
            (clone.root / "bin" / "venv").unlink()
        elif state == "moved":
            clone.root.rename(clone.root.with_name("moved"))
            clone.root = clone.root.with_name("moved")
            clone.program = clone.root / "bin" / "gpumon"
        elif state == "no lock":
            clone.stamp.write_text("old\n")
            (clone.root / ".venv.lock").unlink(missing_ok=True)
            (clone.root / ".venv.lock").mkdir()
        return clone


def attempt(number: int, seed: int, clones: Clones, folder: Path) -> tuple[str, str]:
    """One environment: its faults, and what is wrong with the recorded run, "" for nothing."""
    chance = random.Random(f"{seed} {number}")
    case = Case(folder)
    faults = chance.sample(FAULTS, chance.choice((1, 1, 2, 3, 5)))
    for fault in faults:
        fault(case)
    code = chance.choice(list(_ENDS))
    name = f"{number}: {', '.join(fault.__name__ for fault in faults)}; {_ENDS[code]}"
    clone = clones.get(case.clone)
    prefix = [str(clone.program), "record", "--quiet", *case.options, "--"]
    return name, _wrong(case.feel([], code), case.feel(prefix, code), case)


def _wrong(bare: Felt, felt: Felt, case: Case) -> str:
    if felt.code != bare.code:
        return f"ended with {felt.code}, not {bare.code}: {felt.said}"
    if felt.out != bare.out:
        return f"felt {_difference(felt.out, bare.out)}"
    ours = [line for line in felt.said if line not in bare.said]
    if len(ours) > 1 and b"not recording" in ours[-1] and b"Traceback" not in b"".join(ours):
        return f"said more than a line: {ours}"
    if ours and not ours[-1].startswith(b"gpumon: "):
        return f"said {ours}"
    is_later_task = case.env.get(b"SLURM_LOCALID") == b"1"
    is_silent = case.is_heard and not ours and not list(case.state.rglob("*.gpumon"))
    return "recorded nothing, and did not say so" if is_silent and not is_later_task else ""


def _difference(one: bytes, other: bytes) -> str:
    mine, theirs = (re.split(rb"[\0\n]", text) for text in (one, other))
    more, less = [x for x in mine if x not in theirs], [x for x in theirs if x not in mine]
    return f"{more[:5]}, not {less[:5]}"


def main(count: int, seed: int = 1) -> int:
    fell = Counter[str]()
    with tempfile.TemporaryDirectory() as top:
        clones = Clones(Path(top))
        for number in range(count):
            folder = Path(top) / f"case{number}"
            folder.mkdir()
            name, wrong = attempt(number, seed, clones, folder)
            if wrong:
                fell[wrong.split(":")[0]] += 1
                print(f"{name}\n    {wrong}", flush=True)
    print(f"{count} environments, {fell.total()} fell")
    return bool(fell)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
