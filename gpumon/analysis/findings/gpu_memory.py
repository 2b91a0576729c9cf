"""Device memory: reserved and not needed, full, run out of, room left, growing."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon.analysis.evidence import DeviceEvidence, Evidence, ProcessEvidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings import jobstats
from gpumon.analysis.findings.gpu_choice import CHOICE_RULES
from gpumon.analysis.findings.gpu_processes import PROCESS_RULES
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    least,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.leak import LEAST_S, WARM_UP_S, leak
from gpumon.analysis.memory import ProcessMemory, Truth, mem_truth_of
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import (
    Span,
    busy_track,
    is_server,
    job_devices,
    job_processes,
    known_s,
    observed,
    sustained,
    warm_up_end,
)
from gpumon.model.lines import EMPTY, Line
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text

_OUT_OF_MEMORY = re.compile(
    r".*(?:OutOfMemoryError|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory).*"
)
_RESERVED = ("tf", "jax", "kv", "pool")
_NO_MEMORY = "its memory is not known"


# -- reserved, not needed --------------------------------------------------------------------------

_SAYS = {
    "tf": "TensorFlow reserved {size}: not what it needs",
    "jax": "JAX reserved {size} ahead: not what it needs",
    "kv": "an inference server fills {size} with its cache, by design",
    "pool": "{size} look like a pool, taken ahead: need unknown",
}
_RECIPES = {
    "tf": (
        Action("export", Line("export TF_FORCE_GPU_ALLOW_GROWTH=true"),
               text="Then the memory in use says what it needs, at most twice of it."),
        Action("code", Line("import os; os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'"),
               text="The same in Python, before `import tensorflow`."),
        Action("code", Line("tf.config.experimental.get_memory_info('GPU:0')['peak']"),
               text="Printed at the end of the run: the true peak."),
    ),
    "jax": (
        Action("export", Line("export XLA_PYTHON_CLIENT_PREALLOCATE=false"),
               text="For a run that measures; keep the reservation for production."),
        Action("code", Line("jax.local_devices()[0].memory_stats()['peak_bytes_in_use']"),
               text="Printed at the end of the run: the true peak."),
    ),
    "kv": (
        Action("shell", Line("--gpu-memory-utilization 0.5"),
               text="The share that vLLM fills; its /metrics tell how much of the cache is used."),
    ),
    "pool": (
        Action("code", Line('rmm.reinitialize(pool_allocator=True, initial_pool_size="4GiB")'),
               text="If it is RMM: a small pool that grows says what is needed."),
    ),
}  # fmt: skip


def alloc_all_tf(evidence: Evidence) -> Outcome:
    """TensorFlow's plateau (`memory.classify`): total − reserve, in one jump, flat for a minute.

    Guards: by the shape first, `TF_FORCE_GPU_ALLOW_GROWTH=true` in the environment only lowers the
    confidence; its libraries mapped in a PyTorch process, too. Source: TensorFlow's gpu_device.cc.
    """
    return _reserved(evidence, "tf")


def alloc_all_jax(evidence: Evidence) -> Outcome:
    """JAX's plateau: 75 % of the device, or what XLA_CLIENT_MEM_FRACTION says, and a context.

    Guards: as for TensorFlow. Source: JAX documentation, GPU memory allocation.
    """
    return _reserved(evidence, "jax")


def alloc_all_kv(evidence: Evidence) -> Outcome:
    """An inference server (vLLM, SGLang, TensorRT-LLM) that fills its share with its cache.

    Guards: low confidence where the last jump does not end at the share. Source: vLLM's
    `gpu_memory_utilization`, 0.9 up to v0.8, 0.92 from v0.25 on.
    """
    return _reserved(evidence, "kv")


def alloc_all_pool(evidence: Evidence) -> Outcome:
    """One jump of 40 % of the device to a round share, flat for 10 min, and no library known.

    Guards: low confidence only. Source: RMM takes half of what is free. Numbers proposed.
    """
    return _reserved(evidence, "pool")


def _without_devices(evidence: Evidence) -> Outcome:
    return without_devices(evidence, jobstats.memory(evidence))


def _reserved(evidence: Evidence, kind: str) -> Outcome:
    if not job_devices(evidence):
        return _without_devices(evidence)
    unknown: dict[str, str] = {}
    found: list[tuple[DeviceEvidence, ProcessMemory]] = []
    for device in job_devices(evidence):
        truth = mem_truth_of(device)
        held = [each for each in truth.of_kind(kind) if each.shape is not None]
        if held:
            found.append((device, max(held, key=lambda each: _plateau(each))))
        elif truth.mem_truth == "unknown" and truth.kind in ("", "early"):
            unknown[device.label] = truth.reason
    if not found:
        return outcome([], unknown)
    devices = [device for device, _ in found]
    device, memory = max(found, key=lambda each: _plateau(each[1]))
    assert memory.shape is not None
    size = of_bytes_text(memory.shape.plateau_bytes, device.mem_total_bytes or 0.0)
    says = _SAYS[kind].format(size=size)
    rise_s = memory.shape.rise_s
    how = "was there before" if rise_s is None else f"took it within {max(1, round(rise_s))} s"
    text = (
        f"pid {memory.process.facts.pid} {clean(memory.process.facts.name, 40)}: {size}, {how}, "
        f"flat within {percent(100 * memory.shape.flat)} for {age_text(memory.shape.flat_s)}; "
        f"{memory.why}"
    )
    return [
        _of_memory(
            finding(
                evidence, devices, [observed(evidence)],
                id=f"alloc-all-{kind}", level="info",
                title=f"{gpus_text(evidence, devices)}: {says}", text=text,
                confidence=least(*(memory.confidence for _, memory in found)),
                numbers={"reserved_bytes": memory.shape.plateau_bytes,
                         "total_bytes": device.mem_total_bytes,
                         "expected_bytes": memory.expected_bytes, "rise_s": rise_s},
                actions=_RECIPES[kind],
            ),
            "unknown",
        )
    ]  # fmt: skip


def _plateau(memory: ProcessMemory) -> float:
    return memory.shape.plateau_bytes if memory.shape else 0.0


def _of_memory(made: Finding, truth: str) -> Finding:
    return replace(made, resource="gpu-mem", mem_truth=truth)


# -- full, and run out of --------------------------------------------------------------------------


def gpu_mem_full(evidence: Evidence) -> Outcome:
    """In use, the driver's reserve included, ≥ 97 % of the device for 60 s; not a reservation.

    Warning where memory is believed real; information where it is an allocator's reserve ("reserved
    by PyTorch") and nothing failed, because such runs end well (ECE459: 98.7 %). Never critical.
    """
    if not job_devices(evidence):
        return _without_devices(evidence)
    share = evidence.site.threshold("gpu-mem-full.percent", 97) / 100
    seconds = evidence.site.threshold("gpu-mem-full.seconds", 60)
    unknown: dict[str, str] = {}
    found: list[Finding] = []
    for device in job_devices(evidence):
        total = device.mem_total_bytes
        track = device.track("mem_used_bytes")
        truth = mem_truth_of(device)
        if total is None or not track.known():
            unknown[device.label] = _NO_MEMORY
            continue
        if truth.mem_truth == "unknown":
            unknown[device.label] = truth.reason
            continue
        reserve = number(device.last.get("mem_reserved_bytes")) or 0.0
        limit = share * total - reserve
        held = sustained(evidence, seconds, lambda means: means[0] >= limit, (track,))  # noqa: B023
        if held.spans:
            found.append(_full(evidence, device, truth, held.spans, total, reserve))
    return outcome(found, unknown)


def _full(
    evidence: Evidence,
    device: DeviceEvidence,
    truth: Truth,
    spans: Sequence[Span],
    total: float,
    reserve: float,
) -> Finding:
    peak = (device.track("mem_used_bytes").peak() or 0.0) + reserve
    is_real = truth.mem_truth == "real"
    frameworks = {tag for each in truth.processes for tag in each.process.frameworks[:1]}
    whose = " by PyTorch" if "torch" in frameworks else ""
    word = "used" if is_real else f"reserved{whose}"
    size = of_bytes_text(peak, total)
    seconds = sum(last - first for first, last in spans) * evidence.bin_s
    made = finding(
        evidence, [device], spans,
        id="gpu-mem-full", level="warning" if is_real else "info",
        title=f"{gpus_text(evidence, [device])}: {size} {word} ({percent(100 * peak / total)})",
        text=f"{size} {word} for {age_text(seconds)}; no failure so far",
        confidence=truth.confidence,
        numbers={"peak_bytes": peak, "total_bytes": total, "seconds": seconds},
        actions=(
            Action("code", EMPTY, text="If it fails: half the batch, or gradient checkpointing."),
            Action("export", Line("export PYTORCH_ALLOC_CONF=expandable_segments:True"),
                   text="PyTorch: less is lost between blocks (before 2.9: "
                   "PYTORCH_CUDA_ALLOC_CONF).") if whose else None,
        ),
    )  # fmt: skip
    return _of_memory(made, truth.mem_truth)


def gpu_oom_suspect(evidence: Evidence) -> Outcome:
    """A process left with > 85 % of its device, and the job went on or FAILED within a minute; or
    the end of the job's log names a failed allocation.

    Guards: from outside never certain: low confidence without the log; a reservation (TensorFlow,
    JAX, vLLM) always leaves so, and says nothing. Inside warm-up a matter of configuration.
    """
    line = _OUT_OF_MEMORY.search(evidence.log_tail)
    share = evidence.site.threshold("gpu-oom-suspect.percent", 85) / 100
    unknown: dict[str, str] = {}
    left: list[tuple[float, DeviceEvidence, ProcessEvidence]] = []
    for device in job_devices(evidence):
        total = device.mem_total_bytes
        if total is None or not device.process_list_known:
            unknown[device.label] = _NO_MEMORY if total is None else "processes are not known"
            continue
        kinds = {id(each.process): each.kind for each in mem_truth_of(device).processes}
        for process in job_processes(device):
            held = process.mem_bytes.known()
            is_reserved = kinds.get(id(process)) in (*_RESERVED, "early")
            if not process.ended or not held or (is_reserved and line is None):
                continue
            if held[-1] > share * total and (line or _went_on(evidence, process)):
                left.append((held[-1], device, process))
    if left:
        return [_out_of_memory(evidence, *max(left, key=lambda each: each[0]), line)]
    if line is not None:
        return [_logged(evidence, clean(line.group().strip(), 160))]
    return outcome([], unknown) if job_devices(evidence) else without_devices(evidence)


def _went_on(evidence: Evidence, process: ProcessEvidence) -> bool:
    state = evidence.job.state if evidence.job else ""
    after_s = evidence.end - process.last
    return after_s > 60 or (state in ("FAILED", "OUT_OF_MEMORY") and not evidence.live)


def _out_of_memory(
    evidence: Evidence,
    held: float,
    device: DeviceEvidence,
    process: ProcessEvidence,
    line: re.Match[str] | None,
) -> Finding:
    size = of_bytes_text(held, device.mem_total_bytes or 0.0)
    at = time.strftime("%H:%M:%S", time.localtime(process.last))
    early = process.last - process.first < 120
    said = f"; log: {clean(line.group().strip(), 160)}" if line else ""
    made = finding(
        evidence, [device], [observed(evidence)],
        id="gpu-oom-suspect", level="info",
        title=f"pid {process.facts.pid} {'ran' if line else 'may have run'} out of GPU memory"
        + (" at its start" if early else ""),
        text=f"pid {process.facts.pid} left at {at} with {size} in use{said}",
        confidence="high" if line else "low",
        numbers={"held_bytes": held, "total_bytes": device.mem_total_bytes},
        actions=_SMALLER,
    )  # fmt: skip
    return replace(_of_memory(made, ""), start=process.first, end=process.last)


def _logged(evidence: Evidence, line: str) -> Finding:
    return Finding(
        "gpu-oom-suspect", "info", "the log names a failed allocation of GPU memory",
        f"log: {line}", "medium", resource="gpu-mem", start=evidence.start, end=evidence.end,
        actions=_SMALLER,
    )  # fmt: skip


_SMALLER = (
    Action("code", EMPTY, text="A smaller batch (halve until it fits)."),
    Action(
        "code",
        Line("gradient_checkpointing=True"),
        text="Less memory for about 20 to 40 % more time.",
    ),
)


# -- room left -------------------------------------------------------------------------------------


def gpu_mem_headroom(evidence: Evidence) -> Outcome:
    """Peak ≤ 45 % of the device, busy ≥ 60 % for 15 min after warm-up, no reservation, no server.

    An upper bound leaves "at least" so much room. Source: ECE459 lecture 24, where eight times the
    batch is 1.64 times as fast in 2.15 times the memory.
    """
    if not job_devices(evidence):
        return _without_devices(evidence)
    share = evidence.site.threshold("gpu-mem-headroom.percent", 45) / 100
    least_busy = evidence.site.threshold("gpu-mem-headroom.busy_percent", 60)
    seconds = evidence.site.threshold("gpu-mem-headroom.seconds", 900)
    unknown: dict[str, str] = {}
    found: list[tuple[DeviceEvidence, float, float, Truth]] = []
    for device in job_devices(evidence):
        total, peak = device.mem_total_bytes, device.track("mem_used_bytes").peak()
        truth = mem_truth_of(device)
        warm = warm_up_end(evidence, device)
        busy = busy_track(device)
        if total is None or peak is None or truth.mem_truth == "unknown":
            unknown[device.label] = _NO_MEMORY if total is None or peak is None else truth.reason
        elif known_s(evidence, busy, warm) < seconds:
            unknown[device.label] = "busy % is not known for long enough"
        elif job_processes(device) and not is_server(device) and 0 < peak <= share * total:
            mean = busy.average(warm)
            if mean is not None and mean >= least_busy:
                found.append((device, peak, mean, truth))
    if not found:
        return outcome([], unknown)
    devices = [device for device, *_ in found]
    device, peak, mean, truth = max(
        found, key=lambda each: each[1] / (each[0].mem_total_bytes or 1)
    )
    total = device.mem_total_bytes or 1.0
    times = int(0.9 * total / peak)
    size = of_bytes_text(peak, total)
    made = finding(
        evidence, devices, [observed(evidence)],
        id="gpu-mem-headroom", level="info",
        title=f"{gpus_text(evidence, devices)}: room for a larger batch, {size} at "
        f"{percent(mean)} busy",
        text=f"peak {size} at {percent(mean)} busy"
        + ("; an allocator's reserve, so at least that much is free"
           if truth.mem_truth == "upper-bound" else ""),
        confidence=least(*(truth.confidence for *_, truth in found)),
        numbers={"peak_bytes": peak, "total_bytes": total, "busy_percent": mean, "times": times},
        actions=(Action("code", Line("batch size × 2"), Line("batch size"),
                        f"Up to × {times} by memory; stop where it is no longer faster."),),
    )  # fmt: skip
    return [_of_memory(made, truth.mem_truth)]


# -- growing ---------------------------------------------------------------------------------------


def gpu_leak(evidence: Evidence) -> Outcome:
    """The leak rule (`analysis.leak`) on a process's device memory: 10 min of warm-up, 40 of data.

    Guards: never of a reservation; growth by doubling is a staircase, which the rule does not take.
    """
    if not job_devices(evidence):
        return _without_devices(evidence)
    found: list[Finding] = []
    unknown: dict[str, str] = {}
    need_s = WARM_UP_S + LEAST_S
    for device in job_devices(evidence):
        total = device.mem_total_bytes
        if total is None or not device.process_list_known:
            unknown[device.label] = _NO_MEMORY if total is None else "processes are not known"
            continue
        for memory in mem_truth_of(device).processes:
            track = memory.process.mem_bytes
            if memory.kind in (*_RESERVED, "early", "growth"):
                continue
            if known_s(evidence, track) < need_s:
                unknown[device.label] = f"needs {age_text(need_s)} of a process"
                continue
            grows = leak(track.mean, evidence.bin_s, total)
            if grows is None or (evidence.live and memory.process.ended):
                continue
            pace = f"+{bytes_text(3600 * grows.per_s)}/h"
            full = f"full in about {age_text(grows.full_in_s)}"
            pid = memory.process.facts.pid
            made = finding(
                evidence, [device], [observed(evidence)],
                id="gpu-leak", level="warning",
                title=f"{gpus_text(evidence, [device])}: memory grows {pace}, {full}",
                text=f"pid {pid}: {pace} (z = {grows.z:.1f}), "
                f"+{bytes_text(grows.rise_bytes)} so far, {full}",
                numbers={"per_s": grows.per_s, "full_in_s": grows.full_in_s, "z": grows.z},
                harm_in_s=grows.full_in_s if evidence.live else None,
                actions=(
                    Action("code", Line("loss.detach()"),
                           text="Keep no graphs or outputs in lists."),
                    Action("code", Line("torch.cuda.memory._record_memory_history()"),
                           text="Shows what holds it."),
                ),
            )  # fmt: skip
            found.append(_of_memory(made, memory.truth))
    return outcome(found, unknown)


RULES: tuple[Rule, ...] = (
    Rule("alloc-all-tf", alloc_all_tf),
    Rule("alloc-all-jax", alloc_all_jax),
    Rule("alloc-all-kv", alloc_all_kv),
    Rule("alloc-all-pool", alloc_all_pool),
    Rule("gpu-mem-full", gpu_mem_full),
    Rule("gpu-oom-suspect", gpu_oom_suspect),
    Rule("gpu-mem-headroom", gpu_mem_headroom),
    *CHOICE_RULES,
    Rule("gpu-leak", gpu_leak),
    *PROCESS_RULES,
)
