"""Signs and names that several screens use."""

from __future__ import annotations

from gpumon.model.view import DeviceView
from gpumon.store import NodeView

_SIGNS = {"bad": "●", "attention": "▲", "note": "·", "unknown": "?", "good": "✓"}
_ASCII_SIGNS = {"bad": "!", "attention": "^", "note": "-", "unknown": "?", "good": "+"}

FRAMEWORK_NAMES = {
    "tf": "TensorFlow",
    "jax": "JAX",
    "vllm": "vLLM",
    "rmm": "RMM",
    "torch": "PyTorch",
    "llama": "llama.cpp",
    "cuda-other": "CUDA",
}


def signs(glyphs: str) -> dict[str, str]:
    """The sign before a line of each level."""
    return _ASCII_SIGNS if glyphs == "ascii" else _SIGNS


def cursor(glyphs: str) -> str:
    """The sign before what is selected."""
    return ">" if glyphs == "ascii" else "▶"


def device_name(node: NodeView, device: DeviceView, *, several: bool) -> str:
    """`gpu02:3` among several nodes, `GPU 3` on the only one."""
    return f"{node.name}:{device.device.label}" if several else f"GPU {device.device.label}"


def names_text(names: list[str]) -> str:
    """`gpu03`, `gpu03 and gpu07`, `gpu03 and 4 more`."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more"


#: the most devices that a line names; for more it gives only their number
NAMED = 4


def devices_named(names: list[str]) -> str:
    """`GPU 2, 3`, `gpu02:2, 3, gpu03:0`; of more than four how many."""
    if len(names) > NAMED:
        return f"{len(names)} GPUs"
    texts, before = [], ""
    for name in names:
        place = max(name.rfind(" "), name.rfind(":")) + 1
        texts.append(name.removeprefix(before) if before else name)
        before = name[:place]
    return ", ".join(texts)
