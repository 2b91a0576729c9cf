"""The modules that travel to a node, cut to what runs there.

Docstrings and comments of the agent stay behind, and all of NVIDIA's binding that the agent does
not use: that is nine tenths of it, and would be compiled and held in memory on every node.
"""

from __future__ import annotations

import os
import re

import gpumon
from gpumon.collect.nvml import locate

#: what travels, below the package's folder
_PARTS = ("__init__.py", "errors.py", "collect", "model", "wire")

#: as gpumon's own modules have them; lines keep their numbers, for tracebacks
_DOCSTRING = re.compile(r'^( *)"""(?:[^"]|"(?!""))*"""$', re.M)
_COMMENT = re.compile(r"^ *#.*$|  # .*$", re.M)

_STATEMENT = re.compile(r"^(?=[^\s#)\]}])", re.M)  # of a module, not within another one
_DEFINED = re.compile(r"(?:@\w+\s+)*(?:(?:class|def)\s+(\w+)|(\w+)\s*=)")
_USED = re.compile(r"\bnv\.(\w+)")
#: looked up by the beginnings of their names, there and in `collect.nvml.facts`
_LOOKED_UP = ("NVML_ERROR_", "NVML_DEVICE_ARCH_")


def modules() -> dict[str, tuple[bool, str]]:
    """Name -> whether it is a package, and its text; `pynvml` only where it is installed here."""
    found = {name: (is_package, bare(_read(path))) for name, is_package, path in _files()}
    binding = locate.source()
    if binding:  # else the agent reports that it lacks it
        used = {name for _, text in found.values() for name in _USED.findall(text)}
        found["pynvml"] = False, needed(binding, used)
    return found


def bare(source: str) -> str:
    """A module of gpumon's without its docstrings and comments."""
    source = _DOCSTRING.sub(lambda match: f'{match[1]}""' + "\n" * match[0].count("\n"), source)
    return _COMMENT.sub("", source)


def needed(binding: str, used: set[str]) -> str:
    """The statements of the binding that define the names `used`, or names in these statements.

    Its licence, which stands above the first statement, travels with them.
    """
    head, *parts = _STATEMENT.split(binding)
    statements: list[str] = []
    for part in parts:
        if statements and statements[-1].startswith("@") and "\ndef " not in statements[-1]:
            statements[-1] += part
        else:
            statements.append(part)
    places: dict[str, list[int]] = {}
    todo = []
    for place, statement in enumerate(statements):
        defined = _DEFINED.match(statement)
        name = (defined[1] or defined[2]) if defined else ""
        if not name or name in used or name.startswith(_LOOKED_UP):
            todo.append(place)
        places.setdefault(name, []).append(place)
    kept: set[int] = set()
    while todo:
        place = todo.pop()
        if place not in kept:
            kept.add(place)
            for name in re.findall(r"\w+", statements[place]):
                todo += places.get(name, [])
    return head + "".join(statements[place] for place in sorted(kept))


def _files() -> list[tuple[str, bool, str]]:
    """Name, whether it is a package, and file of each module of gpumon's that travels."""
    top = os.path.dirname(os.path.abspath(gpumon.__file__))
    files = []
    for part in _PARTS:
        path = os.path.join(top, part)
        folders = os.walk(path) if os.path.isdir(path) else [(top, [], [part])]
        files += [
            os.path.relpath(os.path.join(folder, name), top)
            for folder, _, names in folders
            for name in names
            if name.endswith(".py")
        ]
    found = []
    for file in sorted(files):
        words = ["gpumon", *file[:-3].split(os.sep)]
        is_package = words[-1] == "__init__"
        name = ".".join(words[:-1] if is_package else words)
        found.append((name, is_package, os.path.join(top, file)))
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
