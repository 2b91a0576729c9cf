"""Device memory that a framework took ahead of need, so that it is no sign of need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.analysis.finding import Action, Finding, Lack, to_write
from gpumon.analysis.memory import ProcessMemory, mem_truth_of
from gpumon.analysis.rules.needs import gpu_memory
from gpumon.analysis.rules.phrasing import (
    alike,
    beside_text,
    finding,
    gpus_text,
    least,
    missing,
    percent,
)
from gpumon.analysis.rules.rule import Answers, Checked, Rule, rule
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import job_devices, observed
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text

_SAYS = {
    "tf": "TensorFlow preallocated {size}; the real need is unknown",
    "jax": "JAX preallocated {size}; the real need is unknown",
    "kv": "an inference engine fills {size} with its cache, by design",
    "pool": "{size} look like a preallocated pool; the real need is unknown",
}
_MEASURED = {
    "tf": "TensorFlow preallocated {size}; {used} in use at most",
    "jax": "JAX preallocated {size}; {used} in use at most",
    "pool": "{size} preallocated; {used} in use at most",
}
#: kinds of memory that is taken ahead (`memory.classify`)
RESERVED = tuple(_SAYS)
_OWN_FIGURES = (to_write("The program's output may show how much GPU memory it needs."),)
_PROBE = Action(
    "shell",
    Line("gpumon record --probe -- COMMAND"),
    text="Or in any run: the probe reads the true peak inside the program.",
)
_RECIPES = {
    "tf": (
        Action("shell", Line("export TF_FORCE_GPU_ALLOW_GROWTH=true"),
               text="For one measuring run, set this: it then uses at most 2× the real need."),
        Action("code", Line("import os; os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'"),
               text="The same in Python, before `import tensorflow`."),
        _PROBE,
    ),
    "jax": (
        Action("shell", Line("export XLA_PYTHON_CLIENT_PREALLOCATE=false"),
               text="For one measuring run; keep preallocation in production."),
        _PROBE,
    ),
    "kv": (
        to_write("Its log or metrics show how much of the cache is in use. Its share of the "
                    "GPU can be lowered only as far as its weights and that much cache need."),
    ),
    "pool": (
        Action("code", Line('rmm.reinitialize(pool_allocator=True, initial_pool_size="4GiB")'),
               text="If it is RMM, for one measuring run: a small pool that grows shows the need."),
    ),
}  # fmt: skip


def _reservation(
    kind: str, *, title: str, remedy: str
) -> Callable[[Callable[[RunData], Checked]], Rule]:
    return rule(
        f"alloc-all-{kind}",
        title=title,
        why="So the memory in use does not show how much the program needs.",
        remedy=remedy,
        needs=(gpu_memory,),
        folds=("gpu-mem-full", "gpu-mem-headroom", "smaller-gpu", "gpu-leak"),
    )


@_reservation(
    "tf",
    title="TensorFlow preallocated all memory",
    remedy="`record --probe` or `TF_FORCE_GPU_ALLOW_GROWTH=true` shows the need",
)
def alloc_all_tf(run: RunData) -> Answers:
    """TensorFlow's plateau (`memory.classify`): total − reserve, in one jump, flat for a minute.

    Guards: by the shape first, `TF_FORCE_GPU_ALLOW_GROWTH=true` in the environment only lowers the
    confidence; its libraries mapped in a PyTorch process, too. Source: TensorFlow's gpu_device.cc.
    """
    return _reserved(run, "tf")


@_reservation(
    "jax",
    title="JAX preallocated its share",
    remedy="`record --probe` or `XLA_PYTHON_CLIENT_PREALLOCATE=false` shows the need",
)
def alloc_all_jax(run: RunData) -> Answers:
    """JAX's plateau: 75 % of the device, or what XLA_CLIENT_MEM_FRACTION says, and a context.

    Guards: as for TensorFlow. Source: JAX documentation, GPU memory allocation.
    """
    return _reserved(run, "jax")


@_reservation(
    "kv",
    title="vLLM, SGLang or TensorRT-LLM filled its share with cache",
    remedy="see in its metrics how much of the cache is in use",
)
def alloc_all_kv(run: RunData) -> Answers:
    """An inference server (vLLM, SGLang, TensorRT-LLM) that fills its share with its cache.

    Guards: low confidence where the last jump does not end at the share. Source: vLLM's
    `gpu_memory_utilization`, 0.9 up to v0.8, 0.92 from v0.25 on.
    """
    return _reserved(run, "kv")


@_reservation(
    "pool",
    title="a process allocated a round share at once",
    remedy="read its allocator's own statistics",
)
def alloc_all_pool(run: RunData) -> Answers:
    """One jump of 40 % of the device to a round share, flat for 10 min, and no library known.

    Guards: low confidence only. Source: RMM takes half of what is free. Numbers proposed.
    """
    return _reserved(run, "pool")


def _reserved(run: RunData, kind: str) -> Answers:
    found: list[tuple[DeviceData, ProcessMemory]] = []
    for device in job_devices(run):
        truth = mem_truth_of(device)
        held = [each for each in truth.of_kind(kind) if each.shape is not None]
        if held:
            found.append((device, max(held, key=_most)))
        elif truth.mem_truth == "unknown" and truth.kind in ("", "early"):
            yield missing(device, truth.reason, Lack.NEED)
    for same in alike(found, lambda each: each[1].need is None):
        yield _found(run, kind, same)


def _found(run: RunData, kind: str, found: Sequence[tuple[DeviceData, ProcessMemory]]) -> Finding:
    """Of devices whose need is known, or is not."""
    device, memory = max(found, key=lambda each: _most(each[1]))
    shape, need = memory.shape, memory.need
    assert shape is not None
    devices = [device for device, _ in found]
    size = of_bytes_text(shape.plateau_bytes, device.mem_total_bytes or 0.0)
    rise_s = shape.rise_s
    how = "before the recording" if rise_s is None else f"within {max(1, round(rise_s))} s"
    how = f"allocated {how}"
    used = "" if need is None else bytes_text(need.in_use_bytes)
    said = (_SAYS if need is None else _MEASURED)[kind].format(size=size, used=used)
    measured = "" if need is None else f"; {used} of it in use at most, {beside_text(need)}"
    return finding(
        run,
        "info",
        f"{gpus_text(run, devices)}: {said}",
        f"pid {memory.process.facts.pid} {clean(memory.process.facts.name, 40)}: {size}, {how}, "
        f"flat within {percent(100 * shape.flat)} for {age_text(shape.flat_s)}; {memory.why}"
        f"{measured}",
        adds="",
        devices=devices,
        spans=[observed(run)],
        confidence=least(*(memory.confidence for _, memory in found)),
        numbers={
            "reserved_bytes": shape.plateau_bytes,
            "total_bytes": device.mem_total_bytes,
            "expected_bytes": memory.expected_bytes,
            "rise_s": rise_s,
            "in_use_peak_bytes": None if need is None else need.in_use_bytes,
            "need_bytes": None if need is None else need.low_bytes,
        },
        actions=_actions(kind, memory),
        mem_truth=memory.truth,
    )


def _actions(kind: str, memory: ProcessMemory) -> tuple[Action, ...]:
    """How to learn the need, where it is not known."""
    if memory.need is not None:
        return ()
    return _RECIPES[kind] if kind != "pool" or _is_python(memory) else _OWN_FIGURES


def _is_python(memory: ProcessMemory) -> bool:
    facts = memory.process.facts
    return "python" in f"{facts.name} {facts.command}"


def _most(memory: ProcessMemory) -> float:
    """What the greatest is of: the need where it is known."""
    if memory.need is not None:
        return memory.need.low_bytes
    return memory.shape.plateau_bytes if memory.shape else 0.0
