"""Ids of jobs and steps, as people type them and as Slurm prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.errors import UsageError
from gpumon.model.text import clean

_STEP = r"batch|extern|interactive|\d{1,10}(?:\+\d{1,5})?"
_ID = re.compile(
    rf"(\d{{1,10}})(?:_(\d{{1,10}}|\[[\d,:%-]{{1,4096}}\])|\+(\d{{1,5}}))?(?:\.({_STEP}))?"
)
#: no array task: NO_VAL of 16 and 32 bits
_NO_TASK = frozenset(("65534", "4294967294"))


class JobId(NamedTuple):
    """The parts of an id: `123`, `123_4`, `123_[1-9%2]`, `123+1`, each with or without `.batch`."""

    job: str
    task: str = ""  # "4", or "1-9%2" for the tasks that still wait
    het: str = ""  # offset of a het job's component
    step: str = ""

    @property
    def whole(self) -> str:
        """The job's id without its step."""
        if self.task:
            return f"{self.job}_{self.task}" if self.task.isdigit() else f"{self.job}_[{self.task}]"
        return f"{self.job}+{self.het}" if self.het else self.job

    def __str__(self) -> str:
        return f"{self.whole}.{self.step}" if self.step else self.whole


def parse(text: str) -> JobId:
    """The ID in `text`. Raises UsageError if it is not valid."""
    match = _ID.fullmatch(text.strip())
    if not match or not text.isascii():
        raise UsageError(f"{clean(text, 80)!r} is not a valid job ID; expected 123, 123_4 or 123+1")
    job, task, het, step = match.groups()
    if task in _NO_TASK:
        task = ""
    return JobId(job, (task or "").strip("[]"), het or "", step or "")


def ranges(tasks: Iterable[str]) -> str:
    """Tasks of an array as Slurm writes them: `4,7-9` of their numbers, sorted."""
    numbers = sorted({int(task) for task in tasks if task.isdecimal()})
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
