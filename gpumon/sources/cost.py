"""What watching costs the job, by what the agents report of themselves."""

from __future__ import annotations

import threading
from typing import NamedTuple

from gpumon.model.reading import NOT_SAMPLED, Reading, number
from gpumon.model.sample import Sample
from gpumon.model.units import bytes_text, plural

#: of less time a share of a core says nothing: starting took most of it
_LONG_S = 60.0


class _Node(NamedTuple):
    """One node's agents, one after the other."""

    held_bytes: float = 0.0  # at most, of the job's memory, by all who watch
    cpu_s: float = 0.0  # of those that have ended
    last_cpu_s: float = 0.0  # of this one
    watched_s: float = 0.0
    mono: float = 0.0


class Cost:
    """Takes all nodes' samples. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}

    def add(self, node: str, sample: Sample) -> None:
        agent = sample.rows.get("agent", {}).get("")
        if agent is None:
            return
        job = sample.rows.get("job", {}).get("", {})
        cpu_s = _figure(agent.get("cpu_s", NOT_SAMPLED))
        held_bytes = _figure(job.get("mem_gpumon_bytes", NOT_SAMPLED))
        with self._lock:
            known = self._nodes.get(node, _Node(mono=sample.mono))
            is_new = cpu_s < known.last_cpu_s
            self._nodes[node] = _Node(
                max(known.held_bytes, held_bytes),
                known.cpu_s + (known.last_cpu_s if is_new else 0.0),
                cpu_s,
                known.watched_s + (0.0 if is_new else max(0.0, sample.mono - known.mono)),
                sample.mono,
            )

    def line(self, steps: int) -> str:
        """One line for people; "" where no agent told anything. `steps`: how many were started."""
        with self._lock:
            nodes = list(self._nodes.values())
        if not nodes:
            return ""
        held = max(each.held_bytes for each in nodes)
        cpu_s = max(each.cpu_s + each.last_cpu_s for each in nodes)
        watched_s = max(each.watched_s for each in nodes)
        core = f"{100 * cpu_s / watched_s:.1f} % of a core" if watched_s >= _LONG_S else ""
        parts = [
            plural(steps, "step") if steps else "no step",
            bytes_text(held) if held else "none of its memory",
            core or f"{cpu_s:.1f} s of CPU time",
        ]
        where = f" on each of {len(nodes)} nodes, at most" if len(nodes) > 1 else ""
        return f"gpumon's cost to this job: {', '.join(parts)}{where}"


def _figure(reading: Reading) -> float:
    return number(reading) or 0.0
