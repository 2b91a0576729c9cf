"""What the agents on a job's nodes are asked for, and what Slurm adds to their headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.sample import Header, JobContext
from gpumon.slurm.parts import parts_of
from gpumon.transport.fallback import Transports
from gpumon.transport.local import LocalTransport

if TYPE_CHECKING:
    from gpumon.slurm.job import Job, NodeAllocation


class NodeTask(NamedTuple):
    """What to follow on a node, what the agent is told about it, and the ways there."""

    node: str  # by its NodeName
    names: tuple[str, ...]  # of the job there: its raw id, its SLUID
    gpus: int | None = None  # of the job on this node
    complete: Callable[[Header], Header] = lambda header: header
    part: str = ""  # its name on the screen, where that is not the node's
    transports: Transports = Transports(())

    @property
    def name(self) -> str:
        return self.part or self.node

    def is_same_share(self, other: NodeTask) -> bool:
        """Whether an agent with the other task tells the same: of one job, on one node, of as many
        GPUs. What one of them does not know is no difference.
        """
        same_job = self.names[:1] == other.names[:1] or not (self.names and other.names)
        same_gpus = self.gpus == other.gpus or None in (self.gpus, other.gpus)
        return self.node == other.node and same_job and same_gpus

    def knowing(self, before: NodeTask) -> NodeTask:
        """The same, with the number of GPUs as it was, where that is not known now."""
        return self._replace(gpus=before.gpus if self.gpus is None else self.gpus)


def task_here(node: str) -> NodeTask:
    """This node alone, whatever job it stands in."""
    return NodeTask(node, (), transports=Transports([LocalTransport(node)]))


def tasks_of(
    jobs: Sequence[Job], ways: Mapping[str, Transports], only: Sequence[str] = ()
) -> list[NodeTask]:
    """What the nodes' agents are told, and what Slurm adds to what they tell; `ways`: by part."""
    tasks = []
    for name, job, node in parts_of(jobs, only):
        share = next((share for share in job.allocations if share.node == node), None)
        names = tuple(name for name in (job.raw_id, job.sluid) if name)
        gpus = share.gpus if share is not None else None
        shares = f"Component {job.id} also runs on {node}"
        notes = [] if name == node else [f"{shares}; figures of the host cover all components."]
        tasks.append(NodeTask(node, names, gpus, _completer(job, share, notes), name, ways[name]))
    return tasks


def _completer(
    job: Job, share: NodeAllocation | None, notes: Sequence[str]
) -> Callable[[Header], Header]:
    """Adds what Slurm knows of the job to what the node's own environment tells."""
    known = ("name", "user", "account", "partition", "cluster", "start", "end", "restarts")
    told = {name: getattr(job, name) for name in known} | {
        "id": job.raw_id,
        "nodes": job.node_list,
        "node_count": len(job.nodes),
        "array": f"{job.array_job_id}_{job.array_task}" if job.array_task else "",
        "cpus": share and share.cpus,
        "gpus": share and share.gpus,
    }
    told = {name: value for name, value in told.items() if value is not None and value != ""}

    def complete(header: Header) -> Header:
        own = header.job or JobContext(job.raw_id)  # whose limit of memory is the one that kills
        # the agent's step is not the job's
        whole = own._replace(**told, step="", own_step=False, source="slurm")
        return header._replace(job=whole, notes=[*header.notes, *notes])

    return complete
