"""What watching costs the job, by what the agents report of themselves."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.reading import number
from gpumon.model.sample import Sample
from gpumon.model.units import bytes_text, plural

#: of less time a share of a core says nothing: starting took most of it
_LONG_S = 60.0


class _Cost(NamedTuple):
    """Of one node's agents, one after the other."""

    held_bytes: float = 0.0  # at most, of the job's memory, by all who watch
    ended_s: float = 0.0  # CPU time of those that have ended
    cpu_s: float = 0.0  # of this one
    watched_s: float = 0.0
    mono: float = 0.0


class Costs:
    """Takes all nodes' samples; those of a node come from one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Cost] = {}

    def add(self, node: str, sample: Sample) -> None:
        agent = sample.rows.get("agent", {}).get("")
        if agent is None:
            return
        job = sample.rows.get("job", {}).get("", {})
        known = self._nodes.get(node) or _Cost(mono=sample.mono)
        cpu_s = number(agent.get("cpu_s")) or 0.0
        is_new = cpu_s < known.cpu_s
        self._nodes[node] = _Cost(
            max(known.held_bytes, number(job.get("mem_gpumon_bytes")) or 0.0),
            known.ended_s + (known.cpu_s if is_new else 0.0),
            cpu_s,
            known.watched_s + (0.0 if is_new else max(0.0, sample.mono - known.mono)),
            sample.mono,
        )

    def line(self, steps: int) -> str:
        """One line for people; "" where no agent told anything. `steps`: how many were started."""
        nodes = list(self._nodes.values())
        if not nodes:
            return ""
        held = max(each.held_bytes for each in nodes)
        cpu_s = max(each.ended_s + each.cpu_s for each in nodes)
        watched_s = max(each.watched_s for each in nodes)
        parts = [
            plural(steps, "step") if steps else "no step",
            bytes_text(held) if held else "none of its memory",
            f"{100 * cpu_s / watched_s:.1f} % of a core" if watched_s >= _LONG_S
            else f"{cpu_s:.1f} s of CPU time",
        ]  # fmt: skip
        where = f" on each of {len(nodes)} nodes, at most" if len(nodes) > 1 else ""
        return f"gpumon's cost to this job: {', '.join(parts)}{where}"
