"""How many GPUs a job can do with: those that it cannot be shown to run without."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.accounting import used
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.reservation import LEAST_CONTEXT_BYTES
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import devices_on, job_devices, job_processes
from gpumon.slurm.js1 import GpuSummary

#: of a program that runs on GPUs; on the CPU it runs only where it did not find one
_GPU_FRAMEWORKS = frozenset(("tf", "jax", "torch", "vllm", "rmm", "cuda-other"))


#: that a device is in by the job's own doing
_OWN = (State.LOST, State.HUNG, State.WORKING, State.COPYING)


def gpus_need(run: RunData) -> tuple[int, int] | None:
    """(most on one node, in all); (0, 0): none. None where fewer may be too few.

    A GPU is not needed where nothing of it was used in the whole run, and no process was on it, or
    only those that worked on another GPU: TensorFlow reserves memory on every GPU it sees. Programs
    choose GPUs by number, so those that stay must be the first ones of their node.
    """
    request = requested(run)
    if not run.has_samples:
        return _by_summary(run)
    devices = job_devices(run)
    if not devices or len(devices) < (request.gpus_in_all or 0) or _would_like_one(run):
        return None
    if crowded_gpu(run) is not None:
        return None  # the others are for the processes there
    if request.gpu_form == "job" and request.nodes > 1:
        return None  # Slurm would spread fewer of them over the nodes in another way
    needed = [_needed(run, devices_on(run, node)) for node in run.nodes]
    counts = [count for count in needed if count is not None]
    return (max(counts), sum(counts)) if len(counts) == len(needed) else None


def _needed(run: RunData, devices: Sequence[DeviceData]) -> int | None:
    """Of one node; None where one that is not needed comes before one that is."""
    devices = sorted(devices, key=_number)
    working = {
        each.facts.pid for d in devices if any(d.active.known()) for each in job_processes(d)
    }
    kept = [not _is_spare(run, each, working) for each in devices]
    return sum(kept) if kept == sorted(kept, reverse=True) else None


def crowded_gpu(run: RunData) -> DeviceData | None:
    """The only GPU in use of its node, with as many processes as the node has GPUs: one for each of
    them, and each was to choose another one.
    """
    for node in run.nodes:
        devices = devices_on(run, node)
        used = [each for each in devices if job_processes(each)]
        if len(devices) > 1 and len(used) == 1 and len(job_processes(used[0])) == len(devices):
            return used[0]
    return None


def _number(device: DeviceData) -> int:
    known = device.device.cuda_index
    return device.device.index if known is None else known


def _is_spare(run: RunData, device: DeviceData, working: set[int]) -> bool:
    ledger = ledger_of(run)
    row = ledger.row_of(device.label)
    if row is None or not row.is_known or not device.process_list_known:
        return False
    pids = {each.facts.pid for each in job_processes(device)}
    if not pids and row.count(State.SHARED) and not row.count(*_OWN):  # only others worked there
        return True
    return ledger.is_unused(device) and (not pids or (pids <= working and not device.polled))


def _would_like_one(run: RunData) -> bool:
    """No GPU worked, and a program is made for GPUs: it may have failed to find them."""
    if any(any(each.active.known()) for each in job_devices(run)):
        return False
    processes = (facts for node in run.nodes for facts, _ in node.processes.values())
    return any(facts.framework in _GPU_FRAMEWORKS for facts in processes)


def _by_summary(run: RunData) -> tuple[int, int] | None:
    """By jobstats."""
    nodes = used(run.job).nodes if run.job is not None else {}
    of_nodes = [
        [not was_never_opened(gpu) for gpu in node.gpus.values()] for node in nodes.values()
    ]
    if not of_nodes or any(kept != sorted(kept, reverse=True) for kept in of_nodes):
        return None
    counts = [sum(kept) for kept in of_nodes]
    return max(counts), sum(counts)


def was_never_opened(gpu: GpuSummary) -> bool:
    """By jobstats: mean 0, and less memory than any process takes. The mean alone is rounded, and
    0 % of it may be minutes of work.
    """
    return gpu.busy_percent == 0 and (
        gpu.mem_used_bytes is not None and gpu.mem_used_bytes < LEAST_CONTEXT_BYTES
    )
