"""Fewer nodes: all of a job on one, or without those that did nothing."""

from __future__ import annotations

from gpumon.analysis.finding import Change, NotEvaluable
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.requested import Requested, node_types, requested
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import io_tracks
from gpumon.site import NodeType

#: bytes that no launcher holds, and bytes per second that none moves (proposed)
_HELD_BYTES, _MOVED_BYTES_PER_S = 2 * amounts.GIB, 1e6


def on_one_node(run: RunData) -> list[Change]:
    """The request of all nodes together, on one; empty where no node holds that, or where the
    request does not show how many tasks and GPUs one node would then get.
    """
    request = requested(run)
    gpus = changes.merged_gpus(request)
    named = gpus is not None or request.gpu_form == "job" or not request.gpus
    if request.nodes < 2 or request.is_exclusive or not request.cpus or not named:
        return []
    tasks = _tasks_together(request)
    found = [Change("--nodes", request.nodes, 1), gpus if request.gpus else None, tasks]
    node_bytes = request.mem_bytes and _memory_together(run, request, request.mem_bytes)
    fits = [each for each in node_types(run) if _holds(each, request, node_bytes or 0.0)]
    if not fits or tasks is None:
        return []
    if node_bytes and request.mem_form == "node":
        found.append(changes.memory_line(request, node_bytes))
    return [each for each in found if each is not None]


def _tasks_together(request: Requested) -> Change | None:
    """Said as a number, for by default there is one task on each node; None: it is not known."""
    if per_node := request.tasks_per_node:
        return Change("--ntasks-per-node", per_node, per_node * request.nodes)
    return Change("--ntasks", None, request.tasks) if request.tasks else None


def _memory_together(run: RunData, request: Requested, node_bytes: float) -> float:
    """What was asked for on all nodes; less, where the peaks of all of them together are less."""
    before = node_bytes * request.nodes
    need = amounts.memory_need(run)
    wanted = None if isinstance(need, NotEvaluable) else need.in_all_with_margin
    if wanted is None or request.mem_form != "node":
        return before
    if amounts.was_out_of_memory(run):
        return before
    floor = amounts.site_default_bytes(run, (request.cpus or 0) * request.nodes)
    return min(before, max(wanted, floor))


def _holds(node: NodeType, request: Requested, node_bytes: float) -> bool:
    return (
        node.gpus >= (request.gpus_in_all or 0)
        and node.cores >= (request.cpus or 0) * request.nodes
        and node.mem_bytes >= amounts.round_memory(node_bytes)
    )


def without_idle_nodes(run: RunData) -> list[Change]:
    """So many nodes as did anything in the whole run; empty where that is not known, or where a
    program was started on the others, too: it may wait for all of its parts.
    """
    request, job = requested(run), run.job
    steps = job.user_steps if job else []
    alone = bool(steps) and all(each.node_count == 1 for each in steps)
    if not alone or request.gpu_form == "job" or len(run.nodes) < request.nodes:
        return []
    left = sum(
        not ledger_of(run).is_idle(each.node) or serves_others(run, each) for each in run.nodes
    )
    if not 0 < left < request.nodes or request.tasks not in (None, request.nodes):
        return []
    found = [Change("--nodes", request.nodes, left)]
    if request.tasks is not None and not request.tasks_per_node:
        found.append(Change("--ntasks", request.tasks, left))
    return found


def serves_others(run: RunData, node: NodeData) -> bool:
    """Whether the node, which computes next to nothing, holds memory or moves data for the rest of
    the job: a store of data, a server of files.
    """
    held = node.job.get("mem_anon_bytes", node.job.get("mem_used_bytes", Track())).average()
    rates = [each.average() or 0.0 for each in io_tracks(run, node.node)]
    return (held or 0.0) >= _HELD_BYTES or any(rate >= _MOVED_BYTES_PER_S for rate in rates)
