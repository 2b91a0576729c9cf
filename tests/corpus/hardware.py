"""Models of GPUs as NVML describes them, and how each framework's memory grows on them.

Reserves and shares are those of the frameworks' own sources (TensorFlow's gpu_device.cc, JAX' and
vLLM's documentation); totals are what NVML reports with ECC on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.corpus.signals import Signal, ramp, steps

MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 417 * MIB  # of a process with PyTorch (ECE459, lecture 24)


@dataclass(frozen=True)
class Model:
    name: str
    mem_mib: float
    cc: str
    limit_w: float
    idle_w: float
    clock_mhz: float = 1410.0
    gpm: bool = False
    nvlinks: int = 0
    pcie_gen: int = 4
    reserved_mib: float = 500.0  # the driver's own, which `mem_used_bytes` leaves out

    @property
    def total(self) -> float:
        return self.mem_mib * MIB

    @property
    def reserved(self) -> float:
        return self.reserved_mib * MIB

    def slice(self, mem_mib: float) -> "Model":
        """A MIG instance of it."""
        return Model(self.name, mem_mib, self.cc, self.limit_w, self.idle_w, self.clock_mhz,
                     self.gpm, 0, self.pcie_gen, 30.0)  # fmt: skip


A100 = Model("NVIDIA A100-SXM4-80GB", 81920, "8.0", 400, 60, nvlinks=12)
A100_PCIE = Model("NVIDIA A100 80GB PCIe", 81920, "8.0", 300, 50)
H100 = Model("NVIDIA H100 80GB HBM3", 81559, "9.0", 700, 70, 1980, gpm=True, nvlinks=18, pcie_gen=5)
H200 = Model("NVIDIA H200", 143771, "9.0", 700, 75, 1980, gpm=True, nvlinks=18, pcie_gen=5)
RTX3090 = Model("NVIDIA GeForce RTX 3090", 24576, "8.6", 350, 25, 1695)
V100 = Model("Tesla V100-SXM2-32GB", 32768, "7.0", 300, 40, 1530, nvlinks=6, pcie_gen=3)
P100_8 = Model("Quadro P4000", 7611, "6.1", 105, 8, 1480, pcie_gen=3, reserved_mib=0)
MIG_5 = A100.slice(4864)
MIG_10 = A100.slice(9728)


# -- allocators: bytes of a process, by the seconds since it came ----------------------------------


def _reserve_mib(model: Model) -> float:
    cc = float(model.cc)
    return 500 if cc < 7 else 1050 if cc < 8 else 1536 if cc < 9 else 1800


def tensorflow(model: Model, others: float = 0.0, after_s: float = 6.0) -> Signal:
    """All but its reserve in one jump; libraries that load later creep into the reserve."""
    plateau = model.total - _reserve_mib(model) * MIB - model.reserved - others
    return steps(CONTEXT, (after_s, plateau), (after_s + 20, plateau + 60 * MIB))


def tensorflow_refused(model: Model, times: int) -> Signal:
    """The driver refused so many chunks; each next try is nine tenths of the one before."""
    chunk = model.total - _reserve_mib(model) * MIB
    return steps(CONTEXT, (6, chunk * 0.9**times - model.reserved))


def doubling(peak: float, every_s: float = 12.0) -> Signal:
    """TensorFlow or JAX told to grow: regions double until they hold what is needed."""
    sizes, size = [], 256.0 * MIB
    while sum(sizes) < peak:
        sizes.append(size)
        size *= 2
    stairs = [(every_s * (n + 1), CONTEXT + sum(sizes[: n + 1])) for n in range(len(sizes))]
    return steps(CONTEXT, *stairs)


def jax(model: Model, share: float = 0.75) -> Signal:
    return steps(CONTEXT, (4, share * model.total + CONTEXT))


def vllm(model: Model, share: float = 0.9, weights: float = 14 * GIB) -> Signal:
    """Weights load in a minute, a profiling bump, then one jump to its share: the cache."""
    return steps(
        ramp(CONTEXT, weights, 60),
        (62, weights + 3 * GIB),
        (66, weights),
        (70, share * model.total - model.reserved),
    )


def pool(model: Model, share: float = 0.5) -> Signal:
    """A pool taken ahead, as RMM does."""
    return steps(CONTEXT, (3, share * model.total))


def torch(peak: float, since_s: float = 0.0) -> Signal:
    """A caching allocator: weights, then uneven steps up to its high-water mark."""
    parts: Sequence[tuple[float, float]] = (
        (4, 0.31), (9, 0.38), (17, 0.62), (26, 0.71), (41, 0.90), (75, 0.96), (150, 1.0),
    )  # fmt: skip
    return steps(CONTEXT, *((since_s + s, max(CONTEXT, part * peak)) for s, part in parts))


def llama(size: float) -> Signal:
    """Weights and the cache of its context, read from a file: what it needs."""
    return ramp(CONTEXT, size, 25)
