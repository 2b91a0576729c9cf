"""`sinfo`: the nodes, their GPUs by type, and which of them are idle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpumon.slurm import records, tres, values

FIELDS = (
    "NodeList", "PartitionName", "StateLong", "CPUsState", "Memory", "AllocMem", "Gres", "GresUsed",
    "Features",
)  # fmt: skip
#: first words of states in which a node takes jobs, without the marks `*`, `-`, `~` behind them
_USABLE = ("idle", "mixed", "allocated", "completing")


@dataclass(frozen=True)
class Node:
    """One node, with all partitions that it is in."""

    name: str
    partitions: tuple[str, ...] = ()
    state: str = ""  # idle, mixed, drained, …, with Slurm's mark
    cpus: int | None = None
    cpus_allocated: int | None = None
    mem_bytes: int | None = None
    mem_allocated_bytes: int | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)  # by type; "" where it has none
    gpus_used: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        return self.state.rstrip("*~#!%$@^-+").split("+")[0] in _USABLE and "*" not in self.state


@dataclass(frozen=True)
class GpuSupply:
    """All GPUs of one type: `idle` are those not in use on nodes that take jobs."""

    type: str
    total: int = 0
    idle: int = 0
    down: int = 0
    nodes: int = 0
    partitions: tuple[str, ...] = ()
    most_per_node: int = 0
    waiting: int | None = None  # GPUs that pending jobs ask for by this type; None not asked


def argv(delimiter: str) -> list[str]:
    """The call: a row per node and partition."""
    return ["sinfo", "-h", "-a", "-N", "-O", ",".join(f"{name}:{delimiter}" for name in FIELDS)]


def parse(output: bytes, delimiter: str) -> list[Node]:
    """The nodes in what that call printed."""
    text = output.decode("utf-8", "replace")
    names = [name.lower() for name in FIELDS]
    names[2] = "statelong"
    nodes: dict[str, Node] = {}
    for row in records.rows(text, delimiter, [*names, ""]):
        node = _node(row)
        known = nodes.get(node.name)
        if known:
            node = replace(known, partitions=(*known.partitions, *node.partitions))
        nodes[node.name] = node
    return list(nodes.values())


def _node(row: Mapping[str, str]) -> Node:
    allocated, _, rest = row["cpusstate"].partition("/")
    return Node(
        values.known(row["nodelist"]),
        (values.known(row["partitionname"]),),
        values.known(row["statelong"]).lower(),
        values.count(rest.rpartition("/")[2]),
        values.count(allocated),
        values.size(row["memory"], "M"),
        values.size(row["allocmem"], "M"),
        _gpus(row["gres"]),
        _gpus(row["gresused"]),
        tuple(part for part in values.known(row["features"]).split(",") if part),
    )


def _gpus(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for gres in tres.parse_gres(text):
        if gres.name == "gpu":
            found[gres.type] = found.get(gres.type, 0) + gres.amount
    return found


def supply(nodes: Iterable[Node]) -> dict[str, GpuSupply]:
    """GPUs by type over these nodes."""
    found: dict[str, GpuSupply] = {}
    for node in nodes:
        for kind, number in node.gpus.items():
            used = min(number, node.gpus_used.get(kind, 0))
            before = found.get(kind, GpuSupply(kind))
            found[kind] = replace(
                before,
                total=before.total + number,
                idle=before.idle + (number - used if node.is_usable else 0),
                down=before.down + (0 if node.is_usable else number - used),
                nodes=before.nodes + 1,
                partitions=tuple(dict.fromkeys(before.partitions + node.partitions)),
                most_per_node=max(before.most_per_node, number),
            )
    return found
