"""Which processes take device memory ahead of need, so that it is no sign of need."""

from __future__ import annotations

from gpumon.model.sample import Process

#: a context alone takes 0.3 to 0.6 GiB of a device (findings, section 4)
LEAST_CONTEXT_BYTES, CONTEXT_BYTES = 0.3 * (1 << 30), 0.6 * (1 << 30)
#: frameworks that take device memory ahead of need, and the setting that stops that
RESERVING = {
    "tf": ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    "jax": ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    "vllm": None,
    "rmm": None,
}


def reserves(process: Process) -> bool:
    """Whether the process takes device memory ahead of need."""
    if process.framework not in RESERVING:
        return False
    setting = RESERVING[process.framework]
    return setting is None or process.hints.get(setting[0]) != setting[1]
