"""How often Slurm may be asked the same: its manuals forbid asking in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from gpumon.slurm.runner import SlurmError

#: s; nothing is asked of the controller more often, whatever is configured
LEAST_PERIOD_S = 10.0
#: s; the longest wait after errors
LONGEST_WAIT_S = 600.0
_MAX_ANSWERS = 256

Answer = TypeVar("Answer")


class _Asked(NamedTuple):
    at: float
    wait_s: float  # after an error; 0: as long as the next question says
    answer: Any
    error: SlurmError | None
    failures: int


class Pace:
    """Answers and errors of questions, kept until the same question may be asked again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[tuple[str, ...], _Asked] = {}

    def ask(self, question: tuple[str, ...], period_s: float, call: Callable[[], Answer]) -> Answer:
        """The answer of `call`, or the last one if it is younger than `period_s`.

        An error is raised anew without asking for as long, twice as long after each further one.
        """
        period_s = max(period_s, LEAST_PERIOD_S)
        last = self._asked.get(question)
        if last is None or self._clock() - last.at >= (last.wait_s or period_s):
            last = self._call(period_s, call, last)
            self._asked.pop(question, None)
            self._asked[question] = last  # the newest last
            if len(self._asked) > _MAX_ANSWERS:
                del self._asked[next(iter(self._asked))]
        if last.error is not None:
            raise last.error
        answer: Answer = last.answer
        return answer

    def _call(self, period_s: float, call: Callable[[], Answer], last: _Asked | None) -> _Asked:
        try:
            answer = call()
        except SlurmError as error:
            failures = (last.failures if last else 0) + 1
            wait_s = min(period_s * 2 ** min(failures - 1, 10), max(LONGEST_WAIT_S, period_s))
            return _Asked(self._clock(), wait_s, None, error, failures)
        return _Asked(self._clock(), 0.0, answer, None, 0)
