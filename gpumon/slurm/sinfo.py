"""`sinfo`: how many GPUs of each type are idle, and which nodes are down."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.slurm import records, tres, values

FIELDS = ("NodeList", "StateLong", "Gres", "GresUsed")
#: first words of states in which a node takes jobs, without the marks `*`, `-`, `~` behind them
_USABLE = ("idle", "mixed", "allocated", "completing")


def argv(delimiter: str) -> list[str]:
    """The call: a row per node and partition."""
    return ["sinfo", "-h", "-a", "-N", "-O", ",".join(f"{name}:{delimiter}" for name in FIELDS)]


def parse(output: bytes, delimiter: str) -> dict[str, int]:
    """By type ("" where they have none): GPUs that are not in use on nodes that take jobs."""
    text = output.decode("utf-8", "replace")
    names = [name.lower() for name in FIELDS]
    nodes = {row["nodelist"]: row for row in records.rows(text, delimiter, [*names, ""])}
    idle: dict[str, int] = {}
    for row in nodes.values():
        used = tres.gpus_of(row["gresused"])[1]
        for kind, number in tres.gpus_of(row["gres"])[1].items():
            free = max(0, number - used.get(kind, 0)) if _is_usable(row["statelong"]) else 0
            idle[kind] = idle.get(kind, 0) + free
    return idle


def _is_usable(state: str) -> bool:
    state = values.known(state).lower()
    return state.rstrip("*~#!%$@^-+").split("+")[0] in _USABLE and "*" not in state


def states_argv(delimiter: str, nodes: Sequence[str]) -> list[str]:
    """The call for the states of some nodes: a row per node and partition."""
    form = f"NodeList:{delimiter},StateLong:{delimiter}"
    return ["sinfo", "-h", "-a", "-N", "-n", ",".join(nodes), "-O", form]


def parse_down(output: bytes, delimiter: str) -> set[str]:
    """The nodes that are down, failed, or do not respond (`*`)."""
    rows = records.rows(output.decode("utf-8", "replace"), delimiter, ["nodelist", "statelong", ""])
    return {row["nodelist"] for row in rows if _is_down(row["statelong"])}


def _is_down(state: str) -> bool:
    state = values.known(state).lower()
    return "*" in state or state.startswith(("down", "fail"))
