"""Slurm's side of a scenario, and the sites it may run at."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gpumon.site
from gpumon.site import Site
from gpumon.site.read import load_site
from gpumon.slurm.job import ExitCode, Job, NodeAllocation, Request, Resources
from tests.corpus.generator import START, Gpu, Node, Run
from tests.corpus.hardware import GIB

_GRES = {"A100": "a100", "H100": "h100", "H200": "h200", "V100": "v100", "3090": "rtx_3090"}


@cache
def uva() -> Site:
    """The example file of a site with policies, GPUs that users can ask for, and shares."""
    return load_site(str(Path(gpumon.site.__file__).parent / "examples" / "uva.toml"))


def run(
    seconds: float,
    *nodes: Node,
    live: bool = False,
    interval: float = 2.0,
    site: Site | None = None,
    job: dict[str, Any] | None = None,
    **rest: Any,
) -> Run:
    """A run on these nodes. `job`: fields of the job that are otherwise than its nodes say."""
    made = slurm(seconds, nodes, live=live, **(job or {}))
    return Run(seconds, nodes, made, live, interval, site or uva(), **rest)


def slurm(seconds: float, nodes: Sequence[Node], live: bool = False, **rest: Any) -> Job:
    """The job of these nodes, COMPLETED in four fifths of its limit, or running in its midst."""
    cpus, mem, gpus, gres = rest.pop("per_node", None) or _of_nodes(nodes)
    count = rest.pop("node_count", max(1, len(nodes)))
    names = tuple(node.name for node in nodes) or tuple(f"gpu{n + 1:02}" for n in range(count))
    limit = 2 * seconds + 3600 if live else seconds / 0.8
    limit = rest.pop("time_limit_s", limit)
    resources = Resources(
        cpus=cpus * count, mem_bytes=int(mem * count), gpus=gpus * count, nodes=count,
        tres={"cpu": cpus * count},
    )  # fmt: skip
    known: dict[str, Any] = {
        "raw_id": "4711", "id": "4711", "name": "train", "user": "ada", "uid": 1000,
        "account": "lab", "partition": "gpu" if gpus else "standard",
        "state": "RUNNING" if live else "COMPLETED", "start": START,
        "end": START + (limit if live else seconds) if limit else None, "elapsed_s": seconds,
        "time_limit_s": limit, "exit_code": None if live else ExitCode(0), "nodes": names,
        "node_list": ",".join(names), "allocated": resources,
        "requested": Request(
            resources, mem_form="node", mem_form_bytes=int(mem), tasks=count, cpus_per_task=cpus,
            gres=gres, gres_form="node" if gres else "",
        ),
        "allocations": tuple(NodeAllocation(n, cpus, mem_bytes=int(mem), gpus=gpus) for n in names),
        "slurm_version": "24.11.7", "acct_gather": "cgroup/v2",
    }  # fmt: skip
    return Job(**{**known, **rest})


def _of_nodes(nodes: Sequence[Node]) -> tuple[int, float, int, str]:
    if not nodes:
        return 8, 64 * GIB, 1, "gpu:a100:1"
    node = nodes[0]
    held = [gpu for gpu in node.gpus if gpu.visible]
    if not held:
        return node.cpus, node.mem, 0, ""
    return node.cpus, node.mem, len(held), f"gpu:{_type(held[0])}:{len(held)}"


def _type(gpu: Gpu) -> str:
    return gpu.mig or next((t for key, t in _GRES.items() if key in gpu.model.name), "gpu")


def with_policy(**numbers: Any) -> Site:
    return replace(uva(), policy=replace(uva().policy, **numbers))
