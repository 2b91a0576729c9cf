"""When to draw without a key press: early enough for every sample, and not more often."""

from __future__ import annotations

from math import floor, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.store import NodeView

_AGES_S = 0.5  # after a second of the clock began, ages and it move without a sample
_DRAW_SHARE = 0.05  # of a core, for drawing; but no pause is longer than
_LONGEST_PAUSE_S = 0.3
_DUE_SHARE = 0.9  # of the interval after a node's last sample the next one is on its way
_WAIT_SHARE = 0.3  # of the interval, from the first sample that is not on screen
_LONGEST_WAIT_S = 1.0


class Pacing:
    """Nodes tick together, so their samples come as a burst: it is drawn once, when it is over.

    That is when every live node whose sample is due has given one that is not on screen yet; of one
    node, at once. Of many nodes, each second of an interval has a burst of its own.
    Who is late is not waited for: after 0.3 of the interval what came is drawn, and 0.3 after the
    first straggler the rest. So at an interval of 1 s a sample is on screen 0.6 s after it came,
    whatever the others do; there are at most three drawings an interval, usually one.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._generation = -1  # of the pipeline, when it was drawn last
        self._times: dict[str, float | None] = {}  # of the newest sample on screen, by node
        self._clock = -inf  # what it was then
        self._drawn_at = -inf  # monotonic, as all times here but the clock
        self._news_at = inf  # when the first change was seen that is not on screen
        self._not_before = -inf

    def begin(self, now: float, clock: float) -> None:
        """A drawing begins: it shows what the store has now, and this clock, in epoch s."""
        self._clock = clock
        self._generation = self._pipeline.generation
        self._times = {node.name: node.last_time for node in self._pipeline.nodes()}
        self._drawn_at, self._news_at = now, inf

    def end(self, cost_s: float, took_s: float = 0.0) -> None:
        """It took so much time of a core: drawing many nodes costs, and has a share of it.

        took_s: by the clock; the streams wait meanwhile, and then have as long for themselves.
        """
        pause_s = min(cost_s / _DRAW_SHARE, _LONGEST_PAUSE_S)
        self._not_before = self._drawn_at + max(pause_s, 2 * took_s)

    @property
    def has_news(self) -> bool:
        """Whether something changed that is not on screen."""
        return self._pipeline.generation != self._generation

    def is_due(self, now: float, clock: float) -> bool:
        """Whether to draw now; `clock`: epoch s of what is shown, by which streams are stale."""
        if not self.has_news:
            return clock < self._clock or floor(clock - _AGES_S) > floor(self._clock)
        self._news_at = min(self._news_at, now)
        if now < self._not_before:
            return False
        nodes = self._pipeline.nodes()
        interval_s = min((node.interval_s for node in nodes), default=0.0)
        waited = now - self._news_at >= min(interval_s * _WAIT_SHARE, _LONGEST_WAIT_S)
        return waited or not any(self._is_awaited(node, clock) for node in nodes)

    def again_s(self, clock: float) -> float:
        """In how many seconds of the clock to ask again, if nothing changes."""
        return 0.0 if self.has_news else (_AGES_S - clock) % 1.0

    def _is_awaited(self, node: NodeView, clock: float) -> bool:
        last = node.last_time
        if last != self._times.get(node.name) or node.status(clock).state != "live":
            return False
        due = clock - node.clock_offset_s - _DUE_SHARE * node.interval_s
        return last is None or last <= due
