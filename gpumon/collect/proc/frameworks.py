"""Which framework a process runs, by the libraries it has mapped, and its settings.

A tag means that the framework's GPU side is loaded, not that it is used: the CPU build of
TensorFlow maps the same names, so a tag counts only for a process that is on a device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Callable

#: tag and the mapped files that show it, most telling first: vLLM runs in a torch process, and
#: torch, JAX and TensorFlow import each other's packages less often than RMM serves them
_LIBRARIES: tuple[tuple[str, str], ...] = (
    ("vllm", r"vllm/_[A-Za-z_]*C[^/]*\.so"),
    ("llama", r"lib(?:ggml-cuda|llama)\.so"),
    ("torch", r"lib(?:torch_cuda|c10_cuda|torch_cuda_linalg)\.so"),
    # without its plugin, JAX runs on the CPU; older releases are one library
    ("jax", r"xla_cuda_plugin\.so|jax_cuda1\d_plugin/[^/]+\.so|xla_extension\.so"),
    (
        "tf",
        r"libtensorflow_framework\.so|libtensorflow_cc\.so|lib_pywrap_tensorflow_common\.so"
        r"|_pywrap_tensorflow_internal\.so",
    ),
    ("rmm", r"librmm\.so|librmm/_torch_allocator\.so"),
    ("cuda-other", r"cupy_backends/.*\.so|libcudart\.so|libcuda\.so"),
)
_MAPPED = re.compile(
    "|".join(
        rf"/(?P<{tag.replace('-', '_')}>(?:{pattern})(?:\.[\d.]+)?(?: \(deleted\))?$)"
        for tag, pattern in _LIBRARIES
    )
)
#: cheap to look for, and in every name above
_HINTS = ("vllm/", "llama", "ggml", "cuda", "xla", "tensorflow", "rmm", "cupy")
_TAG_OF_GROUP = {tag.replace("-", "_"): tag for tag, _ in _LIBRARIES}
_RANK = {tag: rank for rank, (tag, _) in enumerate(_LIBRARIES)}

_COMMANDS = (
    ("vllm", re.compile(r"VLLM::|(?:\S+ ){0,2}(?:\S*/)?vllm serve\b|.{0,4096} -m vllm\b")),
    ("llama", re.compile(r"(?:\S*/)?(?:llama-server|ollama)(?:\s|$)")),
)


def find_frameworks(maps: str, command: str) -> list[str]:
    """Tags of all frameworks that a text of /proc/PID/maps, or the command line or process
    title, shows; the most telling first. Either may be "" when it cannot be read.
    """
    # a library is mapped in several pieces: look at each name once
    paths = {line[line.find("/") + 1 :] for line in maps.splitlines() if "/" in line}
    tags = set()
    for path in paths:
        if any(hint in path for hint in _HINTS):
            match = _MAPPED.search("/" + path)
            if match and match.lastgroup:
                tags.add(_TAG_OF_GROUP[match.lastgroup])
    tags.update(tag for tag, pattern in _COMMANDS if pattern.match(command))
    if len(tags) > 1:
        tags.discard("cuda-other")
    return sorted(tags, key=_RANK.__getitem__)


#: what a program is for, and the mapped files that show it: simulators of reinforcement learning,
#: molecular dynamics, solvers of equations
_PURPOSES = (
    (
        "environments",
        r"libmujoco\.so|_?ale_py[^/\n]*\.so|libcarb\.so|_Box2D[^/\n]*\.so|pybullet[^/\n]*\.so",
    ),
    ("dynamics", r"libOpenMM(?:CUDA)?\.so|libgromacs(?:_mpi)?\.so|liblammps[^/\n]*\.so"),
    ("solver", r"libpetsc[^/\n]*\.so|libOpenFOAM\.so|libdolfinx?\.so|libelpa[^/\n]*\.so"),
)
_PURPOSE = re.compile(
    "|".join(rf"/(?P<{purpose}>(?:{pattern})(?:\.[\d.]+)?)$" for purpose, pattern in _PURPOSES),
    re.MULTILINE,
)


def find_purposes(maps: str) -> list[str]:
    """What a process's libraries are for, from a text of /proc/PID/maps."""
    found = {match.lastgroup for match in _PURPOSE.finditer(maps)}
    return [purpose for purpose, _ in _PURPOSES if purpose in found]


# -- the few environment variables that decide what memory or threads are taken ----------------

_TRUE = frozenset(("1", "true", "t", "yes", "y", "on"))
_FALSE = frozenset(("0", "false", "f", "no", "n", "off"))
_FRACTION = re.compile(r"\d{0,3}\.?\d{1,6}(?=$|[+-])")


def _switch(value: str) -> str:
    lower = value.strip().lower()
    return "true" if lower in _TRUE else "false" if lower in _FALSE else "set"


def _fraction(value: str) -> str:
    """`.5` and `0.5` are 0.5; of `0.75+` and `0.75-0.85`, which can grow, the start."""
    match = _FRACTION.match(value.strip())
    return f"{float(match.group()):g}" if match else "set"


def _number(value: str) -> str:
    value = value.strip()
    return str(int(value)) if len(value) <= 9 and value.isascii() and value.isdigit() else "set"


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda value: value.strip().lower() if value.strip().lower() in words else "set"


def _entries(value: str) -> str:
    """How many devices a list names: "0" hides all of them."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names or names[0] in ("-1", "NoDevFiles"):
        return "0"
    return str(min(len(names), 999))


def _is_set(value: str) -> str:
    return "set"


VERDICTS: dict[str, Callable[[str], str]] = {
    "TF_FORCE_GPU_ALLOW_GROWTH": _switch,
    "TF_GPU_ALLOCATOR": _one_of("cuda_malloc_async"),
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB": _number,
    "XLA_PYTHON_CLIENT_PREALLOCATE": _switch,
    "XLA_PYTHON_CLIENT_MEM_FRACTION": _fraction,
    "XLA_CLIENT_MEM_FRACTION": _fraction,
    "XLA_PYTHON_CLIENT_ALLOCATOR": _one_of(
        "default", "platform", "bfc", "cuda_async", "vmm", "address"
    ),
    "PYTORCH_CUDA_ALLOC_CONF": _is_set,
    "PYTORCH_ALLOC_CONF": _is_set,
    "CUPY_GPU_MEMORY_LIMIT": _is_set,
    "OLLAMA_KEEP_ALIVE": _is_set,
    "OLLAMA_GPU_OVERHEAD": _is_set,
    "OLLAMA_CONTEXT_LENGTH": _number,
    "OMP_NUM_THREADS": _number,
    "MKL_NUM_THREADS": _number,
    "CUDA_LAUNCH_BLOCKING": _switch,
    "CUDA_VISIBLE_DEVICES": _entries,
}


def parse_environ(content: bytes) -> dict[str, str] | None:
    """/proc/PID/environ as name -> value; None when it was overwritten by a process title."""
    pairs = [
        entry.decode("utf-8", "replace").partition("=")
        for entry in content.split(b"\0")
        if b"=" in entry
    ]
    return {name: value for name, _, value in pairs} or None


def environment_hints(environ: Mapping[str, str]) -> dict[str, str]:
    """Verdicts on the variables above that are set: a word or number, never their own text.

    They hold for the start of the process; what Python sets in `os.environ` is not seen.
    """
    return {name: verdict(environ[name]) for name, verdict in VERDICTS.items() if name in environ}
