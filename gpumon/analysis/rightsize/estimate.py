"""How much device memory a language model takes, by rule of thumb, and which GPUs hold that.

An estimate, not a measurement: activations and caches grow with batch and sequence length, which
nobody knows here. BERT-base at batch 1 took 1.6 times the fine-tuning rule (ECE459 lecture 24).
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from gpumon.site import GpuType

#: bytes per parameter
DTYPES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}


class Mode(NamedTuple):
    """So many times the weights, and who says so."""

    factor: float
    source: str


MODES = {
    "infer": Mode(1.2, "UVA workshop 'LLMs on HPC', which calls it an underestimate"),
    "finetune": Mode(4.0, "Hugging Face model memory calculator, batch 1, Adam"),
    # 350 GB in place of 1.2 TB for GPT-3: 0.29 of fine-tuning, which is 4 times the weights
    "lora": Mode(1.2, "LoRA (arXiv:2106.09685, 4.2): 0.29 of fine-tuning"),
}
#: a CUDA context takes 0.3 to 0.6 GiB
CONTEXT_BYTES = 0.5 * (1 << 30)
#: above this share of a device no batch of any size fits
_TIGHT = 0.9


class Estimate(NamedTuple):
    """Sizes in bytes; `need_bytes` holds the context too."""

    weights_bytes: float
    need_bytes: float
    mode: str


class Fit(NamedTuple):
    """Whether one GPU holds it: `yes`, `tight` (above 90 %) or `no`."""

    gpu: GpuType
    holds: str
    together: int | None  # GPUs that hold it, were it spread evenly; None: slices do not join
    note: str = ""


def estimate(weights_bytes: float, mode: str) -> Estimate:
    """`mode` is of MODES."""
    return Estimate(weights_bytes, MODES[mode].factor * weights_bytes + CONTEXT_BYTES, mode)


def fit(need: Estimate, gpu: GpuType, dtype: str) -> Fit:
    """Whether the GPU holds it. Every further GPU has a context of its own."""
    share = need.need_bytes / gpu.mem_bytes
    holds = "yes" if share <= _TIGHT else "tight" if share <= 1 else "no"
    free = _TIGHT * gpu.mem_bytes - CONTEXT_BYTES
    together = None if gpu.mig_of or free <= 0 else ceil((need.need_bytes - CONTEXT_BYTES) / free)
    if share <= 1:
        together = 1
    note = ""
    if dtype == "bf16" and float(gpu.cc) < 8:
        note = "no bf16: fp16 has the same size"
    elif dtype == "fp8" and float(gpu.cc) < 8.9:
        note = "no fp8: int8 has the same size"
    return Fit(gpu, holds, together, note)
