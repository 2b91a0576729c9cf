"""How gpumon starts Python: apart from what the user has set up for another Python.

`-I` keeps out PYTHONHOME, PYTHONPATH and the other variables, the user's site-packages and the
current folder. What gpumon needs may lie there all the same (`pip install --user`, a clone in
PYTHONPATH); it is looked for there last, where it shadows nothing.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OPTION = "gpumon.path"  # -X: neither a variable, which programs would inherit, nor an argument
#: set by many, and harmless
_HARMLESS = {
    "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONNOUSERSITE",
    "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONUTF8",
}  # fmt: skip
#: a Python that was moved may not start without them
_OF_START = {"PYTHONHOME", "PYTHONPLATLIBDIR"}


def command(main: str, *arguments: str) -> list[str]:
    """Python on a file `__main__.py` below ROOT, which calls `settle`."""
    path = ":".join(entry for entry in sys.path if entry.startswith("/"))
    return [sys.executable, "-I", f"-X{_OPTION}={path}", os.path.join(ROOT, main), *arguments]


def settle(root: str) -> None:
    """Put gpumon (in the folder `root`) and its dependencies last on the path of such a Python."""
    sys.path.remove(root)  # it came first only until gpumon was found
    rest = [root, *str(sys._xoptions.get(_OPTION, "")).split(":")]
    sys.path += [entry for entry in dict.fromkeys(rest) if entry and entry not in sys.path]


def restart(main: str, words: list[str]) -> None:
    """Start gpumon again, isolated, where modules or options of the user reach it; no other program
    that has called us.
    """
    if os.path.basename(sys.argv[0]) not in ("gpumon", "__main__.py"):
        return
    environ = environment()
    names = {name.decode("ascii", "replace") for name in environ if name.startswith(b"PYTHON")}
    if sys.flags.isolated or not sys.executable or not _reach(names):
        return
    try:
        if not names & _OF_START or _starts(environ):
            os.execve(sys.executable, command(main, *words), environ)
    except OSError:
        pass  # then it runs as it is


def environment() -> dict[bytes, bytes]:
    """The environment as it was given to us: Python itself adds LC_CTYPE in the C locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def _reach(names: set[str]) -> bool:
    if names - _HARMLESS - {"PYTHONPATH"}:
        return True
    folders = os.environ.get("PYTHONPATH", "").split(":") if "PYTHONPATH" in names else []
    if not getattr(sys.flags, "safe_path", False):
        folders += [entry for entry in sys.path[:1] if entry in ("", os.curdir, _here())]
    return any(folder != ROOT for folder in folders if folder)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _starts(environ: dict[bytes, bytes]) -> bool:
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    argv = [sys.executable, "-I", "-S", "-c", ""]
    pid = os.posix_spawn(sys.executable, argv, environ, file_actions=null)
    return os.waitpid(pid, 0)[1] == 0
