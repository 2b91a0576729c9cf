"""How old a reading may be and still stand for now."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf
from typing import Dict, Optional, Tuple

from gpumon.model.fields import GROUP_OF
from gpumon.model.reading import NOT_SAMPLED
from gpumon.model.view import Latest
from gpumon.store.row import Row

#: a reading is fresh for so many of its periods, and a second for the way here
FRESH_PERIODS = 3
FRESH_SLACK_S = 1.0
#: of so long the least delay of samples is remembered, and of as long before
_DELAYS_S = 120.0


class LeastDelay:
    """The least delay of the samples of some minutes: of one that was not held up on its way.

    Some minutes by both clocks: what a stall held up arrives at once, all late but for the last.
    """

    def __init__(self) -> None:
        self._before = self._least = inf
        self._began = (inf, inf)

    def take(self, time: float, received: float) -> float:
        """The least, once this sample came, too."""
        if self._least == inf:
            self._began = time, received
        elif min(time - self._began[0], received - self._began[1]) >= _DELAYS_S:
            self._before, self._least, self._began = self._least, inf, (time, received)
        self._least = min(self._least, received - time)
        return min(self._before, self._least)


def fresh_for_s(period_s: float, interval_s: float) -> float:
    """Seconds that a reading of a group is fresh."""
    return FRESH_PERIODS * max(period_s, interval_s) + FRESH_SLACK_S


def period_s(entity: str, field: str, interval_s: float) -> float:
    """How often the field is really read: a whole number of the node's intervals."""
    group = GROUP_OF.get((entity, field))
    ticks = ceil(group.period_s / interval_s - 0.1) if group else 1
    return max(ticks, 1) * interval_s


def aged(row: Optional[Row], field: str, at: float, limit_s: float) -> Latest:
    """The newest reading of a field with its age at `at`, by the node's clock; fresh up to
    `limit_s`.
    """
    if row is None or field not in row.readings:
        return Latest(NOT_SAMPLED, 0.0, inf, False)
    time = row.times[field]
    age_s = at - time if at > time else 0.0
    return Latest(row.readings[field], time, age_s, age_s <= limit_s)


@lru_cache(maxsize=16)
def fresh_limits(interval_s: float) -> Dict[Tuple[str, str], float]:
    """(entity, field) -> the age up to which a reading is fresh, in seconds."""
    return {name: fresh_for_s(group.period_s, interval_s) for name, group in GROUP_OF.items()}
