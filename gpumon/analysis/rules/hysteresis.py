"""Findings of a running job that neither flicker nor stay."""

from __future__ import annotations

from dataclasses import replace

from gpumon.analysis.finding import Finding
from gpumon.analysis.rules.catalogue import Evaluation, ranked

#: a finding is shown until it has been false for so long (findings, 1.3)
CLEAR_AFTER_S = 120.0


class Live:
    """What to show of a running job: raised at once, since each rule's condition holds its own
    duration already; cleared after two minutes in which it was not raised.
    """

    def __init__(self, clear_after_s: float = CLEAR_AFTER_S) -> None:
        self.clear_after_s = clear_after_s
        self._seen: dict[tuple[str, str], tuple[float, Finding]] = {}  # (id, subject) -> last seen

    def update(self, evaluation: Evaluation, now: float) -> list[Finding]:
        """The findings to show at `now` (s, of any clock that does not go back), in their rank.

        What stays though it is not raised any more claims no waste. A finding that became the
        consequence of another one, or whose devices another of the same id now names, goes at once.
        """
        current = {(each.id, each.subject): each for each in evaluation.raised}
        for key, each in current.items():
            self._seen[key] = (now, each)
        for key, (seen, each) in list(self._seen.items()):
            if key in current:
                continue
            if now - seen >= self.clear_after_s or _is_replaced(each, evaluation):
                del self._seen[key]
            else:
                self._seen[key] = (seen, replace(each, waste_gpu_hours=0.0))
        return ranked(each for _, each in self._seen.values())


def _is_replaced(old: Finding, evaluation: Evaluation) -> bool:
    for each in (*evaluation.raised, *evaluation.suppressed):
        if each.id == old.id and (
            each.subject == old.subject or set(each.devices) & set(old.devices)
        ):
            return True
    return False
