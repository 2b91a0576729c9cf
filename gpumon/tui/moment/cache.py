"""What nodes answered, kept while it may stand: so that drawing many nodes is cheap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gpumon.store import NodeView

T = TypeVar("T")

_AGAIN_S = 1.0  # readings age without a sample; of nodes that sample seldom they age no faster
_LEAST_AT_ONCE = 8  # nodes, which are asked in a few ms
_ROUND_INTERVALS = 3


class Current(Generic[T]):
    """One answer of each node, true now: asked again when a sample came, or readings may age."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[NodeView, int, float, T]] = {}

    def of(self, node: NodeView, now: float, ask: Callable[[NodeView], T]) -> T:
        """The node's answer at `now`, by `ask` where the one that is kept no longer stands."""
        kept = self._kept.get(node.name)
        if kept is not None:
            asked, generation, at, answer = kept
            again_s = max(_AGAIN_S, node.interval_s)
            if asked is node and generation == node.generation and 0 <= now - at < again_s:
                return answer
        generation, answer = node.generation, ask(node)  # in this order: samples continue coming
        self._kept[node.name] = (node, generation, now, answer)
        return answer


class Turns(Generic[T]):
    """One answer of each node that may be some seconds old: few of many are asked for a drawing.

    A node is asked when it is new, and then every `round_s`, or three intervals of nodes that
    sample seldom, as far as drawings come once a second. Where there are no more than `few` nodes,
    all are asked always.
    """

    def __init__(self, round_s: int, few: int = 0) -> None:
        self._round_s = round_s
        self._few = few
        self._kept: dict[NodeView, tuple[float, T]] = {}

    def of(
        self, nodes: list[NodeView], now: float, ask: Callable[[NodeView], T]
    ) -> dict[NodeView, T]:
        """The answer of each of the nodes, which are all there are."""
        kept = self._kept
        asked = kept.keys() - self._due(nodes, now)
        self._kept = {node: kept[node] if node in asked else (now, ask(node)) for node in nodes}
        return {node: answer for node, (_, answer) in self._kept.items()}

    def _due(self, nodes: list[NodeView], now: float) -> set[NodeView]:
        """Of the nodes that were asked, those whose turn it is."""
        if len(nodes) <= self._few:
            return set(nodes)
        round_s = max(self._round_s, _ROUND_INTERVALS * max(node.interval_s for node in nodes))
        due = [
            (at, node.name, node)
            for node, (at, _) in self._kept.items()
            if not 0 <= now - at < round_s
        ]
        at_once = max(_LEAST_AT_ONCE, int(len(nodes) / round_s))
        return {node for _, _, node in sorted(due)[:at_once]}
