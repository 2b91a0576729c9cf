"""Several jobs as one table: the worst waste first, totals in GPU-hours below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.report.model import Report
from gpumon.report.render.layout import aligned

HEAD = (
    "JOB", "USER", "STATE", "ELAPSED", "TIME", "CPU", "MEM", "GPUS", "BUSY", "WASTE",
    "WORST FINDING",
)  # fmt: skip
_RIGHT = range(3, 10)


class Totals(NamedTuple):
    """Over the jobs of a table, or of one user in it."""

    jobs: int
    gpu_hours: float
    waste_gpu_hours: float
    unknown_gpu_hours: float  # of jobs whose GPUs nobody measured


def are_several(reports: Sequence[Report]) -> bool:
    """Jobs of their own, and not the components of one het job."""
    het = {report.job.het_job_id for report in reports}
    return len(reports) > 1 and (len(het) > 1 or "" in het)


def ranked(reports: Sequence[Report]) -> list[Report]:
    """The worst waste first; among equals the worst level, then the newest."""
    levels = {"critical": 0, "warning": 1, "info": 2}

    def key(report: Report) -> tuple[float, int, float]:
        worst = min((levels[each.level] for each in report.findings), default=3)
        return (-report.waste_gpu_hours, worst, -(report.start or 0.0))

    return sorted(reports, key=key)


def totals(reports: Sequence[Report]) -> Totals:
    hours = [report.gpu_hours or 0.0 for report in reports]
    unknown = sum(
        report.gpu_hours or 0.0
        for report in reports
        if report.efficiency.get("gpu_busy_percent") is None
    )
    return Totals(len(reports), sum(hours), sum(each.waste_gpu_hours for each in reports), unknown)


def by_user(reports: Sequence[Report]) -> list[tuple[str, Totals]]:
    """Users by waste, for staff."""
    groups: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        groups[report.job.user].append(report)
    found = [(user, totals(mine)) for user, mine in groups.items()]
    return sorted(found, key=lambda each: (-each[1].waste_gpu_hours, -each[1].gpu_hours, each[0]))


def cells(report: Report) -> tuple[str, ...]:
    """One job's row, in the order of the head; what is not known is a dash."""
    job, efficiency = report.job, report.efficiency
    worst = report.findings[0] if report.findings else None
    gpus = job.gpus
    return (
        job.id or job.raw_id,
        clean(job.user, 12),
        job.state.replace("OUT_OF_MEMORY", "OUT_OF_MEM"),
        "-" if report.elapsed_s is None else age_text(report.elapsed_s),
        _percent(efficiency.get("time_percent")),
        _percent(efficiency.get("cpu_percent")),
        _percent(efficiency.get("mem_percent")),
        "-" if gpus is None else str(gpus),
        "" if not gpus else _percent(efficiency.get("gpu_busy_percent"), unknown="?"),
        f"{report.waste_gpu_hours:.1f}" if report.waste_gpu_hours else "",
        "" if worst is None else f"{worst.id}: {clean(worst.title, 70)}",
    )


def _percent(value: float | None, unknown: str = "-") -> str:
    return unknown if value is None else f"{value:.0f}%"


def text_table(reports: Sequence[Report], width: int = 120) -> str:
    """For the terminal; the last column is cut to the width."""
    rows = aligned([HEAD, *(cells(report) for report in ranked(reports))], _RIGHT)
    lines = [row[: max(width, 40)].rstrip() for row in rows]
    return "\n".join([*lines, "", *total_lines(reports)]) + "\n"


def total_lines(reports: Sequence[Report]) -> list[str]:
    all_of_them = totals(reports)
    lines = [_sentence(all_of_them)]
    users = by_user(reports)
    if len(users) > 1:
        lines += [f"  {clean(user, 20) or '?'}: {_sentence(total)}" for user, total in users[:20]]
    return [*lines, *dict.fromkeys(clean(note) for each in reports for note in each.notes)]


def _sentence(total: Totals) -> str:
    text = f"{total.jobs} job{'s' if total.jobs != 1 else ''}, {total.gpu_hours:.1f} GPU-hours"
    if total.waste_gpu_hours:
        share = 100 * total.waste_gpu_hours / total.gpu_hours if total.gpu_hours else 0.0
        text += f", {total.waste_gpu_hours:.1f} of them not used ({share:.0f} %)"
    if total.unknown_gpu_hours:
        text += f"; GPU use was not measured in {total.unknown_gpu_hours:.1f}"
    return text
