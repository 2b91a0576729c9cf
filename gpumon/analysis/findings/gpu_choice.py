"""Which GPU would have held it: a smaller one, and whether that would have come sooner."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.evidence import DeviceEvidence, Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings import jobstats
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    least,
    model_text,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.memory import Truth, mem_truth_of
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import action_of, change
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import busy_track, job_devices, job_processes, observed
from gpumon.model.lines import EMPTY, words
from gpumon.model.units import bytes_text
from gpumon.site import GpuType

GIB = float(1 << 30)
_MARGIN, _SPARE_BYTES = 1.15, GIB
_FP64_RATIO = 4.0
_TRAFFIC_BYTES_PER_S = 1e6
_MOST_OFFERED = 3
#: boards of one size differ by less: an H100 of 80 GB is no smaller A100 of 80 GB
_SMALLER = 0.95
_BF16 = re.compile(r"\bbf16\b|\bbfloat16\b", re.IGNORECASE)
_ML = ("torch", "tf", "jax", "vllm", "llama")


class _Used(NamedTuple):
    """What the devices of one model did, the one that needs most deciding."""

    own: GpuType
    devices: list[DeviceEvidence]
    truths: list[Truth]
    peak_bytes: float
    busy: float | None

    @property
    def need_bytes(self) -> float:
        return need_bytes(self.peak_bytes)


def need_bytes(peak_bytes: float) -> float:
    """1.15 × the peak and 1 GiB (findings, 10.4)."""
    return _MARGIN * peak_bytes + _SPARE_BYTES


def smaller_gpu(evidence: Evidence) -> Outcome:
    """1.15 · peak + 1 GiB fits a smaller GPU or slice that one can ask for here; 15 min or ended.

    Warning where it also was less than 20 % busy in less than 32 GB of host memory. Guards: never
    from a reservation; bf16 on the command line excludes capability < 8; FP64 in use excludes what
    is four times slower in it; NVLink traffic, what has none; several nodes, what has no
    InfiniBand; a slice only for one GPU that was less than 20 % busy. Source: jobstats' MIG rule,
    job_defense_shield's "GPU too powerful", Alvis' order of memory, availability, price.
    """
    if not job_devices(evidence):
        return without_devices(evidence, jobstats.memory(evidence))
    ended = evidence.job is not None and evidence.job.has_ended
    if not ended and evidence.elapsed_s < evidence.site.threshold("smaller-gpu.seconds", 900):
        return NotEvaluable("needs 15 min or a finished job")
    found: list[Finding] = []
    unknown: dict[str, str] = {}
    for used in _by_model(evidence, unknown):
        fitting = candidates(evidence, used.own, used.devices, used.need_bytes, used.busy)
        if fitting:
            found.append(_smaller(evidence, used, fitting))
    return outcome(found, unknown)


def _by_model(evidence: Evidence, unknown: dict[str, str]) -> list[_Used]:
    """The devices that had a process, by their model; of an unknown need, why, in `unknown`."""
    groups: dict[str, list[DeviceEvidence]] = {}
    types: dict[str, GpuType] = {}
    for device in job_devices(evidence):
        if not job_processes(device):
            continue
        mig = device.device.mig
        profile = mig.profile if mig else ""
        own = evidence.site.gpu_type(device.device.name, profile, device.mem_total_bytes)
        if own is None:
            unknown[device.label] = "the site's table does not have its model"
            continue
        types[own.key] = own
        groups.setdefault(own.key, []).append(device)
    found = []
    for key, devices in groups.items():
        truths = [mem_truth_of(each) for each in devices]
        peaks = [each.track("mem_used_bytes").peak() for each in devices]
        known = [peak for peak in peaks if peak is not None]
        for device, truth, peak in zip(devices, truths, peaks):
            if peak is None or truth.mem_truth == "unknown":
                unknown[device.label] = "its memory is not known" if peak is None else truth.reason
        if any(each.label in unknown for each in devices):
            continue
        busy = [value for each in devices if (value := busy_track(each).average()) is not None]
        mean = sum(busy) / len(busy) if len(busy) == len(devices) else None
        found.append(_Used(types[key], devices, truths, max(known), mean))
    return found


def candidates(
    evidence: Evidence,
    own: GpuType,
    devices: Sequence[DeviceEvidence],
    need: float,
    busy: float | None,
) -> list[GpuType]:
    """What is smaller, holds `need` bytes and is not excluded; smallest first, then cheapest."""
    fitting = [
        each
        for each in evidence.site.offered
        if need <= each.mem_bytes <= _SMALLER * own.mem_bytes
        and not _excluded(evidence, own, each, devices, busy)
    ]
    return sorted(fitting, key=lambda each: (each.mem_bytes, each.price or 0.0, each.name))


def _excluded(
    evidence: Evidence,
    own: GpuType,
    other: GpuType,
    devices: Sequence[DeviceEvidence],
    busy: float | None,
) -> bool:
    if other.mig_of:
        few = busy is not None and busy < evidence.site.threshold("smaller-gpu.busy_percent", 20)
        if len(devices) > 1 or not few:
            return True
    commands = " ".join(each.facts.command for device in devices for each in device.processes)
    if _BF16.search(commands) and float(other.cc) < 8:
        return True
    fp64 = [value for each in devices if (value := each.track("fp64_active_percent").average())]
    ratio = _ratio(own, other, "fp64")
    if fp64 and max(fp64) > 5 and (ratio is None or ratio > _FP64_RATIO):
        return True
    links = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    linked = any(
        (each.track(name).average() or 0.0) > _TRAFFIC_BYTES_PER_S
        for each in devices
        for name in links
    )
    if len(devices) > 1 and linked and not other.nvlink:
        return True
    return len({each.node for each in devices}) > 1 and other.infiniband is False


def _ratio(own: GpuType, other: GpuType, kind: str) -> float | None:
    """How much slower by peak; of a slice nobody says."""
    mine, theirs = own.peak.get(kind), other.peak.get(kind)
    return mine / theirs if mine and theirs else None


def _smaller(evidence: Evidence, used: _Used, fitting: list[GpuType]) -> Finding:
    host = [node.mem_peak_bytes for node in evidence.nodes if node.mem_peak_bytes is not None]
    small_host = bool(host) and max(host) < 32e9
    idle = used.busy is not None and used.busy < evidence.site.threshold(
        "smaller-gpu.busy_percent", 20
    )
    is_bound = any(truth.mem_truth == "upper-bound" for truth in used.truths)
    offered = ", ".join(
        f"{each.key} ({bytes_text(each.mem_bytes)})" for each in fitting[:_MOST_OFFERED]
    )
    peak = bytes_text(used.peak_bytes)
    busy = "" if used.busy is None else f", busy {percent(used.busy)}"
    made = finding(
        evidence, used.devices, [observed(evidence)],
        id="smaller-gpu", level="warning" if idle and small_host else "info",
        title=f"{gpus_text(evidence, used.devices)} ({model_text(used.devices)}): "
        f"{'at most ' if is_bound else ''}{peak} used; {offered} would hold it",
        text=f"peak {'at most ' if is_bound else ''}{peak} of {bytes_text(used.own.mem_bytes)}"
        f"{busy}; needs {bytes_text(used.need_bytes)} with a margin; "
        f"{_speed(used.own, fitting[0])}",
        confidence=least(*(truth.confidence for truth in used.truths)),
        numbers={"peak_bytes": used.peak_bytes, "need_bytes": used.need_bytes,
                 "busy_percent": used.busy},
        actions=_change(evidence, fitting[0]),
    )  # fmt: skip
    return replace(made, resource="gpu-mem", mem_truth="upper-bound" if is_bound else "real")


def _speed(own: GpuType, other: GpuType) -> str:
    """How much slower the other one is by its peak, and what it lacks."""
    words = []
    for kind in ("bf16", "fp16", "fp32"):
        ratio = _ratio(own, other, kind)
        if ratio is not None:
            words.append(f"by {kind} peak {own.peak[kind]:g} → {other.peak[kind]:g} TFLOPS on it")
            break
    if own.bandwidth_gb_per_s and other.bandwidth_gb_per_s:
        mine, theirs = own.bandwidth_gb_per_s, other.bandwidth_gb_per_s
        words.append(f"by memory bandwidth {mine:.0f} → {theirs:.0f} GB/s")
    if float(other.cc) < 8 <= float(own.cc):
        words.append("it has no bf16")
    ratio = _ratio(own, other, "fp64")
    if "fp64" in own.peak and not other.mig_of and (ratio is None or ratio > _FP64_RATIO):
        words.append("slow in FP64")
    return ", ".join(words) or "how fast it is there, a test run tells"


def _change(evidence: Evidence, other: GpuType) -> tuple[Action, ...]:
    if not other.gres:
        key = words(other.key)
        return (Action("sbatch", EMPTY, text=f"Ask for a {key}, by the site's name of it."),)
    asked = requested(evidence)
    match = re.search(r"\d+$", asked.gpu_text)
    count = match.group() if match else "1"
    after = f"{other.gres}:{count}"
    if asked.gpu_option != "--gres":
        after = after.removeprefix("gpu:")
    line = change(asked.gpu_option, asked.gpu_text, after)
    actions = [action_of(line, "GPUs that fewer wait for.")]
    if other.partition:
        before = evidence.job.partition if evidence.job else ""
        if before != other.partition:
            actions.append(action_of(change("--partition", before, other.partition)))
    if other.constraint:
        actions.append(action_of(change("--constraint", "", other.constraint)))
    return tuple(actions)


def gpu_type_scarce(evidence: Evidence) -> Outcome:
    """`smaller-gpu`, and at this moment jobs wait for the type in use while a smaller one is idle.

    Guards: a snapshot, so its time is named. Source: UVA's and Alvis' advice.
    """
    queue = evidence.queue
    if queue is None:
        return NotEvaluable("the queue was not asked")
    smaller = smaller_gpu(evidence)
    if isinstance(smaller, NotEvaluable):
        return smaller
    found: list[Finding] = []
    for used in _by_model(evidence, {}):
        waiting = queue.waiting.get(used.own.gres, 0)
        fitting = candidates(evidence, used.own, used.devices, used.need_bytes, used.busy)
        idle = [each for each in fitting if each.gres and queue.idle.get(each.gres, 0) > 0]
        if not used.own.gres or not waiting or not idle:
            continue
        other = idle[0]
        at = time.strftime("%H:%M", time.localtime(queue.time))
        text = (
            f"{waiting} jobs wait for {used.own.key} (at {at}); "
            f"{queue.idle[other.gres]} {other.key} idle"
        )
        made = finding(
            evidence, used.devices, [observed(evidence)],
            id="gpu-type-scarce", level="info",
            title=f"{text}: waiting and running may be shorter there", text=text,
            confidence=least(*(truth.confidence for truth in used.truths)),
            numbers={"waiting": waiting, "idle": queue.idle[other.gres]},
            actions=_change(evidence, other),
        )  # fmt: skip
        found.append(replace(made, resource="gpu-mem"))
    return found


CHOICE_RULES: tuple[Rule, ...] = (
    Rule("smaller-gpu", smaller_gpu, live=False),
    Rule("gpu-type-scarce", gpu_type_scarce, live=False),
)
