"""Plain data stands for its values, and stays quick to make."""

from __future__ import annotations

from gpumon.plain import dataclass
from gpumon.slurm.job import Job


@dataclass(frozen=True)
class Pair:
    one: int
    other: str = ""


def test_equal_values_are_one_key():
    assert Pair(1, "a") == Pair(1, "a") != Pair(2, "a")
    assert len({Pair(1), Pair(1), Pair(2)}) == 2


def test_fields_are_set_without_a_check():
    """Through `object.__setattr__`, as `dataclasses` does for frozen ones, a job takes twice the
    time.
    """
    for each in (Pair, Job):
        assert "__setattr__" not in vars(each)
