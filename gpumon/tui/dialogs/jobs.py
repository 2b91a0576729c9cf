"""Which of one's own jobs to attach to: a list to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import clock
from gpumon.model.units import age_text
from gpumon.report.render.jobs import NONE, state_text
from gpumon.slurm.groups import JobGroup
from gpumon.tui.columns import Column
from gpumon.tui.dialogs.choice import Choice, choose

COLUMNS = (
    Column("job"),
    Column("name", most=30, least=14),
    Column("partition", 5, most=16),
    Column("nodes", 3, right=True),
    Column("GPUs", 2, right=True),
    Column("elapsed", 4, right=True),
    Column("left", 1, right=True),
    Column("state", most=30, least=10),
)


def choose_job(title: str, groups: Sequence[JobGroup], theme_setting: str = "") -> str | None:
    """Ask on the whole terminal which one; its id, or None when the user leaves."""
    now = clock.now()
    return choose(
        title, COLUMNS, [Choice(each.id, cells(each, now)) for each in groups], theme_setting
    )


def cells(group: JobGroup, now: float) -> list[str]:
    """In the order of the columns; what there is none of, or Slurm does not say, is `-`."""
    first = group.shown[0]
    elapsed_s, left_s = group.elapsed_s(now), group.left_s(now)
    return [
        group.id,
        group.name,
        first.partition,
        _count(group.nodes),
        _count(group.gpus),
        NONE if elapsed_s is None or group.is_pending else age_text(elapsed_s),
        NONE if left_s is None else age_text(left_s),
        _state(group),
    ]


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def _state(group: JobGroup) -> str:
    """`RUNNING`, `PENDING (Priority)`, `RUNNING 2/40` of an array."""
    reason = group.jobs[0].reason
    if group.is_pending and reason not in ("", "None"):
        return f"{state_text(group)} ({reason})"
    return state_text(group)
