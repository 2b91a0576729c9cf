"""Needs in the form of the user's own request, rounded, with a unit."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from gpumon.analysis.finding import Action, Change, Gpus, Value, ask_for, to_do
from gpumon.analysis.rightsize.amounts import GIB, MIB, round_memory
from gpumon.analysis.rightsize.cores import fewer_cpus
from gpumon.analysis.rightsize.proof import is_worth
from gpumon.analysis.rightsize.requested import Requested, requested
from gpumon.analysis.rundata import RunData
from gpumon.model.lines import EMPTY

#: of a longer limit: gpumon does not know the partition's greatest
IF_ALLOWED = "if the partition allows it"
#: below this a figure per CPU or GPU is rounded to `_STEP`, else CPUs would multiply the error
_FINE_BELOW = 4 * GIB
_STEP = 256 * MIB


def _round_share(size_bytes: float) -> int:
    """Of memory per CPU or per GPU."""
    if size_bytes >= _FINE_BELOW:
        return round_memory(size_bytes)
    return max(1, ceil(size_bytes / _STEP - 1e-9)) * _STEP


def memory_line(
    request: Requested, node_bytes: float, cpus: int | None = None, gpus: int | None = None
) -> Change | None:
    """The request for `node_bytes` per node, in the user's form; None where nothing changes, or
    where it saves too little to be worth a change.

    `cpus` and `gpus` are those of the new request: memory per CPU times fewer CPUs would be less.
    More of them do not lower the share: a user may follow this line and not the other.
    """
    if request.mem_bytes is None:
        return None
    is_less = node_bytes < request.mem_bytes
    units = {"cpu": (request.cpus, cpus), "gpu": (request.gpus, gpus)}.get(request.mem_form)
    if units is None:
        before, after = request.mem_bytes, round_memory(node_bytes)
        directive = "--mem"
    else:
        old = units[0]
        if not old:
            return None
        new = old if units[1] is None else min(old, units[1])
        before, is_less = request.mem_bytes / old, is_less and old == new
        after = _round_share(node_bytes / new)
        if node_bytes <= request.mem_bytes:  # rounded up, it may be more than any node has
            after = min(after, int(request.mem_bytes / new / MIB) * MIB)
        directive = f"--mem-per-{request.mem_form}"
    if is_less and not is_worth(before, after):
        return None
    return changed(directive, ceil(before), after)


def cpus_line(request: Requested, cpus: int, gpus: int | None = None) -> Change | None:
    """The request for `cpus` per node, in the user's form; None where it stays the same.

    `gpus`: of the new request per node, where that changes; CPUs per GPU hang on it.
    """
    if not request.cpus:
        return None
    per_node = tasks_per_node(request)
    if request.cpus_per_gpu and request.gpus:
        directive, before = "--cpus-per-gpu", request.cpus // request.gpus
        after = ceil(cpus / (gpus or request.gpus))
    elif per_node == 1 or (request.cpus_per_task or 1) > 1:
        directive = "--cpus-per-task"
        before, after = request.cpus_per_task or request.cpus // per_node, ceil(cpus / per_node)
    elif request.tasks_per_node:
        directive, before, after = "--ntasks-per-node", per_node, cpus
    else:
        directive, before, after = "--ntasks", request.tasks or request.cpus, cpus * request.nodes
    grows = cpus > request.cpus or directive == "--cpus-per-gpu"
    if after == before or (after > before and not grows):
        return None
    return Change(directive, before, after)


def fewer_cpus_line(run: RunData) -> Change | None:
    """The request for fewer CPUs, where it is known that they are enough."""
    needed = fewer_cpus(run)
    return cpus_line(requested(run), needed.cpus) if needed else None


def cpus_given(request: Requested, change: Change, cpus: int, gpus: int | None = None) -> int:
    """CPUs per node that the line gives: per task or GPU, rounding gives more than `cpus`."""
    units = {
        "--cpus-per-gpu": gpus or request.gpus or 1,
        "--cpus-per-task": tasks_per_node(request),
    }
    if change.option in units and isinstance(change.after, int):
        return change.after * units[change.option]
    return cpus


def tasks_per_node(request: Requested) -> int:
    return request.tasks_per_node or ceil((request.tasks or request.nodes) / request.nodes)


def gpus_line(request: Requested, per_node: int, in_all: int) -> Change | None:
    """The request for so many GPUs; None where it stays the same, and for none of them; and of a
    job with whole nodes, which gets all that they have.
    """
    named = request.gpus_named
    if named is None or not in_all or request.is_exclusive:
        return None
    count = {"node": per_node, "job": in_all}.get(request.gpu_form)
    if count is None or named.count is None or named.count <= count:
        return None
    return Change(request.gpu_option, named, replace(named, count=count))


def merged_gpus(request: Requested) -> Change | None:
    """The GPUs of all nodes on one node; None where they are not asked for per node."""
    named = request.gpus_named
    if request.gpu_form != "node" or named is None:
        return None
    kind = named.kind if named.count is not None else f"{named.kind}:"
    return Change(request.gpu_option, named, Gpus(kind, (named.count or 1) * request.nodes))


def time_line(limit_s: float | None, wanted_s: float) -> Change | None:
    return None if limit_s is None else changed("--time", int(limit_s), int(wanted_s))


def changed(option: str, before: Value | None, after: Value) -> Change | None:
    """The change, where it is one, and its new value one of this option."""
    change = Change(option, before, after)
    return change if change.after_line not in (EMPTY, change.before_line) else None


def action_of(change: Change | None, text: str = "") -> Action:
    """The change as a directive of the job script; only the sentence where there is none."""
    return to_do(text) if change is None else ask_for(change, text=text)
