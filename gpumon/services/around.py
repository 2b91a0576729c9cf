"""Whether there is an allocation around this shell: without one, nothing of Slurm is imported."""

from __future__ import annotations

from collections.abc import Iterable


def is_in_job(names: Iterable[str]) -> bool:
    """By the names of the environment; of a heterogeneous job each component has one."""
    return any(name.startswith("SLURM_JOB_ID") for name in names)
