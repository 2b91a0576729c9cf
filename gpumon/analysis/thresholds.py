"""Numbers that a site may change: declared once, each with its unit and default.

    class LowBusy(NamedTuple):
        seconds: Seconds = 900
        warning_percent: Percent = 15

is the section `low-busy` of a site's `[thresholds]`: `"low-busy.warning_percent" = 20`. What is not
in such a class is fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast, get_type_hints

from gpumon.analysis.once import once

if TYPE_CHECKING:
    from gpumon.site import Site

Seconds = Annotated[float, "s"]
Percent = Annotated[float, "%"]
Share = Annotated[float, "of 1"]
Bytes = Annotated[float, "bytes"]
MiB = Annotated[float, "MiB"]
Cores = Annotated[float, "cores"]
GpuHours = Annotated[float, "GPU-h"]
Count = Annotated[float, ""]

_Numbers = TypeVar("_Numbers")


# -- of several modules ----------------------------------------------------------------------------


class Array(NamedTuple):
    elapsed_s: Seconds = 300  # tasks that are shorter do not count


class CpuBinding(NamedTuple):
    seconds: Seconds = 300
    used_share: Share = 0.5  # of the cores, at most
    pressure_percent: Percent = 20


class CpuIdle(NamedTuple):
    seconds: Seconds = 1800  # each stretch
    cores: Cores = 0.1  # on each node: fewer is a shell that sleeps


class Phases(NamedTuple):
    least_percent: Percent = 10  # of the run, from which a condition is more than information
    gpu_hours: GpuHours = 2  # wasted: from here on it is, too, however short


class LowCoverage(NamedTuple):
    percent: Percent = 80  # of the run
    gap_s: Seconds = 600
    samples: Count = 3
    advice_percent: Percent = 50  # of the run, for advice on the request


class NeverUsed(NamedTuple):
    seconds: Seconds = 300
    critical_held_s: Seconds = 1800  # of memory without work


class Straggler(NamedTuple):
    seconds: Seconds = 600
    off_percent: Percent = 20  # off the median busy or clock
    busy_percent: Percent = 30  # below, a clock is low by design
    clock_percent: Percent = 5  # below the median: by hardware


#: sections without a rule of their name
SHARED: dict[str, type[Any]] = {
    "array": Array, "phases": Phases, "cpu-binding": CpuBinding,
    "cpu-idle": CpuIdle,
}  # fmt: skip


# -- read and listed -------------------------------------------------------------------------------


class Threshold(NamedTuple):
    """One of them, as documents and the check of a site's file see it."""

    name: str  # low-busy.warning_percent
    default: float
    unit: str


def of_site(site: Site | None, section: str, numbers: type[_Numbers]) -> _Numbers:
    """A section's numbers: the site's, else the defaults."""
    if site is None:
        return numbers()
    known = _read(site)
    if section not in known:
        begin = f"{section}."
        changed = {
            name.removeprefix(begin): value
            for name, value in site.thresholds.items()
            if name.startswith(begin)
        }
        known[section] = numbers(**changed)
    found: _Numbers = known[section]
    return found


@once
def _read(_site: Site) -> dict[str, Any]:
    """By section, its numbers, once they were asked for."""
    return {}


def declared(section: str, numbers: type[Any]) -> list[Threshold]:
    """A section's thresholds, in their order."""
    hints = get_type_hints(numbers, include_extras=True)
    defaults = cast("dict[str, float]", numbers._field_defaults)
    return [
        Threshold(f"{section}.{name}", default, hints[name].__metadata__[0])
        for name, default in defaults.items()
    ]
