"""Used against requested: the resources of a node, a job, a task, and of several together.

A part is no total: a sum, mean or share over nodes, GPUs or tasks of which one is unknown is
unknown, and its reason names that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpumon.analysis import known
from gpumon.model.fields import ACTIVE_PERCENT
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, of_bytes_text
from gpumon.plain import dataclass

NO_GPUS, NOT_MEASURED = "no GPUs", "not measured"
#: of all that there is; counters and clocks differ by less
_FULL = 1.05
_NAMED = 3


class Use(NamedTuple):
    """One resource: used on average, or now, and at the peak, of what was given. None: not known,
    and `why` has the reason.
    """

    used: float | None = None
    given: float | None = None
    peak: float | None = None
    why: str = ""
    of: str = ""  # the node, GPU or task

    @property
    def share(self) -> float | None:
        return _share(self.used, self.given)

    @property
    def peak_share(self) -> float | None:
        return _share(self.peak, self.given)

    @property
    def is_known(self) -> bool:
        return self.used is not None or self.peak is not None

    def within(self, most: float | None, text: Callable[[float], str]) -> Use:
        """Without figures beyond what there can be: `most`, where that is known."""
        high = known.highest((self.used, self.peak))
        if not most or high is None or high <= _FULL * most:
            return self
        why = f"{text(high)} of {text(most)} cannot be right"
        return Use(given=self.given, why=why, of=self.of)


def _share(part: float | None, whole: float | None) -> float | None:
    """From 0 to 1; None also where the part is more than the whole."""
    if part is None or not whole or part > _FULL * whole:
        return None
    return min(1.0, part / whole)


def read(reading: Reading | None, given: float | None = None, of: str = "") -> Use:
    """What a reading shows now."""
    return Use(number(reading), given, why=reason(reading), of=of)


def reason(reading: Reading | None) -> str:
    """Why it is no number; "" where it is one."""
    if number(reading) is not None:
        return ""
    return str(reading) if isinstance(reading, Missing) else NOT_MEASURED


def total(parts: Iterable[Use]) -> Use:
    """All of them together."""
    parts = list(parts)
    used, given, peak = (known.total(column) for column in list(zip(*parts))[:3] or [()] * 3)
    return Use(used, given, peak, _why(parts))


def mean(parts: Iterable[Use]) -> Use:
    """Of percentages."""
    parts = list(parts)
    in_all = total(parts)
    used = None if in_all.used is None else in_all.used / len(parts)
    return Use(used, why=in_all.why)


def _why(parts: Sequence[Use]) -> str:
    """`without gpu02: n/a no-permission`."""
    absent = [each for each in parts if each.why or not each.is_known]
    if not absent:
        return ""
    why = absent[0].why or NOT_MEASURED
    if len(absent) == len(parts) and all(each.why == absent[0].why for each in absent):
        return why
    names = [clean(each.of, 60) for each in absent if each.of] or [f"{len(absent)} of {len(parts)}"]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"without {', '.join(names[:_NAMED])}{more}: {why}"


def size_text(used_bytes: float, given_bytes: float | None) -> str:
    """`31 / 256 GiB`; `31 GiB` where it is not known of how much."""
    return of_bytes_text(used_bytes, given_bytes) if given_bytes else bytes_text(used_bytes)


def cores_text(cores: float) -> str:
    return f"{cores:.0f} cores" if cores == int(cores) else f"{cores:.1f} cores"


@dataclass(frozen=True)
class Figures:
    """What a node, a job or a task uses of its resources, and who measured it."""

    cores: Use = Use()  # at the peak: the largest mean of a minute
    mem: Use = Use()  # of the host, over all nodes; without page cache if we measured it
    #: that worked, of those measured; used: how many would have done, had they worked all the time
    gpus: Use = Use()
    busy: Use = Use()  # %, mean of the GPUs
    gpu_mem: Use = Use()
    is_need: bool = True  # else some of `gpu_mem` is a framework's reservation
    is_now: bool = False  # else of the whole run
    cpu_core_s: float | None = None
    mem_max_node_bytes: float | None = None  # of the node that used most
    gpu_energy_j: float | None = None
    mem_source: str = ""  # cgroup, sacct, jobstats, prometheus
    mem_note: str = ""  # "upper bound: page cache is in it"
    cpu_note: str = ""


def working(busy: Use) -> Use:
    """One of the GPUs that work, or not."""
    is_active = None if busy.used is None else float(busy.used >= ACTIVE_PERCENT)
    return Use(given=1.0, peak=is_active, why=busy.why, of=busy.of)


def unknown(why: str, of: str = "") -> Figures:
    use = Use(why=why, of=of)
    return Figures(use, use, use, use, use)


def together(parts: Sequence[Figures]) -> Figures:
    """Of several nodes, tasks or components as one; those without GPUs are in no figure of GPUs."""
    if len(parts) == 1:
        return parts[0]
    with_gpus = [each for each in parts if each.busy.why != NO_GPUS] or parts
    return Figures(
        total(each.cores for each in parts),
        total(each.mem for each in parts),
        total(each.gpus for each in with_gpus),
        _weighted(with_gpus),
        total(each.gpu_mem for each in with_gpus),
        all(each.is_need for each in parts),
        all(each.is_now for each in parts),
    )


def _weighted(parts: Sequence[Figures]) -> Use:
    """The mean of all their GPUs."""
    in_all, gpus = total(each.busy for each in parts), total(each.gpus for each in parts).given
    if in_all.used is None or not gpus:
        return Use(why=in_all.why or NOT_MEASURED)
    return Use(sum((each.busy.used or 0.0) * (each.gpus.given or 0.0) for each in parts) / gpus)
