"""gpumon's budgets: each a figure of ours against one of a peer of the same run, or a constant."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.measure import Failed, LiveFigures, ShotFigures
from benchmarks.programs import BEFORE

#: of one recorder, on a folder that may lie on a file server, besides writing (`benchmarks.home`)
HOME_CALLS_A_MINUTE = 6

Results = dict[str, LiveFigures | ShotFigures | Failed]


class Budget(NamedTuple):
    """`figure` of `ours` <= `factor` x that of `peer` (<= `factor` itself without a peer)."""

    what: str
    figure: str
    ours: str
    factor: float
    peer: str = ""


BUDGETS: tuple[Budget, ...] = (
    Budget("agent CPU", "cpu_percent", "gpumon collect", 1.5, "nvtop 1 s"),
    Budget("agent CPU", "cpu_percent", "gpumon collect", 0.5, "nvitop 1 s"),
    Budget("agent memory (PSS)", "pss_bytes", "gpumon collect", 1, "nvitop 1 s"),
    Budget("NVML calls per second", "nvml_calls_per_s", "gpumon collect", 0.5, "nvitop 1 s"),
    Budget("dashboard CPU, agent included", "cpu_percent", "gpumon", 0.75, "nvitop 1 s"),
    Budget("dashboard memory (PSS), MiB", "pss_bytes", "gpumon", 46 << 20),
    Budget("terminal bytes per second", "output_bytes_per_s", "gpumon", 1.2, "nvitop 1 s"),
    Budget("`gpumon --help`", "wall_s", "gpumon --help", 0.5, "nvitop --help"),
    Budget("`gpumon --version`", "wall_s", "gpumon --version", 0.5, "nvitop --help"),
    Budget("`gpumon once`", "wall_s", "gpumon once", 1, "nvitop -1"),
    Budget("first full screen, s", "first_screen_s", "gpumon", 0.3),
)


#: what a change may cost, with `--before`: of runs on one machine, 5 % are noise
_NO_WORSE = 1.05
BUDGETS += tuple(
    Budget(f"no worse than before: {what}", figure, name, _NO_WORSE, f"before: {name}")
    for what, figure, name in (
        ("agent CPU", "cpu_percent", "gpumon collect"),
        ("agent memory", "pss_bytes", "gpumon collect"),
        ("dashboard CPU", "cpu_percent", "gpumon"),
        ("dashboard memory", "pss_bytes", "gpumon"),
        ("bytes per second", "output_bytes_per_s", "gpumon"),
        ("first screen", "first_screen_s", "gpumon"),
        ("`gpumon once`", "wall_s", "gpumon once"),
        ("`gpumon --help`", "wall_s", "gpumon --help"),
    )
)


class Verdict(NamedTuple):
    budget: Budget
    ours: float | None
    limit: float | None

    @property
    def word(self) -> str:
        """`pass` or `miss` with how far, or why it is not known."""
        if self.ours is None:
            return f"not measured: no {self.budget.ours}"
        if self.limit is None:
            return f"not measured: no {self.budget.peer}"
        part = self.ours / self.limit
        return f"pass, {part:.2f} of it" if part <= 1 else f"**miss**, {part:.2f} × it"


def judge(results: Results) -> list[Verdict]:
    """Hold each budget against the results; what has no figure is not judged."""

    def figure(name: str, budget: Budget) -> float | None:
        return getattr(results.get(name), budget.figure, None)

    verdicts = []
    for budget in BUDGETS:
        limit: float | None = budget.factor
        if budget.peer:
            other = figure(budget.peer, budget)
            limit = None if other is None else budget.factor * other
        if limit is not None or not budget.peer.startswith(f"{BEFORE}:"):
            verdicts.append(Verdict(budget, figure(budget.ours, budget), limit))
    return verdicts
