"""The agent brings itself to a node: nothing is installed there, nothing is left behind.

The node's Python gets a short loader with `-c`; the loader reads the agent's own modules from
its standard input and imports them from memory. Nothing is ever written: a full or read-only
$TMPDIR does not matter, and there is nothing to remove after a kill -9. The price is that the
node compiles the modules at each start, a few tenths of a second. Both ends have the same version
by construction. What follows on the same pipe are heartbeats.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from functools import cache

import gpumon

#: what travels, below the package's folder
_PARTS = ("__init__.py", "errors.py", "wire.py", "collect", "model")

#: reads "LENGTH\n" and so many bytes, and not one byte more; runs on any Python 3
_LOADER = """\
import json, os, sys, zlib
from importlib.machinery import ModuleSpec
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: sys.exit(0)
        data += part
    return data
length = b""
while not length.endswith(b"\\n"): length += take(1)
modules = json.loads(zlib.decompress(take(int(length))).decode("utf-8"))
class Shipped:
    def find_spec(self, name, path=None, target=None):
        if name in modules: return ModuleSpec(name, self, is_package=modules[name][0])
    def create_module(self, spec): return None
    def exec_module(self, module):
        source = modules[module.__name__][1]
        exec(compile(source, "<%s>" % module.__name__, "exec", dont_inherit=True), module.__dict__)
sys.meta_path.insert(0, Shipped())
sys.argv[0] = "gpumon collect"
from gpumon.collect.agent import main
main()
"""

#: the first Python that is new enough: a node's default may be 3.6, or none
_PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9",
    "/usr/bin/python3", "/usr/libexec/platform-python", "python",
)  # fmt: skip
NO_PYTHON = "no Python 3.9 or later on this node; load a module of it in the shell start-up file"
#: $0 is what Python runs. Ends with 0 in any case: under srun it would be the DerivedExitCode.
_SHELL = (
    f"for p in {' '.join(_PYTHONS)}; do "
    'if "$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 9))" </dev/null 2>/dev/null; '
    'then exec "$p" -I -c "$0" "$@"; fi; done; '
    f"echo '{NO_PYTHON}' >&2"
)


def ship_argv(*flags: str) -> list[str]:
    """The command that runs the agent on a node with these flags of `gpumon collect`.

    No word of it has a line end in it: csh, as a login shell, would stumble.
    """
    packed = base64.b64encode(zlib.compress(_LOADER.encode(), 9)).decode()
    start = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
    return ["/bin/sh", "-c", _SHELL, start, *flags]


@cache
def cargo() -> bytes:
    """What the loader waits for: the length, a line end, the modules; the same at every call."""
    modules = {name: (is_package, _source(path)) for name, is_package, path in _modules()}
    packed = zlib.compress(json.dumps(modules, sort_keys=True).encode(), 9)
    return b"%d\n%s" % (len(packed), packed)


def _modules() -> list[tuple[str, bool, str]]:
    """Name, whether it is a package, and file of each module that travels."""
    top = os.path.dirname(os.path.abspath(gpumon.__file__))
    files = []
    for part in _PARTS:
        path = os.path.join(top, part)
        if os.path.isdir(path):
            files += [os.path.join(part, name) for name in os.listdir(path) if name[-3:] == ".py"]
        else:
            files.append(part)
    found = []
    for file in sorted(files):
        words = ["gpumon", *file[:-3].split(os.sep)]
        is_package = words[-1] == "__init__"
        name = ".".join(words[:-1] if is_package else words)
        found.append((name, is_package, os.path.join(top, file)))
    return found


def _source(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
