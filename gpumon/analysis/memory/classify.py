"""Which kind of memory a process holds on a device: reserved, grown, cached or needed.

Tolerances are those of the project's catalogue of findings (section 7): proposals, not yet tuned
on hardware. Levels are compared with NVML's total; `others_bytes` holds what was in use beside
the process, the driver's reserve included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpumon.analysis.memory.need import Need
from gpumon.analysis.memory.shape import LARGE_SHARE, Shape, shape_of
from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.analysis.rundata import ProcessData, Track

GIB = float(1 << 30)
MIB = float(1 << 20)

#: kind -> what it says about need (findings, section 8)
TRUTHS = {
    "tf": "unknown",  # TensorFlow took all but its own reserve
    "jax": "unknown",  # JAX took its fraction
    "kv": "unknown",  # an inference server's cache
    "pool": "unknown",  # looks like some pool
    "early": "unknown",  # not watched for long enough to tell
    "growth": "upper-bound",  # grows by doubling: at most twice the need
    "reserve": "upper-bound",  # a caching allocator, which does not give back
    "context": "upper-bound",  # nothing but the context
    "real": "real",
}

_FLAT = 0.03
_SURE_S = 300.0  # a plateau watched for so long is one
_EARLY_S = 60.0
_POOL_S = 600.0
_POOL_FLAT = 0.01
_POOL_SHARES = (0.5, 0.75, 0.9)
_NEAR = 0.03
_BACKPEDAL = 0.9  # TensorFlow asks for so much of it when the driver refuses a chunk
_CREEP_BYTES = 0.75 * GIB
_JAX_SHARE = 0.75
_JAX_SLACK_BYTES = 1.5 * GIB
_SERVED = re.compile(r"\bvllm\b|\bsglang\b|\btrtllm|\btensorrt_llm\b|VLLM::")
_FRACTION = re.compile(
    r"(?:gpu-memory-utilization|mem-fraction-static|kv_cache_free_gpu_mem_fraction)"
    r"[= ]+(0?\.\d{1,6}|1(?:\.0+)?)(?![\d.])"
)
_FRAMEWORKS = ("torch", "jax", "tf")  # two of them in one process: either may hold the memory


class ProcessMemory(NamedTuple):
    """What one process holds on one device. `expected_bytes`: of the plateau, used in all. `need`:
    where a probe measured it.
    """

    process: ProcessData
    kind: str  # of TRUTHS
    confidence: str  # high, medium, low
    why: str
    shape: Shape | None = None
    expected_bytes: float | None = None
    need: Need | None = None

    @property
    def truth(self) -> str:
        return "measured" if self.need is not None else TRUTHS[self.kind]


class _Case(NamedTuple):
    process: ProcessData
    shape: Shape
    total: float
    cc: float | None
    others: float

    @property
    def level(self) -> float:
        """In use in all, on the plateau."""
        return self.others + self.shape.plateau_bytes

    @property
    def share(self) -> float:
        return self.shape.plateau_bytes / self.total

    @property
    def hints(self) -> dict[str, str]:
        return self.process.facts.hints


def tf_reserve_bytes(total_bytes: float, cc: float | None) -> float:
    """What TensorFlow leaves free, by compute capability; of an unknown one as of 8.x.

    MinSystemMemory in TensorFlow's gpu_device.cc; below 2 GiB of memory it leaves 225 MiB.
    """
    if total_bytes < 2 * GIB:
        return 225 * MIB
    if cc is None:
        return 1536 * MIB
    return (500 if cc < 7 else 1050 if cc < 8 else 1536 if cc < 9 else 1800) * MIB


def classify(
    process: ProcessData,
    total_bytes: float | None,
    cc: float | None = None,
    mem: Track | None = None,
) -> ProcessMemory:
    """The kind of a process's memory on a device of `total_bytes` and compute capability `cc`.

    `mem` stands in for its own track where the driver does not tell a process's memory.
    """
    if total_bytes is None or not total_bytes > 0:
        return _by_tag(process, "the device's memory is not known")
    shape = shape_of(process, total_bytes, mem)
    if shape is None or shape.plateau_bytes <= 0:
        return _by_tag(process, "its memory is not known")
    case = _Case(process, shape, total_bytes, cc, process.others_bytes or 0.0)
    for test in _TESTS:
        found = test(case)
        if found is not None:
            return found
    return _found(case, "reserve", "low", "its libraries are unknown")


def _by_tag(process: ProcessData, why: str) -> ProcessMemory:
    """Without a shape: the libraries alone, and never more than a bound from them."""
    tag = process.frameworks[0] if process.frameworks else ""
    if _serves(process):
        return ProcessMemory(process, "kv", "low", why)
    kind = {"torch": "reserve", "cuda-other": "reserve", "llama": "real"}.get(tag, "early")
    return ProcessMemory(process, kind, "low", why)


def _found(
    case: _Case, kind: str, confidence: str, why: str, expected_bytes: float | None = None
) -> ProcessMemory:
    return ProcessMemory(case.process, kind, confidence, why, case.shape, expected_bytes)


def _serves(process: ProcessData) -> bool:
    return "vllm" in process.frameworks or bool(_SERVED.search(process.facts.command))


def _capped(case: _Case, *, contradicted: bool = False) -> str:
    """How sure a plateau is: seen to rise, watched for five minutes, of one framework."""
    if contradicted:
        return "low"
    both = sum(tag in case.process.frameworks for tag in _FRAMEWORKS) > 1
    unseen = case.shape.rise_s is None
    if both and unseen:
        return "low"
    return "medium" if both or unseen or case.shape.flat_s < _SURE_S else "high"


def _stands(case: _Case, slack_bytes: float = 0.0) -> bool:
    """On a plateau, reached in one go or before anybody watched.

    `slack_bytes`: as much may come in a creep, for libraries that load after the jump.
    """
    shape = case.shape
    jumped = slack_bytes and shape.plateau_bytes - shape.jump_bytes <= CONTEXT_BYTES + slack_bytes
    rose = shape.is_quick or shape.rise_s is None or bool(jumped)
    still = shape.flat * shape.plateau_bytes <= max(_FLAT * shape.plateau_bytes, slack_bytes)
    return rose and still and shape.flat_s >= _EARLY_S


# -- the tests, in order; the first that finds something decides -----------------------------------


def _test_early(case: _Case) -> ProcessMemory | None:
    """Too short to see a plateau, of a framework that may yet take all."""
    tags = case.process.frameworks
    if case.shape.flat_s >= _EARLY_S or "torch" in tags[:1] or _serves(case.process):
        return None
    if not any(tag in tags for tag in ("tf", "jax", "rmm")):
        return None
    return _found(case, "early", "low", f"watched for {case.shape.flat_s:.0f} s only")


def _test_kv(case: _Case) -> ProcessMemory | None:
    """An inference server: fills what its fraction allows; the shape only tells how sure that is.

    vLLM fills to 0.9 (0.92 from v0.25 on) of the device, TensorRT-LLM 0.9 of what the weights
    leave, SGLang 0.79 to 0.88.
    """
    if not _serves(case.process):
        return None
    told = _FRACTION.search(case.process.facts.command)
    low, high = (0.8, 0.99) if told is None else (float(told[1]) - 0.1, float(told[1]) + 0.09)
    level = case.level / case.total
    jumped = case.shape.jump_bytes >= LARGE_SHARE * case.total or case.shape.rise_s is None
    fits = jumped and low <= level <= high and case.shape.flat <= _FLAT
    sure = fits and case.shape.flat_s >= _EARLY_S
    confidence = "high" if sure and case.shape.rise_s is not None else "medium" if fits else "low"
    expected = float(told[1]) * case.total if told else None
    why = "the rest of its share is cache" + (f"; set to {told[1]}" if told else "")
    return _found(case, "kv", confidence, why, expected)


def _test_tf(case: _Case) -> ProcessMemory | None:
    """TensorFlow's plateau: total − reserve, or nine tenths of that and so on where refused."""
    if "tf" not in case.process.frameworks:
        return None
    reserve = tf_reserve_bytes(case.total, case.cc)
    told = case.hints.get("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "")
    if told.isdigit():
        reserve = float(told) * MIB
    tolerance = max(0.03 * case.total, 0.75 * GIB)
    expected = case.total - reserve
    tries = [expected * _BACKPEDAL**k for k in range(6)]
    fit = next((k for k, each in enumerate(tries) if abs(case.level - each) <= tolerance), None)
    # its libraries that load later take from the reserve; PyTorch may grow for another reason
    slack_bytes = 0.0 if "torch" in case.process.frameworks else min(reserve, _CREEP_BYTES)
    if fit is None or case.shape.plateau_bytes <= CONTEXT_BYTES or not _stands(case, slack_bytes):
        return None
    grows = case.hints.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
    confidence = _capped(case, contradicted=grows)
    if fit and confidence == "high":
        confidence = "medium"
    why = f"constant at the total less {reserve / MIB:.0f} MiB" + (f", × 0.9^{fit}" if fit else "")
    return _found(case, "tf", confidence, why, tries[fit])


def _test_jax(case: _Case) -> ProcessMemory | None:
    """JAX's plateau: a fraction of the total, and the context above it.

    CUDA's total is up to 2 % below NVML's, so the plateau may lie as much below the fraction.
    """
    if "jax" not in case.process.frameworks:
        return None
    share = _JAX_SHARE
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        try:
            share = float(case.hints[name])
            break
        except (KeyError, ValueError):
            continue
    expected = share * case.total
    fits = 0.98 * expected <= case.shape.plateau_bytes <= expected + _JAX_SLACK_BYTES
    if not fits or not 0 < share <= 1 or not _stands(case):
        return None
    off = case.hints.get("XLA_PYTHON_CLIENT_PREALLOCATE") == "false"
    why = f"constant at {100 * share:.0f} % of the total and a context"
    return _found(case, "jax", _capped(case, contradicted=off), why, case.others + expected)


def _test_growth(case: _Case) -> ProcessMemory | None:
    """A staircase of doublings: an allocator that grows its regions by two."""
    steps = case.shape.steps
    doublings = 0
    for before, after in zip(steps, steps[1:]):
        doublings = doublings + 1 if 1.7 <= after / before <= 2.3 else 0
        if doublings >= 2:
            return _found(case, "growth", "medium", "it grows by doubling")
    return None


def _test_tag(case: _Case) -> ProcessMemory | None:
    """What the libraries say where the shape is none of the above."""
    tag = case.process.frameworks[0] if case.process.frameworks else ""
    if tag in ("torch", "cuda-other"):
        return _found(case, "reserve", "high", "its allocator returns no memory")
    if tag == "llama":
        return _found(case, "real", "high", "weights and the cache for its context")
    if tag not in ("tf", "jax", "rmm"):
        return None
    if tag == "jax" and case.hints.get("XLA_PYTHON_CLIENT_ALLOCATOR") == "platform":
        return _found(case, "real", "medium", "set to free memory at once")
    if case.shape.plateau_bytes <= CONTEXT_BYTES:
        return _found(case, "context", "medium", "only its context so far")
    large = case.shape.jump_bytes >= LARGE_SHARE * case.total or case.shape.rise_s is None
    told = (
        case.hints.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
        or case.hints.get("XLA_PYTHON_CLIENT_PREALLOCATE") == "false"
        or case.hints.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async"
    )
    if told:
        return _found(case, "growth", "medium", "set to allocate on demand")
    if large and _stands(case):
        return _found(case, "pool", "low", "one jump to a plateau: a fraction set in the program?")
    return _found(case, "reserve" if tag == "rmm" else "growth", "low", "it grows on demand")


def _test_pool(case: _Case) -> ProcessMemory | None:
    """No library known, but one jump to a round share of the device, then nothing at all."""
    shape = case.shape
    jumped = shape.jump_bytes >= 0.4 * case.total and shape.is_quick
    round_share = case.share >= 0.9 or any(abs(case.share - each) <= _NEAR for each in _POOL_SHARES)
    still = shape.flat <= _POOL_FLAT and shape.flat_s >= 0.95 * _POOL_S
    if case.process.frameworks or not (jumped and still and round_share):
        return None
    return _found(case, "pool", "low", f"one jump to {100 * case.share:.0f} %, flat since")


_TESTS: tuple[Callable[[_Case], ProcessMemory | None], ...] = (
    _test_early, _test_kv, _test_tf, _test_jax, _test_growth, _test_tag, _test_pool,
)  # fmt: skip
