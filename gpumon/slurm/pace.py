"""How often a query to Slurm may be repeated: its manuals forbid calling it in loops.

An answer stands for its period. After an error the same is asked later and later: soon at first
where it may pass (a time-out, a crash, a broken connection), else after the period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from gpumon.slurm.runner import Result, SlurmError, SlurmTimeoutError

#: s; nothing is asked of the controller more often, whatever is configured
LEAST_PERIOD_S = 10.0
#: s; the longest wait after errors
LONGEST_WAIT_S = 600.0
#: s; who starts a command expects answers of now: of others only those that arrive meanwhile
FRESH_S = 0.0
_MAX_ANSWERS = 256
_UNKNOWN_JOB = "invalid job id"
_PASSING = re.compile(
    "broken pipe|connection reset|connect failure|socket timed out|zero bytes were transmitted"
    "|unable to contact|not connected|resource temporarily unavailable",
    re.IGNORECASE,
)

_NOTHING = Result(1, b"", "")

#: a command's words
Question = tuple[str, ...]
#: what a command printed, and the delimiter of its rows
Printed = tuple[Result, str]
Answer = TypeVar("Answer")


class Told(NamedTuple):
    """What a command printed, and when; or how it ended without an answer."""

    at: float  # s since boot
    result: Result
    delimiter: str = ""  # that its rows have
    failures: int = 0  # so many in a row by now
    timeout: str = ""  # it did not answer in time: the error's text

    @property
    def failed(self) -> bool:
        return bool(self.timeout) or (
            self.result.code != 0 and _UNKNOWN_JOB not in self.result.err.lower()
        )

    def stands_s(self, period_s: float) -> float:
        """How long a query is not repeated."""
        if not self.failed:
            return period_s
        passing = self.timeout or self.result.code < 0 or _PASSING.search(self.result.err)
        wait_s = LEAST_PERIOD_S if passing else period_s
        most_s = max(LONGEST_WAIT_S, period_s)
        return float(min(wait_s * 2 ** min(max(self.failures, 1) - 1, 10), most_s))


class Answers(Protocol):
    """Where answers are shared with other processes of the user."""

    def ask(
        self,
        question: Question,
        usable: Callable[[Told], bool],
        call: Callable[[Told | None], Told],
        timeout_s: float,
    ) -> Told:
        """An answer of late that is usable, else that of `call`, which gets the last one.

        Raises SlurmError.
        """


class _Asked(NamedTuple):
    told: Told  # without what it printed
    answer: Any
    error: SlurmError | None
    shared: bool  # where it came from may know a newer one


class Pace:
    """Answers and errors of queries, kept until the query may be repeated."""

    def __init__(self, clock: Callable[[], float], shared: Answers | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._asked: dict[Question, _Asked] = {}

    def ask(
        self,
        question: Question,
        period_s: float,
        run: Callable[[], Printed],
        parse: Callable[[Told], Answer],
        *,
        first_s: float = FRESH_S,
        share: bool = True,
        timeout_s: float = 0.0,
    ) -> Answer:
        """What `parse` makes of the last answer, while that stands, else of what `run` gets.

        `first_s`: how old another process's answer may be as we begin to ask for the first time. An
        error is raised anew without asking, too. Raises SlurmError.
        """
        period_s = max(period_s, LEAST_PERIOD_S)
        last = self._asked.pop(question, None)
        if last is None or not self._stands(last, period_s):
            shared = self._shared if share else None
            own = last.told if last is not None else None
            oldest = 0.0 if own is not None else self._clock() - first_s

            def usable(known: Told) -> bool:
                return known.at >= oldest and self._is_younger(known, known.stands_s(period_s))

            def call(before: Told | None) -> Told:
                return self._tell(run, before or own)

            try:
                told = shared.ask(question, usable, call, timeout_s) if shared else call(None)
            except SlurmError as error:  # the query could not be run at all
                failures = own.failures + 1 if own is not None else 1
                late = str(error) if isinstance(error, SlurmTimeoutError) else ""
                told = Told(self._clock(), _NOTHING, failures=failures, timeout=late)
                last = _Asked(told, None, error, shared=False)
            else:
                last = _parsed(told, parse, shared is not None)
        self._asked[question] = last  # the newest last
        if len(self._asked) > _MAX_ANSWERS:
            del self._asked[next(iter(self._asked))]
        if last.error is not None:
            raise last.error
        answer: Answer = last.answer
        return answer

    def _stands(self, last: _Asked, period_s: float) -> bool:
        if last.error is not None and last.shared:
            return False
        return self._is_younger(last.told, last.told.stands_s(period_s))

    def _is_younger(self, told: Told, age_s: float) -> bool:
        return 0 <= self._clock() - told.at < age_s

    def _tell(self, run: Callable[[], Printed], before: Told | None) -> Told:
        """What `run` gets, errors in a row counted."""
        failures = before.failures + 1 if before is not None else 1
        try:
            result, delimiter = run()
        except SlurmTimeoutError as error:
            return Told(self._clock(), _NOTHING, failures=failures, timeout=str(error))
        told = Told(self._clock(), result, delimiter)
        return told._replace(failures=failures) if told.failed else told


def _parsed(told: Told, parse: Callable[[Told], Any], shared: bool) -> _Asked:
    kept = told._replace(result=told.result._replace(out=b""))
    try:
        if told.timeout:
            raise SlurmTimeoutError(told.timeout)
        return _Asked(kept, parse(told), None, shared)
    except SlurmError as error:
        return _Asked(kept, None, error, shared)
