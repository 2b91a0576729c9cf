"""GPUs that jobs run on: their memory, their peak rates, and how they read when idle.

Peak rates are the manufacturers' dense figures in TFLOPS, bandwidth in GB/s. They decide how much
slower the same kernels run on another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Board:
    """One type of GPU."""

    name: str  # as the driver reports it
    gres: str  # as the site names it
    mem_bytes: float
    cc: str
    limit_w: float
    idle_w: float
    clock_mhz: float
    peak: Mapping[str, float]  # bf16, tf32, fp32, fp64, and bw
    gpm: bool = False  # the driver counts SM activity (Hopper and newer)
    nvlinks: int = 0
    pcie_gen: int = 4
    reserved_bytes: float = 500 * MIB  # by the driver itself
    mig: str = ""  # profile, where it is a slice

    def slowdown(self, other: Board, kernels: Mapping[str, float]) -> float:
        """How much longer kernels take on `other`; their shares of time by what limits them."""
        shares = dict(kernels)
        fixed = shares.pop("latency", 0.0)
        scaled = sum(
            share * max(1.0, self.peak[limit] / other.peak[limit])
            if other.peak.get(limit)
            else share * 1e6  # the type cannot run it at a usable speed
            for limit, share in shares.items()
        )
        return scaled + fixed


def _peaks(bf16: float, tf32: float, fp32: float, fp64: float, bw: float) -> dict[str, float]:
    return {"bf16": bf16, "tf32": tf32, "fp32": fp32, "fp64": fp64, "bw": bw}


_A100 = _peaks(312, 156, 19.5, 9.7, 2039)

A100 = Board("NVIDIA A100-SXM4-80GB", "gpu:a100", 81920 * MIB, "8.0", 400, 58, 1410, _A100,
             nvlinks=12)  # fmt: skip
H100 = Board("NVIDIA H100 80GB HBM3", "gpu:h100", 81559 * MIB, "9.0", 700, 72, 1980,
             _peaks(989, 494, 67, 34, 3350), gpm=True, nvlinks=18, pcie_gen=5)  # fmt: skip
A40 = Board("NVIDIA A40", "gpu:a40", 46068 * MIB, "8.6", 300, 30, 1740,
            _peaks(149.7, 74.8, 37.4, 0.58, 696))  # fmt: skip
A6000 = Board("NVIDIA RTX A6000", "gpu:a6000", 46068 * MIB, "8.6", 300, 24, 1800,
              _peaks(154.8, 77.4, 38.7, 0.6, 768))  # fmt: skip
RTX3090 = Board("NVIDIA GeForce RTX 3090", "gpu:rtx_3090", 24576 * MIB, "8.6", 350, 24, 1695,
                _peaks(71, 35.6, 35.6, 0.56, 936))  # fmt: skip
RTX2080TI = Board("NVIDIA GeForce RTX 2080 Ti", "gpu:rtx_2080", 11264 * MIB, "7.5", 250, 15, 1545,
                  _peaks(0, 13.4, 13.4, 0.42, 616), pcie_gen=3,
                  reserved_bytes=180 * MIB)  # fmt: skip
V100 = Board("Tesla V100-SXM2-32GB", "gpu:v100", 32768 * MIB, "7.0", 300, 42, 1530,
             _peaks(0, 15.7, 15.7, 7.8, 900), nvlinks=6, pcie_gen=3)  # fmt: skip
MIG_10 = Board("NVIDIA A100-SXM4-80GB", "gpu:1g.10gb", 9728 * MIB, "8.0", 400, 58, 1410,
               {name: value / (8 if name == "bw" else 7) for name, value in _A100.items()},
               reserved_bytes=30 * MIB, mig="1g.10gb")  # fmt: skip

BOARDS = (A100, H100, A40, A6000, RTX3090, RTX2080TI, V100, MIG_10)
BY_GRES = {board.gres: board for board in BOARDS}
#: what a site's constraints mean, beside the GRES
BY_CONSTRAINT = {"a100_80gb": A100}
